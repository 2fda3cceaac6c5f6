"""What an event says beside its kind: where, when, how long, why, and what was left."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import pytest

import asynclock
from asynclock import AcquireTimeoutError
from asynclock.testing._faulty import Fault
from tests.unit.kit import (
    ALWAYS,
    BELIEF,
    World,
    clock_of,
    faulty,
    hudi_record,
    in_virtual_time,
    our_record,
    until_lost,
)

if TYPE_CHECKING:
    from asynclock.events import Event


def one(world: World, kind: str) -> Event:
    """Return the only event of that kind."""
    (found,) = [event for event in world.events if event.kind == kind]
    return found


@in_virtual_time
async def test_an_event_says_where_and_when(world: World) -> None:
    """Its URL is the lock's, its time the client's wall clock, its validity that of the leases."""
    async with world.client() as client:
        before = world.now
        await (await client.lock("a/orders").acquire()).release()

    event = one(world, "acquired")
    assert (event.name, event.url, event.validity) == ("a/orders", "sim://store/a/orders", 10.0)
    assert before <= event.time <= world.now


@in_virtual_time
async def test_waits_and_holds_have_their_duration(world: World) -> None:
    """Also the wait for another coroutine of the same client, which hands the lock over."""
    async with world.client() as client:
        lock = client.lock("orders")
        first = await lock.acquire()
        second = asyncio.create_task(lock.acquire())
        await asyncio.sleep(3.0)
        await first.release()
        await (await second).release()

    acquired = [event for event in world.events if event.kind == "acquired"]
    released = [event for event in world.events if event.kind == "released"]
    assert [event.reason for event in acquired] == ["", "handover"]
    assert [event.reason for event in released] == ["handover", ""]
    assert acquired[1].duration == pytest.approx(3.0, abs=0.2)
    assert released[0].duration == pytest.approx(3.0, abs=0.2)


@in_virtual_time
async def test_a_renewal_says_what_was_left(world: World) -> None:
    """What the lease had left before the renewal was confirmed, and how long that took."""
    async with world.client() as client, client.lock("orders").hold():
        await asyncio.sleep(1.5)

    event = one(world, "renewed")
    assert event.remaining == pytest.approx(BELIEF - 1.0, abs=0.1)
    assert event.duration == pytest.approx(0.02, abs=0.01)


@in_virtual_time
async def test_taking_over_from_a_dead_holder_is_named_so(world: World) -> None:
    """A release of the holder before is none."""
    world.put(our_record(valid_until=world.now + 10, owner="dead"))
    async with world.client() as client:
        await (await client.lock("orders").acquire()).release()
        await (await client.lock("orders").acquire()).release()

    assert [event.reason for event in world.events if event.kind == "acquired"] == ["takeover", ""]


@in_virtual_time
async def test_writes_settled_by_reading_back_are_named_so(world: World) -> None:
    """Of an acquisition, a renewal and a release whose answers were lost."""
    async with world.client() as client:
        backend = faulty(client)
        backend.inject(Fault.REPLY_LOST, operation="put_if_absent")
        lease = await client.lock("orders").acquire()
        backend.inject(Fault.REPLY_LOST, operation="put_if_match")
        await lease.confirm()
        backend.inject(Fault.REPLY_LOST, operation="put_if_match")
        await lease.release()

    told = [(event.kind, event.reason) for event in world.events if event.kind != "acquire_failed"]
    assert told == [("adopted", ""), ("renewed", "read_back"), ("released", "read_back")]


@in_virtual_time
async def test_a_loss_names_its_error_and_the_time_held(world: World) -> None:
    """The error's class, for machines; the failed renewals before it have theirs."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        faulty(client).inject(Fault.UNAVAILABLE, times=ALWAYS)
        await until_lost(lease)
        await asyncio.sleep(0.1)
        faulty(client).calm()

    lost = one(world, "lost")
    failed = [event for event in world.events if event.kind == "renewal_failed"]
    assert lost.reason == "LeaseExpiredError"
    assert lost.duration == pytest.approx(BELIEF, abs=0.2)
    assert {event.reason for event in failed} <= {"OutcomeUnknownError", "BackendUnavailableError"}
    assert failed


@in_virtual_time
async def test_an_end_says_since_when_its_holder_does_not_believe(world: World) -> None:
    """Of a release: since it was sent. Of a loss: since the deadline, however late it is found."""
    async with world.client() as client:
        await (await client.lock("orders").acquire()).release()
        lease = await client.lock("orders").acquire()
        faulty(client).inject(Fault.UNAVAILABLE, times=ALWAYS)
        clock_of(client).step(BELIEF + 4.0)
        assert not lease.held
        await asyncio.sleep(0)

    assert one(world, "released").since_end == pytest.approx(0.02, abs=0.005)
    assert one(world, "lost").since_end == pytest.approx(4.0, abs=0.1)
    assert {each.since_end for each in world.events if each.kind in {"acquired", "renewed"}} == {None}


@in_virtual_time
async def test_a_lease_has_an_age_from_its_first_write_on(world: World) -> None:
    """However long was waited for it; by age and time anybody can tell whether a clock was set."""
    async with world.client() as client:
        lock = client.lock("orders")
        first = await lock.acquire()
        second = asyncio.create_task(lock.acquire())
        await asyncio.sleep(3.5)
        await first.release()
        lease = await second
        await lease.confirm()
        await lease.release()

    ages = [(each.kind, each.age) for each in world.events if each.owner == lease.owner]
    assert ages == [
        ("acquired", pytest.approx(0.02, abs=0.01)),
        ("renewed", pytest.approx(0.04, abs=0.02)),
        ("released", None),
    ]


@in_virtual_time
async def test_a_lock_without_fencing_has_no_token_in_its_events(world: World) -> None:
    """As of a Hudi table: it is handed out before its token has settled, so that may fall."""
    async with world.client() as client:
        client._core.engine("orders").fencing = False
        async with client.lock("orders").hold() as lease:
            await lease.confirm()

    assert {each.fencing_token for each in world.events} == {None}
    assert {each.kind for each in world.events} == {"acquired", "renewed", "released"}


@in_virtual_time
async def test_a_release_after_a_signal_says_since_when_its_holder_does_not_believe(world: World) -> None:
    """Belief ends with the signal, however long the store does not answer the release."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        faulty(client).inject(Fault.UNAVAILABLE, times=ALWAYS)
        lease._held.release.let_go("a signal told this process to end")
        await asyncio.sleep(1.0)
        lease._held.release.note_pending()
        await asyncio.sleep(1.0)
        lease._held.release.give_up("the process ended")
        faulty(client).calm()

    assert one(world, "release_pending").since_end == pytest.approx(1.0, abs=0.01)
    assert one(world, "release_unconfirmed").since_end == pytest.approx(2.0, abs=0.01)


@in_virtual_time
async def test_a_fenced_write_is_an_event(world: World) -> None:
    """It names the object and the token, and says how long it took."""
    async with world.client() as client, client.lock("orders").hold() as lease:
        await asynclock.FencedObject(client, "state").write(b"1", lease=lease)

    event = one(world, "updated")
    assert (event.key, event.url, event.owner) == ("state", "sim://store/state", lease.owner)
    assert event.fencing_token == lease.fencing_token
    assert event.duration == pytest.approx(0.04, abs=0.01)


@in_virtual_time
async def test_an_acquisition_that_ends_without_the_lock_is_reported(world: World) -> None:
    """After a timeout, one try, and a cancellation, with the time that it took."""
    world.put(our_record(valid_until=world.now + 1000, owner="other", lease_ms=1_000_000))
    async with world.client() as client:
        lock = client.lock("orders")
        assert await lock.try_acquire() is None
        with pytest.raises(AcquireTimeoutError):
            await lock.acquire(timeout=2.0)
        waiting = asyncio.create_task(lock.acquire())
        await asyncio.sleep(1.0)
        waiting.cancel()
        await asyncio.wait([waiting])

    ended = [event for event in world.events if event.kind == "not_acquired"]
    assert [event.reason for event in ended] == ["held", "AcquireTimeoutError", "CancelledError"]
    assert ended[1].duration == pytest.approx(2.0, abs=0.1)


@in_virtual_time
async def test_one_try_names_the_reason_why_it_got_nothing(world: World) -> None:
    """That this client makes way, that no Date was usable, or that another client wrote in between."""
    async with world.client() as client:
        lock = client.lock("orders")
        faulty(client).inject(Fault.DELETED, operation="put_if_match")
        world.put(our_record(valid_until=world.now, expired=True))
        assert await lock.try_acquire() is None
        await client._core.release_all(loss="a signal")
        assert await lock.try_acquire() is None
        await asyncio.sleep(30.0)
        faulty(client).inject(Fault.NO_DATE, times=ALWAYS)
        await asyncio.sleep(600.0)
        assert await lock.try_acquire() is None

    ended = [event.reason for event in world.events if event.kind == "not_acquired"]
    assert ended == ["PreconditionFailedError", "makes_way", "BackendUnavailableError"]


@in_virtual_time
async def test_a_try_whose_answers_come_too_late_names_the_store(world: World) -> None:
    """Nothing was left of the lease when it was confirmed: nobody else holds the lock."""
    async with world.client() as client:
        trying = asyncio.create_task(client.lock("orders").try_acquire())
        await asyncio.sleep(0.03)
        clock_of(client).step(BELIEF)
        assert await trying is None

    assert one(world, "not_acquired").reason == "BackendUnavailableError"


@pytest.mark.parametrize("after", [0.1, 1.0])
@in_virtual_time
async def test_a_lock_that_is_not_handed_out_was_never_acquired(world: World, after: float) -> None:
    """A call that ends while its token settles is counted once: it did not acquire (rule 11)."""
    world.put(hudi_record(world.now - 60.0, expired=True))
    async with world.client() as client:
        with pytest.raises(AcquireTimeoutError):
            await client.lock("orders").acquire(timeout=after)
        await asyncio.sleep(5.0)

    assert world.record().expired
    assert [kind for kind in world.told() if kind != "renewed"] == ["not_acquired"]


@in_virtual_time
async def test_a_lock_that_is_lost_before_it_is_handed_out_is_no_loss(world: World) -> None:
    """The call goes on, and acquires once."""
    world.put(hudi_record(world.now - 60.0, expired=True))
    async with world.client() as client:
        acquiring = asyncio.create_task(client.lock("orders").acquire())
        await asyncio.sleep(0.1)
        await client._core.release_all(loss="a signal")
        await (await acquiring).release()

    assert [kind for kind in world.told() if kind != "renewed"] == ["acquired", "released"]


@in_virtual_time
async def test_an_acquisition_reports_the_write_that_it_reaps(world: World) -> None:
    """Given up with a write that may still land, it makes that write harmless and says so."""
    world.put(our_record(valid_until=world.now, expired=True))
    async with world.client() as client:
        faulty(client).inject(Fault.REPLY_LOST, operation="put_if_match")
        faulty(client).inject(Fault.UNAVAILABLE, operation="get", nth=2, times=4)
        with pytest.raises(AcquireTimeoutError):
            await client.lock("orders").acquire(timeout=0.0)
        await asyncio.sleep(10.0)

    assert one(world, "reaped").owner


@in_virtual_time
async def test_a_process_that_did_not_run_says_so(world: World) -> None:
    """A blocked event loop is reported with its length, less the second to the next look at the lease."""
    async with world.client() as client, client.lock("orders").hold():
        await asyncio.sleep(2.5)
        assert "stalled" not in world.told()
        world.loop.now += 5.0
        await asyncio.sleep(1.0)

    assert one(world, "stalled").duration == pytest.approx(4.5, abs=0.51)


async def test_a_failing_log_handler_changes_nothing() -> None:
    """What a filter raises on every event, and on the report of a failing listener, harms no lease."""

    def fail(_: object) -> bool:
        raise ZeroDivisionError

    logger = logging.getLogger("asynclock")
    logger.addFilter(fail)
    logger.setLevel(logging.DEBUG)
    try:
        async with (
            asynclock.connect("memory://", events=fail) as client,
            client.lock("orders").hold() as lease,
        ):
            await lease.confirm()
    finally:
        logger.removeFilter(fail)
        logger.setLevel(logging.NOTSET)

    assert lease.lost is None
