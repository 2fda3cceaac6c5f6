"""Taking over the lock of a dead holder, and never that of a live one (rule 8)."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from asynclock import AcquireTimeoutError
from asynclock._core.record import LockRecord
from asynclock.testing._store import StoreProfile
from tests.unit.kit import SETTINGS, World, in_virtual_time, our_record


@in_virtual_time
async def test_a_dead_holder_is_taken_over_within_the_bound(world: World) -> None:
    """A watching waiter has the lock ``takeover_bound`` and two round trips after the last write."""
    async with world.client() as client:
        dead = world.put(our_record(valid_until=world.now + 11))
        began = world.loop.time()
        lease = await client.lock("orders").acquire()
        took = world.loop.time() - began

        assert dead
        assert lease.held
        assert 10.0 <= took <= client.settings.takeover_bound(0.0) + 0.04
        assert lease.fencing_token > 1_600_000_000_000_000


@in_virtual_time
async def test_a_wrong_wall_clock_takes_over_by_observation_only(world: World) -> None:
    """With a wall clock that is off, a dead holder's lock is freed by watching it for L."""
    async with world.client(wall_error=3600.0) as client:
        world.put(our_record(valid_until=world.now - 100))
        await asyncio.sleep(50.0)
        began = world.loop.time()
        lease = await client.lock("orders").acquire()

        assert lease.held
        assert world.loop.time() - began >= 10.0


@in_virtual_time
async def test_a_holder_that_met_only_a_wrong_node_keeps_its_lock(world: World) -> None:
    """Date, ``validUntil`` and ``last_modified`` agree on a minute ago: nobody judges by them."""
    right = world.store.profile
    world.store.profile = replace(right, nodes=(-60.0,))
    async with world.client() as holder, world.client() as other:
        lease = await holder.lock("orders").acquire()
        world.store.profile = right
        with pytest.raises(AcquireTimeoutError):
            await other.lock("orders").acquire(timeout=0)
        assert lease.held

        holder._core._schedule.close()  # nothing renews it any more
        limit = SETTINGS.validity + 2 * SETTINGS.poll_interval + 1.0
        successor = await other.lock("orders").acquire(timeout=limit)
        assert successor.held
        assert not lease.held


@in_virtual_time
async def test_observation_belongs_to_the_client(world: World) -> None:
    """Many short attempts finish an observation that no single one would."""
    async with world.client(wall_error=3600.0) as client:
        world.put(our_record(valid_until=world.now - 100))
        lock = client.lock("orders")
        for _ in range(12):
            with pytest.raises(AcquireTimeoutError):
                await lock.acquire(timeout=0.8)
            if world.loop.time() > 10.0:
                break
        lease = await lock.acquire(timeout=3.0)

        assert lease.held


@in_virtual_time
async def test_a_live_holder_is_never_taken_over(world: World) -> None:
    """A lease that is renewed lives on under waiters, for ten validities."""
    async with world.client() as holder, world.client() as waiter, world.client(wall_error=0.9) as other:
        lease = await holder.lock("orders").acquire()
        for client in (waiter, other):
            with pytest.raises(AcquireTimeoutError) as caught:
                await client.lock("orders").acquire(timeout=50.0)
            assert caught.value.status is not None
            assert caught.value.status.owner == lease.owner

        assert lease.held


@pytest.mark.parametrize(
    "profile", [StoreProfile(latency=(0.01, 0.0), slow=0.0, last_modified=False)], ids=["no Last-Modified"]
)
@in_virtual_time
async def test_a_dead_hudi_holder_is_replaced_on_a_store_without_last_modified(world: World) -> None:
    """Counted from the Date by which its record was first seen."""
    async with world.client() as client:
        world.put(LockRecord(False, round((world.now + 5.0) * 1000), "dead").encode())
        began = world.now
        lease = await asyncio.wait_for(client.lock("orders").acquire(), 60.0)

        assert lease.held
        assert world.now - began > client.settings.validity


@pytest.mark.parametrize("forgotten", [False, True])
@in_virtual_time
async def test_what_a_client_forgets_makes_no_takeover_earlier(
    world: World, monkeypatch: pytest.MonkeyPatch, *, forgotten: bool
) -> None:
    """Other names in between end no observation; one that is forgotten all the same begins again."""
    monkeypatch.setattr("asynclock._core.engine.KEPT", 4)
    async with world.client(wall_error=3600.0) as client:
        world.put(our_record(valid_until=world.now - 100))
        lease, began = None, world.loop.time()
        while lease is None and world.loop.time() < began + 15.0:
            lease = await client.lock("orders").try_acquire()
            for number in range(40):
                client.lock(f"{world.loop.time()}/{number}")
            if forgotten:
                client._core._engines._kept.clear()
            await asyncio.sleep(0.5)

        assert (lease is None) == forgotten
        assert world.loop.time() - began >= 10.0
