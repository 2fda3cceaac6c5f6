"""``at_most``: belief ends after a time that no renewal moves, and the record with it (rule 27)."""

from __future__ import annotations

import asyncio

import pytest

import asynclock
from asynclock import ConfigError, LeaseExpiredError, LeaseSettings
from asynclock.clock import ClockReading
from asynclock.testing._faulty import Fault
from tests.unit.kit import (
    BELIEF,
    SETTINGS,
    World,
    clock_of,
    faulty,
    in_virtual_time,
    until_lost,
    writes_by_us,
)

MARGIN = SETTINGS.validity - BELIEF
NO_LONGER = SETTINGS.takeover_bound(0.0) - SETTINGS.validity
"""Seconds on top of what a record promises, within which a watching waiter has the lock."""


@in_virtual_time
@pytest.mark.parametrize("at_most", [1.0, 1.3, 8.9, 25.0])
async def test_belief_ends_although_renewals_succeed(world: World, at_most: float) -> None:
    """The loss comes to the hundredth, is an expiry, and says why."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire(at_most=at_most)
        lasted = await until_lost(lease)

        assert at_most - 0.05 <= lasted <= at_most + 0.01
        assert isinstance(lease.lost, LeaseExpiredError)
        assert f"at_most={at_most:g} s" in str(lease.lost)
        await asyncio.sleep(0)
        assert world.told()[-1] == "lost"


@in_virtual_time
async def test_the_body_is_cancelled_at_the_end(world: World) -> None:
    """A body that hangs is cancelled on time, and the statement says why."""
    async with world.client() as client:
        began = world.now
        with pytest.raises(LeaseExpiredError, match="at_most=3 s"):
            async with client.lock("orders").hold(at_most=3.0):
                await asyncio.Event().wait()

        assert 2.9 <= world.now - began <= 3.1


@in_virtual_time
async def test_a_shorter_body_releases_as_ever(world: World) -> None:
    """Nothing is lost if the body ends before."""
    async with world.client() as client:
        async with client.lock("orders").hold(at_most=3.0) as lease:
            await asyncio.sleep(2.5)

        assert lease.lost is None
        assert world.record().expired


@in_virtual_time
@pytest.mark.parametrize("at_most", [1.0, 4.0, 30.0])
async def test_no_record_promises_more_than_the_rest_and_the_margin(world: World, at_most: float) -> None:
    """Each write promises the margin on top of what is left: what a dead holder leaves is soon free."""
    async with world.client() as client:
        began = world.now
        lease = await client.lock("orders").acquire(at_most=at_most)
        await until_lost(lease)
        written = [(each.at, record) for each, record in writes_by_us(world)]

    assert len(written) >= max(1, int(at_most) - 1)
    for at, record in written:
        assert record.lease_ms is not None
        left = began + at_most - (world.now - world.loop.time() + at)
        assert record.lease_ms / 1000 <= min(SETTINGS.validity, left + MARGIN) + 0.05
        assert record.lease_ms / 1000 >= min(SETTINGS.validity, left + MARGIN) - 0.05


@in_virtual_time
async def test_others_get_it_a_margin_after_a_body_that_does_not_stop(world: World) -> None:
    """The body has the margin to stop, as at any expiry; then the lock is another's."""
    async with world.client() as client, world.client() as other:
        began = world.now
        lease = await client.lock("orders").acquire(at_most=5.0)
        taken = await other.lock("orders").acquire(timeout=60.0)

        assert lease.lost is not None
        assert taken.fencing_token > lease.fencing_token
        assert 5.0 + MARGIN <= world.now - began <= 5.0 + MARGIN + NO_LONGER + 0.1
        await taken.release()


@in_virtual_time
async def test_a_body_that_stops_frees_the_lock_at_once(world: World) -> None:
    """Once it has left, nobody waits for the margin."""
    async with world.client() as client, world.client() as other:
        began = world.now
        with pytest.raises(LeaseExpiredError):
            async with client.lock("orders").hold(at_most=5.0):
                await asyncio.sleep(60.0)
        async with other.lock("orders").hold(timeout=60.0):
            assert world.now - began <= 5.0 + SETTINGS.poll_interval + 0.2
        assert [each.kind for each in world.events if each.kind == "reaped"] == ["reaped"]


@in_virtual_time
async def test_a_second_leaver_frees_nothing_of_the_next_holder(world: World) -> None:
    """A release of the lost lease, repeated, writes over nobody."""
    async with world.client() as client, world.client() as other:
        lease = await client.lock("orders").acquire(at_most=2.0)
        await until_lost(lease)
        for _ in range(2):
            with pytest.raises(LeaseExpiredError):
                await lease.release()
        async with other.lock("orders").hold(timeout=5.0) as taken:
            with pytest.raises(LeaseExpiredError):
                await lease.release()
            await asyncio.sleep(3.0)
            assert taken.held
            await taken.confirm()


@in_virtual_time
@pytest.mark.parametrize("fault", [Fault.REPLY_LOST, Fault.REQUEST_LOST, Fault.LATE, Fault.SLOW])
async def test_belief_is_capped_before_the_record_is(world: World, fault: Fault) -> None:
    """A renewal whose answer is lost may have shrunk the record: belief must have shrunk before (lemma C)."""
    async with world.client() as client, world.client() as other:
        lease = await client.lock("orders").acquire(at_most=6.0)
        for _ in range(30):
            faulty(client).inject(fault, operation="put_if_match")
        taken = asyncio.create_task(other.lock("orders").acquire(timeout=100.0))
        while not taken.done():  # noqa: ASYNC110  belief is looked at all the while
            await asyncio.sleep(0.01)
        assert not lease.held
        await (await taken).release()


@in_virtual_time
async def test_a_clock_that_is_set_back_gives_no_time_back(world: World) -> None:
    """A wall clock ahead shortens the promise; set right again, belief may not grow beyond it."""
    async with world.client() as client, world.client() as other:
        lease = await client.lock("orders").acquire(at_most=9.0)
        began = world.now
        clock_of(client).step(4.0)
        await lease.confirm()
        clock_of(client).step(-4.0)
        for _ in range(100):
            faulty(client).inject(Fault.REQUEST_LOST, operation="put_if_match")
        taken = await other.lock("orders").acquire(timeout=60.0)

        assert world.now - began < 9.0
        assert not lease.held
        await taken.release()


@in_virtual_time
async def test_the_next_in_line_has_a_time_of_its_own(world: World) -> None:
    """A hand-over takes over neither the end nor what is left of it."""
    async with world.client() as client:
        lock = client.lock("orders")
        first = await lock.acquire(at_most=3.0)
        waiting = [asyncio.create_task(lock.acquire(at_most=each)) for each in (4.0, None)]
        await asyncio.sleep(2.0)
        await first.release()
        second = await waiting[0]
        assert 3.9 <= await until_lost(second) <= 4.01
        with pytest.raises(LeaseExpiredError):
            await second.release()
        third = await waiting[1]
        await asyncio.sleep(30.0)
        assert third.held
        await third.release()


@in_virtual_time
async def test_it_goes_with_at_least(world: World) -> None:
    """Lost at its end, the lock is kept no longer than it was to be held at least."""
    async with world.client() as client, world.client() as other:
        began = world.now
        with pytest.raises(LeaseExpiredError):
            async with client.lock("orders").hold(at_least=4.0, at_most=4.0):
                await asyncio.sleep(60.0)
        async with other.lock("orders").hold(timeout=60.0):
            assert 4.0 <= world.now - began <= 4.0 + MARGIN + NO_LONGER


@in_virtual_time
async def test_readers_can_judge_the_record_of_a_lease_whose_dates_are_old(world: World) -> None:
    """Where a renewal interval is longer than store time is carried, the store is read first."""
    settings = LeaseSettings(validity=36_000.0, max_clock_skew=1.0)
    async with world.client(settings) as client, world.client(settings) as other:
        began = world.now
        lease = await client.lock("orders").acquire(at_most=7500.0)
        await asyncio.sleep(7400.0)
        taken = await other.lock("orders").acquire(timeout=40_000.0)

        assert not lease.held
        promised = 7500.0 + settings.safety_margin
        assert promised <= world.now - began <= promised + settings.takeover_bound(0.0) - 36_000.0 + 1.0
        await taken.release()


@pytest.mark.parametrize("at_most", [0, -1, 0.9, float("nan"), "3", 29.0], ids=repr)
async def test_too_short_a_time_is_refused_before_anything_is_written(at_most: object) -> None:
    """At most is a number of seconds, no shorter than the renewal interval and ``at_least``."""
    async with asynclock.connect("memory://", renewal="loop") as client:
        lock = client.lock("orders")
        for call in (lock.hold, lock.acquire):
            with pytest.raises(ConfigError, match=r"at least renew_interval and at_least: 30 s here"):
                await call(at_most=at_most)  # type: ignore[arg-type, misc]
        with pytest.raises(ConfigError, match="40 s here"):
            lock.hold(at_least=40.0, at_most=35.0)

        assert (await lock.status()).state == "absent"


@in_virtual_time
async def test_a_cap_moved_on_ends_at_the_same_time(world: World) -> None:
    """Counted from a later reading, it ends when it did, or before if a clock has jumped ahead."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire(at_most=10.0)
        belief = lease._held.belief
        start = belief.sent
        ahead = ClockReading(start.monotonic + 1.0, start.boot + 1.0, start.wall + 5.0)
        later = ClockReading(start.monotonic + 2.0, start.boot + 2.0, start.wall + 2.0)

        assert belief.count_cap_from(ahead) == pytest.approx(5.0)
        assert belief.count_cap_from(later) == pytest.approx(4.0)
        await lease.release()
