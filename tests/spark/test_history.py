"""The timeline as data: who wrote what and when, and how long it took."""

from __future__ import annotations

import json
import signal
import subprocess
from dataclasses import asdict, fields, replace
from typing import TYPE_CHECKING, Any

import pytest

from asynclock._cli.app import run_command
from asynclock.errors import SpecError
from asynclock.spark import Instant, timeline
from asynclock.spark.hudi.table import Table
from asynclock.spark.services.work import Cleaning, Compaction
from asynclock.spark.writer.splice import Splice
from tests.cli.command import COMMAND
from tests.spark.pipeline_kit import Background, Pipeline, wait_for, waiting

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

COLUMNS = "k string, at bigint, x int, note string"


@pytest.fixture
def pipeline(tmp_path: Path, spark: SparkSession) -> Pipeline:
    """An empty pipeline."""
    return Pipeline(tmp_path, spark)


def events(pipeline: Pipeline, *keys: str, at: int = 1) -> DataFrame:
    """An event of stream a for each key."""
    return pipeline.spark.createDataFrame([(key, at, at, "n") for key in keys], COLUMNS)


def told(instants: list[Instant]) -> list[tuple[object, ...]]:
    """What an instant was, without times and sizes."""
    return [(one.action, one.state, one.stream, one.batch, one.rows, one.archived) for one in instants]


def test_every_action_says_what_it_did(pipeline: Pipeline, capsys: pytest.CaptureFixture[str]) -> None:
    """Commits of streams, deletes and others, services and what is pending; later from the archive, too."""
    spec = pipeline.spec()
    splice = Splice(spec, pipeline.spark)
    assert splice.write(events(pipeline, "N1", "N2", "N3"), "a", batch_id=0, query_id="q")
    assert splice.write(events(pipeline, "N1", at=2), "a", batch_id=1, query_id="q")
    Compaction(Table(spec, pipeline.spark)).step()
    assert splice.write(events(pipeline, "N4"), "a")
    splice.delete(pipeline.spark.createDataFrame([("N2",)], "k string"))
    gate = pipeline.folder / "gate"
    slow = waiting(events(pipeline, "N1", at=3).coalesce(1), gate)
    late = Background(lambda: splice.write(slow, "a", batch_id=2, query_id="q"))
    try:
        wait_for(lambda: pipeline.timeline(spec).pending())
        found = timeline(spec, pipeline.spark)
        capsys.readouterr()
        assert run_command(["pipeline", "timeline", str(spec.path)]) == 0
        assert run_command(["pipeline", "timeline", str(spec.path), "--json"]) == 0
    finally:
        gate.touch()
    assert late.result()

    done = "COMPLETED"
    *past, pending = found
    assert told(past) == [
        ("deltacommit", done, "a", 0, 3, False),
        ("deltacommit", done, "a", 1, 1, False),
        ("commit", done, None, None, 3, False),
        ("deltacommit", done, "a", None, 1, False),
        ("deltacommit", done, "__deletes", 0, 1, False),
    ]
    assert pending.state in {"REQUESTED", "INFLIGHT"}
    assert pending == Instant(
        requested=pending.requested, completed=None, action="deltacommit", state=pending.state, utc=True
    )
    commits = pipeline.timeline(spec).commits
    assert [one.token for one in past if one.stream] == [one.fencing_token for one in commits[:-1]]
    for one in past:
        files = (pipeline.folder / "table").glob(f"*{one.requested}*")
        assert one.bytes == sum(file.stat().st_size for file in files if file.suffix != ".crc")
        assert one.latency is not None
        assert 0 < one.latency < 90
    shown = capsys.readouterr().out.splitlines()
    head, *lines = shown[: len(found) + 1]
    assert head.split() == ["completed", "action", "stream", "batch", "token", "changed", "written", "took"]
    assert [line.split()[2] for line in lines[:5]] == ["a", "a", "-", "a", "(delete)"]
    assert lines[-1].startswith("pending ")
    assert max(map(len, shown[: len(found) + 1])) <= 110
    objects = [json.loads(line) for line in shown[len(found) + 1 :]]
    assert objects[:-1] == [asdict(one) for one in past]
    assert objects[-1]["requested"] == pending.requested

    Cleaning(Table(spec, pipeline.spark)).step()
    active = timeline(spec, pipeline.spark)
    everything = timeline(spec, pipeline.spark, archived=True)

    assert ("clean", done, None, None, None, False) in told(active)
    kept = {one.requested for one in active}
    assert len(kept & {one.requested for one in past}) < len(past)
    old = [replace(one, archived=one.requested not in kept) for one in past]
    assert everything[: len(old)] == old
    assert [one for one in everything if not one.archived] == active


def test_a_table_that_is_not_there_is_an_error(
    pipeline: Pipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    """A sentence and 2; nothing is created."""
    spec = pipeline.spec()
    everything = pipeline.everything()

    with pytest.raises(SpecError, match="there is no table yet"):
        timeline(spec, pipeline.spark)
    assert run_command(["pipeline", "timeline", str(spec.path), "--follow"]) == 2
    assert "there is no table yet" in capsys.readouterr().err
    assert pipeline.everything() == everything


def test_what_comes_is_followed_until_an_interrupt(pipeline: Pipeline) -> None:
    """First what is there, then each new instant once, a commit also when it is complete; then 0."""
    spec = pipeline.spec()
    splice = Splice(spec, pipeline.spark)
    assert splice.write(events(pipeline, "N1"), "a", batch_id=0, query_id="q")
    command = [*COMMAND, "pipeline", "timeline", str(spec.path), "--follow", "--json"]
    log = pipeline.folder / "spark.log"
    with subprocess.Popen(
        [*command, "--log", str(log)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            first = json.loads(process.stdout.readline())
            assert splice.write(events(pipeline, "N1", at=2), "a", batch_id=1, query_id="q")
            seen: list[dict[str, Any]] = []
            while not seen or seen[-1]["completed"] is None:
                seen.append(json.loads(process.stdout.readline()))
        finally:
            process.send_signal(signal.SIGINT)
        rest, errors = process.communicate(timeout=60)

    assert (process.returncode, rest, errors) == (0, "", "")
    assert list(first) == [field.name for field in fields(Instant)]
    assert (first["batch"], seen[-1]["batch"], seen[-1]["state"]) == (0, 1, "COMPLETED")
    assert {one["requested"] for one in seen} == {seen[-1]["requested"]}
