"""``asynclock pipeline timeline``: the instants of a table, once or continuously."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import click

from asynclock._shared.command import DONE, json_option, print_json
from asynclock._shared.words import printable
from asynclock.spark.cli.progress import busy
from asynclock.spark.cli.spark_log import with_spark_log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from asynclock.spark.hudi.instants import Instant

_GAP: Final = "  "
_DELETES: Final = "__deletes"
_COMMITS: Final = frozenset({"deltacommit"})
_FOREIGN: Final = "(SQL, foreign)"
_STREAM: Final = 14
_MINUTE, _HOUR = 60, 3600


@dataclass(frozen=True)
class TimelineColumn:
    """A column of the table. A narrow terminal leaves out the columns of the highest ranks."""

    title: str
    text: Callable[[Instant], str]
    width: int
    rank: int = 0
    right: bool = False

    def cell(self, text: str) -> str:
        """Return a text as wide as the column."""
        return text.rjust(self.width) if self.right else text.ljust(self.width)


@click.command("timeline", short_help="Print the changes of the table: when, by whom, how much.")
@click.argument("spec")
@click.option("--follow", is_flag=True, help="Keep printing new and changed instants until Ctrl-C.")
@click.option("--archived", is_flag=True, help="Begin with the instants of the archived timeline.")
@json_option
@with_spark_log
def timeline_command(spec: str, *, follow: bool, archived: bool, as_json: bool) -> int:
    """Print the changes of the table of SPEC: by whom and when, how much, and how long each took.

    The newest comes last. Pending ones have no completion time yet. You can pass a completion time, as
    printed or just its digits, to asynclock.spark.read as as_of, and to pipeline validate as --as-of.
    """
    from asynclock.spark import load_spec, session_for  # noqa: PLC0415  needs the extra
    from asynclock.spark.reader.table_history import follow as followed  # noqa: PLC0415
    from asynclock.spark.reader.table_history import timeline  # noqa: PLC0415

    loaded = load_spec(spec)
    show = _show_json if as_json else _Printed([stream.name for stream in loaded.streams]).show
    try:
        with session_for(loaded, "asynclock timeline") as spark:
            if not follow:
                with busy("reading the timeline", quiet=as_json):
                    instants = timeline(loaded, spark, archived=archived)
                show(instants)
                return DONE
            for instants in followed(loaded, spark, archived=archived):
                show(instants)
    except KeyboardInterrupt:
        if not follow:
            raise
    return DONE


def _show_json(instants: Iterable[Instant]) -> None:
    for instant in instants:
        print_json(instant)


class _Printed:
    """A table on the standard output."""

    def __init__(self, streams: Iterable[str]) -> None:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        self._table = TimelineTable(streams, width)
        self._headed = False

    def show(self, instants: Iterable[Instant]) -> None:
        head = () if self._headed else (self._table.head(),)
        self._headed = True
        sys.stdout.writelines(f"{line}\n" for line in (*head, *self._table.lines(instants)))
        sys.stdout.flush()


class TimelineTable:
    """A table that grows line by line, so the widths of its columns are fixed from the start.

    Args:
        streams: The names of the streams.
        width: Width of the terminal; None: all columns, and whole names.
    """

    def __init__(self, streams: Iterable[str], width: int | None) -> None:
        longest = max(len(_FOREIGN), *map(len, streams))
        self.columns: list[TimelineColumn] = _fitted(longest, width)

    def head(self) -> str:
        """Return the titles."""
        return self._line(column.title for column in self.columns)

    def lines(self, instants: Iterable[Instant]) -> Iterator[str]:
        """Yield a line for each instant."""
        for instant in instants:
            yield self._line(column.text(instant) for column in self.columns)

    def _line(self, texts: Iterable[str]) -> str:
        cells = (column.cell(text) for column, text in zip(self.columns, texts, strict=True))
        return _GAP.join(cells).rstrip()


def _fitted(longest: int, width: int | None) -> list[TimelineColumn]:
    stream = longest if width is None else min(longest, _STREAM)
    columns = [
        TimelineColumn("completed", _completed, 23),
        TimelineColumn("action", lambda one: one.action, 13),
        TimelineColumn("stream", lambda one: _cut(_stream(one), stream), stream),
        TimelineColumn("batch", lambda one: _number(one.batch), 6, rank=2, right=True),
        TimelineColumn("token", lambda one: _number(one.token), 16, rank=4, right=True),
        TimelineColumn("changed", lambda one: _number(one.rows), 9, rank=1, right=True),
        TimelineColumn("written", lambda one: _size(one.bytes), 8, rank=3, right=True),
        TimelineColumn("took", lambda one: _duration(one.latency), 7, rank=1, right=True),
    ]
    while width is not None and len(_GAP.join(column.cell("") for column in columns)) > width:
        least = max(columns, key=lambda column: column.rank)
        if not least.rank:
            break
        columns.remove(least)
    return columns


def _completed(instant: Instant) -> str:
    if instant.completed is None:
        return f"pending {_time(instant.in_local_time().requested)[5:19].replace('T', ' ')}"
    return _time(instant.in_local_time().completed or "")


def _time(instant: str) -> str:
    """Return an instant of digits in the notation of a time."""
    date, clock = f"{instant[:4]}-{instant[4:6]}-{instant[6:8]}", f"{instant[8:10]}:{instant[10:12]}"
    return f"{date}T{clock}:{instant[12:14]}.{instant[14:]}"


def _stream(instant: Instant) -> str:
    if instant.stream == _DELETES:
        return "(delete)"
    if instant.stream is not None:
        return printable(instant.stream)
    return _FOREIGN if instant.action in _COMMITS and instant.completed else "-"


def _cut(text: str, width: int) -> str:
    """Return a text that is not wider. It is cut in the middle: names of streams often differ at the end."""
    half = width // 2
    return text if len(text) <= width else f"{text[: width - half - 1]}…{text[-half:]}"


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)


def _size(count: int | None) -> str:
    if count is None:
        return "-"
    value, units = float(count), ["B", "kB", "MB", "GB", "TB"]
    while value >= 999.95 and len(units) > 1:  # noqa: PLR2004  rounds to 1000.0
        value, units = value / 1000, units[1:]
    return f"{count} B" if units[0] == "B" else f"{value:.1f} {units[0]}"


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    if seconds < _MINUTE:
        return f"{seconds:.1f} s"
    if seconds < _HOUR:
        return f"{int(seconds) // 60}m {int(seconds) % 60:02}s"
    return f"{int(seconds) // 3600}h {int(seconds) % 3600 // 60:02}m"
