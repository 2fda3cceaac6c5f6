"""Starts the command as users do, and waits for what it does."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

COMMAND = (sys.executable, "-c", "from asynclock._cli import main; main()")
DEADLINE = 30.0
VALIDITY = ("--validity", "2")


def asynclock(*words: str, stdin: int | None = subprocess.DEVNULL) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    return subprocess.run(
        [*COMMAND, *words], stdin=stdin, capture_output=True, text=True, timeout=DEADLINE, check=False
    )


def start(*words: str) -> subprocess.Popen[str]:
    """Start the command and go on; in a session of its own, so that nothing of it is ever left."""
    return subprocess.Popen(
        [*COMMAND, *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Exit code, output and errors of a started command."""
    output, errors = process.communicate(timeout=DEADLINE)
    return process.returncode, output, errors


def status(target: str) -> dict[str, Any]:
    """A lock, as ``asynclock status --json`` shows it."""
    shown: dict[str, Any] = json.loads(asynclock("status", target, "--json").stdout)
    return shown


def eventually(condition: Callable[[], object]) -> None:
    """Return once ``condition`` holds."""
    until = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < until, "it did not come to that in time"
        time.sleep(0.02)


def locks(folder: Path) -> list[str]:
    """The lock objects in a folder, and whatever else is not hidden."""
    return sorted(path.name for path in folder.glob("*")) if folder.exists() else []


def is_held(folder: Path, name: str) -> bool:
    """Whether the lock file says so."""
    path = folder / f"{name}.json"
    return path.exists() and json.loads(path.read_bytes())["expired"] is False


def is_alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    return _state(pid) not in "ZX"


def stop_between_writes(process: subprocess.Popen[str], folder: Path, name: str) -> None:
    """Stop a holder while it does not write: one that is stopped in a write keeps all others from writing."""
    with (folder / f".{name}.json.lock").open() as side_file:
        while True:
            process.send_signal(signal.SIGSTOP)
            eventually(lambda: _state(process.pid) == "T")
            try:
                fcntl.flock(side_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                process.send_signal(signal.SIGCONT)
                time.sleep(0.01)
            else:
                return


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return "X"


def kill_group(process: subprocess.Popen[str]) -> None:
    """End a started command by force."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
