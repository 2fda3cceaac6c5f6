"""Programs that use locks in a folder: how they are started, signalled and how they ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

from asynclock._core.record import LockRecord, parse_record

if TYPE_CHECKING:
    from pathlib import Path


PRELUDE = """
import asyncio, os, signal, sys, threading, time
import asynclock
from asynclock import LeaseSettings, sync
url, settings = sys.argv[1], LeaseSettings(validity=30.0)
def ready():
    # Not print: a handler that prints as well may not interrupt it.
    os.write(1, b"ready" + os.linesep.encode())
"""


SYNC_HELD = """
client = sync.connect(url, settings=settings)
lease = client.lock("orders").acquire()
"""


def start(program: str, folder: Path) -> subprocess.Popen[str]:
    """Start a program that uses the locks in ``folder``."""
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", PRELUDE + program, f"file://{folder}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Return how a program ended; one that hangs is killed with all its children."""
    try:
        output, errors = process.communicate(timeout=30)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise
    return process.returncode, output, errors


def run(program: str, folder: Path) -> tuple[int, str, str]:
    """Run a program to its end and return its exit code and what it printed."""
    return finish(start(program, folder))


def signalled(program: str, folder: Path, number: signal.Signals) -> tuple[int, str, str]:
    """Start a program, send it a signal once it is ready, and return how it ended."""
    process = start(program, folder)
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line == "ready\n", process.communicate()
    process.send_signal(number)
    return finish(process)


def record(folder: Path) -> LockRecord:
    """Return the record of the lock."""
    return parse_record((folder / "orders.json").read_bytes())
