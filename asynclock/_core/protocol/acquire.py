"""Acquires a lock: look, judge, write, read back; round after round until the time is up."""

from __future__ import annotations

import asyncio
import math
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from asynclock._core.names import by_name
from asynclock._core.portal import cancelled_for
from asynclock._core.protocol.claim import Claim
from asynclock._core.protocol.decisions import Freed, Seen, Verdict, displaced, judge
from asynclock._core.protocol.held import HeldLock
from asynclock._core.protocol.objects import Attempt, Refused
from asynclock._core.protocol.refusals import Shown
from asynclock._core.record import LockRecord
from asynclock.errors import (
    BackendError,
    BackendUnavailableError,
)

if TYPE_CHECKING:
    from asynclock._core.protocol.decisions import Displaced, Observation
    from asynclock._core.protocol.objects import LockObjects, Open
    from asynclock._core.protocol.refusals import Refusals
    from asynclock._core.protocol.renewal import Renewals
    from asynclock._core.protocol.waiting import Fairness
    from asynclock.events import Kind

_READ_AGAIN: Final = 1.0
"""Seconds to wait before the next read if a Date was not usable."""
_FINEST_LOOK: Final = 20
"""Looks at a predicted expiry are at least the poll interval divided by this apart."""
_LEAST_REQUEST: Final = 1.0
"""Least seconds for each request: a shorter limit would only leave a write in doubt."""


class Acquisition:
    """One attempt to become the holder.

    Args:
        objects: How the client reads and writes.
        key: Of the lock's object.
        observation: The client's view of the object.
        refusals: Counts them over several short acquisitions too.
        fairness: Knows when it is another client's turn.
        renewals: Renews the lock from its acquisition on.
        until: Loop time at which to give up.
        once: One round only.
        asked_at: Monotonic time of the call; it may have waited for its turn since.
        at_most: Seconds from its acquisition at which belief ends for good (rule 27), or None.
        fencing: Whether the token will be handed out (rule 11).
        given: A lock of this client that is handed over: write over its record, or free it (rule 15).
    """

    def __init__(
        self,
        objects: LockObjects,
        key: str,
        *,
        observation: Observation,
        refusals: Refusals,
        fairness: Fairness,
        renewals: Renewals,
        until: float,
        once: bool,
        at_most: float | None,
        fencing: bool,
        given: HeldLock | None,
        asked_at: float,
    ) -> None:
        self._key = key
        self._objects = objects
        self._timing = objects.timing
        self._observation = observation
        self._refusals = refusals
        self._fairness = fairness
        self._renewals = renewals
        self._until = until
        self._once = once
        self._at_most = at_most
        self._fencing = fencing
        self._given = given
        self._asked_at = asked_at
        self._loop = asyncio.get_running_loop()
        self._owner = objects.issuer.fresh_owner()
        self._predecessor: str | None = None
        self._kind: Kind = "acquired"
        self._reason = ""
        self._claim = Claim(self._objects, self._key) if given is None else given.claim
        self._held: HeldLock | None = None
        self._undated = False  # no Date was usable in the last round
        self.error: BackendError | None = None  # why the last round failed, if not because of others

    async def run(self) -> HeldLock | None:
        """Acquire the lock; None if others hold it until the time is up.

        On a timeout, an error or a cancellation nothing is left behind: an acquired lock is released, and a
        write that may still land is freed.

        Raises:
            RecordCorruptError: The object is not a lock record; nothing was written.
            AccessDeniedError: The store refused; nothing was written.
            UnsupportedBackendError: This store cannot give a safe token, or refuses to write over what it
                shows; nothing was written.
            BackendError: With ``once``, the store did not answer.
        """
        began = self._loop.time()
        held: HeldLock | None = None
        try:
            held = await self._rounds()
        finally:
            if held is None:
                await self._give_up()
        if held is not None:
            self._fairness.began(
                self._loop.time(), started_at=began, owner=held.tenure.owner, predecessor=self._predecessor
            )
            held.tenure.hand_out(self._kind, reason=self._reason, asked_at=self._asked_at)
        return held

    @property
    def failure(self) -> str:
        """Why one try did not acquire the lock: the class of an error, or a word of ``Event.reason``."""
        if self.error is not None:
            return type(self.error).__name__
        return "makes_way" if self._fairness.away_for(self._loop.time()) > 0 else "held"

    async def _rounds(self) -> HeldLock | None:
        """Run rounds until the lock is held; None once the time is up."""
        seen = self._remembered()
        remembered = seen is not None
        while True:
            try:
                pause, seen = await self._round(seen)
            except BackendError as error:
                if self._once or not error.transient:
                    raise
                self._note_failure(error)
                pause, seen = self._until_next_look(), None
            self._objects.in_flight.note(stands=self._unsettled() is not None)
            if (held := self._held) is not None:
                if await self._token_settles(held):
                    return held
                if self._held is held:
                    return None  # not lost, but the time is up
                pause, seen = 0.0, None
            if self._once and remembered and seen is not None:
                remembered = False  # what was remembered is out of date: nothing has been tried yet
            elif self._once or not await self._pause(pause):
                return None

    async def _round(self, seen: Seen | None) -> tuple[float, Seen | None]:
        """Look, if nothing was ``seen``, and write if the lock is free.

        Returns:
            Seconds to wait, and what the next round has seen.
        """
        if (last := self._unsettled()) is not None and not self._may_write():
            await self._start_over(last)
            seen = None
        if (away := self._fairness.away_for(self._loop.time())) > 0:
            return away, seen
        seen = seen or await self._read_and_adopt()
        if self._held is not None:
            return 0.0, None
        verdict = self._judge(seen)
        if not verdict.free:
            return self._until_next_look(verdict.wait), None
        if self._objects.verifier.needed:
            left = math.inf if self._once else max(self._until - self._loop.time(), _LEAST_REQUEST)
            await self._objects.verifier.verify(self._key, within=left)
        await self._objects.pacing.wait(self._key)
        attempt = self._attempt_on(seen) if self._may_write() else None
        if attempt is None:
            return _READ_AGAIN, None
        self._predecessor = seen.record.owner if seen.record else None
        self._reason = self._reason_on(seen)
        self._observation.freed = None
        self._objects.in_flight.note(stands=True)
        outcome = await self._claim.write(attempt, timeout=self._request_limit())
        if isinstance(outcome, Attempt):
            await self._take(outcome, "acquired")
        else:
            self._note_outcome(outcome)
        back = seen if self._held is not None else await self._read_and_adopt()
        refused = (
            isinstance(outcome, Refused) and self._held is None and self._still_shows(outcome, seen, back)
        )
        if self._held is None and (refused or self._claim.open_on(back.version)):
            # Unchanged: the attempt may still land. Write again on the same base.
            if self._once and self.error is not None:
                raise self.error
            often = refused and self._refusals.count > 1
            return self._until_next_look(self._timing.poll_interval / (1 if often else 4)), back
        return 0.0, back

    def _note_outcome(self, outcome: Refused | Open) -> None:
        if isinstance(outcome, Refused):
            self.error = outcome.error  # reported only if no other client has written
        else:
            self._note_failure(outcome.error)

    def _still_shows(self, refused: Refused, seen: Seen, back: Seen) -> bool:
        """Note a write over ``seen`` that was refused; return whether ``back`` shows the same (rule 23).

        Raises:
            UnsupportedBackendError: It has done so three times in a row.
        """
        refusals = self._refusals
        base, shown = Shown(seen.version, seen.record), Shown(back.version, back.record)
        if not refusals.note(base, shown):
            return False
        told = refusals.error(refused.error, url=self._objects.events.url)
        if refusals.final:
            raise told
        self._note_failure(told)
        return True

    def _reason_on(self, seen: Seen) -> str:
        """Return the kind of an acquisition over ``seen``, for its event."""
        if self._given is not None:
            return "handover"
        ended = seen.record is None or seen.record.expired or self._claim.recognise(seen) is not None
        return "" if ended else "takeover"

    # Looking.

    def _remembered(self) -> Seen | None:
        """Return the lock that is handed over, or our own last release, as if it had just been read."""
        write = self._observation.freed if self._given is None else self._given.tenure.head
        if write is None or write.version is None:
            return None
        now = self._objects.now()
        return (
            Seen(write.record, write.version, None, None, now)
            if self._objects.issuer.knows_time(now)
            else None
        )

    async def _read_and_adopt(self) -> Seen:
        """Read the object, and become the holder if its nonce is that of one of our writes (rule 2)."""
        seen = await self._objects.read(self._key, timeout=self._request_limit())
        self._observation.note(seen)
        mine = self._claim.recognise(seen)
        if mine is not None and not self._claim.is_spent(mine):
            await self._take(mine, "adopted")
        elif mine is None and not self._claim.open_on(seen.version):
            self._claim.forget()
            given, self._given = self._given, None
            if given is not None:
                given.ending.found_gone(displaced(seen, given.tenure.owner, proven=not self._claim.doubtful))
        return seen

    def _judge(self, seen: Seen) -> Verdict:
        if self._claim.recognise(seen) is not None:
            # Ours, but too late, spent or handed over: write over it, under a new token.
            return Verdict(free=True, wait=0.0)
        verdict = judge(seen, self._observation, self._timing)
        self._observation.last = seen, verdict
        self._observation.note_judged(seen, verdict)
        if not verdict.free and seen.record is not None:
            self.error = None
            self._fairness.saw(seen.record, self._loop.time())
            self._objects.events.emit(
                "waiting",
                self._key,
                seen.record.owner,
                seen.record.epoch,
                seen.record.holder or "",
                reason="kept" if seen.record.is_kept else "",
                remaining=verdict.remaining,
                limit=self._limit(),
            )
        return verdict

    def _note_failure(self, error: BackendError) -> None:
        """Report the failure of a round, and keep it as the cause of a timeout."""
        self.error = error
        detail, reason = by_name(str(error), self._key), type(error).__name__
        self._objects.events.emit(
            "acquire_failed", self._key, self._owner, None, detail, reason=reason, limit=self._limit()
        )

    def _limit(self) -> float | None:
        """Return the seconds until it gives up; 0: it tries only once; None: it never gives up."""
        left = self._until - self._loop.time()
        return 0.0 if self._once else None if left == math.inf else max(0.0, left)

    def _unavailable(self, detail: str) -> BackendError:
        return BackendUnavailableError(backend="store", operation="acquire", key=self._key, detail=detail)

    def _until_next_look(self, wait: float = math.inf) -> float:
        """Return seconds until the next look: ``wait``, at most a jittered poll interval (rule 13)."""
        last = self._observation.last
        poll = self._fairness.poll_interval(None if last is None else last[0].record, self._loop.time())
        return min(self._objects.jittered(poll), max(wait, poll / _FINEST_LOOK))

    async def _pause(self, seconds: float) -> bool:
        """Wait, but not past the time to give up; return False if the time is up."""
        if self._unsettled() is not None and not self._may_write():
            return True  # at once: it is freed
        left = self._until - self._loop.time()
        if left <= 0:
            return False
        await self._fairness.sleep(min(seconds, left))
        return self._loop.time() < self._until

    def _request_limit(self) -> float:
        left = math.inf if self._once else self._until - self._loop.time()
        return min(max(left, _LEAST_REQUEST), self._timing.request_timeout)

    # Writing.

    def _may_write(self) -> bool:
        """Whether the process is not ending, and a handed-over lock can still be written over."""
        stands_back = self._fairness.away_for(self._loop.time()) > 0
        return not stands_back and (self._given is None or self._given.release.may_hand_over())

    def _unsettled(self) -> Attempt | None:
        """Return the last write, if it may stand and no held lock answers for it; else None."""
        last = self._claim.last()
        return None if last is None or (self._given is None and self._claim.is_spent(last)) else last

    async def _start_over(self, last: Attempt) -> None:
        """Free the handed-over lock and our own write, and continue without them (rules 15 and 18)."""
        freeing = self._clean_up(last)
        self._given, self._claim = None, Claim(self._objects, self._key)
        self._begin_anew()
        await asyncio.wait([freeing], timeout=self._request_limit())

    def _attempt_on(self, seen: Seen) -> Attempt | None:
        """Return a write that replaces the seen record with ours; None if there is no usable Date."""
        now = self._objects.now()
        token = self._objects.issuer.next_token(self._key, seen.record, now)
        lease = self._timing.promised(self._at_most)
        valid_until = self._objects.issuer.promise(now, lease=lease)
        if token is None or valid_until is None:
            detail = (
                "no answer had a Date that this machine's clock, or three others, agree with; "
                "check the clocks of both, and what may strip the Date header off"
            )
            error = self._unavailable(detail)
            if self._undated or self._once:
                self._note_failure(error)
            else:
                self.error = (
                    error  # one such answer means little: a busy machine may read a good one too late
                )
            self._undated = True
            return None
        self._undated = False
        record = LockRecord(
            expired=False,
            valid_until_ms=valid_until,
            owner=self._owner,
            nonce=self._objects.issuer.fresh_nonce(),
            epoch=token.epoch,
            holder=self._objects.issuer.holder,
        ).lasting(lease)
        settled_at = token.settled_at
        if (mine := self._claim.recognise(seen)) is not None and self._claim.settles_at(mine) is not None:
            settled_at = token.epoch / 1e6  # nobody has waited for the token that it follows
        return Attempt(record, seen.version, now, settled_at)

    # Holding.

    async def _take(self, attempt: Attempt, kind: Kind) -> None:
        """Become the holder with a write that landed, if enough of its time is left (rule 7)."""
        self._claim.settle_on(attempt)
        given, self._given = self._given, None
        if given is not None:
            given.ending.written_over()
        left = self._timing.belief - self._objects.now().elapsed(attempt.sent)
        if left > 0:
            self._claim.spend(attempt)
            self._kind, self._observation.last = kind, None
            self._refusals.count = 0
            held = self._held = HeldLock(
                objects=self._objects, key=self._key, landed=attempt, at_most=self._at_most
            )
            if left <= self._timing.renew_interval:
                await held.renewer.renew()
            if held.belief.remaining() > 0:
                self._renewals.add(held)
                return
            self._begin_anew()
        self.error = self._unavailable("its answers came so late that nothing was left of the lease")

    async def _token_settles(self, held: HeldLock) -> bool:
        """Wait until the token is not from the future any more (rule 11); False if that took too long."""
        while self._fencing and (wait := held.claim.until_settled(held.tenure.head)) > 0:
            left = self._until - self._loop.time()
            if left <= 0:
                return False
            await asyncio.sleep(min(wait, left))
            if held.belief.remaining() <= 0:
                self._begin_anew()
                return False
        return True

    def _begin_anew(self) -> None:
        """Continue as a new owner after a lost lock, which may still be cleaning up."""
        self._held = None
        self._owner = self._objects.issuer.fresh_owner()

    async def _give_up(self) -> None:
        """Free everything that this acquisition wrote (rules 3 and 16), within the exit bound (rule 24)."""
        until = self._loop.time() + max(0.0, self._timing.exit_bound - cancelled_for())
        if self._held is not None:
            self._held.belief.stop()
            await self._held.release.free(until)
        elif (last := self._claim.last()) is not None:
            freeing = self._clean_up(last)
            if last.version is not None:
                await asyncio.wait([freeing], timeout=max(0.0, until - self._loop.time()))

    def _clean_up(self, last: Attempt) -> asyncio.Task[None]:
        """Free in the background what was handed over, and what was written over it or by itself."""
        given = self._given
        if given is not None and last.version is not None and not self._claim.is_spent(last):
            given.ending.written_over()  # by this acquisition
            given = None
        free = (
            _Reaped(self._objects, self._key, self._claim, last).run()
            if given is None
            else given.release.free()
        )
        return self._objects.in_flight.spawn(free)


class _Reaped:
    """A write of an acquisition that has ended; it may stand, or may still land, and is freed (rule 3)."""

    def __init__(self, objects: LockObjects, key: str, claim: Claim, last: Attempt) -> None:
        self._objects = objects
        self._key = key
        self._claim = claim
        self._last = last

    async def run(self) -> None:
        """Free it, and report that."""
        self._objects.in_flight.note_unfreed(self)
        try:
            freed = await self._claim.free(self._last)
        except asyncio.CancelledError:
            if self._objects.closed is None:
                raise  # its loop ends: it is freed at the exit, through another
            freed = None
        self._note(freed)

    async def free_through(self, objects: LockObjects, loss: str | None = None) -> None:
        """See ``Unfreed``."""
        del loss  # nobody holds it
        with suppress(TimeoutError):
            async with asyncio.timeout(objects.timing.exit_bound):
                self._note(await self._claim.free(self._last, through=objects))

    def note_pending(self) -> None:
        """Do nothing: no caller waited for it."""

    def give_up(self, reason: str) -> None:
        """Do nothing: no caller waits for it, and its record says when it is free."""
        del reason
        self._objects.in_flight.note_freed(self)

    def _note(self, freed: Freed | Displaced | None) -> None:
        self._objects.in_flight.note_freed(self)
        if isinstance(freed, Freed):
            self._objects.events.emit("reaped", self._key, self._last.record.owner, self._last.record.epoch)
