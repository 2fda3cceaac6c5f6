"""Many leases of one client: one look a second at all of them, and renewals that do not come in crowds."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from asynclock import LeaseSettings
from asynclock._core.protocol.schedule import CROWD
from asynclock.testing._faulty import Fault
from tests.unit.kit import STEADY, World, clock_of, faulty, in_virtual_time

if TYPE_CHECKING:
    from asynclock import Lease, LockClient

INTERVAL = 30.0
ROUND_TRIP = 0.02
MANY = LeaseSettings(renew_interval=INTERVAL)
LEASES = 1200
EVEN = LEASES / INTERVAL
"""Renewals a second if they are spread evenly."""


async def acquire(client: LockClient, count: int) -> list[Lease]:
    """Acquire that many locks at the same time."""
    return await asyncio.gather(*(client.lock(f"many/{number}").acquire() for number in range(count)))


def renewals(world: World, since: float) -> list[float]:
    """Return when the locks were written from then on."""
    return [each.at for each in world.writes() if each.at >= since]


def busiest_second(times: list[float]) -> int:
    """Return the most renewals in one second."""
    return max(Counter(int(at) for at in times).values())


def test_the_store_of_this_file_answers_within_its_round_trip() -> None:
    """The constants of these tests fit their store."""
    assert sum(STEADY.latency) * 2 == ROUND_TRIP


@in_virtual_time
async def test_all_leases_have_one_timer_until_something_is_due(world: World) -> None:
    """A second timer is set only for what is due before the next look."""
    async with world.client(MANY) as client:
        _leases = await acquire(client, LEASES)
        await asyncio.sleep(2.0)

        assert len(world.loop.timers()) == 1


@in_virtual_time
async def test_leases_that_were_acquired_together_are_renewed_apart(world: World) -> None:
    """Their renewals are spread over most of the interval, all but the few that are no crowd yet."""
    async with world.client(MANY) as client:
        _leases = await acquire(client, LEASES)
        began = world.loop.time()
        await asyncio.sleep(4 * INTERVAL)

        assert busiest_second(renewals(world, began)) <= CROWD + 2 * EVEN


@in_virtual_time
async def test_no_renewal_of_a_crowd_is_later_than_the_interval(world: World) -> None:
    """Each lease is renewed an interval after its last write at the latest, and then keeps its place."""
    async with world.client(MANY) as client:
        _leases = await acquire(client, LEASES)
        await asyncio.sleep(4 * INTERVAL)

        times = defaultdict(list)
        for write in world.writes():
            times[write.key].append(write.at)
        pauses = [[later - earlier for earlier, later in pairwise(each)] for each in times.values()]
        assert all(INTERVAL / 4 <= each[0] <= INTERVAL + ROUND_TRIP for each in pauses)
        kept = [pause for each in pauses for pause in each[1:] if pause > INTERVAL - 1]
        assert max(kept) <= INTERVAL + ROUND_TRIP
        assert len(kept) >= 0.95 * sum(len(each) - 1 for each in pauses)


@in_virtual_time
async def test_a_few_leases_are_not_renewed_early(world: World) -> None:
    """That many writes at once are no crowd, and cost no renewal more."""
    async with world.client(MANY) as client:
        _leases = await acquire(client, CROWD)
        began = world.loop.time()
        await asyncio.sleep(INTERVAL - 0.1)
        assert renewals(world, began) == []
        await asyncio.sleep(0.2)
        assert len(renewals(world, began)) == CROWD


@in_virtual_time
async def test_renewals_that_a_stall_has_gathered_spread_again(world: World) -> None:
    """What comes at once after half an interval without a run is renewed apart from the next time on."""
    async with world.client(MANY) as client:
        _leases = await acquire(client, LEASES)
        await asyncio.sleep(2 * INTERVAL)
        stalled_at = world.loop.time()
        world.loop.now += INTERVAL / 2
        await asyncio.sleep(3 * INTERVAL)

        after = renewals(world, stalled_at)
        assert busiest_second(after) >= LEASES / 3  # what was due meanwhile
        assert busiest_second([at for at in after if at > stalled_at + INTERVAL]) <= CROWD + 2 * EVEN


@in_virtual_time
async def test_a_lock_that_is_acquired_all_the_time_makes_no_crowd_of_the_others(world: World) -> None:
    """The leases beside it are renewed once an interval."""
    async with world.client(MANY) as client:
        _leases = await acquire(client, 2 * CROWD)
        await asyncio.sleep(INTERVAL)
        began = world.loop.time()
        while world.loop.time() < began + INTERVAL:
            await (await client.lock("hot").acquire()).release()

        others = [each for each in world.writes() if each.at >= began and each.key != "hot.json"]
        assert len(others) == pytest.approx(2 * CROWD, rel=0.05)


@in_virtual_time
async def test_a_step_of_the_wall_clock_ends_all_leases_within_a_second(world: World) -> None:
    """No timer of the loop tells of it: the next look does, for leases of which nothing else is due."""
    client = world.client(MANY)
    leases = await acquire(client, LEASES)
    await asyncio.sleep(2.0)
    clock_of(client).step(MANY.validity)
    await asyncio.sleep(1.0)

    assert Counter(world.told())["lost"] == len(leases)


@in_virtual_time
async def test_each_lease_ends_at_its_own_deadline(world: World) -> None:
    """Losses are told at the deadline, not at the next look."""
    client = world.client(MANY)
    faulty(client).inject(Fault.REQUEST_LOST, operation="put_if_match", times=100_000)
    assert MANY.safety_margin is not None
    leases = []
    for number in range(20):
        leases.append(await client.lock(f"many/{number}").acquire())
        await asyncio.sleep(0.137)
    deadlines = [world.now + lease.remaining() for lease in leases]
    await asyncio.sleep(MANY.validity)

    lost = [event.time for event in world.events if event.kind == "lost"]
    assert lost == pytest.approx(deadlines, abs=0.01)


@in_virtual_time
async def test_a_stall_is_told_of_each_lease_before_its_loss(world: World) -> None:
    """Every lease that was held all the while tells it, whichever of them is looked at first."""
    client = world.client(MANY)
    leases = []
    for number in range(5):
        leases.append(await client.lock(f"many/{number}").acquire())
        await asyncio.sleep(0.1)
    await asyncio.sleep(INTERVAL - 0.8)  # so that the renewal of the first is due before the next look
    world.loop.now += MANY.validity
    await asyncio.sleep(1.0)

    for lease in leases:
        told = [event.kind for event in world.events if event.key == lease.key]
        assert told[-2:] == ["stalled", "lost"]


@in_virtual_time
async def test_a_stall_is_not_told_of_a_lease_that_began_after_it(world: World) -> None:
    """A lock that was acquired right after a stall, ahead of the look that finds it, was not held in it."""
    async with world.client(MANY) as client:
        _before = await client.lock("before").acquire()
        await asyncio.sleep(6.0)
        _after = await client.lock("after").acquire()
        client._core._schedule._look(None, clock_of(client).boot() - 5.0)

        assert [event.key for event in world.events if event.kind == "stalled"] == ["before.json"]
