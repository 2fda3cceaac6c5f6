"""The standard streams as the caller left them: open, closed, full, or a pipe that nobody reads."""

from __future__ import annotations

import contextlib
import io
import os
import sys


def open_standard_streams() -> None:
    """Take descriptors 0 to 2 if they are closed, so that no socket and no file is mistaken for a stream.

    CMD and all other children find them closed, as they would without this process. In this process the input
    is empty, messages are dropped, and printing results is an error.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # ``number`` is the lowest free one. Reading the output and writing the input fail, on purpose.
            with contextlib.suppress(OSError):
                os.open(os.devnull, os.O_WRONLY if number == 0 else os.O_RDONLY)
    # For this process only, and open until its end.
    sys.stdin = sys.stdin or open(os.devnull, encoding="utf-8")  # noqa: PTH123, SIM115
    sys.stdout = sys.stdout or open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
    _notice_lost_output()


def _notice_lost_output() -> None:
    """Make a full non-blocking pipe raise an error: an unbuffered stream drops the rest."""
    raw = getattr(sys.stdout, "buffer", None)
    if isinstance(raw, io.RawIOBase):
        encoding, errors = sys.stdout.encoding, sys.stdout.errors
        buffer = io.BufferedWriter(raw)
        sys.stdout = io.TextIOWrapper(buffer, encoding=encoding, errors=errors, line_buffering=True)


def drop_output() -> None:
    """Drop the unwritten standard output, or the interpreter would complain about it at its end."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def drop_messages() -> None:
    """Drop messages that could not be written, for example to a full disk, to keep the exit code."""
    try:
        sys.stderr.flush()
    except (OSError, ValueError):
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
