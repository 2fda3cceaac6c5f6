"""End a command whose ``asynclock run`` cannot: it was killed, or it is stopped while the lease ends."""

from __future__ import annotations

import contextlib
import math
import os
import subprocess
import sys
from typing import Final

from asynclock.cli import descendants
from asynclock.cli.descendants import boot_seconds

_DISMISSED_WITHIN: Final = 2.0


class Guard:
    """A process of its own that ends a process group and, as far as it finds them, all descendants.

    It does so if this process is killed, even by ``kill -9``, and if the lease ends while this process is
    stopped. It cannot if it is killed or stopped itself.

    Args:
        group: The process group; None: it follows, by ``begin``.
        grace: Seconds between SIGTERM and SIGKILL if this process is killed.

    Attributes:
        pid: Id of the guarding process, which runs in its own session.
    """

    def __init__(self, group: int | None = None, *, grace: float) -> None:
        self._process = subprocess.Popen(  # noqa: S603  our own program
            [sys.executable, "-I", "-S", descendants.__file__, str(os.getpid()), str(grace)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self.pid: int = self._process.pid
        self._terminate_at = math.inf
        assert self._process.stdin is not None  # noqa: S101  a pipe
        self._pipe = self._process.stdin.fileno()
        # Never wait for a guard that is stopped.
        os.set_blocking(self._pipe, False)
        if group is not None:
            self.begin(group)

    def begin(self, group: int) -> None:
        """Guard a process group."""
        self._say(f"group {group}")

    def watch(self, *, terminate_at: float, kill_at: float) -> None:
        """Let it send SIGTERM and SIGKILL at these readings of the boot clock, if nothing else is said."""
        if terminate_at == self._terminate_at:
            return  # it may have sent SIGTERM already, which it must not do again
        self._terminate_at = terminate_at
        self._say(f"lease {terminate_at} {kill_at}")

    def has_terminated(self) -> bool:
        """Whether it has sent SIGTERM, because the time for that came while this process was stopped."""
        return boot_seconds() >= self._terminate_at and self._process.poll() is None

    def note_ending(self, *, kill_at: float) -> None:
        """Leave it only SIGKILL: SIGTERM has been sent."""
        self._say(f"ending {kill_at}")

    def dismiss(self) -> None:
        """Stop guarding, because the group has ended."""
        self._say("well")
        try:
            self._process.wait(_DISMISSED_WITHIN)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._process.stdin is not None  # noqa: S101  a pipe
        self._process.stdin.close()

    def _say(self, line: str) -> None:
        with contextlib.suppress(OSError):  # it was killed, or has been stopped for long
            os.write(self._pipe, f"{line}\n".encode())
