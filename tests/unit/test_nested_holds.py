"""``async with lock``, and ``hold()`` in ``hold()`` or without ``async with``."""

from __future__ import annotations

import asyncio
import gc
import threading
from typing import TYPE_CHECKING

import pytest
import trio

import asynclock
from asynclock import LeaseSettings, LeaseTakenOverError, sync
from tests.unit.kit import World, in_virtual_time, our_record

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from asynclock._core.home import Renewal

NESTED = "pass the lease on"
SETTINGS = LeaseSettings(validity=20.0, max_clock_skew=0.0)


@in_virtual_time
async def test_a_lock_is_held_for_the_body_of_async_with(world: World) -> None:
    """``async with lock as lease`` holds it in the body and frees it after."""
    async with world.client() as client:
        async with client.lock("orders") as lease:
            assert lease.held
            assert not world.record().expired
        assert world.record().expired


@in_virtual_time
async def test_tasks_that_share_a_lock_have_it_one_after_the_other(world: World) -> None:
    """One ``Lock`` serves many tasks at once, each of which leaves its own lease."""
    inside = total = 0

    async def work() -> None:
        nonlocal inside, total
        async with lock as lease:
            inside += 1
            assert inside == 1
            assert lease.held
            await asyncio.sleep(0.1)
            inside -= 1
            total += 1

    async with world.client() as client:
        lock = client.lock("orders")
        await asyncio.gather(*(work() for _ in range(5)))
        assert total == 5
        assert (await lock.status()).state == "free"


@in_virtual_time
async def test_a_loss_cancels_the_body_of_async_with(world: World) -> None:
    """As that of ``hold()``: the statement raises the loss."""
    async with world.client() as client:
        with pytest.raises(LeaseTakenOverError):  # noqa: PT012  the end of the body raises it
            async with client.lock("orders"):
                world.put(our_record(valid_until=world.now + 12, owner="thief"))
                await asyncio.sleep(30)


@in_virtual_time
async def test_another_task_may_leave_the_only_body(world: World) -> None:
    """A fixture or an exit stack that is closed elsewhere releases the lease."""
    async with world.client() as client:
        lock = client.lock("orders")
        lease = await asyncio.create_task(lock.__aenter__())

        await lock.__aexit__(None, None, None)

        assert not lease.held
        with pytest.raises(RuntimeError, match="has not entered"):
            await lock.__aexit__(None, None, None)


def test_a_body_that_is_dropped_with_its_task_frees_the_lock() -> None:
    """A lock that is kept for long keeps no lease of a task that nobody can reach."""

    async def main() -> None:
        async with asynclock.connect("memory://", settings=SETTINGS) as client:
            lock = client.lock("orders")
            entered = asyncio.Event()

            async def body() -> None:
                async with lock:
                    entered.set()
                    await asyncio.get_running_loop().create_future()

            asyncio.get_running_loop().set_exception_handler(lambda *_: None)  # "Task was destroyed"
            task = asyncio.create_task(body())
            await entered.wait()
            await asyncio.sleep(0.01)  # the loop has let go of the task as well
            del task
            gc.collect()
            async with asyncio.timeout(5):
                await (await lock.acquire()).release()

    with pytest.warns(ResourceWarning, match="'orders' was dropped"):
        asyncio.run(main())


@in_virtual_time
async def test_hold_inside_of_hold_is_refused_at_once(world: World) -> None:
    """The same task would wait for itself; the outer lease goes on, and the lock is free after it."""
    async with world.client() as client:
        async with client.lock("orders").hold() as lease:
            began = world.now
            with pytest.raises(RuntimeError, match=NESTED):
                async with client.lock("orders").hold(timeout=5):
                    raise AssertionError
            with pytest.raises(RuntimeError, match=NESTED):
                async with client.lock("orders"):
                    raise AssertionError
            assert world.now == began
            assert lease.held
        async with client.lock("orders").hold(timeout=0) as again:
            assert again.held


@in_virtual_time
async def test_a_lock_that_was_released_early_may_be_held_again(world: World) -> None:
    """A body that has released its lease waits for nobody."""
    async with world.client() as client, client.lock("orders").hold() as lease:
        await lease.release()
        async with client.lock("orders").hold(timeout=5) as again:
            assert again.held


@in_virtual_time
async def test_other_locks_and_other_tasks_are_not_refused(world: World) -> None:
    """Another lock is held beside it, and another task waits for the end of the body."""
    async with world.client() as client:

        async def other() -> None:
            async with client.lock("orders").hold(timeout=5):
                pass

        async with client.lock("orders").hold(), client.lock("bills").hold():
            waiting = asyncio.create_task(other())
            await asyncio.sleep(1)
            assert not waiting.done()
        await waiting


def test_a_thread_that_holds_a_lock_is_refused_at_once() -> None:
    """The same for threads; another thread waits."""
    with sync.connect("memory://", settings=SETTINGS) as client:
        lock = client.lock("orders")
        with lock as lease:
            assert lease.held
            with pytest.raises(RuntimeError, match=NESTED), lock.hold():
                raise AssertionError
            with pytest.raises(RuntimeError, match=NESTED), client.lock("orders"):
                raise AssertionError
            had = threading.Event()

            def other() -> None:
                with client.lock("orders").hold(timeout=20):
                    had.set()

            thread = threading.Thread(target=other)
            thread.start()
            assert not had.wait(0.2)
        thread.join(20)
        assert had.is_set()
        assert not lease.held
        with pytest.raises(RuntimeError, match="has not entered"):
            lock.__exit__(None, None, None)


@pytest.mark.parametrize("connect", [asynclock.connect, sync.connect])
def test_a_hold_that_is_never_entered_warns(connect: Callable[[str], Any]) -> None:
    """A line ``lock.hold()`` locks nothing: ResourceWarning, which python -X dev shows."""
    lock = connect("memory://").lock("orders")

    with pytest.warns(ResourceWarning, match=r"'orders' was never entered, so nothing was locked; write: "):
        lock.hold()


@pytest.mark.parametrize("renewal", ["thread", "loop"])
def test_trio_is_told_what_to_use(renewal: Renewal) -> None:
    """Without a loop of asyncio a call says so, and names the way under trio."""

    async def entered() -> None:
        async with asynclock.connect("memory://", renewal=renewal):
            raise AssertionError

    async def called() -> None:
        await asynclock.connect("memory://", renewal=renewal).lock("orders").acquire()

    async def held() -> None:
        async with asynclock.connect("memory://", renewal=renewal).lock("orders"):
            raise AssertionError

    async def probed() -> None:
        await asynclock.probe("memory://")

    for main in (entered, called, held, probed):
        with pytest.raises(RuntimeError, match=r"trio\.to_thread\.run_sync"):
            trio.run(main)


def test_the_way_under_trio_works() -> None:
    """``asynclock.sync`` in a thread holds a lock while trio runs."""

    def work() -> int:
        with sync.connect("memory://", settings=SETTINGS) as client, client.lock("orders") as lease:
            return lease.fencing_token

    assert trio.run(trio.to_thread.run_sync, work) > 0
