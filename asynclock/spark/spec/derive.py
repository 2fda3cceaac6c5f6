"""Columns that are derived from the time of an event, such as the day that names its partition."""

from __future__ import annotations

import datetime as dt
import difflib
import re
import zoneinfo
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final

from pydantic import WithJsonSchema

from asynclock.spark.spec.checked import raise_all, wrong
from asynclock.spark.spec.column import Column
from asynclock.spark.spec.toml import unknown_name

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from asynclock.errors import ConfigError

FUNCTIONS: Final[Mapping[str, str]] = {"date": "date", "year": "int", "month": "int", "hour": "int"}
"""The functions of a time, and the types of their values."""
UTC: Final = "UTC"

_CALL: Final = re.compile(r"([A-Za-z_]+)\( *([A-Za-z][A-Za-z0-9_]*) *\)")
_ZONE: Final = re.compile(r"[A-Z][A-Za-z]+(/[A-Za-z0-9_+-]+)+")
_EPOCH: Final = dt.date(1970, 1, 1).toordinal()
_DAY: Final = 86_400_000_000
_HOUR: Final = 3_600_000_000
_FIRST_DAY: Final = dt.date.min.toordinal() - _EPOCH
_LAST_DAY: Final = dt.date.max.toordinal() - _EPOCH

DerivedText = Annotated[
    str,
    WithJsonSchema({"type": "string", "pattern": rf"^({'|'.join(FUNCTIONS)})\( *[A-Za-z][A-Za-z0-9_]* *\)$"}),
]


@dataclass(frozen=True, kw_only=True)
class Derived:
    """A column that is computed from another one.

    Attributes:
        name: Its name.
        function: One of ``FUNCTIONS``.
        source: The column with the time of the event.
        zone: The time zone in which an instant has its date and hour.
    """

    name: str
    function: str
    source: str
    zone: str

    @property
    def column(self) -> Column:
        """The column that is stored."""
        return Column(name=self.name, type=FUNCTIONS[self.function])

    @property
    def text(self) -> str:
        """The whole rule, as commits carry it: two columns with one text have equal values."""
        return f"{self.function}({self.source}) in {self.zone}"

    @property
    def read_with(self) -> str:
        """Its type and rule, as a commit has them among the columns of its batch; ``derived_by`` reads it."""
        return f"{self.column.type}={self.text}"

    def time_type(self, columns: Iterable[Column]) -> str:
        """Return the type of the time among the columns of a stream; all streams have the same."""
        return next(column.type for column in columns if column.name == self.source)

    def sql(self, kind: str) -> str:
        """Return SQL for the value, which means the same in every session.

        Args:
            kind: The type of the source, which is neither null nor ``unfit``.
        """
        day = f"date_from_unix_date({self._days(kind)})"
        if self.function == "hour":
            return f"CAST(pmod({self._local()}, {_DAY}) div {_HOUR} AS INT)"
        return day if self.function == "date" else f"{self.function}({day})"

    def unfit(self, kind: str) -> tuple[str, str]:
        """Return a SQL condition on a source that is not null and has no value, and the complaint."""
        days = self._days(kind)
        outside = f"{days} NOT BETWEEN {_FIRST_DAY} AND {_LAST_DAY}"
        if kind == "timestamp":
            first, last = _FIRST_DAY * _DAY, (_LAST_DAY + 1) * _DAY - 1
            outside = f"unix_micros(`{self.source}`) NOT BETWEEN {first} AND {last} OR {outside}"
        return f"({outside})", f"'{self.complaint}'"

    @property
    def complaint(self) -> str:
        """The reason why a row without a value is bad."""
        return f"{self.name} is {self.text}, and the year of {self.source} is not from 1 to 9999"

    def _days(self, kind: str) -> str:
        if kind == "date":
            return f"unix_date(`{self.source}`)"
        # Not a quotient of doubles, which are inexact for times after the year 2255.
        return f"CAST(({self._local()} - pmod({self._local()}, {_DAY})) div {_DAY} AS INT)"

    def _local(self) -> str:
        """Return SQL for the microseconds that clocks of the zone show, counted as if they were in UTC.

        A time outside the years 1 to 9999 is cut, since Spark fails on the greatest ones.
        """
        first, last = _FIRST_DAY * _DAY, (_LAST_DAY + 1) * _DAY - 1
        known = f"timestamp_micros(least(greatest(unix_micros(`{self.source}`), {first}), {last}))"
        return f"unix_micros(from_utc_timestamp({known}, '{self.zone}'))"


def derived_by(how: str) -> str:
    """Return the rule of a column of a batch, in the form of ``Derived.text``; empty: it is not derived."""
    return how.partition("=")[2] if "=" in how.partition(" ")[0] else ""


def derived_columns(derive: Mapping[str, str], zone: str) -> tuple[Derived, ...]:
    """Return the columns of a table's ``derive``, which was checked."""
    return tuple(
        Derived(name=name, function=call[1], source=call[2], zone=zone)
        for name, text in derive.items()
        if (call := _CALL.fullmatch(text))
    )


def check_derive(derive: Mapping[str, str], zone: str, *, kind: str) -> None:
    """Refuse derived columns that no table of that kind can have.

    Args:
        derive: The functions by the names of their columns.
        zone: The time zone.
        kind: The kind of the table.

    Raises:
        ConfigError: A text is no function of a column, the zone is unknown, or the table is a splice.
    """
    raise_all(_mistakes(derive, zone, kind))


def check_sources(
    derived: Iterable[Derived], stream: str, columns: Iterable[Column], optional: Collection[str]
) -> None:
    """Refuse derived columns that events of a stream do not have, or have already.

    Args:
        derived: The derived columns.
        stream: Name of the stream.
        columns: Its columns.
        optional: Those that a file may lack.

    Raises:
        ConfigError: A stream lacks the time, it may be missing or is none, or the stream has a column of the
            derived one's name.
    """
    types = {column.name: column.type for column in columns}
    raise_all(
        wrong(f"table.derive.{one.name}", f"{one.function}({one.source})", f"stream {stream!r} {reason}")
        for one in derived
        if (reason := _unfit(one, types, optional))
    )


def _unfit(derived: Derived, types: Mapping[str, str], optional: Collection[str]) -> str | None:
    """Return what is wrong with a stream, as the rest of a sentence about it; None: nothing."""
    if any(name.lower() == derived.name.lower() for name in types):
        return f"has a column {derived.name!r}; drop it there, or derive one of another name"
    kind = types.get(derived.source)
    times = ("timestamp",) if derived.function == "hour" else ("timestamp", "date")
    if kind is None:
        return f"declares no column {derived.source!r}; add it there, or derive from a column of all streams"
    if kind not in times:
        return f"has {derived.source} as {kind}, and {derived.function} needs a {' or '.join(times)}"
    if derived.source in optional:
        return f"may lack {derived.source}, which is optional there; take it out of optional"
    return None


def _mistakes(derive: Mapping[str, str], zone: str, kind: str) -> Iterator[ConfigError]:
    if reason := _no_zone(zone):
        yield wrong("derive_zone", zone, reason)
    elif zone != UTC and not derive:
        yield wrong("derive_zone", zone, "it is the zone of derive, and nothing is derived; drop it")
    if derive and kind == "splice":
        reason = (
            "in a splice table each stream adds its part of a row at a time of its own, and the parts must "
            'be in one partition; take a column that every stream has, or set kind = "plain"'
        )
        yield wrong("derive", dict(derive), reason)
        return
    own = {name.lower() for name in derive}
    for name, text in derive.items():
        call = _CALL.fullmatch(text)
        if call is None:
            reason = f"it is no function of a column, such as date(at); use one of {', '.join(FUNCTIONS)}"
        elif call[1] not in FUNCTIONS:
            reason = f"no function of a time: {unknown_name(call[1], FUNCTIONS)}"
        elif call[2].lower() in own:
            reason = f"{call[2]!r} is derived itself; name a column of the streams"
        else:
            continue
        yield wrong(f"derive.{name}", text, reason)


def _no_zone(zone: str) -> str | None:
    if zone == UTC:
        return None
    if _ZONE.fullmatch(zone) and not zone.startswith("SystemV/"):
        try:
            zoneinfo.ZoneInfo(zone)
        except (zoneinfo.ZoneInfoNotFoundError, OSError, ValueError):
            pass
        else:
            return None
    known = [name for name in zoneinfo.available_timezones() if "/" in name]
    if not known:
        return "this machine has no time zones; install the package tzdata"
    close = difflib.get_close_matches(zone, known, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"no such time zone; {hint}name one such as Europe/Berlin, or UTC"
