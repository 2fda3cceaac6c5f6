"""Errors that pass are survived, each batch is written once, and one stream's end is not the others'."""

from __future__ import annotations

import fcntl
import json
import threading
import time
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import Py4JJavaError

from asynclock import sync
from asynclock._cli.app import run_command
from asynclock.errors import BackendUnavailableError, LeaseLostError, OutcomeUnknownError, SpecError
from asynclock.spark import faults, hoodie
from asynclock.spark.errors import BadRowsError, StreamFailedError
from asynclock.spark.hudi.health import leftovers
from asynclock.spark.hudi.locks import CREATION_LOCK
from asynclock.spark.hudi.meta import clear_unfinished
from asynclock.spark.hudi.table import Table
from asynclock.spark.reader.snapshot import read
from asynclock.spark.retry import PASSING
from asynclock.spark.runs.run import run
from asynclock.spark.services.work import Cleaning
from asynclock.spark.work.leases import acquire_until
from asynclock.spark.writer import splice
from asynclock.spark.writer.splice import Splice
from tests.spark.pipeline_kit import (
    SUMMED,
    Background,
    Pipeline,
    break_whatever_is_renewed,
    retries,
    wait_for,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from asynclock.spark.results import BatchReport, RunReport
    from asynclock.spark.spec.model import Spec

COLUMNS = "k string, at bigint, x int, note string"


@pytest.fixture
def pipeline(tmp_path: Path, spark: SparkSession) -> Pipeline:
    """An empty pipeline."""
    return Pipeline(tmp_path, spark)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hudi waits a tenth of a second for its commit lock, and retries follow at once."""
    options = splice.write_options

    def short(*arguments: Any, **named: Any) -> dict[str, str]:  # noqa: ANN401  as the original
        return options(*arguments, **named) | {
            hoodie.WRITE_LOCK_WAIT_TIME_MS: "100",
            hoodie.WRITE_LOCK_CLIENT_NUM_RETRIES: "1",
            "hoodie.write.lock.client.wait_time_ms_between_retry": "50",
        }

    monkeypatch.setattr(splice, "write_options", short)
    retries(monkeypatch, longest=0.1)


@contextmanager
def commit_lock_held(pipeline: Pipeline) -> Iterator[None]:
    """Hold the lock that Hudi takes for each commit, as another writer does."""
    with (pipeline.folder / "table" / ".hoodie" / ".locks" / "asynclock.lock").open("r+b") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        yield


def started(pipeline: Pipeline, spec: Spec) -> None:
    """Commit the first batch of stream a, and deliver its second."""
    pipeline.deliver("a", {"k": "N1", "at": 1, "x": 1})
    pipeline.run(spec, streams=["a"])
    pipeline.deliver("a", {"k": "N1", "at": 2, "x": 2})


def batches(pipeline: Pipeline, spec: Spec, stream: str = "a") -> list[int]:
    """The numbers of the committed batches of a stream."""
    return [commit.batch_id for commit in pipeline.timeline(spec).commits if commit.stream == stream]


def java_error(spark: SparkSession, *kinds: str, message: str = "as thrown by Java") -> Py4JJavaError:
    """A real exception of the JVM with its causes, the outermost first."""
    jvm: Any = spark._jvm
    thrown: Any = None
    for kind in reversed(kinds):
        package: Any = jvm
        for part in kind.split("."):
            package = getattr(package, part)
        thrown = package(message) if thrown is None else package(message, thrown)
    return Py4JJavaError(message, thrown)


HUDI = "org.apache.hudi.exception."


@pytest.mark.parametrize(
    "message",
    [
        "Heartbeat for instant 20261123010203004 has expired, last heartbeat 1795228327960",
        "File file:/a table/.hoodie/timeline/20261123010203004.deltacommit.inflight does not exist!",
    ],
)
def test_a_write_that_counted_as_dead_is_written_again(spark: SparkSession, message: str) -> None:
    """A driver that was paused fails at its commit, also where its write was rolled back meanwhile."""
    error = java_error(spark, f"{HUDI}HoodieUpsertException", "java.lang.RuntimeException", message=message)

    assert faults.is_passing(error)
    assert faults.sentence(error) == (
        "the driver was silent for too long, so this write counts as dead and nothing of it is committed: "
        f"RuntimeException: {message}"
    )


@pytest.mark.parametrize(
    ("kinds", "message", "passing"),
    [
        (["java.io.IOException"], "503 Slow Down", True),
        (["org.apache.spark.SparkException", "java.net.SocketTimeoutException"], "Read timed out", True),
        ([f"{HUDI}HoodieUpsertException", f"{HUDI}HoodieLockException"], "Unable to acquire", True),
        ([f"{HUDI}HoodieException", f"{HUDI}HoodieHeartbeatException"], "heartbeat has expired", True),
        ([f"{HUDI}HoodieWriteConflictException"], "overlapping writes", True),
        (["org.apache.spark.SparkException"], f"task 1 failed: {HUDI}HoodieWriteConflictException: x", True),
        ([f"{HUDI}HoodieClusteringUpdateException"], "file is being clustered", True),
        (["org.apache.spark.SparkException"], "task 1 failed: ExecutorLostFailure (executor 1 exited)", True),
        (["org.apache.spark.SparkException"], "a row cannot be written: k is missing", False),
        (["org.apache.spark.SparkException", "java.lang.IllegalArgumentException"], "no", False),
        (["java.io.IOException", "java.nio.file.AccessDeniedException"], "403", False),
        (["java.lang.RuntimeException", "java.io.NotSerializableException"], "a.b.C", False),
    ],
)  # fmt: skip
def test_errors_pass_by_their_causes(
    spark: SparkSession, kinds: list[str], message: str, *, passing: bool
) -> None:
    """What ended a store's answer, an executor or a wait for the commit lock passes; nothing else does."""
    error = java_error(spark, *kinds, message=message)

    assert faults.is_passing(error) is passing
    assert faults.sentence(error) == f"{kinds[-1].rpartition('.')[2]}: {message}"


def test_errors_of_the_locks_pass_unless_they_are_verdicts() -> None:
    """A store of locks that does not answer is met with a retry; a lost lease is not."""
    about = {"backend": "s3", "operation": "get", "key": "k", "detail": "d"}
    lost = LeaseLostError(key="k", owner="o", fencing_token=1, reason="r")

    assert faults.is_passing(BackendUnavailableError(**about))
    assert faults.is_passing(OutcomeUnknownError(**about))
    assert not faults.is_passing(lost)
    assert not faults.is_passing(ValueError("bad"))


@pytest.mark.usefixtures("impatient")
def test_a_batch_waits_out_a_commit_lock_that_is_held_too_long(
    pipeline: Pipeline, caplog: pytest.LogCaptureFixture
) -> None:
    """Hudi gives up on its lock, the batch does not: it is committed once, and the report counts retries."""
    spec = pipeline.spec()
    started(pipeline, spec)
    seen: list[BatchReport] = []
    with commit_lock_held(pipeline):
        running = Background(lambda: pipeline.run(spec, streams=["a"], on_batch=seen.append))
        wait_for(lambda: "HoodieLockException" in caplog.text)
    report = running.result().streams[0]

    assert batches(pipeline, spec) == [0, 1]
    assert report.retries == seen[0].retries > 0
    assert (report.batches, report.rows, report.skipped) == (1, 1, 0)
    assert f"retry 1 of {PASSING.most}" in caplog.text
    assert read(spec, pipeline.spark).first().x == 2


@pytest.mark.usefixtures("impatient")
def test_an_attempt_that_failed_at_its_commit_is_repeated_and_rolled_back(
    pipeline: Pipeline, caplog: pytest.LogCaptureFixture
) -> None:
    """What such an attempt leaves in flight disturbs neither the next attempt nor readers, and is removed."""
    spec = pipeline.spec(SUMMED)
    started(pipeline, spec)
    keys = (f"N{number}" for number in range(100_000))
    pipeline.deliver("a", *({"k": key, "at": 3, "x": 3, "note": "x" * 40} for key in keys))
    running = Background(lambda: pipeline.run(spec, streams=["a"]))
    wait_for(lambda: batches(pipeline, spec) == [0, 1])
    wait_for(lambda: any(one.state == "INFLIGHT" for one in pipeline.timeline(spec).pending()))
    with commit_lock_held(pipeline):
        wait_for(lambda: "HoodieLockException" in caplog.text)
    report = running.result().streams[0]

    assert report.retries > 0
    assert batches(pipeline, spec) == [0, 1, 2]
    (dead,) = pipeline.timeline(spec).pending()
    pipeline.age_heartbeats()
    cleaning = Cleaning(Table(spec, pipeline.spark))
    cleaning.step()
    assert cleaning.rolled_back == [dead.requested]
    assert pipeline.timeline(spec).pending() == leftovers(pipeline.timeline(spec)) == []
    shown = read(spec, pipeline.spark)
    assert shown.where("x = 3").count() == 100_000 - 1
    assert shown.where("k = 'N1'").first().x == 1 + 2 + 3


def test_a_commit_whose_answer_was_lost_is_not_repeated(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An attempt that fails after its commit counts as that commit, with its rows."""
    spec = pipeline.spec(SUMMED)
    started(pipeline, spec)
    write = Splice.write
    lost = [java_error(pipeline.spark, "java.io.IOException")]

    def write_and_fail(*arguments: Any, **named: Any) -> bool:  # noqa: ANN401  as the original
        done = write(*arguments, **named)
        if lost:
            raise lost.pop()
        return done

    monkeypatch.setattr(Splice, "write", write_and_fail)
    retries(monkeypatch, longest=0.1)

    report = pipeline.run(spec, streams=["a"]).streams[0]

    assert batches(pipeline, spec) == [0, 1]
    assert (report.batches, report.rows, report.skipped, report.retries) == (1, 1, 0, 1)
    assert read(spec, pipeline.spark).first().x == 1 + 2


@pytest.mark.usefixtures("impatient")
def test_retries_end(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error that passes for other writers but never for this one ends the stream with what to do."""
    retries(monkeypatch, most=2)
    spec = pipeline.spec()
    started(pipeline, spec)
    reports: list[RunReport] = []

    with commit_lock_held(pipeline), pytest.raises(StreamFailedError, match="run it again") as caught:
        pipeline.run(spec, streams=["a"], on_report=reports.append)

    assert (caught.value.stream, caught.value.passing) == ("a", True)
    assert "HoodieLockException: Unable to acquire the lock" in caught.value.reason
    assert reports[0].streams[0].retries == 2
    assert reports[0].streams[0].error == caught.value.reason
    assert batches(pipeline, spec) == [0]


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("how", ["stop", "loss"])
def test_a_wait_for_the_next_attempt_ends_at_once(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    """A stop and the loss of the lease end the wait, and no further attempt is made."""
    retries(monkeypatch, first=60.0, longest=60.0, shortest=60.0)
    spec = pipeline.spec()
    started(pipeline, spec)
    stop = threading.Event()
    with commit_lock_held(pipeline):
        running = Background(lambda: pipeline.run(spec, streams=["a"], stop=stop))
        wait_for(lambda: "in 60.0 s" in caplog.text)
    began = time.monotonic()

    if how == "stop":
        stop.set()
        running.result()
    else:
        with sync.connect(spec.locks.url, settings=spec.locks.settings) as client:
            break_whatever_is_renewed(client.lock("stream/a"))
        with pytest.raises(LeaseLostError):
            running.result()

    assert time.monotonic() - began < 20
    assert batches(pipeline, spec) == [0]


def test_a_stop_ends_the_wait_for_another_writer_that_creates_the_table(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long the first write of the other takes; nothing is written, and the next run writes it."""
    spec = pipeline.spec()
    pipeline.deliver("a", {"k": "N1", "at": 1, "x": 1})
    stop = threading.Event()
    waits: list[sync.Lock] = []

    def counted(lock: sync.Lock, *arguments: Any, **named: Any) -> sync.Lease:  # noqa: ANN401  as the original
        waits.append(lock)
        return acquire_until(lock, *arguments, **named)

    monkeypatch.setattr(splice, "acquire_until", counted)
    with sync.connect(spec.locks.url) as client, client.lock(CREATION_LOCK).hold():
        running = Background(lambda: pipeline.endless(spec, streams=["a"], stop=stop))
        wait_for(lambda: waits)
        began = time.monotonic()
        stop.set()
        report = running.result()
        seconds = time.monotonic() - began

    assert seconds < 20
    assert (report.streams[0].batches, report.failed) == (0, ())
    assert not pipeline.timeline(spec).exists()
    assert pipeline.run(spec, streams=["a"]).streams[0].rows == 1


@pytest.mark.parametrize(
    "left", [(), ("hoodie.properties", ".hoodie.properties.crc")], ids=["folders", "an empty file"]
)
def test_a_creation_that_was_cut_off_is_begun_anew(pipeline: Pipeline, left: Sequence[str]) -> None:
    """A kill, or a full disk: what is there looks like a table to Hudi, and is none."""
    meta = pipeline.folder / "table" / ".hoodie"
    for name in ("timeline/history", ".aux/.bootstrap", ".schema", ".temp"):
        (meta / name).mkdir(parents=True)
    for name in left:
        (meta / name).touch()
    pipeline.deliver("a", {"k": "N1", "at": 1, "x": 1})
    spec = pipeline.spec()

    report = pipeline.run(spec, streams=["a"])

    assert report.streams[0].rows == 1
    assert read(spec, pipeline.spark).count() == 1


def test_a_table_whose_properties_are_no_longer_read_is_left_alone(pipeline: Pipeline) -> None:
    """Damage is no creation that was cut off: nothing is removed, and the write fails."""
    pipeline.deliver("a", {"k": "N1", "at": 1, "x": 1})
    spec = pipeline.spec()
    pipeline.run(spec, streams=["a"])
    (pipeline.folder / "table" / ".hoodie" / "hoodie.properties").write_bytes(b"")
    before = pipeline.everything()

    clear_unfinished(pipeline.spark, spec.table.path)

    assert pipeline.everything() == before


def test_a_stream_that_fails_ends_alone(pipeline: Pipeline, caplog: pytest.LogCaptureFixture) -> None:
    """The other stream goes on, the lease is free, the report names the error, and the run raises it."""
    pipeline.deliver("a", {"k": "N1", "at": "noon"})
    pipeline.deliver("b", {"k": "N1", "seen": "2024-05-01T12:00:00Z", "y": 1})
    spec = pipeline.spec()
    stop = threading.Event()
    reports: list[RunReport] = []
    running = Background(lambda: run(spec, spark=pipeline.spark, stop=stop, on_report=reports.append))
    wait_for(lambda: "stream a has failed and ended: stream 'a': 1 bad rows" in caplog.text)
    pipeline.deliver("b", {"k": "N1", "seen": "2024-05-02T12:00:00Z", "y": 2})
    wait_for(lambda: batches(pipeline, spec, "b") == [0, 1])
    with sync.connect(spec.locks.url, settings=spec.locks.settings) as client:
        wait_for(lambda: client.lock("stream/a").status().state == "free")
        assert client.lock("stream/b").status().state == "held"
    stop.set()

    with pytest.raises(BadRowsError):
        running.result()

    (report,) = reports
    assert report.failed == ("a",)
    assert "1 bad rows in batch 0" in (report.streams[0].error or "")
    assert report.streams[1].batches == 2


def test_fail_fast_ends_all_streams(pipeline: Pipeline) -> None:
    """Asked for it, the first stream that fails ends the others."""
    pipeline.deliver("a", {"k": "N1", "at": "noon"})
    spec = pipeline.spec()

    with pytest.raises(BadRowsError):
        run(spec, spark=pipeline.spark, fail_fast=True)


def test_a_batch_without_a_good_row_leaves_an_instant(pipeline: Pipeline) -> None:
    """A batch of bad rows, and one without rows, are committed, read as nothing and never read again."""
    pipeline.deliver("a", {"k": None, "at": 1})
    pipeline.deliver("a")
    pipeline.deliver("a", {"k": "N1", "at": 1, "x": 1})
    spec = pipeline.spec({"columns = { at": 'on_bad_row = "quarantine"\ncolumns = { at'})

    report = pipeline.run(spec, streams=["a"]).streams[0]

    assert (report.batches, report.rows, report.quarantined) == (3, 2, 1)
    commits = pipeline.timeline(spec).commits
    assert [(commit.stream, commit.batch_id) for commit in commits] == [("a", 0), ("a", 1), ("a", 2)]
    assert len({commit.table_id for commit in commits}) == 1
    assert read(spec, pipeline.spark).count() == 1


def test_a_table_of_bad_rows_alone_is_read_as_empty(pipeline: Pipeline) -> None:
    """After a first batch without a good row the table exists, its checkpoint is bound, a repeat skipped."""
    pipeline.deliver("a", {"k": None, "at": 1})
    spec = pipeline.spec({"columns = { at": 'on_bad_row = "quarantine"\ncolumns = { at'})
    pipeline.run(spec, streams=["a"])
    pipeline.forget_last_batch("a")

    report = pipeline.run(spec, streams=["a"]).streams[0]

    assert (report.batches, report.skipped) == (1, 1)
    assert read(spec, pipeline.spark).collect() == []
    assert (pipeline.folder / "checkpoints" / "a" / "asynclock-table.json").exists()


def test_reading_while_the_first_commit_is_made_says_so(pipeline: Pipeline) -> None:
    """Whenever a read comes, it gives one sentence or the rows of the whole first commit."""
    spec = pipeline.spec()
    frame = pipeline.spark.range(20_000).selectExpr(
        "string(id) k", "id at", "int(id) x", "repeat('x', 40) note"
    )
    writing = Background(lambda: Splice(spec, pipeline.spark).write(frame, "a"))
    said: dict[str, None] = {}
    found = None
    while found is None:
        try:
            found = read(spec, pipeline.spark).count()
        except SpecError as error:
            said[error.reason.partition(";")[0]] = None

    assert found == 20_000
    assert list(said) == ["there is no table yet", "nothing is committed yet"]
    writing.result()


@pytest.mark.usefixtures("impatient")
def test_exit_code_says_that_a_stream_failed(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A stream that failed makes the command fail: 1 for its data, 69 for its store; the report names it."""
    monkeypatch.setattr("asynclock.spark.run", partial(run, spark=pipeline.spark))
    spec = pipeline.spec()
    pipeline.deliver("a", {"k": "N1", "at": "noon"})
    pipeline.deliver("b", {"k": "N1", "seen": "2024-05-01T12:00:00Z", "y": 1})

    assert run_command(["pipeline", "run", str(spec.path), "--once"]) == 1
    bad = capsys.readouterr()
    retries(monkeypatch, most=0)
    pipeline.deliver("b", {"k": "N1", "seen": "2024-05-02T12:00:00Z", "y": 1})
    with commit_lock_held(pipeline):
        assert run_command(["pipeline", "run", str(spec.path), "--once", "--stream", "b", "--json"]) == 69
    locked = capsys.readouterr()

    assert "a: failed: stream 'a': 1 bad rows in batch 0" in bad.out
    assert "b: 1 events read in 1 batches" in bad.out
    report = json.loads(locked.out.splitlines()[-1])
    assert report["streams"][0]["error"].startswith("HoodieLockException: Unable to acquire the lock")
    assert "stream 'b' has ended: HoodieLockException" in locked.err
