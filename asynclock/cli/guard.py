"""End a command whose ``asynclock run`` was killed, since its lease is no longer renewed."""

from __future__ import annotations

import subprocess
from typing import Final

# Its standard input is a pipe that only we can write to: a line says that all is well, and its end
# without a line that we died. We believed in the lease then, so others wait for longer than the grace.
_SCRIPT: Final = """
read -r well && exit
kill -TERM "-$1"; kill -CONT "-$1"
tenths=$2
while [ "$tenths" -gt 0 ] && kill -0 "-$1"; do sleep 0.1; tenths=$((tenths - 1)); done
kill -KILL "-$1"
"""


class Guard:
    """Ends a process group if this process is killed, even by ``kill -9``.

    Args:
        group: The process group.
        grace: Seconds between SIGTERM and SIGKILL.

    Attributes:
        pid: Id of the guarding process, which runs in its own session.
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
        """Stop guarding, because the group has ended."""
        self._process.communicate(b"well\n")
