"""A checkpoint and its table, and the files that a stream has not read as they are now."""

from __future__ import annotations

import os
import re
import shutil
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import DataFrameWriter

from asynclock.errors import SpecError
from asynclock.spark.check.validation import validate
from asynclock.spark.errors import StreamFailedError
from asynclock.spark.hudi.commits import Commits
from asynclock.spark.reader.snapshot import read
from tests.spark.pipeline_kit import EPOCH, SUMMED, Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from asynclock.spark.spec.model import Spec

DAY = 24 * 3600
OTHER = {'"table"': '"other"', '"locks"': '"other-locks"'}
UUID = "[0-9a-f]{8}-[0-9a-f-]{27}"


@pytest.fixture
def pipeline(tmp_path: Path, spark: SparkSession) -> Pipeline:
    """An empty pipeline."""
    return Pipeline(tmp_path, spark)


def rows(pipeline: Pipeline, spec: Spec) -> list[tuple[object, ...]]:
    """Key and one value of the view."""
    return sorted(tuple(row) for row in read(spec, pipeline.spark).select("k", "x").collect())


def folder_of(spec: Spec) -> Path:
    """The table's folder."""
    return Path(spec.table.path.removeprefix("file://"))


def test_every_commit_names_one_table(pipeline: Pipeline) -> None:
    """All commits of a table carry its id, and another table has another one."""
    for stream, column in (("a", "at"), ("b", "seen")):
        pipeline.deliver(stream, {"k": "N1", column: "1" if stream == "a" else "2024-05-01T12:00:00Z"})
    spec = pipeline.spec()
    pipeline.run(spec, streams=["a"])
    pipeline.run(spec, streams=["b"])
    other = pipeline.spec(OTHER | {"checkpoints/a": "checkpoints/new"}, name="other.toml")
    pipeline.run(other, streams=["a"])

    (first, second), (third,) = (pipeline.timeline(one).commits for one in (spec, other))

    assert re.fullmatch(UUID, first.table_id)
    assert second.table_id == first.table_id != third.table_id


def test_checkpoint_of_another_table_is_refused(pipeline: Pipeline) -> None:
    """A spec pointed at another table with the checkpoint kept would feed it nothing: both are named."""
    pipeline.deliver("a", {"k": "N1", "at": 1, "x": 1})
    spec = pipeline.spec()
    pipeline.run(spec, streams=["a"])
    other = pipeline.spec(OTHER | {"checkpoints/a": "checkpoints/new"}, name="new.toml")
    pipeline.run(other, streams=["a"])
    wrong = pipeline.spec(OTHER, name="wrong.toml")
    ids = [pipeline.timeline(one).commits[0].table_id for one in (spec, other)]
    before = pipeline.everything()

    with pytest.raises(SpecError, match="othing was written") as caught:
        pipeline.run(wrong, streams=["a"])

    assert (caught.value.key, caught.value.path) == ("streams.a.checkpoint", str(wrong.path))
    for text in (*ids, spec.table.path, other.table.path, "new checkpoint"):
        assert text in str(caught.value)
    assert pipeline.everything() == before


def test_checkpoint_of_a_deleted_table_is_refused(pipeline: Pipeline) -> None:
    """After the table is deleted its old checkpoint is refused, and a new one reads all files again."""
    pipeline.deliver("a", {"k": "N1", "at": 1, "x": 1})
    spec = pipeline.spec()
    pipeline.run(spec, streams=["a"])
    table_id = pipeline.timeline(spec).commits[0].table_id
    shutil.rmtree(folder_of(spec))

    with pytest.raises(SpecError, match=f"{table_id}.*no table") as caught:
        pipeline.run(spec, streams=["a"])

    assert caught.value.key == "streams.a.checkpoint"
    shutil.rmtree(pipeline.folder / "checkpoints" / "a")
    pipeline.run(spec, streams=["a"])
    assert rows(pipeline, spec) == [("N1", 1)]
    assert pipeline.timeline(spec).commits[0].table_id != table_id


def test_checkpoint_follows_its_table_when_it_moves(pipeline: Pipeline) -> None:
    """A table that is moved is still the same table."""
    pipeline.deliver("a", {"k": "N1", "at": 1, "x": 1})
    spec = pipeline.spec()
    pipeline.run(spec, streams=["a"])
    folder_of(spec).rename(pipeline.folder / "moved")
    pipeline.deliver("a", {"k": "N1", "at": 2, "x": 2})
    moved = pipeline.spec({'"table"': '"moved"'})

    report = pipeline.run(moved, streams=["a"])

    assert report.streams[0].batches == 1
    assert rows(pipeline, moved) == [("N1", 2)]


def test_stream_that_ended_before_its_first_commit_goes_on(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint that has begun a batch while there is no table yet belongs to none."""
    pipeline.deliver("b", {"k": "N1", "seen": "2024-05-01T12:00:00Z", "y": 1.5})
    spec = pipeline.spec()
    with monkeypatch.context() as patch:
        patch.delattr(DataFrameWriter, "save")
        with pytest.raises(StreamFailedError, match="save"):
            pipeline.run(spec, streams=["b"])
    assert not pipeline.timeline(spec).exists()
    assert (pipeline.folder / "checkpoints" / "b" / "offsets" / "0").exists()

    pipeline.run(spec, streams=["b"])

    assert len(pipeline.timeline(spec).commits) == 1


def test_late_file_with_an_old_modification_time_is_read(pipeline: Pipeline) -> None:
    """A file that is months older than the newest one read is still a new file."""
    pipeline.deliver("b", {"k": "N1", "seen": "2024-05-01T12:00:00Z"})
    pipeline.deliver("a", {"k": "N1", "at": 1, "x": 1})
    spec = pipeline.spec()
    pipeline.run(spec, streams=["a"])
    late = pipeline.deliver("a", {"k": "N2", "at": 1, "x": 2})
    os.utime(late, (EPOCH - 300 * DAY, EPOCH - 300 * DAY))
    epoch = pipeline.deliver("a", {"k": "N3", "at": 1, "x": 3})
    os.utime(epoch, (0, 0))

    pipeline.run(spec, streams=["a"])
    pipeline.run(spec, streams=["a"])

    assert rows(pipeline, spec) == [("N1", 1), ("N2", 2), ("N3", 3)]
    assert validate(spec, pipeline.spark).streams[0].unread_files == ()


def test_hidden_and_changed_files_are_told(pipeline: Pipeline, caplog: pytest.LogCaptureFixture) -> None:
    """What Spark passes over, and what has changed since it was read, is named by the run and validate."""
    pipeline.deliver("b", {"k": "N1", "seen": "2024-05-01T12:00:00Z"})
    spec = pipeline.spec({'source = "in/a/*"': 'source = "in/a/*.csv"'})
    kept, grown = (pipeline.deliver("a", {"k": f"N{n}", "at": 1, "x": n}) for n in range(2))
    pipeline.run(spec, streams=["a"])
    assert [record for record in caplog.records if record.levelname == "WARNING"] == []
    with grown.open("a") as file:
        file.write("N9,1,9,\n")
    for name in ("_x.csv", ".y.csv"):
        shutil.copy(kept, kept.with_name(name))
    for name in (".0001.csv.crc", "_other.txt"):  # a checksum, and what the pattern does not match
        shutil.copy(kept, kept.with_name(name))
    (kept.parent / "_empty.csv").touch()

    pipeline.run(spec, streams=["a"])
    report = validate(spec, pipeline.spark).streams[0]

    assert [name.rpartition("/")[2] for name in report.changed_files] == [grown.name]
    assert [name.rpartition("/")[2] for name in report.hidden_files] == [".y.csv", "_x.csv"]
    told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(told) == 3
    changed, hidden = "changed after it was read", "begins with"
    for name, text in ((grown.name, changed), ("_x.csv", hidden), (".y.csv", hidden)):
        (sentence,) = (one for one in told if name in one)
        assert text in sentence


def test_batches_behind_a_checkpoint_that_was_set_back_are_skipped(pipeline: Pipeline) -> None:
    """However many are on the timeline already: none is read or committed again, and the next one is."""
    spec = pipeline.spec(SUMMED)
    checkpoint = pipeline.folder / "checkpoints" / "a"
    pipeline.deliver("a", {"k": "N1", "at": 0, "x": 0})
    pipeline.run(spec, streams=["a"])
    shutil.copytree(checkpoint, kept := pipeline.folder / "kept")
    for at in (1, 2):
        pipeline.deliver("a", {"k": "N1", "at": at, "x": at})
    pipeline.run(spec, streams=["a"])
    shutil.rmtree(checkpoint)
    kept.rename(checkpoint)
    pipeline.deliver("a", {"k": "N1", "at": 3, "x": 3})

    report = pipeline.run(spec, streams=["a"]).streams[0]

    assert (report.batches, report.skipped, report.rows) == (3, 2, 1)
    assert [commit.batch_id for commit in pipeline.timeline(spec).commits] == [0, 1, 2, 3]
    assert rows(pipeline, spec) == [("N1", 0 + 1 + 2 + 3)]


def test_a_checkpoint_that_was_set_back_skips_no_event(pipeline: Pipeline) -> None:
    """Its next batch has the number of a committed one and more files: it is refused, and no file is lost."""
    spec = pipeline.spec()
    checkpoint = pipeline.folder / "checkpoints" / "a"
    pipeline.deliver("a", {"k": "N1", "at": 0, "x": 0})
    pipeline.run(spec, streams=["a"])
    shutil.copytree(checkpoint, kept := pipeline.folder / "kept")
    pipeline.deliver("a", {"k": "N1", "at": 1, "x": 1})
    pipeline.run(spec, streams=["a"])
    shutil.rmtree(checkpoint)
    kept.rename(checkpoint)
    pipeline.deliver("a", {"k": "N1", "at": 2, "x": 2})
    one = 'checkpoints/a"\nmax_files_per_trigger = 1'

    with pytest.raises(SpecError, match="its events would be skipped"):
        pipeline.run(pipeline.spec({one: one.replace("1", "9")}), streams=["a"])

    assert rows(pipeline, spec) == [("N1", 1)]
    named_anew = pipeline.spec({"checkpoints/a": "checkpoints/new"})
    pipeline.run(named_anew, streams=["a"])
    assert rows(pipeline, spec) == [("N1", 2)]


def test_a_sum_keeps_its_checkpoint_and_its_source(pipeline: Pipeline) -> None:
    """A new checkpoint, one that cuts its batches otherwise, and a moved source count events twice."""
    spec = pipeline.spec(SUMMED)
    checkpoint, kept = pipeline.folder / "checkpoints" / "a", pipeline.folder / "kept"
    pipeline.deliver("a", {"k": "N1", "at": 0, "x": 1})
    pipeline.run(spec, streams=["a"])
    shutil.copytree(checkpoint, kept)
    for at in (1, 2):
        pipeline.deliver("a", {"k": "N1", "at": at, "x": 10**at})
    pipeline.run(spec, streams=["a"])
    shutil.move(checkpoint, newest := pipeline.folder / "newest")
    (pipeline.folder / "moved").mkdir()

    def refused(because: str, changes: dict[str, str] | None = None, *, under: Path | None) -> None:
        shutil.rmtree(checkpoint, ignore_errors=True)
        if under is not None:
            shutil.copytree(under, checkpoint)
        with pytest.raises(SpecError, match=because):
            pipeline.run(pipeline.spec(SUMMED | (changes or {})), streams=["a"])

    refused("which reads all sources again: x would count each event twice", under=None)
    one = 'checkpoints/a"\nmax_files_per_trigger = 1'
    refused("batch 1 of the checkpoint is not the batch 1", {one: one.replace("1", "9")}, under=kept)
    refused("the source is now .*moved", {"in/a/*": "moved/*"}, under=newest)

    shutil.rmtree(checkpoint)
    shutil.move(newest, checkpoint)
    pipeline.deliver("a", {"k": "N1", "at": 3, "x": 1000})
    pipeline.run(pipeline.spec(SUMMED), streams=["a"])
    assert rows(pipeline, spec) == [("N1", 1111)]
    assert [commit.batch_id for commit in pipeline.timeline(spec).commits] == [0, 1, 2, 3]


def test_a_batch_reads_the_timeline_once(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the first one of a query is looked up before its files are read."""
    spec = pipeline.spec()
    for at in range(4):
        pipeline.deliver("a", {"k": "N1", "at": at, "x": at})
    reads, seen = list[Commits](), list[int]()
    refresh = Commits.refresh

    def counted(self: Commits) -> None:
        reads.append(self)
        refresh(self)

    monkeypatch.setattr(Commits, "refresh", counted)
    pipeline.run(spec, streams=["a"], on_batch=lambda _: seen.append(len(reads)))

    assert [later - earlier for earlier, later in pairwise(seen)] == [1, 1, 1]
