"""Incremental reads: a consumer that applies what changed ends with the same rows as the view."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import pytest

from asynclock.errors import ConfigError
from asynclock.spark.errors import ChangesLostError
from asynclock.spark.hudi.options import write_options
from asynclock.spark.reader.changes import changes
from asynclock.spark.reader.snapshot import read
from asynclock.spark.services.savepoints import restore, savepoint
from asynclock.spark.services.work import Cleaning, Clustering, Compaction
from asynclock.spark.spec.load import load_spec
from asynclock.spark.spec.model import RECORD_KEY
from asynclock.spark.writer.splice import Splice
from tests.spark.pipeline_kit import Background, Pipeline, wait_for, waiting

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from asynclock.spark.spec.model import Spec

pytestmark = pytest.mark.timeout(300)

A_ROW = "k string, at bigint, x int, note string"
PARTITIONED = {'key = ["k"]': 'key = ["k", "day", "n"]\npartition_by = ["day"]'}
PARTITIONED |= {'at = "bigint"': 'day = "date", n = "bigint", at = "bigint"'}
RETAINED = {"retain_commits = 1": "retain_commits = 20"}


class Consumer:
    """Keeps a copy of the view, from its changes alone."""

    def __init__(self, spec: Spec, spark: SparkSession) -> None:
        self.spec = spec
        self.spark = spark
        self.since: str | None = None
        self.rows: dict[tuple[Any, ...], tuple[Any, ...]] = {}

    def poll(self) -> set[Any]:
        """Apply what has changed, and return the keys: the only column of them alone."""
        got = changes(self.spec, self.spark, since=self.since)
        seen = set()
        for row in got.frame.collect():
            values = row.asDict()
            is_deleted = values.pop("_deleted")
            key = tuple(values[name] for name in self.spec.table.key)
            assert key not in seen
            seen.add(key)
            if is_deleted:
                assert {name for name, value in values.items() if value is not None} <= {*self.spec.table.key}
                self.rows.pop(key, None)
            else:
                self.rows[key] = tuple(values.values())
        self.since = got.until
        return {key[0] if len(key) == 1 else key for key in seen}

    def has_all(self) -> bool:
        """Whether the copy is what the view says."""
        found = read(self.spec, self.spark)
        keys = self.spec.table.key
        return self.rows == {tuple(row[name] for name in keys): tuple(row) for row in found.collect()}


@pytest.fixture
def pipeline(tmp_path: Path, spark: SparkSession) -> Pipeline:
    """An empty pipeline."""
    return Pipeline(tmp_path, spark)


def a_frame(pipeline: Pipeline, *rows: tuple[Any, ...]) -> DataFrame:
    """Events of stream a."""
    return pipeline.spark.createDataFrame(rows, A_ROW)


def write(pipeline: Pipeline, spec: Spec, *rows: tuple[Any, ...]) -> None:
    """Commit events of stream a."""
    Splice(spec, pipeline.spark).write(a_frame(pipeline, *rows), "a")


def write_b(pipeline: Pipeline, spec: Spec, *rows: tuple[str, int, float | None, bool]) -> None:
    """Commit events of stream b, whose time is a number of seconds."""
    frame = pipeline.spark.createDataFrame(rows, "k string, at bigint, y double, deleted boolean")
    frame = frame.selectExpr("k", "timestamp_seconds(at) AS seen", "y", "deleted")
    Splice(spec, pipeline.spark).write(frame, "b")


def test_a_slow_commit_that_was_requested_earlier_is_found(pipeline: Pipeline) -> None:
    """It is in the read after its completion, whole, merged with what was committed meanwhile."""
    spec = pipeline.spec()
    write(pipeline, spec, ("N1", 1, 1, "first"), ("N2", 1, 1, "first"))
    consumer = Consumer(spec, pipeline.spark)
    assert consumer.poll() == {"N1", "N2"}
    gate = pipeline.folder / "gate"
    slow = waiting(a_frame(pipeline, ("N1", 2, 2, "slow"), ("N3", 2, 2, "slow")), gate)
    writing = Background(lambda: Splice(spec, pipeline.spark).write(slow, "a"))
    wait_for(lambda: pipeline.timeline(spec).pending())

    write_b(pipeline, spec, ("N1", 5, 0.5, False), ("N4", 5, 0.5, False))
    Compaction(spec, pipeline.spark).step()
    assert consumer.poll() == {"N1", "N4"}
    assert consumer.has_all()
    since = consumer.since
    gate.touch()
    writing.result()

    assert pipeline.timeline(spec).commits[-1].requested < str(since)
    assert consumer.poll() == {"N1", "N3"}
    assert consumer.has_all()
    [row] = changes(spec, pipeline.spark, since=since).frame.where("k = 'N1'").collect()
    assert (row.x, row.note, row.y, row._deleted) == (2, "slow", 0.5, False)


def test_keys_that_the_view_lost_are_told(pipeline: Pipeline) -> None:
    """A row deleted by Hudi, and one whose streams all have tombstones; not one that a stream still has."""
    spec = pipeline.spec()
    write(pipeline, spec, *((f"N{i}", 1, i, "a") for i in range(4)))
    write_b(pipeline, spec, *((f"N{i}", 1, 0.5, False) for i in range(1, 4)))
    consumer = Consumer(spec, pipeline.spark)
    consumer.poll()
    splice = Splice(spec, pipeline.spark)

    splice.delete([{"k": "N0"}])
    splice.delete([{"k": "N1"}, {"k": "N2"}], stream="a")
    write_b(pipeline, spec, ("N2", 2, None, True))
    got = changes(spec, pipeline.spark, since=consumer.since).frame

    told = {row.k: (row._deleted, row.x, row.y) for row in got.collect()}
    assert told == {"N0": (True, None, None), "N1": (False, None, 0.5), "N2": (True, None, None)}
    assert consumer.poll() == {"N0", "N1", "N2"}
    assert consumer.has_all()
    write(pipeline, spec, ("N0", 1, 7, "back"))
    assert consumer.poll() == {"N0"}
    assert consumer.has_all()


def test_a_deleted_key_has_its_columns_back(pipeline: Pipeline) -> None:
    """Whatever their text and type, also where one of them is the partition."""
    spec = pipeline.spec(PARTITIONED)
    texts = ["a|b", "x:y,z", "50% +1", "Łódź/ü", '"', " "]
    keys = [(text, dt.date(2024, 2, 1 + i % 3), 2**40 + i) for i, text in enumerate(texts)]
    frame = pipeline.spark.createDataFrame(
        [(*key, 1, 1, "") for key in keys], "k string, day date, n bigint, at bigint, x int, note string"
    )
    Splice(spec, pipeline.spark).write(frame, "a")
    consumer = Consumer(spec, pipeline.spark)
    assert consumer.poll() == set(keys)

    gone = [dict(zip(spec.table.key, key, strict=True)) for key in keys]
    Splice(spec, pipeline.spark).delete(gone)
    got = changes(spec, pipeline.spark, since=consumer.since).frame

    assert got.dtypes == [*read(spec, pipeline.spark).dtypes, ("_deleted", "boolean")]
    assert {(row.k, row.day, row.n) for row in got.collect() if row._deleted} == set(keys)
    consumer.poll()
    assert consumer.rows == {}


def test_compaction_cleaning_and_archival_in_the_range_hide_nothing(pipeline: Pipeline) -> None:
    """Commits are found on the archived timeline too; once their files are gone the consumer starts anew."""
    spec = pipeline.spec(RETAINED)
    write(pipeline, spec, ("N0", 1, 1, "a"))
    first, second = Consumer(spec, pipeline.spark), Consumer(spec, pipeline.spark)
    first.poll()
    second.poll()
    for number in range(1, 6):
        write(pipeline, spec, (f"N{number}", 1, number, "a"), ("N0", number, number, "a"))
        write_b(pipeline, spec, (f"N{number}", number, 0.5, number % 2 == 0))
        Compaction(spec, pipeline.spark).step()
        Cleaning(spec, pipeline.spark).step()
    active = {one.requested for one in pipeline.timeline(spec).instants()}
    assert not {one.requested for one in pipeline.timeline(spec).commits} <= active

    assert first.poll() == {f"N{number}" for number in range(6)}
    assert first.has_all()
    eager = pipeline.spec({}, name="eager.toml")
    for number in range(6, 8):
        write(pipeline, eager, (f"N{number}", 1, number, "a"))
        write(pipeline, eager, (f"N{number}", 2, number, "a"))
        Compaction(eager, pipeline.spark).step()
        Cleaning(eager, pipeline.spark).step()
    with pytest.raises(ChangesLostError, match=r"is cleaned away\. Start anew with since=None"):
        second.poll()


def test_after_a_restore_the_consumer_starts_anew(pipeline: Pipeline) -> None:
    """What the restore took away has changed as well, and nobody knows the keys any more."""
    spec = pipeline.spec()
    pipeline.deliver("a", {"k": "N1", "at": 1, "x": 1})
    pipeline.run(spec)
    kept = savepoint(spec, spark=pipeline.spark)
    consumer = Consumer(spec, pipeline.spark)
    consumer.poll()
    pipeline.deliver("a", {"k": "N1", "at": 2, "x": 2}, {"k": "N2", "at": 2, "x": 2})
    pipeline.run(spec)
    assert consumer.poll() == {"N1", "N2"}
    begun = pipeline.folder / "table" / ".hoodie" / "timeline" / "20990101000000000.restore.requested"
    begun.write_bytes(b"")
    with pytest.raises(ChangesLostError, match="a restore is under way"):
        consumer.poll()
    begun.unlink()

    restore(spec, kept, spark=pipeline.spark)

    with pytest.raises(ChangesLostError, match="a restore has taken commits off the timeline"):
        consumer.poll()
    consumer.since = None
    consumer.rows.clear()
    assert consumer.poll() == {"N1"}
    assert consumer.poll() == set()
    pipeline.run(spec)
    assert consumer.poll() == {"N1", "N2"}
    assert consumer.has_all()


def test_nothing_has_changed(pipeline: Pipeline) -> None:
    """The frame is empty and has its columns, and the instant stays, also after table services."""
    spec = pipeline.spec()
    write(pipeline, spec, ("N1", 1, 1, "a"))
    write(pipeline, spec, ("N1", 2, 1, "a"))
    whole = changes(spec, pipeline.spark)

    for _ in range(2):
        got = changes(spec, pipeline.spark, since=whole.until)
        assert (got.until, got.frame.dtypes, got.frame.count()) == (whole.until, whole.frame.dtypes, 0)
        Compaction(spec, pipeline.spark).step()
        Cleaning(spec, pipeline.spark).step()
    assert whole.frame.dtypes == [*read(spec, pipeline.spark).dtypes, ("_deleted", "boolean")]


def test_until_leaves_later_commits_out(pipeline: Pipeline) -> None:
    """The rows are those of then, and the next call goes on from there."""
    spec = pipeline.spec()
    for number in range(3):
        write(pipeline, spec, ("N1", number, number, "a"), (f"M{number}", 1, number, "a"))
    times = [commit.completed for commit in pipeline.timeline(spec).commits]

    got = changes(spec, pipeline.spark, since=times[0], until=times[1])
    rest = changes(spec, pipeline.spark, since=got.until)

    assert got.until == times[1]
    assert {(row.k, row.x) for row in got.frame.collect()} == {("N1", 1), ("M1", 1)}
    assert {(row.k, row.x) for row in rest.frame.collect()} == {("N1", 2), ("M2", 2)}
    assert changes(spec, pipeline.spark, until=times[0]).frame.count() == 2


def test_wrong_instants_are_refused(pipeline: Pipeline) -> None:
    """One sentence each: no instant, in the future, in the wrong order, of another table."""
    spec = pipeline.spec()
    write(pipeline, spec, ("N1", 1, 1, "a"))
    [commit] = pipeline.timeline(spec).commits
    for wrong in ("yesterday", "20240231120000000", "2024050112", "", "٢٠٢٤٠٥٠١١٢٠٠٠٠"):
        with pytest.raises(ConfigError, match=r"since=.*: this is no instant time"):
            changes(spec, pipeline.spark, since=wrong)
    with pytest.raises(ConfigError, match=rf"until=.*: this is before since, {commit.completed}"):
        changes(spec, pipeline.spark, since=commit.completed, until="20240501120000000")
    for setting in ("since", "until"):
        with pytest.raises(ConfigError, match=rf"{setting}=.*: this lies in the future"):
            changes(spec, pipeline.spark, **{setting: "20990101000000000"})
    with pytest.raises(ConfigError, match=r"until=.*: what was committed by then is archived"):
        changes(spec, pipeline.spark, until="20200101000000000")
    with pytest.raises(ChangesLostError, match="no commit from then or before"):
        changes(spec, pipeline.spark, since="20200101000000000")


PLAIN = """\
[table]
path = "table"
key = ["k"]
kind = "plain"
{table}
[services]
{services}
[streams.a]
source = "in/a/*"
format = "csv"
ordering = "at"
columns = {{ at = "bigint", x = "int", note = "string", deleted = "boolean" }}
"""
COW, MOR = 'type = "cow"\nbuckets = 0', 'type = "mor"\nbuckets = 2'


@pytest.mark.parametrize(
    ("table", "services"),
    [(COW, "clustering = { every_commits = 2 }"), (MOR, "compaction = { every_commits = 2 }")],
    ids=["cow", "mor"],
)
def test_plain_tables_tell_their_changes(pipeline: Pipeline, table: str, services: str) -> None:
    """Rows written, hidden by ``deleted`` and deleted by Hudi, across clustering or compaction."""
    path = pipeline.folder / "plain.toml"
    path.write_text(PLAIN.format(table=table, services=services))
    spec, spark = load_spec(path), pipeline.spark
    service = Clustering(spec, spark) if table is COW else Compaction(spec, spark)
    columns = "k string, at bigint, x int, note string, deleted boolean"

    def plain_write(*rows: tuple[Any, ...]) -> None:
        Splice(spec, spark).write(spark.createDataFrame(rows, columns), "a")

    plain_write(*((f"N{i}", 1, i, "a", False) for i in range(5)))
    consumer = Consumer(spec, spark)
    consumer.poll()
    plain_write(("N1", 2, 7, "b", False), ("N5", 2, 7, "b", False))
    plain_write(("N2", 2, 7, "b", True))
    service.step()
    assert consumer.poll() == {"N1", "N2", "N5"}
    assert consumer.has_all()
    options = write_options(spec) | {"hoodie.datasource.write.operation": "delete"}
    stored = spark.read.format("hudi").load(spec.table.path).where("k = 'N3'")
    stored.select(RECORD_KEY, *columns.replace(",", "").split()[::2]).write.format("hudi").options(
        **options
    ).mode("append").save(spec.table.path)
    plain_write(("N6", 2, 7, "b", False))
    assert consumer.poll() == {"N3", "N6"}
    assert consumer.has_all()


def test_replaced_files_are_not_passed_over(pipeline: Pipeline) -> None:
    """INSERT OVERWRITE takes rows away without naming their keys."""
    path = pipeline.folder / "plain.toml"
    path.write_text(PLAIN.format(table=COW, services=""))
    spec, spark = load_spec(path), pipeline.spark
    columns = "k string, at bigint, x int, note string, deleted boolean"
    rows = [(f"N{i}", 1, i, "a", False) for i in range(3)]
    Splice(spec, spark).write(spark.createDataFrame(rows, columns), "a")
    whole = changes(spec, spark)
    stored = spark.read.format("hudi").load(spec.table.path).where("k = 'N1'")
    stored = stored.select(RECORD_KEY, *columns.replace(",", "").split()[::2])
    options = write_options(spec) | {"hoodie.datasource.write.operation": "insert_overwrite"}
    stored.write.format("hudi").options(**options).mode("append").save(spec.table.path)

    with pytest.raises(ChangesLostError, match="has replaced whole files"):
        changes(spec, spark, since=whole.until)
