"""A lock that lives in an object store.

Guarantee: at most one lease on a lock is believed at any instant (``lease.held``), even if
writes are lost, late or repeated and processes pause or die, provided that the nodes
of the store agree within ``max_clock_skew``, that clocks drift by less than
``safety_margin / validity``, and that this machine's wall clock is never wrong by the same amount
as a wrong Date, which it would then confirm. ``break_lock`` is not covered.

Not guaranteed: that a process which no longer believes has stopped *acting*. A write sent before
the loss may arrive after it. ``fencing_token``, checked by the resource, closes that gap;
``FencedObject`` does so for objects in the same store.

Skew rule: another holder's lock is free by the store's clock, or once its record was seen unchanged for its
whole validity; never by this machine's wall clock.
"""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary, WeakMethod, ref

from asynclock._core.acquirers import acquirer
from asynclock._core.handles import LockHandle, checked_at_least, checked_timeout, warn_of_unused
from asynclock._core.leading import Candidate
from asynclock._core.portal import current_task, run_on, running_loop
from asynclock._core.ticket import read_ticket
from asynclock.errors import LeaseLostError
from asynclock.lease import Lease

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from types import TracebackType

    from asynclock._core.status import LockStatus

T = TypeVar("T")


class Holdable(LockHandle):
    """What can be held: a lock, a slot of a semaphore, one side of a reader-writer lock."""

    _tasks: WeakKeyDictionary[asyncio.Task[Any], Hold] | None = None

    @property
    def _entered(self) -> WeakKeyDictionary[asyncio.Task[Any], Hold]:
        """By the task that entered ``async with lock``; weak: the body of a dropped task is collected."""
        return self._tasks or vars(self).setdefault("_tasks", WeakKeyDictionary())  # as in ``LockEngine``

    async def acquire(
        self,
        *,
        timeout: float | None = None,
        at_least: float = 0.0,
        at_most: float | None = None,
        ticket: str | None = None,
    ) -> Lease:
        """Wait until this client holds the lock.

        Args:
            timeout: Seconds; None waits forever, 0 tries once.
            at_least: Seconds from now, at most 7 days, until which the lock stays held even if it is
                released earlier, for work that must be done once in a period. No process needs to stay
                for that. It does not outlive a crash: the lock is then free after its validity.
            at_most: Seconds from its acquisition, at least a ``renew_interval``, after which the lease is
                lost however well it is renewed: work that hangs does not hold the lock forever. Others get
                the lock when this one is released, or a ``safety_margin`` later. None: no such end.
            ticket: What ``Lease.transfer`` returned to another holder: take the lock over from it. It works
                once, and waits for no holder, only for the store.

        Raises:
            TicketSpentError: The ticket was used, or another has taken the lock; nothing was written.
            AcquireTimeoutError: Others held it until the timeout; the attempt has been cleaned up.
            RecordCorruptError: The object is not a lock record; nothing was written.
            AccessDeniedError: The store refused; nothing was written.
            UnsupportedBackendError: The store does not keep its conditions; nothing was written.
            ConfigError: The timeout or ``at_least`` is negative, ``at_most`` too short, the ticket malformed
                or of another lock, the client closed, or the backend cannot be opened with its options;
                nothing was written.
        """
        engine, keep, limit = self._engine, checked_at_least(at_least), checked_timeout(timeout)
        cap = engine.checked_at_most(at_most, keep)
        offer = None if ticket is None else read_ticket(ticket)
        held = await run_on(
            engine.home(),
            lambda: engine.acquire(timeout=limit, at_most=cap, ticket=offer),
            undo=engine.finish,
        )
        assert held is not None  # noqa: S101  only one try gives None
        if keep > 0:
            held.release.keep(keep)
        held.body.acquired = acquirer()
        return Lease(held, engine.of(held))

    async def try_acquire(self) -> Lease | None:
        """Try once, without waiting in the queue; None if others hold the lock or this client makes way.

        Raises:
            BackendError: The store did not answer; the attempt has been cleaned up.
            RecordCorruptError: The object is not a lock record; nothing was written.
        """
        engine = self._engine
        held = await run_on(
            engine.home(), lambda: engine.acquire(timeout=None, once=True), undo=engine.finish
        )
        if held is None:
            return None
        held.body.acquired = acquirer()
        return Lease(held, engine.of(held))

    def hold(
        self, *, timeout: float | None = None, at_least: float = 0.0, at_most: float | None = None
    ) -> AbstractAsyncContextManager[Lease]:
        """Hold the lock for the body of ``async with``; arguments as for ``acquire``.

        If the lease is lost, the body's task is cancelled once and the statement raises
        ``LeaseLostError`` in place of that cancellation. A cancellation from outside wins; so
        does an exception of the body, to which the loss is added as a note. To close the client is a
        loss for every body under its locks.
        """
        keep = checked_at_least(at_least)
        cap = self._engine.checked_at_most(at_most, keep)
        return Hold(self, checked_timeout(timeout), at_least=keep, at_most=cap)

    async def __aenter__(self) -> Lease:
        hold = Hold(self, None)
        lease = await hold.__aenter__()
        self._entered[current_task()] = hold
        return lease

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        hold = self._take_hold()
        if hold is not None:
            await hold.__aexit__(kind, error, trace)  # no leader's: it suppresses nothing
        elif not isinstance(error, GeneratorExit):
            # Else the task was collected, and with it the lease, which releases itself.
            raise RuntimeError(
                f"this task has not entered the lock {self.name!r}; use hold() to leave it in another task"
            )

    def _take_hold(self) -> Hold | None:
        """Return this task's hold. If there is only one, any task may exit it."""
        task = None
        with suppress(RuntimeError):  # no loop runs: the garbage collector closes the body
            task = asyncio.current_task()
        found = None if task is None else self._entered.pop(task, None)
        if found is None and len(self._entered) == 1:
            _, found = self._entered.popitem()
        return found

    async def status(self) -> LockStatus:
        """Read the lock once; writes nothing.

        Raises:
            BackendError: It could not be read.
        """
        return await run_on(self._engine.home(), self._engine.status)

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
            RecordCorruptError: The object is clearly not a lock, but a fenced object or other complete JSON;
                nothing was written. A damaged lock file is overwritten.
            BackendError: The store did not answer.
        """
        return await run_on(self._engine.home(), lambda: self._engine.break_lock(status, force=force))


class Lock(Holdable):
    """A lock of a client. ``async with lock as lease`` is ``hold()`` without a timeout.

    Not re-entrant: a second ``acquire`` by the same task, or by one that it starts, waits, and a warning says
    so after a second; ``hold()`` inside ``hold()`` is refused. Coroutines and threads of one client wait for
    a lock in a fair queue. A client that has had the lock for long makes way for other processes for two
    poll intervals.

    Attributes:
        name: Of the lock.
        key: The lock's object under the client's URL.
    """

    async def leader(self) -> LockStatus:
        """Read the lock once, to tell who leads; writes nothing.

        While ``state`` is ``held`` and ``kept`` is False, ``holder`` leads since ``since_ms``, in the term
        ``fencing_token``; else nobody does. Only the leader's own lease says that it still leads.

        Raises:
            BackendError: It could not be read.
        """
        return await self.status()

    async def lead(
        self,
        work: Callable[[Lease], Awaitable[T]],
        *,
        timeout: float | None = None,
        on_change: Callable[[LockStatus], object] | None = None,
    ) -> T:
        """Return ``work(lease)``, run while holding the lock; after a loss, acquire and run it again.

        So it goes on after ``step_down``. The lock is released after the work has ended. An error that ends
        it, one of the work too, is also logged as a warning: it often runs in a task that nobody awaits.

        Args:
            work: Cancelled if the lease is lost, or by ``step_down``.
            timeout: For each acquisition, as for ``acquire``.
            on_change: Called with the result of ``leader`` when another leads or nobody does any more, one
                call after the other, on the loop of the caller. It costs no request: it gets only what this
                client sees of the lock anyway, so it may miss short terms. Its exceptions are logged.

        Raises:
            AcquireTimeoutError: The lock was not acquired before the timeout.
            ConfigError: ``on_change`` is not a plain function, or as for ``acquire``.
        """
        engine, loop = self._engine, running_loop()
        with Candidate(engine, on_change, loop.call_soon_threadsafe):
            while True:
                lease: Lease | None = None
                try:
                    hold = Hold(self, checked_timeout(timeout))
                    async with hold as lease:
                        end = partial(loop.call_soon_threadsafe, hold.step_down)
                        with engine.turns.leading(lease._held, end):
                            return await work(lease)
                except LeaseLostError as error:
                    if lease is None or lease.lost is None or engine.closed:
                        engine.note_leader(error, led=lease is not None)
                        raise
                except Exception as error:
                    engine.note_leader(error, led=lease is not None)
                    raise

    def step_down(self) -> bool:
        """End the term of this client as the leader of the lock; False if none of its ``lead`` calls leads.

        The work is cancelled. Once it has ended, the lock is released, and this client stands back for two
        poll intervals, so that another candidate leads; after that it is a candidate again. It waits for
        nothing, and may be called from any thread.
        """
        return self._engine.turns.step_down()


class Hold(AbstractAsyncContextManager[Lease]):
    """``async with lock.hold()``. Works like ``asyncio.timeout``, with the loss of the lease as the deadline.

    With ``cancel_body`` a loss cancels the task that enters. Without it, enter and exit may be in
    different tasks, as in ``asynclock.sync``.
    """

    _lease: Lease

    def __init__(
        self,
        lock: Holdable,
        timeout: float | None,
        *,
        at_least: float = 0.0,
        at_most: float | None = None,
        cancel_body: bool = True,
    ) -> None:
        self._lock = lock
        self._timeout = timeout
        self._at_least = at_least
        self._at_most = at_most
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
            self._lock._engine.refuse_nested(current_task())
        self._lease = await self._lock.acquire(
            timeout=self._timeout, at_least=self._at_least, at_most=self._at_most
        )
        self._entered = True
        if self._cancel_body:
            self._tie(self._lease)
        return self._lease

    def _tie(self, lease: Lease) -> None:
        """Let a loss cancel the running task."""
        task = current_task()
        self._task, self._cancelling = ref(task), task.cancelling()
        held, loop, cancel = lease._held, asyncio.get_running_loop(), WeakMethod(self._cancel)
        self._lock._engine.note_body(task, held)
        held.enter()
        held.body.loop = loop

        def lost(_: LeaseLostError) -> None:
            # Weak: if the body's coroutine is dropped, its lease is collected and released.
            if (cancel_body := cancel()) is not None and not loop.is_closed():
                loop.call_soon_threadsafe(cancel_body)

        held.on_lost(lost)

    def _cancel(self, reason: str = "the lease was lost") -> None:
        if not (self._over or self._cancelled) and (task := self._task()) is not None:
            self._cancelled = True
            task.cancel(reason)

    def step_down(self) -> None:
        """Cancel the body, though the lease is not lost; the statement then ends without an error."""
        self._cancel("the leader steps down")

    def leave(self) -> None:
        """Stop cancelling the body."""
        self._over = True

    async def taken_back(self, error: BaseException | None) -> BaseException | None:
        """Leave, and return the error that is left when our cancellation of the body is withdrawn."""
        self.leave()
        try:
            return await self._take_back(error) if self._cancelled else error
        except (asyncio.CancelledError, LeaseLostError) as left:
            return left

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self._over = True
        if self._cancelled:
            self._lease._held.release.note_left()
        left = await self._take_back(error) if self._cancelled else error
        await self._lease.__aexit__(kind, left, trace)
        return left is not error

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
            if (lost := self._lease.lost) is None:
                return None  # the leader steps down
            raise lost.with_traceback(None) from error
        return error

    def __del__(self) -> None:
        if not self._begun:
            warn_of_unused(self._lock.name, "async with")
