"""A recorded run: its lines, and what its report says of them."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client import CollectorRegistry

from asynclock.spark.reader.table_history import timeline
from asynclock.spark.runs.lines import read_lines
from asynclock.spark.runs.run import run_services
from asynclock.spark.runs.story import run_story, timeline_story
from asynclock.telemetry.prometheus import PrometheusMetrics
from tests.spark.pipeline_kit import two_streams
from tests.telemetry.scraping import read, total

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from asynclock.spark.results import RunReport, ServicesReport


def test_a_run_is_recorded_from_its_leases_to_its_services(tmp_path: Path, spark: SparkSession) -> None:
    """A batch's line says what the table has; the report has the numbers of the run and of the timeline."""
    pipeline = two_streams(tmp_path / "pipeline", spark)
    pipeline.deliver("b", {"k": "N1", "seen": "2024-05-01T12:00:00Z", "y": "many"}, {"k": "N2"})
    spec, folder = pipeline.spec(), tmp_path / "run"

    registry = CollectorRegistry()
    metrics = PrometheusMetrics(registry)

    report = pipeline.run(spec, run_dir=folder, metrics=metrics)
    services = run_services(
        spec, once=True, spark=spark, run_dir=folder, stop=threading.Event(), metrics=metrics
    )

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
    check_metrics(registry, report, services, batches)
    told = timeline_story(spec, instants)
    assert told.totals.commits == story.totals.commits
    assert {span.lock for span in told.spans} == {"stream/a", "stream/b"}


def check_metrics(
    registry: CollectorRegistry, report: RunReport, services: ServicesReport, batches: list[dict[str, Any]]
) -> None:
    """The metrics of the same run have the numbers of its reports and lines; nothing waits at its end."""
    samples = read(registry)
    for stream in report.streams:
        mine = {"asynclock_table_name": "table", "asynclock_stream_name": stream.stream}
        count = total(samples, "asynclock_stream_batch_duration_seconds_count", **mine)
        waited = "asynclock_stream_lock_wait_duration_seconds"
        assert count == stream.batches > 0
        assert total(samples, "asynclock_stream_rows_total", **mine) == stream.rows
        assert total(samples, "asynclock_stream_quarantined_total", **mine) == stream.quarantined
        assert total(samples, f"{waited}_count", asynclock_lock_kind="lease", **mine) == 1
        assert total(samples, f"{waited}_sum", asynclock_lock_kind="commit", **mine) == pytest.approx(
            sum(each["commit_lock_wait_seconds"] for each in batches if each["stream"] == stream.stream)
        )
        gauges = ("asynclock_stream_lag_seconds", "asynclock_stream_backlog_files")
        found = {name: value for (name, has), value in samples.items() if mine.items() <= dict(has).items()}
        assert [found[name] for name in gauges] == [0, 0]
    done = "asynclock_service_duration_seconds_count"
    assert total(samples, done, asynclock_service_name="compaction") == len(services.compactions)
    assert total(samples, "asynclock_compaction_backlog") == 0
    assert total(samples, "asynclock_lock_held") == 0
