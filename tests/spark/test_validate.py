"""Validation: every wrong cell is found, and nothing else."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F  # noqa: N812  the name everybody uses

from asynclock import sync
from asynclock.errors import ConfigError
from asynclock.spark.check import validation
from asynclock.spark.check.committed import repeated_batches, stale_commits
from asynclock.spark.check.strict.expected import Expected
from asynclock.spark.check.validation import Difference, validate
from asynclock.spark.cli.pipeline_reports import print_validation
from asynclock.spark.hudi.instants import BatchCommit
from asynclock.spark.hudi.table import Table
from asynclock.spark.reader.snapshot import snapshot
from asynclock.spark.services.work import Cleaning, Compaction
from asynclock.spark.spec.dialect import CsvDialect
from asynclock.spark.spec.model import RECORD_KEY
from asynclock.spark.writer.splice import Splice
from tests.spark.pipeline_kit import Pipeline, command_here, misread

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from asynclock.spark.spec.model import Spec

A_SCHEMA = "k string, at bigint, x int, note string"


@pytest.fixture
def pipeline(tmp_path: Path, spark: SparkSession) -> Pipeline:
    """Two streams of which some rows are late, equal, bad or tombstones."""
    made = Pipeline(tmp_path / "a b", spark)
    made.deliver("a", *({"k": f"N{i}", "at": i % 3, "x": i, "note": "first"} for i in range(40)))
    made.deliver("a", *({"k": f"N{i}", "at": 1, "x": 100 + i} for i in range(40)))
    made.deliver("a", {"k": "N0", "at": 1, "x": 999, "note": "same instant but later"})
    made.deliver(
        "b", *({"k": f"N{i}", "seen": f"2024-05-0{1 + i % 5}T12:00:00Z", "y": i / 7} for i in range(50))
    )
    made.deliver(
        "b", {"k": "N3", "seen": "2024-06-01T12:00:00Z", "deleted": "true"}, {"k": "N4", "seen": "never"}
    )
    return made


def copy_of(pipeline: Pipeline, spec: Spec) -> Spec:
    """A spec of a copy of the table, over the same sources."""
    shutil.copytree(spec.table.path.removeprefix("file://"), pipeline.folder / "copy")
    locks = 'url = "copy-locks"\nmoved_from = "locks"'
    return pipeline.spec({'path = "table"': 'path = "copy"', 'url = "locks"': locks}, name="copy.toml")


def test_spliced_table_is_what_its_sources_say(pipeline: Pipeline) -> None:
    """After a run no cell differs, every commit is in order, and nothing is left over."""
    spec = pipeline.spec()
    pipeline.run(spec)

    report = validate(spec, pipeline.spark)

    assert report.ok
    assert (report.keys, report.columns, report.differences, report.sample) == (50, 7, 0, ())
    assert [(s.stream, s.events, s.bad_rows, s.unread_files) for s in report.streams] == [
        ("a", 81, 0, ()),
        ("b", 51, 1, ()),
    ]
    assert (report.stale_commits, report.repeated_batches, report.pending, report.leftovers) == (
        (),
        (),
        (),
        (),
    )


def test_one_changed_cell_is_reported_as_exactly_that(pipeline: Pipeline) -> None:
    """In a copy with one wrong cell that cell is named, with what it should be and what it is."""
    spec = pipeline.spec()
    pipeline.run(spec)
    wrong = copy_of(pipeline, spec)
    frame = pipeline.spark.createDataFrame([("N7", 1, 108, None)], A_SCHEMA)

    misread(wrong, pipeline.spark, frame, "a")
    report = validate(wrong, pipeline.spark)

    assert not report.ok
    assert report.differences == 1
    assert report.sample == (Difference(key={"k": "N7"}, column="a__x", expected="107", found="108"),)
    assert validate(spec, pipeline.spark).ok


def test_a_cell_that_should_be_null_is_reported(pipeline: Pipeline) -> None:
    """Null and a value are as different as two values."""
    spec = pipeline.spec()
    pipeline.run(spec)
    wrong = copy_of(pipeline, spec)
    frame = pipeline.spark.createDataFrame([("N7", 1, 107, "unexpected")], A_SCHEMA)

    misread(wrong, pipeline.spark, frame, "a")

    assert validate(wrong, pipeline.spark).sample == (
        Difference(key={"k": "N7"}, column="a__note", expected=None, found="unexpected"),
    )


def test_rows_on_one_side_only_are_reported(pipeline: Pipeline) -> None:
    """A row that no source has and a row that is missing in the table are told as rows."""
    spec = pipeline.spec()
    pipeline.run(spec)
    frame = pipeline.spark.createDataFrame([("surplus", 1, 1, None)], A_SCHEMA)
    misread(spec, pipeline.spark, frame, "a")
    with (pipeline.folder / "in" / "a" / "0001.csv").open("a") as file:
        file.write("missing,1,1,\n")

    report = validate(spec, pipeline.spark)

    assert report.differences == 2
    assert report.sample == (
        Difference(key={"k": "missing"}, column=None, expected="one row", found=None),
        Difference(key={"k": "surplus"}, column=None, expected=None, found="one row"),
    )
    assert [name.rpartition("/")[2] for name in report.streams[0].changed_files] == ["0001.csv"]


def test_removed_files_are_named_and_the_rest_is_compared(pipeline: Pipeline) -> None:
    """No row of a removed file is a difference, and an event that the table lost still is one."""
    spec = pipeline.spec()
    newer = pipeline.deliver("a", *({"k": f"N{i}", "at": 9, "x": -i} for i in range(30, 60)))
    pipeline.run(spec)
    newer.unlink()

    report = validate(spec, pipeline.spark)

    assert (report.ok, report.differences, report.keys, report.not_comparable) == (True, 0, 60, 30)
    assert [name.rpartition("/")[2] for name in report.streams[0].removed_files] == [newer.name]
    assert report.streams[1].removed_files == ()

    with (pipeline.folder / "in" / "a" / "0001.csv").open("a") as file:
        file.write("N5,5,55,\nN50,5,55,\nmissing,1,1,\n")
    damaged = validate(spec, pipeline.spark)

    assert {(one.key["k"], one.column, one.expected) for one in damaged.sample} == {
        ("N5", "a__ts", "5"),
        ("N5", "a__x", "55"),
        ("N5", "a__note", None),
        ("missing", None, "one row"),
    }
    assert damaged.not_comparable == 30


def test_command_says_what_could_not_be_compared(pipeline: Pipeline) -> None:
    """The removed files are counted and named, the keys counted, and the table is in order."""
    spec = pipeline.spec()
    pipeline.run(spec)
    (pipeline.folder / "in" / "b" / "0004.csv").unlink()

    done = command_here("validate", str(spec.path))

    assert done.returncode == 0, done.stdout + done.stderr
    assert "b: 1 files are gone that it has read: file:" in done.stdout
    assert "49 of the keys have values that may be of a source that is gone" in done.stdout
    assert done.stdout.splitlines()[-1] == "50 keys x 7 columns compared, 0 differences"


def test_values_of_a_stream_are_compared_if_all_files_of_another_are_gone(pipeline: Pipeline) -> None:
    """Each key has values that are not comparable; the other ones agree, or differ."""
    spec = pipeline.spec()
    pipeline.deliver("b", *({"k": f"N{i}", "at": 9, "y": "last"} for i in range(50)))
    pipeline.run(spec)
    for file in (pipeline.folder / "in" / "b").iterdir():
        file.unlink()

    report = validate(spec, pipeline.spark)

    assert (report.ok, report.differences, report.not_comparable) == (True, 0, report.keys)

    with (pipeline.folder / "in" / "a" / "0001.csv").open("a") as file:
        file.write("N5,8,55,\n")

    assert not validate(spec, pipeline.spark).ok


def test_table_of_whose_sources_nothing_is_left_is_not_found_in_order(
    pipeline: Pipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing differs, nothing is known, and the report says so."""
    spec = pipeline.spec()
    pipeline.run(spec)
    for stream in ("a", "b"):
        for file in (pipeline.folder / "in" / stream).iterdir():
            file.unlink()

    report = validate(spec, pipeline.spark)
    print_validation(report)

    assert (report.ok, report.differences, report.not_comparable) == (False, 0, 50)
    said = capsys.readouterr().out.splitlines()
    assert "no value could be compared: all sources are gone, so nothing is known of the table" in said


def test_streams_and_services_may_go_on_meanwhile(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is committed, compacted and cleaned after the start of a validation is not looked at."""
    spec = pipeline.spec()
    pipeline.run(spec)

    class Interfering(Expected):
        """Made when the table is pinned and the files are listed."""

        def __init__(self, *args: Any, **options: Any) -> None:  # noqa: ANN401  as its base has them
            super().__init__(*args, **options)
            pipeline.deliver("a", *({"k": f"N{i}", "at": 9, "x": -i} for i in range(60)))
            pipeline.run(spec)
            Compaction(Table(spec, pipeline.spark)).step()
            Cleaning(Table(spec, pipeline.spark)).step()

    with monkeypatch.context() as patched:
        patched.setattr(validation, "Expected", Interfering)
        beside = validate(spec, pipeline.spark)
    after = validate(spec, pipeline.spark)

    assert (beside.ok, beside.keys, beside.sample) == (True, 50, ())
    assert (after.ok, after.keys) == (True, 60)
    assert str(beside.as_of) < str(after.as_of)


def test_table_is_looked_at_as_of_an_instant(pipeline: Pipeline) -> None:
    """What was wrong then shows, what came later does not, and a file that was read later is named."""
    spec = pipeline.spec()
    pipeline.run(spec)
    wrong_file = pipeline.deliver("a", {"k": "N7", "at": 1, "x": 108})
    pipeline.run(spec)
    wrong_file.write_text(wrong_file.read_text().replace("108", "107"))
    later = pipeline.deliver("a", {"k": "N7", "at": 8, "x": 8}, {"k": "N99", "at": 8, "x": 8})
    pipeline.run(spec)
    times = [commit.completed for commit in pipeline.timeline(spec).commits]

    right, wrong, now = (validate(spec, pipeline.spark, as_of=time) for time in times[-3:])

    assert (right.ok, right.as_of, right.keys) == (True, times[-3], 50)
    unread = [name.rpartition("/")[2] for name in right.streams[0].unread_files]
    assert unread == [wrong_file.name, later.name]
    assert wrong.sample == (Difference(key={"k": "N7"}, column="a__x", expected="107", found="108"),)
    assert (now.ok, now.keys, now.streams[0].unread_files) == (True, 51, ())
    done = command_here("validate", str(spec.path), "--as-of", times[-2])
    assert (done.returncode, f"as of {times[-2]}" in done.stdout) == (1, True), done.stderr


def test_instant_that_cannot_be_looked_at_is_refused(pipeline: Pipeline) -> None:
    """Before the first commit, while a write from before is in flight, and when files are cleaned away."""
    spec = pipeline.spec({"keep_min_commits = 2, keep_max_commits = 3": "keep_min_commits = 50"})
    pipeline.run(spec)
    times = [commit.completed for commit in pipeline.timeline(spec).commits]
    for instant in ("20200101000000000", "yesterday"):
        with pytest.raises(ConfigError, match="nothing was committed by then"):
            validate(spec, pipeline.spark, as_of=instant)
    timeline = pipeline.folder / "table" / ".hoodie" / "timeline"
    dead = timeline / f"{int(times[0]) + 1}.deltacommit.requested"
    dead.touch()
    with pytest.raises(ConfigError, match="a write that began before then is still in flight"):
        validate(spec, pipeline.spark, as_of=times[-2])
    assert validate(spec, pipeline.spark).ok
    dead.unlink()
    for batch in range(2):
        pipeline.deliver("a", {"k": "N1", "at": 10 + batch, "x": 1})
        pipeline.run(spec)
        Compaction(Table(spec, pipeline.spark)).step()
        Cleaning(Table(spec, pipeline.spark)).step()

    with pytest.raises(ConfigError, match="cleaned away"):
        validate(spec, pipeline.spark, as_of=times[0])


def test_key_that_is_stored_twice_is_reported(pipeline: Pipeline) -> None:
    """Once more in another file group, as plain SQL stores it, and once more in another partition."""
    partitioned = {"buckets = 1": 'buckets = 1\npartition_by = ["note"]', ', note = "string"': ""}
    spec = pipeline.spec(partitioned)
    row = ("N1", 1, 1, "here")
    shutil.rmtree(pipeline.folder / "in" / "a")
    (pipeline.folder / "in" / "a").mkdir()
    pipeline.place("a", "csv", "k,at,x,note\nN1,1,1,here\nN2,1,1,here\n")
    pipeline.run(spec, streams=["a"])
    once = validate(spec, pipeline.spark)
    frame = pipeline.spark.createDataFrame([row], A_SCHEMA)

    misread(spec, pipeline.spark, frame.replace("here", "there"), "a")
    moved = validate(spec, pipeline.spark)
    pipeline.unguard(spec)
    plain = snapshot(Table(spec, pipeline.spark)).where("k = 'N2'").withColumn(RECORD_KEY, F.col("k"))
    plain.write.format("hudi").options(
        **{
            "hoodie.table.name": "table_splice",
            "hoodie.datasource.write.operation": "insert",
            "hoodie.datasource.write.recordkey.field": RECORD_KEY,
            "hoodie.datasource.write.partitionpath.field": "note",
            "hoodie.datasource.write.hive_style_partitioning": "true",
            "hoodie.datasource.write.partitionpath.urlencode": "true",
            "hoodie.datasource.write.table.type": "MERGE_ON_READ",
            "hoodie.metadata.enable": "false",
        }
    ).mode("append").save(spec.table.path)
    twice = validate(spec, pipeline.spark)

    surplus = Difference(key={"k": "N1", "note": "there"}, column=None, expected=None, found="one row")
    parted = Difference(key={"k": "N1"}, column=None, expected="one row", found="2 partitions")
    assert once.ok
    assert moved.sample == (surplus, parted)
    doubled = Difference(key={"k": "N2", "note": "here"}, column=None, expected="one row", found="2 rows")
    assert twice.sample == (surplus, parted, doubled)


def test_a_batch_with_two_entries_of_the_files_log_is_expected_whole(pipeline: Pipeline) -> None:
    """A driver that died between the log of the files and that of the batches leaves the numbers apart."""
    spec = pipeline.spec()
    pipeline.run(spec)
    events = validate(spec, pipeline.spark).streams[0].events
    log = pipeline.folder / "checkpoints" / "a" / "sources" / "0"
    number = max(int(path.name.partition(".")[0]) for path in log.glob("[0-9]*")) + 1
    found = pipeline.deliver("a", {"k": "N1", "at": 103, "x": 3})
    entry = {"path": found.as_uri(), "timestamp": int(found.stat().st_mtime * 1000), "batchId": number}
    (log / str(number)).write_text(f"v1\n{json.dumps(entry)}")
    for at in (104, 105):
        pipeline.deliver("a", {"k": "N1", "at": at, "x": at})

    pipeline.run(spec, streams=["a"])

    *_, both, last = pipeline.timeline(spec).commits
    assert (both.batch_id, last.batch_id) == (number, number + 1)
    report = validate(spec, pipeline.spark)
    assert (report.ok, report.streams[0].events - events, report.streams[0].unread_files) == (True, 3, ())
    earlier = validate(spec, pipeline.spark, as_of=both.completed).streams[0]
    assert (earlier.events - events, len(earlier.unread_files)) == (2, 1)


def test_misreading_by_the_stream_shows_as_a_difference(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the stream's own parser gets wrong is found, for validation reads the files by another one."""
    pipeline.place("a", "csv", 'k,at,x,note\nquoted,1,1,"say \\""hi\\"""\n')
    spec = pipeline.spec()
    right = CsvDialect.settings
    monkeypatch.setattr(CsvDialect, "settings", lambda dialect: right(dialect) | {"quote": "", "escape": ""})
    pipeline.run(spec)

    report = validate(spec, pipeline.spark)

    assert report.differences == 1
    (found,) = report.sample
    assert (found.key, found.column, found.expected) == ({"k": "quoted"}, "a__note", 'say \\"hi\\"')
    assert found.found is not None
    assert found.found.startswith('"say')


def test_sample_of_the_keys_says_so(pipeline: Pipeline) -> None:
    """One key in three is compared, the same keys on both sides, and the report says so."""
    spec = pipeline.spec()
    pipeline.run(spec)
    frame = pipeline.spark.createDataFrame([(f"surplus{i}", 1, 1, None) for i in range(30)], A_SCHEMA)

    sampled = validate(spec, pipeline.spark, one_key_in=3)
    misread(spec, pipeline.spark, frame, "a")
    wrong = validate(spec, pipeline.spark, one_key_in=3)

    assert (sampled.ok, sampled.one_key_in) == (True, 3)
    assert 5 < sampled.keys < 30
    assert 0 < wrong.differences < 30


def test_stale_commit_fails_if_it_changed_the_table(pipeline: Pipeline) -> None:
    """A commit under an older token is named; one that says nothing new does no harm."""
    spec = pipeline.spec()
    pipeline.run(spec)
    splice = Splice(spec, pipeline.spark)
    same = pipeline.spark.createDataFrame([("N7", 1, 107, None)], A_SCHEMA)
    other = pipeline.spark.createDataFrame([("N7", 1, 1, None)], A_SCHEMA)
    # Of two locks, so that both leases live: as if the older holder had not noticed its loss.
    with (
        sync.connect(spec.locks.url, settings=spec.locks.settings) as client,
        client.lock("stand-in").hold() as older,
        client.lock("another").hold() as newer,
    ):
        assert older.fencing_token < newer.fencing_token
        for lease in (newer, older):
            splice.write(same, "a", batch_id=7, query_id=f"q{lease.fencing_token}", lease=lease)
        harmless = validate(spec, pipeline.spark)
        splice.write(other, "a", batch_id=8, query_id="q", lease=older)
        splice.write(same, "a", batch_id=9, query_id="q", lease=newer)

    report = validate(spec, pipeline.spark)

    assert ([one.batch_id for one in harmless.stale_commits], harmless.ok) == ([7], True)
    assert [one.batch_id for one in report.stale_commits] == [7, 8]
    assert [one.batch_id for one in report.changing_commits] == [8]
    assert (report.differences, report.ok) == (0, False)


def test_repeated_batch_fails_if_it_changed_the_table(pipeline: Pipeline) -> None:
    """A batch that was committed twice does no harm if the second time said the same."""
    spec = pipeline.spec()
    pipeline.run(spec)
    writers = [Splice(spec, pipeline.spark) for _ in range(3)]
    rows = [("N7", 1, 107, None), ("N7", 1, 107, None), ("N7", 1, 1, None)]
    frames = [pipeline.spark.createDataFrame([row], A_SCHEMA) for row in rows]
    for writer, frame in zip(writers, frames, strict=True):
        # As a writer would that looked at the timeline before the other one's commit.
        writer._commits.has = lambda *_: None  # type: ignore[method-assign]
        writer.write(frame, "a", batch_id=7, query_id="q")

    report = validate(spec, pipeline.spark)

    repeated = [commit.requested for commit in report.repeated_batches]
    assert (len(repeated), len(set(repeated))) == (2, 2)
    assert [commit.requested for commit in report.changing_commits] == repeated[1:]


def commit(batch_id: int, token: int = 1, *, stream: str = "a", query_id: str = "q") -> BatchCommit:
    """A commit, in the order of its making."""
    return BatchCommit(
        requested="0",
        completed="0",
        stream=stream,
        query_id=query_id,
        batch_id=batch_id,
        fencing_token=token,
        owner="o",
        buckets=1,
        key=("k",),
        table_id="t",
    )


def test_repeated_batch_is_the_same_batch_of_the_same_query() -> None:
    """Only the second commit of one batch of one query of one stream is a repetition."""
    commits = [commit(0), commit(0, stream="b"), commit(0, query_id="r"), commit(1), commit(-1), commit(-1)]

    assert repeated_batches(commits) == []
    assert repeated_batches([*commits, again := commit(1, 2)]) == [again]


def test_tokens_of_different_streams_are_not_compared() -> None:
    """A token is stale only beside those of its own stream, and an equal one is not."""
    commits = [commit(0, 5), commit(0, 3, stream="b"), commit(1, 5)]

    assert stale_commits(commits) == []
    assert stale_commits([*commits, old := commit(2, 4), commit(3, 6)]) == [old]


def test_sources_without_files_expect_an_empty_table(tmp_path: Path, spark: SparkSession) -> None:
    """Before the first delivery nothing is expected; if every file is gone, validation does not say yes."""
    empty = Pipeline(tmp_path / "empty", spark)
    before = validate(empty.spec(), spark)
    empty.deliver("a", {"k": "N1", "at": 1, "x": 1}).rename(tmp_path / "kept.csv")
    after_none = empty.run(empty.spec())
    (tmp_path / "kept.csv").rename(empty.folder / "in" / "a" / "0001.csv")
    empty.run(empty.spec())
    (empty.folder / "in" / "a" / "0001.csv").unlink()
    gone = validate(empty.spec(), spark)

    assert before.ok
    assert [(told.files, told.events, before.keys) for told in before.streams] == [(0, 0, 0), (0, 0, 0)]
    assert after_none.rows == 0
    assert not gone.ok
    assert [told.files for told in gone.streams] == [0, 0]
    assert (gone.keys, gone.not_comparable, gone.differences) == (1, 1, 0)


def test_command_says_that_a_source_has_no_files(tmp_path: Path, spark: SparkSession) -> None:
    """An empty source folder is no difference: the command says so, and its exit code is 0."""
    Pipeline(tmp_path, spark).spec()

    done = command_here("validate", str(tmp_path / "spec.toml"))

    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[:2] == [
        "a: 0 events, 0 bad rows",
        "a: its source has no files, so no value of it is expected",
    ]
    assert "0 keys x 7 columns compared, 0 differences" in done.stdout
