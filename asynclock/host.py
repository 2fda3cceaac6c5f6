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
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, Generic, NoReturn, TypeAlias, TypeVar
from weakref import ref

import anyio

from asynclock._endings import EndingElsewhere, EndingHere
from asynclock.backends._offload import LoopExecutor
from asynclock.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

T = TypeVar("T")
Undo: TypeAlias = "Callable[[T], Coroutine[Any, Any, object]]"
THREAD_NAME: Final = "asynclock-host"


class Call(Generic[T]):
    """A coroutine in a task of its own, whose cancellation can be put off (``uninterrupted``).

    Args:
        loop: The loop that runs it.
        start: Makes the coroutine, in the task.
        undo: Takes back a result that nobody is left to take: the caller was interrupted, or its
            loop was closed.
        here: It is begun, awaited and cancelled on ``loop`` only, not from other threads.
    """

    task: asyncio.Task[None]
    """The task, from its beginning to its end."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        start: Callable[[], Coroutine[Any, Any, T]],
        undo: Undo[T] | None = None,
        *,
        here: bool = False,
    ) -> None:
        self.depth = 0
        self.cancelled = False
        """A cancellation has been asked for and not been delivered."""
        self.ended = False
        self.succeeded = False
        self.loop = loop
        self._start = start
        self._undo = undo
        self._here = here
        self._begun = False
        self._value: T
        self._error: BaseException | None = None
        self._tell: Callable[[], object] | None = None

    def begin(self) -> None:
        """Start the coroutine."""
        if self._here:
            self._begin()
        else:
            self.loop.call_soon_threadsafe(self._begin)

    def _begin(self) -> None:
        self._begun = True
        self.task = self.loop.create_task(self._run())
        if not self._here:
            self.task.add_done_callback(self._forget)

    async def _run(self) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  we are in a coroutine
        self.task = task  # an eager one runs before create_task has returned it
        _running.set(ref(self))
        try:
            self._value = await self._start()
            self.succeeded = True
        except BaseException as error:  # noqa: BLE001  raised where the call is awaited
            self._error = error
            if isinstance(error, SystemExit | KeyboardInterrupt):
                self.loop.call_soon(_raise, error)  # to end the loop: nobody may await it any more
        finally:
            # Here, not when the task is done: who waits goes on one turn of the loop earlier.
            self._end()

    def _forget(self, _: asyncio.Task[None]) -> None:
        # Else another thread may delete it, and an interrupt that strikes there just then is lost.
        del self.task
        self._end()  # a task that is cancelled from outside before its first step never got there

    def _end(self) -> None:
        self.ended = True
        tell, self._tell = self._tell, None
        if tell is not None:
            tell()

    def end(self) -> Awaitable[None]:
        """Wait until the coroutine has ended; a cancellation does not reach it."""
        return EndingHere(self) if self._here else EndingElsewhere(self)

    def when_ended(self, tell: Callable[[], object]) -> None:
        """Call ``tell``, in place of what was to be called before, on whichever thread sees the end."""
        self._tell = tell
        if self.ended:  # perhaps just now, and told already: it can bear to be told twice
            self._tell = None
            tell()

    def outcome(self) -> T:
        """Return the coroutine's result or raise its error, once; after its end."""
        if self.succeeded:
            return self._value
        error, self._error = self._error or asyncio.CancelledError(), None
        try:
            raise error
        finally:
            del error  # which bears this frame

    def cancel(self) -> None:
        """Cancel the coroutine, once it may be interrupted; it is told once."""
        self.cancelled = True
        if self._here:
            self._ask()
        else:
            self.loop.call_soon_threadsafe(self._ask)

    def _ask(self) -> None:
        if self._begun:
            # Not before its first step: a release that never began would leave its lease behind.
            self.loop.call_soon(self._cancel)
        else:
            self._end()  # interrupted before it was started

    def _cancel(self) -> None:
        if self.cancelled and self.depth == 0 and not self.ended:
            self.cancelled = False  # what cleans up after it is not interrupted again
            self.task.cancel()

    def undoing(self) -> Call[object] | None:
        """Return what takes the result back, to be begun; None if there is nothing to take back."""
        self._error = None  # not raised any more: with its traceback it would keep this call alive
        undo, self._undo = self._undo, None
        if undo is None or not self.succeeded:
            return None
        late = self._value
        return Call(self.loop, lambda: undo(late), here=self._here)

    def forsake(self) -> None:
        """Cancel the coroutine, and take back a result that comes all the same: nobody waits for it."""
        self.when_ended(self.take_back)
        self.cancel()

    def take_back(self) -> None:
        """Begin to take the result back, if there is one to take back."""
        if (undoing := self.undoing()) is not None:
            undoing.begin()

    def result(self) -> T:
        """Start the coroutine and block until it has ended; an interrupt cancels it and waits for its end."""
        waiting = threading.Lock()
        waiting.acquire()
        self._tell = waiting.release

        def wait() -> None:
            if not self.ended:
                waiting.acquire()

        try:
            self.begin()  # in here: most interrupts come while the loop is being woken
            wait()
            return self.outcome()
        except BaseException:
            if self.ended and not self.succeeded:
                raise
            # Cancel the task and wait: returning before its cleanup would leave a lock behind.
            self.cancel()
            with contextlib.suppress(BaseException):
                wait()
                if (undoing := self.undoing()) is not None:
                    undoing.result()
            raise


def _raise(error: BaseException) -> NoReturn:
    raise error


# Weakly: whatever is begun in a call copies its context, and a cancelled timer keeps its copy for long.
_running: Final[ContextVar[Callable[[], Call[Any] | None]]] = ContextVar(
    "asynclock_running", default=lambda: None
)


def running_call() -> Call[Any] | None:
    """Return the call that the running task is; None for any other task."""
    call = _running.get()()
    # A task that a call has started inherits its context, and may outlive it.
    if call is None or call.ended or call.task is not asyncio.current_task():
        return None
    return call


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
    here = asyncio.get_running_loop() is loop
    if here:
        if running_call() is not None:
            # Part of a call, whose cancellation waits for this as well: no task of its own.
            return await start()
    elif not runs(loop):  # nobody would run it, and nobody could cancel it
        raise ConfigError(
            setting="renewal",
            value="loop",
            reason="the event loop that this client belongs to does not run any more; use "
            "renewal='thread', or connect in each loop",
        )
    call = Call(loop, start, undo, here=here)
    call.begin()
    try:
        await call.end()
    except asyncio.CancelledError:
        if not call.ended:
            call.cancel()
            await _outlast(call)
        if (undoing := call.undoing()) is not None:
            undoing.begin()
            await _outlast(undoing)
        raise
    except GeneratorExit:
        # The caller was dropped as it was; the call itself may go on, on another loop.
        if not here:
            call.forsake()
        raise
    return call.outcome()


def runs(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether ``loop`` runs what it is given; that of the host does as soon as its thread has begun."""
    return loop.is_running() or Host.owns(loop)


async def _outlast(call: Call[Any]) -> None:
    """Wait for the end of ``call`` whatever cancellations arrive meanwhile."""
    waiting = True
    while waiting:
        # The scope: under anyio a cancelled scope cancels again and again until it is left.
        with contextlib.suppress(asyncio.CancelledError), anyio.CancelScope(shield=True):
            await call.end()
            waiting = False


class Host:
    """The loop thread of this process."""

    _current: Host | None = None
    _mutex = threading.Lock()

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.loop.set_default_executor(LoopExecutor(f"{THREAD_NAME}-calls"))
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
