"""The end of a command whose ``asynclock run`` was killed: nobody renews its lease any more."""

from __future__ import annotations

import subprocess
from typing import Final

# Its standard input is a pipe from us that nobody else holds: a line says that all is well, its
# end without one that we died. The lease was believed then, so others wait longer than the grace.
_SCRIPT: Final = """
read -r well && exit
kill -TERM "-$1"; kill -CONT "-$1"
tenths=$2
while [ "$tenths" -gt 0 ] && kill -0 "-$1"; do sleep 0.1; tenths=$((tenths - 1)); done
kill -KILL "-$1"
"""


class Guard:
    """Ends a process group when this process is killed, ``kill -9`` included.

    Args:
        group: The process group.
        grace: Seconds between SIGTERM and SIGKILL.

    Attributes:
        pid: Of the guarding process, in a session of its own.
    """

    def __init__(self, group: int, *, grace: float) -> None:
        self._process = subprocess.Popen(  # noqa: S603  two numbers
            ["/bin/sh", "-c", _SCRIPT, "asynclock-guard", str(group), str(int(grace * 10))],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self.pid = self._process.pid

    def dismiss(self) -> None:
        """End the guarding: the group has ended."""
        self._process.communicate(b"well\n")
