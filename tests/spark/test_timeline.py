"""What a writer knows of the batches that are committed, however many and however old they are."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from asynclock.spark.services.leaders import Cleaning
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
    Cleaning(spec, pipeline.spark).step()
    assert len(pipeline.timeline(spec).instants()) < len(numbers)

    for splice in (old, Splice(spec, pipeline.spark)):
        assert [one for one in range(-1, 21) if splice.committed("a", one, query_id="q")] == sorted(numbers)
        assert not splice.committed("a", numbers[0], query_id="r")
        assert not splice.committed("b", numbers[0], query_id="q")
    assert not old.write(frame, "a", batch_id=numbers[0], query_id="q")
    commits = pipeline.timeline(spec).commits
    assert [commit.batch_id for commit in commits] == numbers
    assert len({commit.table_id for commit in commits}) == 1
