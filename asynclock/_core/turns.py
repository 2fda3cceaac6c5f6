"""Which caller of this client has the lock next, or another client (rules 12 to 15 and 26)."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from asynclock._core.acquirers import acquired_above

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

    The coroutines and threads that wait are served in the order in which they came. Only the head of the line
    talks to the store. A turn may come with a held lock that is handed over.

    Args:
        inspection: Of the lock.
        schedule: Has the lock renewed until its end.
        fairness: Knows when it is another client's turn.

    Attributes:
        fairness: As given.
        held: The lock, from its acquisition until it has ended or was handed over.
    """

    _term: tuple[HeldLock, Callable[[], object]] | None = None

    def __init__(self, inspection: Inspection, schedule: Schedule, fairness: Fairness) -> None:
        self.fairness: Fairness = fairness
        self.held: HeldLock | None = None
        self._objects = inspection.objects
        self._observation = inspection.observation
        self._key = inspection.key
        self._url = inspection.url
        self._schedule = schedule
        self._busy = False
        # Whose turn has not come. Each lock has one, and a deque takes 760 bytes.
        self._waiters: list[asyncio.Future[HeldLock | None]] = []

    def try_enter(self) -> bool:
        """Become the head if nobody is."""
        entered, self._busy = not self._busy, True
        return entered

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
            return await self._turn(timeout)
        finally:
            if itself is not None:
                itself.cancel()

    async def _turn(self, timeout: float | None) -> HeldLock | None:
        if not self._busy:
            self._busy = True
            return None
        turn: asyncio.Future[HeldLock | None] = asyncio.get_running_loop().create_future()
        self._waiters.append(turn)
        try:
            # Unlike a timeout around the future, this leaves it pending until its turn has come.
            await asyncio.wait([turn], timeout=timeout)
        except asyncio.CancelledError:
            if not turn.done():
                self._waiters.remove(turn)
            elif (given := turn.result()) is None or self._waiters:
                self._pass_on(given)
            else:
                self.held = given  # until it has ended, as after any release
                self._objects.in_flight.spawn(given.release.free())
            raise
        if not turn.done():
            self._waiters.remove(turn)
            raise TimeoutError
        return turn.result()

    def leave(self) -> None:
        """Let the next one become the head."""
        self._pass_on(None)

    def _pass_on(self, held: HeldLock | None) -> None:
        """Make the next one the head, and hand ``held`` over to it."""
        if self._waiters:
            self._waiters.pop(0).set_result(held)
        else:
            self._busy = False

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
        """Log that another caller of this client holds the lock. No event: the store was not read."""
        holder, limit = own.holder or "", timeout
        self._objects.events.emit(
            "waiting", self._key, own.owner, own.epoch, holder, limit=limit, only_said=True
        )

    def hand_over(self, held: HeldLock) -> bool:
        """Hand a lock over to the next waiter instead of freeing it; False if it must be freed."""
        now = asyncio.get_running_loop().time()
        wanted = held is self.held and self._waiters
        if not (wanted and held.may_hand_over() and self.fairness.may_hand_over(now)):
            return False
        self.held = None
        self._schedule.discard(held)
        self.fairness.handed_over(now)
        held.hand_over()
        self._pass_on(held)
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
        self.leave()

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
