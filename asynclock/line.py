"""The fair line of one client's coroutines and threads that wait for one lock (rules 12 and 14)."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asynclock.protocol.terms import Terms

_IMMEDIATE_POLLS = 2
_AWAY_POLLS = 2


class Line:
    """First come, first served; only its head talks to the store. One loop only."""

    def __init__(self) -> None:
        self._busy = False
        self._waiters: deque[asyncio.Future[None]] = deque()

    def try_enter(self) -> bool:
        """Become the head if nobody is."""
        if self._busy:
            return False
        self._busy = True
        return True

    async def enter(self, until: float | None) -> bool:
        """Wait to become the head; False once loop time ``until`` has passed."""
        if self.try_enter():
            return True
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            async with asyncio.timeout_at(until):
                await waiter
        except BaseException as error:
            if waiter.done() and not waiter.cancelled():
                self.leave()  # our turn came at the same instant: pass it on
            else:
                self._waiters.remove(waiter)
            if isinstance(error, TimeoutError):
                return False
            raise
        return True

    def leave(self) -> None:
        """Let the next one become the head."""
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
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

    def began(self, now: float, *, owner: str, predecessor: str | None) -> None:
        """Note an acquisition after the record of ``predecessor``."""
        immediate = now - self._ended_at <= _IMMEDIATE_POLLS * self._terms.poll_interval
        if self._run_owner is None or predecessor != self._run_owner or not immediate:
            self._run_began = now
        self._run_owner = owner

    def ended(self, now: float, *, jitter: float) -> None:
        """Note a release; ``jitter`` is 0.5 to 1."""
        self._ended_at = now
        if now - self._run_began >= self._terms.run_length:
            self._away_until = now + _AWAY_POLLS * self._terms.poll_interval * (0.5 + jitter)
            self._run_owner = None
