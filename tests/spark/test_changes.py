"""Incremental reads: a consumer that applies what changed ends with the same rows as the view."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F  # noqa: N812  the name everybody uses

from asynclock.errors import ConfigError
from asynclock.spark import hoodie
from asynclock.spark.errors import ChangesLostError
from asynclock.spark.hudi.options import write_options
from asynclock.spark.hudi.table import Table
from asynclock.spark.reader.changes import changes
from asynclock.spark.reader.snapshot import read, snapshot
from asynclock.spark.services.savepoints import restore, savepoint
from asynclock.spark.services.work import Cleaning, Clustering, Compaction
from asynclock.spark.spec.load import load_spec
from asynclock.spark.spec.model import RECORD_KEY
from asynclock.spark.writer.splice import Splice
from tests.laboratory.consumer import Play
from tests.spark.pipeline_kit import Background, Pipeline, wait_for, waiting

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from asynclock.spark.spec.model import Spec

pytestmark = pytest.mark.timeout(300)

A_ROW = "k string, at bigint, x int, note string"
PARTITIONED = {'key = ["k"]': 'key = ["k", "day", "n"]\npartition_by = ["day"]'}
PARTITIONED |= {'at = "bigint"': 'day = "date", n = "bigint", at = "bigint"'}
COMMITS = 12


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
    both = a_frame(pipeline, ("N1", 2, 2, "slow"), ("N3", 2, 2, "slow"))
    slow = waiting(both.coalesce(1), gate)  # in one task, since the session runs two
    writing = Background(lambda: Splice(spec, pipeline.spark).write(slow, "a"))
    wait_for(lambda: pipeline.timeline(spec).pending())

    write_b(pipeline, spec, ("N1", 5, 0.5, False), ("N4", 5, 0.5, False))
    Compaction(Table(spec, pipeline.spark)).step()
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


def test_a_partition_may_have_any_text(pipeline: Pipeline) -> None:
    """The folder of a partition is encoded, and its changed rows are found under every name."""
    spec = pipeline.spec({'key = ["k"]': 'key = ["k", "place"]\npartition_by = ["place"]'})
    places = ("a/b=c", "x:y,z", "50% +1", "%2F", "Łódź/ü", '"', " ", "\\n'", "quiet")
    splice = Splice(spec, pipeline.spark)

    def events(at: int, *places: str) -> DataFrame:
        rows = [("N1", place, at, at, "") for place in places]
        return pipeline.spark.createDataFrame(rows, "k string, place string, at bigint, x int, note string")

    splice.write(events(1, *places), "a")
    consumer = Consumer(spec, pipeline.spark)
    consumer.poll()
    splice.write(events(2, *places[:-1]), "a")

    assert consumer.poll() == {("N1", place) for place in places[:-1]}
    assert consumer.has_all()


def test_keys_that_the_view_lost_are_told(pipeline: Pipeline) -> None:
    """A row deleted by Hudi, and one whose streams all have tombstones, with any text and type of key."""
    spec = pipeline.spec(PARTITIONED)
    texts = ("a|b", "x:y,z", "50% +1", "Łódź/ü", '"', " ")
    keys = [(text, dt.date(2024, 2, 1 + i % 2), 2**40 + i) for i, text in enumerate(texts)]
    splice = Splice(spec, pipeline.spark)

    def frame(columns: str, *rows: tuple[Any, ...]) -> DataFrame:
        return pipeline.spark.createDataFrame(rows, f"k string, day date, n bigint, {columns}")

    def named(*keys: tuple[Any, ...]) -> list[dict[str, Any]]:
        return [dict(zip(spec.table.key, key, strict=True)) for key in keys]

    a, b = "at bigint, x int, note string", "seen timestamp, y double, deleted boolean"
    splice.write(frame(a, *((*key, 1, 1, "a") for key in keys)), "a")
    splice.write(frame(b, *((*key, dt.datetime(2024, 5, 1), 0.5, False) for key in keys[1:3])), "b")  # noqa: DTZ001
    consumer = Consumer(spec, pipeline.spark)
    assert consumer.poll() == set(keys)

    splice.delete(named(keys[0], *keys[3:]))
    splice.delete(named(*keys[1:3]), stream="a")
    splice.write(frame(b, (*keys[2], dt.datetime(2024, 5, 2), None, True)), "b")  # noqa: DTZ001
    got = changes(spec, pipeline.spark, since=consumer.since).frame

    assert got.dtypes == [*read(spec, pipeline.spark).dtypes, ("_deleted", "boolean")]
    told = {(row.k, row.day, row.n): (row._deleted, row.at, row.x, row.y) for row in got.collect()}
    assert told == dict.fromkeys(keys, (True, None, None, None)) | {keys[1]: (False, None, None, 0.5)}
    splice.write(frame(a, (*keys[0], 1, 7, "back")), "a")
    assert consumer.poll() == set(keys)
    assert consumer.has_all()
    assert set(consumer.rows) == set(keys[:2])


def test_archival_compaction_and_cleaning_in_the_range(pipeline: Pipeline) -> None:
    """They hide nothing for as long as the files are there; after that the consumer starts again."""
    spec = pipeline.spec()
    write(pipeline, spec, ("N0", 1, 1, "a"))
    consumer = Consumer(spec, pipeline.spark)
    consumer.poll()
    start = consumer.since
    for number in range(1, 5):
        write(pipeline, spec, (f"N{number}", 1, number, "a"), ("N0", number, number, "a"))
    Cleaning(Table(spec, pipeline.spark)).step()
    active = {one.requested for one in pipeline.timeline(spec).instants()}
    archived = [one.completed for one in pipeline.timeline(spec).commits if one.requested not in active]
    assert max(archived) > str(start)
    compaction = Compaction(Table(spec, pipeline.spark))
    compaction.step()
    assert compaction.done
    write_b(pipeline, spec, ("N1", 1, 0.5, False))

    assert consumer.poll() == {f"N{number}" for number in range(5)}
    assert consumer.has_all()
    write(pipeline, spec, ("N0", 9, 9, "a"))
    compaction.step()
    Cleaning(Table(spec, pipeline.spark)).step()
    with pytest.raises(ChangesLostError, match=r"is cleaned away\. Start again with since=None"):
        changes(spec, pipeline.spark, since=start)
    assert consumer.poll() == {"N0"}
    newest = consumer.since
    Cleaning(Table(spec, pipeline.spark)).step()
    assert consumer.poll() == set()
    assert consumer.since == newest


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


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> tuple[Pipeline, Spec, list[str]]:
    """A table of three commits, and their completion times."""
    pipeline = Pipeline(tmp_path_factory.mktemp("three"), spark)
    spec = pipeline.spec()
    for number in range(3):
        write(pipeline, spec, ("N1", number, number, "a"), (f"M{number}", 1, number, "a"))
    return pipeline, spec, [commit.completed for commit in pipeline.timeline(spec).commits]


def test_nothing_has_changed(three: tuple[Pipeline, Spec, list[str]]) -> None:
    """The frame is empty and has its columns, and the instant stays."""
    pipeline, spec, times = three

    got = changes(spec, pipeline.spark, since=times[-1])

    assert (got.until, got.frame.count()) == (times[-1], 0)
    assert got.frame.dtypes == [*read(spec, pipeline.spark).dtypes, ("_deleted", "boolean")]


def test_until_leaves_later_commits_out(three: tuple[Pipeline, Spec, list[str]]) -> None:
    """The rows are those of that time, and the next call goes on from there."""
    pipeline, spec, times = three

    got = changes(spec, pipeline.spark, since=times[0], until=times[1])
    rest = changes(spec, pipeline.spark, since=got.until)

    assert got.until == times[1]
    assert {(row.k, row.x) for row in got.frame.collect()} == {("N1", 1), ("M1", 1)}
    assert {(row.k, row.x) for row in rest.frame.collect()} == {("N1", 2), ("M2", 2)}
    assert changes(spec, pipeline.spark, until=times[0]).frame.count() == 2


def test_instants_may_be_given_as_the_command_prints_them(three: tuple[Pipeline, Spec, list[str]]) -> None:
    """``asynclock pipeline timeline`` writes a completion time for people."""
    pipeline, spec, times = three
    printed = dt.datetime.strptime(times[1], "%Y%m%d%H%M%S%f").isoformat(timespec="milliseconds")  # noqa: DTZ007

    got = changes(spec, pipeline.spark, since=printed)

    assert {(row.k, row.x) for row in got.frame.collect()} == {("N1", 2), ("M2", 2)}


WRONG = [
    *(({"since": wrong}, r"since=.*: this is no instant time") for wrong in ("yesterday", "2024050112", "")),
    *(
        ({"until": wrong}, r"until=.*: this is no instant")
        for wrong in ("20240231120000000", "٢٠٢٤٠٥٠١١٢٠٠٠٠")
    ),
    (
        {"since": "20250101000000", "until": "20240501120000"},
        r"until=.*: this is before since, 20250101000000",
    ),
    ({"since": "20990101000000000"}, r"since=.*: this lies in the future"),
    ({"until": "20990101000000000"}, r"until=.*: this lies in the future"),
    ({"until": "20200101000000000"}, r"until=.*: what was committed by then is archived"),
]


@pytest.mark.parametrize(("given", "sentence"), WRONG)
def test_wrong_instants_are_refused(
    three: tuple[Pipeline, Spec, list[str]], given: dict[str, str], sentence: str
) -> None:
    """One sentence each: no instant, in the future, in the wrong order, before the table."""
    pipeline, spec, _ = three
    with pytest.raises(ConfigError, match=sentence):
        changes(spec, pipeline.spark, **given)


def test_an_instant_before_the_table_is_lost(three: tuple[Pipeline, Spec, list[str]]) -> None:
    """The consumer may have read another table at the path."""
    pipeline, spec, _ = three
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
    """Rows written, hidden and deleted by Hudi, across clustering or compaction; no replaced files."""
    path = pipeline.folder / "plain.toml"
    path.write_text(PLAIN.format(table=table, services=services))
    spec, spark = load_spec(path), pipeline.spark
    service = Clustering(Table(spec, spark)) if table is COW else Compaction(Table(spec, spark))
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

    def hudi_write(operation: str, key: str) -> None:
        stored = spark.read.format("hudi").load(spec.table.path).where(f"k = '{key}'")
        rows = stored.select(RECORD_KEY, "k", "at", "x", "note", "deleted")
        options = write_options(spec) | {hoodie.DATASOURCE_WRITE_OPERATION: operation}
        rows.write.format("hudi").options(**options).mode("append").save(spec.table.path)

    hudi_write("delete", "N3")
    plain_write(("N6", 2, 7, "b", False))
    assert consumer.poll() == {"N3", "N6"}
    assert consumer.has_all()
    if table is COW:
        hudi_write("insert_overwrite", "N1")
        with pytest.raises(ChangesLostError, match="has replaced whole files"):
            consumer.poll()


def test_a_consumer_beside_three_streams_has_the_same_table(spark: SparkSession, tmp_path: Path) -> None:
    """A short form of ``make changes``."""
    play = Play(tmp_path, spark, seed=3, say=lambda _: None)

    play.play(COMMITS)

    assert play.done.differences == []
    assert play.done.commits == COMMITS
    assert play.done.polls > 1
    assert play.done.keys > 0


def test_rows_in_several_log_files_are_all_told(pipeline: Pipeline) -> None:
    """A large batch fills several blocks and log files of a bucket."""
    spec, spark = pipeline.spec(), pipeline.spark
    write(pipeline, spec, ("N0", 1, 1, "a"))
    consumer = Consumer(spec, spark)
    consumer.poll()
    stored = snapshot(Table(spec, spark)).crossJoin(spark.range(400))
    key = F.when(F.lit(True), F.concat(F.lit("R"), "id"))  # may be null, as far as its type says
    rows = stored.withColumns({"k": key, RECORD_KEY: key}).drop("id")
    small = {"hoodie.logfile.data.block.max.size": "2000", "hoodie.logfile.max.size": "2000"}
    rows.write.format("hudi").options(**write_options(spec) | small).mode("append").save(spec.table.path)

    newest = max(one.requested for one in pipeline.timeline(spec).instants())
    assert len(list((pipeline.folder / "table").glob(f".*_{newest}.log.*"))) > 2
    assert consumer.poll() == {f"R{number}" for number in range(400)}
