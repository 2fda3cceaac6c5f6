"""Bookkeeping of tasks on a virtual loop, which asyncio otherwise does only for its own loops."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_CLOSE_ATTEMPTS: Final = 8


@contextmanager
def running(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """Make ``loop`` the running loop of this thread for the body."""
    asyncio._set_running_loop(loop)  # noqa: SLF001  asyncio names it for those who write a loop
    try:
        yield
    finally:
        asyncio._set_running_loop(None)  # noqa: SLF001


def forget_error(task: asyncio.Task[Any]) -> None:
    """Let nothing be logged of the error of a task."""
    task._log_traceback = False  # noqa: SLF001  no public way


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
