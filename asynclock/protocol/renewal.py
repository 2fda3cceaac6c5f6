"""Who renews: one timer for each held lock of a client, all in one place (rule 5)."""

from __future__ import annotations

import asyncio
from contextvars import Context
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from asynclock.errors import BackendError
    from asynclock.protocol.held import HeldLock
    from asynclock.protocol.objects import LockObjects

LONGEST_SLEEP: Final = 1.0
"""Seconds between two looks at a lock: belief also ends by clocks that the loop's timers do not follow."""


@dataclass(eq=False, slots=True)
class _Entry:
    held: HeldLock
    renew_at: float
    timer: asyncio.TimerHandle | None = None


class Renewals:
    """Renews every held lock of a client each ``renew_interval`` and ends belief at its deadline.

    Args:
        objects: The client's requests, for its timing and jitter.
    """

    def __init__(self, objects: LockObjects) -> None:
        self._objects = objects
        self._interval = objects.timing.renew_interval
        self._entries: dict[HeldLock, _Entry] = {}
        # Empty: renewals inherit no trace, transaction or log context from the acquirer.
        self._context = Context()

    @property
    def held(self) -> list[HeldLock]:
        """The locks that are renewed."""
        return list(self._entries)

    def add(self, held: HeldLock) -> None:
        """Renew a lock from now on, counting from the write that acquired it, until it ends."""
        remaining = held.remaining()
        sent_ago = self._objects.timing.belief - remaining
        now = asyncio.get_running_loop().time()
        entry = self._entries[held] = _Entry(held, now - sent_ago + self._interval)
        self._set_timer(entry, remaining)

    def discard(self, held: HeldLock) -> None:
        """Stop renewing a lock."""
        entry = self._entries.pop(held, None)
        if entry is not None and entry.timer is not None:
            entry.timer.cancel()

    def close(self) -> None:
        """Stop renewing all locks."""
        for held in self.held:
            self.discard(held)

    def _look(self, entry: _Entry) -> None:
        held, now = entry.held, asyncio.get_running_loop().time()
        if (remaining := held.remaining()) <= 0:
            self._entries.pop(held, None)
            return
        if held.body_loop is not None and held.body_loop.is_closed():
            # Its body will never go on, and never release.
            self._entries.pop(held, None)
            held.let_go("the event loop of its holder was closed")
            return
        if now >= entry.renew_at and (renewal := held.start_renewal()) is not None:
            entry.renew_at = float("inf")  # until this one is answered
            renewal.add_done_callback(lambda task: self._renewed(entry, task, now))
        self._set_timer(entry, remaining)

    def _renewed(self, entry: _Entry, task: asyncio.Task[BackendError | None], started: float) -> None:
        if self._entries.get(entry.held) is not entry:
            return
        if not task.cancelled() and task.exception() is None and task.result() is None:
            entry.renew_at = started + self._interval
        else:
            retry = self._objects.jittered(self._interval / 4)
            entry.renew_at = asyncio.get_running_loop().time() + retry
        self._set_timer(entry, entry.held.remaining())

    def _set_timer(self, entry: _Entry, remaining: float) -> None:
        loop = asyncio.get_running_loop()
        if entry.timer is not None:
            entry.timer.cancel()
        at = min(loop.time() + min(remaining, LONGEST_SLEEP), entry.renew_at)
        entry.timer = loop.call_at(at, self._look, entry, context=self._context)
