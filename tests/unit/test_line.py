"""The fair line of one client, and turns between clients (rules 12 and 14)."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING

import pytest

from asynclock import AcquireTimeoutError, LeaseSettings
from asynclock.protocol.timing import Timing
from asynclock.protocol.waiting import Fairness, WaitQueue
from tests.unit.kit import KEY, SETTINGS, World, in_virtual_time

if TYPE_CHECKING:
    from asynclock.protocol.held import HeldLock

TIMING = Timing.of(SETTINGS, resolution=0.0)


@pytest.fixture
def line() -> WaitQueue:
    """Return a queue that somebody is the head of."""
    queue = WaitQueue()
    assert queue.try_enter()
    return queue


async def waiting(line: WaitQueue, count: int) -> list[asyncio.Task[HeldLock | None]]:
    """Return tasks that wait in line, in this order."""
    waiters = [asyncio.create_task(line.enter(None)) for _ in range(count)]
    await asyncio.sleep(0)
    return waiters


async def test_the_line_is_first_come_first_served(line: WaitQueue) -> None:
    """Waiters become head in the order in which they came."""
    waiters = await waiting(line, 3)
    for number, waiter in enumerate(waiters):
        line.leave()
        assert await waiter is None
        assert not any(later.done() for later in waiters[number + 1 :])


async def test_an_empty_line_can_be_entered_at_once(line: WaitQueue) -> None:
    """After the last one has left nobody waits."""
    assert not line.try_enter()
    line.leave()
    assert line.try_enter()


async def test_a_waiter_gives_up_after_its_time(line: WaitQueue) -> None:
    """A time-out leaves no trace in the line."""
    with pytest.raises(TimeoutError):
        await line.enter(asyncio.get_running_loop().time())
    line.leave()
    assert line.try_enter()


async def test_a_cancelled_waiter_lets_the_next_one_pass(line: WaitQueue) -> None:
    """Cancelling the first in line makes the second the first."""
    first, second = await waiting(line, 2)
    first.cancel()
    await asyncio.sleep(0)
    line.leave()

    assert await second is None


async def test_a_cancellation_just_before_its_turn_is_a_cancellation(line: WaitQueue) -> None:
    """A waiter that is passed over because it was just cancelled tells so, and nothing else."""
    first, second = await waiting(line, 2)
    first.cancel()
    line.leave()

    assert await second is None
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_a_turn_that_comes_with_a_cancellation_is_passed_on(line: WaitQueue) -> None:
    """If a waiter is cancelled in the instant of its turn, the next one has it."""
    first, second = await waiting(line, 2)
    line.leave()
    first.cancel()

    with pytest.raises(asyncio.CancelledError):
        await first
    assert await second is None


async def test_a_turn_that_nobody_can_take_frees_the_queue(line: WaitQueue) -> None:
    """If the last waiter is cancelled in the instant of its turn, nobody is the head."""
    (last,) = await waiting(line, 1)
    line.leave()
    last.cancel()

    with pytest.raises(asyncio.CancelledError):
        await last
    assert line.take_stranded() is None
    assert line.try_enter()


async def test_a_lock_that_nobody_can_take_is_stranded(line: WaitQueue) -> None:
    """If it was handed over in the instant of a cancellation, it is kept until somebody frees it."""
    (last,) = await waiting(line, 1)
    handed = object()
    assert line.pass_on(handed)  # type: ignore[arg-type]
    last.cancel()

    with pytest.raises(asyncio.CancelledError):
        await last
    assert line.take_stranded() is handed
    assert line.take_stranded() is None
    assert not line.try_enter()


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
    """Who took turns with others need not make way."""
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
async def test_only_the_head_of_the_line_talks_to_the_store(world: World) -> None:
    """Fifty waiters of one client cost no more requests than one."""
    async with world.client() as holder, world.client() as client:
        lease = await holder.lock("orders").acquire()
        waiters = [asyncio.create_task(client.lock("orders").acquire()) for _ in range(50)]
        before = len(world.journal)
        await asyncio.sleep(2.0)
        asked = sum(each.kind == "get" for each in world.journal[before:])
        for waiter in waiters:
            waiter.cancel()
        await asyncio.gather(*waiters, return_exceptions=True)
        await lease.release()

    assert 4 <= asked <= 2.0 / (SETTINGS.poll_interval or 1) * 2 + 2


@in_virtual_time
async def test_waiters_of_one_client_acquire_in_their_order(world: World) -> None:
    """The lock goes round in the order in which it was asked for."""
    order: list[int] = []
    async with world.client() as client:

        async def work(number: int) -> None:
            async with client.lock("orders").hold():
                order.append(number)
                await asyncio.sleep(0.01)

        await asyncio.gather(*(work(number) for number in range(10)))

    assert order == list(range(10))


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


@in_virtual_time
async def test_a_second_acquire_by_the_same_task_waits(world: World) -> None:
    """Locks are not re-entrant: it waits, ``try_acquire`` gives None."""
    async with world.client() as client:
        lock = client.lock("orders")
        async with lock.hold():
            assert await lock.try_acquire() is None
            assert await client.lock("orders").try_acquire() is None
            with pytest.raises(AcquireTimeoutError) as caught:
                await lock.acquire(timeout=1.0)

    assert caught.value.status.state == "held"
    assert (caught.value.key, caught.value.timeout) == (KEY, 1.0)


@in_virtual_time
async def test_uncontended_requests_are_as_few_as_documented(world: World) -> None:
    """Acquire takes two requests the first time and one after; renew one; release one."""
    async with world.client() as client:
        lock = client.lock("orders")
        counts = []
        for _ in range(2):
            lease = await lock.acquire()
            counts.append(len(world.journal))
            await lease.confirm()
            counts.append(len(world.journal))
            await lease.release()
            counts.append(len(world.journal))

    assert counts == [2, 3, 4, 5, 6, 7]


BUSY = LeaseSettings(validity=2.0, max_clock_skew=0.0, poll_interval=0.05)


@pytest.mark.parametrize("poll", [0.05, 0.5, 5.0])
@pytest.mark.parametrize("lasting", [0.001, 0.02, 0.3])
@in_virtual_time
async def test_a_waiter_gets_its_turn_however_slowly_it_polls(
    world: World, poll: float, lasting: float
) -> None:
    """Within two runs of a client that takes the lock again and again, and half as many for each turn."""
    slow = LeaseSettings(validity=2.0, max_clock_skew=0.0, poll_interval=poll)
    run = Timing.of(BUSY, resolution=0.0).run_length
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
