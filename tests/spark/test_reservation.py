"""A reservation of the table: what it waits for, and what waits for it."""

from __future__ import annotations

import json
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import DataFrameWriter

from asynclock import sync
from asynclock.errors import AcquireTimeoutError, ConfigError, LeaseLostError
from asynclock.spark.errors import TableBusyError
from asynclock.spark.hudi.options import cleaning_options
from asynclock.spark.hudi.table import Table
from asynclock.spark.reader.snapshot import read
from asynclock.spark.runs.run import run_services
from asynclock.spark.services.work import Compaction, write_client
from asynclock.spark.source.checkpoint import Checkpoint
from asynclock.spark.work import reservation as reservation_module
from asynclock.spark.work.reservation import Gate, Reservation, reserve
from asynclock.spark.writer.account import Account
from asynclock.spark.writer.query import Query
from asynclock.spark.writer.splice import Splice
from tests.spark.pipeline_kit import (
    DEADLINE,
    Background,
    Pipeline,
    asynclock,
    break_whatever_is_renewed,
    command_here,
    wait_for,
    waiting,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from asynclock.spark.spec.model import Spec


@pytest.fixture
def pipeline(tmp_path: Path, spark: SparkSession) -> Pipeline:
    """An empty pipeline."""
    return Pipeline(tmp_path, spark)


class Pause:
    """Stops the first call of a method, before or after it, until ``go`` is set."""

    def __init__(self, patch: pytest.MonkeyPatch, owner: type, name: str, *, after: bool) -> None:
        self.reached = threading.Event()
        self.go = threading.Event()
        original: Callable[..., Any] = getattr(owner, name)
        pause = self

        def paused(*args: Any, **options: Any) -> Any:  # noqa: ANN401  as the method has them
            if not after:
                pause.stop()
            result = original(*args, **options)
            if after:
                pause.stop()
            return result

        patch.setattr(owner, name, paused)

    def stop(self) -> None:
        """Wait here, the first time."""
        if not self.reached.is_set():
            self.reached.set()
            assert self.go.wait(DEADLINE)


class Job:
    """Reserves the table in a thread of its own, and looks twice at what goes on meanwhile."""

    def __init__(self, pipeline: Pipeline, spec: Spec) -> None:
        self.reserved = threading.Event()
        self.end = threading.Event()
        self._pipeline = pipeline
        self._spec = spec
        self._work = Background(self._reserve)

    def _reserve(self) -> list[Any]:
        with reserve(self._spec, timeout=DEADLINE, spark=self._pipeline.spark):
            self.reserved.set()
            first = self._look()
            time.sleep(1.5)  # for as long a stream would look for files, three times
            seen = [first, self._look()]
            assert self.end.wait(DEADLINE)
            return [*seen, self._look()]

    def _look(self) -> tuple[list[Any], list[Any], set[str]]:
        timeline = self._pipeline.timeline(self._spec)
        files = {name for name in self._pipeline.everything() if not name.startswith("locks/")}
        return timeline.instants(), timeline.pending(), files

    def nothing_happened(self) -> bool:
        """End the reservation; whether nothing was in flight when it began, and nothing has begun since."""
        self.end.set()
        first, *later = self._work.result()
        return first[1] == [] and all(look == first for look in later)


STREAM_STEPS = {
    "before it looks": (Gate, "wait", False),
    "after it has looked": (Gate, "wait", True),
    "before the batch looks": (Query, "_proceed", False),
    "after the batch has looked": (Query, "_proceed", True),
    "before the write": (DataFrameWriter, "save", False),
    "after the commit": (DataFrameWriter, "save", True),
    "after the checkpoint is bound": (Checkpoint, "bind", True),
    "after the batch": (Account, "count", True),
}


@pytest.mark.parametrize("step", STREAM_STEPS)
def test_a_reservation_at_any_step_of_a_batch_finds_and_leaves_the_table_quiet(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """A reservation that begins at some step of a batch waits for it, and no other batch begins."""
    for at in range(3):
        pipeline.deliver("a", {"k": "N1", "at": at, "x": at})
    spec = pipeline.spec()
    owner, name, after = STREAM_STEPS[step]
    pause = Pause(monkeypatch, owner, name, after=after)
    running = Background(lambda: pipeline.run(spec, streams=["a"]))
    assert pause.reached.wait(DEADLINE)

    job = Job(pipeline, spec)
    assert not job.reserved.wait(1.0)
    pause.go.set()
    assert job.reserved.wait(DEADLINE)

    assert job.nothing_happened()
    report = running.result().streams[0]
    assert report.reservation_wait_seconds > 1
    assert report.rows == 3
    # A query that is stopped after its source has noted a file gives it to the next one, with another file.
    commits = [commit.batch_id for commit in pipeline.timeline(spec).commits]
    assert commits in ([0, 1, 2], [0, 1])
    assert [tuple(row) for row in read(spec, pipeline.spark).select("k", "x").collect()] == [("N1", 2)]


WRITE_STEPS = {
    "before it looks": (Gate, "wait", False),
    "after it has looked": (Gate, "wait", True),
    "before the write": (DataFrameWriter, "save", False),
    "after the commit": (DataFrameWriter, "save", True),
}


@pytest.mark.parametrize("step", WRITE_STEPS)
def test_a_reservation_at_any_step_of_a_write_finds_and_leaves_the_table_quiet(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """A reservation waits for a ``Splice.write`` in flight, and the next one waits for it."""
    spec = pipeline.spec()
    owner, name, after = WRITE_STEPS[step]
    pause = Pause(monkeypatch, owner, name, after=after)
    first = Background(lambda: Splice(spec, pipeline.spark).write(events(pipeline, 1), "a"))
    assert pause.reached.wait(DEADLINE)

    job = Job(pipeline, spec)
    assert not job.reserved.wait(1.0)
    second = Background(lambda: Splice(spec, pipeline.spark).write(events(pipeline, 2), "a"))
    pause.go.set()
    assert job.reserved.wait(DEADLINE)

    assert job.nothing_happened()
    assert first.result()
    assert second.result()
    assert len(pipeline.timeline(spec).commits) == 2


@pytest.mark.parametrize("after", [False, True])
def test_a_reservation_waits_for_a_service(
    pipeline: Pipeline,
    monkeypatch: pytest.MonkeyPatch,
    after: bool,  # noqa: FBT001
) -> None:
    """A compaction in flight is waited for, and none begins."""
    for at in range(3):
        pipeline.deliver("a", {"k": "N1", "at": at, "x": at})
    spec = pipeline.spec()
    pipeline.run(spec, streams=["a"])
    pause = Pause(monkeypatch, Compaction, "step", after=after)
    stop = threading.Event()
    services = Background(lambda: run_services(spec, spark=pipeline.spark, stop=stop))
    assert pause.reached.wait(DEADLINE)

    job = Job(pipeline, spec)
    assert not job.reserved.wait(1.0)
    pause.go.set()
    assert job.reserved.wait(DEADLINE)

    assert job.nothing_happened()
    wait_for(lambda: not pipeline.timeline(spec).pending())
    stop.set()
    assert services.result().compactions


def test_a_stream_without_files_makes_way_and_goes_on(pipeline: Pipeline) -> None:
    """A running stream to which nothing is delivered is not waited for, and reads what comes later."""
    pipeline.deliver("a", {"k": "N1", "at": 1, "x": 1})
    spec = pipeline.spec()
    stop = threading.Event()
    seen = threading.Event()
    running = Background(
        lambda: pipeline.endless(spec, streams=["a"], stop=stop, on_batch=lambda _: seen.set())
    )
    assert seen.wait(DEADLINE)

    with reserve(spec, timeout=DEADLINE, spark=pipeline.spark):
        pipeline.deliver("a", {"k": "N1", "at": 2, "x": 2})
        time.sleep(1.5)
        assert len(pipeline.timeline(spec).commits) == 1
    wait_for(lambda: len(pipeline.timeline(spec).commits) == 2)
    stop.set()

    assert running.result().streams[0].batches == 2


def test_a_reservation_gives_up_at_its_timeout(pipeline: Pipeline) -> None:
    """Who works on for longer than the timeout is named, and the table is not reserved."""
    spec = pipeline.spec()
    with sync.connect(spec.locks.url, settings=spec.locks.settings, holder="a slow one") as client:
        with (
            client.lock("stream/a").hold(),
            pytest.raises(TableBusyError, match=r"within 0.5 s.*stream/a, held by a slow one since"),
            reserve(spec, timeout=0.5, spark=pipeline.spark),
        ):
            pass

        assert client.lock("reservation/table").status().state == "free"


def test_a_parked_lock_of_another_lease_counts_for_nothing(pipeline: Pipeline) -> None:
    """What a dead worker left behind does not park its successor."""
    spec = pipeline.spec()
    locks = spec.locks
    with (
        sync.connect(locks.url, settings=locks.settings) as client,
        sync.connect(locks.url, settings=locks.settings, holder="the owner of an older lease") as other,
        client.lock("stream/a").hold(),
        other.lock("parked/stream/a").hold(),
        Reservation(Table(spec, pipeline.spark)) as reservation,
    ):
        assert list(reservation.in_flight()) == ["stream/a"]


def test_a_dead_writer_counts_for_as_long_as_it_may_still_commit(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lease that expired without a release is in flight until Hudi refuses the commit of its holder."""
    spec = pipeline.spec({"validity = 5.0": "validity = 2.0"})
    with spec.locks.connect() as client:
        client.lock("stream/a").acquire().release()
    record = pipeline.folder / "locks" / "stream" / "a.json"
    dead = {"expired": False, "validUntil": int((time.time() - 1) * 1000)}
    record.write_text(json.dumps(json.loads(record.read_text()) | dead, separators=(",", ":")))

    with Reservation(Table(spec, pipeline.spark)) as reservation, spec.locks.connect() as client:
        monkeypatch.setattr(reservation_module, "SILENCE_MS", 3_600_000)
        wait_for(lambda: reservation.in_flight() and client.lock("stream/a").status().state == "expired")
        assert reservation.in_flight()
        monkeypatch.setattr(reservation_module, "SILENCE_MS", 100)
        wait_for(lambda: not reservation.in_flight())


def test_a_reservation_waits_for_a_write_without_a_lease_too(pipeline: Pipeline) -> None:
    """An instant in flight whose writer is alive is waited for, whatever it was begun by."""
    spec = pipeline.spec()
    Splice(spec, pipeline.spark).write(events(pipeline, 1), "a")
    with (
        Reservation(Table(spec, pipeline.spark)) as reservation,
        write_client(Table(spec, pipeline.spark), cleaning_options(spec)) as client,
    ):
        instant = client.startCommit()
        assert [one.split(",")[0] for one in reservation.in_flight().values()] == [
            f"the deltacommit {instant}"
        ]


def test_a_second_reservation_waits_until_its_timeout(pipeline: Pipeline) -> None:
    """Another job waits for the one that has reserved the table; its error names that job."""
    spec = pipeline.spec()
    with (
        reserve(spec, spark=pipeline.spark),
        pytest.raises(AcquireTimeoutError, match=r"reservation/table.* not acquired within 0.5 s.*held"),
        reserve(spec, timeout=0.5, spark=pipeline.spark),
    ):
        pass


def test_a_write_says_what_it_waits_for_and_gives_up_in_time(
    pipeline: Pipeline, caplog: pytest.LogCaptureFixture
) -> None:
    """The lease of another writer, then a reservation: each is said at once, and ends the write in time."""
    spec = pipeline.spec()
    splice = Splice(spec, pipeline.spark)
    caplog.set_level("INFO", "asynclock")

    with (
        spec.locks.connect() as client,
        client.lock("stream/a").hold(),
        pytest.raises(AcquireTimeoutError, match=r"stream/a.* not acquired within 0.5 s"),
    ):
        splice.write(events(pipeline, 1), "a", timeout=0.5)
    job = Job(pipeline, spec)
    assert job.reserved.wait(DEADLINE)
    with pytest.raises(AcquireTimeoutError, match=r"reservation/table.* not acquired within 0.5 s"):
        splice.write(events(pipeline, 1), "a", timeout=0.5)
    assert job.nothing_happened()

    said = [record.getMessage() for record in caplog.records]
    assert any(f"waiting for {spec.locks.url}/stream/a, held by " in one for one in said)
    assert any("a write to stream a waits: the table is reserved, held by " in one for one in said)
    assert not pipeline.timeline(spec).exists()


def test_a_write_in_the_thread_that_reserved_the_table_is_refused(pipeline: Pipeline) -> None:
    """It would wait for itself."""
    spec = pipeline.spec()
    splice = Splice(spec, pipeline.spark)
    with (
        reserve(spec, spark=pipeline.spark),
        pytest.raises(ConfigError, match="this thread has reserved the table"),
    ):
        splice.write(events(pipeline, 1), "a")

    assert not pipeline.timeline(spec).exists()
    assert splice.write(events(pipeline, 1), "a")


def test_a_write_that_loses_its_lease_is_cancelled(pipeline: Pipeline) -> None:
    """``Splice.write`` under a lease of its own cancels its jobs when that is lost, and commits nothing."""
    spec = pipeline.spec({"validity = 5.0": "validity = 2.0"})
    gate = pipeline.folder / "gate"
    writing = Background(lambda: Splice(spec, pipeline.spark).write(waiting(events(pipeline, 1), gate), "a"))
    tracker = pipeline.spark.sparkContext.statusTracker()
    try:
        wait_for(tracker.getActiveJobsIds)

        with sync.connect(spec.locks.url, settings=spec.locks.settings) as client:
            break_whatever_is_renewed(client.lock("stream/a"))
            with pytest.raises(LeaseLostError, match="stream/a"):
                writing.result()

        assert not pipeline.timeline(spec).commits
        wait_for(lambda: not tracker.getActiveJobsIds())
    finally:
        gate.touch()  # ends the tasks, which outlive their job


def test_a_write_whose_lease_is_lost_before_its_commit_writes_nothing(pipeline: Pipeline) -> None:
    """A caller's own lease counts as well: what is lost before Hudi begins leaves no instant."""
    spec = pipeline.spec({"validity = 5.0": "validity = 2.0"})
    splice = Splice(spec, pipeline.spark)
    with spec.locks.connect() as client:
        lease = client.lock("stream/a").acquire()
        splice.write(events(pipeline, 1), "a", lease=lease)
        before = pipeline.timeline(spec).instants()
        break_whatever_is_renewed(client.lock("stream/a"))
        wait_for(lambda: not lease.held)

        with pytest.raises(LeaseLostError, match="stream/a"):
            splice.write(events(pipeline, 2), "a", lease=lease)

    assert pipeline.timeline(spec).instants() == before


def test_the_command_runs_cmd_under_the_reservation(pipeline: Pipeline) -> None:
    """``asynclock pipeline reserve`` runs CMD with the lease in its environment, and frees it afterwards."""
    spec = pipeline.spec()
    path = str(spec.path)
    script = 'echo "$ASYNCLOCK_LOCK $ASYNCLOCK_FENCING_TOKEN"; exit 7'

    done = asynclock("pipeline", "reserve", path, "--wait", "60", "--", "sh", "-c", script)

    assert done.returncode == 7, done.stderr
    target, token = done.stdout.split()
    assert target == f"{spec.locks.url}/reservation/table"
    with spec.locks.connect() as client:
        status = client.lock("reservation/table").status()
        assert (status.state, status.fencing_token) == ("free", int(token))
        with client.lock("reservation/table").hold():
            done = command_here("reserve", path, "--wait", "0", "--", "echo", "no")

    assert (done.returncode, done.stdout) == (75, "")
    assert "reservation/table" in done.stderr


def events(pipeline: Pipeline, *ats: int) -> DataFrame:
    """Events of stream a."""
    rows = [("N1", at, at, "note") for at in ats]
    return pipeline.spark.createDataFrame(rows, "k string, at bigint, x int, note string")
