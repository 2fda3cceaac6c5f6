"""``at_least``: a release before the time is up leaves a record that keeps the lock held (rule 21)."""

from __future__ import annotations

import asyncio

import pytest

import asynclock
from asynclock import ConfigError, LeaseSettings, LeaseTakenOverError
from asynclock.testing._faulty import Fault
from tests.unit.kit import SETTINGS, World, faulty, in_virtual_time

NO_LONGER = SETTINGS.takeover_bound(0.0) - SETTINGS.validity
"""Seconds on top of what a record promises, within which a watching waiter has the lock."""


async def took_after(
    world: World, began: float, *, seconds: float = 200.0, settings: LeaseSettings = SETTINGS
) -> float:
    """Return how long after ``began`` another client gets the lock."""
    async with world.client(settings) as other, other.lock("orders").hold(timeout=seconds):
        return world.now - began


@in_virtual_time
@pytest.mark.parametrize("at_least", [0.05, 1.0, 7.0, 60.0])
async def test_a_lock_is_kept_for_at_least_as_long(world: World, at_least: float) -> None:
    """Another client gets it only after that time, and within the usual bound after it."""
    async with world.client() as client:
        async with client.lock("orders").hold(at_least=at_least):
            began = world.now
        released = world.now

    assert released - began < 1.0
    took = await took_after(world, began)
    assert at_least <= took <= max(at_least, 0.1) + NO_LONGER + 0.5


@in_virtual_time
async def test_nobody_renews_or_believes_in_the_kept_record(world: World) -> None:
    """After the release the lease is over, and nothing is written any more."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire(at_least=60.0)
        await lease.release()
        record, writes = world.record(), len(world.writes())
        await asyncio.sleep(30.0)

        assert (lease.held, lease.lost, record.expired) == (False, None, False)
        assert len(world.writes()) == writes
        assert record.owner == lease.owner
        assert record.epoch == lease.fencing_token
        assert record.lease_ms is not None
        assert 58_000 < record.lease_ms <= 60_000
        assert (await client.lock("orders").status()).state == "held"


@in_virtual_time
async def test_it_is_kept_from_waiters_of_the_same_client_too(world: World) -> None:
    """A release hands nothing over before the time is up, and a try at once gets nothing."""
    async with world.client() as client:
        lock = client.lock("orders")
        lease = await lock.acquire(at_least=20.0)
        began = world.now
        waiter = asyncio.create_task(lock.acquire())
        await asyncio.sleep(0.1)
        await lease.release()
        assert await lock.try_acquire() is None
        second = await waiter

        assert world.now - began >= 20.0
        assert second.fencing_token > lease.fencing_token


@in_virtual_time
async def test_a_release_after_the_time_frees_at_once(world: World) -> None:
    """Held for longer than that, nothing is kept."""
    async with world.client() as client:
        async with client.lock("orders").hold(at_least=3.0):
            await asyncio.sleep(5.0)

        assert world.record().expired


@in_virtual_time
async def test_closing_the_client_keeps_it_too(world: World) -> None:
    """No process needs to stay: what closes the client keeps the lock as a release does."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire(at_least=30.0)
        began = world.now

    assert not lease.held
    assert world.now - began < 3.0
    assert await took_after(world, began) >= 30.0


@in_virtual_time
@pytest.mark.parametrize("fault", [Fault.REPLY_LOST, Fault.REQUEST_LOST, Fault.LATE, Fault.OWN_412])
async def test_a_release_whose_answer_is_lost_keeps_it(world: World, fault: Fault) -> None:
    """The kept record, read back, is recognized by its nonce: no loss, no second write that frees it."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire(at_least=40.0)
        began = world.now
        faulty(client).inject(fault, operation="put_if_match")
        await lease.release()
        assert lease.lost is None

    assert await took_after(world, began) >= 40.0


@in_virtual_time
async def test_a_kept_record_can_be_judged_where_the_last_date_is_old(world: World) -> None:
    """A lease so long that store time is not carried from one renewal to the next asks for it first."""
    settings = LeaseSettings(validity=36_000.0, max_clock_skew=1.0)
    async with world.client(settings) as client, client.lock("orders").hold(at_least=1020.0):
        began = world.now
        await asyncio.sleep(1000.0)

    took = await took_after(world, began, settings=settings)
    assert 1020.0 <= took <= 1020.0 + settings.takeover_bound(0.0) - settings.validity + 0.5


@in_virtual_time
async def test_a_loss_is_found_by_a_release_that_keeps(world: World) -> None:
    """A broken lock is a loss, and stays free."""
    async with world.client() as client, world.client() as operator:
        lock = operator.lock("orders")
        lease = await client.lock("orders").acquire(at_least=60.0)
        await lock.break_lock(await lock.status(), force=True)
        with pytest.raises(LeaseTakenOverError):
            await lease.release()

    assert world.record().expired


@in_virtual_time
async def test_an_operator_can_break_a_kept_lock(world: World) -> None:
    """By force, as any live lock."""
    async with world.client() as client:
        lock = client.lock("orders")
        async with lock.hold(at_least=1000.0):
            pass
        assert (await lock.break_lock(await lock.status(), force=True)).state == "free"
        async with lock.hold(timeout=2.0) as lease:
            assert lease.held


@in_virtual_time
async def test_a_cancelled_acquisition_keeps_nothing(world: World) -> None:
    """What nobody got is freed at once."""
    async with world.client() as client:
        for steps in range(20):
            task = asyncio.create_task(client.lock("orders").acquire(at_least=500.0))
            await asyncio.sleep(steps * 0.002)
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled()
            assert world.store.body("orders.json") is None or world.record().expired


@pytest.mark.parametrize("at_least", [-1, float("nan"), 604_801, "3"], ids=repr)
async def test_a_bad_time_is_refused_before_anything_is_written(at_least: object) -> None:
    """At least is a number of seconds, 0 to 7 days."""
    async with asynclock.connect("memory://", renewal="loop") as client:
        with pytest.raises(ConfigError, match="0 to 7 days"):
            client.lock("orders").hold(at_least=at_least)  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="0 to 7 days"):
            await client.lock("orders").acquire(at_least=at_least)  # type: ignore[arg-type]

        assert (await client.lock("orders").status()).state == "absent"


@in_virtual_time
async def test_the_longest_time_is_readable(world: World) -> None:
    """Seven days are within the bounds of a record for every reader."""
    async with world.client() as client, world.client() as other:
        async with client.lock("orders").hold(at_least=604_800):
            pass
        status = await other.lock("orders").status()

    assert status.state == "held"
    assert status.remaining is not None
    assert status.remaining > 604_000
