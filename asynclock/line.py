"""The fair line of one client's coroutines and threads that wait for one lock (rules 12 and 14)."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from asynclock.protocol.tenure import Tenure
    from asynclock.protocol.terms import Terms

_IMMEDIATE_POLLS: Final = 2
_AWAY_POLLS: Final = 2


@dataclass(frozen=True, slots=True)
class Turn:
    """The head of the line: it may talk to the store.

    Attributes:
        baton: A tenure whose belief has ended and whose record its receiver writes over, or
            frees; None: the lock is to be had from the store.
    """

    baton: Tenure | None = None


_FROM_THE_STORE: Final = Turn()


class Line:
    """First come, first served; only its head talks to the store. One loop only.

    Args:
        orphaned: Called with a turn whose receiver was cancelled while it was handed over,
            where nobody else waits: free its baton, then ``leave``.
    """

    def __init__(self, orphaned: Callable[[Turn], object]) -> None:
        self._orphaned = orphaned
        self._busy = False
        self._waiters: deque[asyncio.Future[Turn]] = deque()

    def try_enter(self) -> Turn | None:
        """Become the head if nobody is."""
        if self._busy:
            return None
        self._busy = True
        return _FROM_THE_STORE

    async def enter(self, until: float | None) -> Turn | None:
        """Wait to become the head; None once loop time ``until`` has passed."""
        if (turn := self.try_enter()) is not None:
            return turn
        waiter: asyncio.Future[Turn] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            async with asyncio.timeout_at(until):
                return await waiter
        except TimeoutError:
            if waiter.done() and not waiter.cancelled():
                return waiter.result()  # our turn came at the same instant
            self._forget(waiter)
            return None
        except asyncio.CancelledError:
            if not waiter.done() or waiter.cancelled():
                self._forget(waiter)
            elif not self.hand(waiter.result()):
                self._orphaned(waiter.result())
            raise

    def _forget(self, waiter: asyncio.Future[Turn]) -> None:
        with suppress(ValueError):  # passed over already, by a turn that came after the cancellation
            self._waiters.remove(waiter)

    @property
    def waiting(self) -> bool:
        """Whether anybody waits, or did until just now."""
        return bool(self._waiters)

    def hand(self, turn: Turn) -> bool:
        """Give the turn to the next one; False if nobody waits, and the turn stays where it is."""
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(turn)
                return True
        return False

    def leave(self) -> None:
        """Let the next one become the head."""
        if not self.hand(_FROM_THE_STORE):
            self._busy = False


class Turns:
    """After a long run of its own a client makes way for others.

    Without this a second process gets 3 turns of 700: whoever releases is always first to see it.
    """

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self._run_began = 0.0
        self._run_owner: str | None = None
        self._ended_at = 0.0
        self._away_until = 0.0

    def away_for(self, now: float) -> float:
        """Return seconds for which this client keeps away; 0.0 or less: it need not."""
        return self._away_until - now

    def stand_back(self, until: float) -> None:
        """Keep away until then at least."""
        self._away_until = max(self._away_until, until)

    def began(self, now: float, *, set_out: float, owner: str, predecessor: str | None) -> None:
        """Note an acquisition after the record of ``predecessor``, set out for at ``set_out``."""
        # Not from its answer: a slow one would begin a new run, and the client would never make way.
        immediate = set_out - self._ended_at <= _IMMEDIATE_POLLS * self._terms.turn_poll
        if self._run_owner is None or predecessor != self._run_owner or not immediate:
            self._run_began = now
        self._run_owner = owner

    def may_hand_on(self, now: float) -> bool:
        """Whether the run may go on by a hand-off inside of the client."""
        return now - self._run_began < self._terms.run_length

    def handed_on(self, now: float) -> None:
        """Note a hand-off: the run goes on."""
        self._ended_at = now

    def ended(self, now: float, *, jittered: Callable[[float], float]) -> None:
        """Note a release; ``jittered`` gives half to all of what it is given."""
        self._ended_at = now
        if now - self._run_began >= self._terms.run_length:
            self._away_until = now + _AWAY_POLLS * self._terms.turn_poll * (0.5 + jittered(1.0))
            self._run_owner = None
