"""The end of a call, for the task that awaits it: on the call's own loop, or on another thread's."""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from contextvars import Context

    from asynclock.host import Call


class _Ending(ABC):
    """The end of a call, awaited; a cancellation ends the waiting, not the call.

    To the task that awaits it this is a future (``asyncio.isfuture``). A real one, that of
    ``asyncio.shield`` too, would wake the task a turn of its loop later.
    """

    _asyncio_future_blocking = False
    _error: asyncio.CancelledError | None = None
    _wake: Callable[[Any], object]
    _context: Context

    def __init__(self, call: Call[Any]) -> None:
        self._call = call
        self._loop = asyncio.get_running_loop()

    def __await__(self) -> Generator[Any, None, None]:
        if not self._is_over():
            self._asyncio_future_blocking = True
            yield self

    @abstractmethod
    def _is_over(self) -> bool: ...

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    def result(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            try:
                raise error
            finally:
                del error  # which bears this frame

    def _wake_cancelled(self, msg: object) -> None:
        self._error = asyncio.CancelledError() if msg is None else asyncio.CancelledError(msg)
        self._loop.call_soon(self._wake, self, context=self._context)


class EndingHere(_Ending):
    """The end of a call on the loop that awaits it."""

    def _is_over(self) -> bool:
        return self._call.task.done()  # also where it was cancelled before its first step

    def add_done_callback(self, wake: Callable[[Any], object], *, context: Context) -> None:
        self._wake, self._context = wake, context
        self._call.task.add_done_callback(wake, context=context)

    def cancel(self, msg: object = None) -> bool:
        if not self._call.task.remove_done_callback(self._wake):
            return False  # it is being woken: it cancels itself
        self._wake_cancelled(msg)
        return True


class EndingElsewhere(_Ending):
    """The end of a call on a loop of another thread."""

    def __init__(self, call: Call[Any]) -> None:
        super().__init__(call)
        self._once = threading.Lock()
        """Taken by who wakes the task: the end of the call, or a cancellation."""

    def _is_over(self) -> bool:
        return self._call.ended

    def add_done_callback(self, wake: Callable[[_Ending], object], *, context: Context) -> None:
        self._wake, self._context = wake, context
        self._call.when_ended(self._told)

    def cancel(self, msg: object = None) -> bool:
        if not self._once.acquire(blocking=False):
            return False  # as above
        self._wake_cancelled(msg)
        return True

    def _told(self) -> None:
        if not self._once.acquire(blocking=False):
            return
        try:
            self._loop.call_soon_threadsafe(self._wake, self, context=self._context)
        except RuntimeError:  # that loop is closed
            self._call.take_back()
