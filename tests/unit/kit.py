"""A store, machines and clients in virtual time, for tests that are about time and failure."""

from __future__ import annotations

import asyncio
import functools
import inspect
from random import Random
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

import pytest

import asynclock
from asynclock import ConfigError, Lease, LeaseSettings, LockClient
from asynclock._core.protocol.timing import Timing
from asynclock._core.record import LockRecord, parse_record
from asynclock.testing._clocks import EPOCH, VirtualClock
from asynclock.testing._faulty import FaultyBackend
from asynclock.testing._store import SimulatedStore, StoreProfile
from asynclock.testing._virtual import VirtualLoop

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from asynclock.events import Event
    from asynclock.testing._store import Operation

P = ParamSpec("P")
T = TypeVar("T")
SETTINGS = LeaseSettings(validity=10.0, safety_margin=1.0, max_clock_skew=1.0, poll_interval=0.25)
TIMING = Timing(SETTINGS, resolution=0.0)
BELIEF = 9.0
"""Validity less margin of ``SETTINGS``."""
FAST = LeaseSettings(validity=2.0, safety_margin=0.5, max_clock_skew=0.0)
ALWAYS = 10_000
"""How often a fault is injected that is not to end."""
KEY = "orders.json"
STEADY = StoreProfile(latency=(0.01, 0.0), slow=0.0)
"""Each request takes 20 ms, half of it each way, and the store's clock is right."""


class World:
    """One store in virtual time, and clients of it on machines of their own.

    Attributes:
        loop: Its time is true time.
        store: Its journal says what was applied.
        events: What the clients told, in order.
    """

    def __init__(self, profile: StoreProfile = STEADY) -> None:
        self.loop = VirtualLoop(seed=1)
        self.store = SimulatedStore(self.loop, Random(1), profile)
        self.events: list[Event] = []
        self._clients = 0

    def client(
        self,
        settings: LeaseSettings = SETTINGS,
        *,
        wall_error: float = 0.0,
        holder: str | None = None,
    ) -> LockClient:
        """Return a client on a machine whose wall clock is ``wall_error`` ahead."""
        self._clients += 1
        clock = VirtualClock(self.loop, offset=wall_error)
        backend = FaultyBackend(self.store.backend(self.loop.world), seed=self._clients, clock=clock)
        return LockClient(
            url="sim://store",
            backend=backend,
            settings=settings,
            renewal="loop",
            clock=clock,
            rng=Random(self._clients),
            events=self.events.append,
            holder=holder,
        )

    @property
    def now(self) -> float:
        """The true time, in epoch seconds."""
        return EPOCH + self.loop.time()

    def record(self, key: str = KEY) -> LockRecord:
        """Return the lock as it is in the store now."""
        body = self.store.body(key)
        assert body is not None
        return parse_record(body)

    def put(self, body: bytes, key: str = KEY) -> str:
        """Write an object by another hand and return its version."""
        self.store.serve("stranger", "put", key, body, None)
        return self.journal[-1].version or ""

    @property
    def journal(self) -> list[Operation]:
        """Every request that reached the store."""
        return self.store.journal

    def writes(self) -> list[Operation]:
        """Return the writes that changed a lock, in order."""
        return [each for each in self.journal if each.applied and each.kind.startswith("put")]

    def told(self) -> list[str]:
        """Return the kinds of the events so far."""
        return [event.kind for event in self.events]


def faulty(client: LockClient) -> FaultyBackend:
    """Return the client's backend, to inject faults."""
    assert isinstance(client.backend, FaultyBackend)
    return client.backend


def clock_of(client: LockClient) -> VirtualClock:
    """Return the clocks of the client's machine."""
    clock = client._core._objects.clock
    assert isinstance(clock, VirtualClock)
    return clock


def in_virtual_time(
    test: Callable[Concatenate[World, P], Coroutine[Any, Any, None]],
) -> Callable[Concatenate[World, P], None]:
    """Run an async test on the loop of its ``world``."""

    @functools.wraps(test)
    def run(world: World, *args: P.args, **kwargs: P.kwargs) -> None:
        world.loop.run_until_complete(test(world, *args, **kwargs))

    del run.__wrapped__  # type: ignore[attr-defined]  # else pytest-asyncio mistakes it for a coroutine
    run.__signature__ = inspect.signature(test)  # type: ignore[attr-defined]
    return run


async def until_lost(lease: Lease, limit: float = 60.0) -> float:
    """Wait until the lease is lost and return how long that took, to a hundredth of a second."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    while lease.held and loop.time() < began + limit:  # noqa: ASYNC110  a look is what finds it out
        await asyncio.sleep(0.01)
    assert not lease.held
    return loop.time() - began


def hudi_record(valid_until: float, *, expired: bool = False, owner: str = "hudi-writer") -> bytes:
    """Return the bytes that Hudi's own lock provider writes; ``valid_until`` in epoch seconds."""
    return LockRecord(expired=expired, valid_until_ms=round(valid_until * 1000), owner=owner).encode()


def our_record(
    *,
    valid_until: float,
    expired: bool = False,
    epoch: int = 1_600_000_000_000_000,
    lease_ms: int = 10_000,
    owner: str = "another",
    nonce: str = "0" * 32,
) -> bytes:
    """Return the bytes that another client of ours writes; ``valid_until`` in epoch seconds."""
    return LockRecord(
        expired=expired,
        valid_until_ms=round(valid_until * 1000),
        owner=owner,
        nonce=nonce,
        epoch=epoch,
        lease_ms=lease_ms,
        holder="host:1:other",
    ).encode()


async def unopened(*_: object) -> object:
    """What a backend does whose SDK client cannot be made."""
    raise ConfigError(setting="profile", value="prod", reason="there is no such profile")


def writes_by_us(world: World) -> list[tuple[Operation, LockRecord]]:
    """Return the writes of clients that changed the lock, and what they wrote."""
    return [(each, parse_record(each.body or b"")) for each in world.writes() if each.client != "stranger"]


async def while_renewing(lease: asynclock.Lease) -> None:
    """Wait until a renewal of the lease is under way."""
    while lease._held.renewer.running is None:  # noqa: ASYNC110  nothing tells of the sending
        await asyncio.sleep(0.001)


def start_eagerly(coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Start a task whose first step runs at once, as ``asyncio.eager_task_factory`` of Python 3.12 does."""
    loop, first_step = asyncio.get_running_loop(), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "call_soon", lambda step, **_: first_step.append(step))
        task: asyncio.Task[T] = asyncio.tasks._PyTask(coroutine, loop=loop)  # type: ignore[attr-defined]
    starter = asyncio.current_task()
    if starter is not None:
        asyncio._leave_task(loop, starter)
    try:
        first_step[0]()
    finally:
        if starter is not None:
            asyncio._enter_task(loop, starter)
    return task


async def steps(count: int) -> None:
    """Let the loop run ``count`` times."""
    for _ in range(count):
        await asyncio.sleep(0)


def refused(world: World) -> int:
    """Return how many writes the store refused."""
    return sum(each.kind.startswith("put") and not each.applied for each in world.journal)
