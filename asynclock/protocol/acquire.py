"""Acquiring a lock: look, judge, write, read back; round after round until the time is out."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Final

from asynclock.errors import (
    AccessDeniedError,
    BackendError,
    BackendUnavailableError,
    PreconditionFailedError,
    UnsupportedBackendError,
)
from asynclock.protocol.attempts import Attempt, Attempts
from asynclock.protocol.decisions import Observation, Seen, Verdict, displaced, judge
from asynclock.protocol.freeing import free
from asynclock.protocol.held import HeldLock
from asynclock.protocol.waiting import Fairness
from asynclock.record import LockRecord

if TYPE_CHECKING:
    from asynclock.events import Kind
    from asynclock.protocol.objects import LockObjects
    from asynclock.protocol.renewal import Renewals

_READ_AGAIN: Final = 1.0
"""Seconds to wait before reading again where a Date was not usable."""
_FINEST_LOOK: Final = 20
"""Looks at a predicted expiry are at least the poll interval divided by this apart."""
_LEAST_REQUEST: Final = 1.0
"""Seconds that a request may take at least: cut off by a short timeout it would only leave a zombie."""


class Knowledge:
    """What the acquisitions of one lock by one client share.

    Attributes:
        freed: Our own last release while nothing else was seen since: acquire in one request.
        last: What was seen last and what it meant, for the status in a timeout.
    """

    def __init__(self, key: str, objects: LockObjects, renewals: Renewals) -> None:
        self.key = key
        self.objects = objects
        self.renewals = renewals
        self.observation = Observation()
        self.fairness = Fairness(objects.timing)
        self.freed: Attempt | None = None
        self.last: tuple[Seen, Verdict] | None = None


class Acquisition:
    """One attempt to become the holder.

    Args:
        until: Loop time at which to give up.
        once: One round only.
        asked_at: Monotonic time of the call; it may have waited for its turn since.
        fencing: Whether the token will be handed out (rule 11).
        given: A lock of this client that is handed over: write over its record, or free it (rule 15).

    Attributes:
        error: Why the last round failed, for the cause of a timeout; None: others held the lock.
    """

    def __init__(
        self,
        known: Knowledge,
        *,
        until: float,
        once: bool,
        fencing: bool,
        given: HeldLock | None,
        asked_at: float,
    ) -> None:
        self._known = known
        self._key = known.key
        self._objects = known.objects
        self._timing = known.objects.timing
        self._until = until
        self._once = once
        self._fencing = fencing
        self._given = given
        self._asked_at = asked_at
        self._loop = asyncio.get_running_loop()
        self._owner = known.objects.fresh_owner()
        self._predecessor: str | None = None
        self._reason = ""
        self._attempts = Attempts()
        self._held: HeldLock | None = None
        self.error: BackendError | None = None

    async def run(self) -> HeldLock | None:
        """Acquire the lock; None if others hold it until the time is out.

        Nothing is left behind: on a timeout, an error or a cancellation, what was acquired is
        released, and what may still land is freed.

        Raises:
            RecordCorruptError: The object is no lock record; nothing was written.
            AccessDeniedError: The store refused; nothing was written.
            UnsupportedBackendError: This store cannot give a safe token; nothing was written.
            BackendError: With ``once``, the store did not answer.
        """
        started_at = self._loop.time()
        if self._given is None and not await self._make_way():
            return None
        settled = False
        try:
            while (held := await self._rounds()) is not None:
                if settled := await self._token_settles(held):
                    self._known.fairness.began(
                        self._loop.time(),
                        started_at=started_at,
                        owner=held.owner,
                        predecessor=self._predecessor,
                    )
                    return held
                if self._held is held:
                    break  # not lost, but the time is out
        finally:
            if not settled:
                await self._give_up()
        return None

    async def _make_way(self) -> bool:
        """Keep away while it is the turn of other clients; False if the time is out before."""
        away = self._known.fairness.away_for(self._loop.time())
        return away <= 0 or (not self._once and await self._pause(away))

    async def _rounds(self) -> HeldLock | None:
        """Go round until the lock is held; None once the time is out."""
        seen = self._remembered()
        remembered = seen is not None
        while True:
            try:
                if self._must_free_given():
                    await self._free_given()
                    seen = None
                seen = seen or await self._read_and_adopt()
                if self._held is None:
                    pause, seen = await self._round(seen)
            except BackendError as error:
                if self._once or not is_transient(error):
                    raise
                self._note_failure(error)
                pause, seen = self._until_next_look(), None
            if self._held is not None:
                return self._held
            if self._once and remembered and seen is not None:
                remembered = False  # what was remembered is out of date: nothing has been tried yet
            elif self._once or not await self._pause(pause):
                return None

    async def _round(self, seen: Seen) -> tuple[float, Seen | None]:
        """Judge what was seen, and write if the lock is free.

        Returns:
            Seconds to wait, and what the next round begins with; None: a look.
        """
        verdict = self._judge(seen)
        if not verdict.free:
            return self._until_next_look(verdict.wait), None
        await self._objects.pace(self._key)
        if not self._may_write():
            return self._until_next_look(_READ_AGAIN), None
        attempt = self._attempt_on(seen)
        if attempt is None:
            self._note_failure(
                BackendUnavailableError(
                    backend="store",
                    operation="acquire",
                    key=self._key,
                    detail="no answer had a Date that this machine's clock, or three others, agree with; "
                    "check the clocks of both, and what may strip the Date header off",
                )
            )
            return _READ_AGAIN, None
        self._predecessor = seen.record.owner if seen.record else None
        self._reason = self._reason_on(seen)
        await self._write(attempt)
        if self._held is not None:
            return 0.0, None
        back = await self._read_and_adopt()
        if self._held is None and self._attempts.open_on(back.version):
            # Unchanged: the attempt may still land. Write again on the same base.
            if self._once and self.error is not None:
                raise self.error
            return self._until_next_look(self._timing.poll_interval / 4), back
        return 0.0, back

    def _reason_on(self, seen: Seen) -> str:
        """Name what an acquisition over ``seen`` is, for its event."""
        if self._given is not None:
            return "handover"
        ended = seen.record is None or seen.record.expired or self._attempts.recognise(seen) is not None
        return "" if ended else "takeover"

    # Looking.

    def _remembered(self) -> Seen | None:
        """Return the lock that is handed over, or our own last release, as if it had just been read."""
        now = self._objects.now()
        write = self._known.freed if self._given is None else self._given.head
        if write is None or write.version is None:
            return None
        if not self._objects.dateless and self._objects.time.bounds(now) is None:
            return None
        return Seen(write.record, write.version, None, None, now)

    async def _read_and_adopt(self) -> Seen:
        """Read the object, and become the holder if its nonce is one of ours (rule 2)."""
        seen = await self._objects.read(self._key, timeout=self._request_limit())
        self._known.observation.note(seen)
        mine = self._attempts.recognise(seen)
        if mine is not None and not mine.spent:
            await self._take(mine, "adopted")
        elif mine is None and not self._attempts.open_on(seen.version):
            self._attempts.forget()
        if self._given is not None and not self._given.shown_by(seen):
            doubtful = self._attempts.doubtful
            self._given.found_gone(displaced(seen, self._given.owner, proven=not doubtful))
            self._given = None
        return seen

    def _judge(self, seen: Seen) -> Verdict:
        # Ours, but too late, or it has made a lease already: write over it, under a new token.
        ours = self._attempts.recognise(seen) is not None
        if ours or (self._given is not None and self._given.shown_by(seen)):
            return Verdict(free=True, wait=0.0)
        verdict = judge(seen, self._known.observation, self._timing)
        self._known.last = seen, verdict
        if not verdict.free and seen.record is not None:
            self.error = None
            self._known.fairness.saw(seen.record, self._loop.time())
            self._objects.events.emit(
                "waiting",
                self._key,
                seen.record.owner,
                seen.record.epoch,
                seen.record.holder or "",
                remaining=verdict.remaining,
            )
        return verdict

    def _note_failure(self, error: BackendError) -> None:
        """Keep the failure of a round for the cause of a timeout, and report it unless others came first."""
        self.error = error
        if not isinstance(error, PreconditionFailedError):
            detail, reason = str(error), type(error).__name__
            self._objects.events.emit("acquire_failed", self._key, self._owner, detail=detail, reason=reason)

    def _until_next_look(self, wait: float = math.inf) -> float:
        """Return seconds until the next look: ``wait``, at most a jittered poll interval (rule 13)."""
        last = self._known.last
        poll = self._known.fairness.poll_interval(None if last is None else last[0].record, self._loop.time())
        return min(self._objects.jittered(poll), max(wait, poll / _FINEST_LOOK))

    async def _pause(self, seconds: float) -> bool:
        """Wait, but not past the time to give up; False if the time is out."""
        if self._must_free_given():
            return True  # at once
        left = self._until - self._loop.time()
        if left <= 0:
            return False
        await asyncio.sleep(min(seconds, left))
        return self._loop.time() < self._until

    # Writing.

    def _may_write(self) -> bool:
        """Whether the process is not ending, and a lock that is handed over can still be written over."""
        stands_back = self._known.fairness.away_for(self._loop.time()) > 0
        return not stands_back and (self._given is None or self._given.may_hand_over())

    def _must_free_given(self) -> bool:
        return self._given is not None and not self._may_write()

    def _attempt_on(self, seen: Seen) -> Attempt | None:
        """Return the write of a record of ours over what was seen; None: no usable Date to make it by."""
        now = self._objects.now()
        token = self._objects.next_token(self._key, seen.record, now)
        valid_until = self._objects.promise(now)
        if token is None or valid_until is None:
            return None
        record = LockRecord(
            expired=False,
            valid_until_ms=valid_until,
            owner=self._owner,
            nonce=self._objects.fresh_nonce(),
            epoch=token.epoch,
            lease_ms=math.ceil(self._timing.validity * 1000),
            holder=self._objects.holder,
        )
        return Attempt(record, seen.version, now, settled_at=token.settled_at)

    async def _write(self, attempt: Attempt) -> None:
        """Send an attempt, and become the holder if it landed."""
        self._known.freed = None
        self._attempts.add(attempt)
        try:
            error = await self._objects.write(self._key, attempt, timeout=self._request_limit())
        except BackendError:
            self._attempts.drop(attempt)  # the store says that nothing was written
            raise
        finally:
            self._attempts.doubtful |= attempt.unseen  # also if a delayed cancellation is raised
        if error is None:
            await self._take(attempt, "acquired")
        else:
            self._note_failure(error)

    def _request_limit(self) -> float:
        left = self._until - self._loop.time()
        return self._timing.request_timeout if self._once else max(left, _LEAST_REQUEST)

    # Holding.

    async def _take(self, attempt: Attempt, kind: Kind) -> None:
        """Become the holder by a write that landed, if enough is left of it (rule 7)."""
        self._attempts.settle_on(attempt)
        self._given_is_written_over()
        left = self._timing.belief - self._objects.now().elapsed(attempt.sent)
        if left <= 0:
            return
        attempt.spent = True
        held = self._held = HeldLock(objects=self._objects, key=self._key, landed=attempt)
        if left <= self._timing.renew_interval:
            await held.renew()
            if held.remaining() <= 0:
                self._begin_anew()
                return
        self._known.renewals.add(held)
        waited = self._objects.clock.monotonic() - self._asked_at
        self._objects.events.emit(
            kind, self._key, held.owner, held.fencing_token, reason=self._reason, duration=waited
        )

    async def _token_settles(self, held: HeldLock) -> bool:
        """Wait until the token is not from the future any more (rule 11); False if that took too long."""
        while self._fencing and (wait := held.until_settled()) > 0:
            left = self._until - self._loop.time()
            if left <= 0:
                return False
            await asyncio.sleep(min(wait, left))
            if held.remaining() <= 0:
                self._begin_anew()
                return False
        return True

    def _begin_anew(self) -> None:
        """Go on as another owner after a lock that was lost; it may still be cleaning up."""
        self._held = None
        self._owner = self._objects.fresh_owner()

    # Giving up: nothing is left behind (rules 3 and 16).

    async def _give_up(self) -> None:
        if self._held is not None:
            self._held.end_belief()
            await self._held.release()
        elif (attempt := self._attempts.last()) is not None:
            freeing = self._objects.in_flight.spawn(self._free_attempt(attempt))
            if attempt.version is not None:
                await asyncio.wait([freeing], timeout=self._timing.request_timeout)
        else:
            await self._free_given()

    async def _free_attempt(self, attempt: Attempt) -> None:
        freed = await free(self._objects, self._key, head=attempt, attempts=self._attempts)
        if isinstance(freed, Attempt):
            self._given_is_written_over()
            self._objects.events.emit("reaped", self._key, attempt.record.owner, attempt.record.epoch)
        else:
            # A write of its giver that was thought lost may have moved the base.
            await self._free_given()

    async def _free_given(self) -> None:
        given, self._given = self._given, None
        if given is not None:
            await given.release(doubtful=self._attempts.doubtful)

    def _given_is_written_over(self) -> None:
        if self._given is not None:
            self._given.written_over()
            self._given = None


def is_transient(error: BackendError) -> bool:
    """Whether the same call may succeed later, with nothing changed but the store."""
    return not isinstance(error, AccessDeniedError | UnsupportedBackendError)
