"""Turns between clients: one that has held a lock for long makes way for others (rule 14)."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from asynclock import AcquireTimeoutError, LeaseSettings
from asynclock._core.protocol.timing import Timing
from asynclock._core.protocol.waiting import Fairness
from tests.unit.kit import TIMING, World, in_virtual_time

BUSY = LeaseSettings(validity=2.0, max_clock_skew=0.0, poll_interval=0.05)


def test_a_short_run_keeps_nobody_away() -> None:
    """A client that has just begun its run may go on."""
    turns = Fairness(TIMING)
    turns.began(0.0, started_at=0.0, owner="a", predecessor=None)
    turns.ended(TIMING.run_length - 0.1, jittered=lambda _: 0.5)

    assert turns.away_for(TIMING.run_length) <= 0


@pytest.mark.parametrize("jitter", [0.5, 1.0])
def test_a_long_run_keeps_away_for_two_polls_at_least(jitter: float) -> None:
    """After a run of max(I, 20 polls) the client stays away for two poll intervals, jittered."""
    turns = Fairness(TIMING)
    turns.began(0.0, started_at=0.0, owner="a", predecessor=None)
    turns.ended(TIMING.run_length - 0.1, jittered=lambda _: jitter)
    turns.began(TIMING.run_length, started_at=TIMING.run_length, owner="b", predecessor="a")
    now = TIMING.run_length + 0.1
    turns.ended(now, jittered=lambda _: jitter)

    assert 2 * TIMING.poll_interval <= turns.away_for(now) <= 3 * TIMING.poll_interval


def test_another_owner_in_between_ends_the_run() -> None:
    """A client that took turns with others need not make way."""
    turns = Fairness(TIMING)
    turns.began(0.0, started_at=0.0, owner="a", predecessor=None)
    turns.ended(TIMING.run_length - 0.1, jittered=lambda _: 1.0)
    turns.began(TIMING.run_length, started_at=TIMING.run_length, owner="c", predecessor="b")
    turns.ended(TIMING.run_length + 0.2, jittered=lambda _: 1.0)

    assert turns.away_for(TIMING.run_length + 0.2) <= 0


def test_a_slow_hand_off_goes_on_with_the_run() -> None:
    """A hand-off belongs to the run however late its answer comes."""
    turns = Fairness(TIMING)
    handed_at, answered_at = TIMING.run_length - 0.1, TIMING.run_length + 3 * TIMING.poll_interval
    turns.began(0.0, started_at=0.0, owner="a", predecessor=None)
    turns.handed_over(handed_at)
    turns.began(answered_at, started_at=handed_at, owner="b", predecessor="a")

    assert not turns.may_hand_over(answered_at)


@in_virtual_time
async def test_two_clients_take_turns(world: World) -> None:
    """A client that acquires again and again lets the other one in, in fair shares."""
    turns: list[str] = []
    async with world.client() as first, world.client() as second:

        async def work(name: str, lock: object) -> None:
            while world.loop.time() < 120:
                async with lock.hold():  # type: ignore[attr-defined]
                    turns.append(name)
                    await asyncio.sleep(0.05)

        await asyncio.gather(work("a", first.lock("orders")), work("b", second.lock("orders")))

    switches = sum(one != other for one, other in itertools.pairwise(turns))
    assert switches >= 10
    assert min(turns.count("a"), turns.count("b")) >= len(turns) / 4


@pytest.mark.parametrize("poll", [0.05, 0.5, 5.0])
@pytest.mark.parametrize("lasting", [0.001, 0.02, 0.3])
@in_virtual_time
async def test_a_waiter_gets_its_turn_however_slowly_it_polls(
    world: World, poll: float, lasting: float
) -> None:
    """Within two runs of a client that takes the lock again and again, and half as many for each turn."""
    slow = LeaseSettings(validity=2.0, max_clock_skew=0.0, poll_interval=poll)
    run = Timing(BUSY, resolution=0.0).run_length
    waits: list[float] = []
    async with world.client(BUSY) as busy, world.client(slow) as other:

        async def keep_taking() -> None:
            while True:
                async with busy.lock("orders").hold():
                    await asyncio.sleep(lasting)

        taking = asyncio.create_task(keep_taking())
        await asyncio.sleep(0.5)
        for _ in range(10):
            began = world.now
            async with other.lock("orders").hold():
                waits.append(world.now - began)
                await asyncio.sleep(lasting)
            await asyncio.sleep(0.7)
        taking.cancel()
        await asyncio.wait([taking])

    assert max(waits) <= 2 * poll + 3 * (run + lasting)


@in_virtual_time
async def test_a_slow_waiter_behind_a_holder_that_stays_keeps_its_pace(world: World) -> None:
    """Where nothing changes hands, a longer poll interval saves requests."""
    slow = LeaseSettings(validity=2.0, max_clock_skew=0.0, poll_interval=5.0)
    async with world.client(BUSY) as busy, world.client(slow) as other:
        lease = await busy.lock("orders").acquire()
        began = len(world.journal)
        waiting = asyncio.create_task(other.lock("orders").acquire())
        await asyncio.sleep(60.0)
        looks = [each for each in world.journal[began:] if each.kind == "get"]
        await lease.release()
        await (await waiting).release()

    assert len(looks) <= 60.0 / 2.0 + 10  # at its own pace, or when the record would run out


def test_a_pause_between_two_turns_ends_the_run() -> None:
    """After more than two poll intervals away a client has given others their chance (rule 14)."""
    turns = Fairness(TIMING)
    turns.began(0.0, started_at=0.0, owner="a", predecessor=None)
    turns.ended(1.0, jittered=lambda _: 1.0)
    again = 1.0 + 2 * TIMING.poll_interval + 0.1

    turns.began(again, started_at=again, owner="b", predecessor="a")

    assert turns.may_hand_over(again + TIMING.run_length - 0.1)


def test_a_client_that_made_way_begins_a_new_run() -> None:
    """If nobody else took the lock, the client does not make way again after its next turn (rule 14)."""
    turns = Fairness(TIMING)
    turns.began(0.0, started_at=0.0, owner="a", predecessor=None)
    turns.ended(TIMING.run_length, jittered=lambda _: 1.0)
    back = TIMING.run_length + turns.away_for(TIMING.run_length)

    turns.began(back, started_at=TIMING.run_length, owner="b", predecessor="a")
    turns.ended(back + 0.1, jittered=lambda _: 1.0)

    assert turns.away_for(back + 0.1) <= 0


def test_the_longer_of_two_stand_backs_counts() -> None:
    """A client that keeps away for two reasons keeps away for the longer time."""
    turns = Fairness(TIMING)

    turns.stand_back(4.0)
    turns.stand_back(1.0)

    assert turns.away_for(0.0) == pytest.approx(4.0)


@in_virtual_time
async def test_the_end_of_a_long_run_cuts_no_stand_back_short(world: World) -> None:
    """A process that may be ending acquires nothing for twice the exit bound, however long it has held."""
    async with world.client() as client:
        lock = client.lock("orders")
        _held = await lock.acquire()
        await asyncio.sleep(TIMING.run_length + 1.0)
        signalled = world.now
        await client._core.release_all(loss="a signal")

        lease = await lock.acquire()

        assert world.now - signalled >= 2 * client._core.exit_bound
        await lease.release()


@pytest.mark.parametrize("timeout", [None, 60])
@in_virtual_time
async def test_a_client_makes_way_for_two_poll_intervals_at_most(world: World, timeout: float | None) -> None:
    """After a long run it keeps away for one to two poll intervals, and no longer (rule 14)."""
    async with world.client() as client:
        lock = client.lock("orders")
        lease = await lock.acquire()
        await asyncio.sleep(TIMING.run_length)
        await lease.release()
        began = world.now

        lease = await lock.acquire(timeout=timeout)

        assert TIMING.poll_interval <= world.now - began <= 2 * TIMING.poll_interval + 0.1
        await lease.release()


@in_virtual_time
async def test_a_timeout_counts_while_a_client_makes_way(world: World) -> None:
    """An acquisition that makes way for others ends at its timeout."""
    async with world.client() as client:
        await client._core.release_all()
        began = world.now

        with pytest.raises(AcquireTimeoutError):
            await client.lock("orders").acquire(timeout=0.5)

        assert world.now - began == pytest.approx(0.5, abs=0.1)


@in_virtual_time
async def test_try_acquire_makes_way_as_well(world: World) -> None:
    """While a client keeps away, a try sends no request and returns None."""
    async with world.client() as client:
        lock = client.lock("orders")
        await client._core.release_all()

        assert await lock.try_acquire() is None
        assert world.journal == []
        await asyncio.sleep(2 * client._core.exit_bound)
        lease = await lock.try_acquire()
        assert lease is not None
        await lease.release()
