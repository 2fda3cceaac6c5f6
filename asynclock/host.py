"""An event loop in a thread of its own, and calls to a loop from anywhere.

Renewals run there while the caller's own loop, or its only thread, is blocked. A cancelled
call is cancelled once on the loop that runs it, and its end is awaited before the cancellation
goes on: cleaning up is never cut short by a second one.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from concurrent.futures import Future
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar

import anyio

from asynclock.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

T = TypeVar("T")
Undo: TypeAlias = "Callable[[T], Coroutine[Any, Any, object]]"
THREAD_NAME: Final = "asynclock-host"


class Running(Generic[T]):
    """The task of one call, whose cancellation can be put off.

    Args:
        start: Makes the coroutine, in the task.
    """

    def __init__(self, start: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self.depth = 0
        self.cancelled = False
        self._waiting: asyncio.Future[None] | None = None
        self.task = asyncio.get_running_loop().create_task(self._run(start))
        # A task that is cancelled from outside before its first step never gets to its end.
        self.task.add_done_callback(self._ended)

    async def _run(self, start: Callable[[], Coroutine[Any, Any, T]]) -> T:
        _running.set(self)
        try:
            return await start()
        finally:
            # Here, not when the task is done: who waits goes on one turn of the loop earlier.
            self._ended()

    async def end(self) -> None:
        """Wait until the call has ended, on its loop; a cancellation does not reach it."""
        if not self.task.done():
            self._waiting = self.task.get_loop().create_future()
            await self._waiting

    def _ended(self, _: object = None) -> None:
        if self._waiting is not None:
            _wake(self._waiting)

    def cancel(self) -> None:
        """Cancel the call, once it may be interrupted."""
        self.cancelled = True
        # Not before its first step: a release that never began would leave its lease behind.
        self.task.get_loop().call_soon(self._cancel)

    def _cancel(self) -> None:
        if self.cancelled and self.depth == 0:
            self.cancelled = False  # told once: what cleans up after it is not interrupted again
            self.task.cancel()


_running: Final[ContextVar[Running[Any] | None]] = ContextVar("asynclock_running", default=None)


def running_call() -> Running[Any] | None:
    """Return the call that the running task is; None for any other task."""
    call = _running.get()
    # A task that a call has started inherits its context.
    return call if call is not None and call.task is asyncio.current_task() else None


class uninterrupted:  # noqa: N801  used like contextlib.suppress
    """A body that a cancelled call finishes before the cancellation is raised, at its end.

    Args:
        counted: Has the running task among its members while the body runs.
    """

    __slots__ = ("_call", "_counted", "_task")

    def __init__(self, counted: set[asyncio.Task[object]] | None = None) -> None:
        self._counted = counted

    def __enter__(self) -> None:
        self._call = call = running_call()
        if call is not None:
            call.depth += 1
        if self._counted is not None:
            self._task = asyncio.current_task() if call is None else call.task
            assert self._task is not None  # noqa: S101  we are in a coroutine
            self._counted.add(self._task)

    def __exit__(self, *_: object) -> None:
        call = self._call
        if self._counted is not None and self._task is not None:
            self._counted.discard(self._task)
        if call is not None:
            call.depth -= 1
            if call.depth == 0 and call.cancelled:
                # Not task.cancel(): a coroutine that returns without another await would lose its result.
                call.cancelled = False
                raise asyncio.CancelledError


class Call(Generic[T]):
    """A coroutine for a loop of another thread.

    Args:
        loop: The loop that runs it.
        start: Makes the coroutine, on that loop.
        undo: Takes back a result that nobody is left to take: the caller was interrupted, or its
            loop was closed.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        start: Callable[[], Coroutine[Any, Any, T]],
        undo: Undo[T] | None = None,
    ) -> None:
        self.future: Future[T] = Future()
        self._loop = loop
        self._start = start
        self._undo = undo
        self._running: Running[T] | None = None

    async def end(self) -> None:
        """Wait until the coroutine has ended, on any loop; a cancellation does not reach it."""
        here = asyncio.get_running_loop()
        ended: asyncio.Future[None] = here.create_future()

        def tell(_: object) -> None:
            try:
                here.call_soon_threadsafe(_wake, ended)
            except RuntimeError:  # that loop is closed
                self._take_back()

        self.future.add_done_callback(tell)
        await ended

    def forsake(self) -> None:
        """Cancel the coroutine, and take back a result that comes all the same: nobody waits for it."""
        self.future.add_done_callback(lambda _: self._take_back())
        self.cancel()

    def _take_back(self) -> None:
        undo, self._undo = self._undo, None
        if undo is not None and self.future.exception() is None:
            late = self.future.result()
            Call(self._loop, lambda: undo(late)).begin()

    def begin(self) -> None:
        """Start the coroutine; ``future`` is done once it has ended."""
        self._loop.call_soon_threadsafe(self._begin)

    def cancel(self) -> None:
        """Cancel the coroutine; ``future`` is done once it has ended."""
        self._loop.call_soon_threadsafe(self._cancel)

    def result(self) -> T:
        """Start the coroutine and block until it has ended; an interrupt cancels it and waits for its end."""
        undo = self._undo
        try:
            self.begin()  # in here: most interrupts come while the loop is being woken
            return self.future.result()
        except BaseException as error:
            if self.future.done() and self.future.exception() is error:
                raise
            # Cancel the task, not the future: returning before its cleanup would leave a lock behind.
            self.cancel()
            with contextlib.suppress(BaseException):
                late = self.future.result()
                if undo is not None:
                    Call(self._loop, lambda: undo(late)).result()
            raise

    def _begin(self) -> None:
        self._running = Running(self._start)
        self._running.task.add_done_callback(self._finish)

    def _cancel(self) -> None:
        if self._running is not None:
            self._running.cancel()
        else:
            self.future.set_exception(asyncio.CancelledError())  # interrupted before it was started

    def _finish(self, task: asyncio.Task[T]) -> None:
        if task.cancelled():
            self.future.set_exception(asyncio.CancelledError())
        elif (error := task.exception()) is not None:
            self.future.set_exception(error)
        else:
            self.future.set_result(task.result())


async def run_on(
    loop: asyncio.AbstractEventLoop,
    start: Callable[[], Coroutine[Any, Any, T]],
    undo: Undo[T] | None = None,
) -> T:
    """Run a coroutine on ``loop``; a cancellation waits for its end before it goes on.

    Args:
        loop: The loop that runs it, which may be the running one.
        start: Makes the coroutine, on that loop.
        undo: Takes back a result that came too late, because the caller was cancelled.

    Raises:
        ConfigError: That loop does not run.
    """
    call: Running[T] | Call[T]
    result: asyncio.Task[T] | Future[T]
    if asyncio.get_running_loop() is loop:
        if running_call() is not None:
            # Part of a call, whose cancellation waits for this as well: no task of its own.
            return await start()
        call = Running(start)
        result = call.task
    else:
        if not runs(loop):  # nobody would run it, and nobody could cancel it
            raise ConfigError(
                setting="renewal",
                value="loop",
                reason="the event loop that this client belongs to does not run any more; use "
                "renewal='thread', or connect in each loop",
            )
        call = Call(loop, start, undo)
        call.begin()
        result = call.future
    try:
        await call.end()
    except asyncio.CancelledError:
        if not result.done():
            call.cancel()
            await _outlast(call)
        if not result.cancelled() and result.exception() is None and undo is not None:
            late = result.result()
            undoing = Running(lambda: run_on(loop, lambda: undo(late)))
            await _outlast(undoing)
            if not undoing.task.cancelled():
                undoing.task.exception()  # retrieved, so that nobody complains
        raise
    except GeneratorExit:
        # The caller was dropped as it was; the call itself may go on, on another loop.
        if isinstance(call, Call):
            call.forsake()
        raise
    return result.result()


def runs(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether ``loop`` runs what it is given; that of the host does as soon as its thread has begun."""
    return loop.is_running() or Host.owns(loop)


async def _outlast(call: Running[Any] | Call[Any]) -> None:
    """Wait for the end of ``call`` whatever cancellations arrive meanwhile."""
    waiting = True
    while waiting:
        # The scope: under anyio a cancelled scope cancels again and again until it is left.
        with contextlib.suppress(asyncio.CancelledError), anyio.CancelScope(shield=True):
            await call.end()
            waiting = False


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


class Host:
    """The loop thread of this process."""

    _current: Host | None = None
    _mutex = threading.Lock()

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=THREAD_NAME, daemon=True)
        self._thread.start()

    @classmethod
    def get(cls) -> Host:
        """Return the host of this process; started at the first call, for the life of the process."""
        with cls._mutex:
            if cls._current is None:
                cls._current = cls()
            return cls._current

    @classmethod
    def owns(cls, loop: asyncio.AbstractEventLoop) -> bool:
        """Whether ``loop`` is the host's."""
        return cls._current is not None and cls._current.loop is loop

    @classmethod
    def forget(cls) -> None:
        """Leave the parent's host behind: its thread does not run in a forked child."""
        cls._mutex = threading.Lock()
        cls._current = None

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        while not self.loop.is_closed():
            # A SystemExit of a user's callback ends run_forever; every lease here is renewed by it.
            with contextlib.suppress(SystemExit, KeyboardInterrupt):
                self.loop.run_forever()


os.register_at_fork(after_in_child=Host.forget)
