# ruff: noqa: S311  reproducible on purpose
"""Small scopes, explored exhaustively: interleavings, cancellations, single faults.

``interleavings`` runs every order in which the store can serve the requests of a few clients;
``cancellations`` cancels one program at every await, once and twice; ``single_faults`` spoils
every request of a program with every kind of fault.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, Final

from asynclock.client import LockClient
from asynclock.errors import BackendError, LeaseLostError, RecordCorruptError
from asynclock.settings import LeaseSettings
from asynclock.testing.checker import Checker, Invariant
from asynclock.testing.clocks import VirtualClock
from asynclock.testing.faulty import Fault
from asynclock.testing.machines import FENCED_KEY, KEY, NAME, URL, SimulatedFaults
from asynclock.testing.store import SimulatedBackend, SimulatedStore, StoreProfile, is_answer
from asynclock.testing.virtual import DeadlockError, Process, VirtualLoop

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from asynclock.lease import Lease
    from asynclock.lock import Lock
    from asynclock.testing.checker import Violation

VALIDITY: Final = 10.0
SETTINGS: Final = LeaseSettings(validity=VALIDITY, safety_margin=2.0, max_clock_skew=1.0, poll_interval=0.5)
INSTANT: Final = StoreProfile(latency=(0.001, 0.0), slow=0.0)
"""A store that answers in two milliseconds, always."""
PROMPT: Final = 3.0
"""Seconds within which a fault must have been got over: a request timeout and a retry."""
_MOST_REQUESTS: Final = 16
"""No program makes more."""


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
        finally:
            self.checker.dropped(holding)

    def dead_holder(self) -> None:
        """Let a client acquire and die, long enough ago that others may take over."""

        async def die() -> None:
            await self.clients[-1].lock(NAME).acquire()

        self.add("dead")
        task = self.start(-1, die())
        self.loop.run_until_complete(task)
        self.processes[-1].kill()
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


# Interleavings.


class GatedStore(SimulatedStore):
    """Serves one request at a time, when and in which order it is told to."""

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
        preemptions: At most so many switches away from a client whose next request waits.
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


# Cancellations and single faults.


async def alone(bench: Bench) -> None:
    """Acquire, renew, release."""
    lease = await bench.clients[0].lock(NAME).acquire()
    await bench.hold(0, lease, lease.confirm())


async def twice(bench: Bench) -> None:
    """Acquire and release, then again from what is remembered."""
    await alone(bench)
    await alone(bench)


async def in_line(bench: Bench) -> None:
    """Wait in line behind another coroutine of the same client: a hand-off."""
    lock = bench.clients[0].lock(NAME)
    first = await lock.acquire()
    second = asyncio.get_running_loop().create_task(_after(first))
    try:
        lease = await lock.acquire()
        await bench.hold(0, lease, lease.confirm())
    finally:
        while not second.done():  # its end is not ours to cut short
            with suppress(asyncio.CancelledError):
                await asyncio.wait([second])


async def _after(lease: Lease) -> None:
    await asyncio.sleep(0.01)
    with suppress(LeaseLostError):
        await lease.release()


PROGRAMS: Final = {"alone": alone, "twice": twice, "in-line": in_line}


def cancellations(
    name: str, *, fault: Fault | None = None, operation: str = "put_if_absent", second: bool = True
) -> Exploration:
    """Cancel a program after each of its steps, once, and again after each later one.

    A step is a callback of the client's process, so that every await of the program and of the
    client's own tasks is covered.

    Args:
        name: One of ``PROGRAMS``.
        fault: Spoils the first ``operation``: ``put_if_absent`` acquires, ``put_if_match`` renews.
        operation: See there.
        second: Whether to cancel a second time.
    """
    found = Exploration()
    first = 0
    while True:
        steps, violations = _cancelled(name, (first,), fault, operation)
        found.add(f"{name}, {fault} on {operation}, cancelled after step {first}", violations)
        if steps <= first:
            return found
        for later in range(first + 1, steps + 1) if second else ():
            _, violations = _cancelled(name, (first, later), fault, operation)
            found.add(
                f"{name}, {fault} on {operation}, cancelled after steps {first} and {later}", violations
            )
        first += 1


def _cancelled(
    name: str, cuts: tuple[int, ...], fault: Fault | None, operation: str
) -> tuple[int, list[Violation]]:
    """Run once; return after how many steps the program had ended, and the violations."""
    bench = Bench(1)
    if fault is not None:
        bench.backends[0].inject(fault, operation=operation)
    taken = 0
    delivered = False
    task = bench.start(0, PROGRAMS[name](bench))

    def count(process: Process) -> None:
        nonlocal taken, delivered
        bench.checker.after_step(process)
        if process is bench.processes[0] and not task.done():
            if taken in cuts:
                delivered = task.cancel() or delivered
            taken += 1

    bench.loop.on_step = count

    async def main() -> None:
        await asyncio.wait([task], timeout=5 * VALIDITY)
        if not task.done():
            bench.checker.violated(Invariant.NOTHING_LEFT, "the cancelled program never ended")
        elif delivered and not task.cancelled():
            error = task.exception()
            if not isinstance(error, BackendError):
                bench.checker.violated(Invariant.NO_ERROR, f"the cancellation was swallowed: {error!r}")
        await asyncio.sleep(2 * VALIDITY)  # what still goes on in the background ends
        bench.free_again()

    violations = bench.run(main())
    return taken, violations


def single_faults() -> Exploration:
    """Spoil every request of every program with every kind of fault, and every two in a row."""
    found = Exploration()
    for name in PROGRAMS:
        for fault in Fault:
            for nth in range(1, _MOST_REQUESTS + 1):
                for times in (1, 2):
                    applied, violations = _spoiled(name, fault, nth, times)
                    if applied == times:
                        found.add(f"{name}, {fault} on request {nth}, {times} in a row", violations)
    return found


def _spoiled(name: str, fault: Fault, nth: int, times: int) -> tuple[int, list[Violation]]:
    bench = Bench(1)
    bench.backends[0].inject(fault, nth=nth, times=times)
    task = bench.start(0, PROGRAMS[name](bench))
    allowed = (BackendError, RecordCorruptError, LeaseLostError)

    async def main() -> None:
        await asyncio.wait([task], timeout=5 * VALIDITY)
        took = bench.loop.time()
        if took > PROMPT:
            bench.checker.violated(Invariant.TAKEOVER_BOUND, f"one fault cost {took:.1f} s")
        error = None if not task.done() else task.exception()
        if error is not None and not isinstance(error, allowed):
            bench.checker.violated(Invariant.NO_ERROR, repr(error))
        if isinstance(error, LeaseLostError) and fault not in {Fault.DELETED, Fault.CORRUPT}:
            bench.checker.violated(Invariant.NO_FALSE_LOSS, f"lost to {fault}: {error}")
        await asyncio.sleep(3 * VALIDITY)
        bench.free_again()

    violations = bench.run(main())
    return bench.backends[0].applied[fault], violations
