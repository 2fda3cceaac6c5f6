"""Locks on stores of clouds in virtual time: the shipped code, with latencies that others measured there."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any, Final

from asynclock import LeaseSettings
from asynclock._cli.cost import PRICES
from asynclock.testing import SimulatedStore, StoreProfile, VirtualWorld
from asynclock.testing._store import SimulatedBackend

if TYPE_CHECKING:
    from asynclock import Lease, LockClient
    from asynclock.testing import Process

ACQUISITIONS: Final = 200
HAND_OVERS: Final = 100
MEMBERS: Final = 10
LOCKS: Final = 500
KILLED: Final = 2
_HOUR: Final = 3600.0
_TAIL: Final = 2.326
"""How many standard deviations above the mean the 99th percentile of a normal distribution is."""


@dataclass(frozen=True, kw_only=True)
class Cloud:
    """A store as others measured it, and as it is paid for.

    Attributes:
        median: Seconds of a conditional write of one object, in its region; reads count as slow.
        tail: The 99th percentile of these seconds.
        write: Dollars of a million writes.
        read: Dollars of a million reads.
        generations: Whether versions count up, as on Cloud Storage; else they are hashes.
        writes_every: Seconds between two writes of one object that the store takes.
    """

    median: float
    tail: float
    write: float
    read: float
    generations: bool = False
    writes_every: float = 0.0


# Latencies: https://cdouglas.github.io/posts/2026/01/conditional. Cloud Storage has the tail of Azure here:
# what was measured there, seconds, comes from its limit of writes to one object. Prices: those of `asynclock
# cost`, and for S3 Express One Zone the examples of https://aws.amazon.com/s3/faqs/ (US East, 2025).
CLOUDS: Final = {
    "S3 Standard": Cloud(median=0.065, tail=0.112, write=PRICES["s3"].write, read=PRICES["s3"].read),
    "S3 Express": Cloud(median=0.0145, tail=0.0177, write=1.13, read=0.03),
    "Azure": Cloud(median=0.095, tail=0.231, write=PRICES["az"].write, read=PRICES["az"].read),
    "Cloud Storage": Cloud(
        median=0.173,
        tail=0.173 * 231 / 95,
        write=PRICES["gs"].write,
        read=PRICES["gs"].read,
        generations=True,
        writes_every=1.0,
    ),
}


def acquisitions(cloud: Cloud) -> tuple[list[float], list[float]]:
    """Return seconds of acquisitions by new clients, and of those by the client that released last."""

    async def play() -> tuple[list[float], list[float]]:
        first, again = [], []
        for number in range(ACQUISITIONS):
            async with world.client() as before:
                lease = await before.lock(f"{number}").acquire()
                await asyncio.sleep(_pause(cloud))
                await lease.release()
            await asyncio.sleep(_pause(cloud))
            async with world.client() as client:
                for seconds in (first, again):
                    began = world.loop.time()
                    lease = await client.lock(f"{number}").acquire()
                    seconds.append(world.loop.time() - began)
                    await asyncio.sleep(_pause(cloud))
                    await lease.release()
                    await asyncio.sleep(_pause(cloud))
        return first, again

    with _world(cloud, LeaseSettings()) as world:
        return world.run(play())


def hand_overs(cloud: Cloud, settings: LeaseSettings) -> list[float]:
    """Return seconds from the call of a release until a waiter in another process has the lock."""

    async def play() -> list[float]:
        waits = []
        rng = Random(2)
        async with world.client() as one, world.client() as other:
            lease = await one.lock("handed").acquire()
            for number in range(HAND_OVERS):
                waiter = (other, one)[number % 2]
                waiting = asyncio.create_task(waiter.lock("handed").acquire())
                await asyncio.sleep(rng.uniform(2, 20))
                began = world.loop.time()
                await lease.release()
                lease = await waiting
                waits.append(world.loop.time() - began)
            await lease.release()
        return waits

    with _world(cloud, settings) as world:
        return world.run(play())


def takeovers(cloud: Cloud, settings: LeaseSettings, *, locks: int = LOCKS) -> list[float]:
    """Return seconds from the end of 2 of 10 processes until each of their locks is held again.

    Each lock is acquired at a moment of its own, and another process waits for it all the time. Only those
    that wait for a lock of a dead process are played: the others change nothing here.
    """
    rng = Random(3)
    taken: list[float] = []
    all_taken = asyncio.Event()

    async def hold(client: LockClient, name: str, delay: float) -> None:
        await asyncio.sleep(delay)
        await _keep(await client.lock(name).acquire())

    async def stand_by(client: LockClient, name: str) -> None:
        await asyncio.sleep(rng.random())
        lease = await client.lock(name).acquire()
        taken.append(world.loop.time())
        if len(taken) == locks // MEMBERS * KILLED:
            all_taken.set()
        await _keep(lease)

    async def play() -> float:
        processes = [world.process(f"member-{number}") for number in range(MEMBERS)]
        clients = [world.client(process) for process in processes]
        dead = rng.sample(range(MEMBERS), KILLED)
        alive = [number for number in range(MEMBERS) if number not in dead]
        for lock in range(locks):
            holder = lock % MEMBERS
            delay = rng.uniform(0, settings.renew_interval)
            processes[holder].start(hold(clients[holder], f"{lock}", delay))
        await asyncio.sleep(settings.renew_interval + 1)
        for lock in (lock for lock in range(locks) if lock % MEMBERS in dead):
            waiter = rng.choice(alive)
            processes[waiter].start(stand_by(clients[waiter], f"{lock}"))
        await asyncio.sleep(settings.renew_interval + 2)  # so each waiter has seen the version of now begin
        for number in dead:
            processes[number].kill()
        killed = world.loop.time()
        await all_taken.wait()
        return killed

    with _world(cloud, settings) as world:
        killed = world.run(play())
    return [at - killed for at in taken]


@dataclass(frozen=True, kw_only=True)
class Day:
    """What a day costs.

    Attributes:
        writes: Of one process that holds a lock all day.
        writes_dollars: Their price.
        reads: Of one process that waits for it all day.
        reads_dollars: Their price.
    """

    writes: float
    writes_dollars: float
    reads: float
    reads_dollars: float


def day(cloud: Cloud, settings: LeaseSettings) -> Day:
    """Count the requests of an hour in which one process holds a lock and another one waits for it."""

    async def play() -> tuple[int, int]:
        async with world.client() as one, world.client() as other:
            lease = await one.lock("held").acquire()
            waiting = asyncio.create_task(other.lock("held").acquire())
            await asyncio.sleep(10)
            before = len(world.store.journal)
            await asyncio.sleep(_HOUR)
            kinds = [operation.kind == "get" for operation in world.store.journal[before:]]
            await lease.release()
            await (await waiting).release()
        return len(kinds) - sum(kinds), sum(kinds)

    with _world(cloud, settings) as world:
        writes, reads = (24 * number for number in world.run(play()))
    return Day(
        writes=writes,
        writes_dollars=writes * cloud.write / 1e6,
        reads=reads,
        reads_dollars=reads * cloud.read / 1e6,
    )


async def _keep(lease: Lease) -> None:
    """Hold a lease to the end of its process."""
    while lease.held:
        await asyncio.Event().wait()


def _pause(cloud: Cloud) -> float:
    """So long that the store takes the next write at once."""
    return 2 * cloud.writes_every + 1


def _world(cloud: Cloud, settings: LeaseSettings) -> VirtualWorld:
    profile = StoreProfile(
        resolution=1.0,
        versions="generation" if cloud.generations else "content",
        write_interval=cloud.writes_every,
    )
    world = VirtualWorld(settings=settings, profile=profile)
    world.store = _Store(world, cloud, profile)
    return world


class _Store(SimulatedStore):
    """The simulated store, whose answers take as long as those of a cloud."""

    def __init__(self, world: VirtualWorld, cloud: Cloud, profile: StoreProfile) -> None:
        super().__init__(world.loop, Random(1), profile)
        self._rng = Random(1)
        self._median = math.log(cloud.median)
        self._spread = math.log(cloud.tail / cloud.median) / _TAIL

    def backend(self, process: Process) -> SimulatedBackend:
        """Return the store as ``process`` reaches it."""
        return _Backend(self, process)

    def delay(self) -> float:
        """Draw the seconds from a request to its answer."""
        return self._rng.lognormvariate(self._median, self._spread)


class _Backend(SimulatedBackend):
    """It draws the delay of a request once, and half of it is the way there."""

    _store: _Store

    def _send(self, kind: str, key: str, body: bytes | None, base: str | None) -> asyncio.Future[Any]:
        loop = self._store.loop
        answer: asyncio.Future[Any] = loop.create_future()
        way = self._store.delay() / 2

        def serve() -> None:
            result = self._store.serve(self._process.name, kind, key, body, base)
            loop.call_later_as(self._process, way, deliver, result)

        def deliver(result: Any) -> None:  # noqa: ANN401  whatever serve returned
            if answer.done():
                return
            if isinstance(result, Exception):
                answer.set_exception(result)
            else:
                answer.set_result(result)

        loop.call_later_as(self._store.network, way, serve)
        return answer
