"""Acquires a lock: look, judge, write, read back; round after round until the time is up."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Final

from asynclock._core.portal import cancelled_for
from asynclock._core.protocol.belief import End
from asynclock._core.protocol.decisions import Seen, Verdict, judge
from asynclock._core.protocol.held import HeldLock
from asynclock._core.protocol.outcomes import Attempt, Landed, Refused
from asynclock._core.protocol.stake import Stake
from asynclock._core.record import LockRecord
from asynclock.errors import BackendError

if TYPE_CHECKING:
    from asynclock._core.protocol.acquire_call import AcquireCall
    from asynclock._core.protocol.decisions import Observation
    from asynclock._core.protocol.objects import LockObjects
    from asynclock._core.protocol.outcomes import Open
    from asynclock._core.protocol.schedule import Schedule
    from asynclock._core.protocol.waiting import Fairness
    from asynclock._kinds import Kind

_READ_AGAIN: Final = 1.0
"""Seconds to wait before the next read if a Date was not usable."""
_FINEST_LOOK: Final = 20
"""Looks at a predicted expiry are at least the poll interval divided by this apart."""


class Acquisition:
    """One attempt to become the holder.

    Args:
        objects: How the client reads and writes.
        key: Of the lock's object.
        observation: The client's view of the object.
        fairness: Knows when it is another client's turn.
        schedule: Has the lock renewed from its acquisition on.
        call: What it is done for; it may have waited for its turn.
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
        fairness: Fairness,
        schedule: Schedule,
        call: AcquireCall,
        at_most: float | None,
        fencing: bool,
        given: HeldLock | None,
    ) -> None:
        self._key = key
        self._objects = objects
        self._observation = observation
        self._fairness = fairness
        self._schedule = schedule
        self._at_most = at_most
        self._fencing = fencing
        self._stake = Stake(objects, key, given)
        self._call = call
        self._predecessor: str | None = None
        self._held: HeldLock | None = None

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
        loop = self._call.loop
        began = loop.time()
        held: HeldLock | None = None
        try:
            held = await self._rounds()
        finally:
            if held is None:
                await self._give_up()
        if held is not None:
            self._fairness.began(
                loop.time(), started_at=began, owner=held.tenure.owner, predecessor=self._predecessor
            )
            self._call.acquired(held)
        return held

    @property
    def failure(self) -> str:
        """Why one try did not acquire the lock: the class of an error, or a word of ``Event.reason``."""
        if self._call.error is not None:
            return type(self._call.error).__name__
        return "makes_way" if self._fairness.away_for(self._call.loop.time()) > 0 else "held"

    async def _rounds(self) -> HeldLock | None:
        """Run rounds until the lock is held; None once the time is up."""
        once = self._call.once
        seen = self._remembered()
        remembered = seen is not None
        while True:
            try:
                pause, seen = await self._round(seen)
            except BackendError as error:
                if once or not error.transient:
                    raise
                self._call.failed(error, self._stake.owner)
                pause, seen = self._until_next_look(), None
            self._objects.in_flight.note(stands=self._stake.may_stand() is not None)
            if (held := self._held) is not None:
                if await self._token_settles(held):
                    return held
                if self._held is held:
                    return None  # not lost, but the time is up
                pause, seen = 0.0, None
            if once and remembered and seen is not None:
                remembered = False  # what was remembered is out of date: nothing has been tried yet
            elif once or not await self._pause(pause):
                return None

    async def _round(self, seen: Seen | None) -> tuple[float, Seen | None]:
        """Look, if nothing was ``seen``, and write if the lock is free.

        Returns:
            Seconds to wait, and what the next round has seen.
        """
        if (last := self._stake.may_stand()) is not None and not self._may_write():
            await self._start_over(last)
            seen = None
        if (away := self._fairness.away_for(self._call.loop.time())) > 0:
            return away, seen
        seen = seen or await self._read_and_adopt()
        if self._held is not None:
            return 0.0, None
        verdict = self._judge(seen)
        if not verdict.free:
            return self._until_next_look(verdict.wait), None
        if self._objects.verifier.needed:
            await self._objects.verifier.verify(
                self._key, within=self._call.round_end() - self._call.loop.time()
            )
        await self._objects.pace(self._key)
        attempt = self._attempt_on(seen) if self._may_write() else None
        if attempt is None:
            return _READ_AGAIN, None
        self._predecessor = seen.record.owner if seen.record else None
        self._call.reason = self._reason_on(seen)
        self._observation.freed = None
        self._objects.in_flight.note(stands=True)
        outcome = await self._stake.claim.write(attempt, timeout=self._call.request_limit())
        if isinstance(outcome, Landed):
            await self._take(outcome.attempt, "acquired")
        else:
            self._note_outcome(outcome)
        back = seen if self._held is not None else await self._read_and_adopt()
        refused = (
            isinstance(outcome, Refused) and self._held is None and self._still_shows(outcome, seen, back)
        )
        if self._held is None and (refused or self._stake.claim.open_on(back.version)):
            # Unchanged: the attempt may still land. Write again on the same base.
            if self._call.once and self._call.error is not None:
                raise self._call.error
            often = refused and self._observation.refusals.count > 1
            wait = self._objects.timing.poll_interval / (1 if often else 4)
            return self._until_next_look(wait), back
        return 0.0, back

    def _note_outcome(self, outcome: Refused | Open) -> None:
        if isinstance(outcome, Refused):
            self._call.error = outcome.error  # reported only if no other client has written
        else:
            self._call.failed(outcome.error, self._stake.owner)

    def _still_shows(self, refused: Refused, seen: Seen, back: Seen) -> bool:
        """Note a write over ``seen`` that was refused; return whether ``back`` shows the same (rule 23).

        Raises:
            UnsupportedBackendError: This was the third time in a row.
        """
        refusals = self._observation.refusals
        if not refusals.note((seen.version, seen.record), (back.version, back.record)):
            return False
        told = refusals.error(refused.error, url=self._objects.events.url)
        if refusals.final:
            raise told
        self._call.failed(told, self._stake.owner)
        return True

    def _reason_on(self, seen: Seen) -> str:
        """Return the kind of an acquisition over ``seen``, for its event."""
        if self._stake.given is not None:
            return "handover"
        ended = seen.record is None or seen.record.expired or self._stake.claim.settle(seen) is not None
        return "" if ended else "takeover"

    # Looking.

    def _remembered(self) -> Seen | None:
        """Return the lock that is handed over, or our own last release, as if it had just been read."""
        given = self._stake.given
        write = self._observation.freed if given is None else given.tenure.head
        if write is None or write.version is None:
            return None
        now = self._objects.now()
        known = self._objects.issuer.knows_time(now)
        return Seen(write.record, write.version, None, None, now) if known else None

    async def _read_and_adopt(self) -> Seen:
        """Read the object, and become the holder if its nonce is that of one of our writes (rule 2)."""
        claim = self._stake.claim
        seen = await self._objects.read(self._key, timeout=self._call.request_limit())
        self._observation.note(seen)
        landed = claim.settle(seen)
        if landed is not None and not claim.is_spent(landed.attempt):
            await self._take(landed.attempt, "adopted")
        elif landed is None and not claim.open_on(seen.version):
            self._stake.found_gone(seen)
        return seen

    def _judge(self, seen: Seen) -> Verdict:
        if self._stake.claim.settle(seen) is not None:
            # Ours, but too late, spent or handed over: write over it, under a new token.
            return Verdict(free=True, wait=0.0)
        verdict = judge(seen, self._observation, self._objects.timing)
        self._observation.last = seen, verdict
        self._observation.note_judged(seen, verdict)
        if not verdict.free and seen.record is not None:
            self._fairness.saw(seen.record, self._call.loop.time())
            self._call.waiting(seen.record, verdict)
        return verdict

    async def _pause(self, seconds: float) -> bool:
        """Wait, but not past the time to give up; return False if the time is up."""
        if self._stake.may_stand() is not None and not self._may_write():
            return True  # at once: it is freed
        left = self._call.left()
        if left <= 0:
            return False
        await self._fairness.sleep(min(seconds, left))
        return self._call.left() > 0

    def _until_next_look(self, wait: float = math.inf) -> float:
        """Return seconds until the next look: ``wait``, at most a jittered poll interval (rule 13)."""
        last = self._observation.last
        poll = self._fairness.poll_interval(None if last is None else last[0].record, self._call.loop.time())
        return min(self._objects.jittered(poll), max(wait, poll / _FINEST_LOOK))

    # Writing.

    def _may_write(self) -> bool:
        """Whether the process is not ending, and a handed-over lock can still be written over."""
        stands_back, given = self._fairness.away_for(self._call.loop.time()) > 0, self._stake.given
        return not stands_back and (given is None or given.may_hand_over())

    async def _start_over(self, last: Attempt) -> None:
        """Free the handed-over lock and our own write, and continue without them (rules 15 and 18)."""
        self._held = None
        await asyncio.wait([self._stake.start_over(last)], timeout=self._call.request_limit())

    def _attempt_on(self, seen: Seen) -> Attempt | None:
        """Return a write that replaces the seen record with ours; None if there is no usable Date."""
        now, issuer, claim = self._objects.now(), self._objects.issuer, self._stake.claim
        token = issuer.next_token(self._key, seen.record, now)
        lease = self._objects.timing.promised(self._at_most)
        valid_until = issuer.promise(now, lease=lease)
        if token is None or valid_until is None:
            self._call.no_date(self._stake.owner)
            return None
        self._call.undated = False
        record = LockRecord(
            expired=False,
            valid_until_ms=valid_until,
            owner=self._stake.owner,
            nonce=issuer.fresh_nonce(),
            epoch=token,
            holder=issuer.holder,
        ).lasting(lease)
        landed = claim.settle(seen)
        dropped = seen.record is not None and seen.record.epoch is None  # by a Hudi writer
        # Nobody has waited for the token of our own write.
        unsettled = landed is not None and claim.settles_at(landed.attempt) is not None
        settled_at = token / 1e6 if dropped or unsettled else None
        return Attempt(record, seen.version, now, settled_at)

    # Holding.

    async def _take(self, attempt: Attempt, kind: Kind) -> None:
        """Become the holder with a write that landed, if enough of its time is left (rule 7)."""
        self._stake.note_landed(attempt)
        timing = self._objects.timing
        left = timing.belief - self._objects.now().elapsed(attempt.sent)
        if left > 0:
            self._stake.claim.spend(attempt)
            self._call.kind, self._observation.last = kind, None
            self._observation.refusals.count = 0
            held = self._held = HeldLock(
                objects=self._objects, key=self._key, landed=attempt, at_most=self._at_most
            )
            held.tenure.told_token = held.tenure.fencing_token if self._fencing else None
            if left <= timing.renew_interval:
                await held.renewer.renew()
            if held.belief.end_if_due() > 0:
                self._schedule.add(held)
                return
            self._change_owner()
        self._call.too_late()

    async def _token_settles(self, held: HeldLock) -> bool:
        """Wait until the token is not from the future any more (rule 11); False if that took too long."""
        while self._fencing and (wait := held.claim.note_settled(held.tenure.head)) > 0:
            left = self._call.left()
            if left <= 0:
                return False
            await asyncio.sleep(min(wait, left))
            if held.belief.end_if_due() <= 0:
                self._change_owner()
                return False
        return True

    def _change_owner(self) -> None:
        """Continue as a new owner after a lost lock, which may still be cleaning up."""
        self._held = None
        self._stake.change_owner()

    async def _give_up(self) -> None:
        """Free everything that this acquisition wrote (rules 3 and 16), within the exit bound (rule 24)."""
        loop = self._call.loop
        until = loop.time() + max(0.0, self._objects.timing.exit_bound - cancelled_for())
        if self._held is not None:
            self._held.belief.end(End.RELEASE)
            await self._held.release.free(until)
        elif (last := self._stake.claim.last()) is not None:
            freeing = self._stake.clean_up(last)
            if last.version is not None:
                await asyncio.wait([freeing], timeout=max(0.0, until - loop.time()))
