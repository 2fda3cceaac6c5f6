"""Waiting for a lock: one waiter of a client talks to the store, first come, first served (rules 12, 13)."""

from __future__ import annotations

import asyncio
import threading
from itertools import pairwise
from typing import TYPE_CHECKING
from unittest.mock import Mock

import pytest

import asynclock
from asynclock import AcquireTimeoutError
from asynclock._core.engine import LockEngine
from asynclock._core.turns import Turns
from tests.unit.kit import KEY, SETTINGS, World, clock_of, in_virtual_time, our_record

if TYPE_CHECKING:
    from asynclock._core.protocol.held import HeldLock


@pytest.fixture
def turns() -> Turns:
    """Return a line that somebody is the head of."""
    turns = Turns(Mock(), Mock(), Mock())
    assert turns.try_enter()
    return turns


async def waiting(turns: Turns, count: int) -> list[asyncio.Task[HeldLock | None]]:
    """Return tasks that wait in the line, in this order."""
    waiters = [asyncio.create_task(turns.enter(None)) for _ in range(count)]
    await asyncio.sleep(0)
    return waiters


async def test_the_queue_is_first_come_first_served(turns: Turns) -> None:
    """Waiters become head in the order in which they came."""
    waiters = await waiting(turns, 3)
    for number, waiter in enumerate(waiters):
        turns.leave()
        assert await waiter is None
        assert not any(later.done() for later in waiters[number + 1 :])


async def test_an_empty_queue_can_be_entered_at_once(turns: Turns) -> None:
    """After the last one has left nobody waits."""
    assert not turns.try_enter()
    turns.leave()
    assert turns.try_enter()


async def test_a_waiter_gives_up_after_its_time(turns: Turns) -> None:
    """A time-out leaves no trace in the queue."""
    with pytest.raises(TimeoutError):
        await turns.enter(0)
    turns.leave()
    assert turns.try_enter()


async def test_a_cancelled_waiter_lets_the_next_one_pass(turns: Turns) -> None:
    """Cancelling the first in line makes the second the first."""
    first, second = await waiting(turns, 2)
    first.cancel()
    await asyncio.sleep(0)
    turns.leave()

    assert await second is None


async def test_a_cancellation_just_before_its_turn_is_a_cancellation(turns: Turns) -> None:
    """A waiter that is passed over because it was just cancelled raises CancelledError, and nothing else."""
    first, second = await waiting(turns, 2)
    first.cancel()
    turns.leave()

    assert await second is None
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_a_turn_that_comes_with_a_cancellation_is_passed_on(turns: Turns) -> None:
    """If a waiter is cancelled in the instant of its turn, the next one has it."""
    first, second = await waiting(turns, 2)
    turns.leave()
    first.cancel()

    with pytest.raises(asyncio.CancelledError):
        await first
    assert await second is None


async def test_a_turn_that_nobody_can_take_frees_the_queue(turns: Turns) -> None:
    """If the last waiter is cancelled in the instant of its turn, nobody is the head."""
    (last,) = await waiting(turns, 1)
    turns.leave()
    last.cancel()

    with pytest.raises(asyncio.CancelledError):
        await last
    assert turns.held is None
    assert turns.try_enter()


async def test_a_lock_that_nobody_can_take_is_freed(turns: Turns) -> None:
    """If it was handed over in the instant of a cancellation, it is freed before the next turn."""
    (last,) = await waiting(turns, 1)
    turns.held = handed = Mock()
    assert turns.hand_over(handed)
    last.cancel()

    with pytest.raises(asyncio.CancelledError):
        await last
    handed.release.free.assert_called_once_with()
    assert turns.held is handed
    assert not turns.try_enter()


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


def test_two_threads_that_name_a_lock_at_once_share_one_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same name is the same queue, though both threads find it missing."""
    both_here = threading.Barrier(2, timeout=5)
    make = LockEngine

    def made_at_once(**parts: object) -> LockEngine:
        both_here.wait()
        return make(**parts)  # type: ignore[arg-type]

    monkeypatch.setattr("asynclock._core.client.LockEngine", made_at_once)
    client = asynclock.connect("memory://")
    engines: list[LockEngine] = []
    threads = [
        threading.Thread(target=lambda: engines.append(client._core.engine("orders"))) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert engines[0] is engines[1]


@in_virtual_time
async def test_a_waiter_cancelled_as_its_turn_comes_passes_it_on(world: World) -> None:
    """If nobody else waits, the queue is free again (rule 12)."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        waiting = asyncio.create_task(client.lock("orders").acquire())
        await asyncio.sleep(0.1)
        (call,) = client._core._objects.in_flight._acquisitions
        lease._held.ending.future.add_done_callback(lambda _: call.cancel())
        clock_of(client).step(20.0)
        assert not lease.held  # its end gives the waiter the turn
        clock_of(client).step(-20.0)

        with pytest.raises(asyncio.CancelledError):
            await waiting

        await (await client.lock("orders").acquire(timeout=30)).release()


@in_virtual_time
async def test_looks_at_a_held_lock_are_jittered(world: World) -> None:
    """A waiter looks after half to all of the poll interval, each time a different share (rule 13)."""
    world.put(our_record(valid_until=world.now + 1000, lease_ms=1_000_000))
    async with world.client() as client:
        with pytest.raises(asynclock.AcquireTimeoutError):
            await client.lock("orders").acquire(timeout=5)

    looks = [each.at for each in world.journal if each.kind == "get"]
    gaps = [after - before - 0.02 for before, after in pairwise(looks)]
    assert all(0.12 < gap < 0.26 for gap in gaps[:-1])
    assert len({round(gap, 3) for gap in gaps}) > len(gaps) / 2


@in_virtual_time
async def test_where_no_date_was_usable_a_second_passes_before_the_next_look(world: World) -> None:
    """A client whose wall clock agrees with no Date does not ask again and again."""
    client = world.client(wall_error=3600.0)
    began = len(world.journal)
    with pytest.raises(asynclock.AcquireTimeoutError):
        await client.lock("orders").acquire(timeout=2.5)
    looks = [each.at for each in world.journal[began:] if each.kind == "get"]

    assert len(looks) >= 2
    assert all(later - earlier >= 1.0 for earlier, later in pairwise(looks))
