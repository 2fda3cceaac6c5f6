"""Cancelled acquisitions and releases leave nothing behind (rule 16)."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

import asynclock
from asynclock.testing._faulty import Fault, FaultyBackend
from tests.unit.kit import SETTINGS, World, faulty, in_virtual_time, our_record

STEPS = [0.005 * step for step in range(16)]
"""Instants all over an acquisition, whose two requests take 20 ms each."""


@pytest.mark.parametrize("again", [False, True], ids=["once", "twice"])
@pytest.mark.parametrize("after", STEPS)
def test_a_cancelled_acquire_leaves_nothing(world: World, after: float, *, again: bool) -> None:
    """Whenever it is cancelled, once or twice, the lock is free afterwards and nobody holds it."""

    async def story() -> None:
        async with world.client() as client:
            task = asyncio.create_task(client.lock("orders").acquire())
            await asyncio.sleep(after)
            if task.cancel():
                if again:
                    await asyncio.sleep(0.003)
                    task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            else:
                await (await task).release()
            assert world.store.body("orders.json") is None or world.record().expired
            assert client._core._schedule.held == []

            lease = await client.lock("orders").acquire(timeout=1.0)
            assert lease.held

    world.loop.run_until_complete(story())


@pytest.mark.parametrize("again", [False, True], ids=["once", "twice"])
@pytest.mark.parametrize("after", STEPS[:6])
def test_a_cancelled_release_still_frees(world: World, after: float, *, again: bool) -> None:
    """A release goes on to its end, then the cancellation is let through."""

    async def story() -> None:
        async with world.client() as client:
            lease = await client.lock("orders").acquire()
            task = asyncio.create_task(lease.release())
            await asyncio.sleep(after)
            cancelled = task.cancel()
            if again:
                await asyncio.sleep(0.003)
                task.cancel()
            if cancelled:
                with pytest.raises(asyncio.CancelledError):
                    await task
            assert not lease.held
            await asyncio.sleep(0.1)
            assert world.record().expired

    world.loop.run_until_complete(story())


@in_virtual_time
async def test_a_cancelled_acquire_with_a_lost_answer_is_reaped(world: World) -> None:
    """Cancelled while the outcome of its write is open: what lands is freed."""
    async with world.client() as client:
        backend = faulty(client)
        backend.delay = (2.0, 2.0)
        backend.inject(Fault.LATE, operation="put_if_absent")
        task = asyncio.create_task(client.lock("orders").acquire())
        await asyncio.sleep(0.025)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(10.0)

        assert world.record().expired


@in_virtual_time
async def test_a_cancelled_waiter_in_line_costs_the_others_nothing(world: World) -> None:
    """Cancelling one of many waiters lets the rest acquire in order."""
    done: list[int] = []
    async with world.client() as client:

        async def work(number: int) -> None:
            async with client.lock("orders").hold():
                await asyncio.sleep(0.05)
                done.append(number)

        tasks = [asyncio.create_task(work(number)) for number in range(20)]
        for number in (3, 4, 10, 19):
            await asyncio.sleep(0.04)
            tasks[number].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

        assert done == [number for number in range(20) if number not in {3, 4, 10, 19}]
        after = await client.lock("orders").try_acquire()
        assert after is not None
        await after.release()


@in_virtual_time
async def test_a_cancelled_waiter_for_anothers_lock_writes_nothing(world: World) -> None:
    """Waiting only reads: cancelling it leaves the holder's record alone."""
    async with world.client() as client:
        world.put(our_record(valid_until=world.now + 12))
        before = len(world.writes())
        task = asyncio.create_task(client.lock("orders").acquire())
        await asyncio.sleep(1.0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

        assert len(world.writes()) == before


@pytest.mark.parametrize("renewal", ["thread", "loop"])
async def test_a_cancellation_is_let_through_in_both_modes(renewal: str) -> None:
    """On the caller's loop and on the host's thread, a cancelled acquire leaves the lock free."""
    async with asynclock.connect("memory://", renewal=renewal) as client:  # type: ignore[arg-type]
        lock = client.lock("orders")
        for steps in range(30):
            task = asyncio.create_task(lock.acquire())
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await (await task).release()
            assert (await lock.status()).state in {"absent", "free"}
        async with lock.hold(timeout=1.0) as lease:
            assert lease.held


@pytest.mark.parametrize("renewal", ["thread", "loop"])
async def test_a_release_cancelled_before_it_began_still_frees(renewal: str) -> None:
    """A cancellation never comes before the first step of a release, on either loop."""
    async with asynclock.connect("memory://", renewal=renewal) as client:  # type: ignore[arg-type]
        lock = client.lock("orders")
        for steps in range(60):
            lease = await lock.acquire()
            task = asyncio.create_task(lease.release())
            for _ in range(1 + steps % 6):
                await asyncio.sleep(0)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            assert not lease.held
            assert (await lock.status()).state == "free"


def test_the_backend_of_these_tests_is_faulty(world: World) -> None:
    """The clients of this file go through the wrapper that injects faults."""
    assert isinstance(world.client(SETTINGS).backend, FaultyBackend)


@pytest.mark.timeout(20)
async def test_a_program_may_cancel_all_other_tasks_while_an_acquisition_begins() -> None:
    """The caller of the acquisition is cancelled, though the acquisition's task never made a step."""
    client = asynclock.connect("memory://cancelling", renewal="loop")
    acquiring = asyncio.create_task(client.lock("orders").acquire())
    await asyncio.sleep(0)
    for task in asyncio.all_tasks() - {asyncio.current_task(), acquiring}:
        task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await acquiring
    await client.aclose()
