"""A lock that lives in an object store.

Guarantee: at most one lease on a lock is believed at any instant (``lease.held``), whatever
writes are lost, late or repeated and whatever processes pause or die, provided that the nodes
of the store agree within ``max_clock_skew``, that clocks drift by less than
``safety_margin / validity``, and that this machine's wall clock is not wrong by exactly the
error of a wrong Date. ``break_lock`` is not covered.

Not guaranteed: that a process which no longer believes has stopped *acting*. A write sent before
the loss may arrive after it. ``fencing_token``, checked by the resource, closes that gap;
``FencedObject`` does so for objects in the same store.

Skew rule: only the store's clock frees a lock that another holds, never this machine's clock.
"""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, NoReturn, Protocol, TypeVar
from weakref import WeakMethod

from asynclock.errors import ConfigError, LeaseLostError
from asynclock.lease import Lease
from asynclock.portal import current_task, run_on

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
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
    """A lock of a client. Not re-entrant: a second ``acquire`` by the same task waits.

    Coroutines and threads of one client wait for a lock in a fair queue. A client that has had the
    lock for long makes way for other processes for two poll intervals. ``key`` is the lock's object
    under the client's URL.
    """

    def __init__(
        self,
        engine: LockEngine,
        loop: Callable[[], asyncio.AbstractEventLoop],
        *,
        fencing: bool = True,
        hooks: LeaseHooks | None = None,
    ) -> None:
        self.name = engine.name
        self.key = engine.key
        self._engine = engine
        self._home = loop
        self._fencing = fencing
        self._hooks = hooks

    async def acquire(self, *, timeout: float | None = None) -> Lease:
        """Wait until this client holds the lock.

        Args:
            timeout: Seconds; None waits for ever, 0 tries once.

        Raises:
            AcquireTimeoutError: Others held it until the timeout; the attempt has been cleaned up.
            RecordCorruptError: The object is no lock record; nothing was written.
            AccessDeniedError: The store refused; nothing was written.
            ConfigError: The timeout is negative, the client is closed, or the backend cannot be
                opened with its options; nothing was written.
        """
        lease = await self._acquire(timeout=checked_timeout(timeout))
        assert lease is not None  # noqa: S101  only try_acquire gives None
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
            return await self._engine.release(held)
        return await self._hooks.end(lambda: self._engine.release(held))

    def hold(self, *, timeout: float | None = None) -> AbstractAsyncContextManager[Lease]:
        """Hold the lock for the body of ``async with``; ``timeout`` as of ``acquire``.

        If the lease is lost, the body's task is cancelled once and the statement raises
        ``LeaseLostError`` in place of that cancellation. A cancellation from outside wins; so
        does an exception of the body, to which the loss is added as a note.
        """
        return Hold(self, checked_timeout(timeout))

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
            BackendError: The store did not answer.
        """
        return await run_on(self._home(), lambda: self._engine.break_lock(status, force=force))

    async def lead(self, work: Callable[[Lease], Awaitable[T]], *, timeout: float | None = None) -> T:
        """Return ``work(lease)``, run while holding the lock; after a loss, acquire and run it again.

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
            except LeaseLostError:
                if lease is None or lease.lost is None:
                    raise

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

    def __init__(self, lock: Lock, timeout: float | None, *, cancel_body: bool = True) -> None:
        self._lock = lock
        self._timeout = timeout
        self._cancel_body = cancel_body
        self._entered = False
        self._cancelled = False
        self._over = False

    async def __aenter__(self) -> Lease:
        if self._entered:
            raise RuntimeError("hold() can be entered once; call hold() again")
        self._lease = await self._lock.acquire(timeout=self._timeout)
        self._entered = True
        if self._cancel_body:
            self._tie(self._lease)
        return self._lease

    def _tie(self, lease: Lease) -> None:
        """Let a loss cancel the running task."""
        self._task = current_task()
        self._cancelling = self._task.cancelling()
        lease.enter()
        loop, cancel = asyncio.get_running_loop(), WeakMethod(self._cancel)

        def lost(_: LeaseLostError) -> None:
            # Weak: if the body's coroutine is dropped, its lease is collected and released.
            if (cancel_body := cancel()) is not None and not loop.is_closed():
                loop.call_soon_threadsafe(cancel_body)

        lease.watch(lost)

    def _cancel(self) -> None:
        if not self._over:
            self._cancelled = True
            self._task.cancel("the lease was lost")

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over = True
        if self._cancelled:
            error = await self._take_back(error)
        await self._lease.leave(error)

    async def _take_back(self, error: BaseException | None) -> BaseException | None:
        """Withdraw our cancellation of the body; return the error that is left, if any."""
        outside = self._task.uncancel() > self._cancelling
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


def checked_timeout(timeout: float | None) -> float | None:
    """Return ``timeout``, or raise ConfigError if it is negative or no number."""
    if timeout is None or (isinstance(timeout, int | float) and timeout >= 0):
        return timeout
    raise ConfigError(setting="timeout", value=timeout, reason="must be seconds, 0 or more, or None")
