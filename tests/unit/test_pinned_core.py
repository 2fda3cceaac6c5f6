"""Lines below the rules that no other test would miss: store, reaper, clocks, line and handles."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from asynclock.protocol.terms import Terms
from asynclock.testing.faulty import Fault
from tests.unit.kit import SETTINGS, World, faulty, in_virtual_time

if TYPE_CHECKING:
    from collections.abc import Iterator

TERMS = Terms.of(SETTINGS, resolution=0.0)


@pytest.fixture
def world() -> Iterator[World]:
    """Return a store and machines in virtual time."""
    world = World()
    yield world
    world.loop.close()


# Freeing a lock.


@in_virtual_time
async def test_a_release_waits_for_the_stores_pace(world: World) -> None:
    """A lock that is freed at once after it was taken costs no refused write (GCS: one a second)."""
    async with world.client() as client:
        faulty(client).min_write_interval = 1.0
        lease = await client.lock("orders").acquire()
        await lease.release()

        taken, freed = [each.at for each in world.writes()]
        assert freed - taken >= 1.0 - 0.02


@in_virtual_time
async def test_a_release_that_finds_a_corrupt_record_leaves_it(world: World) -> None:
    """It is neither ours nor free: nothing is written over it, and nothing is tried again [3, 9]."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        world.put(b"{}")
        before = len(world.journal)

        await lease.release()
        await asyncio.sleep(5)

        assert [each.kind for each in world.journal[before:]] == ["put_if_match", "get"]
        assert world.store.body("orders.json") == b"{}"
        assert world.told() == ["acquired", "release_unconfirmed"]


@in_virtual_time
async def test_a_release_that_is_not_answered_begins_with_short_pauses(world: World) -> None:
    """A quarter of the poll interval, doubled each time: most failures pass in a moment [3]."""
    client = world.client()
    lease = await client.lock("orders").acquire()
    faulty(client).storm({Fault.UNAVAILABLE: 1.0})
    before = len(faulty(client).journal)
    await lease.release()

    tried = [each.at for each in faulty(client).journal[before:] if each.operation == "put_if_match"]
    gaps = [later - earlier for earlier, later in pairwise(tried)]
    for count, gap in enumerate(gaps[:4]):
        pause = TERMS.poll_interval / 4 * 2**count
        assert pause / 2 <= gap <= pause + 0.06


@in_virtual_time
async def test_a_late_renewal_is_freed_without_a_pause(world: World) -> None:
    """A release that was overtaken by a write of its own lease goes on at once, on what it found [3]."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        faulty(client).delay = (0.05, 0.05)
        faulty(client).inject(Fault.LATE, operation="put_if_match")
        await asyncio.sleep(1.06)

        began = world.now
        await lease.release()

        assert world.record().expired
        assert [each.applied for each in world.journal if each.kind == "put_if_match"] == [True, False, True]
        assert world.now - began == pytest.approx(0.06, abs=0.01)


# The line.


@pytest.mark.parametrize("turns", range(8))
@in_virtual_time
async def test_a_receiver_cancelled_in_any_turn_of_the_loop_leaves_the_line(world: World, turns: int) -> None:
    """The lock is freed, and nobody waits for who is gone [12]."""
    async with world.client() as client:
        lock = client.lock("orders")
        giver = await lock.acquire()
        receiving = asyncio.create_task(lock.acquire())
        await asyncio.sleep(0.1)
        releasing = asyncio.create_task(giver.release())
        for _ in range(turns):
            await asyncio.sleep(0)
        receiving.cancel()
        await asyncio.gather(releasing, receiving, return_exceptions=True)
        await asyncio.sleep(0.1)

        assert world.record().expired
        await (await lock.acquire(timeout=5)).release()


@in_virtual_time
async def test_what_was_freed_for_a_cancelled_receiver_is_remembered(world: World) -> None:
    """The next one acquires in one request: its client wrote last [13]."""
    async with world.client() as client:
        lock = client.lock("orders")
        giver = await lock.acquire()
        receiving = asyncio.create_task(lock.acquire())
        await asyncio.sleep(0.1)
        releasing = asyncio.create_task(giver.release())
        receiving.cancel()
        await asyncio.gather(releasing, receiving, return_exceptions=True)
        await asyncio.sleep(0.1)
        before = len(world.journal)

        await (await lock.acquire()).release()

        assert [each.kind for each in world.journal[before:]] == ["put_if_match"] * 2
