"""A table with Hudi's metadata table: all that writes keep it whole, and asynclock reads without it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from asynclock.errors import SpecError
from asynclock.spark import hoodie
from asynclock.spark.check.validation import validate
from asynclock.spark.hudi.options import cleaning_options, compaction_options, read_options, sql_options
from asynclock.spark.hudi.options import write_options as options_of_a_write
from asynclock.spark.hudi.table import Table
from asynclock.spark.reader.snapshot import read
from asynclock.spark.reader.sql import register
from asynclock.spark.services.rebucket import rebucket
from asynclock.spark.services.savepoints import restore, savepoint
from asynclock.spark.services.work import Cleaning, Compaction
from asynclock.spark.writer.splice import Splice
from tests.spark.pipeline_kit import Background, Pipeline, deliver

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from asynclock.spark.spec.model import Spec

WITH = {"buckets = 1": "buckets = 2\nmetadata_table = true", "validity = 5.0": "validity = 60.0"}


@pytest.fixture
def pipeline(tmp_path: Path, spark: SparkSession) -> Pipeline:
    """An empty pipeline."""
    return Pipeline(tmp_path, spark)


def rows(spec: Spec, spark: SparkSession, **options: str) -> list[tuple[object, ...]]:
    """The stored rows, read with further options of Hudi."""
    reader = spark.read.format("hudi").options(**read_options(spec) | options)
    columns = ["_asynclock_key", *spec.physical_types()]
    return sorted(map(tuple, reader.load(spec.table.path).select(*columns).collect()), key=str)


def is_whole(pipeline: Pipeline, spec: Spec) -> bool:
    """Whether the table is what its sources make it, and the metadata table names the same files."""
    through = {hoodie.METADATA_ENABLE: "true", hoodie.ENABLE_DATA_SKIPPING: "false"}
    report = validate(spec, pipeline.spark)
    assert report.sample == ()
    assert rows(spec, pipeline.spark) == rows(spec, pipeline.spark, **through)
    return report.ok


def indexes(pipeline: Pipeline, spec: Spec) -> str:
    """What the properties of the table tell of its metadata table."""
    return pipeline.timeline(spec).properties().get("hoodie.table.metadata.partitions", "")


@pytest.mark.parametrize("options", [options_of_a_write, sql_options, compaction_options, cleaning_options])
def test_all_that_write_keep_it(pipeline: Pipeline, options: Callable[[Spec], dict[str, str]]) -> None:
    """A single writer without it would remove it; statistics of events would hide rows."""
    given = options(pipeline.spec(WITH))

    assert given[hoodie.METADATA_ENABLE] == "true"
    assert given[hoodie.METADATA_INDEX_COLUMN_STATS_ENABLE] == "false"
    assert given[hoodie.METADATA_INDEX_PARTITION_STATS_ENABLE] == "false"
    assert read_options(pipeline.spec(WITH))[hoodie.METADATA_ENABLE] == "false"


def test_streams_services_statements_and_a_restore_keep_it_whole(pipeline: Pipeline) -> None:
    """It has the names of all files, and no index beside them."""
    deliver(pipeline, 1, 2)
    spec = pipeline.spec(WITH)
    other = Background(lambda: pipeline.run(spec, streams=["b"]))
    pipeline.run(spec, streams=["a"])
    other.result()
    assert indexes(pipeline, spec) == "files"
    kept = savepoint(spec, spark=pipeline.spark)

    deliver(pipeline, 3, 4)
    pipeline.run(spec)
    Compaction(Table(spec, pipeline.spark)).step()
    Cleaning(Table(spec, pipeline.spark)).step()
    Splice(spec, pipeline.spark).delete([{"k": "A1"}])
    register(spec, pipeline.spark, name="listed")
    pipeline.spark.sql("INSERT INTO listed (k, at, x) VALUES ('S1', 5, 5)")
    found = pipeline.spark.sql("SELECT k, x FROM listed WHERE k IN ('A1', 'N1', 'S1') ORDER BY k").collect()

    assert [tuple(row) for row in found] == [("N1", 4), ("S1", 5)]
    assert is_whole(pipeline, spec)

    restore(spec, kept, spark=pipeline.spark)
    pipeline.run(spec)

    assert indexes(pipeline, spec) == "files"
    assert is_whole(pipeline, spec)


def test_archiving_waits_for_it_and_is_tried_once_a_commit(pipeline: Pipeline) -> None:
    """Hudi archives no commit that the metadata table has not compacted, which it does every ten commits."""
    for number in range(1, 5):
        pipeline.deliver("a", {"k": "N1", "at": number, "x": number})
    spec = pipeline.spec(WITH)
    pipeline.run(spec, streams=["a"])
    told: list[str] = []
    cleaning = Cleaning(Table(spec, pipeline.spark), told.append)

    cleaning.step()
    cleaning.step()

    assert told == ["archived 0 commits, 4 are left active"]

    for number in range(5, 13):
        pipeline.deliver("a", {"k": "N1", "at": number, "x": number})
    pipeline.run(spec, streams=["a"])
    cleaning.step()

    assert len(told) == 2
    assert len(pipeline.timeline(spec).instants()) < 12
    assert is_whole(pipeline, spec)


def test_a_rebucket_makes_it_anew(pipeline: Pipeline) -> None:
    """The table that takes the place of the old one has one, too, and streams go on with it."""
    deliver(pipeline, 1)
    spec = pipeline.spec(WITH)
    pipeline.run(spec)

    rebucket(spec, 4, spark=pipeline.spark)
    more = pipeline.spec(WITH | {"buckets = 1": "buckets = 4\nmetadata_table = true"}, name="more.toml")
    deliver(pipeline, 2)
    pipeline.run(more)

    assert indexes(pipeline, more) == "files"
    assert is_whole(pipeline, more)


def test_a_file_that_it_does_not_name_is_still_read(pipeline: Pipeline) -> None:
    """A read lists the folders; Hudi's own read of a table without its metadata table sees the same rows."""
    deliver(pipeline, 1)
    spec = pipeline.spec(WITH)
    pipeline.run(spec)
    before = rows(spec, pipeline.spark)
    folder = Path(urlsplit(spec.table.path).path, ".hoodie", "metadata")
    folder.rename(folder.with_name("away"))

    assert rows(spec, pipeline.spark) == before
    assert read(spec, pipeline.spark).count() == 2
    assert validate(spec, pipeline.spark).ok


@pytest.mark.parametrize("has", [True, False])
def test_a_writer_that_would_change_it_is_refused(pipeline: Pipeline, has: bool) -> None:  # noqa: FBT001
    """One without it would remove it under the others, and one with it would make it under them."""
    deliver(pipeline, 1)
    first, second = (WITH, {}) if has else ({}, WITH | {"buckets = 1": "buckets = 1\nmetadata_table = true"})
    pipeline.run(pipeline.spec(first))
    before = pipeline.timeline(pipeline.spec(first)).newest_completion()
    deliver(pipeline, 2)
    other = pipeline.spec(second | {"buckets = 1": "buckets = 2"} if has else second, name="other.toml")

    with pytest.raises(SpecError, match=r"table\.metadata_table.*nothing was written") as caught:
        pipeline.run(other)

    assert f"metadata_table = {str(has).lower()}" in caught.value.reason
    assert pipeline.timeline(other).newest_completion() == before
