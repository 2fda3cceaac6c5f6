"""Acquiring a lock: look, judge, write, settle; round after round until the time is out."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Final

from asynclock.errors import (
    AccessDeniedError,
    BackendError,
    BackendUnavailableError,
    ConfigError,
    UnsupportedBackendError,
)
from asynclock.protocol.attempts import Attempt, Attempts
from asynclock.protocol.judgement import (
    Observation,
    Seen,
    Token,
    Verdict,
    displaced,
    judge,
    next_token,
    next_token_without_dates,
)
from asynclock.protocol.reaper import free
from asynclock.protocol.tenure import Tenure
from asynclock.protocol.turnover import Turnover
from asynclock.record import LockRecord

if TYPE_CHECKING:
    from collections.abc import Callable

    from asynclock.events import Kind
    from asynclock.protocol.store import Store
    from asynclock.protocol.tenure import Spawn

_REREAD: Final = 1.0
"""Seconds to leave before reading again where a Date was not usable."""
_FINEST_LOOK: Final = 20
"""Looks at a predicted expiry are at least the poll interval divided by this apart."""
_TOLERANCE: Final = 1e-9
_LEAST_REQUEST: Final = 1.0
"""A request may outlast the caller's timeout by this much, lest short timeouts only leave zombies."""


class LockState:
    """What one client knows of one lock object, between acquisitions."""

    def __init__(self) -> None:
        self.observation = Observation()
        self.turnover = Turnover()
        self.freed: Attempt | None = None
        """Our own last release, as long as nothing else was seen: acquire in one request."""
        self.last: tuple[Seen, Verdict] | None = None
        """What was seen last, for the status in a timeout."""


class Acquisition:
    """One attempt to become the holder.

    Args:
        store: The client's store.
        key: Key of the lock object.
        state: What the client knows of it.
        spawn: Starts a task that the client keeps and ends.
        on_tenure: Called with a tenure and what remains of it as soon as it exists, so that it
            is renewed.
        until: Loop time at which to give up; None: never.
        once: One round only.
        fencing: Whether the token will be handed out (rule 11).
        baton: A tenure of this client that is handed on (rule 15): its record is written over,
            or freed.
        held_back: Whether nothing may be acquired just now, since the process may be ending.
    """

    def __init__(
        self,
        *,
        store: Store,
        key: str,
        state: LockState,
        spawn: Spawn,
        on_tenure: Callable[[Tenure, float], object],
        until: float | None,
        once: bool,
        fencing: bool = True,
        baton: Tenure | None = None,
        held_back: Callable[[], bool] = lambda: False,
    ) -> None:
        self._store = store
        self._terms = store.terms
        self._key = key
        self._state = state
        self._spawn = spawn
        self._on_tenure = on_tenure
        self._until = math.inf if until is None else until
        self._once = once
        self._fencing = fencing
        self._baton = baton
        self._held_back = held_back
        self._loop = asyncio.get_running_loop()
        self._owner = store.fresh_owner()
        self._attempts = Attempts()
        self._tenure: Tenure | None = None
        self._least = 0.0
        self.predecessor: str | None = None
        """Owner of the record that was written over."""
        self.error: BackendError | None = None
        """The last failure of the store, for the cause of a timeout."""

    @property
    def has_baton(self) -> bool:
        """Whether what was handed on has been neither written over nor freed yet."""
        return self._baton is not None

    async def run(self) -> Tenure | None:
        """Acquire the lock; None if it is held by others until the time is out.

        Nothing is left behind: on a timeout, an error or a cancellation, what was acquired is
        released and what may still land is reaped.

        Raises:
            RecordCorruptError: The object is no lock record; nothing was written.
            AccessDeniedError: The store refused; nothing was written.
            UnsupportedBackendError: The lock cannot be had safely on this store.
            BackendError: With ``once``, the store did not answer.
        """
        try:
            while await self._rounds():
                if await self._settle_token():
                    return self._tenure
                if self._tenure is not None:
                    break
        except BaseException:
            await self._give_up()
            raise
        await self._give_up()
        return None

    async def _rounds(self) -> bool:
        """Go round until the lock is acquired; False once the time is out."""
        seen = self._cached()
        remembered = seen is not None
        while True:
            try:
                if self._baton is not None and (self._held_back() or not self._baton.may_hand_on()):
                    await self._drop_baton()
                    seen = None
                if seen is None:
                    seen = await self._look()
                if self._tenure is None:
                    wait, seen = await self._round(seen)
            except BackendError as error:
                if self._once or not is_passing(error):
                    raise
                self.error, wait, seen = error, math.inf, None
            if self._tenure is not None:
                return True
            if self._once and remembered and seen is not None:
                remembered = False  # what was remembered is out of date: nothing has been tried yet
            elif self._once or not await self._pause(wait):
                return False

    async def _round(self, seen: Seen) -> tuple[float, Seen | None]:
        """Judge what was seen and write if it is free.

        Returns:
            Seconds until the next look may tell more, and what to go on from; None: look.
        """
        verdict = self._judge(seen)
        if not verdict.free:
            return verdict.wait, None
        token = self._next_token(seen)
        if token is None:
            self.error = self._no_date()
            self._least = _REREAD
            return _REREAD, None
        if not await self._write(seen, token):
            return _REREAD, None
        if self._tenure is not None:
            return 0.0, None
        back = await self._look()
        if self._tenure is None and self._attempts.open_on(seen.version) is not None:
            # Unchanged: the attempt may still land, and is written again on the same base.
            if self._once and self.error is not None:
                raise self.error
            return self._terms.poll_interval / 4, back
        return 0.0, back

    def _cached(self) -> Seen | None:
        """Return what is handed on, or our own last release, as if it had just been read."""
        freed, now = self._state.freed, self._store.now()
        if not self._store.dateless and self._store.time.bounds(now) is None:
            return None
        if self._baton is not None:
            return Seen(*self._baton.head, None, None, now)
        if freed is None or freed.version is None:
            return None
        return Seen(freed.record, freed.version, None, None, now)

    async def _drop_baton(self) -> None:
        """Free what was handed on: past the giver's deadline nothing is built on it."""
        if self._baton is not None:
            try:
                await self._baton.release(doubtful=self._attempts.doubtful)
            finally:
                self._baton = None

    async def _look(self) -> Seen:
        """Read the object; adopt it if it bears a nonce of ours (rule 2)."""
        seen = await self._store.read(self._key, timeout=self._limit())
        self._state.observation.note(seen)
        mine = self._attempts.find(seen)
        if mine is not None and not mine.spent:
            await self._take(mine, "adopted")
        elif mine is None and self._attempts.open_on(seen.version) is None:
            self._attempts.forget()
        if self._baton is not None and not self._baton.bears(seen):
            proven = not self._attempts.doubtful
            self._baton.displaced_by(displaced(seen, self._baton.owner)._replace(proven=proven))
            self._baton = None
        return seen

    def _judge(self, seen: Seen) -> Verdict:
        if self._attempts.find(seen) is not None:
            # Ours, but too old or made a lease of before: a new attempt with a new token over it.
            return Verdict(free=True, wait=0.0)
        if self._baton is not None and self._baton.bears(seen):
            return Verdict(free=True, wait=0.0)
        verdict = judge(seen, self._state.observation, self._terms)
        self._state.last = seen, verdict
        if not verdict.free:
            self._state.turnover.note(seen.record, self._loop.time())
        return verdict

    def _next_token(self, seen: Seen) -> Token | None:
        """Return the token to write; None: no usable Date yet, read again."""
        now = self._store.now()
        if not self._store.dateless:
            if seen.record is not None and seen.record.epoch is None:
                self._require_time_to_settle()
            bounds = self._store.time.bounds(now)
            return None if bounds is None else next_token(seen.record, bounds, self._terms)
        token = next_token_without_dates(seen.record, now.wall)
        if token is None:
            raise UnsupportedBackendError(
                backend="store",
                operation="acquire",
                key=self._key,
                detail="a Hudi writer dropped the fencing token, and the store's answers bear no "
                "Date to make a new one from; use a store whose answers do",
            )
        return token

    def _require_time_to_settle(self) -> None:
        """Refuse settings under which no token can be made after a Hudi writer (rule 11)."""
        if self._terms.longest_trip_for_future < self._terms.request_timeout * (1 - _TOLERANCE):
            least = 1.25 * self._terms.slack
            raise ConfigError(
                setting="validity",
                value=self._terms.validity,
                reason="a Hudi writer dropped the fencing token; to make a new one the validity must be at "
                f"least 1.25 * (max_clock_skew + the store's clock resolution) = {least:g} s",
            )

    def _no_date(self) -> BackendError:
        return BackendUnavailableError(
            backend="store",
            operation="acquire",
            key=self._key,
            detail="no answer had a Date that this machine's clock, or three others, agree with; "
            "check the clocks of both, and what may strip the Date header off",
        )

    async def _write(self, seen: Seen, token: Token) -> bool:
        """Write once on what was seen; False if there is no usable Date, or the baton is too old."""
        await self._store.pace(self._key)
        now = self._store.now()
        valid_until = self._store.promise(now)
        if valid_until is None:
            self._least = _REREAD
            return False
        if self._held_back() or (self._baton is not None and not self._baton.may_hand_on()):
            return False
        record = LockRecord(
            expired=False,
            valid_until_ms=valid_until,
            owner=self._owner,
            nonce=self._store.fresh_nonce(),
            epoch=token.epoch,
            lease_ms=math.ceil(self._terms.validity * 1000),
            holder=self._store.holder,
        )
        attempt = Attempt(record, seen.version, now, settled_at=token.settled_at)
        self.predecessor = seen.record.owner if seen.record else None
        self._state.freed = None
        self._attempts.add(attempt)
        try:
            self.error = await self._store.write(self._key, attempt, timeout=self._limit())
        except BackendError:
            self._attempts.drop(attempt)
            raise
        finally:
            self._attempts.note_end(attempt)  # of what was handed on, if there is a baton
        if self.error is None:
            await self._take(attempt, "acquired")
        return True

    async def _take(self, attempt: Attempt, kind: Kind) -> None:
        """Become the holder by a write that landed, if enough is left of it (rule 7)."""
        self._attempts.settle_on(attempt)
        if self._baton is not None:
            self._baton.taken_on()
            self._baton = None
        left = self._terms.belief - self._store.now().elapsed(attempt.sent)
        if left <= 0:
            return
        attempt.spent = True
        tenure = self._tenure = Tenure(
            store=self._store,
            key=self._key,
            landed=attempt,
            spawn=self._spawn,
            settled_at=attempt.settled_at,
        )
        if left <= self._terms.renew_interval:
            await tenure.renew()
            if (left := tenure.remaining()) <= 0:
                self._begin_anew()
                return
        self._on_tenure(tenure, left)
        self._store.events.emit(kind, self._key, tenure.owner, tenure.fencing_token)

    async def _settle_token(self) -> bool:
        """Wait until the token is not from the future any more (rule 11); False if that was too long."""
        tenure = self._tenure
        assert tenure is not None  # noqa: S101  the rounds ended with it
        while self._fencing and (wait := tenure.until_settled()) > 0:
            left = self._until - self._loop.time()
            if left <= 0:
                return False
            await asyncio.sleep(min(wait, left))
            if tenure.remaining() <= 0:
                self._begin_anew()
                return False
        return True

    def _begin_anew(self) -> None:
        """Go on after a lease that has ended already, which may still be releasing, as another owner."""
        self._tenure = None
        self._owner = self._store.fresh_owner()

    async def _pause(self, wait: float) -> bool:
        """Wait for the next look: at the predicted expiry, else with jitter; False if the time is out."""
        if self._baton is not None and self._held_back():
            return True  # to free it at once: the process may be ending
        poll = self._poll_interval()
        delay = min(self._store.jittered(poll), max(wait, poll / _FINEST_LOOK)) if wait > 0 else 0.0
        delay, self._least = max(delay, self._least), 0.0
        left = self._until - self._loop.time()
        if left <= 0:
            return False
        await asyncio.sleep(min(delay, left))
        return self._loop.time() < self._until

    def _poll_interval(self) -> float:
        last = self._state.last
        record = None if last is None else last[0].record
        return self._state.turnover.poll_interval(record, self._terms.poll_interval, self._loop.time())

    def _limit(self) -> float:
        left = self._until - self._loop.time()
        return self._terms.request_timeout if self._once else max(left, _LEAST_REQUEST)

    async def _give_up(self) -> None:
        """Leave nothing behind (rules 3 and 16)."""
        if self._tenure is not None:
            self._tenure.end_belief()
            await self._tenure.release()
            return
        attempt = self._attempts.last()
        if attempt is not None:
            reaping = self._spawn(self._reap(attempt))
            if attempt.version is not None:
                await asyncio.wait([reaping], timeout=self._terms.request_timeout)
        elif self._baton is not None:
            await self._drop_baton()

    async def _reap(self, attempt: Attempt) -> None:
        base = attempt.base if attempt.version is None else attempt.version
        freed = await free(
            self._store,
            self._key,
            record=attempt.record,
            base=base,
            attempts=self._attempts,
            keep_token=self._store.until_settled(self._attempts.settled_at()) <= 0,
        )
        if not isinstance(freed, Attempt):
            # A write of the giver that was thought lost may have moved the base.
            await self._drop_baton()
        elif self._baton is not None:
            self._baton.taken_on()
            self._baton = None


def is_passing(error: BackendError) -> bool:
    """Whether the same call may succeed later, with nothing changed but the store."""
    return not isinstance(error, AccessDeniedError | UnsupportedBackendError)
