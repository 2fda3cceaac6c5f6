"""A lock that lives in an object store.

Guarantee: at most one lease on a lock is believed at any instant (``lease.held``), whatever
writes are lost, late or repeated and whatever processes pause or die, provided that the nodes
of the store agree within ``max_clock_skew``, that clocks drift by less than
``safety_margin / validity``, and that this machine's wall clock is not wrong by exactly the
error of a wrong Date. ``break_lock`` stands outside of it.

Not guaranteed: that a process that stopped believing has stopped *acting*. A write sent before
the loss may arrive after it. ``fencing_token``, checked by the resource, closes that gap;
``FencedObject`` does so for objects in the same store.

Skew rule: another's lock is freed by the store's clock only, never by this machine's.
"""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Final, NoReturn, TypeVar
from weakref import WeakMethod

from asynclock.errors import ConfigError, LeaseLostError
from asynclock.lease import Lease, was_dropped
from asynclock.portal import run_on

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from types import TracebackType

    from asynclock.core import LockCore
    from asynclock.protocol.tenure import Tenure
    from asynclock.status import LockStatus

T = TypeVar("T")
_MIN_TIMEOUT: Final = 0.0


class Lock:
    """A lock of a client. Not re-entrant: a second ``acquire`` by the same task waits.

    Coroutines and threads of one client that wait for one lock form a fair line. After a long
    run of its own a client makes way for other processes for two poll intervals.

    Attributes:
        name: Name of the lock.
        key: Key of its object under the client's URL.
    """

    def __init__(self, core: LockCore, loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
        self.name = core.name
        self.key = core.key
        self._core = core
        self._home = loop

    async def acquire(self, *, timeout: float | None = None) -> Lease:
        """Wait until the lock is ours.

        Args:
            timeout: Seconds; None waits for ever, 0 tries once.

        Raises:
            AcquireTimeoutError: Others held it; nothing of this attempt is left behind.
            RecordCorruptError: The object is no lock record; nothing was written.
            AccessDeniedError: The store refused; nothing was written.
            ConfigError: The timeout is negative, the client is closed, or the backend cannot be
                opened as it was set up; nothing was written.
        """
        tenure = await self._acquire(timeout=checked_timeout(timeout))
        assert tenure is not None  # noqa: S101  only try_acquire gives None
        return self._lease(tenure)

    async def try_acquire(self) -> Lease | None:
        """Try one round without waiting in line; None if others hold it or this client makes way.

        Raises:
            BackendError: The store did not answer; nothing is left behind.
            RecordCorruptError: The object is no lock record; nothing was written.
        """
        tenure = await self._acquire(timeout=None, once=True)
        return None if tenure is None else self._lease(tenure)

    async def _acquire(
        self, *, timeout: float | None, once: bool = False, fencing: bool = True
    ) -> Tenure | None:
        return await run_on(
            self._home(),
            lambda: self._core.acquire(timeout=timeout, once=once, fencing=fencing),
            undo=self._undo,
        )

    async def _undo(self, tenure: Tenure | None) -> None:
        if tenure is not None:
            await self._core.release(tenure)

    def _lease(self, tenure: Tenure, *, fencing: bool = True) -> Lease:
        return Lease(
            tenure,
            name=self.name,
            loop=self._home(),
            release=self._core.release,
            fencing=fencing,
        )

    def hold(self, *, timeout: float | None = None) -> AbstractAsyncContextManager[Lease]:
        """Hold the lock for the body of ``async with``.

        If the lease is lost, the body's task is cancelled once and the statement raises
        ``LeaseLostError`` in place of that cancellation. A cancellation from outside wins; so
        does an exception of the body, which then bears the loss as a note.

        Args:
            timeout: As of ``acquire``.
        """
        return _Hold(self, checked_timeout(timeout))

    async def status(self) -> LockStatus:
        """Read the lock once; writes nothing.

        Raises:
            BackendError: It could not be read.
        """
        return await run_on(self._home(), self._core.status)

    async def break_lock(self, status: LockStatus, *, force: bool = False) -> LockStatus:
        """Free another's lock by hand: write ``expired``, token kept, if it is still as seen.

        This stands outside of "at most one believer": the old holder learns of it at its next
        renewal or its deadline, and may act until then. Fencing covers that time, unless the
        holder waits behind a Hudi writer for its token to settle (at most
        ``2 * max_clock_skew + 2`` s): broken by force just then, a later token may be lower.

        Args:
            status: What the decision is based on; from ``status`` or ``list``.
            force: Break a live lock too.

        Returns:
            The status afterwards; of a free lock unchanged, nothing is written.

        Raises:
            LockChangedError: It is another version by now, or live without ``force``; nothing
                was written.
            BackendError: The store did not answer.
        """
        return await run_on(self._home(), lambda: self._core.break_lock(status, force=force))

    async def lead(self, work: Callable[[Lease], Awaitable[T]], *, timeout: float | None = None) -> T:
        """Run ``work(lease)`` while holding the lock; after a loss acquire again and run it again.

        Args:
            work: Cancelled if the lease is lost.
            timeout: For each acquisition, as of ``acquire``.

        Returns:
            What ``work`` returned.

        Raises:
            AcquireTimeoutError: An acquisition took too long.
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
        return f"<Lock {self._core.url!r}>"


class _Hold(AbstractAsyncContextManager[Lease]):
    """``async with lock.hold()``: the structure of ``asyncio.timeout``, with a lease as the deadline."""

    def __init__(self, lock: Lock, timeout: float | None) -> None:
        self._lock = lock
        self._timeout = timeout
        self._lease: Lease | None = None
        self._cancelled = False
        self._over = False

    async def __aenter__(self) -> Lease:
        if self._lease is not None:
            raise RuntimeError("hold() can be entered once; call hold() again")
        self._lease = await self._lock.acquire(timeout=self._timeout)
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  we are in a coroutine
        self._task = task
        self._cancelling = task.cancelling()
        self._lease.enter()
        loop, cancel = asyncio.get_running_loop(), WeakMethod(self._cancel)

        def lost(_: LeaseLostError) -> None:
            # Weak: the lease of a body that was dropped is collected, and released by that.
            if (cancel_body := cancel()) is not None and not loop.is_closed():
                loop.call_soon_threadsafe(cancel_body)

        self._lease.watch(lost)
        return self._lease

    def _cancel(self) -> None:
        if not self._over:
            self._cancelled = True
            self._task.cancel("the lease was lost")

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over = True
        assert self._lease is not None  # noqa: S101  entered
        if was_dropped(error):
            self._lease.let_go()
            return
        if self._cancelled:
            error = await self._take_back(error)
        lost = self._lease.lost
        if lost is None:
            try:
                await self._lease.release()
            except LeaseLostError as late:
                lost = late
        if lost is None:
            return
        if error is None:
            raise lost.with_traceback(None)
        error.add_note(str(lost))

    async def _take_back(self, error: BaseException | None) -> BaseException | None:
        """Take our cancellation back and return what is left: None, or what came from outside."""
        outside = self._task.uncancel() > self._cancelling
        if error is None:
            # The body ended before the cancellation reached it: it is still on its way.
            try:
                await asyncio.sleep(0)
            except asyncio.CancelledError:
                if outside:
                    raise
            return None
        if isinstance(error, asyncio.CancelledError) and not outside:
            assert self._lease is not None  # noqa: S101  entered
            assert self._lease.lost is not None  # noqa: S101  the reason for our cancellation
            raise self._lease.lost.with_traceback(None) from error
        return error


def checked_timeout(timeout: float | None) -> float | None:
    """Return ``timeout``.

    Raises:
        ConfigError: It is negative or not a number.
    """
    if timeout is None or (isinstance(timeout, int | float) and timeout >= _MIN_TIMEOUT):
        return timeout
    raise ConfigError(setting="timeout", value=timeout, reason="must be seconds, 0 or more, or None")
