"""A table that is fed by streams and by statements is validated: what either wrote is expected."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from asynclock.spark import register
from asynclock.spark.check.validation import ValidationReport, validate
from asynclock.spark.hudi.table import Table
from asynclock.spark.services.work import Cleaning, Compaction
from asynclock.spark.writer.splice import Splice
from tests.spark.pipeline_kit import Kept, Pipeline, command_here, misread, two_streams

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from asynclock.spark.spec.model import Spec

A_SCHEMA = "k string, at bigint, x int, note string"
NASTY = "a b/ü:1,2%|+"


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Kept:
    """A table of two streams, which has its first events."""
    made = two_streams(tmp_path_factory.mktemp("kept") / "ab", spark)
    made.run(made.spec({"buckets = 1": "buckets = 2"}))
    return Kept(made)


@pytest.fixture
def pipeline(kept: Kept, spark: SparkSession) -> Iterator[Pipeline]:
    """That table, which is in the catalog as ``fleet_stored``."""
    yield kept.as_it_was()
    spark.sql("DROP VIEW IF EXISTS fleet")
    spark.sql("DROP TABLE IF EXISTS fleet_stored")


@pytest.fixture
def spec(pipeline: Pipeline) -> Spec:
    """The spec of that table."""
    loaded = pipeline.spec({"buckets = 1": "buckets = 2"})
    register(loaded, pipeline.spark, name="fleet")
    return loaded


def write(pipeline: Pipeline, spec: Spec, *rows: tuple[Any, ...], **options: Any) -> None:  # noqa: ANN401
    """Write rows of a by the API."""
    Splice(spec, pipeline.spark).write(pipeline.spark.createDataFrame(rows, A_SCHEMA), "a", **options)


def agrees(pipeline: Pipeline, spec: Spec) -> ValidationReport:
    """The report of a validation that finds nothing, and compares everything."""
    report = validate(spec, pipeline.spark)
    assert report.sample == ()
    assert (report.ok, report.not_comparable, report.unknown_statements) == (True, 0, 0)
    return report


def compact_and_clean(pipeline: Pipeline, spec: Spec) -> None:
    """Move everything into base files, and remove every log file."""
    for at in range(100, 104):
        pipeline.deliver("a", *({"k": f"C{number}", "at": at, "x": 0} for number in range(9)))
        pipeline.run(spec, streams=["a"])
        Compaction(Table(spec, pipeline.spark)).step()
        Cleaning(Table(spec, pipeline.spark)).step()


def test_streams_statements_and_writes_in_turns_are_validated(pipeline: Pipeline, spec: Spec) -> None:
    """Whatever wrote last by the merge's order is expected, with compactions in between."""
    sql = pipeline.spark.sql
    for turn in range(2):
        at = 20 + 10 * turn
        sql(
            f"INSERT INTO fleet_stored (k, a__ts, a__x, b__ts, b__y) VALUES ('S{turn}', {at}, 1, now(), 0.5),"
            f" ('{NASTY}', {at}, 2, NULL, NULL), ('N3', 1, 3, NULL, NULL)"
        )
        sql("UPDATE fleet_stored SET a__x = 77 WHERE k = 'N0'")
        agrees(pipeline, spec)
        pipeline.deliver("a", {"k": "N1", "at": at, "x": 5}, {"k": f"S{turn}", "at": at, "x": 6})
        pipeline.run(spec, streams=["a"])
        sql(
            "MERGE INTO fleet_stored t USING (SELECT 'N1' AS k UNION SELECT 'M' AS k) s ON t.k = s.k"
            " WHEN MATCHED THEN UPDATE SET a__note = 'merged'"
            f" WHEN NOT MATCHED THEN INSERT (k, a__ts, a__x) VALUES (s.k, {at}, 9)"
        )
        Compaction(Table(spec, pipeline.spark)).step()
        sql(f"DELETE FROM fleet_stored WHERE k IN ('{NASTY}', 'N2')")
        write(pipeline, spec, ("N2", 3, 4, "back"), ("W", at, 1, None))
        write(pipeline, spec, ("W", at + 1, 2, None), batch_id=turn)
        Splice(spec, pipeline.spark).delete([{"k": "M"}, {"k": f"S{turn}"}])
        sql("UPDATE fleet_stored SET b__y = 9.5 WHERE k = 'N0'")
        Splice(spec, pipeline.spark).delete([{"k": "W"}], stream="a")
        report = agrees(pipeline, spec)
        assert report.statements == 7 * (turn + 1)
        assert validate(spec, pipeline.spark, one_key_in=3).ok
    found = sql("SELECT k, a__x, b__y FROM fleet_stored WHERE a__deleted IS NULL ORDER BY k").collect()
    assert ("N0", 77, 9.5) in [tuple(row) for row in found]


def test_keys_and_partitions_of_every_type_are_deleted(tmp_path: Path, spark: SparkSession) -> None:
    """The key of a delete by SQL is found again, whatever its type and however its text is encoded."""
    pipeline = Pipeline(tmp_path / "keys", spark)
    spec = pipeline.spec(
        {
            'key = ["k"]': 'key = ["k", "day"]',
            "buckets = 1": 'buckets = 1\npartition_by = ["note"]',
            'x = "int", note = "string"': 'x = "int", day = "date", note = "string"',
            "[streams.b]": "[streams.c]",
            'seen = "timestamp", y = "double"': 'seen = "timestamp", day = "date", note = "string"',
        }
    )  # fmt: skip
    text = "k,day,note,at,x\n" + "".join(
        f'"{key}",2024-05-0{day},"{note}",1,1\n'
        for key in (NASTY, "N1")
        for day, note in ((1, "x/ y"), (2, "z"))
    )
    pipeline.place("a", "csv", text)
    pipeline.run(spec, streams=["a"])
    register(spec, spark, name="dated")
    try:
        agrees(pipeline, spec)
        spark.sql(f"DELETE FROM dated_stored WHERE k = '{NASTY}' AND day = DATE'2024-05-01'")
        left = spark.table("dated_stored").count()
    finally:
        spark.sql("DROP VIEW IF EXISTS dated")
        spark.sql("DROP TABLE IF EXISTS dated_stored")

    assert left == 3
    assert agrees(pipeline, spec).statements == 1


def test_a_value_that_no_commit_explains_still_differs(pipeline: Pipeline, spec: Spec) -> None:
    """Beside statements a wrong cell of a batch, and a file that says something else, are found."""
    pipeline.spark.sql("UPDATE fleet_stored SET a__x = 77 WHERE k = 'N0'")
    misread(spec, pipeline.spark, pipeline.spark.createDataFrame([("N1", 10, 8, None)], A_SCHEMA), "a")

    report = validate(spec, pipeline.spark)

    assert {(one.key["k"], one.column, one.expected, one.found) for one in report.sample} == {
        ("N1", "a__x", "1", "8"), ("N1", "a__note", "streamed", None),
    }  # fmt: skip
    assert (report.ok, report.statements, report.not_comparable) == (False, 1, 0)


def test_statements_whose_files_are_cleaned_away_are_named(pipeline: Pipeline, spec: Spec) -> None:
    """What they may have set or removed is not compared; the rest is, and a wrong cell differs."""
    pipeline.spark.sql("UPDATE fleet_stored SET a__x = 77 WHERE k = 'N0'")
    pipeline.spark.sql("INSERT INTO fleet_stored (k, a__ts, a__x) VALUES ('S', 1, 1)")
    pipeline.spark.sql("DELETE FROM fleet_stored WHERE k = 'N2'")
    agrees(pipeline, spec)
    compact_and_clean(pipeline, spec)

    report = validate(spec, pipeline.spark)

    assert report.sample == ()
    assert (report.ok, report.statements, report.unknown_statements) == (True, 3, 3)
    assert report.not_comparable == 3  # N0, S and N2
    done = command_here("validate", str(spec.path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 commits by statements or Splice.write count as events" in done.stdout
    assert "3 of them cannot be read" in done.stdout

    with (pipeline.folder / "in" / "a" / f"{pipeline.files:04}.csv").open("a") as file:
        file.write("C0,200,1,\nmissing,1,1,\n")
    damaged = validate(spec, pipeline.spark)

    assert {(one.key["k"], one.column) for one in damaged.sample} >= {("C0", "a__ts"), ("missing", None)}
    assert damaged.not_comparable == 3


def test_an_unread_file_is_not_expected_because_of_a_write_by_the_api(pipeline: Pipeline, spec: Spec) -> None:
    """A write with a batch number is no earlier checkpoint, so files that no batch has read stay unread."""
    pipeline.deliver("a", {"k": "N9", "at": 1, "x": 1})
    write(pipeline, spec, ("W", 1, 1, None), batch_id=0)

    report = agrees(pipeline, spec)

    assert len(report.streams[0].unread_files) == 1


def test_statements_on_a_plain_table_are_not_compared(tmp_path: Path, spark: SparkSession) -> None:
    """Its files do not have rows as they were written, so what a statement may have set is named instead."""
    pipeline = Pipeline(tmp_path / "plain", spark)
    (pipeline.folder / "in" / "c").mkdir()
    spec = pipeline.spec(
        {
            'key = ["k"]': 'kind = "plain"\nmerge = "event_time"\nkey = ["k"]',
            "compaction = { every_commits = 2 }\n": "",
            "[streams.b]": "[streams.c]",
            'source = "in/b/*"': 'source = "in/c/*"',
            'ordering = "seen"': 'ordering = "at"',
            'columns = { seen = "timestamp", y = "double", deleted = "boolean" }':
                'columns = { at = "bigint", x = "int", note = "string" }',
        }
    )  # fmt: skip
    pipeline.deliver("a", *({"k": f"N{i}", "at": 5, "x": i} for i in range(4)))
    pipeline.run(spec, streams=["a"])
    spark.sql(f"CREATE TABLE simple_stored USING hudi LOCATION '{spec.table.path}'")
    try:
        spark.sql("UPDATE simple_stored SET x = 77 WHERE k = 'N0'")
        spark.sql("DELETE FROM simple_stored WHERE k = 'N1'")
    finally:
        spark.sql("DROP TABLE IF EXISTS simple_stored")

    report = validate(spec, spark)

    assert (report.ok, report.sample, report.unknown_statements) == (True, (), 2)
    assert report.not_comparable == 2
