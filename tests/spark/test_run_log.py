"""A recorded run: its lines, and what its report says of them."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from asynclock.spark.reader.table_history import timeline
from asynclock.spark.runs.lines import read_lines
from asynclock.spark.runs.run import run_services
from asynclock.spark.runs.story import run_story, timeline_story
from tests.spark.pipeline_kit import two_streams

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def test_a_run_is_recorded_from_its_leases_to_its_services(tmp_path: Path, spark: SparkSession) -> None:
    """A batch's line says what the table has; the report has the numbers of the run and of the timeline."""
    pipeline = two_streams(tmp_path / "pipeline", spark)
    pipeline.deliver("b", {"k": "N1", "seen": "2024-05-01T12:00:00Z", "y": "many"}, {"k": "N2"})
    spec, folder = pipeline.spec(), tmp_path / "run"

    report = pipeline.run(spec, run_dir=folder)
    services = run_services(spec, once=True, spark=spark, run_dir=folder, stop=threading.Event())

    lines = list(read_lines(folder))
    batches = [line.fields for line in lines if line.kind == "batch"]
    instants = timeline(spec, spark)
    committed = {one.requested: one for one in instants if one.stream is not None}
    assert {each["instant"] for each in batches} == committed.keys()
    for each in batches:
        instant = committed[each["instant"]]
        assert (each["stream"], each["batch"], each["token"]) == (
            instant.stream,
            instant.batch,
            instant.token,
        )
        # The commit lock is held for a part of the commit, and waited for in the batch.
        assert 0 < each["commit_lock_hold_seconds"] < each["seconds"]
        assert 0 < each["commit_lock_wait_seconds"] + each["look_seconds"] < each["seconds"]
    story = run_story(spec, folder)
    assert (story.totals.commits, story.totals.rows) == (len(batches), report.rows)
    assert story.totals.quarantined == 2
    assert {name: one.rows for name, one in story.streams.items()} == {
        one.stream: one.rows for one in report.streams
    }
    assert [one.end for one in story.processes] == ["well"] * 2
    assert {"stream/a", "stream/b", "service/compaction", "service/cleaning", "service/creation"} <= {
        span.lock for span in story.spans
    }
    assert all(span.end_reason == "released" for span in story.spans if span.state == "held")
    compacted = [work.instant for work in story.works if work.service == "compaction"]
    assert tuple(compacted) == services.compactions != ()
    told = timeline_story(spec, instants)
    assert told.totals.commits == story.totals.commits
    assert {span.lock for span in told.spans} == {"stream/a", "stream/b"}
