"""The rows that a delete appends: tombstones of streams, or Hudi's deletes of whole rows."""

from __future__ import annotations

import contextlib
import datetime as dt
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  the name everybody uses

from asynclock.errors import ConfigError
from asynclock.hudi._core import hoodie
from asynclock.spark.hudi.layout import layout_of
from asynclock.spark.hudi.options import read_options
from asynclock.spark.results import DeleteReport
from asynclock.spark.spec.column import sql_type
from asynclock.spark.spec.keys import row_digest
from asynclock.spark.spec.model import ORDERING, TOMBSTONE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Self

    from pyspark.sql import Column

    from asynclock.spark.hudi.table import Table
    from asynclock.spark.spec.model import Spec, StreamSpec

UpTo = int | str | dt.datetime | dt.date

DELETE_LOCK: Final = "delete/table"
_PRESENT: Final = "_asynclock_present"
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,20}")
_BITS: Final = {"int": 32, "bigint": 64}
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@dataclass(frozen=True, kw_only=True)
class Deletion:
    """The streams that lose their events of a key, each up to an ordering value.

    Attributes:
        spec: The table.
        up_to: SQL of the ordering value by stream; None: the value of the newest event in the table. Empty: a
            delete of Hudi, which removes the whole row.
    """

    spec: Spec
    up_to: Mapping[str, str | None]

    @classmethod
    def of(cls, spec: Spec, stream: str | None, up_to: UpTo | Mapping[str, UpTo] | None) -> Self:
        """Return the deletion that a caller wants, checked.

        Raises:
            ConfigError: The table is plain, there is no such stream, or a value is not of the type of its
                ordering column.
        """
        layout_of(spec).refuse_deletes()
        if stream is not None:
            found = spec.stream(stream)
            if isinstance(up_to, Mapping):
                raise _wrong(up_to, f"only stream {stream!r} is deleted; give its ordering value alone")
            return cls(spec=spec, up_to={stream: None if up_to is None else ordering_value(found, up_to)})
        if up_to is None:
            return cls(spec=spec, up_to={})
        if isinstance(up_to, Mapping):
            given = {spec.stream(name).name: value for name, value in up_to.items()}
            if missing := [one.name for one in spec.streams if one.name not in given]:
                reason = f"a whole row is deleted; give the ordering value of {', '.join(missing)} as well"
                raise _wrong(dict(up_to), reason)
            values = {name: ordering_value(spec.stream(name), value) for name, value in given.items()}
            return cls(spec=spec, up_to=values)
        for one in spec.streams:
            if len(spec.streams) > 1 and _ordering_type(one) not in {"timestamp", "date"}:
                reason = (
                    f"stream {one.name!r} is ordered by {one.ordering} ({_ordering_type(one)}), so no one "
                    "value is right for all streams; give one for each"
                )
                raise _wrong(up_to, reason)
        return cls(spec=spec, up_to={one.name: ordering_value(one, up_to) for one in spec.streams})

    @property
    def of_whole_rows(self) -> bool:
        """Whether this is a delete of Hudi."""
        return not self.up_to

    @property
    def options(self) -> dict[str, str]:
        """The options of the write in which it differs from an append of events."""
        return {hoodie.DATASOURCE_WRITE_OPERATION: "delete"} if self.of_whole_rows else {}

    @contextlib.contextmanager
    def found(self, keys: DataFrame) -> Iterator[tuple[DataFrame, DeleteReport]]:
        """Yield the rows to write and the report, and keep the parts that a validation needs.

        They are kept before the commit, so that each committed delete has them.
        """
        found = self._find(keys.distinct()).persist()
        try:
            chosen = (F.col(_PRESENT), self._anything())
            counts: Any = found.agg(F.count("*"), *(F.count(F.when(one, 1)) for one in chosen)).first()
            report = DeleteReport(
                keys=counts[0],
                absent=counts[0] - counts[1],
                written=counts[2],
                delete_id=str(uuid.uuid4()) if counts[2] else None,
            )
            deletes = found.where(self._anything())
            if report.delete_id is not None:
                digests = deletes.selectExpr(f"{row_digest(self.spec)} AS digest")
                kept = digests if self.of_whole_rows else deletes.drop(_PRESENT)
                kept.write.parquet(f"{self.spec.table.kept}/deletes/{report.delete_id}")
            yield deletes, report
        finally:
            found.unpersist()

    def _find(self, keys: DataFrame) -> DataFrame:
        """Return the keys, ``_PRESENT`` if the table has values of them to delete, and the tombstones.

        The tombstones are the physical ordering columns of the deleted streams; null: nothing is written.
        Costs one read of the table.
        """
        table, shared = self.spec.table, self.spec.table.shared_columns
        stored = keys.sparkSession.read.format("hudi").options(**read_options(self.spec)).load(table.path)
        known = set(stored.columns)
        deleted = [one for one in self.spec.streams if self.of_whole_rows or one.name in self.up_to]
        alive = [_alive(one, known).alias(_alive_name(one)) for one in deleted]
        newest = [_newest(one, known).alias(_newest_name(one)) for one in deleted]
        found = keys.join(stored.select(*shared, *alive, *newest), list(shared), "left")
        is_present = reduce(or_, (F.coalesce(F.col(_alive_name(one)), F.lit(False)) for one in deleted))
        tombstones = []
        for name, value in self.up_to.items():
            stream = self.spec.stream(name)
            newest_alive = F.when(F.col(_alive_name(stream)), F.col(_newest_name(stream)))
            tombstones.append((newest_alive if value is None else F.expr(value)).alias(_ordering(stream)))
        return found.select(*shared, is_present.alias(_PRESENT), *tombstones)

    def values(self) -> dict[str, str]:
        """Return SQL for the physical columns of a tombstone, over the rows of ``found``."""
        values = {}
        for name in self.up_to:
            ordering = f"`{_ordering(self.spec.stream(name))}`"
            values[_ordering(self.spec.stream(name))] = ordering
            values[f"{name}__{TOMBSTONE}"] = f"CASE WHEN {ordering} IS NOT NULL THEN true END"
        return values

    def _anything(self) -> Column:
        """Return SQL that says whether a row has anything to write."""
        if self.of_whole_rows:
            return F.lit(True)
        return reduce(or_, (F.col(_ordering(self.spec.stream(name))).isNotNull() for name in self.up_to))


def key_frame(table: Table, keys: DataFrame | Iterable[Mapping[str, Any]]) -> DataFrame:
    """Return a frame of key and partition columns; other columns are left out.

    Raises:
        ConfigError: A column is missing or has another type.
    """
    spec = table.spec
    types = {name: spec.shared_type(name) for name in spec.table.shared_columns}
    if not isinstance(keys, DataFrame):
        rows = [[row.get(name) for name in types] for row in keys]
        schema = ", ".join(f"`{name}` {kind}" for name, kind in types.items())
        return table.spark.createDataFrame(rows, schema)
    found = {field.name: field.dataType.simpleString() for field in keys.schema}
    for name, kind in types.items():
        if (given := found.get(name)) != kind:
            has = f"has it as {given}" if given else "does not have it"
            reason = f"a delete needs {name} as {kind}, the frame {has}; nothing was written"
            raise ConfigError(setting="keys", value=name, reason=reason)
    return keys.select(*types)


def ordering_value(stream: StreamSpec, value: UpTo) -> str:
    """Return SQL for an ordering value of a stream.

    Args:
        stream: The stream.
        value: The value, or its text: digits, a date or time by ISO 8601 (UTC unless it says otherwise).

    Raises:
        ConfigError: The value is not of the type of the ordering column.
    """
    kind = _ordering_type(stream)
    sql = _SQL[kind](kind, value)
    if sql is None:
        reason = f"stream {stream.name!r} is ordered by {stream.ordering} ({kind}), and this is no {kind}"
        raise _wrong(value, reason)
    return sql


def _whole(kind: str, value: UpTo) -> str | None:
    if isinstance(value, str):
        value = int(value) if _INTEGER.fullmatch(value) else value
    if type(value) is not int:
        return None
    limit = 1 << (_BITS[kind] - 1)
    return f"CAST('{value}' AS {kind})" if -limit <= value < limit else None


def _moment(value: UpTo) -> dt.datetime | None:
    if isinstance(value, str):
        try:
            value = dt.datetime.fromisoformat(value)
        except ValueError:
            return None
    if isinstance(value, dt.datetime):
        return value if value.tzinfo else value.replace(tzinfo=dt.UTC)
    if isinstance(value, dt.date):
        return dt.datetime(value.year, value.month, value.day, tzinfo=dt.UTC)
    return None


def _timestamp(_kind: str, value: UpTo) -> str | None:
    moment = _moment(value)
    micros = moment and (moment - _EPOCH) // dt.timedelta(microseconds=1)
    return None if micros is None else f"timestamp_micros({micros}L)"


def _date(_kind: str, value: UpTo) -> str | None:
    moment = _moment(value)
    return None if moment is None else f"date_from_unix_date({(moment - _EPOCH).days})"


def _text(_kind: str, value: UpTo) -> str | None:
    # In hexadecimal, because a session setting decides what a backslash means in SQL text.
    return f"CAST(X'{value.encode().hex()}' AS STRING)" if isinstance(value, str) else None


_SQL: Final = {"int": _whole, "bigint": _whole, "timestamp": _timestamp, "date": _date, "string": _text}


def _ordering_type(stream: StreamSpec) -> str:
    return next(column.type for column in stream.columns if column.name == stream.ordering)


def _ordering(stream: StreamSpec) -> str:
    return f"{stream.name}__{ORDERING}"


def _alive_name(stream: StreamSpec) -> str:
    return f"_asynclock_alive_{stream.name}"


def _newest_name(stream: StreamSpec) -> str:
    return f"_asynclock_newest_{stream.name}"


def _newest(stream: StreamSpec, known: set[str]) -> Column:
    name = _ordering(stream)
    return F.col(name) if name in known else F.lit(None).cast(sql_type(_ordering_type(stream)))


def _alive(stream: StreamSpec, known: set[str]) -> Column:
    tombstone = f"{stream.name}__{TOMBSTONE}"
    dead = F.coalesce(F.col(tombstone), F.lit(False)) if tombstone in known else F.lit(False)
    return _newest(stream, known).isNotNull() & ~dead


def _wrong(value: object, reason: str) -> ConfigError:
    return ConfigError(setting="up_to", value=value, reason=f"{reason}; nothing was written")
