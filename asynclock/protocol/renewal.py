"""Who renews: one timer for each held lock of a client, all in one place (rule 5)."""

from __future__ import annotations

import asyncio
import math
from contextvars import Context
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from asynclock.errors import BackendError
    from asynclock.protocol.held import HeldLock
    from asynclock.protocol.objects import LockObjects

LONGEST_SLEEP: Final = 1.0
"""Seconds between two looks at a lease: belief also ends by clocks that the loop's timers do not follow."""


class Renewals:
    """Renews every held lock of a client each ``renew_interval`` and ends belief at its deadline."""

    def __init__(self, objects: LockObjects) -> None:
        self._objects = objects
        self._interval = objects.timing.renew_interval
        self._timers: dict[HeldLock, asyncio.TimerHandle] = {}
        # Empty: renewals inherit no trace, transaction or log context from the acquirer.
        self._context = Context()

    @property
    def held(self) -> list[HeldLock]:
        """The locks that are renewed."""
        return list(self._timers)

    def add(self, held: HeldLock) -> None:
        """Renew a lock from now on, counting from the write that acquired it, until it ends."""
        remaining = held.remaining()
        sent_ago = self._objects.timing.belief - remaining
        self._look_later(held, remaining, asyncio.get_running_loop().time() - sent_ago + self._interval)

    def discard(self, held: HeldLock) -> None:
        """Stop renewing a lock."""
        if (timer := self._timers.pop(held, None)) is not None:
            timer.cancel()

    def close(self) -> None:
        """Stop renewing all locks."""
        for held in self.held:
            self.discard(held)

    def _look_later(self, held: HeldLock, remaining: float, renew_at: float) -> None:
        """Look at a lock again in time for its deadline, and renew it at ``renew_at``."""
        if (timer := self._timers.get(held)) is not None:
            timer.cancel()
        loop = asyncio.get_running_loop()
        at = min(loop.time() + min(remaining, LONGEST_SLEEP), renew_at)
        self._timers[held] = loop.call_at(at, self._tick, held, renew_at, context=self._context)

    def _tick(self, held: HeldLock, renew_at: float) -> None:
        if (remaining := held.remaining()) <= 0:
            self.discard(held)
            return
        if held.body_loop is not None and held.body_loop.is_closed():
            self.discard(held)  # its body will never go on, and never release
            held.let_go("the event loop of its holder was closed")
            return
        now = asyncio.get_running_loop().time()
        if now >= renew_at and (renewal := held.start_renewal()) is not None:
            renew_at = math.inf  # until this one is answered
            renewal.add_done_callback(lambda task: self._renewed(held, task, now))
        self._look_later(held, remaining, renew_at)

    def _renewed(self, held: HeldLock, task: asyncio.Task[BackendError | None], started: float) -> None:
        if held not in self._timers:
            return
        if not task.cancelled() and task.exception() is None and task.result() is None:
            renew_at = started + self._interval
        else:
            renew_at = asyncio.get_running_loop().time() + self._objects.jittered(self._interval / 4)
        self._look_later(held, held.remaining(), renew_at)
