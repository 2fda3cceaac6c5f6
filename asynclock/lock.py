"""A lock that lives in an object store.

Guarantee: at most one lease on a lock is believed at any instant (``lease.held``), whatever
writes are lost, late or repeated and whatever processes pause or die, provided that the nodes
of the store agree within ``max_clock_skew``, that clocks drift by less than
``safety_margin / validity``, and that this machine's wall clock is not wrong by exactly the
error of a wrong Date. ``break_lock`` is not covered.

Not guaranteed: that a process which no longer believes has stopped *acting*. A write sent before
the loss may arrive after it. ``fencing_token``, checked by the resource, closes that gap;
``FencedObject`` does so for objects in the same store.

Skew rule: the lock of another is free by the store's clock, or once its record was seen unchanged
for its whole validity; never by this machine's wall clock.
"""

from __future__ import annotations

import asyncio
import warnings
from contextlib import AbstractAsyncContextManager, suppress
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeVar
from weakref import WeakKeyDictionary, WeakMethod, ref

from asynclock.errors import ConfigError, LeaseLostError
from asynclock.lease import Lease
from asynclock.portal import current_task, run_on
from asynclock.settings import MAX_VALIDITY

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from types import TracebackType

    from asynclock.engine import LockEngine
    from asynclock.protocol.held import HeldLock
    from asynclock.status import LockStatus

T = TypeVar("T")


class LeaseHooks(Protocol):
    """What else happens when a lease begins and ends. Both run on the client's loop."""

    async def begin(self, held: HeldLock) -> None:
        """Run once the lock is held, before the lease is handed out; an exception releases the lock."""
        ...

    async def end(self, release: Callable[[], Awaitable[bool]]) -> bool:
        """Release the lock by awaiting ``release()``, and return its result."""
        ...


class Lock:
    """A lock of a client. ``async with lock as lease`` is ``hold()`` without a timeout.

    Not re-entrant: a second ``acquire`` by the same task waits, and ``hold()`` inside of ``hold()`` is
    refused. Coroutines and threads of one client wait for a lock in a fair queue. A client that has had the
    lock for long makes way for other processes for two poll intervals. ``key`` is the lock's object
    under the client's URL.
    """

    _tasks: WeakKeyDictionary[asyncio.Task[Any], Hold] | None = None

    def __init__(
        self,
        engine: LockEngine,
        loop: Callable[[], asyncio.AbstractEventLoop],
        *,
        fencing: bool = True,
        hooks: LeaseHooks | None = None,
    ) -> None:
        self.name: str = engine.name
        self.key: str = engine.key
        self._engine = engine
        self._home = loop
        self._fencing = fencing
        self._hooks = hooks

    @property
    def _entered(self) -> WeakKeyDictionary[asyncio.Task[Any], Hold]:
        """By the task that entered ``async with lock``; weak: the body of a dropped task is collected."""
        return self._tasks or vars(self).setdefault("_tasks", WeakKeyDictionary())  # as ``LockEngine.bodies``

    async def acquire(self, *, timeout: float | None = None, at_least: float = 0.0) -> Lease:
        """Wait until this client holds the lock.

        Args:
            timeout: Seconds; None waits for ever, 0 tries once.
            at_least: Seconds from now, at most 7 days, until which the lock stays held even if it is
                released earlier, for work that is to be done once in a period. No process needs to stay
                for that. A holder that crashes frees the lock after its validity, whatever this is.

        Raises:
            AcquireTimeoutError: Others held it until the timeout; the attempt has been cleaned up.
            RecordCorruptError: The object is no lock record; nothing was written.
            AccessDeniedError: The store refused; nothing was written.
            UnsupportedBackendError: The store does not keep its conditions; nothing was written.
            ConfigError: The timeout or ``at_least`` is negative, the client is closed, or the backend
                cannot be opened with its options; nothing was written.
        """
        keep = checked_at_least(at_least)
        lease = await self._acquire(timeout=checked_timeout(timeout))
        assert lease is not None  # noqa: S101  only try_acquire gives None
        if keep > 0:
            lease.keep(keep)
        return lease

    async def try_acquire(self) -> Lease | None:
        """Try once, without waiting in the queue; None if others hold the lock or this client makes way.

        Raises:
            BackendError: The store did not answer; the attempt has been cleaned up.
            RecordCorruptError: The object is no lock record; nothing was written.
        """
        return await self._acquire(timeout=None, once=True)

    async def _acquire(self, *, timeout: float | None, once: bool = False) -> Lease | None:
        held = await run_on(self._home(), lambda: self._begin(timeout, once=once), undo=self._end)
        if held is None:
            return None
        return Lease(held, name=self.name, loop=self._home(), release=self._end, fencing=self._fencing)

    # On the client's loop.

    async def _begin(self, timeout: float | None, *, once: bool) -> HeldLock | None:
        held = await self._engine.acquire(timeout=timeout, once=once, fencing=self._fencing)
        if held is not None and self._hooks is not None:
            try:
                await self._hooks.begin(held)
            except BaseException:  # also a cancellation: the caller will never get the lease
                await self._end(held)
                raise
        return held

    async def _end(self, held: HeldLock | None) -> bool:
        if held is None:
            return False
        if self._hooks is None:
            return await self._engine.finish(held)
        return await self._hooks.end(lambda: self._engine.finish(held))

    def hold(
        self, *, timeout: float | None = None, at_least: float = 0.0
    ) -> AbstractAsyncContextManager[Lease]:
        """Hold the lock for the body of ``async with``; both arguments as of ``acquire``.

        If the lease is lost, the body's task is cancelled once and the statement raises
        ``LeaseLostError`` in place of that cancellation. A cancellation from outside wins; so
        does an exception of the body, to which the loss is added as a note. To close the client is a
        loss for every body under its locks.
        """
        return Hold(self, checked_timeout(timeout), at_least=checked_at_least(at_least))

    async def __aenter__(self) -> Lease:
        hold = Hold(self, None)
        lease = await hold.__aenter__()
        self._entered[current_task()] = hold
        return lease

    def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Coroutine[Any, Any, None]:
        # No coroutine of its own: that of the hold looks at the frame of the body, which awaits it.
        hold = self._take_hold()
        if hold is not None:
            return hold.__aexit__(kind, error, trace)
        if isinstance(error, GeneratorExit):
            return _nothing()  # the task was collected, and with it the lease, which releases itself
        raise RuntimeError(
            f"this task has not entered the lock {self.name!r}; use hold() to leave it in another task"
        )

    def _take_hold(self) -> Hold | None:
        """Return the hold that the running task entered; another task may leave the only one there is."""
        task = None
        with suppress(RuntimeError):  # no loop runs: the garbage collector closes the body
            task = asyncio.current_task()
        found = None if task is None else self._entered.pop(task, None)
        if found is None and len(self._entered) == 1:
            _, found = self._entered.popitem()
        return found

    def refuse_nested(self, who: object) -> None:
        """Refuse ``hold()`` inside of ``hold()``; for the rest of the package.

        Args:
            who: The task or thread that would wait for itself.

        Raises:
            RuntimeError: It holds the lock already.
        """
        outer = self._engine.bodies.get(who)
        lease = None if outer is None else outer()
        if lease is not None and lease.held:
            raise RuntimeError(
                f"hold() of {self.name!r} inside of hold() of the same lock would wait for itself; pass the "
                "lease on to the code that needs it"
            )

    def note_body(self, who: object, lease: Lease) -> None:
        """Note that the task or thread ``who`` runs a body under ``lease``; for the rest of the package."""
        self._engine.bodies[who] = ref(lease)

    async def status(self) -> LockStatus:
        """Read the lock once; writes nothing.

        Raises:
            BackendError: It could not be read.
        """
        return await run_on(self._home(), self._engine.status)

    async def break_lock(self, status: LockStatus, *, force: bool = False) -> LockStatus:
        """Free a lock that another holds: write ``expired``, token kept, if it is still as seen.

        The guarantee of at most one believer does not cover this: the old holder learns of it at
        its next renewal or its deadline, and may act until then. Fencing covers that time, with
        one exception: after a Hudi writer a holder waits up to ``2 * max_clock_skew + 2`` s for
        its token to settle. If the lock is broken by force in that time, a later token may be lower.

        Args:
            status: What the decision is based on; from ``status`` or ``list``.
            force: Break a live lock too.

        Returns:
            The status afterwards. A free lock is left as it is, without a write.

        Raises:
            LockChangedError: The lock has changed since ``status``, or is live and ``force`` is
                not set; nothing was written.
            RecordCorruptError: The object is evidently no lock, but a fenced object or other whole JSON;
                nothing was written. A lock file that is damaged is overwritten.
            BackendError: The store did not answer.
        """
        return await run_on(self._home(), lambda: self._engine.break_lock(status, force=force))

    async def lead(self, work: Callable[[Lease], Awaitable[T]], *, timeout: float | None = None) -> T:
        """Return ``work(lease)``, run while holding the lock; after a loss, acquire and run it again.

        An error that ends it, one of the work too, is also logged as a warning: it often runs in a task that
        nobody awaits.

        Args:
            work: Cancelled if the lease is lost.
            timeout: For each acquisition, as of ``acquire``.

        Raises:
            AcquireTimeoutError: The lock was not acquired before the timeout.
        """
        while True:
            lease: Lease | None = None
            try:
                async with self.hold(timeout=timeout) as lease:
                    return await work(lease)
            except LeaseLostError as error:
                if lease is None or lease.lost is None or self.closed:
                    self.note_leader(error, lease)
                    raise
            except Exception as error:
                self.note_leader(error, lease)
                raise

    @property
    def closed(self) -> bool:
        """Whether nothing can be acquired any more: the client was closed."""
        return self._engine.closed

    def note_leader(self, error: Exception, lease: object) -> None:
        """Log that ``lead`` ends with an error, under its ``lease`` if any; for the rest of the package."""
        self._engine.note_leader(error, led=lease is not None)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Lock cannot be pickled; connect again in the other process")

    def __repr__(self) -> str:
        return f"<Lock {self._engine.url!r}>"


class Hold(AbstractAsyncContextManager[Lease]):
    """``async with lock.hold()``: the structure of ``asyncio.timeout``, with a lease as the deadline.

    With ``cancel_body`` a loss cancels the task that enters. Without it, enter and exit may be in
    different tasks, as in ``asynclock.sync``.
    """

    _lease: Lease

    def __init__(
        self, lock: Lock, timeout: float | None, *, at_least: float = 0.0, cancel_body: bool = True
    ) -> None:
        self._lock = lock
        self._timeout = timeout
        self._at_least = at_least
        self._cancel_body = cancel_body
        self._begun = False
        self._entered = False
        self._cancelled = False
        self._over = False

    async def __aenter__(self) -> Lease:
        if self._entered:
            raise RuntimeError("hold() can be entered once; call hold() again")
        self._begun = True
        if self._cancel_body:
            self._lock.refuse_nested(current_task())
        self._lease = await self._lock.acquire(timeout=self._timeout, at_least=self._at_least)
        self._entered = True
        if self._cancel_body:
            self._tie(self._lease)
        return self._lease

    def _tie(self, lease: Lease) -> None:
        """Let a loss cancel the running task."""
        task = current_task()
        self._task, self._cancelling = ref(task), task.cancelling()
        self._lock.note_body(task, lease)
        lease.enter()
        loop, cancel = asyncio.get_running_loop(), WeakMethod(self._cancel)

        def lost(_: LeaseLostError) -> None:
            # Weak: if the body's coroutine is dropped, its lease is collected and released.
            if (cancel_body := cancel()) is not None and not loop.is_closed():
                loop.call_soon_threadsafe(cancel_body)

        lease.watch(lost)

    def _cancel(self) -> None:
        if not self._over and (task := self._task()) is not None:
            self._cancelled = True
            task.cancel("the lease was lost")

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over = True
        if self._cancelled:
            error = await self._take_back(error)
        await self._lease.leave(error)

    async def _take_back(self, error: BaseException | None) -> BaseException | None:
        """Withdraw our cancellation of the body; return the error that is left, if any."""
        task = self._task()
        outside = task is not None and task.uncancel() > self._cancelling
        if error is None:
            # The body ended before the cancellation reached it: it arrives at the next await.
            try:
                await asyncio.sleep(0)
            except asyncio.CancelledError:
                if outside:
                    raise
            return None
        if isinstance(error, asyncio.CancelledError) and not outside:
            assert self._lease.lost is not None  # noqa: S101  the reason for our cancellation
            raise self._lease.lost.with_traceback(None) from error
        return error

    def __del__(self) -> None:
        if not self._begun:
            warn_of_unused(self._lock.name, "async with")


def checked_timeout(timeout: float | None) -> float | None:
    """Return ``timeout``, or raise ConfigError if it is negative or no number."""
    if timeout is None or (isinstance(timeout, int | float) and timeout >= 0):
        return timeout
    raise ConfigError(setting="timeout", value=timeout, reason="must be seconds, 0 or more, or None")


def checked_at_least(seconds: float) -> float:
    """Return ``seconds``.

    Raises:
        ConfigError: It is negative, longer than a record can promise, or not a number.
    """
    if isinstance(seconds, int | float) and 0 <= seconds <= MAX_VALIDITY:
        return seconds
    reason = "must be seconds, 0 to 7 days (604800 s)"
    raise ConfigError(setting="at_least", value=seconds, reason=reason)


async def _nothing() -> None:
    """Do nothing, without giving way."""


def warn_of_unused(name: str, statement: str) -> None:
    """Warn of a ``hold()`` whose result was dropped; for ``__del__``."""
    text = (
        f"hold() of the lock {name!r} was never entered, so nothing was locked; write: {statement} ...hold()"
    )
    warnings.warn(text, ResourceWarning, stacklevel=3)
