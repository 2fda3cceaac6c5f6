"""What a writer knows of the batches that are committed, however many and however old they are."""

from __future__ import annotations

import os
import random
import time
from typing import TYPE_CHECKING

import pytest
from pyspark.errors.exceptions.captured import NumberFormatException

from asynclock.spark.hudi.table import Table
from asynclock.spark.retry import retry
from asynclock.spark.services.work import Cleaning
from asynclock.spark.writer.splice import Splice
from tests.spark.pipeline_kit import Pipeline

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.fixture
def pipeline(tmp_path: Path, spark: SparkSession) -> Pipeline:
    """An empty pipeline."""
    return Pipeline(tmp_path, spark)


def test_batches_are_known_in_any_order_of_their_numbers(pipeline: Pipeline) -> None:
    """Numbers given in no order are found one by one, archived or not, by an old and a new writer."""
    spec = pipeline.spec()
    frame = pipeline.spark.createDataFrame([("N1", 1, 1, "n")], "k string, at bigint, x int, note string")
    rng = random.Random(7)
    numbers = rng.sample(range(20), 6)
    old = Splice(spec, pipeline.spark)
    for number in numbers:
        assert old.write(frame, "a", batch_id=number, query_id="q")
    Cleaning(Table(spec, pipeline.spark)).step()
    assert len(pipeline.timeline(spec).instants()) < len(numbers)

    for splice in (old, Splice(spec, pipeline.spark)):
        assert [one for one in range(-1, 21) if splice.committed("a", one, query_id="q")] == sorted(numbers)
        assert not splice.committed("a", numbers[0], query_id="r")
        assert not splice.committed("b", numbers[0], query_id="q")
    assert not old.write(frame, "a", batch_id=numbers[0], query_id="q")
    commits = pipeline.timeline(spec).commits
    assert [commit.batch_id for commit in commits] == numbers
    assert len({commit.table_id for commit in commits}) == 1


def test_an_archiver_that_died_in_a_manifest_does_not_end_archiving(pipeline: Pipeline) -> None:
    """Hudi takes the temporary file for a manifest and fails; the next archiver removes it."""
    spec = pipeline.spec()
    frame = pipeline.spark.createDataFrame([("N1", 1, 1, "n")], "k string, at bigint, x int, note string")
    splice = Splice(spec, pipeline.spark)
    for number in range(6):
        assert splice.write(frame, "a", batch_id=number, query_id="q")
    history = pipeline.folder / "table" / ".hoodie" / "timeline" / "history"
    history.mkdir(exist_ok=True)
    (history / "manifest_1.9a30a4c4-dea7-4c4d-9f1e-d6585672be63").write_bytes(b"")
    with pytest.raises(NumberFormatException):
        pipeline.table(spec)

    Cleaning(Table(spec, pipeline.spark)).step()

    assert [commit.batch_id for commit in pipeline.timeline(spec).commits] == list(range(6))
    assert len(pipeline.timeline(spec).instants()) < 6


def test_what_an_archiver_left_in_a_manifest_is_gone_with_the_next_leader(pipeline: Pipeline) -> None:
    """Readers need not wait until archiving is due again."""
    spec = pipeline.spec()
    frame = pipeline.spark.createDataFrame([("N1", 1, 1, "n")], "k string, at bigint, x int, note string")
    assert Splice(spec, pipeline.spark).write(frame, "a", batch_id=0, query_id="q")
    history = pipeline.folder / "table" / ".hoodie" / "timeline" / "history"
    history.mkdir(exist_ok=True)
    (history / "manifest_1.9a30a4c4-dea7-4c4d-9f1e-d6585672be63").write_bytes(b"")

    Cleaning(Table(spec, pipeline.spark)).step()

    assert [path.name for path in history.iterdir() if path.name.startswith("manifest")] == []
    assert [commit.batch_id for commit in pipeline.timeline(spec).commits] == [0]


def test_an_instant_without_a_name_is_removed_when_nobody_can_be_writing_it_any_more(
    pipeline: Pipeline,
) -> None:
    """A writer that was killed in it leaves it; one that is at work is left alone."""
    spec = pipeline.spec()
    frame = pipeline.spark.createDataFrame([("N1", 1, 1, "n")], "k string, at bigint, x int, note string")
    assert Splice(spec, pipeline.spark).write(frame, "a", batch_id=0, query_id="q")
    meta = pipeline.folder / "table" / ".hoodie"
    old, new = meta / ".unnamed-1", meta / ".unnamed-2"
    for file in (old, new):
        file.touch()
    os.utime(old, (time.time() - 4000,) * 2)

    Cleaning(Table(spec, pipeline.spark)).step()

    assert not old.exists()
    assert new.exists()


def test_a_manifest_that_is_being_written_is_waited_for(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader that meets the temporary file of a living archiver looks again a little later."""
    spec = pipeline.spec()
    frame = pipeline.spark.createDataFrame([("N1", 1, 1, "n")], "k string, at bigint, x int, note string")
    assert Splice(spec, pipeline.spark).write(frame, "a", batch_id=0, query_id="q")
    history = pipeline.folder / "table" / ".hoodie" / "timeline" / "history"
    history.mkdir(exist_ok=True)
    torn = history / "manifest_1.9a30a4c4-dea7-4c4d-9f1e-d6585672be63"
    torn.write_bytes(b"")
    assert retry.__kwdefaults__ is not None
    monkeypatch.setitem(retry.__kwdefaults__, "sleep", lambda _: torn.unlink(missing_ok=True))

    assert [commit.batch_id for commit in pipeline.timeline(spec).commits] == [0]
