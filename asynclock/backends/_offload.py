"""Blocking calls on a few daemon threads.

Not an executor of ``concurrent.futures``: those refuse work once the interpreter has begun to shut
down, which is when held locks are released, and a call that hangs in one keeps the process from
ending. Not ``anyio.to_thread``: its threads end with the task that began them, and here every
request is a task.
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
T = TypeVar("T")
_LOOP_THREADS: Final = 8


class Workers:
    """Daemon threads that run blocking calls for coroutines of any loop.

    Args:
        name: Prefix of the threads' names.
        count: How many calls run side by side.
    """

    def __init__(self, name: str, count: int) -> None:
        self._name = name
        self._count = count
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._started = 0
        self._idle = 0
        self._lock = threading.Lock()

    async def run(self, call: Callable[[], T]) -> T:
        """Return ``call()``; a cancelled wait leaves the call running to its end."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def job() -> None:
            error: BaseException | None = None
            result: Any = None
            try:
                result = call()
            except BaseException as raised:  # noqa: BLE001  handed to the waiting coroutine
                error = raised
            # Free before its caller goes on, whose next call then finds this thread.
            self._free()
            try:
                loop.call_soon_threadsafe(_settle, future, result, error)
            except RuntimeError:
                return  # the loop has closed; nobody waits for the answer
            finally:
                del error  # which bears this frame

        self._start(job)
        return await future

    def submit(self, call: Callable[[], object]) -> None:
        """Run ``call``, which must not raise; nobody waits for it."""

        def job() -> None:
            call()
            self._free()

        self._start(job)

    def close(self) -> None:
        """Let the threads end after the calls that are queued."""
        with self._lock:
            for _ in range(self._started):
                self._queue.put(None)
            self._started = self._idle = 0

    def _start(self, job: Callable[[], None]) -> None:
        with self._lock:
            if self._idle > 0 or self._started == self._count or not self._grown():
                self._idle -= 1
        self._queue.put(job)

    def _grown(self) -> bool:
        """Start one more thread; from Python 3.12 on an interpreter that shuts down allows none."""
        number = self._started + 1
        try:
            threading.Thread(target=self._work, name=f"{self._name}-{number}", daemon=True).start()
        except RuntimeError:
            if self._started == 0:
                raise
            return False
        self._started = number
        return True

    def _free(self) -> None:
        with self._lock:
            self._idle += 1

    def _work(self) -> None:
        while (job := self._queue.get()) is not None:
            job()


class LoopExecutor(ThreadPoolExecutor):
    """The threads of a loop of ours, which serve as long as the process does.

    For what others run in ``loop.run_in_executor(None, ...)``: the SDKs look up names, read the
    proxies of the environment and fetch credentials there, also for the release at exit. A
    ``ThreadPoolExecutor`` by name only, since a loop takes no other.
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
                except BaseException as raised:  # noqa: BLE001  handed to who waits
                    future.set_exception(raised)

        self._workers.submit(call)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: ARG002, FBT001, FBT002  Executor's signature
        """Let the threads end after the calls that are queued."""
        self._workers.close()


def _settle(future: asyncio.Future[Any], result: object, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
