"""The terminal's foreground group: it reads the keys and gets Ctrl-C and Ctrl-Z."""

from __future__ import annotations

import contextlib
import os
import signal
import sys


class Terminal:
    """Lends this process's terminal to a child's process group; does nothing without a terminal."""

    def __init__(self) -> None:
        self._descriptor: int | None = None
        with contextlib.suppress(OSError, ValueError):  # no terminal, or no standard input at all
            descriptor = sys.stdin.fileno()
            if os.tcgetpgrp(descriptor) == os.getpgrp():
                self._descriptor = descriptor

    @property
    def present(self) -> bool:
        """Whether this process had a terminal in the foreground at its start."""
        return self._descriptor is not None

    def give(self, group: int) -> None:
        """Make ``group`` the foreground group, if this process may do that."""
        if self._descriptor is not None and self._is_foreground(os.getpgrp()):
            self._set(group)

    def take_back(self, group: int) -> None:
        """Undo ``give``."""
        if self._descriptor is not None and self._is_foreground(group):
            self._set(os.getpgrp())

    def _is_foreground(self, group: int) -> bool:
        with contextlib.suppress(OSError):  # hung up
            return self._descriptor is not None and os.tcgetpgrp(self._descriptor) == group
        return False

    def _set(self, group: int) -> None:
        assert self._descriptor is not None  # noqa: S101  checked by the callers
        # The system would stop a background process here, unless it blocks the signal.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})
        try:
            with contextlib.suppress(OSError):  # hung up, or the group is gone
                os.tcsetpgrp(self._descriptor, group)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
