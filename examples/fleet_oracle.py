"""What a spliced table must hold, worked out from its event files alone.

An oracle: it shares no code with asynclock, needs nothing but the standard library,
and reads the spec and the CSV files as they lie on disk. The rule it applies, for
each key and stream:

- the event with the newest ordering value wins, with all its columns, nulls included;
- of equal ordering values the later arrival wins: files in the order of their names,
  rows in the order of their file;
- where a stream never mentions a key, its columns are null.

Run it with ``python -m examples.fleet_oracle SPEC`` for the statistics of a delivery.
"""

from __future__ import annotations

import argparse
import csv
import tomllib
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

Value = str | int | float | datetime | None
"""A cell: timestamps are aware, in UTC."""


@dataclass(frozen=True, kw_only=True)
class StreamStatistics:
    """What a stream delivered. An *event* is a distinct row, a *delivery* any row."""

    files: int
    deliveries: int
    events: int
    duplicates: int
    """Deliveries of an event that had been delivered before."""
    late: int
    """Events first delivered when an earlier file had brought a newer one of the same key."""
    superseded: int
    """Events that lost to a newer one of the same key, whenever either came."""
    tied: int
    """Events that share their ordering value with a different event of the same key."""

    @property
    def duplicate_share(self) -> float:
        """Duplicates, as a share of the deliveries."""
        return self.duplicates / self.deliveries

    @property
    def late_share(self) -> float:
        """Late events, as a share of the events."""
        return self.late / self.events

    @property
    def superseded_share(self) -> float:
        """Superseded events, as a share of the events."""
        return self.superseded / self.events

    def __add__(self, other: StreamStatistics) -> StreamStatistics:
        """Give the statistics of both streams together."""
        return StreamStatistics(
            files=self.files + other.files,
            deliveries=self.deliveries + other.deliveries,
            events=self.events + other.events,
            duplicates=self.duplicates + other.duplicates,
            late=self.late + other.late,
            superseded=self.superseded + other.superseded,
            tied=self.tied + other.tied,
        )


@dataclass(frozen=True, kw_only=True)
class Expected:
    """The table as it must be."""

    key: str
    """Name of the key column."""
    columns: tuple[str, ...]
    """The other columns, under their plain names: the streams of the spec in turn."""
    rows: Mapping[str, Mapping[str, Value]]
    """The columns of every key."""
    statistics: Mapping[str, StreamStatistics]
    """By stream."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """One way in which a table is not as expected."""

    key: str
    kind: Literal["cell", "missing row", "surplus row", "repeated row"]
    column: str | None = None
    """Which cell; None where the row as a whole is wrong."""
    expected: Value = None
    actual: Value = None

    def __str__(self) -> str:
        """Say it in a line."""
        if self.kind != "cell":
            return f"{self.key}: {self.kind}"
        return f"{self.key}.{self.column}: expected {_show(self.expected)}, got {_show(self.actual)}"


def expect(spec: Path) -> Expected:
    """Work out the table from the spec and the event files it names.

    Relative source paths start from the spec's folder.

    Raises:
        ValueError: The spec has several key columns, or an event file holds a row that
            cannot be read; the text names file and line.
        FileNotFoundError: A stream has no event file.
    """
    document = tomllib.loads(spec.read_text(encoding="utf-8"))
    keys = document["table"]["key"]
    if len(keys) != 1:
        raise ValueError(f"{spec}: the oracle reads tables with one key column; this one has {keys}.")
    streams = {
        name: _Stream(
            key=keys[0],
            ordering=table["ordering"],
            columns=table["columns"],
            files=_files(spec.parent / table["source"]),
        )
        for name, table in document["streams"].items()
    }
    columns = tuple(column for stream in streams.values() for column in stream.columns)
    rows: dict[str, dict[str, Value]] = {}
    statistics = {}
    for name, stream in streams.items():
        winners, statistics[name] = stream.splice()
        for key, group in winners.items():
            rows.setdefault(key, dict.fromkeys(columns)).update(group)
    return Expected(key=keys[0], columns=columns, rows=rows, statistics=statistics)


def compare(expected: Expected, actual: Iterable[Mapping[str, Any]]) -> list[Difference]:
    """Give every difference, by key and then in the order of the columns; none: the tables agree.

    Args:
        expected: From ``expect``.
        actual: Rows with the key and the plain names. Naive timestamps are in the zone of
            this process, which is how PySpark's ``collect`` gives them. Further columns
            are not looked at.

    Raises:
        ValueError: A row lacks one of the columns, so it cannot be compared.
    """
    wanted = (expected.key, *expected.columns)
    seen: Counter[str] = Counter()
    found: list[Difference] = []
    for row in actual:
        lacking = [column for column in wanted if column not in row]
        if lacking:
            raise ValueError(
                f"the row {dict(row)} has no column {', '.join(lacking)}; it cannot be compared."
            )
        key = row[expected.key]
        seen[key] += 1
        if key not in expected.rows:
            found.append(Difference(key=key, kind="surplus row"))
        elif seen[key] > 1:
            found.append(Difference(key=key, kind="repeated row"))
        else:
            found.extend(_differing_cells(key, expected.rows[key], row))
    found.extend(Difference(key=key, kind="missing row") for key in expected.rows if key not in seen)
    return sorted(found, key=lambda difference: str(difference.key))


def _differing_cells(
    key: str, expected: Mapping[str, Value], actual: Mapping[str, Any]
) -> Iterator[Difference]:
    for column, value in expected.items():
        got = actual[column]
        if isinstance(got, datetime):
            got = got.astimezone(UTC)
        if got != value:
            yield Difference(key=key, kind="cell", column=column, expected=value, actual=got)


@dataclass(frozen=True, kw_only=True)
class _Stream:
    """One stream as its spec describes it."""

    key: str
    ordering: str
    columns: Mapping[str, str]
    files: tuple[Path, ...]

    def splice(self) -> tuple[dict[str, dict[str, Value]], StreamStatistics]:
        """Give the winning group of every key, and the statistics."""
        newest: dict[str, tuple[datetime, list[str]]] = {}
        events: set[str] = set()
        at_instant: Counter[str] = Counter()
        deliveries = late = 0
        for path in self.files:
            before = {key: instant for key, (instant, _) in newest.items()}
            for key, instant, row in self._read(path):
                deliveries += 1
                winner = newest.get(key)
                if winner is None or instant >= winner[0]:
                    newest[key] = (instant, row)
                event = "\0".join(row)
                if event in events:
                    continue
                events.add(event)
                at_instant[_moment(key, instant)] += 1
                late += key in before and instant < before[key]
        unbeaten = sum(at_instant[_moment(key, instant)] for key, (instant, _) in newest.items())
        statistics = StreamStatistics(
            files=len(self.files),
            deliveries=deliveries,
            events=len(events),
            duplicates=deliveries - len(events),
            late=late,
            superseded=len(events) - unbeaten,
            tied=sum(number for number in at_instant.values() if number > 1),
        )
        return {key: self._values(row) for key, (_, row) in newest.items()}, statistics

    def _read(self, path: Path) -> Iterator[tuple[str, datetime, list[str]]]:
        """Give key, ordering value and cells of each row, the cells in the order of ``columns``."""
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.reader(file)
            header = next(reader, [])
            try:
                places = [header.index(name) for name in (self.key, *self.columns)]
            except ValueError as error:
                raise ValueError(
                    f"{path}:1: the header {header} lacks a column of the spec: {error}"
                ) from None
            ordering = header.index(self.ordering)
            for row in reader:
                try:
                    instant = _instant(row[ordering])
                    cells = [row[place] for place in places]
                except (IndexError, ValueError) as error:
                    raise ValueError(
                        f"{path}:{reader.line_num}: the row {row} cannot be read: {error}"
                    ) from None
                yield cells[0], instant, cells

    def _values(self, cells: list[str]) -> dict[str, Value]:
        return {
            column: _PARSERS[kind](cell) if cell else None
            for (column, kind), cell in zip(self.columns.items(), cells[1:], strict=True)
        }


def _instant(text: str) -> datetime:
    instant = datetime.fromisoformat(text)
    if instant.tzinfo is None:
        raise ValueError(f"the instant {text!r} names no zone")
    return instant.astimezone(UTC)


_PARSERS: Final[dict[str, Callable[[str], Value]]] = {
    "string": str,
    "int": int,
    "bigint": int,
    "double": float,
    "timestamp": _instant,
}


def _moment(key: str, instant: datetime) -> str:
    return f"{key}\0{instant.timestamp()}"


def _files(pattern: Path) -> tuple[Path, ...]:
    files = tuple(sorted(pattern.parent.glob(pattern.name)))
    if not files:
        raise FileNotFoundError(f"{pattern} matches no event file.")
    return files


def _show(value: Value) -> str:
    return value.isoformat() if isinstance(value, datetime) else repr(value)


def main(arguments: list[str] | None = None) -> None:
    """Print the statistics of the deliveries that a spec names."""
    parser = argparse.ArgumentParser(prog="python -m examples.fleet_oracle", description=main.__doc__)
    parser.add_argument("spec", type=Path)
    expected = expect(parser.parse_args(arguments).spec)
    first, *others = expected.statistics.values()
    for name, statistics in {**expected.statistics, "in all": sum(others, start=first)}.items():
        print(
            f"{name:>12}: {statistics.events:>7,} events in {statistics.files} files: "
            f"{statistics.superseded_share:.1%} lost to a newer one, {statistics.late_share:.1%} came late, "
            f"{statistics.duplicate_share:.1%} of {statistics.deliveries:,} deliveries were duplicates, "
            f"{statistics.tied} tied"
        )
    print(f"{len(expected.rows)} keys x {len(expected.columns)} columns")


if __name__ == "__main__":
    main()
