"""Validation: every wrong cell is found, and nothing else is told."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from asynclock import sync
from asynclock.spark.hudi.instants import BatchCommit
from asynclock.spark.reader.validation import Difference, repeated_batches, stale_commits, validate
from asynclock.spark.spec.dialect import CsvDialect
from asynclock.spark.writer.splice import Splice
from tests.cli.command import COMMAND
from tests.spark.pipeline_kit import Pipeline

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
    """Of a copy with one wrong cell that cell is told, with what it should be and what it is."""
    spec = pipeline.spec()
    pipeline.run(spec)
    wrong = copy_of(pipeline, spec)
    frame = pipeline.spark.createDataFrame([("N7", 1, 108, None)], A_SCHEMA)

    Splice(wrong, pipeline.spark).write(frame, "a")
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

    Splice(wrong, pipeline.spark).write(frame, "a")

    assert validate(wrong, pipeline.spark).sample == (
        Difference(key={"k": "N7"}, column="a__note", expected=None, found="unexpected"),
    )


def test_rows_on_one_side_only_are_reported(pipeline: Pipeline) -> None:
    """A row that no source has and a row of a file that was never read are told as rows."""
    spec = pipeline.spec()
    pipeline.run(spec)
    frame = pipeline.spark.createDataFrame([("surplus", 1, 1, None)], A_SCHEMA)
    Splice(spec, pipeline.spark).write(frame, "a")
    unread = pipeline.deliver("a", {"k": "missing", "at": 1, "x": 1})

    report = validate(spec, pipeline.spark)

    assert report.differences == 2
    assert report.sample == (
        Difference(key={"k": "missing"}, column=None, expected="one row", found=None),
        Difference(key={"k": "surplus"}, column=None, expected=None, found="one row"),
    )
    assert [name.rpartition("/")[2] for name in report.streams[0].unread_files] == [unread.name]


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
    Splice(spec, pipeline.spark).write(frame, "a")
    wrong = validate(spec, pipeline.spark, one_key_in=3)

    assert (sampled.ok, sampled.one_key_in) == (True, 3)
    assert 5 < sampled.keys < 30
    assert 0 < wrong.differences < 30


def test_commit_of_a_stale_holder_is_named(pipeline: Pipeline) -> None:
    """A commit under an older token than its stream had seen is told, though the data are right."""
    spec = pipeline.spec()
    splice = Splice(spec, pipeline.spark)
    frame = pipeline.spark.createDataFrame([("N1", 1, 1, None)], A_SCHEMA)
    # Of two locks, so that both leases live: as if the older holder had not noticed its loss.
    with (
        sync.connect(spec.locks.url, settings=spec.locks.settings) as client,
        client.lock("stream/a").hold() as older,
        client.lock("stand-in").hold() as newer,
    ):
        assert older.fencing_token < newer.fencing_token
        for batch, lease in enumerate((older, newer, older)):
            splice.write(frame, "a", batch_id=batch, query_id="q", lease=lease)

    report = validate(spec, pipeline.spark)

    assert [commit.batch_id for commit in report.stale_commits] == [2]


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
    """Before the first delivery nothing is expected; when the files are gone every stored row is surplus."""
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
    assert gone.sample == (Difference(key={"k": "N1"}, column=None, expected=None, found="one row"),)


def test_command_says_that_a_source_has_no_files(tmp_path: Path, spark: SparkSession) -> None:
    """An empty source folder is no difference: the command says so, and its exit code is 0."""
    Pipeline(tmp_path, spark).spec()
    command = [*COMMAND, "pipeline", "validate", str(tmp_path / "spec.toml")]

    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[:2] == [
        "a: 0 events, 0 bad rows",
        "a: its source has no files, so no value of it is expected",
    ]
    assert "0 keys x 7 columns compared, 0 differences" in done.stdout
