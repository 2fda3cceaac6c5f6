"""Writes of unknown outcome that may still land: found and freed, and nobody else's record (rule 3)."""

from __future__ import annotations

import asyncio

import pytest

import asynclock
from asynclock import AcquireTimeoutError, BackendError
from asynclock.testing._faulty import Fault
from tests.unit.kit import ALWAYS, SETTINGS, World, faulty, in_virtual_time, our_record, until_lost


@in_virtual_time
async def test_a_late_write_of_a_timed_out_acquisition_is_reaped(world: World) -> None:
    """A write that lands after its acquisition gave up leaves no lock that nobody holds."""
    async with world.client() as client:
        backend = faulty(client)
        backend.delay = (1.5, 1.5)
        backend.inject(Fault.LATE, operation="put_if_absent")
        backend.inject(Fault.UNAVAILABLE, operation="put_if_absent", times=50)
        with pytest.raises(AcquireTimeoutError):
            await client.lock("orders").acquire(timeout=0.5)
        backend.calm()
        await asyncio.sleep(20.0)

        assert world.record().expired
    async with world.client() as other:
        lease = await other.lock("orders").acquire(timeout=1.0)
        assert lease.held


@in_virtual_time
async def test_reaping_kills_a_write_before_it_lands(world: World) -> None:
    """A free record over the base of the lost write lets that write fail when it arrives."""
    world.put(our_record(valid_until=world.now, expired=True))
    async with world.client() as client:
        backend = faulty(client)
        backend.delay = (3.0, 3.0)
        backend.inject(Fault.LATE, operation="put_if_match")
        backend.inject(Fault.UNAVAILABLE, operation="get", nth=2, times=4)
        with pytest.raises((AcquireTimeoutError, BackendError)):
            await client.lock("orders").acquire(timeout=0.0)
        await asyncio.sleep(10.0)

    held = [each for each in world.writes() if b'"expired":false' in (each.body or b"")]
    assert held == []
    assert world.record().expired


@in_virtual_time
async def test_a_lost_lease_reaps_its_write_in_flight(world: World) -> None:
    """A renewal that may land after the loss is made to fail, or freed if it has landed."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        backend = faulty(client)
        backend.inject(Fault.REQUEST_LOST, operation="put_if_match", times=ALWAYS)
        await until_lost(lease)
        backend.calm()
        await asyncio.sleep(5.0)

        assert world.record().expired
        assert "reaped" in world.told()


@in_virtual_time
async def test_reaping_ends(world: World) -> None:
    """The clean-up of a lost lease stops after L plus a request timeout."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        faulty(client).inject(Fault.REQUEST_LOST, times=ALWAYS)
        await until_lost(lease)
        await asyncio.sleep(10.0 + 2.0 + 5.0)
        calls = len(faulty(client).journal)
        await asyncio.sleep(60.0)

        assert len(faulty(client).journal) == calls


@in_virtual_time
async def test_a_clean_up_without_an_answer_tells_nothing_after_the_loss(world: World) -> None:
    """It is no release that could not be confirmed: the lease was lost before (rule 6)."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        faulty(client).inject(Fault.REQUEST_LOST, times=ALWAYS)
        await until_lost(lease)
        await asyncio.sleep(60.0)

        assert world.told()[-1] == "lost"


@in_virtual_time
async def test_a_clean_up_that_proves_no_loss_tells_no_release(world: World) -> None:
    """Its free record may have landed before another took the lock; the lease was lost (rule 6)."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        faulty(client).inject(Fault.REQUEST_LOST, times=ALWAYS)
        await until_lost(lease)
        await asyncio.sleep(2.0)  # writes of the clean-up have gone unanswered
        world.put(our_record(valid_until=world.now + 60.0))
        faulty(client).calm()
        await asyncio.sleep(20.0)

        assert world.told()[-1] == "lost"


@in_virtual_time
async def test_a_successor_of_a_lost_lease_is_left_alone(world: World) -> None:
    """Cleaning up frees our records only."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        faulty(client).inject(Fault.REQUEST_LOST, operation="put_if_match", times=ALWAYS)
        await asyncio.sleep(8.0)
        world.put(our_record(valid_until=world.now + 12, owner="successor"))
        await until_lost(lease)
        faulty(client).calm()
        await asyncio.sleep(20.0)

        assert world.record().owner == "successor"
        assert not world.record().expired


@in_virtual_time
async def test_reaping_goes_on_for_the_validity_and_a_request(world: World) -> None:
    """The clean-up looks for a late write as long as one could matter, and no longer (rule 3)."""
    client = world.client()
    faulty(client).storm({Fault.UNAVAILABLE: 1.0})
    faulty(client).delay = (0.0, 0.0)
    faulty(client).inject(Fault.SLOW, operation="get")  # the one read that is answered
    with pytest.raises(asynclock.BackendError):
        await client.lock("orders").try_acquire()
    gave_up = world.now
    await asyncio.sleep(60)

    lasted = faulty(client).journal[-1].at - gave_up
    assert SETTINGS.validity * 1.1 < lasted < SETTINGS.validity * 1.5
