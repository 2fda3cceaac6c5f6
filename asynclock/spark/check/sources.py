"""The table's expected rows by the files of a stream, and the report on a source."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from asynclock.spark.check.committed import Committed
from asynclock.spark.check.state import FIRST
from asynclock.spark.check.strict.rows import BadFileError, Good
from asynclock.spark.check.strict.source_file import rows
from asynclock.spark.check.strict.stored_rows import Reading
from asynclock.spark.jvm import classes
from asynclock.spark.source.checkpoint import Checkpoint
from asynclock.spark.source.files import source_files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from asynclock.spark.check.committed import NamedTypes
    from asynclock.spark.check.state import Order, State
    from asynclock.spark.check.strict.expected import Cells, Expected, Key
    from asynclock.spark.hudi.instants import BatchCommit
    from asynclock.spark.source.files import SourceFile
    from asynclock.spark.spec.model import StreamSpec


@dataclass(frozen=True, kw_only=True, slots=True)
class StreamValidation:
    """The sources of one stream.

    Attributes:
        stream: Its name.
        files: Present files of its source.
        events: Good rows in the files, or records of the topic, of the committed batches.
        bad_rows: Bad rows, records and files; they are not expected in the table.
        unread_files: Files whose batch was not committed by then; their events are not expected.
        changed_files: Files that were changed after they were read; their present content is expected.
        hidden_files: Files that match the source but that no stream reads, because their names begin with
            ``_`` or ``.``; their events are not expected.
        removed_files: Files that batches have read and that are gone; their events cannot be compared.
        topic: Its topic and the brokers; None: it is read from files.
        unread_records: Records of the topic whose batch was not committed by then.
        removed_records: Records that batches have read and the topic no longer has; they cannot be compared.
    """

    stream: str
    files: int
    events: int
    bad_rows: int
    unread_files: tuple[str, ...]
    changed_files: tuple[str, ...]
    hidden_files: tuple[str, ...]
    removed_files: tuple[str, ...] = ()
    topic: str | None = None
    unread_records: int = 0
    removed_records: int = 0


class FileEvents:
    """The files of one stream, in the order of their arrival, from the second reader.

    Args:
        table: The table that its events are expected in.
        number: Number of the stream in the spec.

    Attributes:
        size: Bytes of the files.
        groups: Places of its columns among the table's groups.
    """

    def __init__(self, table: State, number: int) -> None:
        self._spec = spec = table.spec
        self._stream: StreamSpec = spec.streams[number]
        self._spark = spark = table.spark
        self._checkpoint = Checkpoint(spec, self._stream, spark)
        self._checkpoint.refuse_damage()
        self._committed = Committed.of(table.commits, self._stream.name, self._checkpoint.query_id())
        self._number = number
        self._table = table
        self._sources = source_files(spark, self._stream.source)
        self.size = sum(file.size for file in self._sources)
        self._arrivals = self._checkpoint.arrivals()
        there = {file.url for file in self._sources}
        self._removed = sorted(
            url
            for url, (entry, _) in self._arrivals.items()
            if url not in there and self._committed.batch_of(entry) <= self._committed.last
        )
        self.groups = table.table.layout.groups_of(number)
        self._columns = {group: table.groups[group] for group in self.groups}
        self._readings: dict[NamedTypes, Reading] = {}
        self._events = self._bad = 0
        self._unread: list[str] = []

    @property
    def incomplete(self) -> bool:
        """Whether files are gone that committed batches have read."""
        return bool(self._removed)

    def steps(self, expected: Expected, folder: Path) -> Iterator[tuple[Order, Callable[[], None]]]:
        """Yield for each file the place of its batch in the merge, and a function that adds its events.

        Call each function before you take the next one.

        Args:
            expected: The expected table.
            folder: Folder for copies of remote files, one at a time.
        """
        arrivals = self._arrivals
        never = max((entry for entry, _ in arrivals.values()), default=0) + 1
        # By the checkpoint, since a file that was touched later has a misleading time.
        files = sorted(
            self._sources,
            key=lambda file: (*arrivals.get(file.url, (never, file.modified_ms)), file.url),
        )
        order = FIRST
        for file in files:
            entry, _ = arrivals.get(file.url, (never, 0))
            batch = self._committed.batch_of(entry)
            commit = self._committed.commits.get(batch)
            if batch > self._committed.last:
                commit = self._committed.other
                if commit is None or not self._may_be_of(commit, file):
                    self._unread.append(file.url)
                    continue
            if commit is not None:  # of a batch of bad rows there need be none
                order = max(order, self._table.order(commit))
            yield order, partial(self._read, file, batch, expected, folder)

    def report(self) -> StreamValidation:
        """Return the report on the source."""
        changes = self._checkpoint.unread_changes()
        return StreamValidation(
            stream=self._stream.name,
            files=len(self._sources),
            events=self._events,
            bad_rows=self._bad,
            unread_files=tuple(sorted(self._unread)),
            changed_files=changes.changed,
            hidden_files=changes.hidden,
            removed_files=tuple(self._removed),
        )

    def _read(self, file: SourceFile, batch: int, expected: Expected, folder: Path) -> None:
        committed = batch <= self._committed.last
        with file.local(self._spark, folder) as path:
            self._take(path, self._committed.columns.get(batch) if committed else (), expected)

    def _take(self, path: Path, columns: NamedTypes | None, expected: Expected) -> None:
        before = self._events, self._bad
        try:
            if columns is None:  # a batch without a commit had no good row
                for _ in self._events_of(path, ()):
                    pass
                good = self._events - before[0]
                self._events, self._bad = before[0], self._bad + good
            else:
                expected.add_each(self._events_of(path, columns))
        except BadFileError:
            self._events, self._bad = before[0], before[1] + 1

    def _may_be_of(self, commit: BatchCommit, file: SourceFile) -> bool:
        """Return whether the file is old enough to have been read by a commit under an earlier checkpoint."""
        jvm = classes(self._spark)
        times = jvm.org.apache.hudi.common.table.timeline.HoodieInstantTimeGenerator
        last: int = times.parseDateFromInstantTime(commit.completed).getTime()
        return file.modified_ms <= last

    def _events_of(self, path: Path, columns: NamedTypes) -> Iterator[tuple[int, Key, Any, Cells]]:
        reading = self._readings.get(columns)
        if reading is None:
            reading = self._readings[columns] = Reading(self._spec, self._stream, columns, self._columns)
        for row in rows(path, self._stream, reading.layout):
            if isinstance(row, Good):
                self._events += 1
                yield from reading.events(row.values)
            else:
                self._bad += 1
