"""Compare the table with its sources, cell by cell, and check its timeline.

The expected table is computed directly from the source files of the batches that were committed: for each
stream the event with the newest ordering value, of equal ones the last to arrive. ``second_reader`` reads the
files, so the result depends neither on Spark's parsers nor on the merger or the order of commits.

In a plain table the streams write the same columns, and its merge may go by the order of their commits. So
there the files of all streams are read in that order, and the rule of the merge is applied to them.
"""

from __future__ import annotations

import heapq
import tempfile
from dataclasses import dataclass
from functools import partial
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from asynclock.spark.hudi.strays import listed_strays
from asynclock.spark.hudi.timeline import REPAIR_COPY
from asynclock.spark.reader.committed import Committed, repeated_batches, stale_commits
from asynclock.spark.reader.deletes import Deletes
from asynclock.spark.reader.second_reader.expected import Expected
from asynclock.spark.reader.second_reader.files import layout_of, rows
from asynclock.spark.reader.second_reader.rows import BadFileError, Good
from asynclock.spark.reader.second_reader.values import shown
from asynclock.spark.reader.state import State
from asynclock.spark.source.checkpoint import Checkpoint
from asynclock.spark.source.files import source_files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark.sql import SparkSession

    from asynclock.spark.hudi.instants import BatchCommit, Instant
    from asynclock.spark.hudi.timeline import Timeline
    from asynclock.spark.reader.committed import NamedTypes
    from asynclock.spark.reader.deletes import StreamDeletes
    from asynclock.spark.reader.second_reader.expected import Cells, Key, Rule, Types
    from asynclock.spark.reader.second_reader.rows import Layout
    from asynclock.spark.source.files import SourceFile
    from asynclock.spark.spec.kinds import Merge
    from asynclock.spark.spec.model import Spec, StreamSpec

SAMPLE: Final = 20
_RULES: Final[Mapping[Merge, Rule]] = {
    "splice": "newest",
    "event_time": "newest",
    "commit_time": "last",
    "partial_update": "last but nulls",
}
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
        events: Good rows in the files of the committed batches.
        bad_rows: Bad rows and bad files; they are not expected in the table.
        unread_files: Files whose batch was not committed by then; their events are not expected.
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
        as_of: Completion time of the newest commit that was looked at; None if there is none.
        keys: Rows compared, including those that only one side has.
        columns: Columns of the spec compared in each row, key included.
        one_key_in: One key in this many was compared, chosen by checksum; 1: every key.
        differences: Cells and rows that differ.
        sample: The first differences by key, at most 20.
        streams: The sources of each stream.
        stale_commits: Commits under an older fencing token than an earlier commit of their stream.
        repeated_batches: Commits of a batch that had been committed before.
        changing_commits: Those of the stale and repeated commits that changed what the table says. Of one
            whose files are cleaned away, or that has a write in flight beside it, that is not known.
        pending: Instants requested or in flight, running now or left by a dead writer.
        leftovers: Paths of markers and heartbeats of writes.
        stray_files: Files outside of the buckets, below the table: with one of them every write fails.
    """

    as_of: str | None
    keys: int
    columns: int
    one_key_in: int
    differences: int
    sample: tuple[Difference, ...]
    streams: tuple[StreamValidation, ...]
    stale_commits: tuple[BatchCommit, ...]
    repeated_batches: tuple[BatchCommit, ...]
    changing_commits: tuple[BatchCommit, ...]
    pending: tuple[Instant, ...]
    leftovers: tuple[str, ...]
    stray_files: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether the table agrees with its sources and can be written, and no bad commit has changed it."""
        return not (self.differences or self.changing_commits or self.stray_files)


def validate(
    spec: Spec, spark: SparkSession, *, as_of: str | None = None, one_key_in: int | None = None
) -> ValidationReport:
    """Compare the table with its sources, which are read by independent parsers; nothing is written.

    Expected are the events of the batches that were committed by an instant, each file read with the columns
    that its batch was read with. So streams and services may go on meanwhile. This process reads those files,
    one after the other, and keeps the expected table on its disk.

    Args:
        spec: The table and its streams.
        spark: A session with Hudi and the merger, as ``asynclock.spark.hudi.session`` makes it.
        as_of: Look at what was committed up to this completion time of an instant; None: at everything that
            is committed when the validation begins.
        one_key_in: Compare one key in this many; 1: every key. None: every key if the sources have at
            most 1 GiB, else about as many keys as 1 GiB has.

    A plain table is compared in the same way: each key has one row in a partition, which the rule of the
    merge makes of its events in the order of their commits. So where nothing differs, keys are unique and
    under ``event_time`` no ordering value has gone back.

    Raises:
        ConfigError: A source file has a compression that only Hadoop can read, or the table cannot be read as
            of that instant any more, or not yet.
    """
    table = State(spec, spark, as_of)
    commits = table.commits
    sources = {stream.name: source_files(spark, stream.source) for stream in spec.streams}
    if one_key_in is None:
        size = sum(file.size for files in sources.values() for file in files)
        one_key_in = max(1, -(-size // READ_WHOLE))
    shared = [(name, spec.shared_type(name)) for name in spec.table.shared_columns]
    with (
        table.rows(one_key_in) as stored,
        tempfile.TemporaryDirectory(prefix="asynclock-validate-") as folder,
    ):
        expected = Expected(
            Path(folder),
            table.groups,
            one_key_in=one_key_in,
            key_columns=len(spec.table.key),
            in_one_partition=spec.table.kind == "splice",
            rule=_RULES[spec.table.merge],
        )
        try:
            deletes = Deletes(spec, spark, table.timeline, commits)
            readers = [
                _Sources(spec, number, spark, Path(folder), table) for number in range(len(spec.streams))
            ]
            steps = [reader.steps(sources[reader.name], expected, deletes) for reader in readers]
            for _, take in heapq.merge(*steps, key=itemgetter(0)):
                take()
            expected.compare(stored)
            differences = [
                Difference(
                    key={
                        name: str(shown(part, kind)) for part, (name, kind) in zip(key, shared, strict=False)
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
    owned = {stream.physical(column) for stream in spec.streams for column in stream.owned(spec.table)}
    stale, repeated = stale_commits(commits), repeated_batches(commits)
    suspects = {commit.requested: commit for commit in (*stale, *repeated)}
    return ValidationReport(
        as_of=table.as_of,
        keys=keys,
        columns=len(shared) + len(owned),
        one_key_in=one_key_in,
        differences=differing,
        sample=tuple(differences),
        streams=tuple(reader.report() for reader in readers),
        stale_commits=tuple(stale),
        repeated_batches=tuple(repeated),
        changing_commits=tuple(commit for commit in suspects.values() if table.was_changed_by(commit)),
        pending=tuple(table.timeline.pending()),
        leftovers=tuple(table.timeline.leftovers()),
        stray_files=_strays(spec, spark, table.timeline),
    )


def _strays(spec: Spec, spark: SparkSession, timeline: Timeline) -> tuple[str, ...]:
    if spec.table.kind != "splice" or not timeline.exists():
        return ()
    return (*listed_strays(spark, spec.table), *([REPAIR_COPY] if timeline.half_repaired() else ()))


class _Sources:
    """Reads the files of one stream in the order of their arrival."""

    def __init__(self, spec: Spec, number: int, spark: SparkSession, folder: Path, table: State) -> None:
        self._spec = spec
        self._stream: StreamSpec = spec.streams[number]
        self.name = self._stream.name
        self._checkpoint = Checkpoint(spec, self._stream, spark)
        self._committed = Committed.of(table.commits, self.name, self._checkpoint.query_id())
        self._number = number
        self._spark = spark
        self._folder = folder
        self._group = number if spec.table.kind == "splice" else 0
        self._columns = table.groups[self._group]
        self._readings: dict[NamedTypes, _Reading] = {}
        self._files = self._events = self._bad = 0
        self._unread: list[str] = []

    def steps(
        self, files: list[SourceFile], expected: Expected, deletes: Deletes
    ) -> Iterator[tuple[str, Callable[[], None]]]:
        """Yield for each file when its batch was committed, and what adds its events to what is expected.

        What is yielded must be called before the next is asked for. Deletes are added between the files.
        """
        arrivals = self._checkpoint.arrivals()
        never = max((entry for entry, _ in arrivals.values()), default=0) + 1
        # By the checkpoint, since a file that was touched later has a misleading time.
        files = sorted(files, key=lambda file: (*arrivals.get(file.url, (never, file.modified_ms)), file.url))
        due = deletes.of(self._number, self._checkpoint.query_id())
        self._files = len(files)
        time = ""
        for file in files:
            entry, _ = arrivals.get(file.url, (never, 0))
            batch = self._committed.batch_of(entry)
            if batch > self._committed.last and not self._may_be_of_another_query(file):
                self._unread.append(file.url)
                continue
            time = max(time, self._committed.completed.get(batch, ""))
            yield time, partial(self._read, file, batch, due, expected)
        yield time, partial(due.before, None, expected)

    def report(self) -> StreamValidation:
        """Return what was read."""
        changes = self._checkpoint.unread_changes()
        return StreamValidation(
            stream=self.name,
            files=self._files,
            events=self._events,
            bad_rows=self._bad,
            unread_files=tuple(sorted(self._unread)),
            changed_files=changes.changed,
            hidden_files=changes.hidden,
        )

    def _read(self, file: SourceFile, batch: int, due: StreamDeletes, expected: Expected) -> None:
        committed = batch <= self._committed.last
        due.before(batch if committed else None, expected)
        with file.local(self._spark, self._folder) as path:
            self._take(path, self._committed.columns.get(batch) if committed else (), expected)

    def _take(self, path: Path, columns: NamedTypes | None, expected: Expected) -> None:
        before = self._events, self._bad
        try:
            if columns is None:  # a batch without a commit had no good row
                good = sum(1 for _ in self._events_of(path, ()))
                self._events, self._bad = before[0], self._bad + good
            else:
                expected.add(self._group, self._events_of(path, columns))
        except BadFileError:
            self._events, self._bad = before[0], before[1] + 1

    def _may_be_of_another_query(self, file: SourceFile) -> bool:
        """Return whether the file is old enough to have been read under an earlier checkpoint."""
        if not self._committed.others:
            return False
        jvm = self._spark._jvm  # noqa: SLF001  no public way
        times = jvm.org.apache.hudi.common.table.timeline.HoodieInstantTimeGenerator
        last: int = times.parseDateFromInstantTime(self._committed.others).getTime()
        return file.modified_ms <= last

    def _events_of(self, path: Path, columns: NamedTypes) -> Iterator[tuple[Key, Any, Cells]]:
        reading = self._readings.get(columns)
        if reading is None:
            reading = self._readings[columns] = _Reading(self._spec, self._stream, columns, self._columns)
        for row in rows(path, self._stream, reading.layout):
            if isinstance(row, Good):
                self._events += 1
                yield reading.event(row.values)
            else:
                self._bad += 1


class _Reading:
    """How files are read whose batch had certain columns, and how their values stand in the table now."""

    def __init__(self, spec: Spec, stream: StreamSpec, columns: NamedTypes, group: Types) -> None:
        self.layout: Layout = layout_of(spec, stream, columns)
        names, types = self.layout.names, self.layout.types
        self._shared = len(spec.table.shared_columns)
        ordering = columns[0][0] if columns else stream.ordering
        self._rank = names.index(ordering)
        self._cells: list[tuple[int | None, bool]] = []
        own = {stream.physical(column): column.name for column in stream.stored(spec.table)}
        for stored, kind in group:
            name = ordering if own.get(stored) == stream.ordering else own.get(stored, "")
            place = names.index(name, self._shared) if name in names[self._shared :] else None
            self._cells.append((place, kind == "double" and types.get(name) == "int"))

    def event(self, values: tuple[Any, ...]) -> tuple[Key, Any, Cells]:
        """Return key, ordering value and cells of a row."""
        cells: list[Any] = [None if place is None else values[place] for place, _ in self._cells]
        grown = zip(cells, self._cells, strict=True)
        cells = [float(cell) if is_whole and cell is not None else cell for cell, (_, is_whole) in grown]
        return values[: self._shared], values[self._rank], tuple(cells)
