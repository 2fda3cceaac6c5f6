"""Which caller of this client has the lock next, or another client (rules 12 to 15 and 26)."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from asynclock._core.acquirers import acquired_above
from asynclock._core.protocol.waiting import WaitQueue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from asynclock._core.inspection import Inspection
    from asynclock._core.protocol.held import HeldLock
    from asynclock._core.protocol.schedule import Schedule
    from asynclock._core.protocol.waiting import Fairness
    from asynclock._core.record import LockRecord

_WAITS_FOR_ITSELF: Final = 1.0
"""Seconds after which a task that waits for a lock of its own is warned."""


class Turns:
    """The line of one lock in one client, and the lock while this client holds it. On the client's loop.

    Args:
        inspection: Of the lock.
        schedule: Has the lock renewed until its end.
        fairness: Knows when it is another client's turn.

    Attributes:
        queue: Those who wait.
        fairness: As given.
        held: The lock, from its acquisition until it has ended or was handed over.
    """

    _term: tuple[HeldLock, Callable[[], object]] | None = None

    def __init__(self, inspection: Inspection, schedule: Schedule, fairness: Fairness) -> None:
        self.queue: WaitQueue = WaitQueue()
        self.fairness: Fairness = fairness
        self.held: HeldLock | None = None
        self._objects = inspection.objects
        self._observation = inspection.observation
        self._key = inspection.key
        self._url = inspection.url
        self._schedule = schedule

    async def enter(self, timeout: float | None) -> HeldLock | None:
        """Wait for this call's turn; returns the lock that is handed over with it, or None.

        Raises:
            TimeoutError: The turn did not come within ``timeout`` seconds.
        """
        itself: asyncio.TimerHandle | None = None
        if (held := self.held) is not None:
            self._say_waiting(held.tenure.head.record, timeout)
            itself = self.warn_of_itself(acquired_above(held))
        try:
            return await self.queue.enter(timeout)
        except asyncio.CancelledError:
            if (stranded := self.queue.take_stranded()) is not None:
                self.held = stranded  # until it has ended, as after any release
                self._objects.in_flight.spawn(stranded.release.free())
            raise
        finally:
            if itself is not None:
                itself.cancel()

    def warn_of_itself(self, place: str | None) -> asyncio.TimerHandle | None:
        """Warn after a second that the caller waits for what it acquired at ``place``; None: it does not.

        Returns:
            What to cancel at the end of the wait.
        """
        if place is None or (narrator := self._objects.events.narrator) is None:
            return None
        later = asyncio.get_running_loop().call_later
        return later(_WAITS_FOR_ITSELF, narrator.waits_for_itself, self._url, place)

    def _say_waiting(self, own: LockRecord, timeout: float | None) -> None:
        """Have it said that another of this client holds the lock; no store was looked at, so no event is."""
        holder, limit = own.holder or "", timeout
        self._objects.events.emit(
            "waiting", self._key, own.owner, own.epoch, holder, limit=limit, only_said=True
        )

    def hand_over(self, held: HeldLock) -> bool:
        """Hand a lock that is being released over to the next waiter; False if it is to be freed."""
        now = asyncio.get_running_loop().time()
        wanted = held is self.held and self.queue.waiting
        if not (wanted and held.may_hand_over() and self.fairness.may_hand_over(now)):
            return False
        self.held = None
        self._schedule.discard(held)
        self.fairness.handed_over(now)
        held.hand_over()
        self.queue.pass_on(held)
        return True

    def note_end(self, held: HeldLock) -> None:
        """Give the next one of this client its turn, if the lock that ended was not handed over."""
        if held is not self.held:
            return
        self.held = None
        self._schedule.discard(held)
        freed = held.release.freed
        self._observation.freed = freed if freed and freed.record.expired else None
        self.fairness.ended(held.loop.time(), jittered=self._objects.jittered)
        self.queue.leave()

    @contextmanager
    def leading(self, held: HeldLock, end: Callable[[], object] = lambda: None) -> Iterator[None]:
        """Have ``step_down`` call ``end``, from any thread, to end the work in the body under ``held``."""
        self._term = term = held, end
        try:
            yield
        finally:
            if self._term is term:
                self._term = None

    def step_down(self) -> bool:
        """See ``Lock.step_down``; from any thread."""
        if (term := self._term) is None:
            return False
        held, end = term
        held.body.ceded = True
        self.fairness.cede()
        with suppress(RuntimeError):  # the loop of the work is closed: its lease is on its way to be released
            end()
        return True
