"""Compare the table with its sources, cell by cell, and check its timeline.

The expected table is computed directly from the source files of the committed batches: for each stream, and
each of its column groups, the event with the newest ordering value, and among equal ones the last to arrive,
or the sum of all.
The second reader reads the files, so the result depends neither on Spark's parsers nor on the merger or the
order of commits.

In a plain table the streams write the same columns, and the merge may use the order of their commits. So the
files of all streams are read in that order, and the rule of the merge is applied to them.
"""

from __future__ import annotations

import heapq
import tempfile
from dataclasses import dataclass
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Final

from asynclock.spark.check.committed import repeated_batches, stale_commits
from asynclock.spark.check.deletes import Deletes
from asynclock.spark.check.sources import FileEvents, StreamValidation
from asynclock.spark.check.state import State
from asynclock.spark.check.statements import StatementEvents
from asynclock.spark.check.strict.expected import Expected
from asynclock.spark.check.strict.values import shown
from asynclock.spark.check.topic import TopicEvents
from asynclock.spark.hudi.health import cut_files, leftovers, unseen
from asynclock.spark.hudi.layout import layout_of
from asynclock.spark.hudi.own import own_session
from asynclock.spark.hudi.strays import listed_strays
from asynclock.spark.hudi.table import REPAIR_COPY

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import SparkSession

    from asynclock.spark.check.strict.expected import Rule
    from asynclock.spark.hudi.instants import BatchCommit, Instant
    from asynclock.spark.hudi.table import Table
    from asynclock.spark.spec.kinds import Merge
    from asynclock.spark.spec.model import Spec

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
class UnseenCommit:
    """A commit that no read shows, because its times are before those of a compaction without it.

    Attributes:
        requested: Its instant.
        completed: Its completion time, by its driver's clock.
        stream: Its stream; None: it is not a batch of a stream.
        batch: Number of its batch; None for a write without one.
        rows: Its unseen rows.
        compaction: The instant of the compaction.
    """

    requested: str
    completed: str
    stream: str | None
    batch: int | None
    rows: int
    compaction: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ValidationReport:
    """The result of a validation.

    Attributes:
        as_of: Completion time of the newest commit that was examined; None if there is none.
        keys: Rows compared, including those that only one side has.
        columns: Columns of the spec compared in each row, key included.
        one_key_in: One key in this many was compared, chosen by checksum; 1: every key.
        differences: Cells and rows that differ.
        not_comparable: Keys with cells that a missing source file, topic record or statement may have set or
            removed.
        statements: Commits by SQL and by ``Splice.write``, whose rows are expected as written.
        unknown_statements: Those of them whose rows cannot, or can no longer, be read; they are not compared.
        sample: The first differences by key, at most 20.
        streams: The sources of each stream.
        stale_commits: Commits under an older fencing token than an earlier commit of their stream.
        repeated_batches: Commits of a batch that had been committed before.
        changing_commits: The stale and repeated commits that changed a value of the table. This is not known
            if its files are cleaned away, or if another write is in flight next to it.
        pending: Instants requested or in flight, running now or left by a dead writer.
        leftovers: Paths of markers and heartbeats of writes.
        unseen_commits: Commits of the active timeline that lie behind a compaction: no read shows them.
        stray_files: Files outside the buckets, below the table: with one of them every write fails.
        cut_files: Files of the table that are shorter than their commits say, below the table, with both
            sizes: the rest of their rows is lost.
    """

    as_of: str | None
    keys: int
    columns: int
    one_key_in: int
    differences: int
    not_comparable: int
    statements: int
    unknown_statements: int
    sample: tuple[Difference, ...]
    streams: tuple[StreamValidation, ...]
    stale_commits: tuple[BatchCommit, ...]
    repeated_batches: tuple[BatchCommit, ...]
    changing_commits: tuple[BatchCommit, ...]
    pending: tuple[Instant, ...]
    leftovers: tuple[str, ...]
    unseen_commits: tuple[UnseenCommit, ...]
    stray_files: tuple[str, ...]
    cut_files: tuple[str, ...] = ()

    @property
    def compared(self) -> bool:
        """Whether there was anything to compare: no source is gone, or at least one event is left."""
        events = any(stream.events for stream in self.streams) or self.statements > self.unknown_statements
        return events or not self.not_comparable

    @property
    def ok(self) -> bool:
        """Whether the table agrees with its sources and can be written, and no bad commit has changed it.

        Also False if no value could be compared, since every source is gone.
        """
        bad = self.changing_commits or self.stray_files or self.cut_files or self.unseen_commits
        return self.compared and not (self.differences or bad)


def validate(
    spec: Spec, spark: SparkSession, *, as_of: str | None = None, one_key_in: int | None = None
) -> ValidationReport:
    """Compare the table with its sources, which are read by independent parsers; nothing is written.

    It expects the events of the batches that were committed by an instant, each file read with the columns of
    its batch. It also expects the rows and deletes of statements, ``Splice.write`` and ``Splice.delete``, as
    they are in the log files. So streams and services may go on meanwhile. This process reads the sources,
    one file after the other, and keeps the expected table on its disk.

    Args:
        spec: The table and its streams.
        spark: A session with Hudi and the merger, as ``asynclock.spark.hudi.session`` makes it.
        as_of: Examine the commits up to this completion time of an instant; None: all commits at the start of
            the validation.
        one_key_in: Compare one key in this many; 1: every key. None: every key if the sources have at
            most 1 GiB, else about as many keys as 1 GiB has.

    A plain table is compared in the same way: each key has one row in a partition, by the rule of the merge
    from its events in the order of their commits. So if nothing differs, keys are unique and under
    ``event_time`` no ordering value has gone back.

    If files or records that batches have read are gone, or the log files of statements, the rest is compared.
    A cell is not comparable if one of them may have set it, because its event is no older than all remaining
    ones. A lost event still differs. If no event of any source is left, nothing differs and nothing is known:
    the report is not ``ok``.

    Raises:
        ConfigError: A source file has a compression that only Hadoop can read, or the table cannot yet, or
            can no longer, be read as of that instant.
    """
    spark = own_session(spark)
    table = State(spec, spark, as_of)
    commits = table.commits
    readers = [
        TopicEvents(table, number, stream.kafka) if stream.kafka is not None else FileEvents(table, number)
        for number, stream in enumerate(spec.streams)
    ]
    statements = StatementEvents(table)
    if one_key_in is None:
        one_key_in = max(1, -(-sum(reader.size for reader in readers) // READ_WHOLE))
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
            in_one_partition=table.table.layout.one_partition,
            rule=_RULES[spec.table.merge],
            ranks=_ranks(spec, table),
            reversed_=_reversed(spec),
            sums=_sums(spec),
            incomplete={group for reader in readers if reader.incomplete for group in reader.groups},
        )
        try:
            with statements.steps(expected) as written:
                sources = [reader.steps(expected, Path(folder)) for reader in readers]
                deletes = Deletes(table).steps(expected)
                for _, take in heapq.merge(*sources, written, deletes, key=itemgetter(0)):
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
            keys, differing, unknown = expected.keys(), expected.count(), expected.incomparable()
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
        not_comparable=unknown,
        statements=statements.count,
        unknown_statements=statements.unknown,
        sample=tuple(differences),
        streams=tuple(reader.report() for reader in readers),
        stale_commits=tuple(stale),
        repeated_batches=tuple(repeated),
        changing_commits=tuple(commit for commit in suspects.values() if table.was_changed_by(commit)),
        pending=tuple(table.timeline.pending()),
        leftovers=tuple(leftovers(table.timeline)),
        unseen_commits=tuple(_unseen(table.table, commits)),
        stray_files=_strays(table.table),
        cut_files=tuple(cut_files(table.timeline)),
    )


def _ranks(spec: Spec, table: State) -> list[list[int]]:
    """Return the places of the ordering values among the columns of each group, if the merge uses them."""
    if _RULES[spec.table.merge] != "newest":
        return [[]] * len(table.groups)
    return [
        [[name for name, _ in group].index(one) for one in ordering]
        for group, ordering in zip(table.groups, table.table.layout.orderings(), strict=True)
    ]


def _reversed(spec: Spec) -> list[int]:
    """Return the places of the groups in which the least ordering value wins."""
    return [place for place, group in enumerate(layout_of(spec).column_groups()) if group.is_reversed]


def _sums(spec: Spec) -> list[int]:
    """Return the places of the groups whose values are added."""
    return [place for place, group in enumerate(layout_of(spec).column_groups()) if group.is_sum]


def _unseen(table: Table, commits: list[BatchCommit]) -> Iterator[UnseenCommit]:
    batches = {commit.requested: commit for commit in commits}
    for found in unseen(table.timeline):
        batch = batches.get(found["requested"])
        number = batch.batch_id if batch is not None and batch.batch_id >= 0 else None
        yield UnseenCommit(**found, stream=batch.stream if batch else None, batch=number)


def _strays(table: Table) -> tuple[str, ...]:
    if not table.layout.in_buckets or not table.timeline.exists():
        return ()
    return (*listed_strays(table.spark, table.spec.table), *([REPAIR_COPY] if table.half_repaired() else ()))
