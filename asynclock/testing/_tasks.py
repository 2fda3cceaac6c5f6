"""Tasks that a virtual loop drops."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import asyncio

_CLOSE_ATTEMPTS: Final = 8


def dispose(task: asyncio.Task[Any]) -> None:
    """Drop a task that will never run again, without a warning of the garbage collector."""
    task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001  no public way
    coroutine = task.get_coro()
    for _ in range(_CLOSE_ATTEMPTS):
        # A ``finally`` that awaits survives a close. Nothing that a dead process does has an effect, so
        # whatever its cleanup raises, delayed cancellations included, is ignored.
        with suppress(BaseException):
            coroutine.close()
            return
