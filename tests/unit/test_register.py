"""A reservation rests on names that are known: it holds whatever a listing shows, in virtual time."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from functools import partial
from random import Random
from threading import Event
from typing import TYPE_CHECKING

import pytest

from asynclock import BackendError, LeaseLostError, LeaseSettings, RecordCorruptError
from asynclock.backend import MAX_BODY
from asynclock.errors import ConfigError
from asynclock.spark.work.passage import Passage
from asynclock.spark.work.register import REGISTER, RESERVATION_LOCK, Register
from asynclock.testing import Fault, VirtualWorld
from asynclock.testing._store import StoreProfile
from tests.unit.kit import ALWAYS, World, faulty, in_virtual_time

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from asynclock import Lease, LockClient
    from asynclock.backend import Entry
    from asynclock.testing._virtual import Process
    from asynclock.testing._world import FaultyClient

SETTINGS = LeaseSettings(validity=1.0, max_clock_skew=0.1, poll_interval=0.05)
QUICK = StoreProfile(latency=(0.002, 0.01), slow=0.0)
LASTS = 15.0
"""Seconds of a play."""


class Play:
    """Workers and jobs on one table, whose listings are made of ``entries``.

    Attributes:
        met: How often each thing happened.
        overlaps: Who was at work in whose reservation.
    """

    def __init__(self, seed: int, entries: Callable[[list[Entry]], list[Entry]]) -> None:
        self.met: Counter[str] = Counter()
        self.overlaps: list[str] = []
        self._world = VirtualWorld(seed=seed, settings=SETTINGS, profile=QUICK)
        self._rng = Random(seed)
        self._entries = entries
        self._working: list[Lease] = []
        self._alone: list[Lease] = []

    def run(self) -> None:
        """Play it to its end; workers are killed at any moment and come back."""
        world = self._world
        with world:
            for number in range(3):
                world.loop.world.start(self._lives(f"worker-{number}", self._work))
            world.loop.world.start(self._lives("job", self._reserve))
            world.advance(LASTS)
            # The world ends the leases of the killed, unless somebody still knows them.
            self._working.clear()
            self._alone.clear()

    async def _lives(self, name: str, act: Callable[[Process, str], object]) -> None:
        for life in range(1_000):
            process = self._world.process(f"{name}-{life}")
            process.start(act(process, name))  # type: ignore[arg-type]
            await asyncio.sleep(self._rng.uniform(0.1, 8.0))
            process.kill()

    def _client(self, process: Process, holder: str | None = None) -> FaultyClient:
        client = self._world.client(process)
        client.backend.storm({Fault.REPLY_LOST: 0.02, Fault.LATE: 0.02, Fault.REQUEST_LOST: 0.02})
        blind(client, self._entries)
        client._core._objects.issuer.holder = holder or process.name
        return client

    def _parking(self, process: Process, holder: str) -> LockClient:
        """Return a client whose writes mostly fail: what it leaves behind must count for nothing."""
        client = self._client(process, holder)
        client.backend.storm({Fault.UNAVAILABLE: 0.3, Fault.LATE: 0.2, Fault.REPLY_LOST: 0.1})
        return client

    async def _work(self, process: Process, who: str) -> None:
        client = self._client(process)
        while True:
            name = f"stream/{who}-{self._rng.randrange(5)}"
            with suppress(LeaseLostError):
                async with await client.lock(name).acquire() as lease:
                    passage = Passage(client, lease, partial(self._parking, process), who)
                    self.met["parked"] += await passage.passed(Event()) > 0
                    self._working.append(lease)
                    self._check(lease, self._alone, "worked")
                    await asyncio.sleep(self._rng.uniform(0.0, 0.5))
            await asyncio.sleep(self._rng.uniform(0.0, 0.1))

    async def _reserve(self, process: Process, _: str) -> None:
        client = self._client(process)
        register = Register(client._core)
        while True:
            async with await client.lock(RESERVATION_LOCK).acquire() as lease:
                try:
                    while any(each.state == "held" for each in (await register.at_work()).values()):
                        self.met["waited"] += 1
                        await asyncio.sleep(0.05)
                except BackendError:
                    continue
                if lease.held:
                    self._alone.append(lease)
                    self._check(lease, self._working, "reserved")
                    await asyncio.sleep(self._rng.uniform(0.0, 0.3))
            await asyncio.sleep(self._rng.uniform(0.0, 0.6))

    def _check(self, lease: Lease, others: list[Lease], what: str) -> None:
        self.met[what] += 1
        others[:] = [other for other in others if other.held]
        self.overlaps += [f"{lease.name} with {other.name}" for other in others]


def blind(client: LockClient, entries: Callable[[list[Entry]], list[Entry]]) -> None:
    """Have its listings show what ``entries`` makes of them."""
    inner = client.backend.list

    async def listed(prefix: str) -> AsyncIterator[Entry]:
        for entry in entries([each async for each in inner(prefix)]):
            yield entry

    client.backend.list = listed  # type: ignore[method-assign]


def of_none(_: list[Entry]) -> list[Entry]:
    """A listing that shows nothing."""
    return []


def stale(entries: list[Entry]) -> list[Entry]:
    """A listing as of a time when the first lock was all that there was."""
    return entries[:1]


@pytest.mark.parametrize("entries", [of_none, stale])
def test_nobody_works_in_a_reservation_whatever_a_listing_shows(
    entries: Callable[[list[Entry]], list[Entry]],
) -> None:
    """Workers with new names announce themselves, are killed at any moment, park and go on."""
    play = Play(len(entries.__name__), entries)
    play.run()

    assert play.overlaps == []
    assert all(play.met[what] >= 5 for what in ("parked", "reserved", "waited", "worked")), play.met


@in_virtual_time
async def test_of_a_worker_and_a_job_at_any_distance_one_sees_the_other(world: World) -> None:
    """However their requests fall together, and though no listing shows anything."""
    async with world.client() as one, world.client() as other:
        for client in (one, other):
            blind(client, of_none)
        seen = Counter(
            [await meet(one, other, f"stream/{step}", step / 100) for step in range(-16, 17)],
        )
    assert seen.keys() == {(True, False), (False, True), (True, True)}


async def meet(worker: LockClient, job: LockClient, name: str, later: float) -> tuple[bool, bool]:
    """Let both announce themselves and look; return whether each saw the other, the worker first."""
    both_have_looked = asyncio.Barrier(2)

    async def work() -> bool:
        await asyncio.sleep(max(0.0, -later))
        async with worker.lock(name).hold():
            reserved = await Register(worker._core).announce(name)
            await both_have_looked.wait()
        return reserved is not None

    async def reserve() -> bool:
        await asyncio.sleep(max(0.0, later))
        async with job.lock(RESERVATION_LOCK).hold():
            found = await Register(job._core).at_work()
            await both_have_looked.wait()
        return name in found

    saw_job, saw_worker = await asyncio.gather(work(), reserve())
    return saw_job, saw_worker


@in_virtual_time
async def test_the_first_announcement_is_a_read_a_write_and_a_look(world: World) -> None:
    """Later ones, by any client, are one read more than the look."""
    async with world.client() as one, world.client() as other:
        began = len(world.journal)
        assert await Register(one._core).announce("stream/a") is None
        await Register(other._core).announce("stream/a")

        look = ("get", "reservation/table.json")
        assert [(each.kind, each.key) for each in world.journal[began:]] == [
            ("get", REGISTER),
            ("put_if_absent", REGISTER),
            look,
            ("get", REGISTER),
            look,
        ]


@in_virtual_time
async def test_a_worker_of_a_version_without_a_register_is_seen_by_the_listing(world: World) -> None:
    """It announces no name, and the register of the others lacks it."""
    async with world.client() as old, world.client() as new:
        await Register(new._core).announce("stream/b")
        async with old.lock("stream/a").hold() as lease:
            found = await Register(new._core).at_work()
            assert {name: status.owner for name, status in found.items()} == {"stream/a": lease.owner}


@in_virtual_time
async def test_names_that_come_at_once_are_all_entered(world: World) -> None:
    """Each is written over the others' or after them, with answers lost and writes late."""
    names = [f"stream/{number}" for number in range(8)]
    clients = [world.client() for _ in names]

    async def pass_through(client: LockClient, name: str) -> None:
        async with client.lock(name).hold() as lease:
            faulty(client).inject(Fault.REPLY_LOST, operation="put_if_match", nth=2)
            faulty(client).storm({Fault.LATE: 0.3, Fault.CONFLICT: 0.3})
            await Passage(client, lease, nobody_parks, name).passed(Event())

    await asyncio.gather(*map(pass_through, clients, names))
    for client in clients:
        faulty(client).calm()
        await client.aclose()
    body = world.store.body(REGISTER)
    assert body is not None
    assert all(f'"{name}"'.encode() in body for name in names)


def nobody_parks(_: str) -> LockClient:
    """No second lease is taken."""
    raise AssertionError


@in_virtual_time
async def test_a_name_is_announced_only_once_the_store_has_confirmed_it(world: World) -> None:
    """As long as its write is refused or lost, the call does not look, and ends in its error."""
    async with world.client() as client:
        faulty(client).inject(Fault.REQUEST_LOST, operation="put_if_absent", times=ALWAYS)
        began = len(world.journal)
        with pytest.raises(BackendError):
            await Register(client._core).announce("stream/a")
        assert {each.key for each in world.journal[began:]} == {REGISTER}


@pytest.mark.parametrize(
    "body",
    [b"", b"{}", b"[]", b'{"names":"stream"}', b'{"names":["a b"]}', b'{"names":[1]}', b" " * (MAX_BODY + 1)],
)
@in_virtual_time
async def test_a_register_that_is_none_is_refused(world: World, body: bytes) -> None:
    """Neither a worker nor a job goes on, and nothing is written."""
    async with world.client() as client:
        world.put(body, REGISTER)
        began = len(world.writes())
        for call in (Register(client._core).announce("stream/a"), Register(client._core).at_work()):
            with pytest.raises(RecordCorruptError, match="'reservation/register' is corrupt"):
                await call
        assert len(world.writes()) == began


@in_virtual_time
async def test_a_register_that_is_full_is_refused(world: World) -> None:
    """No reader would take more than 64 KiB."""
    names = ",".join(f'"stream/{"x" * 400}{number}"' for number in range(158))
    async with world.client() as client:
        world.put(f'{{"names":[{names}]}}'.encode(), REGISTER)
        await Register(client._core).announce("stream/short")
        with pytest.raises(ConfigError, match="no room for another name after 159; nothing was written"):
            await Register(client._core).announce("stream/" + "y" * 400)
