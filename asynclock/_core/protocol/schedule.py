"""When the locks of a client are renewed: one look a second at all of them, and timers for earlier ones."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from contextvars import Context
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from asynclock._core.protocol.held import HeldLock
    from asynclock._core.protocol.objects import LockObjects
    from asynclock.errors import BackendError

BETWEEN_LOOKS: Final = 1.0
"""Seconds between two looks at all locks: belief also ends by clocks that the loop's timers do not follow."""
STALL: Final = 1.0
"""A look that is at least this many seconds late is reported: the process was stopped or starved."""
CROWD: Final = 64
"""This many writes, at least twice as fast as steady renewal would send them, are a crowd; fewer are none."""
_EARLIEST: Final = 0.25
"""Share of the interval after which a lock of a crowd is renewed at the earliest."""
_LEAST: Final = 0.001
"""Seconds until a deadline is looked at, at least; belief itself ends at the deadline."""


class Schedule:
    """Renews every held lock of a client each ``renew_interval`` and ends belief at its deadline (rule 5).

    Locks that are written together would always be renewed together. So in a crowd the next renewal of each
    comes earlier, at random, and from then on each keeps its place.
    """

    def __init__(self, objects: LockObjects) -> None:
        self._objects = objects
        self._interval = objects.timing.renew_interval
        self._renew_at: dict[HeldLock, float] = {}  # loop time; infinite while a renewal is under way
        self._timers: dict[HeldLock | None, asyncio.TimerHandle] = {}  # None: of the next look at all
        self._next_look = -math.inf
        # Apart: a lock that is acquired again and again makes no crowd of the renewals of others.
        self._acquired: deque[float] = deque(maxlen=CROWD)
        self._renewed: deque[float] = deque(maxlen=CROWD)
        # Empty: renewals inherit no trace, transaction or log context from the acquirer.
        self._context = Context()

    @property
    def held(self) -> list[HeldLock]:
        """The locks that are renewed."""
        return list(self._renew_at)

    def add(self, held: HeldLock) -> None:
        """Renew a lock from now on, counting from the write that acquired it, until it ends."""
        remaining, now = held.belief.end_if_due(), asyncio.get_running_loop().time()
        sent_ago = self._objects.now().elapsed(held.tenure.head.sent)
        self._renew_at[held] = self._interval_after(now - sent_ago, self._acquired)
        if None not in self._timers:
            self._set_next_look(now)
        self._look_later(held, remaining, now)

    def discard(self, held: HeldLock) -> None:
        """Stop renewing a lock."""
        self._renew_at.pop(held, None)
        self._cancel(held)
        if not self._renew_at:
            self._cancel(None)

    def close(self) -> None:
        """Stop renewing all locks."""
        for held in self.held:
            self.discard(held)

    def _interval_after(self, written: float, others: deque[float]) -> float:
        """Return when to renew a lock written at that loop time: an interval later, earlier in a crowd."""
        others.append(written)
        locks, interval = len(self._renew_at), self._interval
        if len(others) == CROWD < locks and (written - others[0]) * locks < interval * CROWD / 2:
            interval = self._objects.jittered(interval, least=_EARLIEST)
        return written + interval

    def _set_next_look(self, now: float) -> None:
        self._next_look = now + BETWEEN_LOOKS
        self._set_timer(None, now, self._next_look)

    def _look_later(self, held: HeldLock, remaining: float, now: float) -> None:
        """Look at a lock ahead of the others if its deadline or its renewal comes before the next look."""
        self._cancel(held)
        # Nearer than a float can tell, it would be looked at again and again while virtual time stands still.
        if (at := min(now + max(remaining, _LEAST), self._renew_at[held])) < self._next_look:
            self._set_timer(held, now, at)

    def _set_timer(self, held: HeldLock | None, now: float, at: float) -> None:
        self._cancel(held)
        due = self._objects.clock.boot() + max(0.0, at - now)
        loop = asyncio.get_running_loop()
        self._timers[held] = loop.call_at(at, self._look, held, due, context=self._context)

    def _cancel(self, held: HeldLock | None) -> None:
        if (timer := self._timers.pop(held, None)) is not None:
            timer.cancel()

    def _look(self, held: HeldLock | None, due: float) -> None:
        """Look at one lock, or at all; a look that comes late is one at all."""
        late = self._objects.clock.boot() - due
        if held is not None and late < STALL:
            self._look_at(held)
            return
        self._set_next_look(asyncio.get_running_loop().time())
        if late >= STALL:
            for each in self.held:
                if self._objects.clock.boot() - each.belief.sent.boot >= late:
                    each.tenure.report_stall(late)
        for each, renew_at in list(self._renew_at.items()):
            body_loop = each.body.loop
            if (
                renew_at < self._next_look
                or each.belief.end_if_due() < BETWEEN_LOOKS
                or (body_loop is not None and body_loop.is_closed())
            ):
                self._look_at(each)

    def _look_at(self, held: HeldLock) -> None:
        if (remaining := held.belief.end_if_due()) <= 0:
            self.discard(held)
            held.ending.report_loss()  # an interrupt may have cut off who found it
            return
        if held.body.is_gone:
            # It never releases. First, as a fork gives up only what is renewed:
            held.release.let_go("the event loop of its holder was closed")
            self.discard(held)
            return
        now = asyncio.get_running_loop().time()
        if now >= self._renew_at[held] and (renewal := held.renewer.start()) is not None:
            self._renew_at[held] = math.inf  # until this one is answered
            renewal.add_done_callback(lambda task: self._note_renewal(held, task, now))
        self._look_later(held, remaining, now)

    def _note_renewal(self, held: HeldLock, task: asyncio.Task[BackendError | None], started: float) -> None:
        if held not in self._renew_at:
            return
        now = asyncio.get_running_loop().time()
        if not task.cancelled() and task.exception() is None and task.result() is None:
            self._renew_at[held] = self._interval_after(started, self._renewed)
        else:
            self._renew_at[held] = now + self._objects.jittered(self._interval / 4)
        self._look_later(held, held.belief.end_if_due(), now)
