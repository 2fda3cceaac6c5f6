"""CMD never outlives the lease, also if its wrapper is stopped or killed; each process gets one SIGTERM."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

import pytest

from tests.cli.command import (
    asynclock,
    eventually,
    finish,
    is_alive,
    is_held,
    kill_group,
    start,
    stop_between_writes,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from subprocess import Popen

VALIDITY = 4.0
BELIEF = VALIDITY / 2
"""The safety margin of so short a lease is half of it."""

Run = "Callable[[str], Popen[str]]"


@pytest.fixture
def run(folder: Path, target: str, tmp_path: Path) -> Iterator[Run]:
    """Start a script that holds the lock by now and has made ``ready``; no process of it is left."""
    started: list[Popen[str]] = []

    def begin(script: str) -> Popen[str]:
        process = start("run", target, "--validity", f"{VALIDITY:g}", "--", "bash", "-c", script)
        started.append(process)
        eventually(lambda: is_held(folder, "nightly") and (tmp_path / "ready").exists())
        return process

    yield begin
    for process in started:
        process.send_signal(signal.SIGCONT)
        kill_group(process)


def pids(tmp_path: Path, count: int) -> list[int]:
    """The process ids that the script has written, once all are there."""
    files = [tmp_path / f"pid{number}" for number in range(count)]
    eventually(lambda: all(path.exists() and path.read_text().strip() for path in files))
    return [int(path.read_text()) for path in files]


def counting(tmp_path: Path, name: str) -> str:
    """A script that writes a line for each SIGTERM and goes on."""
    return (
        f"trap 'echo TERM >> {tmp_path}/{name}' TERM; echo $$ > {tmp_path}/{name}.pid; "
        f"touch {tmp_path}/ready; while :; do sleep 0.05; done"
    )


def test_a_stopped_wrapper_does_not_let_the_command_outlive_the_lease(
    run: Callable[[str], Popen[str]], folder: Path, tmp_path: Path
) -> None:
    """CMD, which ignores SIGTERM, and what it started elsewhere are gone before others may take over."""
    script = (
        f"trap '' TERM; setsid sleep 61 & echo $! > {tmp_path}/pid0; sleep 62 & echo $! > {tmp_path}/pid1; "
        f"echo $$ > {tmp_path}/pid2; touch {tmp_path}/ready; wait; wait; sleep 63"
    )
    wrapper = run(script)
    found = pids(tmp_path, 3)

    stop_between_writes(wrapper, folder, "nightly")
    stopped_at = time.monotonic()
    eventually(lambda: not any(map(is_alive, found)))
    took = time.monotonic() - stopped_at

    assert took < VALIDITY
    wrapper.send_signal(signal.SIGCONT)
    assert finish(wrapper)[0] == 76


def test_a_stopped_wrapper_lets_the_command_clean_up(
    run: Callable[[str], Popen[str]], folder: Path, tmp_path: Path
) -> None:
    """CMD gets one SIGTERM at the end of the lease, also if the wrapper wakes up then."""
    wrapper = run(counting(tmp_path, "terms"))

    stop_between_writes(wrapper, folder, "nightly")
    eventually((tmp_path / "terms").exists)
    wrapper.send_signal(signal.SIGCONT)

    assert finish(wrapper)[0] == 76
    assert (tmp_path / "terms").read_text() == "TERM\n"


def test_a_wrapper_that_goes_on_in_time_keeps_its_command(
    run: Callable[[str], Popen[str]], folder: Path, tmp_path: Path
) -> None:
    """A short stop costs nothing: the lease is renewed, and CMD ends by itself."""
    wrapper = run(f"touch {tmp_path}/ready; sleep {VALIDITY + 1}; exit 5")

    stop_between_writes(wrapper, folder, "nightly")
    time.sleep(BELIEF / 4)
    wrapper.send_signal(signal.SIGCONT)

    assert finish(wrapper)[0] == 5


def test_on_a_loss_each_process_gets_one_sigterm(
    run: Callable[[str], Popen[str]], target: str, tmp_path: Path
) -> None:
    """CMD, a child in its group and one in a session of its own: one SIGTERM each."""
    inner = [counting(tmp_path, name) for name in ("inner", "aside")]
    (tmp_path / "inner.sh").write_text(inner[0])
    (tmp_path / "aside.sh").write_text(inner[1])
    wrapper = run(
        f"bash {tmp_path}/inner.sh & setsid bash {tmp_path}/aside.sh & {counting(tmp_path, 'outer')}"
    )
    names = ("outer", "inner", "aside")
    eventually(lambda: all((tmp_path / f"{name}.pid").exists() for name in names))

    assert asynclock("break", target, "--yes", "--force").returncode == 0

    assert finish(wrapper)[0] == 76
    assert {name: (tmp_path / name).read_text() for name in names} == dict.fromkeys(names, "TERM\n")


def test_a_killed_wrapper_takes_its_command_along(run: Callable[[str], Popen[str]], tmp_path: Path) -> None:
    """After kill -9 of the wrapper CMD gets a SIGTERM and is gone."""
    wrapper = run(f"echo $$ > {tmp_path}/pid0; {counting(tmp_path, 'terms')}")
    (pid,) = pids(tmp_path, 1)

    wrapper.kill()

    eventually(lambda: not is_alive(pid))
    assert (tmp_path / "terms").read_text() == "TERM\n"
