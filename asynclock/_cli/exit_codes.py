"""Exit codes of the command, and the error behind each.

Source: the numbers from 65 on come from BSD ``sysexits.h``; 126, 127 and 128 + n from the shell.
"""

from __future__ import annotations

from typing import Final

from asynclock.errors import (
    AcquireTimeoutError,
    AsyncLockError,
    BackendError,
    BackendNotInstalledError,
    ConfigError,
    LeaseLostError,
    RecordCorruptError,
    TicketSpentError,
)

DONE: Final = 0
NO: Final = 1
"""The answer is no: differences, not safe, changed, declined."""
USAGE: Final = 2
"""Wrong usage, URL or settings, or a missing extra."""
CORRUPT: Final = 65
UNAVAILABLE: Final = 69
"""The store does not answer, or denies access."""
NOT_ACQUIRED: Final = 75
"""Not acquired in time, or no commit can be later than the table's last one: a later try may work."""
LOST: Final = 76
"""The lease was lost, and asynclock ended CMD."""
NOT_EXECUTABLE: Final = 126
NOT_FOUND: Final = 127
SIGNALLED: Final = 128
"""Plus the number of the signal."""


def exit_code(error: AsyncLockError) -> int:
    """Return the exit code of a command that ended with ``error``."""
    if isinstance(error, AcquireTimeoutError):
        return NOT_ACQUIRED if error.reason is None else UNAVAILABLE
    codes: tuple[tuple[tuple[type[AsyncLockError], ...], int], ...] = (
        ((ConfigError, BackendNotInstalledError), USAGE),
        ((RecordCorruptError,), CORRUPT),
        ((BackendError,), UNAVAILABLE),
        ((LeaseLostError,), LOST),
        ((TicketSpentError,), NOT_ACQUIRED),
    )
    return next((code for kinds, code in codes if isinstance(error, kinds)), NO)
