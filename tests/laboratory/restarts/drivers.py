"""Processes of ``asynclock pipeline``, each in a group of its own, which is what gets killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

COMMAND: Final = Path(sys.executable).with_name("asynclock")
PATIENCE: Final = 1800.0
_SHOWN: Final = 2_000


class DriverError(Exception):
    """A process did what it must not."""


class Process:
    """One process in a group of its own, which runs until it is killed or stopped.

    Args:
        name: For messages.
        folder: Where it runs.
        log: Takes its standard error, and its standard output unless ``options`` say otherwise.
        command: What it runs.
        options: Further ones of ``Popen``.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        log: Path,
        command: Sequence[str | Path],
        **options: Any,  # noqa: ANN401  as Popen has them
    ) -> None:
        self.name = name
        self._log = log
        with log.open("ab") as output:
            redirected: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": output} | options
            self._process: subprocess.Popen[str] = subprocess.Popen(
                command, cwd=folder, stderr=output, start_new_session=True, encoding="utf-8", **redirected
            )

    def check(self) -> None:
        """Raise if the process has ended by itself."""
        if self._process.poll() is not None:
            raise DriverError(f"{self.name} ended with {self._process.returncode}: {self.tail()}")

    @property
    def code(self) -> int | None:
        """The exit code of Python; None while it runs."""
        return self._process.poll()

    @property
    def group(self) -> int:
        """The process group of Python and its JVM."""
        return self._process.pid

    def kill(self) -> None:
        """Kill Python and its JVM at once."""
        self.check()
        self.abandon()

    def stop(self) -> None:
        """Ask for an orderly end and await it; a process that has only begun may end by the signal."""
        self.check()
        self._process.terminate()
        try:
            code = self._process.wait(PATIENCE)
        finally:
            self.abandon()
        if code not in {0, -signal.SIGTERM}:
            raise DriverError(f"{self.name} ended with {code}: {self.tail()}")

    def abandon(self) -> None:
        """Leave no process behind, whatever has happened."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def tail(self) -> str:
        """Return the end of the log."""
        return self._log.read_text(errors="replace")[-_SHOWN:]


class Driver(Process):
    """One process that runs the command.

    Args:
        name: Name of the log, too.
        folder: Where it runs.
        arguments: Of the command, after ``pipeline``.
    """

    def __init__(self, name: str, folder: Path, *arguments: str) -> None:
        self.arguments = arguments
        log = folder / f"{name}.log"
        super().__init__(name, folder, log, [COMMAND, "pipeline", *arguments, "--log", log])


def call(folder: Path, verb: str, *arguments: str) -> str:
    """Run a verb of the pipeline to its end, which must be a success, and return its standard output."""
    path = folder / f"{verb}.log"
    with path.open("ab") as log:
        done = subprocess.run(
            [COMMAND, "pipeline", verb, *arguments, "--log", path],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            timeout=PATIENCE,
            check=False,
            text=True,
        )
    if done.returncode:
        log_text = path.read_text(errors="replace")[-_SHOWN:]
        command = " ".join((verb, *arguments))
        raise DriverError(f"{command} ended with {done.returncode}: {done.stdout} {log_text}")
    return done.stdout


def until(folder: Path, before: int, seconds: float) -> None:
    """Return when the table has other instants than ``before``, at the latest after that many seconds."""
    deadline = time.monotonic() + seconds
    while instants(folder) == before and time.monotonic() < deadline:
        time.sleep(0.05)


def instants(folder: Path) -> int:
    """Return a number that changes with each step of an instant on the timeline."""
    timeline = folder / "table" / ".hoodie" / "timeline"
    return hash(frozenset(path.name for path in timeline.glob("*"))) if timeline.is_dir() else 0
