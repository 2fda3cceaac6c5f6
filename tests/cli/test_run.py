from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from asynclock import LeaseSettings, sync
from tests.cli.command import (
    COMMAND,
    DEADLINE,
    VALIDITY,
    asynclock,
    eventually,
    finish,
    is_alive,
    is_held,
    kill_group,
    start,
    status,
    stop_between_writes,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from subprocess import Popen

Start = Any

HELPERS = """
import asyncio, json, os
from asynclock._cli.child import Child
from asynclock._cli.descendants import boot_seconds, ended_children

async def main():
    words = ["sh", "-c", "(sleep 0.1 &); sleep 4; exit 3"]
    child = Child(words, dict(os.environ), deadline=boot_seconds() + 60, grace=1.0)
    codes = set()
    for _ in range(20):
        helper = await asyncio.create_subprocess_exec("sh", "-c", "exit 7")
        codes.add(await helper.wait())
    code = await asyncio.wait_for(child.ended, 30)
    left = len(ended_children(os.getpid()))
    child.close()
    print(json.dumps([sorted(codes), code, left]))

asyncio.run(main())
"""
"""Runs a command beside processes as a cloud SDK starts them for credentials."""


@pytest.fixture
def started() -> Iterator[Start]:
    """Starts commands and leaves none behind."""
    processes: list[Popen[str]] = []

    def begin(*words: str) -> Popen[str]:
        processes.append(start(*words))
        return processes[-1]

    yield begin
    for process in processes:
        kill_group(process)


def holds(started: Start, folder: Path, *command: str) -> Popen[str]:
    """A run of ``command`` that holds the lock by now."""
    process: Popen[str] = started("run", f"file://{folder}/nightly", *VALIDITY, "--", *command)
    eventually(lambda: is_held(folder, "nightly"))
    return process


def test_command_sees_its_lease(target: str) -> None:
    """CMD finds the lock, its owner, its token and its validity in the environment."""
    names = " ".join(f"$ASYNCLOCK_{each}" for each in ("LOCK", "FENCING_TOKEN", "OWNER", "VALID_UNTIL_MS"))
    before = time.time() * 1000

    ran = asynclock("run", target, "--", "sh", "-c", f"echo {names}")

    lock, token, owner, valid_until = ran.stdout.split()
    shown = status(target)
    assert lock == target
    assert (int(token), owner) == (shown["fencing_token"], shown["owner"])
    assert before < int(valid_until) <= before + 310_000


def test_lock_is_held_while_the_command_runs_and_free_after(target: str) -> None:
    """CMD itself sees the lock held; afterwards it is free."""
    ran = asynclock("run", target, "--", *COMMAND, "status", target, "--json")

    assert '"state": "held"' in ran.stdout
    assert status(target)["state"] == "free"


@pytest.mark.parametrize(("script", "code"), [("exit 0", 0), ("exit 7", 7), ("kill -KILL $$", 137)])
def test_exit_code_is_the_commands(target: str, script: str, code: int) -> None:
    """The exit code is CMD's own, or 128 + n where signal n ended it, and the lock is released."""
    assert asynclock("run", target, "--", "sh", "-c", script).returncode == code
    assert status(target)["state"] == "free"


def test_missing_command_is_127(target: str) -> None:
    """A CMD that does not exist gives 127, names it, and the lock is free again."""
    ran = asynclock("run", target, "--", "no-such-program")

    assert ran.returncode == 127
    assert "no-such-program" in ran.stderr
    assert status(target)["state"] == "free"


def test_command_that_is_no_program_is_126(target: str, tmp_path: Path) -> None:
    """A CMD that cannot be executed gives 126, and the lock is free again."""
    (tmp_path / "data").write_text("no program")

    ran = asynclock("run", target, "--", str(tmp_path / "data"))

    assert ran.returncode == 126
    assert status(target)["state"] == "free"


def test_standard_input_reaches_the_command(target: str, tmp_path: Path) -> None:
    """What is piped in is CMD's to read, and its output is all that is printed."""
    (tmp_path / "input").write_text("hello")
    with (tmp_path / "input").open() as source:
        ran = asynclock("run", target, "--", "cat", stdin=source.fileno())

    assert (ran.returncode, ran.stdout) == (0, "hello")


def test_held_lock_is_75_and_runs_nothing(started: Start, folder: Path, target: str, tmp_path: Path) -> None:
    """If the lock is not acquired in time, run exits with 75, says who holds it, and does not run CMD."""
    holder = holds(started, folder, "sleep", "60")

    ran = asynclock("run", target, "--wait", "0.2", *VALIDITY, "--", "touch", str(tmp_path / "ran"))

    assert ran.returncode == 75
    assert f":{holder.pid}:" in ran.stderr
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signal_ends_the_wait(started: Start, folder: Path, target: str, number: signal.Signals) -> None:
    """A signal while waiting for the lock ends at once with 128 + n, and CMD is not run."""
    holds(started, folder, "sleep", "60")
    record = (folder / "nightly.json").read_bytes
    waiter = started("run", target, *VALIDITY, "--", "echo", "ran")
    eventually(lambda: _catches(waiter.pid, signal.SIGUSR2))

    waiter.send_signal(number)

    assert finish(waiter)[:2] == (128 + number, "")
    assert b'"expired":false' in record()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1])
def test_signal_is_forwarded_to_the_whole_group(
    started: Start, folder: Path, target: str, tmp_path: Path, number: signal.Signals
) -> None:
    """A signal while CMD runs reaches CMD and its children; its exit code is passed on."""
    name = number.name.removeprefix("SIG")
    inner = (
        f"trap 'touch {tmp_path}/inner; exit 0' {name}; touch {tmp_path}/ready; while :; do sleep 0.05; done"
    )
    outer = f"trap 'wait; exit 9' {name}; bash -c \"{inner}\" & wait; wait"
    process = holds(started, folder, "bash", "-c", outer)
    eventually((tmp_path / "ready").exists)

    process.send_signal(number)

    assert finish(process)[0] == 9
    assert (tmp_path / "inner").exists()
    assert status(target)["state"] == "free"


def test_command_killed_by_a_forwarded_signal(started: Start, folder: Path, target: str) -> None:
    """A CMD that dies of the forwarded signal gives 128 + n, and the lock is released."""
    process = holds(started, folder, "sleep", "60")

    process.terminate()

    assert finish(process)[0] == 128 + signal.SIGTERM
    assert status(target)["state"] == "free"


def test_forced_break_ends_the_command_with_76(
    started: Start, folder: Path, target: str, tmp_path: Path
) -> None:
    """A lost lease ends CMD and all it started, those in groups and sessions of their own too."""
    script = (
        f"trap '' TERM; (setsid sleep 61 & echo $! > {tmp_path}/1); "
        f"timeout 60 sleep 62 & echo $! > {tmp_path}/2; "
        f"sleep 63 & echo $! > {tmp_path}/3; echo $$ > {tmp_path}/4; wait"
    )
    process = holds(started, folder, "bash", "-c", script)
    eventually(lambda: (tmp_path / "4").exists() and (tmp_path / "4").read_text())
    pids = [int((tmp_path / str(n)).read_text()) for n in range(1, 5)]

    broken = asynclock("break", target, "--yes", "--force")

    assert broken.returncode == 0
    code, _, errors = finish(process)
    assert code == 76
    assert "broken by an operator" in errors
    assert [pid for pid in pids if is_alive(pid)] == []


def test_lost_lease_lets_the_command_clean_up(
    started: Start, folder: Path, target: str, tmp_path: Path
) -> None:
    """CMD gets SIGTERM first, and the code is 76 whatever it makes of it."""
    script = (
        f"trap 'touch {tmp_path}/cleaned; exit 0' TERM; touch {tmp_path}/ready; while :; do sleep 0.05; done"
    )
    process = holds(started, folder, "bash", "-c", script)
    eventually((tmp_path / "ready").exists)

    broken = asynclock("break", target, "--yes", "--force")

    assert broken.returncode == 0
    assert finish(process)[0] == 76
    assert (tmp_path / "cleaned").exists()


def test_stopped_holder_ends_its_command_when_it_wakes(started: Start, folder: Path, target: str) -> None:
    """A run that was suspended past its validity kills CMD when it goes on; others had taken over."""
    begun = folder.parent / "begun"
    process = holds(started, folder, "sh", "-c", f"touch {begun}; exec sleep 60")
    eventually(begun.exists)  # stopped earlier, it would not know that it had the lock, and acquire it again
    stop_between_writes(process, folder, "nightly")

    taken = asynclock("run", target, *VALIDITY, "--wait", "20", "--", "echo", "mine")
    process.send_signal(signal.SIGCONT)

    assert (taken.returncode, taken.stdout) == (0, "mine\n")
    assert finish(process)[0] == 76


def test_killed_holder_is_taken_over(started: Start, folder: Path, target: str, tmp_path: Path) -> None:
    """After kill -9 of the holder its CMD is ended, and a waiting run gets the lock."""
    holder = holds(started, folder, "sh", "-c", f"echo $$ > {tmp_path}/pid; exec sleep 60")
    waiter = started("run", target, *VALIDITY, "--", "echo", "mine")
    eventually(lambda: _catches(waiter.pid, signal.SIGUSR2))

    eventually((tmp_path / "pid").exists)
    holder.kill()

    assert finish(waiter)[:2] == (0, "mine\n")
    assert not is_alive(int((tmp_path / "pid").read_text()))


def test_terminal_belongs_to_the_command(target: str) -> None:
    """At a terminal CMD reads the keys, and Ctrl-C reaches it and gives 130."""
    pid, terminal = pty.fork()
    if pid == 0:
        script = "read line; echo got $line; sleep 60"
        os.execv(COMMAND[0], [*COMMAND, "run", target, "--", "bash", "-c", script])  # noqa: S606  no shell
    os.write(terminal, b"hello\n")
    shown = b""
    while b"got hello" not in shown:
        shown += os.read(terminal, 1000)

    os.write(terminal, b"\x03")

    _, code = os.waitpid(pid, 0)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(code) == 130
    assert status(target)["state"] == "free"


def _catches(pid: int, number: int) -> bool:
    """Whether a process has a handler for a signal."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    caught = next(int(line.split()[1], 16) for line in lines if line.startswith("SigCgt"))
    return bool(caught >> (number - 1) & 1)


@pytest.mark.parametrize("separator", [["--"], []], ids=["after --", "without --"])
def test_all_words_after_the_first_of_the_command_are_its_own(target: str, separator: list[str]) -> None:
    """Options of CMD are not taken for options of run, whatever they are called."""
    words = ["--wait", "7", "-q", "--json", "--", "-o", "x", "--help"]
    ran = asynclock("run", "--validity", "60", target, "--wait", "5", *separator, "echo", *words)

    assert (ran.returncode, ran.stdout) == (0, f"{' '.join(words)}\n")


def test_a_command_is_needed(target: str) -> None:
    """Options alone are no command: 2, and nothing is taken."""
    ran = asynclock("run", target, "--wait", "5")

    assert ran.returncode == 2
    assert "CMD" in ran.stderr


@pytest.mark.parametrize(("command", "code"), [("/no/such/program", 127), ("/", 126)])
def test_a_command_that_was_not_run_keeps_no_lock(folder: Path, target: str, command: str, code: int) -> None:
    """A typo on one machine does not stop the job on all others."""
    ran = asynclock("run", target, "--at-least", "600", *VALIDITY, "--", command)

    assert ran.returncode == code
    assert not is_held(folder, "nightly")


def test_processes_that_an_sdk_starts_keep_their_exit_codes() -> None:
    """The wait for the command takes no other child's status; what the command left behind is reaped."""
    done = subprocess.run(
        [sys.executable, "-c", HELPERS], capture_output=True, text=True, timeout=DEADLINE, check=False
    )

    codes, code, left = json.loads(done.stdout)
    assert codes == [7]
    assert code == 3
    assert left == 1  # the command itself, which close() reaps


def test_at_least_keeps_the_lock_after_the_command(folder: Path, target: str, tmp_path: Path) -> None:
    """The command and this process are gone, nobody else runs until the time is up, then another does."""
    words = ("run", target, "--at-least", "20", "--skip-if-held", *VALIDITY, "--", "sh", "-c")
    script = f"echo ran >> {tmp_path}/runs"
    began = time.monotonic()

    codes = [asynclock(*words, script).returncode for _ in range(2)]

    assert time.monotonic() - began < 20.0
    assert codes == [0, 0]
    assert (tmp_path / "runs").read_text() == "ran\n"
    assert is_held(folder, "nightly")
    assert asynclock("run", target, *VALIDITY, "--wait", "25", "--", "sh", "-c", script).returncode == 0
    assert time.monotonic() - began >= 20.0
    assert (tmp_path / "runs").read_text() == "ran\nran\n"


def test_at_most_ends_a_command_that_hangs(folder: Path, target: str, tmp_path: Path) -> None:
    """CMD is ended, which takes one sentence and gives 76, and the lock is free."""
    began = time.monotonic()
    script = f"trap 'echo ended > {tmp_path}/end; exit' TERM; while :; do sleep 0.05; done"

    ran = asynclock("run", target, "--at-most", "1", *VALIDITY, "--", "sh", "-c", script)

    assert ran.returncode == 76
    assert time.monotonic() - began >= 1.0
    assert ran.stderr.count("at_most=1 s") == 1
    assert "ending CMD" in ran.stderr
    assert (tmp_path / "end").read_text() == "ended\n"
    assert not is_held(folder, "nightly")


def test_a_ticket_gives_the_lock_to_a_command_and_works_once(folder: Path, target: str) -> None:
    """The second use is 75, and CMD is not run."""
    with sync.connect(f"file://{folder}", settings=LeaseSettings(validity=5, max_clock_skew=0)) as client:
        ticket = client.lock("nightly").acquire().transfer(within=600)
    words = ("run", target, *VALIDITY, "--ticket", ticket, "--", "echo", "ran")

    first, second = asynclock(*words), asynclock(*words)

    assert (first.returncode, first.stdout) == (0, "ran\n")
    assert not is_held(folder, "nightly")
    assert (second.returncode, second.stdout) == (75, "")
    assert "ticket" in second.stderr
