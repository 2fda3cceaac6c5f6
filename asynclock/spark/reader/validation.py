"""Compare the table with its sources, cell by cell, and check its timeline.

The expected table is computed directly from the source files: for each stream the event with the newest
ordering value, of equal ones the last to arrive. ``second_reader`` reads the files, so the result depends
neither on Spark's parsers nor on the merger or the order of commits.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F  # noqa: N812  the name everybody uses

from asynclock.spark.hudi.timeline import Timeline
from asynclock.spark.reader.second_reader.expected import Expected
from asynclock.spark.reader.second_reader.files import layout_of, rows
from asynclock.spark.reader.second_reader.rows import BadFileError, Good
from asynclock.spark.reader.second_reader.values import shown
from asynclock.spark.reader.snapshot import snapshot
from asynclock.spark.source.checkpoint import Checkpoint
from asynclock.spark.source.files import source_files

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import Column, SparkSession

    from asynclock.spark.hudi.instants import BatchCommit, Instant
    from asynclock.spark.reader.second_reader.expected import Cells, Key
    from asynclock.spark.reader.second_reader.rows import Layout
    from asynclock.spark.source.files import SourceFile
    from asynclock.spark.spec.model import Spec, StreamSpec

SAMPLE: Final = 20
READ_WHOLE: Final = 1 << 30
"""Every key is compared if the source files have at most this many bytes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """One cell or row that differs from the sources.

    Attributes:
        key: The row's key and partition columns, as text.
        column: The physical column; None if the whole row is missing, surplus or duplicated.
        expected: The value in the sources, as text; None for null.
        found: The value in the table, as text; None for null.
    """

    key: dict[str, str]
    column: str | None
    expected: str | None
    found: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class StreamValidation:
    """The sources of one stream.

    Attributes:
        stream: Its name.
        files: Files in its source now.
        events: Good rows in its files.
        bad_rows: Bad rows and bad files; they are not expected in the table.
        unread_files: Files that the checkpoint does not have yet; their events are expected anyway.
        changed_files: Files that were written to after they were read; their present content is expected.
        hidden_files: Files that match the source but that no stream reads, because their names begin with
            ``_`` or ``.``; their events are not expected.
    """

    stream: str
    files: int
    events: int
    bad_rows: int
    unread_files: tuple[str, ...]
    changed_files: tuple[str, ...]
    hidden_files: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class ValidationReport:
    """What a validation found.

    Attributes:
        keys: Rows compared, including those that only one side has.
        columns: Columns compared in each row, key included.
        one_key_in: One key in this many was compared, chosen by checksum; 1: every key.
        differences: Cells and rows that differ.
        sample: The first differences by key, at most 20.
        streams: The sources of each stream.
        stale_commits: Commits under an older fencing token than an earlier commit of their stream.
        repeated_batches: Commits of a batch that had been committed before.
        pending: Instants requested or in flight, running now or left by a dead writer.
        leftovers: Paths of markers and heartbeats of writes.
    """

    keys: int
    columns: int
    one_key_in: int
    differences: int
    sample: tuple[Difference, ...]
    streams: tuple[StreamValidation, ...]
    stale_commits: tuple[BatchCommit, ...]
    repeated_batches: tuple[BatchCommit, ...]
    pending: tuple[Instant, ...]
    leftovers: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether the table agrees with its sources. Stale and repeated commits alone do no harm."""
        return self.differences == 0


def validate(spec: Spec, spark: SparkSession, *, one_key_in: int | None = None) -> ValidationReport:
    """Compare the table with its sources, which are read by independent parsers; nothing is written.

    This process reads all source files, one after the other, and keeps the expected table on its disk.

    Args:
        spec: The table and its streams, which must not change meanwhile.
        spark: A session with Hudi and the merger, as ``asynclock.spark.hudi.session`` makes it.
        one_key_in: Compare one key in this many; 1: every key. None: every key if the sources have at
            most 1 GiB, else about as many keys as 1 GiB has.

    Raises:
        ConfigError: A source file has a compression that only Hadoop can read.
    """
    timeline = Timeline(spark, spec.table.path)
    timeline.refresh()
    sources = {stream.name: source_files(spark, stream.source) for stream in spec.streams}
    if one_key_in is None:
        size = sum(file.size for files in sources.values() for file in files)
        one_key_in = max(1, -(-size // READ_WHOLE))
    shared = [(name, spec.shared_type(name)) for name in spec.table.shared_columns]
    groups = [
        [(stream.physical(column), column.type) for column in stream.owned(spec.table)]
        for stream in spec.streams
    ]
    with tempfile.TemporaryDirectory(prefix="asynclock-validate-") as folder:
        expected = Expected(Path(folder), groups, one_key_in=one_key_in)
        try:
            streams = [
                _Sources(spec, number, spark, Path(folder)).read(sources[stream.name], expected)
                for number, stream in enumerate(spec.streams)
            ]
            if any(instant.completed for instant in timeline.instants()):
                expected.compare(_table(spec, spark, one_key_in))
            differences = [
                Difference(
                    key={
                        name: str(shown(part, kind)) for part, (name, kind) in zip(key, shared, strict=True)
                    },
                    column=cell[0],
                    expected=cell[1],
                    found=cell[2],
                )
                for key, *cell in islice(expected.differences(), SAMPLE)
            ]
            keys, differing = expected.keys(), expected.count()
        finally:
            expected.close()
    return ValidationReport(
        keys=keys,
        columns=len(shared) + sum(map(len, groups)),
        one_key_in=one_key_in,
        differences=differing,
        sample=tuple(differences),
        streams=tuple(streams),
        stale_commits=tuple(stale_commits(timeline.commits)),
        repeated_batches=tuple(repeated_batches(timeline.commits)),
        pending=tuple(timeline.pending()),
        leftovers=tuple(timeline.leftovers()),
    )


def stale_commits(commits: list[BatchCommit]) -> list[BatchCommit]:
    """Return the commits whose token is lower than that of an earlier commit of their stream."""
    highest: dict[str, int] = {}
    stale = []
    for commit in commits:
        known = highest.get(commit.stream, commit.fencing_token)
        if commit.fencing_token < known:
            stale.append(commit)
        highest[commit.stream] = max(known, commit.fencing_token)
    return stale


def repeated_batches(commits: list[BatchCommit]) -> list[BatchCommit]:
    """Return the commits of batches committed before; writes without a batch number never repeat one."""
    seen: set[tuple[str, str, int]] = set()
    repeated = []
    for commit in commits:
        if commit.batch_id >= 0 and commit.batch in seen:
            repeated.append(commit)
        seen.add(commit.batch)
    return repeated


class _Sources:
    """Reads the files of one stream in the order of their arrival."""

    def __init__(self, spec: Spec, number: int, spark: SparkSession, folder: Path) -> None:
        self._stream: StreamSpec = spec.streams[number]
        self._checkpoint = Checkpoint(spec, self._stream, spark)
        self._number = number
        self._spark = spark
        self._folder = folder
        self._layout: Layout = layout_of(spec, self._stream)
        self._shared = len(spec.table.shared_columns)
        self._rank = self._layout.names.index(self._stream.ordering)
        self._events = self._bad = 0

    def read(self, files: list[SourceFile], expected: Expected) -> StreamValidation:
        """Add every event of the files to what is expected."""
        arrivals = self._checkpoint.arrivals()
        never = max((batch for batch, _ in arrivals.values()), default=0) + 1
        # By the checkpoint, since a file that was touched later has a misleading time.
        files = sorted(files, key=lambda file: (*arrivals.get(file.url, (never, file.modified_ms)), file.url))
        for file in files:
            before = self._events, self._bad
            with file.local(self._spark, self._folder) as path:
                try:
                    expected.add(self._number, self._events_of(path))
                except BadFileError:
                    self._events, self._bad = before[0], before[1] + 1
        changes = self._checkpoint.unread_changes()
        return StreamValidation(
            stream=self._stream.name,
            files=len(files),
            events=self._events,
            bad_rows=self._bad,
            unread_files=tuple(sorted(file.url for file in files if file.url not in arrivals)),
            changed_files=changes.changed,
            hidden_files=changes.hidden,
        )

    def _events_of(self, path: Path) -> Iterator[tuple[Key, Any, Cells]]:
        for row in rows(path, self._stream, self._layout):
            if isinstance(row, Good):
                self._events += 1
                yield row.values[: self._shared], row.values[self._rank], row.values[self._shared :]
            else:
                self._bad += 1


def _table(spec: Spec, spark: SparkSession, one_key_in: int) -> Iterator[tuple[Key, list[Cells]]]:
    """Yield the rows of the table, with dates and timestamps as whole numbers."""
    shared = [_as_stored(name, spec.shared_type(name)).alias(name) for name in spec.table.shared_columns]
    sizes = [len(stream.owned(spec.table)) for stream in spec.streams]
    cells = [
        _as_stored(stream.physical(column), column.type)
        for stream in spec.streams
        for column in stream.owned(spec.table)
    ]
    # Read by position, because a column may have any name.
    frame = snapshot(spec, spark).select(*shared, *cells)
    if one_key_in > 1:
        key = F.concat_ws("\0", *(F.col(name).cast("string") for name in spec.table.shared_columns))
        frame = frame.where(F.crc32(key.cast("binary")) % one_key_in == 0)
    for row in frame.toLocalIterator(prefetchPartitions=True):
        values = iter(row)
        key = tuple(islice(values, len(shared)))
        yield key, [tuple(islice(values, size)) for size in sizes]


def _as_stored(name: str, kind: str) -> Column:
    """Return dates and times as whole numbers: Python's own depend on its time zone and end at year 9999."""
    if kind == "date":
        return F.unix_date(name)
    return F.unix_micros(name) if kind == "timestamp" else F.col(name)
