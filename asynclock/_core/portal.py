"""Calls from one event loop or thread to another, and the loop thread of this process.

A call runs a coroutine in its own task. Its caller waits on a future, from the same loop or another
one, or on a lock in a thread without a loop. A caller that is cancelled or interrupted cancels the
task once and waits for its end, even if it is cancelled again; a result that comes too late is undone.
So cleaning up is never cut short, and no lock is left behind.
"""

from __future__ import annotations

import _thread
import asyncio
import contextlib
import math
import os
import sys
import threading
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, NoReturn, TypeAlias, TypeVar
from weakref import WeakKeyDictionary, ref

import anyio

from asynclock._codes import Code, coded
from asynclock._core.patched import refuse_patched
from asynclock._log import log
from asynclock.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from asynclock.backends._offload import LoopExecutor

T = TypeVar("T")
Start: TypeAlias = "Callable[[], Coroutine[Any, Any, T]]"
Undo: TypeAlias = "Callable[[T], Coroutine[Any, Any, object]]"
THREAD_NAME: Final = "asynclock-host"
# Bound here: a library that patches the module later must not swap the lock that a caller waits on.
_new_lock: Final = _thread.allocate_lock
_ANYIO_LOOP: Final = "anyio._backends._asyncio"
_NO_LOOP: Final = (
    "asynclock needs asyncio, and this thread runs no asyncio event loop. Under trio, call asynclock.sync in "
    "a thread (trio.to_thread.run_sync); without an event loop, use asynclock.sync"
)


def running_loop() -> asyncio.AbstractEventLoop:
    """Return the running loop.

    Raises:
        RuntimeError: There is none, as under trio; says what to use instead.
    """
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise RuntimeError(_NO_LOOP) from None


async def run_on(loop: asyncio.AbstractEventLoop, start: Start[T], undo: Undo[T] | None = None) -> T:
    """Run a coroutine on ``loop``; a cancellation is raised only after the coroutine has ended.

    Args:
        loop: The loop that runs it, which may be the running one.
        start: Makes the coroutine, on that loop.
        undo: Undoes a result that came too late, because the caller was cancelled.

    Raises:
        ConfigError: The loop is not running.
        RuntimeError: The caller runs on no loop of asyncio.
    """
    if running_loop() is loop:
        if current_task() in _states:
            # Already inside a call, whose caller waits for this as well: no new task is needed.
            return await start()
    elif not runs(loop):  # the coroutine would never run, and could not be cancelled
        raise ConfigError(
            setting="renewal",
            value="loop",
            reason="the event loop that this client belongs to does not run any more; use "
            "renewal='thread', or connect in each loop",
        )
    call = Call(loop, start, undo)
    ended = call.begin()
    try:
        await asyncio.shield(ended)
    except asyncio.CancelledError:
        if call.is_unfinished:
            await _outlast(call.abort().begin())
        raise
    except GeneratorExit:  # the caller's coroutine was dropped, but the call runs on another loop
        call.abandon()
        raise
    return call.outcome()


def block_on(loop: asyncio.AbstractEventLoop, start: Start[T], undo: Undo[T] | None = None) -> T:
    """Run a coroutine on the loop of another thread and block until it has ended.

    An exception raised in this thread meanwhile (``KeyboardInterrupt``) cancels the coroutine and is
    raised after the coroutine has ended. A second one stops the waiting.

    Args:
        loop: The loop that runs it.
        start: Makes the coroutine, on that loop.
        undo: Undoes a result that came too late, because the caller was interrupted.
    """
    call = Call(loop, start, undo)
    try:
        call.block()
        return call.outcome()
    except BaseException:
        if call.is_unfinished:
            with contextlib.suppress(BaseException):
                call.abort().block()
        raise


def start_on(loop: asyncio.AbstractEventLoop, start: Start[object]) -> None:
    """Run a coroutine on ``loop`` without waiting for it; callable from any thread and from finalizers.

    Raises:
        RuntimeError: The loop is closed.
    """
    Call(loop, start).begin_alone()


def runs(loop: asyncio.AbstractEventLoop) -> bool:
    """Return whether ``loop`` will run a coroutine; the host's loop counts from the start of its thread."""
    return loop.is_running() or Host.owns(loop)


def current_task() -> asyncio.Task[Any]:
    """Return the running task.

    Raises:
        RuntimeError: No loop runs; see ``running_loop``.
    """
    try:
        task = asyncio.current_task()
    except RuntimeError:
        raise RuntimeError(_NO_LOOP) from None
    assert task is not None  # noqa: S101  called by coroutines only
    return task


class uninterrupted:  # noqa: N801  read as a verb
    """Delay a cancellation of the running call (``cancel_once``) until the end of the body.

    Args:
        at_most: Cut off the body this many seconds after the cancellation; None: never.
        task: The running task, from a caller that has it.
    """

    __slots__ = ("_at_most", "_state", "_task")

    def __init__(self, at_most: float | None = None, task: asyncio.Task[Any] | None = None) -> None:
        self._at_most = at_most
        self._task = task

    def __enter__(self) -> None:
        # None: the task is not a call, so the portal does not cancel it.
        self._state = _states.get(self._task or current_task())
        self._task = None  # an error keeps this, which would keep the task
        if self._state is not None:
            self._state.bodies += 1
            self._state.at_most = self._at_most

    def __exit__(self, *_: object) -> None:
        state = self._state
        if state is not None:
            state.bodies -= 1
            if state.deferred and state.bodies == 0:
                state.deferred = False
                if state.cut_off is not None:
                    state.cut_off.cancel()
                # Not task.cancel(): a coroutine that returns without another await would lose its result.
                raise asyncio.CancelledError


def cancel_once(task: asyncio.Task[Any]) -> None:
    """Cancel the task of a call, after ``uninterrupted`` if it is inside one. Runs on the task's loop.

    Only the first request counts: a second one must not interrupt the clean-up.
    """
    state = _states.get(task)
    if state is None:
        task.cancel()
    elif not state.requested:
        loop = asyncio.get_running_loop()
        state.requested, state.requested_at = True, loop.time()
        if state.bodies > 0:
            state.deferred = True
            if state.at_most is not None:
                state.cut_off = loop.call_later(state.at_most, _cut_off, task, state)
        else:
            task.cancel()


@contextlib.contextmanager
def cut_off_at(when: float) -> Iterator[None]:
    """End the running call at that loop time, with all that its cancellation would clean up.

    Raises:
        TimeoutError: The time has come.
    """
    loop = asyncio.get_running_loop()
    timer = None if when == math.inf else loop.call_at(when, cancel_once, current_task())
    try:
        yield
    except asyncio.CancelledError:
        if loop.time() < when:
            raise
        raise TimeoutError from None
    finally:
        if timer is not None:
            timer.cancel()


def _cut_off(task: asyncio.Task[Any], state: _State) -> None:
    if state.deferred:
        task.cancel()


def cancelled_for() -> float:
    """Return for how many seconds the running call has been asked to end by ``cancel_once``, else 0.0."""
    state = _states.get(current_task())
    if state is None or not state.requested:
        return 0.0
    return asyncio.get_running_loop().time() - state.requested_at


class _State:
    """State of the cancellation of a call's task.

    Attributes:
        bodies: Number of nested ``uninterrupted`` bodies that the task is in.
        requested: A cancellation was requested.
        requested_at: When, in loop time.
        at_most: Seconds from a cancellation to the end of the innermost body; None: no limit.
        deferred: The cancellation waits for the end of these bodies.
        cut_off: Ends that wait.
    """

    __slots__ = ("at_most", "bodies", "cut_off", "deferred", "requested", "requested_at")

    def __init__(self) -> None:
        self.at_most: float | None = None
        self.cut_off: asyncio.TimerHandle | None = None
        self.requested_at = 0.0
        self.bodies = 0
        self.requested = False
        self.deferred = False


_states: Final[WeakKeyDictionary[asyncio.Task[Any], _State]] = WeakKeyDictionary()
"""By the task of each call."""


class Call(Generic[T]):
    """A coroutine that runs in its own task on ``loop``, as its caller sees it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, start: Start[T], undo: Undo[T] | None = None) -> None:
        self._loop = loop
        self._start = start
        self._undo = undo
        self._task: asyncio.Task[None] | None = None
        self._on_end: Callable[[], object] | None = None
        self._listed: ref[Call[T]] | None = None
        self._begun = self._aborted = False
        self._ended = False
        self._succeeded = False
        self._value: T
        self._error: BaseException | None = None

    def begin(self) -> asyncio.Future[None]:
        """Begin from a running loop; returns a future of that loop, which is done when the call has ended."""
        here = asyncio.get_running_loop()
        if here is self._loop:
            return self._begin()
        ended = here.create_future()

        def on_end() -> None:
            try:
                here.call_soon_threadsafe(ended.set_result, None)
            except RuntimeError:  # the caller's loop is closed
                self.abandon()

        self._on_end = on_end
        self.begin_alone()
        return ended

    def block(self) -> None:
        """Begin from a thread without a loop, and block until the end."""
        # A plain lock: an exception raised while it is acquired leaves nothing half done.
        ended = _new_lock()
        ended.acquire()
        self._on_end = ended.release
        self.begin_alone()
        ended.acquire()

    def begin_alone(self) -> None:
        """Begin from any thread, and do not wait.

        Raises:
            RuntimeError: The loop is closed.
            ConfigError: The host's thread has died.
        """
        if Host.owns(self._loop):
            self._listed = ref(self, _calls.discard)
            _calls.add(self._listed)
        if self._loop in _deaths:
            self._unlist()
            raise _deaths[self._loop].with_traceback(None)
        self._loop.call_soon_threadsafe(self._begin)

    def fail(self, error: BaseException) -> None:
        """End with ``error``: nobody runs the loop any more."""
        if not self._ended:
            self._error = error
            self._end(None)

    def _begin(self) -> asyncio.Task[None]:
        self._task = task = self._loop.create_task(self._run())
        task.add_done_callback(self._end)
        return task

    async def _run(self) -> None:
        self._begun = True
        task = self._task or current_task()  # None: it was begun eagerly
        _states[task] = _State()
        if self._aborted:
            cancel_once(task)
        del task  # an error keeps this frame, which would keep the task
        try:
            self._value = await self._start()
            self._succeeded = True
        except BaseException as error:  # noqa: BLE001  raised where the call is awaited
            # Drop this frame, which refers to this call, to avoid a reference cycle.
            self._error = error.with_traceback(error.__traceback__ and error.__traceback__.tb_next)
            if isinstance(error, SystemExit | KeyboardInterrupt):
                self._loop.call_soon(_raise, error)  # ends the loop, even if the caller is gone

    def _unlist(self) -> None:
        if self._listed is not None:
            _calls.discard(self._listed)

    def _end(self, _: asyncio.Task[None] | None) -> None:
        self._unlist()
        # Dropped here, not in the caller's thread, where an interrupt during a finalizer would be lost.
        self._task = None
        self._ended = True
        on_end, self._on_end = self._on_end, None
        if on_end is not None:
            on_end()

    @property
    def is_unfinished(self) -> bool:
        """Whether there is something to cancel or to undo."""
        return not self._ended or (self._succeeded and self._undo is not None)

    def outcome(self) -> T:
        """Return the coroutine's result or raise its error, once; after the end."""
        if self._succeeded:
            return self._value
        error, self._error = self._error or asyncio.CancelledError(), None
        try:
            raise error
        finally:
            del error  # its traceback refers to this frame

    def runs_on(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Whether that is its loop."""
        return self._loop is loop

    def abort(self) -> Call[None]:
        """Return the call that cancels this one, waits for its end and undoes its result."""
        return Call(self._loop, self._abort)

    def abandon(self) -> None:
        """Abort without waiting: the caller is gone."""
        with contextlib.suppress(RuntimeError, ConfigError):  # the loop is closed as well
            self.abort().begin_alone()

    async def _abort(self) -> None:
        if self._task is not None:
            # A release that was cancelled before its first step would leave its lease behind.
            if self._begun:
                cancel_once(self._task)
            self._aborted = True
            await asyncio.wait([self._task])
        undo, self._undo = self._undo, None
        if self._succeeded and undo is not None:
            await undo(self._value)


async def _outlast(ended: asyncio.Future[None]) -> None:
    """Wait for ``ended``, ignoring cancellations."""
    while not ended.done():
        with contextlib.suppress(asyncio.CancelledError), _shielded():
            await asyncio.shield(ended)


def _shielded() -> contextlib.AbstractContextManager[object]:
    """Keep the cancelled scopes of anyio off, which cancel again and again until they are left."""
    # Without its loop there is no scope around us. To load it now may fail: files may have run out.
    return anyio.CancelScope(shield=True) if _ANYIO_LOOP in sys.modules else contextlib.nullcontext()


def _raise(error: BaseException) -> NoReturn:
    raise error


_calls: Final[set[ref[Call[Any]]]] = set()
"""The calls from other threads and loops that the host has not ended yet.

Weak: a call whose caller is gone with its event loop would keep alive what it refers to, such as a lease.
A dead reference leaves by ``set.discard``: an interrupt that strikes a callback written in Python is lost.
"""
_deaths: Final[dict[asyncio.AbstractEventLoop, ConfigError]] = {}
"""By the loop of each host whose thread has died: what its callers get."""


class Host:
    """The loop thread of this process.

    A signal handler may call while the thread that it interrupted is here. So only short-lived threads take
    mutexes: no handler interrupts them, and nobody waits for them.
    """

    on_death: Callable[[asyncio.AbstractEventLoop, str], object] | None = None
    """Called in the dying thread with its loop and the reason."""
    _current: Host | None = None
    _made: ClassVar[dict[str, Host]] = {}
    """Decides in one step which of several hosts that are made at once is the one."""

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop = asyncio.new_event_loop()
        self.loop.set_default_executor(prepare()(f"{THREAD_NAME}-calls"))
        self._mutex = _new_lock()
        self._begun = False

    @classmethod
    def get(cls) -> Host:
        """Return the host of this process; the first call starts it, and it runs until the process ends.

        Raises:
            ConfigError: gevent or eventlet has patched threads or sockets.
            RuntimeError: No thread could be started.
        """
        return cls._current or cls._start()

    @classmethod
    def _start(cls) -> Host:
        refuse_patched()
        mine = cls()
        host = cls._made.setdefault("host", mine)
        if host is not mine:
            mine.loop.close()
        # Not threading.Thread here: it takes locks of its own, in which a handler may have come.
        _thread.start_new_thread(host.begin, ())
        cls._current = host  # only now: who finds it does not start it
        if host.loop in _deaths:
            cls._current = None
        return host

    def begin(self) -> None:
        """Start the thread, unless that was done; in a short thread of its own."""
        with self._mutex:
            if self._begun:
                return
            self._begun = True
        try:
            threading.Thread(target=self.run, name=THREAD_NAME, daemon=True).start()
        except BaseException as error:  # noqa: BLE001  as if it had begun
            self._die(error)

    @classmethod
    def owns(cls, loop: asyncio.AbstractEventLoop) -> bool:
        """Whether ``loop`` is the host's."""
        return cls._current is not None and cls._current.loop is loop

    @classmethod
    def forget(cls) -> None:
        """Forget the parent's host, whose thread does not run in a forked child."""
        cls._made.clear()
        cls._current = None
        _calls.clear()

    def run(self) -> None:
        """Run the loop in this thread, until the process ends or the loop fails."""
        death: BaseException = RuntimeError("its event loop was closed")
        try:
            asyncio.set_event_loop(self.loop)
            while not self.loop.is_closed():
                # A SystemExit in a user's callback ends run_forever, but this loop goes on renewing leases.
                with contextlib.suppress(SystemExit, KeyboardInterrupt):
                    self.loop.run_forever()
        except BaseException as error:  # noqa: BLE001  passed on to all callers
            death = error
        self._die(death)

    @classmethod
    def _forget(cls, host: Host) -> None:
        """Let the next call start another host, unless that has happened."""
        cls._made.clear()
        if cls._current is host:
            cls._current = None

    def _die(self, death: BaseException) -> None:
        """Let every caller know, and the next one start another host."""
        reason = f"asynclock's thread has died ({type(death).__name__}: {death})"
        error = ConfigError(
            setting="client", value=THREAD_NAME, reason=f"{reason}, and nothing is renewed; connect again"
        )
        _deaths[self.loop] = error
        self._forget(self)
        log.critical(coded(f"{reason}; its leases are lost", Code.LOSS))
        if Host.on_death is not None:
            Host.on_death(self.loop, reason)
        for listed in list(_calls):
            if (call := listed()) is not None and call.runs_on(self.loop):
                call.fail(error)


def prepare() -> type[LoopExecutor]:
    """Import what the host needs, and return its executor; called early, by ``connect``.

    Raises:
        RuntimeError: A signal handler calls in the middle of this import.
    """
    try:
        from asynclock.backends._offload import LoopExecutor  # noqa: PLC0415  a twentieth of the import
    except ImportError as error:
        raise RuntimeError(
            "a signal handler called asynclock in the middle of its import; connect before you set a handler"
        ) from error
    return LoopExecutor


os.register_at_fork(after_in_child=Host.forget)
