"""The terminal's foreground: whose keys are read, and whom Ctrl-C and Ctrl-Z reach."""

from __future__ import annotations

import contextlib
import os
import signal
import sys


class Terminal:
    """Lends this process's terminal to the group of a child; without a terminal it does nothing."""

    def __init__(self) -> None:
        self._descriptor: int | None = None
        with contextlib.suppress(OSError, ValueError):  # no terminal, or no standard input at all
            descriptor = sys.stdin.fileno()
            if os.tcgetpgrp(descriptor) == os.getpgrp():
                self._descriptor = descriptor

    @property
    def present(self) -> bool:
        """Whether there is a terminal and it was ours at the start."""
        return self._descriptor is not None

    def give(self, group: int) -> None:
        """Let ``group`` read the keys, if this process may say so."""
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
        assert self._descriptor is not None  # noqa: S101  asked for by the callers
        # A background process that does this is stopped, unless it blocks the signal.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})
        try:
            with contextlib.suppress(OSError):  # hung up, or the group is gone
                os.tcsetpgrp(self._descriptor, group)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
