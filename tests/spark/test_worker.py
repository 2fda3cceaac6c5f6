"""How work is done: again after an error that passes, never in a restore, never beside a reservation."""

from __future__ import annotations

import logging
import random
import threading
from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import Py4JJavaError

from asynclock.errors import LeaseLostError
from asynclock.spark.errors import UnfinishedRestoreError
from asynclock.spark.hudi.restores import RestoreMark
from asynclock.spark.hudi.table import Table
from asynclock.spark.retry import CONFLICT, PASSING, READ, Retry, retry
from asynclock.spark.runs.run import run_services
from asynclock.spark.work.reservation import Gate, reserve
from asynclock.spark.work.worker import Worker, leading, reserved
from asynclock.spark.writer.conflicts import Conflicts
from asynclock.spark.writer.splice import Splice
from tests.spark.pipeline_kit import Background, Pipeline, break_whatever_is_renewed, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from asynclock.spark.retry import Failed


@pytest.fixture
def pipeline(tmp_path: Path, spark: SparkSession) -> Pipeline:
    """An empty pipeline."""
    return Pipeline(tmp_path, spark)


def java_error(spark: SparkSession, name: str, *, wrapped: bool = False) -> Py4JJavaError:
    """An exception of the JVM, as py4j raises it."""
    jvm: Any = spark._jvm
    exception = getattr(jvm.org.apache.hudi.exception, name)("overlapping writes")
    if wrapped:
        exception = jvm.java.lang.RuntimeException("job failed", exception)
    return Py4JJavaError("", exception)


def failing(*outcomes: object) -> Callable[[], str]:
    """A function that raises or returns one after the other, the last one forever."""
    left = list(outcomes)

    def call() -> str:
        outcome = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(outcome, Exception):
            raise outcome
        return str(outcome)

    return call


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize(
    "name",
    [
        "HoodieWriteConflictException",
        "HoodieEarlyConflictDetectionException",
        "HoodieClusteringUpdateException",
    ],
)
def test_a_write_that_conflicts_is_written_again_under_the_same_lease(
    spark: SparkSession, name: str, *, wrapped: bool
) -> None:
    """Each attempt after the first is preceded by a pause and a look at the lease."""
    checks, pauses, conflicts = list[int](), list[float](), Conflicts()

    done = retry(
        failing(java_error(spark, name, wrapped=wrapped), java_error(spark, name), "written"),
        CONFLICT,
        check=lambda: checks.append(len(pauses)),
        on_failure=lambda failed: conflicts.note("a batch", failed),
        sleep=pauses.append,
        rng=random.Random(1),
    )

    assert done == "written"
    assert conflicts.wasted.conflicts == 2
    assert checks == [1, 2]
    assert all(0 <= pause <= 5 for pause in pauses)


def test_a_write_that_fails_for_another_reason_is_not_repeated(
    spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    """Only a conflict says that nothing of the write can be read."""
    failures, conflicts = list[Any](), Conflicts()
    caplog.set_level(logging.INFO)

    def note(failed: Failed) -> None:
        failures.append((failed.attempt, failed.pause))
        conflicts.note("a batch", failed)

    with pytest.raises(Py4JJavaError):
        retry(failing(java_error(spark, "HoodieException")), CONFLICT, on_failure=note, sleep=pytest.fail)

    assert failures == [(1, None)]
    assert (conflicts.wasted.conflicts, caplog.messages) == (0, [])


def test_a_write_that_always_conflicts_gives_up_after_twenty_attempts(
    spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    """The error of the last attempt is the caller's, and its work is wasted too."""
    pauses, conflicts = list[float](), Conflicts()
    caplog.set_level(logging.INFO, "asynclock.spark.writer.conflicts")

    with pytest.raises(Py4JJavaError, match="overlapping writes"):
        retry(
            failing(java_error(spark, "HoodieWriteConflictException")),
            CONFLICT,
            on_failure=lambda failed: conflicts.note("a batch", failed),
            sleep=pauses.append,
        )

    assert (len(pauses), conflicts.wasted.conflicts) == (19, 20)
    assert [message.partition(" after ")[0] for message in caplog.messages] == [
        f"a batch: HoodieWriteConflictException at attempt {attempt}" for attempt in range(1, 20)
    ]


def test_a_lease_that_ends_in_a_pause_ends_the_attempts(spark: SparkSession) -> None:
    """The loss is raised, and nothing is written again."""
    lost = LeaseLostError(key="k", owner="o", fencing_token=1, reason="expired")
    calls = failing(java_error(spark, "HoodieWriteConflictException"), AssertionError("written again"))

    with pytest.raises(LeaseLostError):
        retry(calls, CONFLICT, check=failing(lost), sleep=lambda _: None)


def test_a_read_of_the_timeline_is_tried_four_times_more(spark: SparkSession) -> None:
    """What an archiving takes away between listing and reading is looked for again, at longer pauses."""
    pauses: list[float] = []

    with pytest.raises(Py4JJavaError):
        retry(failing(java_error(spark, "HoodieIOException")), READ, sleep=pauses.append)

    assert pauses == [0.05, 0.1, 0.2, 0.4]
    with pytest.raises(ValueError, match="bad"):
        retry(failing(ValueError("bad")), READ, sleep=pytest.fail)


def test_pauses_are_random_longer_each_time_and_bounded(spark: SparkSession) -> None:
    """They stay under one that doubles up to its bound, and end after that many attempts."""
    error, attempts = java_error(spark, "HoodieLockException"), Retry(PASSING)
    bounds = [min(30.0, 2.0**number) for number in range(PASSING.most)]

    pauses = [attempts.after(error) for _ in bounds]

    assert all(pause is not None and 0 < pause <= bound for pause, bound in zip(pauses, bounds, strict=True))
    assert (attempts.after(error), attempts.count) == (None, PASSING.most)
    attempts.reset()
    assert attempts.after(ValueError("bad")) is None
    assert attempts.after(error) is not None


def test_a_thread_that_has_reserved_two_tables_writes_to_both_afterwards(
    tmp_path: Path, spark: SparkSession
) -> None:
    """Whichever is reserved first: a reservation that has ended is forgotten."""
    pipelines = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        pipelines.append(Pipeline(tmp_path / name, spark))
    one, two = (each.spec() for each in pipelines)

    with reserve(one, spark=spark), reserve(two, spark=spark):
        pass

    frame = spark.createDataFrame([("N1", 1, 1, "n")], "k string, at bigint, x int, note string")
    assert Splice(one, spark).write(frame, "a")
    assert Splice(two, spark).write(frame, "a")


def test_a_leader_that_leads_again_looks_for_a_restore_again(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it had no lease, a restore did not wait for it, and may have been cut off."""
    pipeline.deliver("a", {"k": "N1", "at": 1, "x": 1})
    spec = pipeline.spec({"validity = 5.0": "validity = 2.0"})
    pipeline.run(spec, streams=["a"])
    looked, mark = list[bool](), pipeline.table(spec).restore_mark
    refuse = RestoreMark.refuse

    def look(self: RestoreMark) -> None:
        looked.append(True)
        refuse(self)

    monkeypatch.setattr(RestoreMark, "refuse", look)
    stop = threading.Event()
    running = Background(lambda: run_services(spec, spark=pipeline.spark, stop=stop))
    wait_for(lambda: len(looked) == 2)  # compaction and cleaning
    with spec.locks.connect() as client:
        mark.put("20260101000000000")
        break_whatever_is_renewed(client.lock("service/cleaning"))

    with pytest.raises(UnfinishedRestoreError):
        running.result()


def test_services_that_are_stopped_while_a_restore_runs_end_well(pipeline: Pipeline) -> None:
    """The mark of a restore is no damage while its reservation lasts."""
    pipeline.deliver("a", {"k": "N1", "at": 1, "x": 1})
    spec = pipeline.spec()
    pipeline.run(spec, streams=["a"])
    stop = threading.Event()
    with reserve(spec, spark=pipeline.spark), spec.locks.connect() as client:
        pipeline.table(spec).restore_mark.put("20260101000000000")
        running = Background(lambda: run_services(spec, spark=pipeline.spark, stop=stop))
        wait_for(lambda: client.lock("parked/service/cleaning").status().state == "held")
        stop.set()

        assert running.result().cleanings == 0


def test_a_worker_without_a_gate_looks_for_a_restore_once(pipeline: Pipeline) -> None:
    """Who has reserved the table waits for nobody, and nobody else begins a restore."""
    spec = pipeline.spec()
    mark = pipeline.table(spec).restore_mark
    with spec.locks.connect() as client, client.lock("reservation/table").hold() as lease:
        worker = Worker(Table(spec, pipeline.spark), lease, "a test")
        assert (worker.admit(), worker.must_make_way()) == (0.0, False)
        mark.put("20260101000000000")
        assert worker.admit() == 0.0
        with pytest.raises(UnfinishedRestoreError):
            Worker(Table(spec, pipeline.spark), lease, "a test").admit()


def test_a_job_that_reserves_the_table_refuses_one_that_is_half_restored(pipeline: Pipeline) -> None:
    """Every such job does, without asking for it, but the one that finishes the restore."""
    spec = pipeline.spec()
    table = Table(spec, pipeline.spark)
    table.restore_mark.put("20260101000000000")

    with pytest.raises(UnfinishedRestoreError), reserved(table, "a test"):
        pytest.fail("it began")
    with reserved(table, "a test", finishes=True) as worker:
        worker.lease.check()


def test_a_piece_that_fails_under_a_lost_lease_raises_the_loss(pipeline: Pipeline) -> None:
    """Its own error may be a consequence of the loss; no other piece begins."""
    spec = pipeline.spec({"validity = 5.0": "validity = 2.0"})
    with spec.locks.connect() as client:
        lease = client.lock("stream/a").acquire()
        worker = Worker(
            Table(spec, pipeline.spark), lease, "a test", gate=Gate(spec, client, lease, "a test")
        )

        def lose() -> None:
            with worker.piece():
                break_whatever_is_renewed(client.lock("stream/a"))
                wait_for(lambda: not lease.held)
                raise ValueError("a job was cancelled")

        with pytest.raises(LeaseLostError):
            lose()
        with pytest.raises(LeaseLostError):
            worker.piece().__enter__()


def test_a_stop_before_the_lease_leaves_no_worker(pipeline: Pipeline) -> None:
    """The wait for a lease ends with the stop, and nothing is raised."""
    spec = pipeline.spec()
    stop = threading.Event()
    stop.set()
    with (
        spec.locks.connect() as client,
        client.lock("stream/a").hold(),
        spec.locks.connect() as other,
        leading(Table(spec, pipeline.spark), other, "stream/a", "a test", stop=stop) as worker,
    ):
        assert worker is None
