"""The table as it was at the completion of an instant, under the view's names."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from asynclock.errors import ConfigError, SpecError
from asynclock.spark import read, register, restore, savepoint
from asynclock.spark.hudi.table import Table
from asynclock.spark.services.work import Cleaning, Compaction
from asynclock.spark.writer.splice import Splice
from tests.spark.pipeline_kit import Background, Pipeline, wait_for, waiting

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from asynclock.spark.spec.model import Spec

A = "k string, at bigint, x int, note string"
B = "k string, seen timestamp, y double, deleted boolean"
KEPT = {"keep_min_commits = 2, keep_max_commits = 3": "keep_min_commits = 20, keep_max_commits = 30"}


@pytest.fixture
def pipeline(tmp_path: Path, spark: SparkSession) -> Iterator[Pipeline]:
    """An empty pipeline, whose table may be put into the catalog as ``travelled``."""
    yield Pipeline(tmp_path, spark)
    spark.sql("DROP VIEW IF EXISTS travelled_then")
    spark.sql("DROP VIEW IF EXISTS travelled")
    spark.sql("DROP TABLE IF EXISTS travelled_stored")


def frame_a(pipeline: Pipeline, value: int) -> DataFrame:
    """An event of stream a, for one key."""
    return pipeline.spark.createDataFrame([("N1", value, value, "n")], A)


def frame_b(pipeline: Pipeline, value: int) -> DataFrame:
    """Events of stream b, for two keys."""
    rows = pipeline.spark.sql(f"SELECT explode(array('N1', 'N2')) AS k, timestamp_seconds({value}) AS seen")
    return rows.selectExpr("k", "seen", f"{value}D AS y", "CAST(NULL AS boolean) AS deleted").coalesce(1)


def write(pipeline: Pipeline, spec: Spec, stream: str, value: int) -> str:
    """Commit the value to a stream, and return when that was complete."""
    frame = (frame_a if stream == "a" else frame_b)(pipeline, value)
    assert Splice(spec, pipeline.spark).write(frame, stream, batch_id=value, query_id="q")
    return str(pipeline.timeline(spec).newest_completion())


def rows(pipeline: Pipeline, spec: Spec, as_of: str | None = None) -> list[tuple[object, ...]]:
    """Key and values of the two streams."""
    return sorted((row.k, row.x, row.y) for row in read(spec, pipeline.spark, as_of=as_of).collect())


def slowly_written(pipeline: Pipeline, spec: Spec, stream: str, value: int, gate: Path) -> Background:
    """A write in flight, which waits for the gate."""
    known = len(pipeline.timeline(spec).pending())
    frame = waiting((frame_a if stream == "a" else frame_b)(pipeline, value).coalesce(1), gate)
    splice = Splice(spec, pipeline.spark)
    written = Background(lambda: splice.write(frame, stream, batch_id=value, query_id="q"))
    wait_for(lambda: len(pipeline.timeline(spec).pending()) > known)
    return written


@contextmanager
def opened_at_end(*gates: Path) -> Iterator[None]:
    """Let what waits for the gates go on, also after a failure: it would wait forever."""
    try:
        yield
    finally:
        for gate in gates:
            gate.touch()


def test_every_instant_shows_what_was_read_then(pipeline: Pipeline) -> None:
    """Before a stream began its columns are null; compactions and wider types change nothing."""
    spec = pipeline.spec(KEPT)
    then = {}
    for step in ("a1", "b1", "a2", "compaction", "b2"):
        if step == "compaction":
            Compaction(Table(spec, pipeline.spark)).step()
        else:
            write(pipeline, spec, step[0], int(step[1]))
        newest = str(pipeline.timeline(spec).newest_completion())
        then[newest] = rows(pipeline, spec)
    wide = pipeline.spec({**KEPT, 'x = "int"': 'x = "double"'}, name="wide.toml")
    frame = pipeline.spark.createDataFrame([("N1", 9, 9.5, "n")], A.replace("x int", "x double"))
    Splice(wide, pipeline.spark).write(frame, "a", batch_id=9, query_id="q")
    first = min(then)
    date, clock = f"{first[:4]}-{first[4:6]}-{first[6:8]}", f"{first[8:10]}:{first[10:12]}:{first[12:14]}"

    assert {as_of: rows(pipeline, spec, as_of) for as_of in then} == then
    assert rows(pipeline, wide, first) == [("N1", 1.0, None)]
    assert read(wide, pipeline.spark, as_of=first).columns == read(wide, pipeline.spark).columns
    assert rows(pipeline, wide) == [("N1", 9.5, 2.0), ("N2", None, 2.0)]
    assert rows(pipeline, spec, f"{date}T{clock}.{first[14:]}") == then[first]


def test_what_began_before_an_instant_and_ended_later_is_not_in_it(pipeline: Pipeline) -> None:
    """Hudi itself would show it. Where it cannot be left out, the read is refused, then and later."""
    spec = pipeline.spec(KEPT)
    write(pipeline, spec, "a", 1)
    gates = {stream: pipeline.folder / f"gate of {stream}" for stream in ("b", "a")}
    with opened_at_end(*gates.values()):
        first, second = (slowly_written(pipeline, spec, name, 2, gate) for name, gate in gates.items())
        gates["b"].touch()
        assert first.result()
        between = str(pipeline.timeline(spec).newest_completion())
        overtaking = write(pipeline, spec, "b", 3)
        newest = rows(pipeline, spec, overtaking)
        write(pipeline, spec, "b", 4)
        in_flight = rows(pipeline, spec, between)
        with pytest.raises(ConfigError, match="a write that began before then is still in flight"):
            read(spec, pipeline.spark, as_of=overtaking)
    assert second.result()

    assert newest == [("N1", 1, 3.0), ("N2", None, 3.0)]
    assert in_flight == rows(pipeline, spec, between) == [("N1", 1, 2.0), ("N2", None, 2.0)]
    assert rows(pipeline, spec) == [("N1", 2, 4.0), ("N2", None, 4.0)]
    with pytest.raises(ConfigError, match="a write was in flight then that began before another"):
        read(spec, pipeline.spark, as_of=overtaking)


def test_what_cannot_be_shown_is_refused_in_a_sentence(pipeline: Pipeline) -> None:
    """No table, no such instant, the future, and what a restore has dropped; nothing is written."""
    spec = pipeline.spec({**KEPT, "every_commits = 2": "every_commits = 1"})
    with pytest.raises(SpecError, match="there is no table yet"):
        read(spec, pipeline.spark, as_of="20260101000000000")
    first = write(pipeline, spec, "a", 1)
    Compaction(Table(spec, pipeline.spark)).step()
    write(pipeline, spec, "a", 2)
    kept = savepoint(spec)
    dropped = write(pipeline, spec, "a", 3)
    Cleaning(Table(spec, pipeline.spark)).step()
    cleaned = str(pipeline.timeline(spec).newest_completion())
    restore(spec, kept)
    everything = pipeline.everything()

    for as_of, reason in {
        "yesterday": "is no instant",
        "20200101000000000": "nothing was committed by then, or it is archived",
        "20991231235959999": "the newest instant is",
        f"{int(first) + 1}": f"no instant was completed then; the last one before it is {first}",
        dropped: "no instant was completed then",
        cleaned: "the restore at .* has dropped commits of that time",
    }.items():
        with pytest.raises(ConfigError, match=reason):
            read(spec, pipeline.spark, as_of=as_of)
    assert cleaned > dropped
    assert pipeline.everything() == everything


def test_a_state_whose_files_another_session_cleaned_is_refused(pipeline: Pipeline) -> None:
    """By the number of files instead of commits: Hudi then shows an empty table."""
    spec = pipeline.spec({**KEPT, "every_commits = 2": "every_commits = 1"})
    first = write(pipeline, spec, "a", 1)
    Compaction(Table(spec, pipeline.spark)).step()
    register(spec, pipeline.spark, name="travelled")
    policy = "hoodie.clean.policy=KEEP_LATEST_FILE_VERSIONS,hoodie.clean.fileversions.retained=1"
    pipeline.spark.sql(f"CALL run_clean(table => 'travelled_stored', options => '{policy}')")

    with pytest.raises(ConfigError, match="the files of that time are cleaned away"):
        read(spec, pipeline.spark, as_of=first)
    assert rows(pipeline, spec, pipeline.timeline(spec).newest_completion()) == [("N1", 1, None)]


def test_sql_sees_an_earlier_state(pipeline: Pipeline) -> None:
    """The view of the past is a temporary view of what read gives; Hudi's syntax is for the stored table."""
    spec = pipeline.spec(KEPT)
    first = write(pipeline, spec, "a", 1)
    write(pipeline, spec, "a", 2)
    register(spec, pipeline.spark, name="travelled")

    read(spec, pipeline.spark, as_of=first).createOrReplaceTempView("travelled_then")
    view = pipeline.spark.sql("SELECT k, x FROM travelled_then").collect()
    query = f"SELECT k, a__x FROM travelled_stored TIMESTAMP AS OF '{first}'"
    stored = pipeline.spark.sql(query).collect()

    assert [tuple(row) for row in (*view, *stored)] == [("N1", 1), ("N1", 1)]
