"""A task that waits for a lock of its own is warned after a second, with the place where it was acquired."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
import time
from typing import TYPE_CHECKING

import pytest

from asynclock import AcquireTimeoutError, sync
from asynclock._core.acquirers import Acquirer
from tests.unit.kit import World, in_virtual_time

if TYPE_CHECKING:
    from asynclock import Lease
    from asynclock.lock import Holdable

OURS = "a task waits for a lock that it holds itself"


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the warnings of tasks that wait for themselves."""
    return [each.getMessage() for each in caplog.records if OURS in each.getMessage()]


def here(lines: int = 0) -> str:
    """Return this file and the caller's line, or one ``lines`` after it."""
    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return f"{__file__}:{frame.f_back.f_lineno + lines}"


async def give_up(lock: Holdable, timeout: float = 5.0) -> None:
    """Wait for a lock that does not come."""
    with pytest.raises(AcquireTimeoutError):
        await lock.acquire(timeout=timeout)


@in_virtual_time
async def test_the_task_itself_is_warned_once(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """One warning, after a second, with file and line of the acquisition."""
    async with world.client() as client:
        lock = client.lock("orders")
        lease, place = await lock.acquire(), here()
        await give_up(lock, timeout=0.9)
        assert warnings(caplog) == []
        await give_up(lock)
        (warning,) = warnings(caplog)
        assert place in warning
        assert "sim://store/orders" in warning
        await lease.release()


@in_virtual_time
async def test_a_child_is_warned_too(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """The holder that awaits a task which waits for the holder's lock, at any depth."""
    async with world.client() as client:
        lock = client.lock("orders")

        async def grandchild() -> None:
            async with client.lock("other").hold():
                await asyncio.gather(give_up(lock))

        async with lock.hold():
            await asyncio.create_task(grandchild())
        assert len(warnings(caplog)) == 1


@in_virtual_time
async def test_a_task_that_has_all_slots_is_warned(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """As long as one slot is another's, it waits for that one."""
    async with world.client() as client:
        semaphore = client.semaphore("orders", 2)
        mine, place = await semaphore.acquire(), here()
        other = await asyncio.create_task(semaphore.acquire())
        await give_up(semaphore)
        assert warnings(caplog) == []
        await other.release()
        also = await semaphore.acquire()
        await give_up(semaphore)
        (warning,) = warnings(caplog)
        assert place in warning
        await mine.release()
        await also.release()


@in_virtual_time
@pytest.mark.parametrize("side", ["read", "write"])
async def test_a_child_that_waits_for_the_other_side_is_warned(
    world: World, caplog: pytest.LogCaptureFixture, side: str
) -> None:
    """The task itself is refused; one that it started would wait for it as well."""
    async with world.client() as client:
        rwlock = client.rwlock("orders")
        other = "write" if side == "read" else "read"
        async with getattr(rwlock, side).hold():
            await asyncio.create_task(give_up(getattr(rwlock, other)))
        assert len(warnings(caplog)) == 1


@in_virtual_time
async def test_nobody_else_is_warned(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """Siblings, strangers, the holder's parent, and who gets it within a second wait as they should."""
    async with world.client() as client:
        lock = client.lock("orders")
        async with client.lock("of-their-parent").hold():
            holding: asyncio.Future[Lease] = asyncio.get_running_loop().create_future()

            async def holder() -> None:
                async with lock.hold() as lease:
                    holding.set_result(lease)
                    await asyncio.sleep(20.0)

            task = asyncio.create_task(holder())
            await holding
            sibling = asyncio.create_task(give_up(lock))
            stranger = asyncio.create_task(give_up(lock), context=contextvars.Context())
            await asyncio.gather(sibling, stranger, give_up(lock))
            await task
        async with lock.hold() as lease:
            waiter = asyncio.create_task(lock.acquire())
            await asyncio.sleep(0.5)
            await lease.release()
            await (await waiter).release()
        assert warnings(caplog) == []


def test_a_thread_is_warned_as_well(caplog: pytest.LogCaptureFixture) -> None:
    """Only the thread that holds it."""
    with sync.connect("memory://") as client:
        lock = client.lock("orders")
        lease, place = lock.acquire(), here()

        def wait(timeout: float) -> None:
            with pytest.raises(AcquireTimeoutError):
                lock.acquire(timeout=timeout)

        thread = threading.Thread(target=wait, args=(1.2,))
        thread.start()
        thread.join()
        assert warnings(caplog) == []
        began = time.monotonic()
        wait(1.2)
        assert time.monotonic() - began < 5.0
        (warning,) = warnings(caplog)
        assert place in warning
        lease.release()


async def test_tasks_that_start_each_other_make_no_chain() -> None:
    """Of the ancestors that have ended none is kept, also if they lived when their child was noted."""
    nodes: list[Acquirer] = []

    async def work() -> None:
        await asyncio.sleep(0)

    for _ in range(50):
        task = asyncio.create_task(work())
        nodes.append(Acquirer(task, nodes[-1] if nodes else None))
        if len(nodes) > 1:
            await asyncio.sleep(0.001)
    task = asyncio.create_task(work())
    last: Acquirer | None = Acquirer(task, nodes[-1])
    depth = 0
    while (last := last and last.parent) is not None:
        depth += 1

    await task
    assert depth <= 1
