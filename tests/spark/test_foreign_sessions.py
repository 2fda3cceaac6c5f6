"""Sessions that know nothing of asynclock: the splice table's own properties guard it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from asynclock.spark.hudi.session import MERGER_JAR, hudi_bundle
from asynclock.spark.reader.snapshot import read
from asynclock.spark.runs.run import run_services
from asynclock.spark.writer.splice import Splice
from tests.spark.pipeline_kit import DEADLINE, Pipeline, two_streams

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from asynclock.spark.spec.model import Spec

A_SCHEMA = "k string, at bigint, x int, note string"
SCRIPT = Path(__file__).with_name("foreign_session.py")


@pytest.fixture
def pipeline(tmp_path: Path, spark: SparkSession) -> Pipeline:
    """A table of two streams with a few rows."""
    return two_streams(tmp_path / "ab", spark)


@pytest.fixture
def spec(pipeline: Pipeline) -> Spec:
    """The spec of that table."""
    loaded = pipeline.spec({"every_commits = 2": "every_commits = 100"})
    pipeline.run(loaded)
    return loaded


def foreign(folder: Path, *pieces: str, jar: bool) -> list[str]:
    """Let a session with Hudi, and with asynclock's jar or without, evaluate the pieces: values or errors."""
    jars = [str(hudi_bundle()), str(MERGER_JAR)] if jar else [str(hudi_bundle())]
    done = subprocess.run(
        [sys.executable, str(SCRIPT), ",".join(jars), (folder / "warehouse").as_uri()],
        input="".join(f"{piece}\n" for piece in pieces),
        capture_output=True,
        text=True,
        timeout=4 * DEADLINE,
        check=False,
    )
    answers: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines() if line[0] == "{"]
    assert len(answers) == len(pieces), done.stderr
    return [str(answer.get("value", answer.get("error"))) for answer in answers]


def sql(statement: str) -> str:
    """The Python of a statement."""
    return f"spark.sql({statement!r}).collect()"


def rows(spec: Spec, spark: SparkSession) -> list[tuple[Any, ...]]:
    """Key, at, x, note and y of each row of the view."""
    return sorted(map(tuple, read(spec, spark).select("k", "at", "x", "note", "y").collect()))


def test_a_session_without_the_jar_cannot_write_and_reads_what_is_compacted(
    pipeline: Pipeline, spec: Spec, spark: SparkSession
) -> None:
    """Every error names the class that is missing, and the table stays as it was."""
    before = rows(spec, spark)
    load = f".load({spec.table.path!r}).count()"
    optimized = "spark.read.format('hudi').option('hoodie.datasource.query.type', 'read_optimized')"

    compacted, merged, _, *refused = foreign(
        pipeline.folder,
        optimized + load,
        "spark.read.format('hudi')" + load,
        sql(f"CREATE TABLE t USING hudi LOCATION '{spec.table.path}'"),
        sql("INSERT INTO t (_asynclock_key, k, a__ts) VALUES ('N0', 'N0', 99)"),
        sql("INSERT OVERWRITE t (_asynclock_key, k, a__ts) VALUES ('N0', 'N0', 99)"),
        sql("UPDATE t SET a__x = 1"),
        sql("DELETE FROM t"),
        f"spark.range(1).write.format('hudi').mode('append').save({spec.table.path!r})",
        jar=False,
    )

    assert compacted == "0"  # nothing is compacted yet
    assert "ClassNotFoundException: io.asynclock.hudi.SpliceMerger" in merged
    assert all("ClassNotFoundException: io.asynclock.hudi.SpliceKeyGenerator" in answer for answer in refused)
    assert rows(spec, spark) == before


def test_a_session_with_the_jar_alone_writes_into_the_buckets_or_not_at_all(
    pipeline: Pipeline, spec: Spec, spark: SparkSession
) -> None:
    """The options come from the table, so a bare CREATE TABLE is safe; then streams and services go on."""
    one = "(_asynclock_key, k, a__ts, a__x) VALUES ('N9', 'N9', 99, 9)"
    frame = (
        "spark.table('t').where(\"k = 'N0'\").drop('_hoodie_commit_time', '_hoodie_commit_seqno', "
        "'_hoodie_record_key', '_hoodie_partition_path', '_hoodie_file_name')"
        f".write.format('hudi').mode('append').save({spec.table.path!r})"
    )
    refused = {
        sql("INSERT INTO t (k, a__ts, a__x) VALUES ('N0', 99, 1)"): "its key columns make it 'N0'",
        sql(f"INSERT OVERWRITE t {one}"): "takes upsert, insert and delete",
        sql("MERGE INTO t USING (SELECT 'N0' AS k) s ON t.k = s.k WHEN MATCHED THEN UPDATE SET a__x = 1"): (
            "MERGE INTO"
        ),
    }
    settings = {
        "hoodie.spark.sql.insert.into.operation": ("bulk_insert", "takes upsert, insert and delete"),
        "hoodie.index.type": ("SIMPLE", "Config conflict"),
    }
    for name, (value, error) in settings.items():
        refused |= {
            f"spark.conf.set({name!r}, {value!r})": "None",
            sql(f"INSERT INTO t {one} -- {name}"): error,
            f"spark.conf.unset({name!r})": "None",
        }
    taken = [
        sql(f"INSERT INTO t {one}"),
        sql("UPDATE t SET a__x = 100 WHERE k = 'N1'"),
        sql("DELETE FROM t WHERE k = 'N2'"),
        # As many as let Hudi compact in the last one.
        *[frame] * 4,
    ]

    answers = foreign(
        pipeline.folder,
        sql(f"CREATE TABLE t USING hudi LOCATION '{spec.table.path}'"),
        *refused,
        *taken,
        jar=True,
    )
    for answer, error in zip(answers[1:], refused.values(), strict=False):
        assert error in answer
    assert set(answers[-len(taken) :]) <= {"[]", "None"}
    actions = {instant.action for instant in pipeline.timeline(spec).instants() if instant.completed}
    assert actions == {"deltacommit"}

    Splice(spec, spark).write(spark.createDataFrame([("N1", 11, 7, "later")], A_SCHEMA), "a")
    pipeline.age_heartbeats()  # INSERT OVERWRITE has begun an instant before it was refused
    run_services(spec, once=True, spark=spark)
    assert rows(spec, spark) == [
        ("N0", 10, 0, "streamed", 0.5),
        ("N1", 11, 7, "later", None),
        ("N3", 10, 3, "streamed", None),
        ("N9", 99, 9, None, None),
    ]
    assert pipeline.table(spec).strays() == []
    assert pipeline.timeline(spec).pending() == []
