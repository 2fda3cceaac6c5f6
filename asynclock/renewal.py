"""The renewal scheduler: one task keeps many leases."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from contextvars import Context
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from asynclock.errors import BackendError
    from asynclock.protocol.store import Store
    from asynclock.protocol.tenure import Tenure

LONGEST_SLEEP: Final = 1.0
"""Belief also ends by clocks that the loop's timers do not follow: look at least this often."""
_FEW: Final = 64


@dataclass(eq=False, slots=True)
class _Entry:
    tenure: Tenure
    renew_at: float
    at: float = 0.0
    renewal: asyncio.Task[BackendError | None] | None = field(default=None)


class RenewalScheduler:
    """Renews every lease of a client each ``renew_interval`` and ends belief at its deadline.

    Args:
        store: The client's store, for its terms and jitter.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._entries: dict[Tenure, _Entry] = {}
        self._heap: list[tuple[float, int, _Entry]] = []
        self._order = itertools.count()
        self._wake = asyncio.Event()
        self._wake_at = 0.0
        self._task: asyncio.Task[None] | None = None

    @property
    def tenures(self) -> list[Tenure]:
        """The tenures that are kept."""
        return list(self._entries)

    def add(self, tenure: Tenure) -> None:
        """Keep a lease until its tenure ends."""
        loop = asyncio.get_running_loop()
        sent_ago = self._store.terms.belief - tenure.remaining()
        entry = _Entry(tenure, loop.time() + self._store.terms.renew_interval - sent_ago)
        self._entries[tenure] = entry
        self._schedule(entry, loop.time())
        if self._task is None or self._task.done():
            # An empty context: renewals inherit no trace, transaction or log context of one caller.
            self._task = loop.create_task(self._run(), context=Context())

    def discard(self, tenure: Tenure) -> None:
        """Stop renewing: the tenure has ended or is about to."""
        if self._entries.pop(tenure, None) is not None and len(self._heap) > _FEW + 2 * len(self._entries):
            self._heap = [item for item in self._heap if self._is_current(item)]
            heapq.heapify(self._heap)

    async def aclose(self) -> None:
        """End the task and the renewals that are under way."""
        tasks = [entry.renewal for entry in self._entries.values() if entry.renewal is not None]
        self._entries.clear()
        self._heap.clear()
        for task in (self._task, *tasks):
            if task is not None:
                task.cancel()
        await asyncio.gather(*(task for task in (self._task, *tasks) if task), return_exceptions=True)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            now = loop.time()
            while self._heap and self._heap[0][0] <= now:
                item = heapq.heappop(self._heap)
                if self._is_current(item):
                    self._serve(item[2], now)
            self._wake.clear()
            self._wake_at = self._heap[0][0] if self._heap else float("inf")
            try:
                async with asyncio.timeout_at(self._wake_at if self._heap else None):
                    await self._wake.wait()
            except TimeoutError:
                continue

    def _is_current(self, item: tuple[float, int, _Entry]) -> bool:
        at, _, entry = item
        return self._entries.get(entry.tenure) is entry and entry.at == at

    def _serve(self, entry: _Entry, now: float) -> None:
        if entry.tenure.remaining() <= 0:
            self._entries.pop(entry.tenure, None)
            return
        if entry.renewal is None and now >= entry.renew_at:
            entry.renewal = asyncio.ensure_future(entry.tenure.renew())
            entry.renewal.add_done_callback(lambda task: self._renewed(entry, task, now))
        self._schedule(entry, now)

    def _renewed(self, entry: _Entry, task: asyncio.Task[BackendError | None], started: float) -> None:
        entry.renewal = None
        if task.cancelled() or self._entries.get(entry.tenure) is not entry:
            return
        now = asyncio.get_running_loop().time()
        interval = self._store.terms.renew_interval
        failed = task.exception() is not None or task.result() is not None
        entry.renew_at = now + self._store.jittered(interval / 4) if failed else started + interval
        self._schedule(entry, now)

    def _schedule(self, entry: _Entry, now: float) -> None:
        entry.at = now + min(entry.tenure.remaining(), LONGEST_SLEEP)
        if entry.renewal is None:
            entry.at = min(entry.at, entry.renew_at)
        heapq.heappush(self._heap, (entry.at, next(self._order), entry))
        if entry.at < self._wake_at:
            self._wake.set()
