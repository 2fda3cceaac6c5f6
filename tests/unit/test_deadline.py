"""The end of a lease that is not renewed: by the largest clock, and nothing revives it (rule 5)."""

from __future__ import annotations

import asyncio

import pytest

import asynclock
from asynclock import LeaseExpiredError, LeaseLostError, LeaseSettings, LockClient
from asynclock.testing._faulty import Fault
from tests.unit.kit import (
    ALWAYS,
    BELIEF,
    SETTINGS,
    World,
    clock_of,
    faulty,
    in_virtual_time,
    until_lost,
    while_renewing,
)


def test_the_settings_of_this_file_leave_nine_seconds_of_belief() -> None:
    """The constants of these tests fit their settings."""
    assert SETTINGS.safety_margin is not None
    assert SETTINGS.validity - SETTINGS.safety_margin == BELIEF


@in_virtual_time
async def test_belief_counts_from_the_sending(world: World) -> None:
    """Right after an acquisition, validity less margin and less the round trip remain."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire()

        assert lease.remaining() == pytest.approx(BELIEF - 0.02)
        assert lease.held
        assert lease.lost is None


@in_virtual_time
async def test_a_step_of_the_wall_clock_ends_belief(world: World) -> None:
    """Belief ends by the largest clock, and the loss says that the deadline passed."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        clock_of(client).step(BELIEF + 0.01)

        assert not lease.held
        assert isinstance(lease.lost, LeaseExpiredError)
        with pytest.raises(LeaseExpiredError):
            lease.check()


@in_virtual_time
async def test_a_suspended_machine_loses_its_lease(world: World) -> None:
    """The monotonic clock stands still during a suspend; the boot clock does not."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        faulty(client).inject(Fault.REQUEST_LOST, times=ALWAYS)
        clock = clock_of(client)
        clock.suspend(100.0)
        clock.step(-100.0)
        before = clock.monotonic()
        await asyncio.sleep(BELIEF)

        assert clock.monotonic() == before
        assert not lease.held


@in_virtual_time
async def test_a_wall_clock_that_goes_back_does_not_prolong_belief(world: World) -> None:
    """Belief still ends by the other two clocks."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        clock_of(client).step(-3600.0)
        faulty(client).inject(Fault.REQUEST_LOST, operation="put_if_match", times=ALWAYS)

        assert await until_lost(lease) == pytest.approx(BELIEF, abs=0.05)


@in_virtual_time
async def test_an_unreachable_store_costs_the_lease_at_its_deadline(world: World) -> None:
    """A transient failure is not loss; the deadline decides."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        faulty(client).inject(Fault.UNAVAILABLE, times=ALWAYS)

        assert await until_lost(lease) == pytest.approx(BELIEF, abs=0.05)
        await asyncio.sleep(0.05)

    assert isinstance(lease.lost, LeaseExpiredError)
    assert world.told()[0] == "acquired"
    assert "renewal_failed" in world.told()
    assert world.told().count("lost") == 1


@in_virtual_time
async def test_nothing_is_written_past_the_deadline_but_a_free_record(world: World) -> None:
    """Past the deadline no renewal is sent and nothing is revived."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        faulty(client).inject(Fault.REQUEST_LOST, times=ALWAYS)
        await until_lost(lease)
        faulty(client).calm()
        after = len(world.journal)
        await asyncio.sleep(30.0)

        assert not lease.held
        assert all(
            b'"expired":true' in (each.body or b"")
            for each in world.writes()
            if each in world.journal[after:]
        )


@in_virtual_time
async def test_an_answer_after_the_deadline_revives_nothing(world: World) -> None:
    """A renewal that lands before the deadline and is answered after it comes too late."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        await asyncio.sleep(0.5)
        backend = faulty(client)
        backend.delay = (1.9, 1.9)
        backend.inject(Fault.SLOW, operation="put_if_match", times=1)
        await asyncio.sleep(1.0)
        assert world.record().nonce is not None
        clock_of(client).step(BELIEF)  # the deadline passes while the answer is under way
        loss = lease.lost
        await asyncio.sleep(5.0)

        assert isinstance(loss, LeaseExpiredError)
        assert lease.lost is loss
        assert lease.remaining() == 0.0
        assert world.record().expired  # what landed is freed again (rule 3)


@in_virtual_time
async def test_a_loss_is_final_once_it_was_seen(world: World) -> None:
    """A wall clock that jumps ahead and back does not bring the lease back."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        clock_of(client).step(100.0)
        assert not lease.held
        clock_of(client).step(-100.0)

        assert not lease.held
        with pytest.raises(LeaseExpiredError):
            await lease.confirm()


@in_virtual_time
async def test_the_deadline_decides_though_nobody_looked_when_it_passed(world: World) -> None:
    """A renewal that the store confirms after the old deadline does not extend the lease (rule 5)."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        faulty(client).storm({Fault.REQUEST_LOST: 1.0})
        await asyncio.sleep(7.9)
        faulty(client).calm()
        await while_renewing(lease)

        clock_of(client).step(1.5)
        await asyncio.sleep(0.1)

        assert isinstance(lease.lost, asynclock.LeaseExpiredError)


async def hold_for(seconds: float, client: LockClient) -> None:
    """Hold the lock for a while."""
    async with client.lock("orders").hold():
        await asyncio.sleep(seconds)


@in_virtual_time
async def test_a_step_of_the_wall_clock_is_noticed_within_a_second(world: World) -> None:
    """A deadline passed on a clock that no timer follows is found long before the next renewal."""
    async with world.client(LeaseSettings(validity=300.0)) as client:
        began = world.now
        body = asyncio.create_task(hold_for(60, client))
        await asyncio.sleep(0.5)
        clock_of(client).step(400.0)

        with pytest.raises(LeaseLostError):
            await body
        assert world.now - began < 2
