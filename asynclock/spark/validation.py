"""The table compared with its sources, cell by cell, and its timeline looked over.

The expected table is computed from the source files by the rule itself (of each stream the event with the
newest ordering value, of equal ones the last to arrive). ``second_reader`` reads them, so that neither
Spark's parsers nor the merger nor the order of commits has a part in it.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F  # noqa: N812  the name everybody uses

from asynclock.spark.checkpoint import Checkpoint
from asynclock.spark.second_reader.expected import Expected
from asynclock.spark.second_reader.files import layout_of, rows
from asynclock.spark.second_reader.rows import BadFileError, Good
from asynclock.spark.second_reader.values import shown
from asynclock.spark.source_files import source_files
from asynclock.spark.timeline import Timeline
from asynclock.spark.view import snapshot

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import Column, SparkSession

    from asynclock.spark.second_reader.expected import Cells, Key
    from asynclock.spark.second_reader.rows import Layout
    from asynclock.spark.source_files import SourceFile
    from asynclock.spark.spec import Spec, StreamSpec
    from asynclock.spark.timeline import BatchCommit, Instant

SAMPLE: Final = 20
READ_WHOLE: Final = 1 << 30
"""Bytes of source files up to which every key is compared."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """One cell, or one whole row, that is not as the sources have it.

    Attributes:
        key: The row's key and partition columns, as text.
        column: The physical column; None where the row itself is missing, surplus or there twice.
        expected: As the sources have it, as text; None for null.
        found: As the table has it, as text; None for null.
    """

    key: dict[str, str]
    column: str | None
    expected: str | None
    found: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class StreamValidation:
    """One stream's sources.

    Attributes:
        stream: Its name.
        files: Files in its source now.
        events: Good rows in its files.
        bad_rows: Rows that cannot be read, and files that give none; they are not expected in the table.
        unread_files: Files its checkpoint does not know yet; their events are expected all the same.
        changed_files: Files that have been written to since they were read; what they say now is expected.
        hidden_files: Files that match the source, but whose names begin with ``_`` or ``.``: no stream reads
            them, and nothing of them is expected.
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
        keys: Rows compared, those on one side only included.
        columns: Columns compared of each, the key among them.
        one_key_in: Of so many keys one was compared, chosen by its checksum; 1: all were.
        differences: Cells and rows that differ.
        sample: The first of them by key, at most 20.
        streams: The sources, stream by stream.
        stale_commits: Commits under an older fencing token than one committed before them in their stream.
        repeated_batches: Commits of a batch that was committed before.
        pending: Instants requested or in flight: running now, or left by a dead writer.
        leftovers: Markers and heartbeats of writes, by path.
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
        """Whether the table is what its sources say. Stale and repeated commits alone do not harm it."""
        return self.differences == 0


def validate(spec: Spec, spark: SparkSession, *, one_key_in: int | None = None) -> ValidationReport:
    """Compare the columns of the table with its sources, read by another parser; nothing is written.

    All source files are read in this process, one after the other; what is expected is kept on its disk.

    Args:
        spec: The table and its streams; let them stand still meanwhile.
        spark: A session with Hudi and the merger, as ``asynclock.spark.session`` makes it.
        one_key_in: Compare one key in so many; 1: every key. None: every key of sources up to 1 GiB, of
            larger ones as many keys as would be in 1 GiB.

    Raises:
        ConfigError: A source file is compressed in a way that only Hadoop can read.
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
    """The commits under a token lower than one that its stream had committed under before."""
    highest: dict[str, int] = {}
    stale = []
    for commit in commits:
        known = highest.get(commit.stream, commit.fencing_token)
        if commit.fencing_token < known:
            stale.append(commit)
        highest[commit.stream] = max(known, commit.fencing_token)
    return stale


def repeated_batches(commits: list[BatchCommit]) -> list[BatchCommit]:
    """The commits of a batch that was committed before; writes without a batch number are never one."""
    seen: set[tuple[str, str, int]] = set()
    repeated = []
    for commit in commits:
        if commit.batch_id >= 0 and commit.batch in seen:
            repeated.append(commit)
        seen.add(commit.batch)
    return repeated


class _Sources:
    """The files of one stream, read in the order in which they arrived."""

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
        """Take in every event of the files."""
        arrivals = self._checkpoint.arrivals()
        never = max((batch for batch, _ in arrivals.values()), default=0) + 1
        # The checkpoint says what came first: a file's time says nothing where it was touched later.
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
    """The rows of the table, with dates and timestamps as whole numbers."""
    shared = [_as_stored(name, spec.shared_type(name)).alias(name) for name in spec.table.shared_columns]
    sizes = [len(stream.owned(spec.table)) for stream in spec.streams]
    cells = [
        _as_stored(stream.physical(column), column.type)
        for stream in spec.streams
        for column in stream.owned(spec.table)
    ]
    # By place: a column may have any name.
    frame = snapshot(spec, spark).select(*shared, *cells)
    if one_key_in > 1:
        key = F.concat_ws("\0", *(F.col(name).cast("string") for name in spec.table.shared_columns))
        frame = frame.where(F.crc32(key.cast("binary")) % one_key_in == 0)
    for row in frame.toLocalIterator(prefetchPartitions=True):
        values = iter(row)
        key = tuple(islice(values, len(shared)))
        yield key, [tuple(islice(values, size)) for size in sizes]


def _as_stored(name: str, kind: str) -> Column:
    """Whole numbers for what Python would turn by its time zone, and cannot hold in every year."""
    if kind == "date":
        return F.unix_date(name)
    return F.unix_micros(name) if kind == "timestamp" else F.col(name)
