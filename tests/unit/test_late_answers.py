"""Late and lost answers to an acquisition: its record is adopted, renewed or replaced (rules 2, 7)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from asynclock import LeaseSettings, LeaseTakenOverError, Written
from asynclock.testing._faulty import Fault
from tests.unit.kit import (
    World,
    clock_of,
    faulty,
    in_virtual_time,
    our_record,
    until_lost,
    writes_by_us,
)

if TYPE_CHECKING:
    from asynclock import LockClient


@pytest.mark.parametrize("fault", [Fault.REPLY_LOST, Fault.OWN_412])
@pytest.mark.parametrize("operation", ["put_if_absent", "put_if_match"])
def test_an_acquisition_whose_answer_was_lost_is_adopted(world: World, fault: Fault, operation: str) -> None:
    """A record with the client's nonce is its own: the lease has its token, and counts from its sending."""

    async def story() -> None:
        if operation == "put_if_match":
            world.put(our_record(valid_until=world.now, expired=True))
        async with world.client() as client:
            faulty(client).inject(fault, operation=operation)
            lease = await client.lock("orders").acquire(timeout=5)

            assert lease.owner == world.record().owner
            assert lease.fencing_token == world.record().epoch
            assert lease.remaining() == pytest.approx(9.0 - 0.04)  # from the write, not from the look
            assert len(world.writes()) == (1 if operation == "put_if_absent" else 2)
            assert "adopted" in world.told()

    world.loop.run_until_complete(story())


@in_virtual_time
async def test_an_acquisition_is_adopted_once_where_the_read_back_is_lost_too(world: World) -> None:
    """The look after the next finds our record; nothing is written over it."""
    async with world.client() as client:
        faulty(client).inject(Fault.REPLY_LOST, operation="put_if_absent")
        faulty(client).inject(Fault.UNAVAILABLE, operation="get", nth=2)
        lease = await client.lock("orders").acquire(timeout=5)

        assert len(world.writes()) == 1
        assert lease.fencing_token == world.record().epoch


@in_virtual_time
async def test_an_equal_owner_without_the_nonce_proves_nothing(world: World) -> None:
    """A record with the client's owner but another nonce is not the client's own."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        world.put(our_record(valid_until=world.now + 12, owner=lease.owner, nonce="a" * 32))
        await until_lost(lease)

        assert isinstance(lease.lost, LeaseTakenOverError)


@in_virtual_time
async def test_a_slow_acquisition_is_renewed_before_it_is_returned(world: World) -> None:
    """With no more than a renew interval left, it is renewed once first (rule 7)."""
    settings = LeaseSettings(validity=10.0, safety_margin=5.0, max_clock_skew=1.0, poll_interval=0.25)
    async with world.client(settings) as client:
        backend = faulty(client)
        backend.inject(Fault.REPLY_LOST, operation="put_if_absent")
        backend.inject(Fault.UNAVAILABLE, operation="get", nth=2, times=5)
        backend.delay = (2.0, 2.0)
        lease = await client.lock("orders").acquire()

        assert lease.remaining() > 1.0


def answered_late(client: LockClient, monkeypatch: pytest.MonkeyPatch, late: float) -> None:
    """Let the clocks step by ``late`` while the answer to each creation is under way."""
    create = faulty(client).put_if_absent

    async def create_late(key: str, body: bytes) -> Written:
        written = await create(key, body)
        clock_of(client).step(late)
        return written

    monkeypatch.setattr(faulty(client), "put_if_absent", create_late)


@in_virtual_time
async def test_an_acquisition_whose_renewal_came_too_late_goes_on(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lease that ran out while it was renewed is not returned: the lock is acquired again (rule 7)."""
    client = world.client()
    replace_if_match = faulty(client).put_if_match

    async def answered_too_late(key: str, body: bytes, version: str) -> Written:
        monkeypatch.setattr(faulty(client), "put_if_match", replace_if_match)
        written = await replace_if_match(key, body, version)
        clock_of(client).step(8.5)
        return written

    answered_late(client, monkeypatch, 8.5)
    monkeypatch.setattr(faulty(client), "put_if_match", answered_too_late)

    lease = await client.lock("orders").acquire()

    assert lease.held
    await client.aclose()


@in_virtual_time
async def test_a_lease_with_little_time_left_is_renewed_before_it_is_returned(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With less than the renew interval left, one renewal comes first, and the next an interval later."""
    client = world.client()
    answered_late(client, monkeypatch, 8.5)

    lease = await client.lock("orders").acquire()

    assert lease.held
    assert lease.remaining() > 8
    assert world.told() == ["renewed", "acquired"]
    assert len(writes_by_us(world)) == 2
    await asyncio.sleep(0.5)
    assert len(writes_by_us(world)) == 2
    await client.aclose()


@in_virtual_time
async def test_an_answer_past_the_deadline_is_followed_by_a_new_attempt_at_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new attempt replaces the client's own record without a wait, under a new token, without a loss."""
    client = world.client()
    answered_late(client, monkeypatch, 20.0)

    lease = await client.lock("orders").acquire(timeout=1)

    first, second = (record.epoch for _, record in writes_by_us(world))
    assert lease.held
    assert first is not None
    assert first < lease.fencing_token == second
    assert world.told() == ["acquired"]
    await client.aclose()


@in_virtual_time
async def test_a_late_write_over_a_record_past_its_deadline_is_recognized(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write that lands late over the acquisition's own record does not lock it out of its lock."""
    client = world.client()
    backend = faulty(client)
    answered_late(client, monkeypatch, 20.0)
    backend.delay = (0.02, 0.02)
    backend.inject(Fault.LATE, operation="put_if_match")
    world.loop.call_later(0.3, clock_of(client).step, -20.0)

    lease = await client.lock("orders").acquire(timeout=5)

    assert lease.held
    await client.aclose()
