# ruff: noqa: S608  the only names put into SQL are numbered tables of our own
"""The expected table: the merged events of each key, stream by stream, in a file on disk.

Memory does not grow with the number of keys: SQLite keeps them, in a folder of the caller's.
"""

from __future__ import annotations

import hashlib
import json
import math
import pickle
import sqlite3
import struct
import zlib
from collections.abc import Collection, Sequence
from decimal import Context, Decimal
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Literal

from asynclock.spark.check.strict.rows import BadFileError
from asynclock.spark.check.strict.values import shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

Types = Sequence[tuple[str, str]]
Rule = Literal["newest", "last", "last but nulls"]
"""The rule for two events with one key and stream. Either the newer ordering value counts, and among equal
ones the later to arrive; or the later to arrive; or for each column the last value that is not null."""
Key = tuple[Any, ...]
Cells = tuple[Any, ...]

ONE_ROW: Final = "one row"
_INSERT: Final = (
    "INSERT INTO events_{0} VALUES (?, ?, ?, FALSE) ON CONFLICT (key) DO UPDATE"
    " SET rank = excluded.rank, cells = {1}, doubtful = FALSE WHERE {2}"
)
_RULES: Final = {
    "newest": ("excluded.cells", "excluded.rank >= rank"),
    "last": ("excluded.cells", "TRUE"),
    "last but nulls": ("filled(excluded.cells, cells)", "TRUE"),
}
_REVERSED: Final = ("excluded.cells", "excluded.rank < rank")
_ADD: Final = (
    "INSERT INTO events_{0} VALUES (?, ?, ?, FALSE) ON CONFLICT (key) DO UPDATE"
    " SET cells = added(excluded.cells, cells)"
)
"""For sums: all events count, so one in doubt leaves the value in doubt."""
_CHUNK: Final = 2000
_DIGITS: Final = 38
"""The most digits of a decimal."""
_EXACT: Final = Context(prec=2 * _DIGITS)


class Expected:
    """The newest events by key, and the differences of a table from them.

    Args:
        folder: Folder of the file, which is useless without this object.
        streams: The columns of each stream in the order of its cells: stored name and type.
        one_key_in: One key in this many is kept, chosen by its checksum; 1: all are.
        key_columns: The number of a given key's columns, from the first, that are the key itself; the rest
            are its partition. None: all.
        in_one_partition: Whether a key in two partitions is a difference.
        rule: The rule for events with one key and stream.
        ranks: For each stream the places of its ordering values among its cells, in turn; none: the rule has
            no ordering.
        reversed_: Places of the streams of which the least ordering value counts, and of equal ones the first
            to arrive.
        sums: Places of the streams whose values are added; a null adds nothing.
        incomplete: Places of the streams that have lost events. If such an event may have set a cell, the
            cell is not a difference: its key counts as not comparable.
    """

    def __init__(
        self,
        folder: Path,
        streams: Sequence[Types],
        *,
        one_key_in: int = 1,
        key_columns: int | None = None,
        in_one_partition: bool = True,
        rule: Rule = "newest",
        ranks: Sequence[Sequence[int]] = (),
        reversed_: Collection[int] = (),
        sums: Collection[int] = (),
        incomplete: Collection[int] = (),
    ) -> None:
        self._streams = [tuple(columns) for columns in streams]
        self._one_key_in = one_key_in
        self._key_columns = key_columns
        self._unique = key_columns if in_one_partition else None
        self._rule = _RULES[rule]
        self._ranks = tuple(ranks) or ((),) * len(self._streams)
        self._reversed = frozenset(reversed_)
        self._sums = frozenset(sums)
        self._incomplete = set(incomplete)
        self._store = sqlite3.connect(folder / "expected.sqlite", isolation_level=None)
        # A killed comparison starts again from nothing, so this file needs no sync.
        self._store.execute("PRAGMA synchronous = OFF")
        for number in range(len(self._streams)):
            self._store.execute(
                f"CREATE TABLE events_{number} (key TEXT PRIMARY KEY, rank, cells BLOB, doubtful)"
            )
        self._store.create_function("filled", 2, _filled)
        self._store.create_function("added", 2, _added)
        self._store.execute("CREATE TABLE found (key TEXT PRIMARY KEY, times INTEGER, itself TEXT)")
        self._store.execute("CREATE TABLE unknown (key TEXT PRIMARY KEY)")
        self._store.execute("CREATE TABLE differing (key TEXT, place INTEGER, expected TEXT, found TEXT)")
        self._store.execute("BEGIN")

    def close(self) -> None:
        """Close the file."""
        self._store.close()

    def add(self, stream: int, events: Iterable[tuple[Key, Any, Cells]]) -> None:
        """Add the events of a file, in the order of their arrival.

        Args:
            stream: Place of the stream.
            events: Key, ordering value (of several columns a tuple) and cells.

        Raises:
            BadFileError: Raised by ``events``; none of them is added.
        """
        self.add_each((stream, *event) for event in events)

    def add_each(self, events: Iterable[tuple[int, Key, Any, Cells]]) -> None:
        """Add the events of a file for several streams: the place of each event's stream, and the event.

        Raises:
            BadFileError: Raised by ``events``; none of them is added.
        """
        self._store.execute("SAVEPOINT file")
        try:
            for chunk in _chunks(self._rows(events)):
                by_stream: dict[int, list[tuple[str, Any, bytes]]] = {}
                for stream, *row in chunk:
                    by_stream.setdefault(stream, []).append((row[0], row[1], row[2]))
                for stream, rows in by_stream.items():
                    self._store.executemany(self._insert(stream), rows)
        except BadFileError:
            self._store.execute("ROLLBACK TO file")
            raise
        finally:
            self._store.execute("RELEASE file")

    def _insert(self, stream: int) -> str:
        if stream in self._sums:
            return _ADD.format(stream)
        return _INSERT.format(stream, *(_REVERSED if stream in self._reversed else self._rule))

    def forget(self, stream: int, digests: Iterable[str]) -> None:
        """Remove the events of a stream for the keys with these digests (``digest_of``)."""
        self._store.execute("CREATE TEMP TABLE IF NOT EXISTS forgotten (digest TEXT PRIMARY KEY)")
        self._store.execute("DELETE FROM forgotten")
        self._store.executemany("INSERT OR IGNORE INTO forgotten VALUES (?)", ((one,) for one in digests))
        self._store.create_function("digest_of", 1, lambda text: digest_of(json.loads(text)))
        self._store.execute(
            f"DELETE FROM events_{stream} WHERE digest_of(key) IN (SELECT digest FROM forgotten)"
        )

    def lose(self, streams: Iterable[int]) -> None:
        """Take into account that events of these streams are gone, as ``incomplete`` does."""
        self._incomplete.update(streams)

    def doubt(self) -> None:
        """Take into account that a delete is gone: it may have removed any event added so far."""
        for number in range(len(self._streams)):
            self._store.execute(f"UPDATE events_{number} SET doubtful = TRUE")

    def compare(self, rows: Iterable[tuple[Key, Sequence[Cells]]]) -> None:
        """Compare the rows of the table, each with one tuple of cells a stream."""
        for key, groups in rows:
            text = _text_of(key)
            self._store.execute(
                "INSERT INTO found VALUES (?, 1, ?) ON CONFLICT (key) DO UPDATE SET times = times + 1",
                (text, _text_of(key[: self._unique])),
            )
            place = 0
            known = unknown = False
            differing: list[tuple[Any, ...]] = []
            for number, (columns, cells) in enumerate(zip(self._streams, groups, strict=True)):
                rank, wanted, doubtful = self._newest(number, text)
                known = known or wanted is not None
                cut = len(differing)
                for (_, kind), want, has in zip(
                    columns, wanted or (None,) * len(columns), cells, strict=True
                ):
                    if not same(want, has):
                        differing.append((text, place, shown(want, kind), shown(has, kind)))
                    place += 1
                gone = number in self._incomplete and self._may_be_gone(number, rank, cells)
                if len(differing) > cut and (doubtful or gone):
                    unknown = True
                    del differing[cut:]
            if unknown:
                self._store.execute("INSERT OR IGNORE INTO unknown VALUES (?)", (text,))
            if known or unknown:
                self._store.executemany("INSERT INTO differing VALUES (?, ?, ?, ?)", differing)
        self._store.execute(
            f"INSERT OR IGNORE INTO unknown SELECT key FROM ({self._not_found()})"
            f" WHERE key NOT IN ({self._not_found('NOT doubtful')})"
        )

    def _may_be_gone(self, stream: int, rank: Any, cells: Cells) -> bool:  # noqa: ANN401  as events have it
        """Return whether cells may be of a lost event: it is no older than the newest known one."""
        if not self._ranks[stream] or stream in self._sums:
            return True
        found = self._sortable(stream, rank_among(cells, self._ranks[stream]))
        if found is None or rank is None:
            return found is not None
        return bool(found <= rank if stream in self._reversed else found >= rank)

    def _sortable(self, stream: int, rank: Any) -> Any:  # noqa: ANN401  as events have it
        """Return an ordering value in a form that SQLite sorts as the merge does; a sum has none."""
        if stream in self._sums:
            return None
        if not isinstance(rank, tuple):
            places = self._ranks[stream]
            return sortable(rank, self._streams[stream][places[0]][1]) if places else rank
        kinds = [self._streams[stream][place][1] for place in self._ranks[stream]]
        return b"".join(_bytes(sortable(one, kind)) for one, kind in zip(rank, kinds, strict=True))

    def differences(self) -> Iterator[tuple[Key, str | None, str | None, str | None]]:
        """Every difference in the order of the keys: the key, ``column`` (None: the row) and both values.

        A key that is in several partitions is listed without a partition.
        """
        names = [name for columns in self._streams for name, _ in columns]
        for text, place, expected, found in self._store.execute(f"{self._all()} ORDER BY key, place"):
            yield tuple(json.loads(text)), None if place < 0 else names[place], expected, found

    def count(self) -> int:
        """The number of differences."""
        count: int = self._store.execute(f"SELECT count(*) FROM ({self._all()})").fetchone()[0]
        return count

    def keys(self) -> int:
        """Keys of the sources, the table or both."""
        tables = [f"SELECT key FROM events_{number}" for number in range(len(self._streams))]
        union = " UNION ".join([*tables, "SELECT key FROM found"])
        count: int = self._store.execute(f"SELECT count(*) FROM ({union})").fetchone()[0]
        return count

    def incomparable(self) -> int:
        """Keys that a lost event or delete may have set or removed."""
        count: int = self._store.execute("SELECT count(*) FROM unknown").fetchone()[0]
        return count

    def _all(self) -> str:
        wanted = " OR ".join(
            f"key IN (SELECT key FROM events_{number})" for number in range(len(self._streams))
        )
        missing = self._not_found("NOT doubtful")
        return (
            f"SELECT key, -1 AS place, '{ONE_ROW}' AS expected, NULL AS found FROM ({missing})"
            f" UNION ALL SELECT key, -1, CASE WHEN {wanted} THEN '{ONE_ROW}' END,"
            f" CASE times WHEN 1 THEN '{ONE_ROW}' ELSE times || ' rows' END"
            f" FROM found WHERE times > 1 OR NOT ({wanted} OR key IN (SELECT key FROM unknown))"
            f" UNION ALL SELECT itself, -1, '{ONE_ROW}', count(*) || ' partitions'"
            " FROM found GROUP BY itself HAVING count(*) > 1"
            " UNION ALL SELECT key, place, expected, found FROM differing"
            " WHERE key IN (SELECT key FROM found WHERE times = 1)"
        )

    def _not_found(self, which: str = "TRUE") -> str:
        return " UNION ".join(
            f"SELECT key FROM events_{number} WHERE key NOT IN (SELECT key FROM found) AND {which}"
            for number in range(len(self._streams))
        )

    def _rows(self, events: Iterable[tuple[int, Key, Any, Cells]]) -> Iterator[tuple[int, str, Any, bytes]]:
        for stream, key, rank, cells in events:
            itself = sampled_text(key[: self._key_columns])
            if self._one_key_in == 1 or not zlib.crc32(itself.encode()) % self._one_key_in:
                yield stream, _text_of(key), self._sortable(stream, rank), pickle.dumps(cells)

    def _newest(self, stream: int, key: str) -> tuple[Any, Cells | None, bool]:
        query = f"SELECT rank, cells, doubtful FROM events_{stream} WHERE key = ?"
        rank, cells, doubtful = self._store.execute(query, (key,)).fetchone() or (None, None, False)
        wanted = None if cells is None else pickle.loads(cells)  # noqa: S301  written by add()
        return rank, wanted, bool(doubtful)


def sampled_text(key: Key) -> str:
    """The text that decides the sample; Spark computes the same from the columns of the table."""
    return "\0".join(str(part) for part in key)


def rank_among(cells: Cells, places: Iterable[int]) -> Any:  # noqa: ANN401  as events have it
    """Return the ordering value of an event: a tuple if several columns order it, None if one is null."""
    values = tuple(cells[place] for place in places)
    return None if None in values else values if len(values) > 1 else values[0]


def digest_of(key: Key) -> str:
    """The digest in place of a key that must not be kept; the writer of a delete computes it in Spark."""
    return hashlib.sha256(sampled_text(key).encode()).hexdigest()


def same(expected: object, found: object) -> bool:
    """Whether two cells are one value: NaN is NaN, and minus zero is not zero."""
    if isinstance(expected, float) and isinstance(found, float):
        if math.isnan(expected) or math.isnan(found):
            return math.isnan(expected) and math.isnan(found)
        return expected == found and math.copysign(1, expected) == math.copysign(1, found)
    return type(expected) is type(found) and expected == found


def sortable(value: Any, kind: str) -> Any:  # noqa: ANN401  as events have it
    """Return a whole number or a text in the order of the merge.

    NaN is the greatest double, and minus zero is less than zero. SQLite has neither, nor long decimals.
    """
    if isinstance(value, float):
        (bits,) = struct.unpack(">q", struct.pack(">d", math.nan if math.isnan(value) else value))
        return bits if bits >= 0 else bits ^ ((1 << 63) - 1)
    if isinstance(value, Decimal):
        scale = int(kind.rstrip(")").rpartition(",")[2])
        return f"{int(value.scaleb(scale, _EXACT)) + 10**_DIGITS:0{_DIGITS + 1}d}"
    return value


def _bytes(value: int | str) -> bytes:
    """Return a sortable value as bytes of the same order, also with those of further values after them."""
    if isinstance(value, int):
        return (value + (1 << 63)).to_bytes(8, "big")
    return value.encode().replace(b"\0", b"\0\xff") + b"\0\0"


def _filled(newer: bytes, older: bytes) -> bytes:
    """The newer cells, with nulls replaced by the older ones."""
    pairs = zip(pickle.loads(newer), pickle.loads(older), strict=True)  # noqa: S301  written by add()
    return pickle.dumps(tuple(old if new is None else new for new, old in pairs))


def _added(newer: bytes, older: bytes) -> bytes:
    """The sums of the cells. Python's whole numbers have no bound, and decimals have digits enough."""
    pairs = zip(pickle.loads(newer), pickle.loads(older), strict=True)  # noqa: S301  written by add()
    return pickle.dumps(
        tuple(new if old is None else old if new is None else _sum(old, new) for new, old in pairs)
    )


def _sum(first: Any, second: Any) -> Any:  # noqa: ANN401  whole numbers or decimals
    return _EXACT.add(first, second) if isinstance(first, Decimal) else first + second


def _chunks(rows: Iterator[tuple[int, str, Any, bytes]]) -> Iterator[list[tuple[int, str, Any, bytes]]]:
    while chunk := list(islice(rows, _CHUNK)):
        yield chunk


def _text_of(key: Key) -> str:
    return json.dumps(key, ensure_ascii=False, separators=(",", ":"))
