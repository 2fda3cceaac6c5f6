"""One held lock, from the write that acquired it to its end (rules 4 to 7 and 15)."""

from __future__ import annotations

import asyncio
import math
from contextlib import suppress
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from asynclock._core.mutex import Mutex
from asynclock._core.names import by_name
from asynclock._core.protocol.cap import Cap
from asynclock._core.protocol.claim import Claim
from asynclock._core.protocol.decisions import Displaced, Freed, displaced
from asynclock._core.protocol.objects import Attempt, Landed, Refused
from asynclock._core.protocol.refusals import Refusals, Shown
from asynclock.errors import (
    BackendError,
    ConfigError,
    LeaseExpiredError,
    LeaseLostError,
    LeaseTakenOverError,
    RecordCorruptError,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from asynclock._core.protocol.objects import LockObjects, Open, Outcome
    from asynclock.events import Kind


class Phase(Enum):
    """How far a held lock has come. Only in ``HELD`` is the lock believed to be held."""

    HELD = "held"
    RELEASING = "releasing"  # its record is being freed
    HANDED_OVER = "handed over"  # another acquisition of this client writes over its record, or frees it
    RELEASED = "released"
    LOST = "lost"  # ``HeldLock.lost`` says why


_HELD: Final = Phase.HELD  # to look it up in an enum costs a tenth of a look at a lease
_ENDED: Final = frozenset({Phase.RELEASED, Phase.LOST})
_LONGER: Final = 1.01
CLOSED: Final = "the client was closed"
"""The reason of a loss if code works under the lease while its client is closed (rule 25)."""


class HeldLock:
    """The holder's side of one acquisition, made of the write that ``landed``.

    You may call ``remaining`` from any thread and from a signal handler, at any point. The first caller after
    the deadline makes the loss final, so that no answer can revive the lock: its entry is the first one of a
    list, without a mutex. Everything else runs on the client's loop.

    Attributes:
        head: The last write that is known to have landed.
        lost: Why it was lost, or None.
        freed: The write that released it, and left it free, or kept (rule 21) or offered (rule 29).
        end: Done when it is released or lost; the result is the loss, or None.
        body_loop: The event loop that runs the body of ``hold()`` or ``async with``, or None.
        confirmed: The store has confirmed its release.
        updating: Held by one update of a ``FencedObject`` under it at a time.
        in_use: A body runs under it, or an ``on_lost`` waits for its end.
        acquired: Who has acquired it, and where; for people.
        ceded: Its holder was asked to release it (rule 26).
    """

    ceded: bool = False
    acquired: tuple[object, str] = (None, "")

    def __init__(
        self, *, objects: LockObjects, key: str, landed: Attempt, at_most: float | None = None
    ) -> None:
        assert landed.record.epoch is not None  # noqa: S101  our own record
        self.key = key
        self.owner: str = landed.record.owner
        self.fencing_token: int = landed.record.epoch
        self.phase: Phase = Phase.HELD
        self.head: Attempt = landed
        # Its own claim: the clean-up of a loss must not mistake a later write of the acquisition for its own.
        self.claim: Claim = Claim(objects, key, landed)
        self.lost: LeaseLostError | None = None
        self.freed: Freed | None = None
        self.body_loop: asyncio.AbstractEventLoop | None = None
        self.in_use: bool = False
        self.updating: Mutex = Mutex()
        self.confirmed: bool = False
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self.end: asyncio.Future[LeaseLostError | None] = self.loop.create_future()
        self._on_end: Callable[[HeldLock], object] | None = None
        self._objects = objects
        self._in_flight = objects.in_flight
        self._belief = objects.timing.belief
        # The first entry ended belief: a loss, or another object for a release.
        self._ends: list[object] = []
        self._sent = landed.sent
        self._cap: Cap | None = None if at_most is None else Cap(at_most, landed.sent, at_most)
        self._stands = False  # lost, though its record still promises a time: free it once the body has left
        self._cleans = False
        self._began = landed.sent.monotonic
        self._renewal: asyncio.Task[BackendError | None] | None = None
        self._refusals = Refusals()
        self._kept_until = -math.inf
        self._handed_out = False
        self._left_unfreed = False
        self._unreported: list[LeaseLostError] = []  # one at most
        self._on_lost: list[Callable[[LeaseLostError], object]] = []

    # Belief: any thread.

    def remaining(self) -> float:
        """Return seconds until belief ends; 0.0 once it has."""
        # A renewal that lands in between only makes the answer too small.
        if self.phase is _HELD and (left := self._left()) > 0:
            return left
        left = self._believed()
        if self.lost is not None:
            self._tell()
        return left

    def check(self) -> None:
        """Return if the lock is believed to be held.

        Raises:
            LeaseLostError: It was lost, or released.
        """
        if self.remaining() > 0:
            return
        if (lost := self.lost) is not None:
            raise lost.with_traceback(None)
        raise self._error(LeaseLostError, "it was released")

    def _believed(self) -> float:
        """Like ``remaining``, but without reporting a loss."""
        if self.phase is not Phase.HELD:
            return 0.0
        sent = self._sent
        if (left := self._left()) > 0:
            return left
        capped = self._cap is not None and self._cap.left(self._objects.now()) <= 0
        reason = "its deadline passed before a renewal was confirmed"
        if self._cap is not None and capped:
            reason = f"it was held for as long as it may be, at_most={self._cap.at_most:g} s"
        elif self._refusals.final:
            reason += ": the store refuses them over the version that it shows; run asynclock doctor"
        self._lose(self._error(LeaseExpiredError, reason))
        if isinstance(self.lost, LeaseExpiredError):
            self._stands = capped
            self._sent = sent  # even if a renewal landed in this very instant: its record is to be freed
        return 0.0

    def _left(self) -> float:
        clock, sent = self._objects.clock, self._sent
        left = self._belief - max(
            clock.monotonic() - sent.monotonic, clock.boot() - sent.boot, clock.wall() - sent.wall
        )
        return left if self._cap is None else min(left, self._cap.left(self._objects.now()))

    def stop_believing(self, loss: str | None = None) -> bool:
        """Stop believing before a release is sent; return False if the lock was no longer held.

        ``loss`` is the reason of a release that the holder did not ask for: for the holder it is a loss.
        """
        if self.remaining() <= 0:
            return False
        if loss is not None:
            held = self._lose(self._error(LeaseLostError, loss))
            self._tell()
            return held
        self._ends.append(end := object())
        if held := self._ends[0] is end:
            self.phase = Phase.RELEASING
        return held

    def lose(self, reason: str) -> None:
        """Lose it for a reason of its holder. Its record stays until the body has left. From any thread."""
        if self.remaining() > 0 and self._lose(self._error(LeaseLostError, reason)):
            self._stands = True
            self._tell()

    def abandon(self, reason: str) -> None:
        """End belief without a write and without reporting it: in a forked child."""
        self._on_lost = []  # they belong to the parent
        if self.phase is Phase.HELD:
            self.lost, self.phase = self._error(LeaseLostError, reason), Phase.LOST

    def note_body(self) -> None:
        """Note that a body works under it from now on.

        Raises:
            LeaseLostError: The client was closed meanwhile.
        """
        self.in_use = True
        if self._in_flight.closed is not None and self.remaining() <= 0 and self.lost is None:
            raise self._error(LeaseLostError, CLOSED)

    def on_lost(self, tell: Callable[[LeaseLostError], object]) -> None:
        """Call ``tell`` once at a loss, in the thread that finds it; at once if it is lost. From any thread.

        It must neither block nor raise. It needs no event loop: that of the client may be blocked or closed.
        """
        self.remaining()  # the first look after the deadline makes the loss final
        self.in_use = True
        self._on_lost.append(tell)
        self._tell()

    def _lose(self, error: LeaseLostError) -> bool:
        """Make a loss final; False if belief has ended by something else. Call ``_tell`` after that."""
        self._ends.append(error)
        first = self._ends[0]
        if isinstance(first, LeaseLostError):
            self.lost, self.phase = first, Phase.LOST  # also for another thread that has not come this far
        if first is not error:
            return False
        self._unreported.append(error)
        with suppress(RuntimeError):  # the loop is closed
            self.loop.call_soon_threadsafe(self.report_loss)
        return True

    def _tell(self) -> None:
        """Call the callbacks if a loss was found. Report it here if the loop that would do so is closed."""
        if (lost := self.lost) is None:
            return
        with suppress(IndexError):  # another thread took the last one
            while self._on_lost:
                self._on_lost.pop(0)(lost)
        if self._unreported and self.loop.is_closed():
            self.report_loss()

    def _error(self, kind: Callable[..., LeaseLostError], reason: str, **fields: Any) -> LeaseLostError:  # noqa: ANN401
        return kind(key=self.key, owner=self.owner, fencing_token=self.fencing_token, reason=reason, **fields)

    # Renewal.

    @property
    def renewal(self) -> asyncio.Task[BackendError | None] | None:
        """The running renewal, or None."""
        return None if self._renewal is None or self._renewal.done() else self._renewal

    async def renew(self) -> BackendError | None:
        """Renew with one conditional write, or join a running renewal; return why it is not confirmed."""
        if (renewal := self.start_renewal()) is None:
            return None
        await asyncio.wait([renewal])
        return None if renewal.cancelled() else renewal.result()

    def start_renewal(self) -> asyncio.Task[BackendError | None] | None:
        """Start a renewal or return the running one; None if the lock is no longer held."""
        renewal = self.renewal
        if renewal is None and self.remaining() > 0:
            # Already done if tasks start eagerly and the store answers at once.
            renewal = self._renewal = self._in_flight.spawn(self._renew())
        return renewal

    async def _renew(self) -> BackendError | None:
        began = self._objects.clock.monotonic()
        error = await self._renew_once()
        if error is not None and self.phase is Phase.HELD:
            reason, left = type(error).__name__, max(0.0, self._left())
            detail = by_name(str(error), self.key)
            self._emit("renewal_failed", detail, reason=reason, since=began, remaining=left)
        return error

    async def _renew_once(self) -> BackendError | None:
        await self._objects.pacing.wait(self.key)
        if self._cap is not None and not self._objects.issuer.knows_time():
            with suppress(BackendError, RecordCorruptError, ConfigError):  # the write will tell
                await self._objects.read(self.key)  # as for a record that is kept (rule 21)
        if (left := self.remaining()) <= 0:
            return None  # past the deadline no renewal is sent
        base = self.head
        try:
            now, ends_in = self._objects.now(), None
            if self._cap is not None:
                # Belief first: the write may land and its answer be lost, or a clock be set back.
                self._cap = self._cap.at(now)
                ends_in = self._cap.seconds
            record = self._objects.issuer.renewed(base.record, now, ends_in)
            attempt = Attempt(record, base.version, now, base.settled_at)
            outcome = await self.claim.write(attempt, timeout=left)
            if isinstance(outcome, Attempt):
                self._extend(outcome)
                return None
            return await self._read_back(outcome)
        except RecordCorruptError as corrupt:
            self._taken_over(Displaced(f"its object is corrupt: {corrupt.reason}"))
            return None
        except BackendError as failed:
            return failed

    async def _read_back(self, outcome: Refused | Open) -> BackendError | None:
        """Find out the outcome of a renewal that the store did not confirm (rule 2)."""
        error = outcome.error
        if (left := self.remaining()) <= 0:
            return error
        try:
            seen = await self._objects.read(self.key, timeout=left)
        except ConfigError:
            return error  # the write is as open as before
        base = Shown(self.head.version, self.head.record)
        mine = self.claim.recognise(seen)
        if mine is not None and mine.sent is not self.head.sent:
            self._extend(mine, reason="read_back")
            return None
        if mine is not None:
            self.head = mine  # its record was written again under its nonce: the next renewal replaces that
        if seen.version == self.head.version:
            if isinstance(outcome, Refused):
                self._refusals.note(base, Shown(seen.version, seen.record))
                return self._refusals.error(outcome.error, url=self._objects.events.url)
            return error  # unchanged: the attempt may still land
        self._taken_over(displaced(seen, self.owner))
        return None

    def _taken_over(self, by: Displaced) -> None:
        if self.phase is Phase.HELD:  # else a release, which may be what was found, says how it ends
            self.found_gone(by)

    def _extend(self, attempt: Attempt, reason: str = "") -> None:
        """Count belief from a renewal that landed, unless it has ended."""
        if self.phase in {Phase.HANDED_OVER, Phase.RELEASED}:
            return  # the claim is the receiver's, or settled
        self.head = attempt
        self.claim.settle_on(attempt)
        if (left := self.remaining()) <= 0:
            return
        before = self._sent
        self._sent = attempt.sent
        if self._ends:  # another thread has found the deadline passed just now
            self._sent = before
            return
        self._refusals.count = 0
        self.until_settled()  # while there is a Date to tell by
        self._emit("renewed", reason=reason, since=attempt.sent.monotonic, remaining=left)

    def until_settled(self) -> float:
        """Return seconds until store time has reached the token (rule 11), else 0.0."""
        wait = self._objects.issuer.until_settled(self.claim.settles_at(self.head))
        if wait <= 0:
            self.claim.note_settled(self.head)  # for good, also if no Date is carried any more
        return wait

    # Release.

    def keep(self, seconds: float) -> None:
        """Make a release keep the lock held until ``seconds`` from now (rule 21). From any thread."""
        self._kept_until = self._objects.clock.boot() + seconds

    def left_to_keep(self) -> float:
        """Return for how many seconds a release keeps the lock; 0.0 or less: not at all."""
        return self._kept_until - self._objects.clock.boot()

    def let_go(self, loss: str | None = None) -> None:
        """End belief and release in the background; ``loss`` as for ``stop_believing``."""
        if self.stop_believing(loss):
            self._in_flight.spawn(self._free_in_background())

    async def free(
        self, until: float | None = None, *, hand_over: Callable[[HeldLock], bool] | None = None
    ) -> None:
        """Free the lock, after ``stop_believing``; ``lost`` then says whether it was found to be gone.

        Args:
            until: Loop time to wait until, default the exit bound; after that it continues in the background.
            hand_over: Called once no renewal is in flight; returns True if a receiver gets the lock instead.
        """
        with self._in_flight.protect():
            bound = self._objects.timing.exit_bound
            tried, freeing = None, None
            at_once, until = until is None, self.loop.time() + bound if until is None else until
            if self.renewal is None:
                if hand_over is not None and hand_over(self):
                    freeing = self.end
                elif at_once and not (self._objects.pacing.limits or self.left_to_keep() > 0):
                    # Nearly always enough, and then it needs no task of its own.
                    with suppress(BackendError, ConfigError):
                        tried = await self.claim.free_once(self.head, timeout=bound)
                if tried is not None and isinstance(outcome := tried[1], Landed):
                    self._note_freed(Freed(tried[0].record, outcome.version))
                    return
            await self._outlast(
                freeing or self._in_flight.spawn(self._free_in_background(tried, hand_over)), until
            )
            if self.phase is Phase.HANDED_OVER:
                await self._outlast(self.end, until)

    async def _outlast(self, end: asyncio.Future[Any], until: float) -> None:
        """Wait until that loop time for a release or hand-over; if it still runs then, report that."""
        await asyncio.wait([end], timeout=max(0.0, until - self.loop.time()))
        if not end.done():
            self.note_pending()

    def note_pending(self) -> None:
        """Report once that no caller waits any more for a running release."""
        if not self._left_unfreed:
            self._left_unfreed = True
            error = self.claim.error
            reason = "" if error is None else type(error).__name__
            self._report("release_pending", self._why_unfreed(), reason=reason)

    @property
    def pending(self) -> str | None:
        """Why its release still runs after its holder left; None if it ended, or the holder has not left."""
        return self._why_unfreed() if self._left_unfreed and self.phase is Phase.RELEASING else None

    def _why_unfreed(self) -> str:
        return "no answer so far" if self.claim.error is None else str(self.claim.error)

    async def _free_in_background(
        self,
        tried: tuple[Attempt, Outcome] | None = None,
        hand_over: Callable[[HeldLock], bool] | None = None,
    ) -> None:
        self._in_flight.note_unfreed(self)
        freed = None
        try:
            if (renewal := self.renewal) is not None:
                # One write of a lease at a time (rule 6); if it was sent just now, its own timeout is first.
                await asyncio.wait([renewal], timeout=_LONGER * self._objects.timing.request_timeout)
                if renewal.done() and hand_over is not None and hand_over(self):
                    self._in_flight.note_freed(self)
                    return
            freed = await self.claim.free(self.head, kept_until=self._kept_until, tried=tried)
        except asyncio.CancelledError:
            if self._objects.closed is None:
                raise  # its loop ends: it is freed at the exit, through another
        self._in_flight.note_freed(self)
        self._note_freed(freed)

    async def free_through(self, objects: LockObjects, loss: str | None = None) -> None:
        """Free the lock by requests on another loop, because this one is closed; within the exit bound.

        ``loss`` as for ``stop_believing``.
        """
        if self.stop_believing(loss) or self in self._in_flight.unfreed:
            try:
                async with asyncio.timeout(objects.timing.exit_bound):
                    freeing = self.claim.free(self.head, kept_until=self._kept_until, through=objects)
                    freed = await freeing
                self._in_flight.note_freed(self)
                self._note_freed(freed)
            except TimeoutError:
                self.give_up("the store did not answer in time")

    def give_up(self, reason: str) -> None:
        """Report that the release ends here without an answer of the store."""
        self._in_flight.note_freed(self)
        if self.claim.refusal is not None:
            reason = str(self.claim.refusal)
        elif self.claim.error is not None:
            reason = f"{reason}: {self.claim.error}"
        self._ended("release_unconfirmed", reason)

    def _note_freed(self, freed: Freed | Displaced | None) -> None:
        """Report how a release ended, as ``Claim.free`` tells it."""
        if isinstance(freed, Displaced):
            self.found_gone(freed)
        elif freed is None:
            self.give_up("the store did not answer")
        elif freed.record.expired:
            self.freed = freed
            self._ended("released", reason="read_back" if freed.read_back else "")
        else:
            self.freed, reason = freed, "" if self.claim.offer is None else "transfer"
            self._ended("released", f"kept for another {max(0.0, self.left_to_keep()):.0f} s", reason=reason)

    # Hand-over (rule 15): an acquisition of this client, the receiver, writes over the record.

    def may_hand_over(self) -> bool:
        """Whether a receiver may write over the record: before the deadline, with a settled token.

        Not while it is kept: that also excludes other callers of this client.
        """
        return self._left() > 0 and self.until_settled() <= 0 and self.left_to_keep() <= 0

    def hand_over(self) -> None:
        """Leave the record and the claim to a receiver, which calls one of the next two, or ``free``."""
        self.phase = Phase.HANDED_OVER
        self._in_flight.add(self.end)

    def written_over(self) -> None:
        """The receiver has acquired the lock: this lease lasted until then."""
        self._ended("released", "handed over", reason="handover")

    def found_gone(self, by: Displaced) -> None:
        """Another record is there instead: a loss, if that is proven (rules 2 and 6)."""
        if not by.proven:
            self._ended("released", f"{by.reason} since")
            return
        if self.phase in _ENDED:
            return
        error = self._error(LeaseTakenOverError, by.reason, new_owner=by.owner, new_token=by.token)
        if self.phase is not Phase.HELD:
            self.lost, self.phase = error, Phase.LOST
            self._unreported.append(error)
        elif not self._lose(error):
            return
        self.report_loss()

    # The end.

    def report_loss(self) -> None:
        """End the lock and report its loss once; on the client's loop, or anywhere if that loop is closed."""
        try:
            error = self._unreported.pop()
        except IndexError:
            return
        renewal = self._renewal
        if renewal is not None and isinstance(error, LeaseExpiredError) and not self.loop.is_closed():
            self._in_flight.spawn(self._clean_up())
        self._ended("lost", error.reason, reason=type(error).__name__)

    def note_left(self) -> None:
        """Note that no body works under the lease any more; free it if lost only here. From any thread."""
        if self._stands:
            with suppress(RuntimeError):  # the loop is closed: it frees itself
                self.loop.call_soon_threadsafe(self._free_standing)

    def _free_standing(self) -> None:
        if self._stands:
            self._stands = False
            self._in_flight.spawn(self._clean_up(stands=True))

    async def _clean_up(self, *, stands: bool = False) -> None:
        """Free the lock after its loss if it stands, or a renewal may still land, or has late (rule 3)."""
        if self._renewal is not None:
            await asyncio.wait([self._renewal])
        late = self.head.sent is not self._sent or self.claim.open_on(self.head.version)
        if self._cleans or not (late or stands):
            return
        self._cleans = True
        if isinstance(await self.claim.free(self.head, kept_until=self._kept_until), Freed):
            self._emit("reaped")  # any other outcome changes nothing for a lost lease (rule 6)

    def on_end(self, call: Callable[[HeldLock], object]) -> None:
        """Call ``call(self)`` in the step that ends it, on the client's loop; at once if it has ended."""
        if self.end.done():
            call(self)
        else:
            self._on_end = call

    def _ended(self, kind: Kind, detail: str = "", reason: str = "") -> None:
        """End the lock, unless it has ended, and report ``kind``."""
        if kind == "released":
            self.confirmed = True
        if self.phase is not Phase.LOST:
            self.phase = Phase.RELEASED
        # End it first: a report runs callbacks of the user.
        if not self.end.done() and not self.loop.is_closed():
            self.end.set_result(self.lost)
            if self._on_end is not None:
                self._on_end(self)
        self._tell()
        self._report(kind, detail, reason=reason)

    def hand_out(self, kind: Kind, *, reason: str, asked_at: float) -> None:
        """Report that the caller now has the lock.

        A lock lost before this point was never a lease, so no event says that it ended.
        """
        self._handed_out = True
        self._emit(kind, reason=reason, since=asked_at)

    def note_stall(self, seconds: float) -> None:
        """Report how long this process did not run, if it held the lock all that time."""
        if self._objects.clock.boot() - self._sent.boot < seconds:
            return
        self._objects.events.emit("stalled", self.key, self.owner, self.fencing_token, duration=seconds)

    def _report(self, kind: Kind, detail: str, reason: str) -> None:
        """Report how its lease ended or is ending, if it ever was a lease."""
        if self._handed_out:
            self._emit(kind, detail, reason=reason, since=self._began)

    def _emit(
        self,
        kind: Kind,
        detail: str = "",
        *,
        reason: str = "",
        since: float | None = None,
        remaining: float | None = None,
    ) -> None:
        """Report an event; ``since``, on the monotonic clock, gives its duration."""
        duration = None if since is None else self._objects.clock.monotonic() - since
        self._objects.events.emit(
            kind,
            self.key,
            self.owner,
            self.fencing_token,
            detail,
            reason=reason,
            duration=duration,
            remaining=remaining,
        )
