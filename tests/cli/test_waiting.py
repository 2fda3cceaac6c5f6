"""What ``run`` says while it does not have the lock yet, and why it gave up."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from asynclock import LeaseSettings, sync
from tests.cli.command import COMMAND, DEADLINE, VALIDITY, asynclock, finish, kill_group, start

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

KEYS = {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "hush"}


@pytest.fixture
def held(folder: Path) -> Iterator[sync.Lease]:
    """The lock ``nightly``, held by this process."""
    settings = LeaseSettings(validity=60, max_clock_skew=0)
    with (
        sync.connect(f"file://{folder}", settings=settings, holder="tester") as client,
        client.lock("nightly").hold() as lease,
    ):
        yield lease


def at(port: int) -> list[str]:
    """Options of a store at a port of this machine."""
    words = [
        f"endpoint_url=http://127.0.0.1:{port}",
        "allow_http=true",
        "region=us-east-1",
        "access_key_id=env:AWS_ACCESS_KEY_ID",
        "secret_access_key=env:AWS_SECRET_ACCESS_KEY",
    ]
    return [each for word in words for each in ("-o", word)]


def run_at_store(words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run the command to its end, with keys of a store in its environment."""
    return subprocess.run(
        [*COMMAND, *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        env=os.environ | KEYS,
        check=False,
    )


@pytest.mark.usefixtures("held")
def test_waiting_says_at_once_who_holds_the_lock(target: str) -> None:
    """The first line has the lock, its holder, since when, for how long at most, and our own limit."""
    waiter = start("run", target, *VALIDITY, "--wait", "30", "--", "true")
    started = time.monotonic()
    try:
        assert waiter.stderr is not None
        line = waiter.stderr.readline()
        took = time.monotonic() - started
    finally:
        kill_group(waiter)

    assert took < 10
    assert f"waiting for {target}, held by tester since " in line
    assert re.search(r"for at most \d\d s unless it is renewed, waiting at most 30 s", line)


@pytest.mark.usefixtures("held")
def test_waiting_is_said_at_a_falling_rate(target: str) -> None:
    """In eight seconds there are two lines: at once, and after five."""
    ran = asynclock("run", target, *VALIDITY, "--wait", "8", "--", "true")

    assert ran.returncode == 75
    assert ran.stderr.count("waiting for ") == 2


@pytest.mark.usefixtures("held")
def test_quiet_says_nothing_but_the_error(target: str) -> None:
    """With -q only the reason of the end is printed."""
    ran = asynclock("run", "-q", target, *VALIDITY, "--wait", "0.5", "--", "true")

    assert ran.returncode == 75
    assert len(ran.stderr.splitlines()) == 1
    assert f"{target}: CMD was not run" in ran.stderr


def test_verbose_says_each_step(target: str) -> None:
    """With -v each event of the lease is printed."""
    ran = asynclock("run", "-v", target, "--", "true")

    assert [line.split()[1] for line in ran.stderr.splitlines()] == ["acquired", "released"]


def test_a_run_that_need_not_wait_says_nothing(target: str) -> None:
    """Nobody holds the lock: the standard error is CMD's alone."""
    assert asynclock("run", target, "--", "true").stderr == ""


def test_a_dead_endpoint_is_named_after_the_first_round() -> None:
    """The reason is printed long before the timeout, which names it again: 69."""
    ran = run_at_store(["run", "s3://bucket/locks/nightly", "--wait", "3", *at(9), "--", "true"])

    first, last = ran.stderr.splitlines()
    assert ran.returncode == 69
    assert "s3://bucket/locks/nightly: the store failed: s3: get" in first
    assert "cannot connect" in first
    assert "was not acquired within 3 s: s3: get" in last
    assert "hush" not in ran.stderr


def test_a_silent_store_is_named() -> None:
    """A store that takes the connection and says nothing: that is said after a few seconds, then 69."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        ran = run_at_store(["run", "s3://bucket/locks/nightly", "--wait", "4", *at(port), "--", "true"])

    assert ran.returncode == 69
    assert re.search(r"no answer from the store for \d s", ran.stderr)
    assert "no answer within" in ran.stderr.splitlines()[-1]


def test_one_try_at_a_dead_endpoint_is_69() -> None:
    """With --wait 0 the reason is in the only line."""
    ran = run_at_store(["run", "s3://bucket/locks/nightly", "--wait", "0", *at(9), "--", "true"])

    assert ran.returncode == 69
    assert "cannot connect" in ran.stderr


def test_doctor_of_an_unreachable_store_is_69() -> None:
    """Nothing was tested, so nothing is said about safety."""
    ran = run_at_store(["doctor", "s3://bucket/locks", *at(9)])

    assert (ran.returncode, ran.stdout) == (69, "")
    assert "not tested, because the store is not available" in ran.stderr
    assert "cannot connect" in ran.stderr


def test_a_full_disk_is_named(tmp_path: Path) -> None:
    """A lock that cannot be written for want of space says so: 69."""
    disk = tmp_path / "disk"
    disk.mkdir()
    script = (
        'mount -t tmpfs -o size=16k tmpfs "$0" && mkdir "$0/locks" && '
        '{ cat /dev/zero >"$0/filler" 2>/dev/null; exec "$@"; }'
    )
    words = ["run", f"file://{disk}/locks/nightly", "--wait", "2", "--validity", "10", "--", "true"]
    ran = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, str(disk), *COMMAND, *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )

    assert ran.returncode == 69
    assert "the store failed: " in ran.stderr.splitlines()[0]
    assert "No space left on device" in ran.stderr.splitlines()[0]
    assert "No space left on device" in ran.stderr.splitlines()[-1]


@pytest.mark.usefixtures("held")
def test_a_lock_that_others_held_to_the_end_is_75(target: str) -> None:
    """Another holds the lock to the end: 75, and the cause is the holder."""
    ran = asynclock("run", target, *VALIDITY, "--wait", "0.5", "--", "true")

    assert ran.returncode == 75
    assert "last seen held, holder tester" in ran.stderr


@pytest.mark.usefixtures("held")
def test_skip_if_held_runs_nothing_and_is_0(target: str, tmp_path: Path) -> None:
    """A cron job that another machine does already is no failure, and no news that cron would mail."""
    ran = asynclock("run", target, "--skip-if-held", "--", "touch", str(tmp_path / "ran"))

    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
    assert not (tmp_path / "ran").exists()


@pytest.mark.usefixtures("held")
def test_a_skip_after_a_wait_is_no_news_either(target: str) -> None:
    """With --wait it waits as silently as it skips."""
    ran = asynclock("run", target, "--skip-if-held", "--wait", "0.5", "--", "true")

    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


@pytest.mark.usefixtures("held")
def test_a_skip_is_one_line_for_who_asks(target: str) -> None:
    """With -v it says that CMD was skipped, and who holds the lock."""
    ran = asynclock("run", "-v", target, "--skip-if-held", "--", "true")

    (line,) = ran.stderr.splitlines()
    assert ran.returncode == 0
    assert f"{target}: CMD was skipped" in line
    assert "tester" in line


def test_skip_if_held_is_no_excuse_for_the_store() -> None:
    """A store that does not answer is 69, since nobody was seen to hold the lock."""
    ran = run_at_store(["run", "s3://bucket/locks/nightly", "--skip-if-held", *at(9), "--", "true"])

    assert ran.returncode == 69


def test_holder_and_note_are_shown(target: str) -> None:
    """Others see the words of --holder and --note."""
    words = ["--holder", "nightly@batch-3", "--note", "job 77"]
    ran = asynclock("run", *words, target, *COMMAND, "status", target)

    assert ran.returncode == 0
    assert re.search(r"holder +nightly@batch-3 \(job 77\)\n", ran.stdout)


def test_a_signal_still_ends_a_wait_that_is_told(held: sync.Lease, target: str) -> None:
    """SIGTERM while waiting gives 143 and leaves nothing behind."""
    waiter = start("run", target, *VALIDITY, "--", "true")
    assert waiter.stderr is not None
    assert "waiting for" in waiter.stderr.readline()

    waiter.terminate()

    assert finish(waiter)[0] == 143
    held.confirm()
