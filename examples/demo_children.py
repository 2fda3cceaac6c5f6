"""The demo's child processes, and the folder that one run of it has to itself."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from queue import Queue

ENDED: Final = "ended"
SCRATCH: Final = "scratch"
TAIL_LINES: Final = 30
_ROOT: Final = Path(__file__).parent.parent
_LOCK_FILE: Final = "demo.lock"
_RUN_PREFIX: Final = "run-"
_UNFIT: Final = re.compile(r"[^\w./+@~-]")
# Compiled code pays off after minutes; a demo lasts about as long, and its JVMs share few cores.
_JVM_OPTIONS: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m"


class DemoError(Exception):
    """The demo cannot go on; the text says why."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Message:
    """A message of a child, or the news that it has ended."""

    child: Child
    event: str
    fields: dict[str, Any] = field(default_factory=dict)


class Child:
    """A process in its own session, so that a signal reaches only it and its JVM.

    Args:
        name: What it is called in texts and in the name of its log.
        arguments: Of ``examples.demo_worker``: role, spec, streams.
        folder: Of the run: the logs and temporary files go there.
        inbox: Where its messages go.

    Attributes:
        ready: Whether its session is there, and warm.
        watches: Whether it waits for a lease and has seen who holds it.
        instant: The newest instant of the timeline that it has begun, as far as it has said so.
    """

    def __init__(self, name: str, arguments: list[str], *, folder: Path, inbox: Queue[Message]) -> None:
        self.name = name
        self.log = folder / "logs" / f"{name.replace(' ', '-')}.log"
        self.ready = False
        self.watches = False
        self.instant = ""
        self.done = False
        self.ended = False
        scratch = folder / SCRATCH
        for needed in (self.log.parent, scratch):
            needed.mkdir(exist_ok=True)
        reading, writing = os.pipe()
        try:
            with self.log.open("wb") as log:
                self._process = subprocess.Popen(
                    [
                        *(sys.executable, "-m", "examples.demo_worker", *arguments),
                        *("--events", str(writing), "--parent", str(os.getpid())),
                    ],
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    cwd=scratch,
                    env=_environment(scratch),
                    pass_fds=(writing,),
                    start_new_session=True,
                )
        finally:
            os.close(writing)
        events = os.fdopen(reading, encoding="utf-8")
        threading.Thread(target=self._listen, args=(events, inbox), name=name, daemon=True).start()

    @property
    def pid(self) -> int:
        """The process id, which is also that of the process group."""
        return self._process.pid

    def tell(self, line: str) -> None:
        """Write a line to its standard input."""
        assert self._process.stdin is not None  # noqa: S101  it is a pipe
        self._process.stdin.write(f"{line}\n".encode())
        self._process.stdin.flush()

    def terminate(self) -> None:
        """Ask it to finish: SIGTERM to Python alone, since it still needs its JVM."""
        self._process.terminate()

    def kill(self) -> float:
        """``kill -9`` of the process and its JVM, at once.

        Returns:
            When, on the monotonic clock.
        """
        killed = time.monotonic()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
        return killed

    def tail(self) -> str:
        """The end of its log."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(lines[-TAIL_LINES:])

    def _listen(self, events: IO[str], inbox: Queue[Message]) -> None:
        with events:
            for line in events:
                if line.endswith("\n"):  # else cut off by a kill
                    fields = json.loads(line)
                    inbox.put(Message(child=self, event=fields.pop("event"), fields=fields))
        inbox.put(Message(child=self, event=ENDED, fields={"code": self._process.wait()}))


def _environment(scratch: Path) -> dict[str, str]:
    before = os.environ.get("SPARK_SUBMIT_OPTS", "")
    paths = [str(_ROOT), os.environ.get("PYTHONPATH", "")]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "TMPDIR": str(scratch),
        "TZ": "UTC",  # of the timestamps shown
        "SPARK_SUBMIT_OPTS": f'{_JVM_OPTIONS} "-Djava.io.tmpdir={scratch}" {before}',
    }


@contextlib.contextmanager
def run_folder(work: Path) -> Iterator[Path]:
    """A new folder inside ``work``, which no other run uses meanwhile; those of earlier runs are removed.

    A JVM of an earlier run that was killed may still be ending: it finds its own folder gone and cannot
    write into this one.

    Raises:
        DemoError: Another run uses ``work``, it holds files of others, or the spec cannot hold its path.
            Nothing was changed.
    """
    if unfit := _UNFIT.search(str(work)):
        raise DemoError(
            f"{work} has the character {unfit[0]!r}, which the URLs and patterns of the spec cannot hold; "
            "nothing was changed. Choose another folder with --work."
        )
    if work.exists() and not (work / _LOCK_FILE).exists() and any(work.iterdir()):
        raise DemoError(
            f"{work} holds files that are not the demo's; nothing was changed. Choose another with --work."
        )
    work.mkdir(parents=True, exist_ok=True)
    with (work / _LOCK_FILE).open("a+", encoding="ascii") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            raise DemoError(
                f"another demo (process {lock.read().strip()}) runs in {work}; nothing was changed. "
                "Wait for it, or choose another folder with --work."
            ) from None
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        for old in work.glob(f"{_RUN_PREFIX}*"):
            shutil.rmtree(old, ignore_errors=True)
        folder = work / f"{_RUN_PREFIX}{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
        folder.mkdir()
        yield folder
