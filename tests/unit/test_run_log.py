"""The lines that a run leaves in its folder, without Spark."""

from __future__ import annotations

import errno
import json
import logging
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any
from unittest.mock import MagicMock

import pytest

import asynclock.sync
from asynclock.errors import ConfigError
from asynclock.spark.results import BatchReport
from asynclock.spark.runs.batches import BatchRecorder
from asynclock.spark.runs.lines import Line, RunLog, read_lines
from asynclock.spark.runs.recording import add_event, recorded
from asynclock.spark.runs.resources import Resources
from asynclock.spark.runs.totals import RunTotals, Totals, quantile
from tests.unit.specs import table_spec

if TYPE_CHECKING:
    from pathlib import Path

BATCH = {
    "stream": "a", "rows": 10, "quarantined": 1, "retries": 2, "conflicts": 3, "seconds": 2.0,
    "look_seconds": 0.01, "commit_lock_wait_seconds": 0.03, "commit_lock_hold_seconds": 0.5,
}  # fmt: skip


def lines(folder: Path) -> list[Line]:
    """What can be read there."""
    return list(read_lines(folder))


def written(folder: Path, *added: tuple[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """The objects of a run of these lines, which ended well."""
    run_log = RunLog(folder, "writer", wall=lambda: 1_700_000_000.5)
    for kind, fields in added:
        run_log.add(kind, **fields)
    run_log.close()
    return [json.loads(line) for line in run_log.path.read_text().splitlines()]


def summed(*taken: tuple[str, dict[str, Any]], seconds: float = 10.0) -> RunTotals:
    """The sums over lines, the last of them some seconds after the first."""
    totals = Totals()
    for number, (kind, fields) in enumerate(taken):
        totals.take(100.0 + seconds * (number == len(taken) - 1), kind, fields)
    return totals.summary()


def test_each_line_says_when_and_by_whom(tmp_path: Path) -> None:
    """In UTC with milliseconds, in a file named by the role and the id of the process."""
    (line, end) = written(tmp_path / "new" / "run", ("batch", BATCH))

    assert line == {
        "time": "2023-11-14T22:13:20.500Z", "process": "writer", "pid": os.getpid(), "kind": "batch", **BATCH
    }  # fmt: skip
    assert end["kind"] == "end"
    assert [path.name for path in (tmp_path / "new" / "run").iterdir()] == [f"writer-{os.getpid()}.jsonl"]


def test_a_run_ends_with_its_totals(tmp_path: Path) -> None:
    """And with its error, if it failed."""
    *_, end = written(tmp_path, ("batch", BATCH), ("lock", {"event": "renewed"}))

    shown = {"commits": 1, "rows": 10, "renewals": 1, "commit_p99": 2.0, "lock_share": 0.02, "error": None}
    assert {name: end[name] for name in shown} == shown


def test_every_event_of_a_lock_is_a_line(tmp_path: Path) -> None:
    """Of an acquisition with its wait, of a release with the time it was held."""
    run_log = RunLog(tmp_path, "writer")
    with (
        asynclock.sync.connect("memory://run-log", events=lambda event: add_event(run_log, event)) as client,
        client.lock("stream/a").hold() as lease,
    ):
        token = lease.fencing_token
    run_log.close()

    acquired, released = (line.fields for line in lines(tmp_path) if line.kind == "lock")
    assert [acquired["event"], released["event"]] == ["acquired", "released"]
    assert {acquired["lock"], released["lock"]} == {"stream/a"}
    assert {acquired["token"], released["token"]} == {token}
    assert acquired["waited_seconds"] >= 0 <= released["held_seconds"]


def test_the_locks_of_a_recorded_spec_are_listened_to(tmp_path: Path) -> None:
    """Of each client that is made of it, the reservation's and a service's too; the spec itself stays."""
    spec = table_spec("/table")
    with recorded(spec, tmp_path, "services") as (listening, _):
        assert listening == spec
        with listening.locks.connect() as client, client.lock("service/cleaning").hold():
            pass

    kinds = [line.kind for line in lines(tmp_path) if line.kind != "resources"]
    assert kinds == ["start", "lock", "lock", "end"]
    assert spec.locks.listener is None


def test_a_failed_run_says_why(tmp_path: Path) -> None:
    """Its last line has the error, which goes on to the caller."""
    with pytest.raises(ValueError, match="too late"), recorded(table_spec("/table"), tmp_path, "writer"):
        raise ValueError("too late")

    *_, end = lines(tmp_path)
    assert end.fields["error"] == "ValueError: too late"


def test_a_sample_says_what_the_driver_uses(tmp_path: Path) -> None:
    """First and last, so that a short run has two."""
    with recorded(table_spec("/table"), tmp_path, "writer"):
        pass

    samples = [line.fields for line in lines(tmp_path) if line.kind == "resources"]
    assert len(samples) == 2
    assert all(samples[-1][name] > 0 for name in ("cpu_seconds", "rss_bytes", "threads", "descriptors"))


def test_counters_of_resources_never_fall() -> None:
    """What a child has used counts after its end."""
    resources = Resources()
    child = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        before = 0.0
        while before < 0.2:
            before = _number(resources(), "cpu_seconds")
    finally:
        child.kill()
        child.wait()

    assert _number(resources(), "cpu_seconds") >= before


def _number(sample: dict[str, object], name: str) -> float:
    value = sample[name]
    assert isinstance(value, float)
    return value


def test_a_killed_process_leaves_its_lines(tmp_path: Path) -> None:
    """All that it had added a moment before."""
    program = (
        "import sys, time, pathlib\n"
        "from asynclock.spark.runs.lines import RunLog\n"
        "log = RunLog(pathlib.Path(sys.argv[1]), 'writer')\n"
        "for number in range(100): log.add('batch', batch=number)\n"
        "while log.path.read_bytes().count(b'\\n') < 100: time.sleep(0.01)\n"
        "print('written', flush=True)\n"
        "time.sleep(60)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGKILL)

    assert [line.fields["batch"] for line in lines(tmp_path)] == list(range(100))


@pytest.mark.parametrize(
    "torn",
    [
        b'{"time": "2026-11-23T05:00:01.000Z", "process": "wri',
        b"[1, 2]\n",
        b'{"time": "yesterday", "kind": "lock"}\n',
        b'{"time": 5, "kind": "lock"}\n',
        b'{"kind": "lock"}\n',
        b'{"time": "2026-11-23T05:00:01.000Z", "kind": {}}\n',
        b"\xff\xfe\n",
        b"[" * 100_000 + b"\n",
    ],
)
def test_what_is_no_line_is_read_over(tmp_path: Path, torn: bytes) -> None:
    """The torn line of a killed process, or foreign text; the lines around it count."""
    good = b'{"time": "2026-11-23T05:00:00.000Z", "process": "writer", "pid": 7, "kind": "batch"}\n'
    (tmp_path / "writer-7.jsonl").write_bytes(good + torn)
    (tmp_path / "services-8.jsonl").write_bytes(good)
    unread: list[Path] = []

    found = list(read_lines(tmp_path, on_unread=unread.append))

    assert [line.name for line in found] == ["writer 7", "writer 7"]
    assert [path.name for path in unread] == ["writer-7.jsonl"]


def test_a_torn_line_is_not_joined_to_the_next_one(tmp_path: Path) -> None:
    """Where a later process has the id of the killed one."""
    (tmp_path / f"writer-{os.getpid()}.jsonl").write_text('{"time": "2026-11-23T05:0')

    RunLog(tmp_path, "writer").close()

    assert [line.kind for line in lines(tmp_path)] == ["end"]


def test_a_full_disk_costs_lines_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One warning; when there is space again the lines go on, and the last one counts the lost ones."""
    run_log = RunLog(tmp_path, "writer")
    write, calls = os.write, []

    def full(descriptor: int, text: bytes) -> int:
        calls.append(text)
        if len(calls) == 1:
            return write(descriptor, text[:10])
        if len(calls) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, text)

    monkeypatch.setattr(os, "write", full)
    with caplog.at_level(logging.WARNING):
        for number in range(4):
            run_log.add("batch", batch=number)
        run_log.close()

    *found, end = lines(tmp_path)
    assert [line.fields["batch"] for line in found] == [2, 3]
    assert end.fields["lost_lines"] == 2
    assert len([record for record in caplog.records if "lines of the run are lost" in record.message]) == 1


def test_a_folder_that_cannot_be_made_is_a_mistake_in_the_settings(tmp_path: Path) -> None:
    """Said before anything is run."""
    (tmp_path / "file").write_text("")

    with pytest.raises(ConfigError, match=r"run=.*file/run.*the run was not started"):
        RunLog(tmp_path / "file" / "run", "writer")


def test_a_folder_that_is_not_there_is_one(tmp_path: Path) -> None:
    """With what writes one."""
    with pytest.raises(ConfigError, match="there is no such folder; asynclock pipeline run SPEC --run DIR"):
        lines(tmp_path / "none")


def test_the_locks_share_of_the_commits_time() -> None:
    """Looks for a reservation and waits for the commit lock, of the commits that say how long they waited."""
    unmeasured = BATCH | {"commit_lock_wait_seconds": None}

    assert summed(("batch", BATCH), ("batch", unmeasured)).lock_share == pytest.approx(0.02)
    assert summed(("batch", unmeasured)).lock_share is None
    assert summed(("batch", unmeasured)).commit_lock_wait_seconds is None


def test_sums_of_locks() -> None:
    """Waits also of acquisitions that ended without the lock; a takeover, a loss, renewals."""
    totals = summed(
        ("lock", {"event": "not_acquired", "waited_seconds": 0.5}),
        ("lock", {"event": "adopted", "waited_seconds": 1.5, "reason": "takeover"}),
        ("lock", {"event": "renewed", "seconds": 0.1}),
        ("lock", {"event": "renewal_failed", "seconds": 0.1}),
        ("lock", {"event": "lost", "held_seconds": 4.0}),
        ("lock", {"event": "released", "held_seconds": 6.0, "reason": "takeover"}),
    )

    assert (totals.lock_wait_seconds, totals.lock_hold_seconds) == (2.0, 10.0)
    assert (totals.renewals, totals.failed_renewals, totals.losses, totals.takeovers) == (1, 1, 1, 1)


def test_a_skipped_batch_is_no_commit() -> None:
    """It was committed before: neither its latency nor its rows count."""
    totals = summed(("batch", {"rows": 0, "skipped": True, "seconds": 9.0}), ("batch", BATCH), seconds=5.0)

    assert (totals.commits, totals.skipped, totals.commit_p99, totals.rows_per_second) == (1, 1, 2.0, 2.0)


def test_services_and_chaos_are_counted_by_name() -> None:
    """What the services did, and what was done to the run."""
    services = [("service", {"service": name}) for name in ("cleaning", "compaction", "cleaning")]
    totals = summed(*services, ("chaos", {"what": "kill"}), ("chaos", {"what": "stop"}))

    assert totals.services == {"cleaning": 2, "compaction": 1}
    assert totals.chaos == {"kill": 1, "stop": 1}


@pytest.mark.parametrize("bad", [None, "12", [1], {}, float("nan"), float("inf")])
def test_a_field_of_another_type_counts_as_nothing(bad: object) -> None:
    """Other programs write into the folder too."""
    totals = summed(("batch", {"rows": bad, "seconds": bad, "commit_lock_wait_seconds": bad}))

    assert (totals.commits, totals.rows, totals.commit_seconds) == (1, 0, 0.0)


@pytest.mark.parametrize(("share", "value"), [(0.5, 50), (0.99, 99), (1.0, 100), (0.001, 1)])
def test_quantiles_are_values_that_occurred(share: float, value: float) -> None:
    """The nearest rank."""
    assert quantile(range(100, 0, -1), share) == value
    assert quantile([], share) is None


@pytest.mark.parametrize("fails", [False, True])
def test_a_batch_is_recorded_and_measured_with_one_look_at_the_commit_lock(
    fails: Any,  # noqa: ANN401  pytest's
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The JVM gives the times once. If it fails, line and metrics lack them, and a warning says so."""
    looks: list[None] = []

    def lock_use(_: object) -> tuple[float, float]:
        looks.append(None)
        if fails:
            raise OSError("no JVM")
        return 0.25, 0.5

    monkeypatch.setattr(BatchRecorder, "_lock_use", lock_use)
    monkeypatch.setattr(BatchRecorder, "_instant", lambda *_: None)
    run_log, observer, none = MagicMock(), MagicMock(), MagicMock()
    done = BatchReport(stream="a", batch_id=3, rows=5, skipped=False, reservation_seconds=0.0)

    BatchRecorder(none, none, run_log, observer)(done)

    waited, held = (None, None) if fails else (0.25, 0.5)
    observer.take_batch.assert_called_once_with(done, waited)
    line = run_log.add.call_args.kwargs
    assert (line["batch"], line["rows"], line["instant"]) == (3, 5, None)
    assert (line["commit_lock_wait_seconds"], line["commit_lock_hold_seconds"]) == (waited, held)
    assert len(looks) == 1
    lacks = "stream a: what is recorded of batch 3 lacks its times of the commit lock: OSError: no JVM"
    assert caplog.messages == [lacks] * fails
