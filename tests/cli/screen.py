"""Runs the command on a terminal of a given size."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from typing import TYPE_CHECKING

from tests.cli.command import COMMAND, DEADLINE

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_UP = re.compile(r"\x1b\[1A")


class Screen:
    """The command on a terminal, and all that it wrote there.

    Args:
        words: Of the command line.
        columns: Width of the terminal.
        rows: Height of the terminal.
        environment: Variables besides those of this process.
        deadline: Longest wait for what is read, in seconds.
    """

    def __init__(
        self,
        *words: str,
        columns: int = 80,
        rows: int = 24,
        environment: dict[str, str] | None = None,
        deadline: float = DEADLINE,
    ) -> None:
        self.text = ""
        self._deadline = deadline
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        inherited = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "LINES"}}
        self.process = subprocess.Popen(
            ["setsid", "--ctty", *COMMAND, *words],  # Ctrl-C reaches it only if the terminal is its own
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=inherited | {"TERM": "xterm"} | (environment or {}),
        )
        os.close(theirs)

    def read_until(self, condition: Callable[[str], object]) -> str:
        """Read until ``condition`` holds for the text so far; return it."""
        until = time.monotonic() + self._deadline
        while not condition(self.text):
            assert time.monotonic() < until, self.text
            if select.select([self._ours], [], [], 0.1)[0]:
                try:
                    self.text += os.read(self._ours, 65536).decode()
                except OSError:  # the command has ended
                    break
        return self.text

    def type(self, text: str) -> None:
        """Type something."""
        os.write(self._ours, text.encode())

    def end(self) -> int:
        """Read to the end and return the exit code."""
        self.read_until(lambda _: False)
        return self.process.wait(DEADLINE)

    @property
    def lines(self) -> list[str]:
        """All lines that were ever shown, without colours and moves of the cursor."""
        plain = _ESCAPES.sub("", _UP.sub("\n", self.text.replace("^C", ""))).replace("\r", "\n")
        return [line.rstrip() for line in plain.split("\n") if line.strip()]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        os.close(self._ours)
