"""The renewal scheduler: a timer for each lease, in one place for all leases of a client."""

from __future__ import annotations

import asyncio
from contextvars import Context
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from asynclock.errors import BackendError
    from asynclock.protocol.store import Store
    from asynclock.protocol.tenure import Tenure

LONGEST_SLEEP: Final = 1.0
"""Belief also ends by clocks that the loop's timers do not follow: look at least this often."""


@dataclass(eq=False, slots=True)
class _Entry:
    tenure: Tenure
    renew_at: float
    timer: asyncio.TimerHandle | None = None
    renewing: bool = False


class RenewalScheduler:
    """Renews every lease of a client each ``renew_interval`` and ends belief at its deadline.

    Args:
        store: The client's store, for its terms and jitter.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._entries: dict[Tenure, _Entry] = {}
        # Empty: renewals inherit no trace, transaction or log context of whoever acquired.
        self._context = Context()

    @property
    def tenures(self) -> list[Tenure]:
        """The tenures that are kept."""
        return list(self._entries)

    def add(self, tenure: Tenure, remaining: float) -> None:
        """Keep a lease, believed for ``remaining`` seconds, until its tenure ends."""
        now = asyncio.get_running_loop().time()
        sent_ago = self._store.terms.belief - remaining
        entry = _Entry(tenure, now + self._store.terms.renew_interval - sent_ago)
        self._entries[tenure] = entry
        self._look_again(entry, now, remaining)

    def discard(self, tenure: Tenure) -> None:
        """Stop renewing: the tenure has ended or is about to."""
        entry = self._entries.pop(tenure, None)
        if entry is not None and entry.timer is not None:
            entry.timer.cancel()

    def close(self) -> None:
        """Keep no lease any more."""
        for tenure in self.tenures:
            self.discard(tenure)

    def _look(self, entry: _Entry) -> None:
        remaining = entry.tenure.remaining()
        if remaining <= 0:
            self._entries.pop(entry.tenure, None)
            return
        body = entry.tenure.body_loop
        if body is not None and body.is_closed():
            # Its body will never go on, and never release.
            self._entries.pop(entry.tenure, None)
            entry.tenure.let_go("the event loop of its holder was closed")
            return
        now = asyncio.get_running_loop().time()
        if not entry.renewing and now >= entry.renew_at:
            renewal = entry.tenure.start_renewal()
            if renewal is not None:
                entry.renewing = True
                renewal.add_done_callback(lambda task: self._renewed(entry, task, now))
        self._look_again(entry, now, remaining)

    def _renewed(self, entry: _Entry, task: asyncio.Task[BackendError | None], started: float) -> None:
        entry.renewing = False
        if task.cancelled() or self._entries.get(entry.tenure) is not entry:
            return
        now = asyncio.get_running_loop().time()
        interval = self._store.terms.renew_interval
        failed = task.exception() is not None or task.result() is not None
        entry.renew_at = now + self._store.jittered(interval / 4) if failed else started + interval
        self._look_again(entry, now, entry.tenure.remaining())

    def _look_again(self, entry: _Entry, now: float, remaining: float) -> None:
        at = now + min(remaining, LONGEST_SLEEP)
        if not entry.renewing:
            at = min(at, entry.renew_at)
        if entry.timer is not None:
            entry.timer.cancel()
        entry.timer = asyncio.get_running_loop().call_at(at, self._look, entry, context=self._context)
