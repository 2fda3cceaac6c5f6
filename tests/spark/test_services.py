"""The table services: what they change, and what they must not."""

from __future__ import annotations

import re
import threading
import uuid
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import Py4JJavaError

from asynclock import sync
from asynclock.errors import BackendUnavailableError, LeaseLostError
from asynclock.spark.errors import ClusteringPlanError
from asynclock.spark.hudi.options import cleaning_options, compaction_options, read_options, write_options
from asynclock.spark.hudi.table import Table
from asynclock.spark.reader.snapshot import physical_columns, read, snapshot
from asynclock.spark.runs.run import run_services
from asynclock.spark.services import work
from asynclock.spark.services.repair import repair
from asynclock.spark.services.work import Cleaning, Compaction, write_client
from asynclock.spark.work.register import Register
from asynclock.spark.writer.splice import Splice
from tests.spark.pipeline_kit import Background, Pipeline, retries, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

    from asynclock.spark.spec.model import Spec


@pytest.fixture
def pipeline(tmp_path: Path, spark: SparkSession) -> Pipeline:
    """An empty pipeline."""
    return Pipeline(tmp_path, spark)


def fill(pipeline: Pipeline, spec: Spec, files: int) -> None:
    """Commit that many files of stream a, each with newer values of the same keys."""
    for _ in range(files):
        number = pipeline.files
        pipeline.deliver("a", *({"k": f"N{key}", "at": number, "x": number} for key in range(5)))
    pipeline.run(spec, streams=["a"])


def contents(pipeline: Pipeline, spec: Spec) -> list[tuple[object, ...]]:
    """Every stored cell of a snapshot."""
    return sorted(tuple(row) for row in snapshot(Table(spec, pipeline.spark)).collect())


def compacted(pipeline: Pipeline, spec: Spec) -> list[tuple[object, ...]]:
    """Every stored cell of the last compaction."""
    reader = pipeline.spark.read.format("hudi").options(**read_options(spec, query_type="read_optimized"))
    frame = reader.load(spec.table.path).select(*physical_columns(spec))
    return sorted(tuple(row) for row in frame.collect())


def log_files(pipeline: Pipeline) -> int:
    """How many log files the table has."""
    return sum(".log." in path.name for path in (pipeline.folder / "table").iterdir())


def test_compaction_is_due_after_so_many_commits_and_changes_no_row(pipeline: Pipeline) -> None:
    """A compaction waits for its number of commits and leaves every cell as it was."""
    spec = pipeline.spec()
    told: list[str] = []
    compaction = Compaction(Table(spec, pipeline.spark), told.append)
    fill(pipeline, spec, 1)
    compaction.step()
    assert compaction.done == []

    fill(pipeline, spec, 1)
    before = contents(pipeline, spec)
    compaction.step()
    compaction.step()

    assert len(compaction.done) == 1
    assert told == [f"compacted 2 commits at instant {compaction.done[0]}"]
    assert contents(pipeline, spec) == compacted(pipeline, spec) == before


def test_an_unfinished_marker_of_a_partition_doubles_nothing_of_a_compaction(pipeline: Pipeline) -> None:
    """A kill or a full disk leaves it; Hudi lists the partition once for each such file."""
    spec = pipeline.spec()
    fill(pipeline, spec, 2)
    before = contents(pipeline, spec)
    (pipeline.folder / "table" / f".hoodie_partition_metadata.{uuid.uuid4()}").touch()
    files = base_files(pipeline)

    compaction = Compaction(Table(spec, pipeline.spark))
    compaction.step()

    assert len(compaction.done) == 1
    assert contents(pipeline, spec) == compacted(pipeline, spec) == before
    slices = [name.split("_")[0] for name in base_files(pipeline) - files]
    assert len(slices) == len(set(slices)) > 0
    fill(pipeline, spec, 1)
    assert len(contents(pipeline, spec)) == len(before)


def base_files(pipeline: Pipeline) -> set[str]:
    """Names of the table's base files."""
    return {path.name for path in (pipeline.folder / "table").glob("*.parquet")}


def test_old_dates_are_compacted_to_the_microsecond(pipeline: Pipeline) -> None:
    """Dates and times before 1900 go through two compactions and come back as they were."""
    days = ["0001-01-01", "1500-01-01", "9999-12-31"]
    times = ["1500-02-03 01:02:03.000007", "1899-12-31 23:59:59.999999"]
    events = [(f"N{n}", day, time) for n, (day, time) in enumerate((d, t) for d in days for t in times)]
    spec = pipeline.spec({
        '"bigint", x = "int", note = "string"': '"timestamp", day = "date", time = "timestamp"',
        '"csv"\nordering = "at"': '"json"\nordering = "at"',
    })  # fmt: skip
    lines = [f'{{"k": "{k}", "at": "{time}", "day": "{day}", "time": "{time}"}}' for k, day, time in events]

    for _ in range(2):
        for _ in range(2):
            pipeline.place("a", "json", "\n".join([*lines, ""]))
        pipeline.run(spec, streams=["a"])
        Compaction(Table(spec, pipeline.spark)).step()

    assert pipeline.timeline(spec).pending() == []
    frame = read(spec, pipeline.spark).selectExpr("k", "string(day)", "string(time)", "string(at)")
    assert sorted(tuple(row) for row in frame.collect()) == [(*event, event[2]) for event in events]
    assert len(compacted(pipeline, spec)) == len(events)


def test_plan_of_a_dead_leader_is_carried_out(pipeline: Pipeline) -> None:
    """A compaction that was planned and never done is done by the next leader."""
    spec = pipeline.spec()
    fill(pipeline, spec, 1)
    empty = pipeline.spark._jvm.org.apache.hudi.common.util.Option.empty
    options = {**writing(spec), "hoodie.compact.inline.max.delta.commits": "1"}
    with write_client(Table(spec, pipeline.spark), options) as client:
        planned = client.scheduleCompaction(empty()).get()
    compaction = Compaction(Table(spec, pipeline.spark))

    compaction.step()

    assert compaction.done == [planned]
    assert pipeline.timeline(spec).pending() == []


def test_cleaning_removes_what_was_compacted(pipeline: Pipeline) -> None:
    """After a compaction the merged log files go, and the rows stay."""
    spec = pipeline.spec()
    fill(pipeline, spec, 2)
    Compaction(Table(spec, pipeline.spark)).step()
    fill(pipeline, spec, 2)
    Compaction(Table(spec, pipeline.spark)).step()
    before, rows = log_files(pipeline), contents(pipeline, spec)
    cleaning = Cleaning(Table(spec, pipeline.spark))

    cleaning.step()

    assert cleaning.rounds == 1
    assert log_files(pipeline) < before
    assert contents(pipeline, spec) == rows


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The write clients that services open from now on: each is one piece of work that was tried."""
    clients: list[str] = []

    @contextmanager
    def counted(table: Table, *arguments: Any) -> Iterator[Any]:  # noqa: ANN401  as the original
        clients.append(table.path)
        with write_client(table, *arguments) as client:
            yield client

    monkeypatch.setattr(work, "write_client", counted)
    return clients


def test_cleaning_is_tried_when_there_is_something_to_remove(pipeline: Pipeline, opened: list[str]) -> None:
    """After a compaction nothing is tried until enough commits follow, then once, then no more."""
    spec = pipeline.spec({
        "retain_commits = 1": "retain_commits = 2",
        "keep_min_commits = 2, keep_max_commits = 3": "keep_min_commits = 20, keep_max_commits = 30",
    })  # fmt: skip
    fill(pipeline, spec, 2)
    Compaction(Table(spec, pipeline.spark)).step()
    del opened[:]
    cleaning = Cleaning(Table(spec, pipeline.spark))
    tried = []
    for _ in range(4):
        for _ in range(3):
            cleaning.step()
        tried.append(len(opened))
        fill(pipeline, spec, 1)

    assert tried == [0, 0, 1, 1]
    assert [one.action for one in pipeline.timeline(spec).instants()].count("clean") == 1


def test_commits_without_rows_are_not_planned_again_and_again(pipeline: Pipeline, opened: list[str]) -> None:
    """Where Hudi finds nothing to compact, the next plan is made after the next commit."""
    spec = pipeline.spec()
    pipeline.deliver("a")
    pipeline.deliver("a")
    pipeline.run(spec, streams=["a"])
    compaction = Compaction(Table(spec, pipeline.spark))

    for _ in range(3):
        compaction.step()
    assert (len(opened), compaction.done) == (1, [])
    fill(pipeline, spec, 1)
    compaction.step()

    assert len(opened) == 2
    assert len(compaction.done) == 1


def test_service_repeats_a_step_after_an_error_that_passes(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A service whose store fails for a moment does its work at the next attempt."""
    spec = pipeline.spec()
    fill(pipeline, spec, 2)
    failures = [Py4JJavaError("", pipeline.spark._jvm.java.io.IOException("503 Slow Down"))]
    step = Compaction.step

    def fail_once(self: Compaction, check: Callable[[], object]) -> None:
        if failures:
            raise failures.pop()
        step(self, check)

    monkeypatch.setattr(Compaction, "step", fail_once)
    retries(monkeypatch, longest=0.1)

    report = run_services(spec, once=True, spark=pipeline.spark)

    assert len(report.compactions) == 1
    assert "compaction: IOException: 503 Slow Down; tries again in" in caplog.text


@pytest.mark.parametrize("call", ["announce", "reserved", "step"])
def test_leader_outlasts_a_store_of_locks_that_does_not_answer(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, call: str
) -> None:
    """Before a step it looks for a reservation, the first time with its name; a failure ends no service."""
    spec = pipeline.spec()
    fill(pipeline, spec, 2)
    failures = [BackendUnavailableError(backend="file", operation="get", key="k", detail="timed out")]
    owner: Any = Compaction if call == "step" else Register
    method = getattr(owner, call)

    def fail_once(self: object, *arguments: object) -> object:
        if failures:
            raise failures.pop()
        return method(self, *arguments)

    monkeypatch.setattr(owner, call, fail_once)
    retries(monkeypatch, longest=0.1)

    report = run_services(spec, once=True, spark=pipeline.spark)

    assert len(report.compactions) == 1
    assert "timed out" in caplog.text


def test_leader_that_lost_its_lease_while_it_compacted_does_not_commit(pipeline: Pipeline) -> None:
    """Another leader may have begun again; the compaction is left to it, and no row is lost."""
    spec = pipeline.spec()
    fill(pipeline, spec, 2)
    rows = contents(pipeline, spec)

    def check() -> None:
        raise LeaseLostError(key="service/compaction", owner="a", fencing_token=1, reason="expired")

    with pytest.raises(LeaseLostError):
        Compaction(Table(spec, pipeline.spark)).step(check)

    [plan] = [one for one in pipeline.timeline(spec).pending() if one.action == "compaction"]
    pipeline.age_heartbeats()
    next_leader = Compaction(Table(spec, pipeline.spark))
    next_leader.step()
    assert next_leader.done == [plan.requested]
    assert contents(pipeline, spec) == rows


@pytest.mark.parametrize("remedy", ["compaction", "repair"])
def test_plan_that_a_full_disk_left_empty_is_removed(pipeline: Pipeline, remedy: str) -> None:
    """Hudi can neither read nor write the table with it; the service plans again, and no row is lost."""
    spec = pipeline.spec()
    fill(pipeline, spec, 2)
    rows = contents(pipeline, spec)
    with write_client(Table(spec, pipeline.spark), compaction_options(spec)) as client:
        client.scheduleCompaction(pipeline.spark._jvm.org.apache.hudi.common.util.Option.empty())
    timeline = pipeline.folder / "table" / ".hoodie" / "timeline"
    [plan] = timeline.glob("*.compaction.requested")
    plan.write_bytes(b"")
    with pytest.raises(Exception, match="unable to read commit metadata for instant"):
        contents(pipeline, spec)
    compaction = Compaction(Table(spec, pipeline.spark))

    if remedy == "repair":
        assert repair(spec, spark=pipeline.spark).plans == (plan.name.partition(".")[0],)
    compaction.step()

    assert not plan.exists()
    assert len(compaction.done) == 1
    assert contents(pipeline, spec) == rows


def test_rollback_whose_plan_a_full_disk_left_empty_is_removed(pipeline: Pipeline) -> None:
    """Nothing was rolled back by it, and the cleaning does not ask Hudi again and again."""
    spec = pipeline.spec()
    fill(pipeline, spec, 1)
    plan = pipeline.folder / "table" / ".hoodie" / "timeline" / "20260101000000000.rollback.requested"
    plan.write_bytes(b"")
    cleaning = Cleaning(Table(spec, pipeline.spark))

    cleaning.step()

    assert not plan.exists()
    assert (cleaning.rounds, cleaning.rolled_back) == (0, [])


def test_archival_keeps_the_active_timeline_short(pipeline: Pipeline) -> None:
    """Above the upper number of commits the oldest are archived, down to the lower one."""
    spec = pipeline.spec()
    fill(pipeline, spec, 4)
    told: list[str] = []
    cleaning = Cleaning(Table(spec, pipeline.spark), told.append)

    cleaning.step()
    cleaning.step()

    assert told == ["archived 2 commits, 2 are left active"]
    assert len(pipeline.timeline(spec).instants()) == 2
    assert [commit.batch_id for commit in pipeline.timeline(spec).commits] == [0, 1, 2, 3]


def test_a_writer_that_died_before_the_first_commit_is_rolled_back_after_it(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hudi has no schema to roll back with before; the services wait for it instead of failing."""
    monkeypatch.setattr(work, "SILENCE_MS", 0)
    spec = pipeline.spec()
    fill(pipeline, spec, 1)
    [dead] = pipeline.timeline(spec).commits
    for made in (pipeline.folder / "table" / ".hoodie" / "timeline").glob("*_*.deltacommit"):
        made.unlink()
    cleaning = Cleaning(Table(spec, pipeline.spark))

    cleaning.step()
    assert cleaning.rolled_back == []
    frame = pipeline.spark.createDataFrame([("N1", 1, 1, "n")], "k string, at bigint, x int, note string")
    assert Splice(spec, pipeline.spark).write(frame, "a")
    cleaning.step()

    assert cleaning.rolled_back == [dead.requested]


def test_only_a_silent_writer_is_rolled_back(pipeline: Pipeline) -> None:
    """An instant stays while its writer's heartbeat goes on, and is rolled back after it has stopped."""
    spec = pipeline.spec()
    fill(pipeline, spec, 1)
    rows = contents(pipeline, spec)
    cleaning = Cleaning(Table(spec, pipeline.spark))
    with write_client(Table(spec, pipeline.spark), writing(spec)) as client:
        instant = client.startCommit()
        cleaning.step()
        assert [found.requested for found in pipeline.timeline(spec).pending()] == [instant]
        assert cleaning.rolled_back == []

    pipeline.age_heartbeats()
    cleaning.step()

    assert cleaning.rolled_back == [instant]
    timeline = pipeline.timeline(spec)
    assert timeline.pending() == []
    assert "rollback" in {found.action for found in timeline.instants()}
    assert contents(pipeline, spec) == rows


def test_a_dead_write_is_off_the_timeline_before_its_files_are_removed(pipeline: Pipeline) -> None:
    """Without its instant it cannot be committed; the next cleaning goes on where a rollback was cut off."""
    spec = pipeline.spec()
    fill(pipeline, spec, 1)
    dead_writes: Any = pipeline.spark._jvm.io.asynclock.timeline.DeadWrites
    with write_client(Table(spec, pipeline.spark), writing(spec)) as client:
        instant = client.startCommit()
    pipeline.age_heartbeats()

    with write_client(Table(spec, pipeline.spark), cleaning_options(spec)) as client:
        assert list(dead_writes.withdraw(client, work.SILENCE_MS)) == [instant]
        assert [found.action for found in pipeline.timeline(spec).pending()] == ["rollback"]
        assert list(dead_writes.withdraw(client, work.SILENCE_MS)) == [instant]
    cleaning = Cleaning(Table(spec, pipeline.spark))
    cleaning.step()

    assert cleaning.rolled_back == [instant]
    assert pipeline.timeline(spec).pending() == []


def test_clustering_plan_is_refused_and_can_be_removed(pipeline: Pipeline) -> None:
    """A clustering plan stops streams and services by name, and the remedy that they give works."""
    spec = pipeline.spec()
    fill(pipeline, spec, 1)
    empty = pipeline.spark._jvm.org.apache.hudi.common.util.Option.empty
    with write_client(
        Table(spec, pipeline.spark), {**writing(spec), "hoodie.clustering.inline.max.commits": "1"}
    ) as client:
        instant = client.scheduleClustering(empty()).get()
    before = pipeline.everything()

    with pytest.raises(ClusteringPlanError, match=instant) as caught:
        pipeline.run(spec, streams=["a"])
    with pytest.raises(ClusteringPlanError, match=instant):
        run_services(spec, once=True, spark=pipeline.spark)

    assert {name for name in pipeline.everything() ^ before if not name.startswith("locks")} == set()
    remedy = re.search(r"pipeline repair, or: delete file://(\S+);", str(caught.value))
    assert remedy
    Path(remedy[1]).unlink()
    fill(pipeline, spec, 1)


def test_clustering_plan_ends_a_stream_that_runs(pipeline: Pipeline) -> None:
    """The batch that meets it ends the stream with the sentence that names it, not with Hudi's error."""
    spec = pipeline.spec()
    fill(pipeline, spec, 1)
    running = Background(lambda: pipeline.endless(spec, streams=["a"]))
    pipeline.deliver("a", {"k": "N0", "at": 10, "x": 10})
    wait_for(lambda: len(pipeline.timeline(spec).commits) == 2)
    empty = pipeline.spark._jvm.org.apache.hudi.common.util.Option.empty
    options = {**writing(spec), "hoodie.clustering.inline.max.commits": "1"}
    with write_client(Table(spec, pipeline.spark), options) as client:
        instant = client.scheduleClustering(empty()).get()

    pipeline.deliver("a", {"k": "N0", "at": 11, "x": 11})

    with pytest.raises(ClusteringPlanError, match=instant):
        running.result()
    assert [commit.batch_id for commit in pipeline.timeline(spec).commits] == [0, 1]


def test_each_service_has_one_leader(pipeline: Pipeline) -> None:
    """A service led elsewhere is left alone until its lease is free; the others go on meanwhile."""
    spec = pipeline.spec()
    fill(pipeline, spec, 4)
    told: list[str] = []
    stop = threading.Event()
    with sync.connect(spec.locks.url, settings=spec.locks.settings) as client:
        with client.lock("service/compaction").hold():
            services = Background(
                lambda: run_services(spec, spark=pipeline.spark, stop=stop, on_event=told.append)
            )
            wait_for(lambda: told)
            assert [sentence.split()[0] for sentence in told] == ["archived"]
        wait_for(lambda: any(sentence.startswith("compacted") for sentence in told))
        stop.set()
        report = services.result()
        states = {status.name: status.state for status in client.list("service/")}

    assert len(report.compactions) == 1
    assert report.cleanings >= 1
    assert states == {"service/cleaning": "free", "service/compaction": "free", "service/creation": "free"}


def writing(spec: Spec) -> dict[str, str]:
    """Options of a writer of the table."""
    return write_options(spec)
