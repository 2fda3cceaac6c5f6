"""Answers to an acquisition that come late or never: its record is adopted, renewed or replaced (2, 7)."""

from __future__ import annotations

import asyncio

import pytest

from asynclock import LeaseSettings, LeaseTakenOverError, Written
from asynclock.record import parse_record
from asynclock.testing.faulty import Fault
from tests.unit.kit import (
    BELIEF,
    World,
    clock_of,
    faulty,
    in_virtual_time,
    our_record,
    until_lost,
    writes_by_us,
)


@pytest.mark.parametrize("fault", [Fault.REPLY_LOST, Fault.OWN_412])
@pytest.mark.parametrize("operation", ["put_if_absent", "put_if_match"])
def test_an_acquisition_whose_answer_was_lost_is_adopted(world: World, fault: Fault, operation: str) -> None:
    """A record with our nonce is ours: its token, and its send time for the deadline."""

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
async def test_equality_of_owners_proves_nothing(world: World) -> None:
    """A record with our owner but another nonce is not ours."""
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


@in_virtual_time
async def test_an_acquisition_with_little_left_is_renewed_before_it_is_returned(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer so late that less than the renew interval is left: the lease is returned fresh [7].

    Its next renewal is due an interval later, as any other's.
    """
    client = world.client()
    create = faulty(client).put_if_absent

    async def answered_late(key: str, body: bytes) -> Written:
        written = await create(key, body)
        clock_of(client).step(8.5)
        return written

    monkeypatch.setattr(faulty(client), "put_if_absent", answered_late)

    lease = await client.lock("orders").acquire()

    assert lease.remaining() > 8
    assert len(world.writes()) == 2
    await asyncio.sleep(0.5)
    assert len(world.writes()) == 2
    await client.aclose()


@pytest.mark.parametrize("late", [8.5, 20.0], ids=["little left", "nothing left"])
@in_virtual_time
async def test_a_late_answer_costs_one_more_write(
    world: World, monkeypatch: pytest.MonkeyPatch, late: float
) -> None:
    """With little left it is a renewal, with nothing left a new attempt; nobody is told of a loss [7]."""
    client = world.client()
    create = faulty(client).put_if_absent

    async def answered_late(key: str, body: bytes) -> Written:
        written = await create(key, body)
        clock_of(client).step(late)
        return written

    monkeypatch.setattr(faulty(client), "put_if_absent", answered_late)

    lease = await client.lock("orders").acquire()

    assert lease.held
    assert len(writes_by_us(world)) == 2
    assert world.told() == (["renewed"] if late < BELIEF else []) + ["acquired"]
    await client.aclose()


@in_virtual_time
async def test_an_acquisition_whose_renewal_came_too_late_goes_on(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What ran out while it was renewed is not handed out: it is acquired anew [7]."""
    client = world.client()
    create, replace_if_match = faulty(client).put_if_absent, faulty(client).put_if_match

    async def answered_late(key: str, body: bytes) -> Written:
        written = await create(key, body)
        clock_of(client).step(8.5)
        return written

    async def answered_too_late(key: str, body: bytes, version: str) -> Written:
        monkeypatch.setattr(faulty(client), "put_if_match", replace_if_match)
        written = await replace_if_match(key, body, version)
        clock_of(client).step(8.5)
        return written

    monkeypatch.setattr(faulty(client), "put_if_absent", answered_late)
    monkeypatch.setattr(faulty(client), "put_if_match", answered_too_late)

    lease = await client.lock("orders").acquire()

    assert lease.held
    await client.aclose()


@in_virtual_time
async def test_a_spent_record_of_ones_own_is_written_over_at_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer past the deadline makes a new attempt with a new token, no wait for oneself [7]."""
    client = world.client()
    create = faulty(client).put_if_absent

    async def answered_after_a_long_sleep(key: str, body: bytes) -> Written:
        written = await create(key, body)
        clock_of(client).step(20.0)
        return written

    monkeypatch.setattr(faulty(client), "put_if_absent", answered_after_a_long_sleep)

    lease = await client.lock("orders").acquire(timeout=1)

    tokens = [parse_record(each.body or b"").epoch for each in world.writes()]
    assert lease.fencing_token == tokens[1]
    assert tokens[0] is not None
    assert tokens[0] < lease.fencing_token
    await client.aclose()


@in_virtual_time
async def test_a_late_write_on_a_spent_record_of_ones_own_is_known(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write that lands late on the acquisition's own spent record does not lock it out of its lock."""
    client = world.client()
    backend = faulty(client)
    create = backend.put_if_absent

    async def answered_after_a_long_sleep(key: str, body: bytes) -> Written:
        written = await create(key, body)
        clock_of(client).step(20.0)
        return written

    monkeypatch.setattr(backend, "put_if_absent", answered_after_a_long_sleep)
    backend.delay = (0.02, 0.02)
    backend.inject(Fault.LATE, operation="put_if_match")
    world.loop.call_later(0.3, clock_of(client).step, -20.0)

    lease = await client.lock("orders").acquire(timeout=5)

    assert lease.held
    await client.aclose()
