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
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, NoReturn, TypeVar

from asynclock.errors import (
    AcquireTimeoutError,
    BackendError,
    ConfigError,
    LeaseLostError,
    LockChangedError,
    RecordCorruptError,
)
from asynclock.host import cancel_call, run_on, uninterrupted
from asynclock.lease import Lease
from asynclock.line import Line, Turn, Turns
from asynclock.protocol.acquisition import Acquisition, LockState, is_passing
from asynclock.protocol.attempts import Attempt
from asynclock.protocol.judgement import judge
from asynclock.record import LockRecord

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from types import TracebackType

    from asynclock.protocol.judgement import Seen, Verdict
    from asynclock.protocol.store import Store
    from asynclock.protocol.tenure import Spawn, Tenure
    from asynclock.renewal import RenewalScheduler

T = TypeVar("T")
_MIN_TIMEOUT: Final = 0.0


@dataclass(frozen=True, slots=True)
class LockStatus:
    """A lock as one read showed it.

    Attributes:
        name: Name of the lock.
        url: URL of its object.
        state: ``free`` (no object, or released), ``held``, ``expired`` (not released, but others
            may take it over) or ``corrupt``.
        owner: Id of the acquisition, or None where there is no record.
        holder: Who, as the holder says; None in a Hudi record.
        fencing_token: Its token; None in a Hudi record.
        valid_until_ms: Epoch ms by the store's clock, as published.
        remaining: Seconds until others may take it over, by the store's clock; negative when
            expired; None where there is no usable Date.
        age: Seconds since the last write, by the store's clock; None where it is not known.
        version: Version of the object; None: no object.
    """

    name: str
    url: str
    state: Literal["free", "held", "expired", "corrupt"]
    owner: str | None
    holder: str | None
    fencing_token: int | None
    valid_until_ms: int | None
    remaining: float | None
    age: float | None
    version: str | None


class LockCore:
    """One lock of one client on the client's loop: line, turns and what is known of the object."""

    def __init__(
        self, *, name: str, url: str, store: Store, scheduler: RenewalScheduler, spawn: Spawn
    ) -> None:
        self.name = name
        self.key = f"{name}.json"
        self.url = url
        self._store = store
        self._scheduler = scheduler
        self._spawn = spawn
        self._state = LockState()
        self._line = Line(self._orphaned)
        self._turns = Turns(store.terms)
        self._tenure: Tenure | None = None
        self._acquiring: asyncio.Task[object] | None = None
        self._closed: ConfigError | None = None

    async def acquire(
        self, *, timeout: float | None, once: bool = False, fencing: bool = True
    ) -> Tenure | None:
        """Return a tenure, or None with ``once``.

        Raises:
            AcquireTimeoutError: The time is out.
        """
        loop = asyncio.get_running_loop()
        until = None if timeout is None else loop.time() + timeout
        turn = self._line.try_enter() if once else await self._line.enter(until)
        if turn is None:
            self._not_acquired(timeout, once=once, error=None)
            return None
        try:
            acquisition = Acquisition(
                store=self._store,
                key=self.key,
                state=self._state,
                spawn=self._spawn,
                on_tenure=self._scheduler.add,
                until=until,
                once=once or timeout == 0,
                fencing=fencing,
                baton=turn.baton,
            )
            self._acquiring = asyncio.current_task()
            may_try = turn.baton is not None or await self._make_way(until, once=once)
            tenure = await acquisition.run() if may_try else None
        except BaseException as error:
            self._line.leave()
            if self._closed is not None and isinstance(error, asyncio.CancelledError):
                raise self._closed from error
            if timeout == 0 and isinstance(error, BackendError) and is_passing(error):
                self._not_acquired(timeout, once=once, error=error)
            raise
        finally:
            self._acquiring = None
        if tenure is None:
            self._line.leave()
            self._not_acquired(timeout, once=once, error=acquisition.error)
            return None
        self._turns.began(loop.time(), owner=tenure.owner, predecessor=acquisition.predecessor)
        self._tenure = tenure
        tenure.on_end.append(lambda _: self._ended(tenure))
        return tenure

    async def release(self, tenure: Tenure) -> bool:
        """End a tenure: hand it on to the next in line, or free the lock; False if it had ended."""
        if not tenure.end_belief():
            return False
        with uninterrupted():
            await tenure.settle()
            now = asyncio.get_running_loop().time()
            may_hand_on = tenure is self._tenure and tenure.may_hand_on() and self._turns.may_hand_on(now)
            if may_hand_on and self._line.hand(Turn(tenure)):
                self._tenure = None
                self._scheduler.discard(tenure)
                self._turns.handed_on(now)
                tenure.handed_on()
            else:
                await tenure.release()
        return True

    def _orphaned(self, turn: Turn) -> None:
        if turn.baton is None:
            self._line.leave()
        else:
            self._spawn(self._free_baton(turn.baton))

    async def _free_baton(self, baton: Tenure) -> None:
        try:
            await baton.release()
            self._state.freed = baton.freed
        finally:
            self._line.leave()

    def close(self, error: ConfigError) -> list[asyncio.Task[object]]:
        """Let everybody who waits for the lock fail; returns what is still cleaning up."""
        self._closed = error
        self._line.fail(error)
        if self._acquiring is None:
            return []
        cancel_call(self._acquiring)
        return [self._acquiring]

    async def _make_way(self, until: float | None, *, once: bool) -> bool:
        loop = asyncio.get_running_loop()
        away = self._turns.away_for(loop.time())
        if away <= 0:
            return True
        if once:
            return False
        await asyncio.sleep(away if until is None else max(0.0, min(away, until - loop.time())))
        return until is None or loop.time() < until

    def _ended(self, tenure: Tenure) -> None:
        if tenure is not self._tenure:
            return  # handed on
        self._tenure = None
        self._scheduler.discard(tenure)
        self._state.freed = tenure.freed
        self._turns.ended(asyncio.get_running_loop().time(), jitter=self._store.jittered(1.0))
        self._line.leave()

    def _not_acquired(self, timeout: float | None, *, once: bool, error: Exception | None) -> None:
        if once or timeout is None:
            return
        last = self._state.last
        status = None if last is None else self._status(*last)
        if self._tenure is not None:
            status = self._own_status(self._tenure)
        raise AcquireTimeoutError(key=self.key, timeout=timeout, status=status) from error

    def _own_status(self, tenure: Tenure) -> LockStatus:
        """Return the status of a lock that this client holds itself; no I/O."""
        record, version = tenure.head
        return LockStatus(
            name=self.name,
            url=self.url,
            state="held",
            owner=record.owner,
            holder=record.holder,
            fencing_token=record.epoch,
            valid_until_ms=record.valid_until_ms,
            remaining=None,
            age=None,
            version=version,
        )

    async def status(self) -> LockStatus:
        """Read the lock once."""
        return (await self._read())[0]

    async def _read(self) -> tuple[LockStatus, LockRecord | None]:
        try:
            seen = await self._store.read(self.key)
        except RecordCorruptError as corrupt:
            status = LockStatus(
                name=self.name,
                url=self.url,
                state="corrupt",
                owner=None,
                holder=None,
                fencing_token=None,
                valid_until_ms=None,
                remaining=None,
                age=None,
                version=corrupt.version,
            )
            return status, None
        self._state.observation.note(seen)
        return self._status(seen, judge(seen, self._state.observation, self._store.terms)), seen.record

    def _status(self, seen: Seen, verdict: Verdict) -> LockStatus:
        record = seen.record
        age = None
        if seen.last_modified is not None and seen.date is not None and seen.date.usable:
            age = max(0.0, seen.date.value - seen.last_modified)
        state: Literal["free", "held", "expired"] = "expired" if verdict.free else "held"
        return LockStatus(
            name=self.name,
            url=self.url,
            state="free" if record is None or record.expired else state,
            owner=record.owner if record else None,
            holder=record.holder if record else None,
            fencing_token=record.epoch if record else None,
            valid_until_ms=record.valid_until_ms if record else None,
            remaining=verdict.remaining,
            age=age,
            version=seen.version,
        )

    async def break_lock(self, status: LockStatus, *, force: bool) -> LockStatus:
        """See ``Lock.break_lock``."""
        current, record = await self._read()
        if current.version != status.version:
            raise LockChangedError(key=self.key, expected=status.version, status=current)
        if current.state == "free":
            return current
        if current.state == "held" and not force:
            raise LockChangedError(key=self.key, expected=status.version, status=current)
        if record is None:
            # As if a Hudi writer had dropped the fields: the next token starts from store time.
            broken = LockRecord(expired=True, valid_until_ms=0, owner=self._store.fresh_owner())
        else:
            broken = record.released(nonce=self._store.fresh_nonce())
        attempt = Attempt(broken, status.version, self._store.now())
        error = await self._store.write(self.key, attempt)
        after, found = await self._read()
        if error is None or found == broken:
            return after
        if after.version == status.version:
            raise error
        raise LockChangedError(key=self.key, expected=status.version, status=after) from error


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
            ConfigError: The timeout is negative, or the client is closed.
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
        renewal or its deadline, and may act until then. Fencing covers that time.

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
        loop = asyncio.get_running_loop()
        self._lease.watch(lambda _: loop.call_soon_threadsafe(self._cancel))
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
