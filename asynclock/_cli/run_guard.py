"""Ends a command if ``asynclock run`` cannot, because it was killed, or is stopped when the lease ends."""

from __future__ import annotations

import contextlib
import math
import os
import subprocess
import sys
from typing import Final

from asynclock._cli import descendants
from asynclock._cli.descendants import boot_seconds

_DISMISSED_WITHIN: Final = 2.0


class Guard:
    """A separate process that ends a process group and all descendants that it finds.

    It acts if this process is killed, even by ``kill -9``, and if the lease ends while this process is
    stopped. It cannot act if it is killed or stopped itself.

    Args:
        group: The process group; None: ``begin`` sets it later.
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
        """Make the guard send SIGTERM and SIGKILL at these boot-clock times, unless told otherwise."""
        if terminate_at == self._terminate_at:
            return  # it may have sent SIGTERM already and must not send it again
        self._terminate_at = terminate_at
        self._say(f"lease {terminate_at} {kill_at}")

    def has_terminated(self) -> bool:
        """Whether the guard sent SIGTERM, because its time came while this process was stopped."""
        return boot_seconds() >= self._terminate_at and self._process.poll() is None

    def note_ending(self, *, kill_at: float) -> None:
        """Tell the guard that SIGTERM was sent, so only SIGKILL is left for it."""
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
        with contextlib.suppress(OSError):  # the guard was killed, or has been stopped for a long time
            os.write(self._pipe, f"{line}\n".encode())
