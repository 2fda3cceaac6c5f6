"""The table compared with its sources, cell by cell, and its timeline looked over.

The expected table is computed from the source files by the rule itself (of each stream the event with the
newest ordering value, of equal ones the last to arrive) in one pass without Hudi, so that neither the merger
nor the order of commits has a part in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F  # noqa: N812  the name everybody uses

from asynclock.spark.source import ARRIVAL, FILE, REASON, Source, plain_path, settled
from asynclock.spark.timeline import Timeline
from asynclock.spark.view import physical_columns, snapshot

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from asynclock.spark.spec import Spec, StreamSpec
    from asynclock.spark.timeline import BatchCommit, Instant

SAMPLE: Final = 20
_BATCH: Final = "_asynclock_batch"
_FOUND: Final = "_found__"
_IN_SOURCES: Final = "_asynclock_in_sources"
_IN_TABLE: Final = "_asynclock_in_table"
_CELLS: Final = "_asynclock_cells"
_A_ROW: Final = "one row"


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
        events: Good rows in its files.
        bad_rows: Rows that cannot be read; they are not expected in the table.
        unread_files: Files its checkpoint does not know yet; their events are expected all the same.
    """

    stream: str
    events: int
    bad_rows: int
    unread_files: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class ValidationReport:
    """What a validation found.

    Attributes:
        keys: Rows compared, those on one side only included.
        columns: Columns compared of each, the key among them.
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


def validate(spec: Spec, spark: SparkSession) -> ValidationReport:
    """Compare every key and every column of the table with its sources; nothing is written.

    Args:
        spec: The table and its streams; let them stand still meanwhile.
        spark: A session with Hudi and the merger, as ``asynclock.spark.session`` makes it.

    Raises:
        SpecError: A source does not exist or lacks a column.
    """
    timeline = Timeline(spark, spec.table.path)
    timeline.refresh()
    sources = [_SourceTable(spec, stream, spark) for stream in spec.streams]
    shared = list(spec.table.shared_columns)
    expected = reduce(lambda left, right: left.join(right, shared, "full"), (s.winners() for s in sources))
    compared = _compare(spec, expected, _table(spec, spark, timeline)).persist()
    try:
        totals: Any = compared.agg(F.count("*"), F.coalesce(F.sum(F.size(_CELLS)), F.lit(0))).first()
        wrong = compared.where(F.size(_CELLS) > 0).sort(*shared).limit(SAMPLE).collect()
    finally:
        compared.unpersist()
    sample = [
        Difference(key={name: str(row[name]) for name in shared}, **cell.asDict())
        for row in wrong
        for cell in row[_CELLS]
    ]
    return ValidationReport(
        keys=totals[0],
        columns=len(physical_columns(spec)),
        differences=totals[1],
        sample=tuple(sample[:SAMPLE]),
        streams=tuple(source.report() for source in sources),
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


class _SourceTable:
    """The table as one stream alone would make it."""

    def __init__(self, spec: Spec, stream: StreamSpec, spark: SparkSession) -> None:
        self._spec = spec
        self._stream = stream
        self._source = Source(spec, stream, spark)
        self._batches = _file_batches(spark, stream)
        # Read anew each time: a year of events need not fit into memory.
        self._parsed = settled(self._source.parse(self._source.all()))

    def winners(self) -> DataFrame:
        """Of each key the newest event, under the physical names."""
        table = self._spec.table
        owned = self._stream.owned(table)
        events = self._parsed.where(F.col(REASON).isNull()).join(F.broadcast(self._batches), FILE, "left")
        rank = F.struct(self._stream.ordering, _BATCH, ARRIVAL)
        values = F.struct(*(column.name for column in owned))
        newest = events.groupBy(*table.shared_columns).agg(F.max_by(values, rank).alias("newest"))
        return newest.select(
            *table.shared_columns,
            *(F.col("newest")[column.name].alias(self._stream.physical(column)) for column in owned),
        )

    def report(self) -> StreamValidation:
        files = self._parsed.groupBy(FILE).agg(
            F.count(F.when(F.col(REASON).isNull(), 1)).alias("events"), F.count(REASON).alias("bad")
        )
        rows = files.join(F.broadcast(self._batches), FILE, "left").collect()
        return StreamValidation(
            stream=self._stream.name,
            events=sum(row["events"] for row in rows),
            bad_rows=sum(row["bad"] for row in rows),
            unread_files=tuple(sorted(row[FILE] for row in rows if row[_BATCH] is None)),
        )


def _file_batches(spark: SparkSession, stream: StreamSpec) -> DataFrame:
    """Which batch read which file, as the checkpoint of the query remembers it.

    Files arrive in the order of the batches; their times say nothing where a file was touched later.
    """
    schema = "path string, timestamp bigint, batchId bigint"
    path: Any = spark._jvm.org.apache.hadoop.fs.Path(f"{stream.checkpoint}/sources/0")  # noqa: SLF001
    if not path.getFileSystem(spark._jsc.hadoopConfiguration()).exists(path):  # noqa: SLF001
        return spark.createDataFrame([], f"`{FILE}` string, `{_BATCH}` bigint")
    entries = spark.read.schema(schema).json(path.toString())
    # The first line of each log file is its version; compaction repeats entries.
    known = entries.where(F.col("path").isNotNull())
    return known.groupBy(plain_path(F.col("path")).alias(FILE)).agg(F.min("batchId").alias(_BATCH))


def _table(spec: Spec, spark: SparkSession, timeline: Timeline) -> DataFrame:
    if timeline.exists():
        return snapshot(spec, spark)
    types = [f"`{name}` {spec.shared_type(name)}" for name in spec.table.shared_columns]
    for stream in spec.streams:
        types += [f"`{stream.physical(one)}` {one.type}" for one in stream.owned(spec.table)]
    return spark.createDataFrame([], ", ".join(types))


def _compare(spec: Spec, expected: DataFrame, found: DataFrame) -> DataFrame:
    """Each key of either side, with its differing cells as the array ``_CELLS``."""
    shared = list(spec.table.shared_columns)
    owned = physical_columns(spec)[len(shared) :]
    table = found.groupBy(*shared).agg(
        F.count("*").alias(_IN_TABLE), *(F.first(name).alias(_FOUND + name) for name in owned)
    )
    joined = expected.withColumn(_IN_SOURCES, F.lit(True)).join(table, shared, "full")
    in_both = F.col(_IN_SOURCES).isNotNull() & F.col(_IN_TABLE).eqNullSafe(1)
    one_row = F.lit(_A_ROW)
    rows = F.when(F.col(_IN_TABLE) == 1, one_row).otherwise(F.concat(F.col(_IN_TABLE), F.lit(" rows")))
    whole = F.when(~in_both, _cell(F.lit(None), F.when(F.col(_IN_SOURCES), one_row), rows))
    cells = [
        F.when(
            in_both & ~F.col(name).eqNullSafe(F.col(_FOUND + name)),
            _cell(F.lit(name), F.col(name), F.col(_FOUND + name)),
        )
        for name in owned
    ]
    return joined.select(*shared, F.array_compact(F.array(whole, *cells)).alias(_CELLS))


def _cell(column: Column, expected: Column, found: Column) -> Column:
    return F.struct(
        column.cast("string").alias("column"),
        expected.cast("string").alias("expected"),
        found.cast("string").alias("found"),
    )
