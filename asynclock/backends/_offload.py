"""Runs blocking calls on a few daemon threads until the process ends.

Why not an executor of ``concurrent.futures``: it refuses work once the interpreter shuts down, and that is
when held locks are released. A call that hangs in it also keeps the process from ending. Why not
``anyio.to_thread``: its threads end with the task that started them, and every request to a backend runs in a
task of its own.
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

P = ParamSpec("P")
T = TypeVar("T")
_LOOP_THREADS: Final = 8


class Workers:
    """Daemon threads that run blocking calls for coroutines of any event loop.

    Threads are started as they are needed.

    Args:
        name: Prefix of the threads' names.
        count: Largest number of threads; further calls wait in a queue.
    """

    def __init__(self, name: str, count: int) -> None:
        self._name = name
        self._count = count
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._started = 0
        self._idle = 0
        self._lock = threading.Lock()

    async def run(self, call: Callable[[], T]) -> T:
        """Return ``call()``. If the caller is cancelled, the call keeps running and its result is dropped."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def job() -> None:
            error: BaseException | None = None
            result: Any = None
            try:
                result = call()
            except BaseException as raised:  # noqa: BLE001  handed to the waiting coroutine
                error = raised
            # Before the caller resumes: its next call then reuses this thread instead of starting another.
            self._mark_idle()
            try:
                loop.call_soon_threadsafe(_settle, future, result, error)
            except RuntimeError:
                return  # the loop has closed; nobody waits for the result
            finally:
                del error  # its traceback refers to this frame: a reference cycle

        self._start(job)
        return await future

    def submit(self, call: Callable[[], object]) -> None:
        """Run ``call``, which must not raise, without waiting for it."""

        def job() -> None:
            call()
            self._mark_idle()

        self._start(job)

    def close(self) -> None:
        """End the threads once the queued calls have run. Does not wait for them."""
        with self._lock:
            for _ in range(self._started):
                self._queue.put(None)
            self._started = self._idle = 0

    def _start(self, job: Callable[[], None]) -> None:
        with self._lock:
            if self._idle > 0 or self._started == self._count or not self._start_thread():
                self._idle -= 1
        self._queue.put(job)

    def _start_thread(self) -> bool:
        """Start one more thread; return False if Python allows none, as from 3.12 on during shutdown."""
        number = self._started + 1
        try:
            threading.Thread(target=self._work, name=f"{self._name}-{number}", daemon=True).start()
        except RuntimeError:
            if self._started == 0:
                raise
            return False
        self._started = number
        return True

    def _mark_idle(self) -> None:
        with self._lock:
            self._idle += 1

    def _work(self) -> None:
        while (job := self._queue.get()) is not None:
            job()


async def run_apart(name: str, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine that may block, on its own thread and event loop, and return its result.

    Not in the executor of the caller's loop: a closing loop waits for its executor, and the work may hang.

    Args:
        name: Prefix of the thread's name.
        work: Makes the coroutine. If the caller is cancelled, it keeps running and its result is dropped.
    """
    workers = Workers(name, 1)
    try:
        return await workers.run(lambda: asyncio.run(work()))
    finally:
        workers.close()


class LoopExecutor(ThreadPoolExecutor):
    """The default executor of asynclock's own event loop. It accepts work until the process ends.

    The SDKs call ``loop.run_in_executor(None, ...)`` to look up names, read proxy settings and fetch
    credentials. They still need it when locks are released at exit. It inherits from ``ThreadPoolExecutor``
    because asyncio accepts no other class; the inherited threads are never started.
    """

    def __init__(self, name: str) -> None:
        super().__init__(max_workers=1)
        self._workers = Workers(name, _LOOP_THREADS)

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run ``fn``; see ``concurrent.futures.Executor.submit``."""
        future: Future[T] = Future()

        def call() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(fn(*args, **kwargs))
                except BaseException as raised:  # noqa: BLE001  handed to the waiting caller
                    future.set_exception(raised)

        self._workers.submit(call)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: ARG002, FBT001, FBT002  Executor's signature
        """End the threads once the queued calls have run. Does not wait for them."""
        self._workers.close()


def _settle(future: asyncio.Future[Any], result: object, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
