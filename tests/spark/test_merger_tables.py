"""The merge rule through real Hudi tables: histories written, compacted and read back, against the oracle.

Each history is one key; a table holds many. Commits take the next arrivals of every key, in order.
"""

from __future__ import annotations

import random
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pytest
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from asynclock.spark import hoodie
from asynclock.spark.hudi.options import (
    MERGER_STRATEGY_ID,
    call_argument,
    compaction_options,
    read_options,
    sql_options,
)
from tests.spark.histories import COLUMNS, TieCount, random_event, random_history
from tests.spark.oracle import Arrival, Delete, Event, splice
from tests.unit.specs import table_spec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import Column, DataFrame, SparkSession

    from asynclock.spark.hudi.options import QueryType
    from asynclock.spark.spec.model import Spec

# Dozens of commits each, on machines that do other things too.
pytestmark = pytest.mark.timeout(300)

Key = tuple[str, ...]
Batch = list[tuple[Key, Arrival]]

# Values cross between Python and Spark as these types, so that no time zone comes into it.
ALWAYS: Final = {hoodie.COMPACT_INLINE_MAX_DELTA_COMMITS: "1"}
_PLAIN: Final = {"timestamp": "bigint", "date": "int"}


@dataclass
class Table:
    """A splice table with the history of each of its keys."""

    spark: SparkSession
    path: str
    key: Sequence[str] = ("key",)
    partition_by: Sequence[str] = ()
    buckets: int = 2
    arrived: dict[Key, list[Arrival]] = field(default_factory=lambda: defaultdict(list))

    @property
    def spec(self) -> Spec:
        """The table, as the options want it."""
        return table_spec(
            self.path, key=self.key, partition_by=tuple(self.partition_by), buckets=self.buckets
        )

    def write(self, batch: Batch) -> None:
        """One commit of the batch's events and, if it has any, one of its deletes before them."""
        deletes = [(key, arrival) for key, arrival in batch if isinstance(arrival, Delete)]
        events = [(key, arrival) for key, arrival in batch if isinstance(arrival, Event)]
        if deletes:
            self._save(self._frame(deletes), operation="delete")
        if events:
            self._save(self._frame(events))
        for key, arrival in batch:
            self.arrived[key].append(arrival)

    def replay(self, batch: Batch) -> None:
        """Write the batch's events once more."""
        self._save(self._frame(batch))

    def compact(self) -> None:
        """Fold all logs into base files."""
        options = call_argument(compaction_options(self.spec) | ALWAYS)
        self.spark.sql(
            f"call run_compaction(op => 'scheduleandexecute', path => '{self.path}', options => '{options}')"
        ).collect()

    def read(self, query_type: QueryType = "snapshot") -> DataFrame:
        """The table as a reader sees it."""
        options = read_options(self.spec, query_type=query_type)
        return self.spark.read.format("hudi").options(**options).load(self.path)

    def rows(self, frame: DataFrame, columns: Mapping[str, str] = COLUMNS) -> dict[Key, dict[str, Any]]:
        """The frame's rows by key, as plain values."""
        plain = [_to_plain(name, kind).alias(name) for name, kind in columns.items()]
        found = frame.select(*self.key, *plain).collect()
        assert len({tuple(row[: len(self.key)]) for row in found}) == len(found), "a key has two rows"
        return {
            tuple(row[: len(self.key)]): dict(zip(columns, row[len(self.key) :], strict=True))
            for row in found
        }

    def expected(self, columns: Mapping[str, str] = COLUMNS) -> dict[Key, dict[str, Any]]:
        """What the oracle says of every key."""
        rows = {key: splice(history) for key, history in self.arrived.items()}
        return {
            key: {name: row.get(name) for name in columns} for key, row in rows.items() if row is not None
        }

    def check_snapshot(self, rng: random.Random) -> None:
        """All columns, one column alone, and one column under a filter on it."""
        assert self.rows(self.read()) == self.expected()
        for name in rng.sample(sorted(COLUMNS), k=2):
            one = {name: COLUMNS[name]}
            assert self.rows(self.read(), one) == self.expected(one), name
        row = rng.choice([*self.expected().values()])
        name = rng.choice([name for name, value in row.items() if value is not None])
        one = {name: COLUMNS[name]}
        matching = self.read().where(_to_plain(name, COLUMNS[name]) == F.lit(row[name]))
        assert self.rows(matching, one) == {
            k: v for k, v in self.expected(one).items() if v[name] == row[name]
        }

    def check_compacted(self) -> None:
        """The base files alone hold everything."""
        assert self.rows(self.read("read_optimized")) == self.expected()

    def _frame(self, batch: Batch) -> DataFrame:
        names = [*self.key, *(name for name in self.partition_by if name not in self.key)]
        schema = ", ".join(
            [*(f"{name} string" for name in names), *(f"{n} {_PLAIN.get(k, k)}" for n, k in COLUMNS.items())]
        )
        rows = []
        for key, arrival in batch:
            values = arrival.columns() if isinstance(arrival, Event) else {}
            partition = [f"p{len(key[-1]) % 2}"] if self.partition_by else []
            rows.append((*key, *partition, *(values.get(name) for name in COLUMNS)))
        typed = [_from_plain(name, kind).alias(name) for name, kind in COLUMNS.items()]
        return self.spark.createDataFrame(rows, schema).select(*names, *typed)

    def _save(self, frame: DataFrame, operation: str = "upsert") -> None:
        options = sql_options(self.spec) | {
            hoodie.DATASOURCE_WRITE_RECORDKEY_FIELD: ",".join(self.key),
            hoodie.DATASOURCE_WRITE_OPERATION: operation,
        }
        frame.write.format("hudi").options(**options).mode("append").save(self.path)


def _from_plain(name: str, kind: str) -> Column:
    make = {"timestamp": F.timestamp_micros, "date": F.date_from_unix_date}
    return make.get(kind, F.col)(F.col(name)) if kind in make else F.col(name)


def _to_plain(name: str, kind: str) -> Column:
    make = {"timestamp": F.unix_micros, "date": F.unix_date}
    return make[kind](F.col(name)) if kind in make else F.col(name)


def _batches(histories: Mapping[Key, Sequence[Arrival]], rng: random.Random) -> list[Batch]:
    """Cut the histories into commits.

    Hudi reduces a commit to one record a key in no certain order, so within one commit a key has neither
    two events of a stream with one ordering value nor a delete beside events.
    """
    waiting = {key: list(history) for key, history in histories.items()}
    batches: list[Batch] = []
    while any(waiting.values()):
        batch: Batch = []
        for key, left in waiting.items():
            taken: list[Arrival] = []
            for arrival in left[: rng.choice([0, 1, 2, 3])]:
                if taken and (isinstance(arrival, Delete) or isinstance(taken[-1], Delete)):
                    break
                if isinstance(arrival, Event) and any(
                    isinstance(other, Event) and (other.stream, other.ts) == (arrival.stream, arrival.ts)
                    for other in taken
                ):
                    break
                taken.append(arrival)
            del left[: len(taken)]
            batch += [(key, arrival) for arrival in taken]
        if batch:
            batches.append(batch)
    return batches


@pytest.mark.parametrize(
    ("seed", "layout", "deletes"),
    [
        pytest.param(1, {"buckets": 1}, False, id="one bucket"),
        pytest.param(2, {"partition_by": ["region"], "buckets": 2}, True, id="partitions and deletes"),
        pytest.param(3, {"key": ["fleet", "tail"], "buckets": 4}, True, id="a key of two columns, deletes"),
    ],
)
def test_a_table_holds_what_the_oracle_says(
    spark: SparkSession,
    tmp_path: Path,
    seed: int,
    layout: dict[str, Any],
    deletes: bool,  # noqa: FBT001
) -> None:
    """At every moment: logs alone, logs over base files, compacted; whole rows, one column, filtered."""
    rng = random.Random(seed)
    table = Table(spark, (tmp_path / "table").as_uri(), **layout)
    histories: dict[Key, list[Arrival]] = {}
    ties = TieCount()
    for number in range(16):
        key = ("F1", f"N{'x' * (number % 3)}{number}")[-len(table.key) :]
        histories[key] = random_history(rng, length=rng.randint(3, 10), deletes=deletes)
        ties.add(histories[key])
    batches = _batches(histories, rng)
    compactions = set(rng.sample(range(1, len(batches) - 1), k=2))
    # A table is created by events: Hudi refuses to delete from one that is not there.
    first = random_history(rng, length=1)
    table.write([(("F1", "N-first")[-len(table.key) :], arrival) for arrival in first])

    for number, batch in enumerate(batches):
        table.write(batch)
        if number == 1 or number - 1 in compactions:
            table.check_snapshot(rng)
        if number in compactions:
            table.compact()
            table.check_compacted()
    table.check_snapshot(rng)
    events = [(key, arrival) for key, arrival in batches[-1] if isinstance(arrival, Event)]
    if events and len(events) == len(batches[-1]):
        table.replay(events)
        table.check_snapshot(rng)
    table.compact()
    table.check_compacted()

    assert len(table.arrived) == len(histories) + 1
    assert ties.ties >= ties.events / 10


def test_a_replayed_batch_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """A batch written twice, over logs and over a base file, leaves the table as it was."""
    rng = random.Random(7)
    table = Table(spark, (tmp_path / "table").as_uri())
    batch: Batch = [((f"N{n}",), random_event(rng, ["gate", "crew"], n)) for n in range(20)]
    table.write([(key, random_event(rng, ["gate", "crew"], 30 - n)) for n, (key, _) in enumerate(batch)])
    table.write(batch)

    table.replay(batch)
    table.check_snapshot(rng)
    table.compact()
    table.replay(batch)
    table.check_snapshot(rng)
    table.check_compacted()


def test_streams_written_at_the_same_time_lose_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """Two writers of one table, a compaction between them: every event counts."""
    rng = random.Random(8)
    table = Table(spark, (tmp_path / "table").as_uri())
    keys = [(f"N{n}",) for n in range(20)]
    table.write([(key, random_event(rng, ["fuel_2"], 1)) for key in keys])
    work = {
        stream: [[(key, random_event(rng, [stream], rng.randrange(40))) for key in keys] for _ in range(3)]
        for stream in ("gate", "radar")
    }

    def write_all(stream: str) -> None:
        for batch in work[stream]:
            table.replay(batch)

    with ThreadPoolExecutor(2) as pool:
        for written in [pool.submit(write_all, stream) for stream in work]:
            written.result()
        for batches in work.values():
            for key, event in (entry for batch in batches for entry in batch):
                table.arrived[key].append(event)
    table.check_snapshot(rng)
    table.compact()
    table.check_compacted()


def test_a_reader_without_the_merger_fails(spark: SparkSession, tmp_path: Path) -> None:
    """Better an error than a row merged by another rule: the class is asked for by the table's own id."""
    table = Table(spark, (tmp_path / "table").as_uri())
    table.write([(("N1",), Event("gate", 1_700_000_000_000_000, {"x": 1}))])
    other = spark.newSession()

    with pytest.raises(Exception, match="No valid spark merger implementation set"):
        other.read.format("hudi").load(table.path).collect()

    assert MERGER_STRATEGY_ID in (tmp_path / "table" / ".hoodie" / "hoodie.properties").read_text()


def test_a_compaction_without_the_merger_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """A service that forgot the class fails; the events stay in the logs, as they were."""
    table = Table(spark, (tmp_path / "table").as_uri())
    for ts, x in ((2, 1), (1, 2)):
        table.write([(("N1",), Event("gate", ts, {"x": x}))])
    options = compaction_options(table.spec) | ALWAYS
    del options[hoodie.WRITE_RECORD_MERGE_CUSTOM_IMPLEMENTATION_CLASSES]
    call = f"path => '{table.path}', options => '{call_argument(options)}'"

    with pytest.raises(Exception, match="No valid spark merger implementation set"):
        spark.newSession().sql(f"call run_compaction(op => 'scheduleandexecute', {call})").collect()

    table.check_snapshot(random.Random(9))


def test_sql_reads_through_the_session_merge(spark: SparkSession, tmp_path: Path) -> None:
    """The session names the merger itself, so that plain SQL needs no options."""
    table = Table(spark, (tmp_path / "table").as_uri())
    table.write([(("N1",), Event("gate", 1_700_000_000_000_000, {"x": 1}))])
    table.write([(("N1",), Event("crew", 5, {"note": "c"}))])
    table.write([(("N1",), Event("gate", 1_600_000_000_000_000, {"x": 2}))])
    spark.sql(f"CREATE TABLE by_sql USING hudi LOCATION '{table.path}'")

    try:
        rows = spark.sql("SELECT gate__x, crew__note FROM by_sql WHERE crew__note = 'c'").collect()
    finally:
        spark.sql("DROP TABLE by_sql")

    assert [tuple(row) for row in rows] == [(1, "c")]


def test_an_incremental_read_may_ask_for_one_column(spark: SparkSession, tmp_path: Path) -> None:
    """Hudi filters by commit time, which a projection does not hold unless the merger asks for it."""
    table = Table(spark, (tmp_path / "table").as_uri())
    table.write([((key,), Event("gate", 1_700_000_000_000_000, {"x": 1})) for key in ("N1", "N2")])
    first = table.read().agg(F.max("_hoodie_commit_time")).collect()[0][0]
    table.write([(("N2",), Event("gate", 1_700_000_000_000_001, {"x": 2}))])

    frame = (
        spark.read.format("hudi")
        .options(**read_options(table.spec, query_type="incremental"))
        .option("hoodie.datasource.read.begin.instanttime", str(int(first) + 1))
        .load(table.path)
    )
    since = frame.where(F.col("_hoodie_commit_time") > first).select("gate__x").collect()

    assert [row[0] for row in since] == [2]


LOGS: Final = 16
A_LOG: Final = 32 * 2**20
"""Bytes that a log file may cost, with all of the work around it; Hudi's default buffers alone take 64 MB."""


@pytest.mark.parametrize(
    "merged_by", [lambda table: table.read().count(), Table.compact], ids=["read", "compaction"]
)
def test_a_small_log_file_costs_little_memory(
    spark: SparkSession, tmp_path: Path, merged_by: Callable[[Table], object]
) -> None:
    """What a JVM takes to merge many small logs follows their size, not the size of Hudi's buffers."""
    rng = random.Random(11)
    tables = [Table(spark, (tmp_path / name).as_uri(), buckets=1) for name in ("warm", "measured")]
    for table, logs in zip(tables, (1, LOGS), strict=True):
        for number in range(logs + 1):
            table.write([(("k",), random_event(rng, ["gate", "crew"], number))])
    merged_by(tables[0])

    before = _allocated(spark)
    merged_by(tables[1])

    assert _allocated(spark) - before < LOGS * A_LOG


def _allocated(spark: SparkSession) -> int:
    """Return the bytes that the live threads of the JVM have taken so far."""
    jvm: Any = spark._jvm  # no public way
    threads = jvm.java.lang.management.ManagementFactory.getThreadMXBean()
    return sum(each for each in threads.getThreadAllocatedBytes(threads.getAllThreadIds()) if each > 0)
