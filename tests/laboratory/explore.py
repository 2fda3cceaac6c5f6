"""What the exhaustive explorations of small scopes share: a bench of clients, and their findings."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, Final

from asynclock.client import LockClient
from asynclock.errors import LeaseLostError
from asynclock.settings import LeaseSettings
from asynclock.testing._clocks import VirtualClock
from asynclock.testing._store import SimulatedStore, StoreProfile, is_answer
from asynclock.testing._virtual import DeadlockError, Process, VirtualLoop
from tests.laboratory.checker import Checker, Invariant
from tests.laboratory.machines import SimulatedFaults
from tests.laboratory.names import FENCED_KEY, KEY, NAME, URL

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from asynclock.lease import Lease
    from asynclock.lock import Lock
    from tests.laboratory.checker import Violation

VALIDITY: Final = 10.0
SETTINGS: Final = LeaseSettings(validity=VALIDITY, safety_margin=2.0, max_clock_skew=1.0, poll_interval=0.5)
INSTANT: Final = StoreProfile(latency=(0.001, 0.0), slow=0.0)
"""A store that answers in two milliseconds, always."""


@dataclass(slots=True)
class Exploration:
    """What an exploration came to.

    Attributes:
        schedules: How many runs were made.
        failures: One text for each violation: which run, which invariant.
        violated: The invariants among them.
    """

    schedules: int = 0
    failures: list[str] = field(default_factory=list)
    violated: set[Invariant] = field(default_factory=set)

    def add(self, run: str, violations: list[Violation]) -> None:
        """Take in one run."""
        self.schedules += 1
        self.failures += [f"{run}: {each.invariant}: {each.detail}" for each in violations]
        self.violated.update(each.invariant for each in violations)


class Bench:
    """A few clients on one virtual loop with one simulated store and a checker.

    Args:
        clients: How many.
        store: Makes the store.
    """

    def __init__(self, clients: int, *, store: Callable[[VirtualLoop], SimulatedStore] | None = None) -> None:
        self.loop = VirtualLoop(0)
        self.store = store(self.loop) if store else SimulatedStore(self.loop, Random(0), INSTANT)
        self.checker = Checker(self.store, key=KEY, fenced_key=FENCED_KEY)
        self.loop.on_step = self.checker.after_step
        self.loop.set_exception_handler(self._failed)
        self.processes: list[Process] = []
        self.backends: list[SimulatedFaults] = []
        self.clients: list[LockClient] = []
        for index in range(clients):
            self.add(f"client-{index}")

    def add(self, name: str) -> Lock:
        """Add a client in a process of its own; return its lock."""
        clock = VirtualClock(self.loop)
        process = self.loop.process(name, clock)
        backend = SimulatedFaults(self.store.backend(process), clock=clock)
        backend.network = self.store.network
        with self.loop.running_as(process):
            client = LockClient(
                url=URL,
                backend=backend,
                settings=SETTINGS,
                clock=clock,
                renewal="loop",
                rng=Random(name),
                holder=name,
            )
        self.processes.append(process)
        self.backends.append(backend)
        self.clients.append(client)
        return client.lock(NAME)

    def start(self, index: int, program: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run ``program`` in the process of a client."""
        return self.processes[index].start(program, name=f"program-{index}")

    async def hold(self, index: int, lease: Lease, work: Awaitable[object]) -> None:
        """Await ``work`` while the checker watches ``lease``, then release it."""
        name = self.processes[index].name
        holding = self.checker.handed_out(name, self.processes[index], lease, token=lease.fencing_token)
        try:
            async with lease:
                await work
        except LeaseLostError as error:
            self.checker.told_at_release(holding, error)
            raise
        finally:
            self.checker.dropped(holding)

    def dead_holder(self) -> None:
        """Let a client acquire and die, long enough ago that others may take over."""

        async def die() -> Lease:
            return await self.clients[-1].lock(NAME).acquire()

        self.add("dead")
        lease = self.loop.run_until_complete(self.start(-1, die()))
        self.processes[-1].kill()
        assert lease.held
        self.clients[-1]._core.abandon("its process was killed")
        for each in (self.processes, self.backends, self.clients):
            each.pop()
        self.loop.run_until_complete(asyncio.sleep(2 * VALIDITY))

    def run(self, main: Coroutine[Any, Any, None]) -> list[Violation]:
        """Run ``main`` and return the violations, with the end of all clients checked."""
        try:
            self.loop.run_until_complete(main)
            self.loop.run_until_complete(self._farewell())
        except DeadlockError as error:
            self.checker.violated(Invariant.NOTHING_LEFT, str(error))
        finally:
            self.loop.close()
        return self.checker.violations

    def free_again(self) -> None:
        """Check that nobody holds the lock, in the store's own words."""
        body = self.store.body(KEY)
        if body is not None and b'"expired":true' not in body:
            self.checker.violated(Invariant.NOTHING_LEFT, f"an orphan lock: {body!r}")

    async def _farewell(self) -> None:
        for process, client in zip(self.processes, self.clients, strict=True):
            await process.start(client.aclose(), name="farewell")
            left = [repr(task.get_coro()) for task in process.tasks()]
            left += [repr(timer) for timer in process.timers() if not is_answer(timer)]
            if left:
                self.checker.violated(Invariant.NOTHING_LEFT, f"{process.name} left {', '.join(left)}")
        self.free_again()

    def _failed(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.checker.violated(Invariant.NO_ERROR, f"{context.get('message')}: {error!r}")
