"""A driver in a process of its own, which is asked and answers line by line."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

from tests.laboratory.mechanisms.stage import must

if TYPE_CHECKING:
    from typing import Self

_GRACE = 30.0


class Child:
    """A module that runs as a program, with all that it starts in one process group.

    Args:
        module: Its name.
        spec: The spec it works on, which is its first argument; its log is beside it.
        arguments: The others.
        package: Where the module is; default: here.
    """

    def __init__(self, module: str, spec: Path, *arguments: object, package: str = __package__) -> None:
        self._log = spec.with_name(f"{module}.log").open("wb")
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"{package}.{module}", str(spec), *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            start_new_session=True,
            cwd=Path(__file__).parents[3],
        )

    def pause(self) -> None:
        """Stop it where it is."""
        os.killpg(self._process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        os.killpg(self._process.pid, signal.SIGCONT)

    def tell(self, line: str = "") -> None:
        """Send it a line."""
        pipe = cast("IO[str]", self._process.stdin)
        pipe.write(f"{line}\n")
        pipe.flush()

    def answer(self) -> str:
        """Wait for a line, and return it."""
        line = cast("IO[str]", self._process.stdout).readline()
        must(line, f"{self._process.args!r} answers; see {self._log.name}")
        return line.rstrip("\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        cast("IO[str]", self._process.stdin).close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_GRACE)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        cast("IO[str]", self._process.stdout).close()
        self._log.close()
