"""Files outside of the buckets and foreign plans: found before the next write fails, and repaired."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from asynclock.errors import AcquireTimeoutError, SpecError
from asynclock.spark import register, repair
from asynclock.spark.check.validation import validate
from asynclock.spark.errors import ClusteringPlanError, StrayFilesError, UnfinishedRestoreError
from asynclock.spark.hudi.guard import is_guarded
from asynclock.spark.reader.snapshot import read
from asynclock.spark.runs.run import run_services
from asynclock.spark.services.repair import _Repair
from asynclock.spark.services.savepoints import savepoint
from asynclock.spark.writer.splice import Splice, stream_lock
from tests.spark.pipeline_kit import SUMMED, Kept, Pipeline, command_here, two_streams

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from asynclock.spark.spec.model import Spec

A_SCHEMA = "k string, at bigint, x int, note string"


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Kept:
    """A table of two streams with a few rows."""
    made = two_streams(tmp_path_factory.mktemp("kept") / "ab", spark)
    made.run(made.spec())
    return Kept(made)


@pytest.fixture
def pipeline(kept: Kept) -> Pipeline:
    """That table."""
    return kept.as_it_was()


@pytest.fixture
def spec(pipeline: Pipeline) -> Spec:
    """The spec of that table."""
    return pipeline.spec()


def write_plainly(pipeline: Pipeline, spec: Spec, *values: str, column: str = "a__x") -> None:
    """What a session does that knows nothing of the table's options: files with random ids."""
    spark = pipeline.spark
    pipeline.unguard(spec)
    spark.sql("DROP TABLE IF EXISTS plain")
    spark.sql(f"CREATE TABLE plain USING hudi LOCATION '{spec.table.path}'")
    for value in values:
        spark.sql(f"INSERT INTO plain (_asynclock_key, k, a__ts, {column}) VALUES {value}")


def rows(spec: Spec, spark: SparkSession) -> list[tuple[Any, ...]]:
    """Key, at, x and y of each row of the view."""
    return sorted(map(tuple, read(spec, spark).select("k", "at", "x", "y").collect()))


def test_strays_are_found_before_the_next_write_fails(pipeline: Pipeline, spec: Spec) -> None:
    """Streams and services end in a sentence that names file and repair; validation lists the file."""
    write_plainly(pipeline, spec, "('N0', 'N0', 11, 100)")
    (stray,) = pipeline.table(spec).strays()

    with pytest.raises(StrayFilesError, match=r"outside of its buckets.*pipeline repair") as refused:
        Splice(spec, pipeline.spark)
    with pytest.raises(StrayFilesError):
        run_services(spec, once=True, spark=pipeline.spark)
    report = validate(spec, pipeline.spark)

    assert refused.value.files == (stray,)
    assert report.stray_files == (stray,)
    assert not report.ok


def test_a_repair_moves_the_rows_of_strays_into_the_buckets(pipeline: Pipeline, spec: Spec) -> None:
    """Newer rows win and older ones lose, as if they had been inserted rightly; then streams go on."""
    write_plainly(
        pipeline,
        spec,
        "('N0', 'N0', 11, 100), ('N1', 'N1', 9, 101)",
        "('wrong', 'N9', 1, 9), ('N0', 'N0', 12, 200)",
    )

    report = repair(spec, spark=pipeline.spark)
    Splice(spec, pipeline.spark).write(pipeline.spark.createDataFrame([("N9", 2, 90, None)], A_SCHEMA), "a")
    run_services(spec, once=True, spark=pipeline.spark)

    assert len(report.files) >= 1
    assert (report.rejected, report.guarded, report.nothing) == (0, True, False)
    assert rows(spec, pipeline.spark) == [
        ("N0", 12, 200, 0.5),
        ("N1", 10, 1, None),
        ("N2", 10, 2, None),
        ("N3", 10, 3, None),
        ("N9", 2, 90, None),
    ]
    assert validate(spec, pipeline.spark).stray_files == ()
    assert is_guarded(spec, pipeline.timeline(spec).properties())
    assert repair(spec, spark=pipeline.spark).nothing


@pytest.mark.parametrize("step", ["_delete", "_append"])
def test_a_repair_that_dies_is_finished_by_the_next_one(
    pipeline: Pipeline, spec: Spec, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Rows are copied before their files are removed, so at no step is the only copy gone."""
    write_plainly(pipeline, spec, "('N0', 'N0', 11, 100)")

    def die(*_: object) -> None:
        raise InterruptedError

    with monkeypatch.context() as dying:
        dying.setattr(_Repair, step, die)
        with pytest.raises(InterruptedError):
            repair(spec, spark=pipeline.spark)
    with pytest.raises(StrayFilesError) as refused:
        Splice(spec, pipeline.spark)
    assert ".hoodie/asynclock-repair" in refused.value.files
    assert ".hoodie/asynclock-repair" in validate(spec, pipeline.spark).stray_files
    report = repair(spec, spark=pipeline.spark)

    assert report.rows == 1
    assert rows(spec, pipeline.spark)[0] == ("N0", 11, 100, 0.5)
    assert not (pipeline.folder / "table" / ".hoodie" / "asynclock-repair").exists()


def test_rows_with_a_sum_are_not_moved(tmp_path: Path, spark: SparkSession) -> None:
    """A repair that is interrupted would append them twice, so it stops before anything is copied."""
    pipeline = Pipeline(tmp_path, spark)
    pipeline.deliver("a", {"k": "N0", "at": 1, "x": 5})
    spec = pipeline.spec(SUMMED)
    pipeline.run(spec, streams=["a"])
    write_plainly(pipeline, spec, "('N0', 'N0', 2, 7)", column="_sum_a__x")
    before = pipeline.table(spec).strays()

    with pytest.raises(SpecError, match="rows outside the buckets have values of _sum_a__x"):
        repair(spec, spark=spark)

    assert pipeline.table(spec).strays() == before != frozenset()
    assert not (tmp_path / "table" / ".hoodie" / "asynclock-repair").exists()


def test_no_sql_while_a_repair_is_interrupted(
    pipeline: Pipeline, spec: Spec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row that is deleted meanwhile would come back with the rows that the repair has still to append."""
    spark = pipeline.spark
    register(spec, spark, name="mended")
    write_plainly(pipeline, spec, "('N0', 'N0', 11, 100)")

    def die(*_: object) -> None:
        raise InterruptedError

    with monkeypatch.context() as dying:
        dying.setattr(_Repair, "_append", die)
        with pytest.raises(InterruptedError):
            repair(spec, spark=spark)
    try:
        for statement in (
            "DELETE FROM mended_stored WHERE k = 'N0'",
            "DELETE FROM mended_stored",
            "UPDATE mended_stored SET a__x = 1 WHERE k = 'N1'",
            "INSERT INTO mended_stored (k, a__ts, a__x) VALUES ('N7', 12, 1)",
        ):
            with pytest.raises(Exception, match="asynclock pipeline repair SPEC"):
                spark.sql(statement)
        repair(spec, spark=spark)
        assert rows(spec, spark)[0] == ("N0", 11, 100, 0.5)

        spark.sql("DELETE FROM mended_stored WHERE k = 'N0'")
        assert "N0" not in {row[0] for row in rows(spec, spark)}
    finally:
        spark.sql("DROP VIEW IF EXISTS mended")
        spark.sql("DROP TABLE IF EXISTS mended_stored")


def test_a_spec_of_another_table_puts_no_guard_into_this_one(pipeline: Pipeline, spec: Spec) -> None:
    """With another number of buckets its guard would send the rows of every statement astray."""
    pipeline.unguard(spec)
    other = pipeline.spec({"buckets = 1": "buckets = 2"})
    before = pipeline.timeline(spec).properties()

    with pytest.raises(SpecError, match="has 1 buckets"):
        repair(other, spark=pipeline.spark)
    with pytest.raises(SpecError, match="has 1 buckets"):
        register(other, pipeline.spark)

    assert pipeline.timeline(spec).properties() == before


def test_no_repair_in_the_middle_of_a_restore(pipeline: Pipeline, spec: Spec) -> None:
    """It would append rows that the restore is about to drop."""
    write_plainly(pipeline, spec, "('N0', 'N0', 11, 100)")
    mark = pipeline.table(spec).restore_mark
    mark.put("20240101000000000")

    with pytest.raises(UnfinishedRestoreError):
        repair(spec, spark=pipeline.spark)

    assert pipeline.table(spec).strays()


def test_no_savepoint_of_a_table_with_strays(pipeline: Pipeline, spec: Spec) -> None:
    """A repair would remove files that the savepoint needs."""
    write_plainly(pipeline, spec, "('N0', 'N0', 11, 100)")

    with pytest.raises(StrayFilesError):
        savepoint(spec, spark=pipeline.spark)

    assert pipeline.timeline(spec).savepoints() == []


def test_rows_that_no_view_showed_are_kept_aside(pipeline: Pipeline, spec: Spec) -> None:
    """A row without an ordering value cannot be merged; it is kept as JSON, and the report says where."""
    write_plainly(pipeline, spec, "('N0', 'N0', NULL, 100), ('N8', 'N8', 1, 8)")

    report = repair(spec, spark=pipeline.spark)

    assert (report.rows, report.rejected) == (1, 1)
    assert report.rejected_folder is not None
    (kept,) = pipeline.spark.read.json(report.rejected_folder).collect()
    assert (kept.k, kept.a__x) == ("N0", 100)
    assert rows(spec, pipeline.spark)[-1] == ("N8", 1, 8, None)


def test_a_clustering_plan_is_removed(pipeline: Pipeline, spec: Spec) -> None:
    """After the repair writes succeed again."""
    plan = pipeline.folder / "table" / ".hoodie" / "timeline" / "20990101000000000.clustering.requested"
    plan.write_bytes(b"")
    with pytest.raises(ClusteringPlanError):
        Splice(spec, pipeline.spark)

    report = repair(spec, spark=pipeline.spark)

    assert report.plans == ("20990101000000000",)
    Splice(spec, pipeline.spark).write(pipeline.spark.createDataFrame([("N9", 2, 90, None)], A_SCHEMA), "a")


def test_a_repair_waits_for_the_streams(pipeline: Pipeline, spec: Spec) -> None:
    """While a stream is running nothing is touched."""
    with (
        spec.locks.connect() as client,
        client.lock(stream_lock("b")).hold(),
        pytest.raises(AcquireTimeoutError),
    ):
        repair(spec, spark=pipeline.spark, timeout=0.1)


def test_the_command_says_that_there_is_nothing_to_repair(pipeline: Pipeline, spec: Spec) -> None:
    """A sound table is left as it is."""
    assert spec.table.buckets == 1

    done = command_here("repair", str(pipeline.folder / "spec.toml"))

    assert (done.returncode, done.stdout.split("\n")[-2]) == (0, "nothing to repair"), done.stderr
