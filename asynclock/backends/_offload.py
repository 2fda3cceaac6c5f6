"""Blocking calls on a few threads of a backend's own.

Not an executor: executors refuse work once the interpreter has begun to shut down, which is
when held locks are released. Not ``anyio.to_thread``: its threads end with the task that began
them, and here every request is a task.
"""

from __future__ import annotations

import asyncio
import threading
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
_Job = tuple[asyncio.AbstractEventLoop, "asyncio.Future[Any]", "Callable[[], Any]"]


class Workers:
    """Daemon threads that run blocking calls for coroutines of any loop.

    Args:
        name: Prefix of the threads' names.
        count: How many calls run side by side.
    """

    def __init__(self, name: str, count: int) -> None:
        self._name = name
        self._count = count
        self._queue: SimpleQueue[_Job | None] = SimpleQueue()
        self._started = 0
        self._idle = 0
        self._lock = threading.Lock()

    async def run(self, call: Callable[[], T]) -> T:
        """Return ``call()``; a cancelled wait leaves the call running to its end."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        with self._lock:
            if self._idle == 0 and self._started < self._count:
                self._started += 1
                threading.Thread(target=self._work, name=f"{self._name}-{self._started}", daemon=True).start()
            else:
                self._idle -= 1
        self._queue.put((loop, future, call))
        return await future

    def close(self) -> None:
        """Let the threads end after the calls that are queued."""
        with self._lock:
            for _ in range(self._started):
                self._queue.put(None)
            self._started = self._idle = 0

    def _work(self) -> None:
        while (job := self._queue.get()) is not None:
            loop, future, call = job
            try:
                result, error = call(), None
            except BaseException as raised:  # noqa: BLE001  handed to the waiting coroutine
                result, error = None, raised
            with self._lock:
                self._idle += 1
            try:
                loop.call_soon_threadsafe(_settle, future, result, error)
            except RuntimeError:
                # The loop has closed; nobody waits for the answer.
                continue


def _settle(future: asyncio.Future[Any], result: object, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
