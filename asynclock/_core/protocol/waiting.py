"""Whether it is this client's turn to talk to the store, and how often it looks (rules 13 and 14)."""

from __future__ import annotations

import asyncio
import math
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from asynclock._core.protocol.timing import longest_run
from asynclock.settings import default_poll_interval

if TYPE_CHECKING:
    from collections.abc import Callable

    from asynclock._core.protocol.timing import Timing
    from asynclock._core.record import LockRecord

_IMMEDIATE_POLLS: Final = 2
_AWAY_POLLS: Final = 2


class Fairness:
    """Gives other clients their turns (rule 14). Times are of the loop.

    The client that releases is the first to see it, so without this another one hardly gets a turn. A run is
    the time in which one client acquires again and again. A waiter whose poll interval is longer than a run
    looks more often while the lock changes hands.
    """

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self._run_began = 0.0
        self._run_owner: str | None = None
        self._ended_at = 0.0
        self._away_until = 0.0
        self._seen_owner: str | None = None
        self._changes_hands_until = -math.inf
        self._woken: asyncio.Event | None = None  # of a ``sleep``
        self._away_times = 1

    def away_for(self, now: float) -> float:
        """Return the seconds for which this client keeps away; 0.0 or less if it need not."""
        return self._away_until - now

    def stand_back(self, until: float) -> None:
        """Keep away at least until then; ends a ``sleep``."""
        if until > self._away_until:
            self._away_until = until
            self.wake()

    def wake(self) -> None:
        """End a ``sleep``."""
        if self._woken is not None:
            self._woken.set()

    async def sleep(self, seconds: float) -> None:
        """Wait for that many seconds, until this client has to keep away, or until ``wake``."""
        self._woken = asyncio.Event()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._woken.wait()

    def began(self, now: float, *, started_at: float, owner: str, predecessor: str | None) -> None:
        """Record an acquisition that began at ``started_at`` and replaced ``predecessor``'s record."""
        # From its start, not its answer: with slow answers each would begin a new run.
        immediate = started_at - self._ended_at <= _IMMEDIATE_POLLS * self._timing.turn_poll
        if self._run_owner is None or predecessor != self._run_owner or not immediate:
            self._run_began = now
        self._run_owner = owner

    def may_hand_over(self, now: float) -> bool:
        """Whether the run may go on by a hand-over within the client."""
        return now - self._run_began < self._timing.run_length

    def cede(self) -> None:
        """Let the run end with the lock that is held, however short it was; from any thread."""
        self._run_began = -math.inf

    def handed_over(self, now: float) -> None:
        """Record a hand-over: the run goes on."""
        self._ended_at = now

    def ended(self, now: float, *, jittered: Callable[[float], float]) -> None:
        """Record a release; after a whole run this client keeps away."""
        self._ended_at = now
        if now - self._run_began >= self._timing.run_length:
            away = _AWAY_POLLS * self._away_times * self._timing.turn_poll
            self.stand_back(now + away * (0.5 + jittered(1.0)))
            self._run_owner = None

    def saw(self, record: LockRecord, now: float) -> None:
        """Record whose lock stands in the way."""
        if record.lease_ms is None:
            return
        if self._seen_owner not in {None, record.owner}:
            self._changes_hands_until = now + 2 * longest_run(record.lease_ms / 1000)
        self._seen_owner = record.owner

    def poll_interval(self, record: LockRecord | None, now: float) -> float:
        """Return the poll interval to wait behind ``record`` with."""
        usual = self._timing.poll_interval
        if record is None or record.lease_ms is None or now >= self._changes_hands_until:
            return usual
        return min(usual, default_poll_interval(record.lease_ms / 1000))


class SharedFairness(Fairness):
    """The turns of all slots of a semaphore: a run is the client's, whichever slots it takes (rule 31)."""

    def __init__(self, timing: Timing) -> None:
        super().__init__(timing)
        self._owners: dict[int, str] = {}
        self._record: LockRecord | None = None  # that stood in the way last

    def reads(self, times: int) -> None:
        """Keep away that many times as long: a waiter needs that many poll intervals for all slots."""
        self._away_times = times

    def began(self, now: float, *, started_at: float, owner: str, predecessor: str | None) -> None:
        """Like ``Fairness``, but for all slots: who had this one before does not matter."""
        del predecessor
        super().began(now, started_at=started_at, owner=owner, predecessor=self._run_owner)

    def ended(self, now: float, *, jittered: Callable[[float], float]) -> None:
        """Like ``Fairness``, but a release while this client keeps away does not prolong that."""
        if self.away_for(now) <= 0:
            super().ended(now, jittered=jittered)

    def saw(self, record: LockRecord, now: float) -> None:
        """Do nothing: the caller does not say in which slot."""

    def saw_in(self, slot: int, record: LockRecord, now: float) -> None:
        """Record whose lock stands in the way in a slot."""
        self._seen_owner = self._owners.get(slot)
        self._owners[slot], self._record = record.owner, record
        super().saw(record, now)

    def poll_interval(self, record: LockRecord | None, now: float) -> float:
        """Like ``Fairness``; without a record, the interval behind the one that was seen last."""
        return super().poll_interval(record or self._record, now)
