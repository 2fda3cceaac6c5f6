"""Every order in which the store can serve the requests of a few clients."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

from asynclock.errors import BackendError, LeaseLostError
from asynclock.testing._store import SimulatedBackend, SimulatedStore
from tests.laboratory.explore import INSTANT, Bench, Exploration
from tests.laboratory.names import NAME

if TYPE_CHECKING:
    from collections.abc import Callable

    from asynclock.testing._virtual import Process, VirtualLoop
    from tests.laboratory.checker import Violation


class GatedStore(SimulatedStore):
    """Serves one request at a time, when and in which order the explorer says."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__(loop, Random(0), INSTANT)
        self.waiting: list[tuple[str, Callable[[], None]]] = []
        """Process and service of each request that has arrived."""

    def backend(self, process: Process) -> SimulatedBackend:
        """Return the store as ``process`` reaches it."""
        return _GatedBackend(self, process)


class _GatedBackend(SimulatedBackend):
    def __init__(self, store: GatedStore, process: Process) -> None:
        super().__init__(store, process)
        self._gate = store.waiting

    def _send(self, kind: str, key: str, body: bytes | None, base: str | None) -> asyncio.Future[Any]:
        answer: asyncio.Future[Any] = self._store.loop.create_future()

        def serve() -> None:
            result = self._store.serve(self._process.name, kind, key, body, base)
            with self._store.loop.running_as(self._process):
                if isinstance(result, Exception):
                    if not answer.done():
                        answer.set_exception(result)
                elif not answer.done():
                    answer.set_result(result)

        self._gate.append((self._process.name, serve))
        return answer


@dataclass(slots=True)
class _Schedule:
    """One order of service: how to choose, and which choices there were."""

    chosen: list[int]
    preemptions: int | None
    lags: int
    alternatives: list[int] = field(default_factory=list)
    last: str | None = None

    def choose(self, waiting: list[tuple[str, Callable[[], None]]]) -> int | None:
        """Return which of the waiting requests is served next; None: let time pass first."""
        options: list[int | None] = list(range(len(waiting)))
        keeps = [index for index, (name, _) in enumerate(waiting) if name == self.last]
        if self.preemptions is not None and keeps and self.preemptions <= 0:
            options = [keeps[0]]
        if self.lags > 0:
            options.append(None)
        step = len(self.alternatives)
        pick = self.chosen[step] if step < len(self.chosen) else 0
        self.alternatives.append(len(options))
        index = options[pick]
        if index is None:
            self.lags -= 1
            return None
        if self.preemptions is not None and keeps and waiting[index][0] != self.last:
            self.preemptions -= 1
        self.last = waiting[index][0]
        return index

    def following(self) -> list[int] | None:
        """Return the choices of the next schedule in order; None after the last."""
        chosen = (self.chosen + [0] * len(self.alternatives))[: len(self.alternatives)]
        for step in range(len(chosen) - 1, -1, -1):
            if chosen[step] + 1 < self.alternatives[step]:
                return [*chosen[:step], chosen[step] + 1]
        return None


def interleavings(
    clients: int, *, cycles: int = 1, preemptions: int | None = None, lags: int = 0, dead_holder: bool = False
) -> Exploration:
    """Run every order in which the store can serve the clients' requests.

    Args:
        clients: Each acquires, confirms and releases the lock.
        cycles: How often each does so.
        preemptions: At most that many switches away from a client whose next request waits.
        lags: So often time may pass to the next timer, a request timeout among them, while
            requests wait.
        dead_holder: Whether the lock is that of a holder that died.
    """
    found = Exploration()
    chosen: list[int] | None = []
    while chosen is not None:
        schedule = _Schedule(chosen, preemptions, lags)
        violations = _one_order(clients, cycles, schedule, dead_holder=dead_holder)
        found.add(f"schedule {schedule.chosen}", violations)
        chosen = schedule.following()
    return found


def _one_order(clients: int, cycles: int, schedule: _Schedule, *, dead_holder: bool) -> list[Violation]:
    stores: list[GatedStore] = []

    def gated(loop: VirtualLoop) -> GatedStore:
        stores.append(GatedStore(loop))
        return stores[0]

    bench = Bench(clients, store=gated)
    waiting = stores[0].waiting

    def serve_first() -> bool:
        if waiting:
            waiting.pop(0)[1]()
            return True
        return False

    def serve_chosen() -> bool:
        if not waiting or (index := schedule.choose(waiting)) is None:
            return False
        waiting.pop(index)[1]()
        return True

    bench.loop.on_idle = serve_first
    if dead_holder:
        bench.dead_holder()
    bench.loop.on_idle = serve_chosen

    async def program(index: int) -> None:
        for _ in range(cycles):
            lease = await bench.clients[index].lock(NAME).acquire()
            with suppress(LeaseLostError, BackendError):  # time has passed while a request waited
                await bench.hold(index, lease, lease.confirm())

    async def main() -> None:
        await asyncio.gather(*(bench.start(index, program(index)) for index in range(clients)))
        bench.loop.on_idle = serve_first

    return bench.run(main())
