"""Plain tables: whole rows under optimistic concurrency control, in every merge, against an oracle."""

from __future__ import annotations

import logging
import os
import random
import shutil
import threading
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import functions as F  # noqa: N812  the name everybody uses

from asynclock.errors import SpecError
from asynclock.spark.check.validation import validate
from asynclock.spark.hudi.options import clustering_options
from asynclock.spark.hudi.table import Table
from asynclock.spark.hudi.timeline import Timeline
from asynclock.spark.reader.changes import changes
from asynclock.spark.reader.snapshot import read
from asynclock.spark.runs.run import run, run_services
from asynclock.spark.services import work
from asynclock.spark.services.savepoints import restore, savepoint
from asynclock.spark.services.work import Cleaning, Clustering, write_client
from asynclock.spark.spec.load import load_spec
from asynclock.spark.spec.model import RECORD_KEY
from asynclock.spark.writer.splice import Splice
from tests.spark.pipeline_kit import EPOCH

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from asynclock.spark.results import BatchReport, RunReport
    from asynclock.spark.spec.model import Spec

pytestmark = pytest.mark.timeout(300)

NAMES = ("k", "at", "x", "note")
STREAM = """
[streams.{name}]
source = "in/{name}/*"
format = "csv"
ordering = "at"
checkpoint = "checkpoints/{name}"
max_files_per_trigger = 1
columns = {{ at = "bigint", x = "int", note = "string" }}
"""
CASES = [
    ("cow-event_time", "occ"),
    ("cow-commit_time", "occ"),
    ("mor-partial_update", "occ"),
    ("cow-event_time", "early-served"),
    ("cow-commit_time", "early-direct"),
    ("mor-partial_update", "early-direct"),
    ("mor-partial_update", "early-served"),
]
TABLES = {
    "cow-event_time": 'type = "cow"\nmerge = "event_time"\nbuckets = 1',
    "cow-commit_time": 'type = "cow"\nmerge = "commit_time"\nbuckets = 1',
    "mor-partial_update": 'type = "mor"\nmerge = "partial_update"\nbuckets = 1',
}
CONCURRENCY = {
    "occ": 'concurrency = "occ"',
    "early-direct": 'concurrency = "occ-early"\nmarkers = "direct"',
    "early-served": 'concurrency = "occ-early"\nmarkers = "timeline-server"',
}

Event = dict[str, Any]


class Plain:
    """A plain table of two streams, in a folder of its own."""

    def __init__(self, folder: Path, spark: SparkSession, table: str) -> None:
        self.folder = folder
        self.spark = spark
        self.files: dict[str, list[list[Event]]] = {"a": [], "b": []}
        self._count = 0
        for name in self.files:
            (folder / "in" / name).mkdir(parents=True)
        head = f'[table]\npath = "table"\nkey = ["k"]\nkind = "plain"\n{table}\n'
        locks = '[locks]\nurl = "locks"\nvalidity = 10.0\n'
        path = folder / "spec.toml"
        path.write_text(head + locks + "".join(STREAM.format(name=name) for name in self.files))
        self.spec: Spec = load_spec(path)

    def deliver(self, stream: str, *events: Event) -> None:
        """One more file of a stream, and so one more batch."""
        self._count += 1
        lines = [",".join("" if event.get(n) is None else str(event[n]) for n in NAMES) for event in events]
        path = self.folder / "in" / stream / f"{self._count:04}.csv"
        hidden = path.with_name(f".{path.name}")
        hidden.write_text("\n".join([",".join(NAMES), *lines, ""]))
        os.utime(hidden, (EPOCH + self._count, EPOCH + self._count))
        hidden.rename(path)
        self.files[stream].append(list(events))

    def run(self, *streams: str, **options: Any) -> RunReport:  # noqa: ANN401  as run has them
        """Write what is there, and end."""
        return run(self.spec, streams=streams or None, once=True, spark=self.spark, **options)

    def rows(self) -> dict[str, tuple[Any, ...]]:
        """The rows that a reader sees, by key."""
        found = read(self.spec, self.spark).collect()
        assert len({row["k"] for row in found}) == len(found), "a key has two rows"
        return {row["k"]: tuple(row[name] for name in NAMES[1:]) for row in found}

    def expected(self) -> dict[str, tuple[Any, ...]]:
        """What the oracle makes of the batches in the order of their commits."""
        timeline = Timeline(self.spark, self.spec.table.path)
        batches = [self.files[commit.stream][commit.batch_id] for commit in timeline.commits]
        assert len(batches) == sum(map(len, self.files.values())), "a batch is missing or repeated"
        return merged(self.spec.table.merge, (event for batch in batches for event in batch))


def merged(merge: str, events: Iterable[Event]) -> dict[str, tuple[Any, ...]]:
    """The rows that the rule of a merge gives, event by event."""
    rows: dict[str, Event] = {}
    for event in events:
        before = rows.get(event["k"])
        if merge == "event_time" and before and before["at"] > event["at"]:
            continue
        kept = before if merge == "partial_update" and before else {}
        rows[event["k"]] = kept | {name: value for name, value in event.items() if value is not None}
    return {key: tuple(row.get(name) for name in NAMES[1:]) for key, row in rows.items()}


@contextmanager
def together() -> Iterator[None]:
    """Two streams begin their first writes at the same moment."""
    met = threading.Event()
    both = threading.Barrier(2, action=met.set)
    append = Splice._append

    def meet_and_append(splice: Splice, *arguments: Any, **named: Any) -> None:  # noqa: ANN401  as the original
        if not met.is_set():
            both.wait()
        append(splice, *arguments, **named)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Splice, "_append", meet_and_append)
        yield


@pytest.mark.parametrize(("table", "concurrency"), CASES)
def test_streams_that_write_the_same_rows_at_the_same_time_lose_nothing(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture, table: str, concurrency: str
) -> None:
    """Late events, nulls and conflicts: after each run, and after the services, the table is the oracle's."""
    plain = Plain(tmp_path, spark, f"{TABLES[table]}\n{CONCURRENCY[concurrency]}")
    plain.deliver("a", {"k": "1", "at": 5, "x": 1, "note": "a"}, {"k": "2", "at": 5, "x": 2, "note": "a"})
    plain.deliver("b", {"k": "1", "at": 3, "x": 3}, {"k": "2", "at": 9, "note": "b"}, {"k": "3", "at": 1})
    plain.run("a")
    plain.run("b")
    assert plain.rows() == plain.expected()

    rng = random.Random(7)
    moments = rng.sample(range(10, 1000), 60)
    for _ in range(4):
        for stream in ("a", "b"):
            events = [
                {
                    "k": str(rng.randrange(5)),
                    "at": moments.pop(),
                    "x": rng.choice([None, rng.randrange(100)]),
                    "note": rng.choice([None, stream]),
                }
                for _ in range(6)
            ]
            plain.deliver(stream, *events)
    caplog.set_level(logging.INFO, "asynclock.spark.writer.conflicts")
    batches: list[BatchReport] = []
    with together():
        report = plain.run(on_batch=batches.append)

    assert plain.rows() == plain.expected()
    conflicts = sum(
        "ConflictException" in message or "ConflictDetection" in message for message in caplog.messages
    )
    assert report.wasted.conflicts == sum(batch.wasted.conflicts for batch in batches) == conflicts > 0
    assert 0 < report.wasted.seconds < sum(batch.seconds for batch in batches)
    run_services(plain.spec, once=True, spark=spark)
    assert plain.rows() == plain.expected()


def test_a_plain_table_may_be_written_without_waiting(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Merge-on-read with buckets takes non-blocking concurrency control: no commit fails, by any order."""
    plain = Plain(tmp_path, spark, 'type = "mor"\nconcurrency = "nbcc"\nbuckets = 1')
    caplog.set_level(logging.INFO, "asynclock.spark.writer.conflicts")
    for number in range(3):
        plain.deliver(
            "a", {"k": "1", "at": 2 * number, "x": number}, {"k": "2", "at": 7 - number, "x": number}
        )
        plain.deliver("b", {"k": "1", "at": 5 - 2 * number, "note": f"b{number}"})
    plain.run()

    assert plain.rows() == plain.expected()
    assert caplog.messages == []
    run_services(plain.spec, once=True, spark=spark)
    assert plain.rows() == plain.expected()


@pytest.mark.parametrize("merge", ["event_time", "commit_time", "partial_update"])
def test_rows_of_one_batch_are_merged_in_the_order_of_arrival(
    spark: SparkSession, tmp_path: Path, merge: str
) -> None:
    """How the rows are cut into batches makes no difference: one batch gives what three would."""
    plain = Plain(tmp_path, spark, f'merge = "{merge}"')
    events = [
        {"k": "1", "at": 5, "x": 1, "note": "first"},
        {"k": "1", "at": 9, "x": None, "note": "second"},
        {"k": "1", "at": 7, "x": 3, "note": None},
        {"k": "2", "at": 1, "x": 1, "note": None},
        {"k": "2", "at": 1, "x": 2, "note": None},
    ]
    plain.deliver("a", *events)
    plain.run("a")

    assert plain.rows() == merged(merge, events)


def test_a_batch_of_a_plain_table_is_written_once(spark: SparkSession, tmp_path: Path) -> None:
    """A kill between the commit and the checkpoint repeats the batch, which is on the timeline already."""
    plain = Plain(tmp_path, spark, 'merge = "commit_time"')
    plain.deliver("a", {"k": "1", "at": 1, "x": 1})
    plain.run("a")
    plain.deliver("b", {"k": "1", "at": 2, "x": 2})
    plain.run("b")
    (tmp_path / "checkpoints/a/commits/0").unlink()
    (tmp_path / "checkpoints/a/commits/.0.crc").unlink(missing_ok=True)
    plain.run("a")

    assert plain.rows() == {"1": (2, 2, None)}


def without_buckets(spark: SparkSession, folder: Path, services: str, table: str = "") -> Plain:
    """A pipeline of one stream whose keys have no bucket, with such services."""
    plain = Plain(folder, spark, table)
    text = plain.spec.path.read_text().replace('kind = "plain"', 'kind = "plain"\nbuckets = 0')
    text = text[: text.index("[streams.b]")].replace("[locks]", f"[services]\n{services}\n[locks]")
    plain.spec.path.write_text(text)
    plain.spec = load_spec(plain.spec.path)
    return plain


def clustered(spark: SparkSession, folder: Path, table: str = "") -> Plain:
    """One whose table is clustered after two commits and has three."""
    plain = without_buckets(spark, folder, 'clustering = { every_commits = 2, sort_by = ["x"] }', table)
    for number in range(3):
        plain.deliver("a", *({"k": f"{number}-{n}", "at": n, "x": n} for n in range(3)))
    plain.run()
    return plain


def test_a_clustering_beside_a_stream_changes_no_row(spark: SparkSession, tmp_path: Path) -> None:
    """Copy-on-write files are joined and sorted after some commits, and the stream goes on."""
    plain = clustered(spark, tmp_path)

    report = run_services(plain.spec, once=True, spark=spark)

    assert len(report.clusterings) == 1
    assert plain.rows() == plain.expected()
    plain.deliver("a", {"k": "0-0", "at": 9, "note": "later"})
    plain.run()
    assert plain.rows() == plain.expected()


def test_a_savepoint_after_a_clustering_brings_back_every_row(spark: SparkSession, tmp_path: Path) -> None:
    """The last work on a copy-on-write table is no commit of rows."""
    plain = clustered(spark, tmp_path)
    run_services(plain.spec, once=True, spark=spark)
    before = plain.rows()
    kept = savepoint(plain.spec, spark=spark)
    plain.deliver("a", {"k": "0-0", "at": 9, "note": "later"})
    plain.run()
    assert plain.rows() != before

    restore(plain.spec, kept, spark=spark)

    assert plain.rows() == before
    plain.run()
    assert plain.rows() == plain.expected()


def unfinished_marker(partition: Path) -> None:
    """What a kill or a full disk leaves of the file that marks a partition, before it has its name."""
    (partition / f".hoodie_partition_metadata.{uuid.uuid4()}").touch()


@pytest.mark.parametrize("partitioned", [False, True], ids=["whole table", "partition"])
def test_an_unfinished_marker_of_a_partition_doubles_no_row_of_a_clustering(
    spark: SparkSession, tmp_path: Path, *, partitioned: bool
) -> None:
    """Hudi lists the partition once for each such file, and would cluster its files as often."""
    plain = clustered(spark, tmp_path, 'partition_by = ["x"]' if partitioned else "")
    partition = tmp_path / ("table/x=1" if partitioned else "table")
    unfinished_marker(partition)
    assert plain.rows() == plain.expected()

    report = run_services(plain.spec, once=True, spark=spark)

    assert len(report.clusterings) == 1
    assert plain.rows() == plain.expected()


def test_a_clustering_that_was_cut_off_is_planned_anew(spark: SparkSession, tmp_path: Path) -> None:
    """A task of the leader before may end late: nobody sees a file of an instant that is never completed."""
    plain = clustered(spark, tmp_path)
    options = clustering_options(plain.spec)
    with write_client(Table(plain.spec, spark), options) as client:
        cut_off = client.scheduleClustering(spark._jvm.org.apache.hudi.common.util.Option.empty()).get()
        client.cluster(cut_off, False)
    assert [one.state for one in Timeline(spark, plain.spec.table.path).pending()] == ["INFLIGHT"]

    report = run_services(plain.spec, once=True, spark=spark)

    assert len(report.clusterings) == 1
    assert report.clusterings[0] > cut_off
    assert Timeline(spark, plain.spec.table.path).pending() == []
    [clustered_file] = (tmp_path / "table").rglob(f"*_{report.clusterings[0]}.parquet")
    late = clustered_file.with_name(f"{uuid.uuid4()}-0_0-1-1_{cut_off}.parquet")
    shutil.copy(clustered_file, late)
    assert plain.rows() == plain.expected()


def rolled_back(spark: SparkSession, folder: Path) -> tuple[Plain, Cleaning, str]:
    """A pipeline with a short timeline, its cleaning, and the instant of a write that it rolled back."""
    archiving = "archiving = { keep_min_commits = 3, keep_max_commits = 4 }"
    plain = without_buckets(spark, folder, f"cleaning = {{ retain_commits = 2 }}\n{archiving}")
    plain.deliver("a", {"k": "1", "at": 1, "x": 1})
    plain.run()
    fails = spark.sql("SELECT '9' AS k, 9L AS at, CAST(raise_error('died') AS INT) AS x, 'n' AS note")
    with pytest.raises(Py4JJavaError, match="died"):
        Splice(plain.spec, spark).write(fails, "a")
    cleaning = Cleaning(Table(plain.spec, spark))
    cleaning.step()
    [dead] = cleaning.rolled_back
    return plain, cleaning, dead


def archive(plain: Plain, cleaning: Cleaning) -> None:
    """Commit so often that the cleaning archives what was there before."""
    for number in range(6):
        plain.deliver("a", {"k": f"new {number}", "at": 1, "x": 1})
    plain.run()
    cleaning.step()


def test_a_file_that_a_task_makes_after_the_rollback_of_its_write_is_never_seen(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hudi takes the files of an instant before its active timeline for committed; it is removed in time."""
    monkeypatch.setattr(work, "SILENCE_MS", 0)
    plain, cleaning, dead = rolled_back(spark, tmp_path)
    [made] = (tmp_path / "table").rglob("*.parquet")
    late = made.with_name(f"{uuid.uuid4()}-0_0-1-1_{dead}.parquet")
    shutil.copy(made, late)
    assert plain.rows() == plain.expected()

    archive(plain, cleaning)

    [oldest, *_] = Timeline(spark, plain.spec.table.path).instants()
    assert oldest.requested > dead
    assert plain.rows() == plain.expected()
    assert not late.exists()


def test_a_rollback_that_a_full_disk_left_empty_does_not_end_archiving(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it removed is not known; the archiving goes on."""
    monkeypatch.setattr(work, "SILENCE_MS", 0)
    plain, cleaning, dead = rolled_back(spark, tmp_path)
    [result] = (tmp_path / "table" / ".hoodie" / "timeline").glob("*_*.rollback")
    result.write_bytes(b"")

    archive(plain, cleaning)

    [oldest, *_] = Timeline(spark, plain.spec.table.path).instants()
    assert oldest.requested > dead


def test_a_clustering_whose_result_a_full_disk_left_empty_is_planned_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Without it each row is there twice, since nothing says which files were replaced."""
    plain = clustered(spark, tmp_path)
    run_services(plain.spec, once=True, spark=spark)
    [result] = (tmp_path / "table" / ".hoodie" / "timeline").glob("*_*.replacecommit")
    result.write_bytes(b"")
    with pytest.raises(AssertionError, match="a key has two rows"):
        plain.rows()

    report = run_services(plain.spec, once=True, spark=spark)

    assert len(report.clusterings) == 1
    assert not result.exists()
    assert plain.rows() == plain.expected()


def test_an_empty_clustering_result_is_left_alone_after_a_write(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The write may have changed one copy of a row or the other; the log says so, once."""
    plain = clustered(spark, tmp_path)
    run_services(plain.spec, once=True, spark=spark)
    [result] = (tmp_path / "table" / ".hoodie" / "timeline").glob("*_*.replacecommit")
    result.write_bytes(b"")
    plain.deliver("a", {"k": "0-0", "at": 9, "note": "later"})
    plain.run()
    clustering = Clustering(Table(plain.spec, spark))

    clustering.step()
    clustering.step()

    assert result.exists()
    assert clustering.done == []
    [told] = [record.message for record in caplog.records if "empty result" in record.message]
    assert "restore a savepoint from before" in told


@pytest.mark.parametrize("table", ['type = "cow"', 'type = "mor"'])
def test_streams_that_bring_the_same_new_keys_at_the_same_time_store_each_once(
    spark: SparkSession, tmp_path: Path, table: str
) -> None:
    """The bucket of a key shows the conflict also where neither stream has a file yet: in new partitions."""
    plain = Plain(tmp_path, spark, f'{table}\nbuckets = 1\npartition_by = ["k"]')
    for number in range(4):
        plain.deliver("a", {"k": f"new {number}", "at": 1, "x": 1})
        plain.deliver("b", {"k": f"new {number}", "at": 2, "x": 2})
    plain.run()

    assert plain.rows() == {f"new {number}": (2, 2, None) for number in range(4)}


def test_services_inside_of_the_writes_leave_nothing_to_run_beside_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The writes of the table compact it; a run of its services is refused with the reason."""
    plain = Plain(tmp_path, spark, 'type = "mor"')
    text = plain.spec.path.read_text()
    services = '[services]\nmode = "inline"\ncompaction = { every_commits = 2 }\n'
    plain.spec.path.write_text(text.replace("[locks]", f"{services}[locks]"))
    plain.spec = load_spec(plain.spec.path)
    for number in range(4):
        plain.deliver("a", {"k": "1", "at": number, "x": number})
    plain.run("a")

    timeline = Timeline(spark, plain.spec.table.path)
    assert any(instant.action == "commit" and instant.completed for instant in timeline.instants())
    assert plain.rows() == plain.expected()
    with pytest.raises(SpecError, match="run inside its writes") as caught:
        run_services(plain.spec, once=True, spark=spark)
    assert caught.value.key == "services.mode"


@pytest.mark.parametrize(
    ("made_as", "described_as", "named"),
    [
        ('merge = "commit_time"', 'merge = "partial_update"', "hoodie.table.partial.update.mode"),
        ('merge = "partial_update"', 'merge = "commit_time"', "hoodie.table.partial.update.mode"),
        ('merge = "event_time"', 'merge = "commit_time"', "hoodie.record.merge.mode"),
        ('type = "cow"', 'type = "mor"', "hoodie.table.type"),
    ],
)
def test_a_table_of_another_kind_is_refused_before_anything_is_written(
    spark: SparkSession, tmp_path: Path, made_as: str, described_as: str, named: str
) -> None:
    """Type and merge are fixed when a table is created, and reading it otherwise would show other values."""
    plain = Plain(tmp_path, spark, made_as)
    plain.deliver("a", {"k": "1", "at": 1, "x": 1})
    plain.run("a")
    before = plain.rows()
    text = plain.spec.path.read_text()
    plain.spec.path.write_text(text.replace(made_as, described_as))
    other = load_spec(plain.spec.path)

    with pytest.raises(SpecError, match=named):
        run(other, once=True, spark=spark)
    with pytest.raises(SpecError, match=named):
        read(other, spark)

    assert plain.rows() == before


@pytest.mark.parametrize("merge", ["event_time", "commit_time", "partial_update"])
def test_a_plain_table_is_compared_with_its_sources_by_the_rule_of_its_merge(
    spark: SparkSession, tmp_path: Path, merge: str
) -> None:
    """The events of both streams count in the order of their commits, not of their streams or files."""
    plain = Plain(tmp_path, spark, f'merge = "{merge}"\nbuckets = 1')
    plain.deliver("b", {"k": "1", "at": 9, "x": 1, "note": "b"}, {"k": "2", "at": 9, "note": "b"})
    plain.run("b")
    plain.deliver("a", {"k": "1", "at": 3, "x": None, "note": "a"}, {"k": "2", "at": 9, "x": 2})
    plain.run("a")
    plain.deliver("b", {"k": "1", "at": 5, "x": 7, "note": None})
    plain.run("b")

    report = validate(plain.spec, spark)

    assert (report.ok, report.keys, report.columns, report.differences) == (True, 2, 4, 0)
    assert [(one.stream, one.events) for one in report.streams] == [("a", 2), ("b", 3)]
    assert plain.rows() == plain.expected()


def stored(plain: Plain) -> DataFrame:
    """The rows of the table with every column that is not Hudi's own."""
    found = plain.spark.read.format("hudi").load(plain.spec.table.path)
    return found.select(*(name for name in found.columns if not name.startswith("_hoodie")))


def rewrite(plain: Plain, frame: DataFrame, operation: str) -> None:
    """Write rows with a session that knows nothing of the spec, and without looking for their keys."""
    rows = plain.spark.createDataFrame(frame.collect(), frame.schema)
    partitions = ",".join(plain.spec.table.partition_by)
    encoded = "true" if partitions else "false"
    rows.write.format("hudi").options(
        **{
            "hoodie.table.name": "table",
            "hoodie.datasource.write.operation": operation,
            "hoodie.datasource.write.recordkey.field": RECORD_KEY,
            "hoodie.datasource.write.partitionpath.field": partitions,
            "hoodie.datasource.write.hive_style_partitioning": encoded,
            "hoodie.datasource.write.partitionpath.urlencode": encoded,
            "hoodie.metadata.enable": "false",
        }
    ).mode("append").save(plain.spec.table.path)


def test_an_ordering_value_that_went_back_is_a_difference(spark: SparkSession, tmp_path: Path) -> None:
    """A job that overwrites a row by an older event is found, and so is a value that no event has."""
    plain = Plain(tmp_path, spark, 'merge = "event_time"\nbuckets = 1')
    plain.deliver("a", {"k": "1", "at": 9, "x": 1, "note": "new"}, {"k": "2", "at": 1, "x": 1})
    plain.run("a")
    older = stored(plain).withColumns(
        {"at": F.when(F.col("k") == "1", 4).otherwise(F.col("at")), "x": F.lit(1)}
    )
    rewrite(plain, older, "insert_overwrite_table")

    report = validate(plain.spec, spark)

    assert not report.ok
    assert [(one.key, one.column, one.expected, one.found) for one in report.sample] == [
        ({"k": "1"}, "at", "9", "4")
    ]


def test_a_key_twice_in_a_partition_is_a_difference_and_in_two_partitions_is_none(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Hudi keeps the keys of a plain table unique within each partition."""
    plain = Plain(tmp_path, spark, 'buckets = 1\npartition_by = ["x"]')
    plain.deliver("a", {"k": "1", "at": 1, "x": 1}, {"k": "2", "at": 1, "x": 1})
    plain.deliver("a", {"k": "1", "at": 2, "x": 2})
    plain.run("a")
    assert validate(plain.spec, spark).ok

    rewrite(plain, stored(plain).where("k = '2'"), "insert")

    report = validate(plain.spec, spark)

    assert [(one.key, one.column, one.found) for one in report.sample] == [
        ({"k": "2", "x": "1"}, None, "2 rows")
    ]


def test_changes_opens_no_file_of_a_partition_without_a_changed_file(
    spark: SparkSession, tmp_path: Path
) -> None:
    """An increment needs nothing of the history: a damaged file of another partition does not matter."""
    plain = Plain(tmp_path, spark, f'{TABLES["cow-event_time"]}\npartition_by = ["x"]')
    plain.spec.path.write_text(plain.spec.path.read_text().replace('key = ["k"]', 'key = ["k", "x"]'))
    plain.spec = load_spec(plain.spec.path)
    plain.deliver("a", {"k": "1", "at": 1, "x": 1}, {"k": "2", "at": 1, "x": 2}, {"k": "3", "at": 1, "x": 3})
    plain.run("a")
    since = changes(plain.spec, spark).until
    plain.deliver("a", {"k": "4", "at": 2, "x": 1}, {"k": "3", "at": 2, "x": 3})
    plain.run("a")
    (file,) = (tmp_path / "table" / "x=2").glob("*.parquet")
    file.write_bytes(b"damaged")

    rows = changes(plain.spec, spark, since=since).frame.collect()

    assert {(row.k, row.x, row["at"], row._deleted) for row in rows} == {
        ("4", 1, 2, False),
        ("3", 3, 2, False),
    }
    with pytest.raises(Py4JJavaError):
        read(plain.spec, spark).collect()


def test_a_key_that_is_hidden_in_one_partition_and_alive_in_another_did_not_go(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Without the partition column in the key, changes look for the key in all partitions."""
    plain = Plain(tmp_path, spark, 'buckets = 1\npartition_by = ["x"]')
    text = plain.spec.path.read_text().replace('note = "string" }', 'note = "string", deleted = "boolean" }')
    plain.spec.path.write_text(text)
    plain.spec = load_spec(plain.spec.path)
    source = tmp_path / "in" / "a"
    (source / "1.csv").write_text("k,at,x,note,deleted\n1,1,1,,false\n1,1,2,,false\n2,1,1,,false\n")
    plain.run("a")
    since = changes(plain.spec, spark).until
    (source / "2.csv").write_text("k,at,x,note,deleted\n1,2,1,,true\n2,2,1,,true\n")
    plain.run("a")

    rows = changes(plain.spec, spark, since=since).frame.collect()

    assert {(row.k, row.x, row._deleted) for row in rows} == {("1", 2, False), ("2", None, True)}


def test_a_tombstone_hides_a_row_of_a_plain_table(spark: SparkSession, tmp_path: Path) -> None:
    """The row stays hidden from older events and comes back with a newer one."""
    plain = Plain(tmp_path, spark, "")
    text = plain.spec.path.read_text().replace('note = "string" }', 'note = "string", deleted = "boolean" }')
    plain.spec.path.write_text(text)
    plain.spec = load_spec(plain.spec.path)
    for number, (at, deleted) in enumerate([(5, "false"), (9, "true"), (7, "false")]):
        path = tmp_path / "in" / "a" / f"{number}.csv"
        path.write_text(f"k,at,x,note,deleted\n1,{at},1,,{deleted}\n")
        os.utime(path, (EPOCH + number, EPOCH + number))
        plain.run("a")
    assert plain.rows() == {}

    (tmp_path / "in" / "a" / "9.csv").write_text("k,at,x,note,deleted\n1,10,4,,false\n")
    plain.run("a")
    assert plain.rows() == {"1": (10, 4, None)}
