"""One held lock: what is believed of it, its renewal and its release (rules 4 to 7)."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from asynclock.errors import (
    BackendError,
    ConfigError,
    LeaseExpiredError,
    LeaseLostError,
    LeaseTakenOverError,
    RecordCorruptError,
)
from asynclock.events import logger
from asynclock.portal import uninterrupted
from asynclock.protocol.attempts import Attempt, Attempts
from asynclock.protocol.judgement import Displaced, displaced
from asynclock.protocol.reaper import free

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from asynclock.events import Kind
    from asynclock.protocol.judgement import Seen
    from asynclock.protocol.store import Store
    from asynclock.record import LockRecord

T = TypeVar("T")
_EXPIRED: Final = "its deadline passed before a renewal was confirmed"


class Spawn(Protocol):
    """Starts a background task that the client keeps until it has ended."""

    def __call__(self, coroutine: Coroutine[Any, Any, T], /) -> asyncio.Task[T]:
        """Start ``coroutine`` on the running loop."""
        ...


class Tenure:
    """The holder's side of one acquisition.

    Belief may be asked from any thread; it is kept under a mutex, and whoever first sees that
    the deadline has passed makes the loss final, so that no answer can revive it. All else
    runs on the loop that made it.

    Args:
        store: The client's store.
        key: Key of the lock object.
        landed: The write that acquired the lock.
        spawn: Starts a task that the client keeps and ends.
        settled_at: Store time until which the token is from the future; None: it is not.
    """

    def __init__(
        self,
        *,
        store: Store,
        key: str,
        landed: Attempt,
        spawn: Spawn,
        settled_at: float | None = None,
    ) -> None:
        assert landed.record.epoch is not None  # noqa: S101  our own record
        self.key = key
        self.owner = landed.record.owner
        self.fencing_token = landed.record.epoch
        self.lost: LeaseLostError | None = None
        self.freed: Attempt | None = None
        """The write that released it, once it has landed."""
        self.on_end: list[Callable[[LeaseLostError | None], object]] = []
        """Called once on the loop when belief has ended; with the loss, or None for a release."""
        self.told = False
        """Whether ``on_end`` has been called."""
        self.body_loop: asyncio.AbstractEventLoop | None = None
        """The event loop whose task runs the body of a context manager; None: there is no such body."""
        self._store = store
        self._belief = store.terms.belief
        self._spawn = spawn
        self._settled_at = settled_at
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._mutex = threading.Lock()
        self._ended = False
        self._sent = landed.sent
        self._head = landed
        # Its own: what reaps it must not take the acquisition's later writes for this tenure's.
        self._attempts = Attempts(landed)
        self._flight: asyncio.Task[BackendError | None] | None = None
        self._handing: asyncio.Future[None] | None = None
        """Done once it is known what became of the record that was handed on."""
        self._reaped = False

    # Belief: any thread.

    def remaining(self) -> float:
        """Return seconds until belief ends; 0.0 once it has."""
        # Without the mutex first: a renewal that lands meanwhile only makes the answer too small.
        if not self._ended and (left := self._left()) > 0:
            return left
        with self._mutex:
            if not self._ended:
                if (left := self._left()) > 0:
                    return left
                self._lose(self._error(LeaseExpiredError, _EXPIRED))
        return 0.0

    @property
    def ended(self) -> bool:
        """Whether belief is known to have ended; takes no mutex, so a finalizer may ask."""
        return self._ended

    def until_settled(self) -> float:
        """Return seconds until the token is not from the future any more (rule 11), else 0.0."""
        wait = self._store.until_settled(self._settled_at)
        if wait <= 0:
            self._settled_at = None  # for good, also where no Date is carried any more
        return wait

    def abandon(self, reason: str) -> None:
        """End belief without a write and without telling anyone: in a forked child."""
        self._mutex = threading.Lock()  # the parent's other threads may have held the old one
        if not self._ended:
            self._ended = True
            self.lost = self._error(LeaseLostError, reason)

    def _left(self) -> float:
        clock, sent = self._store.clock, self._sent
        return self._belief - max(
            clock.monotonic() - sent.monotonic, clock.boot() - sent.boot, clock.wall() - sent.wall
        )

    def _lose(self, error: LeaseLostError) -> None:
        """Make the loss final; the mutex is held."""
        if self._ended:
            return
        self._ended, self.lost = True, error
        self._call_soon(self._after_loss, error)

    def _call_soon(self, call: Callable[..., object], *args: object) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody is left to be told
            if threading.get_ident() == self._thread:
                self._loop.call_soon(call, *args)
            else:
                self._loop.call_soon_threadsafe(call, *args)

    def _error(self, kind: type[LeaseLostError], reason: str) -> LeaseLostError:
        return kind(key=self.key, owner=self.owner, fencing_token=self.fencing_token, reason=reason)

    # Renewal: the loop only.

    async def renew(self) -> BackendError | None:
        """Renew by one conditional write; joins a renewal that is under way.

        Returns:
            None if the store agrees or the lease has ended; else why it is not known.
        """
        flight = self.start_renewal()
        if flight is None:
            return None
        await asyncio.wait([flight])
        return None if flight.cancelled() else flight.result()

    def start_renewal(self) -> asyncio.Task[BackendError | None] | None:
        """Start a renewal or return the one that is under way; None if the lease has ended."""
        if not self.renewing:
            if self.remaining() <= 0:
                return None
            self._flight = self._spawn(self._renew())
        return self._flight

    @property
    def head(self) -> tuple[LockRecord, str | None]:
        """The record written last and its version."""
        return self._head.record, self._head.version

    @property
    def renewing(self) -> bool:
        """Whether a renewal is under way."""
        return self._flight is not None and not self._flight.done()

    async def _renew(self) -> BackendError | None:
        error = await self._renew_once()
        if self.lost is not None:
            self._reap()
        elif error is not None and not self._ended:
            self._emit("renewal_failed", str(error))
        return error

    async def _renew_once(self) -> BackendError | None:
        await self._store.pace(self.key)
        # Past the deadline no renewal is sent.
        if (left := self.remaining()) <= 0:
            return None
        base, now = self._head, self._store.now()
        valid_until = max(base.record.valid_until_ms, self._store.promise(now) or 0)
        record = base.record._replace(nonce=self._store.fresh_nonce(), valid_until_ms=valid_until)
        attempt = Attempt(record, base.version, now)
        self._attempts.add(attempt)
        try:
            error = await self._store.write(self.key, attempt, timeout=left)
            if error is None:
                self._extend(attempt)
                return None
            return await self._read_back(error)
        except RecordCorruptError as corrupt:
            self._taken_over(Displaced(f"its object is corrupt: {corrupt.reason}"))
            return None
        except BackendError as failed:
            return failed
        except ConfigError:  # of the read-back: as open as the write left it
            return error

    async def _read_back(self, error: BackendError) -> BackendError | None:
        """Settle an open outcome (rule 2)."""
        if (left := self.remaining()) <= 0:
            return error
        seen = await self._store.read(self.key, timeout=left)
        mine = self._attempts.find(seen)
        if mine is not None and mine is not self._head:
            self._extend(mine)
            return None
        if seen.version == self._head.version:
            return error  # unchanged: the attempt may still land
        self._attempts.forget()
        self._taken_over(displaced(seen, self.owner))
        return None

    def _extend(self, attempt: Attempt) -> None:
        """Take in a renewal that landed; belief grows only if it had not ended."""
        self._head = attempt
        self._attempts.settle_on(attempt)
        with self._mutex:
            if self._ended:
                return
            if self._left() <= 0:
                self._lose(self._error(LeaseExpiredError, _EXPIRED))
                return
            self._sent = attempt.sent
        self.until_settled()  # while a Date is at hand
        self._emit("renewed")

    def _taken_over(self, by: Displaced) -> None:
        with self._mutex:
            self._lose(self._taken_over_error(by))

    def _taken_over_error(self, by: Displaced) -> LeaseTakenOverError:
        return LeaseTakenOverError(
            key=self.key,
            owner=self.owner,
            fencing_token=self.fencing_token,
            reason=by.reason,
            new_owner=by.owner,
            new_token=by.token,
        )

    # The end: the loop only.

    def end_belief(self) -> bool:
        """Stop believing before a release is sent; False if the lease had ended already."""
        if self.remaining() <= 0:
            return False
        with self._mutex:
            if self._ended:
                return False
            self._ended = True
        return True

    def give_up(self, reason: str) -> bool:
        """End belief before a release that its holder did not ask for, as a loss; False if it had ended."""
        if self.remaining() <= 0:
            return False
        with self._mutex:
            if self._ended:
                return False
            self._reaped = True  # the release that follows leaves no zombie either
            self._lose(self._error(LeaseLostError, reason))
        return True

    def let_go(self, loss: str | None = None) -> None:
        """End belief and release in the background.

        Args:
            loss: Why, where the holder did not ask for it: it is told of a loss.
        """
        if self.end_belief() if loss is None else self.give_up(loss):
            self._spawn(self.release())

    async def settle(self) -> None:
        """Await the write in flight, for at most a request timeout (rule 6)."""
        if self._flight is not None and not self._flight.done():
            await asyncio.wait([self._flight], timeout=self._store.terms.request_timeout)

    async def release(self, *, doubtful: bool = False) -> None:
        """Free the lock after ``end_belief``: settle the write in flight, then one conditional write.

        Waits at most three request timeouts; what is not settled then goes on in the background,
        bounded by rule 3. A cancelled call finishes this first. ``lost`` says afterwards whether
        another's record was found, or none.

        Args:
            doubtful: What it was handed on to may have written over its record, unseen.
        """
        self._attempts.doubtful = self._attempts.doubtful or doubtful
        with uninterrupted():
            await self.settle()
            if not await self._free("released", 2 * self._store.terms.request_timeout):
                self._spawn(self._free("released", None))
            self._handed()

    # Hand-off (rule 15): belief has ended, another acquisition writes over the record.

    async def release_through(self, store: Store) -> None:
        """Free the lock through another store object, as the loop of this one is closed.

        Waits at most as long as an exit may take.
        """
        if self.end_belief():
            await self._write_free(store, store.terms.exit_bound)

    def may_hand_on(self) -> bool:
        """Whether a successor may write over the record: before the deadline, with a settled token."""
        return self._left() > 0 and self.until_settled() <= 0

    def hand_on(self) -> None:
        """Leave the record to its receiver, to write over or to free."""
        self._handing = self._loop.create_future()

    def taken_on(self) -> None:
        """The receiver has written over the record: the lease lasted until then."""
        self._ended_well("released", "handed on")
        self._handed()

    def displaced_by(self, by: Displaced) -> None:
        """The receiver found something else in place of the record: the lease was lost before."""
        self._lost_at_release(by)
        self._handed()

    async def handed_on(self) -> None:
        """Wait until it is known what became of the record; as long as a release at most."""
        if self._handing is not None:
            await asyncio.wait([self._handing], timeout=3 * self._store.terms.request_timeout)

    def _handed(self) -> None:
        if self._handing is not None and not self._handing.done():
            self._handing.set_result(None)

    def bears(self, seen: Seen) -> bool:
        """Whether the object shows a live record of this tenure, be it of a write thought lost."""
        mine = self._attempts.find(seen)
        if mine is not None:
            self._head = mine
        return mine is not None

    async def _free(self, kind: Kind, limit: float | None) -> bool:
        """Write the free record; tell that it has ended once that is settled or hopeless."""
        freed = await self._write_free(self._store, limit)
        if freed is None and limit is not None:
            return False
        if isinstance(freed, Attempt):
            self.freed = freed
            self._ended_well(kind)
        elif freed is None:
            self._ended_well("release_unconfirmed", "the store did not answer")
        else:
            self._lost_at_release(freed)
        return True

    async def _write_free(self, store: Store, limit: float | None) -> Attempt | Displaced | None:
        head = self._head
        return await free(
            store,
            self.key,
            record=head.record,
            base=head.version,
            attempts=self._attempts,
            keep_token=self.until_settled() <= 0,
            limit=limit,
        )

    def _ended_well(self, kind: Kind, detail: str = "") -> None:
        self._emit(kind, detail)
        if self.lost is None:
            self._tell(None)

    def _lost_at_release(self, by: Displaced) -> None:
        """Tell a release that found another's record as the loss that it is; a lost lease is lost once."""
        if not by.proven:
            self._ended_well("released", f"{by.reason} since")
        elif self.lost is None and not self.told:
            self.lost = self._taken_over_error(by)
            self._emit("lost", by.reason)
            self._tell(self.lost)

    def _after_loss(self, error: LeaseLostError) -> None:
        self._emit("lost", error.reason)
        if not self.renewing:
            self._reap()
        self._tell(error)

    def _tell(self, loss: LeaseLostError | None) -> None:
        if self.told:
            return
        self.told = True
        calls, self.on_end = self.on_end, []  # they know this tenure: no circle is left behind
        for call in calls:
            try:
                call(loss)
            except Exception:  # noqa: BLE001  the others are to be told all the same
                logger.exception("whoever was to be told of the end of %s failed", self.key)

    def _reap(self) -> None:
        """Kill what may still land after a loss, or has landed (rule 3)."""
        zombie = self._attempts.open_on(self._head.version)
        landed_late = self._head.sent is not self._sent
        if not self._reaped and (zombie is not None or landed_late):
            self._reaped = True
            self._spawn(self._free("reaped", None))

    def _emit(self, kind: Kind, detail: str = "") -> None:
        self._store.events.emit(kind, self.key, self.owner, self.fencing_token, detail)
