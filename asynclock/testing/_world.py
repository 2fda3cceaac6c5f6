"""A world in virtual time: one store in memory, machines with clocks of their own, clients on them."""

from __future__ import annotations

import asyncio
import gc
import warnings
from random import Random
from typing import TYPE_CHECKING, Any, Self, TypeVar

from asynclock.client import LockClient
from asynclock.testing._clocks import VirtualClock
from asynclock.testing._faulty import FaultyBackend
from asynclock.testing._store import SimulatedStore, StoreProfile
from asynclock.testing._virtual import VirtualLoop

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from types import TracebackType

    from asynclock.backend import Backend
    from asynclock.clock import Clock
    from asynclock.events import Event
    from asynclock.settings import LeaseSettings
    from asynclock.testing._virtual import Process

T = TypeVar("T")


class FaultyClient(LockClient):
    """A ``LockClient`` whose requests can be spoiled.

    Attributes:
        backend: Has ``inject``, ``storm`` and the ``journal`` of all requests.
    """

    backend: FaultyBackend


class VirtualWorld:
    """A store and machines in virtual time. A context manager; the end of the block ends them all.

    Nothing in it takes real time, and the same seed and program give the same run. Use it in a
    plain function, not in an async one: ``run`` has a loop of its own.

    Args:
        seed: Of the loop, the store's latencies, the clients' nonces and their faults.
        settings: Times of the leases of all clients; default ``LeaseSettings()``.
        profile: What kind of store it is; default ``StoreProfile()``.

    Attributes:
        loop: Its ``time()`` is true time, in seconds from 0.
        store: Its ``journal`` says what was applied, in order.
    """

    def __init__(
        self,
        *,
        seed: int = 0,
        settings: LeaseSettings | None = None,
        profile: StoreProfile | None = None,
    ) -> None:
        self.loop: VirtualLoop = VirtualLoop(seed)
        self.store: SimulatedStore = SimulatedStore(self.loop, Random(seed), profile or StoreProfile())  # noqa: S311  reproducible
        self._settings = settings
        self._seed = seed
        self._clients = 0

    def process(self, name: str, *, wall_error: float = 0.0, drift: float = 0.0) -> Process:
        """Return a new program on a machine of its own, to ``start``, ``pause``, ``suspend`` or ``kill``.

        Args:
            name: Names it as the holder of its locks.
            wall_error: Seconds by which its wall clock is ahead of true time.
            drift: By how much its clocks run fast: 0.01 is one second too many in a hundred.
        """
        return self.loop.process(name, VirtualClock(self.loop, offset=wall_error, drift=drift))

    def client(
        self,
        process: Process | None = None,
        *,
        settings: LeaseSettings | None = None,
        events: Callable[[Event], object] | None = None,
    ) -> FaultyClient:
        """Return a client of the store, with the clocks of ``process`` and to be used in it.

        Args:
            process: Where it runs; None: in what ``run`` runs, on a machine whose clocks are right.
            settings: Times of its leases; default those of the world.
            events: See ``connect``.
        """
        process = process or self.loop.world
        if process.clock is None:
            process.clock = VirtualClock(self.loop)
        self._clients += 1
        rng = Random(f"{self._seed}/{self._clients}")  # noqa: S311  reproducible on purpose
        inner = self.store.backend(process)
        return FaultyClient(
            url="sim://store",
            backend=_NetworkFaults(inner, self.store.network, seed=rng.getrandbits(32), clock=process.clock),
            settings=settings or self._settings,
            renewal="loop",
            events=events,
            clock=process.clock,
            holder=process.name,
            rng=rng,
        )

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run ``main`` to its end, and meanwhile everything else, and return its result.

        Raises:
            DeadlockError: ``main`` waits for something that will never happen.
            RuntimeError: An event loop is running in this thread.
        """
        if asyncio._get_running_loop() is not None:  # noqa: SLF001  the public one raises instead
            main.close()
            raise RuntimeError(
                "virtual time has an event loop of its own, and another one is running here; "
                "nothing was run. Use it in a test that is not async"
            )
        return self.loop.run_until_complete(main)

    def advance(self, seconds: float) -> None:
        """Let ``seconds`` pass for everything that was started.

        Raises:
            RuntimeError: An event loop is running in this thread.
        """
        self.run(asyncio.sleep(seconds))

    def close(self) -> None:
        """End every process where it is; twice is a no-op. No test has to let go of its locks first."""
        with warnings.catch_warnings():
            # A process that was killed has not released its locks.
            warnings.simplefilter("ignore", ResourceWarning)
            self.loop.close()
            gc.collect()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _NetworkFaults(FaultyBackend):
    """Faults whose late writes outlive the process that sent them, as on a real network."""

    def __init__(self, inner: Backend, network: Process, *, seed: int, clock: Clock) -> None:
        super().__init__(inner, seed=seed, clock=clock)
        self._network = network

    def spawn(self, stray: Coroutine[Any, Any, Any]) -> None:
        """Run a late write on the network."""
        self._network.start(stray)
