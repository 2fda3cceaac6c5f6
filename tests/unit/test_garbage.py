"""What a lock has used is free at once: the garbage collector finds nothing of it."""

from __future__ import annotations

import asyncio
import gc
from contextvars import copy_context
from typing import TYPE_CHECKING

import pytest

import asynclock
from asynclock import AcquireTimeoutError, BackendError, ConfigError, sync
from asynclock._core.portal import Call
from asynclock.backends._cloud import BackendCall
from asynclock.backends._gcs import GcsBackend
from tests.unit.kit import World, in_virtual_time

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextvars import Context

    from asynclock._core.home import Renewal

TIMES = 20


@pytest.fixture
def collector() -> Iterator[None]:
    """Keep the collector from running by itself."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


async def use(lock: asynclock.Lock) -> None:
    """Acquire and release."""
    lease = await lock.acquire()
    await lease.release()


async def unreachable() -> int:
    """Return how many objects only the collector can free, once the host's loop has come to rest."""
    await asyncio.sleep(0.05)
    return gc.collect()


@pytest.mark.parametrize("renewal", ["loop", "thread"])
@pytest.mark.usefixtures("collector")
async def test_acquire_and_release_leave_no_garbage(renewal: Renewal) -> None:
    """No circle of references is left, whichever thread the lease was renewed in."""
    async with asynclock.connect("memory://", renewal=renewal) as client:
        lock = client.lock("orders")
        await use(lock)  # the first one opens the backend
        gc.collect()
        for _ in range(TIMES):
            await use(lock)

        assert await unreachable() == 0


@pytest.mark.usefixtures("collector")
async def test_a_timeout_leaves_no_garbage() -> None:
    """An acquisition that failed leaves no cycle, once its error is gone."""
    async with asynclock.connect("memory://") as client:
        lock = client.lock("orders")
        async with lock.hold():
            gc.collect()
            for _ in range(TIMES):
                with pytest.raises(AcquireTimeoutError):
                    await lock.acquire(timeout=0)

            assert await unreachable() == 0


async def cancel(lock: asynclock.Lock, turns: int) -> None:
    """Begin to acquire and cancel that some turns of the loop later."""
    acquiring = asyncio.create_task(lock.acquire())
    for _ in range(turns):
        await asyncio.sleep(0)
    acquiring.cancel()
    with pytest.raises(asyncio.CancelledError):
        await acquiring


@pytest.mark.parametrize("renewal", ["loop", "thread"])
@pytest.mark.parametrize("turns", [1, 5])
@pytest.mark.usefixtures("collector")
async def test_a_cancelled_acquisition_leaves_no_garbage(renewal: Renewal, turns: int) -> None:
    """A cancelled acquisition leaves no cycle, cancelled in its first step or while it waited."""
    async with asynclock.connect("memory://", renewal=renewal) as client:
        lock = client.lock("orders")
        async with lock.hold():
            await cancel(lock, turns)
            await unreachable()
            for _ in range(TIMES):
                await cancel(lock, turns)

            assert await unreachable() == 0


@pytest.mark.usefixtures("collector")
def test_a_refusal_leaves_no_garbage() -> None:
    """A failed call of a store, as after each lost race, leaves no cycle."""
    backend = GcsBackend("bucket")
    asyncio.run(unreachable())  # what the tests before have left
    for _ in range(TIMES):
        with pytest.raises(BackendError), BackendCall(backend, "put_if_match", "orders.json"):
            raise ValueError

    assert gc.collect() == 0


@pytest.mark.usefixtures("collector")
def test_a_blocking_lock_leaves_no_garbage() -> None:
    """The blocking facade leaves no cycle."""
    with sync.connect("memory://") as client:
        lock = client.lock("orders")
        with lock.hold():
            pass
        gc.collect()
        for _ in range(TIMES):
            with lock.hold():
                pass

        assert asyncio.run(unreachable()) == 0


def calls() -> int:
    """Return how many calls there are in this process."""
    return sum(isinstance(each, Call) for each in gc.get_objects())


@pytest.mark.parametrize("renewal", ["loop", "thread"])
@pytest.mark.usefixtures("collector")
async def test_what_keeps_a_context_keeps_nothing_of_the_call_that_made_it(renewal: Renewal) -> None:
    """Timers, callbacks and tasks that a backend begins copy their context, some for a minute."""
    kept: list[Context] = []
    async with asynclock.connect(
        "memory://", renewal=renewal, events=lambda _: kept.append(copy_context())
    ) as client:
        before = calls()
        await use(client.lock("orders"))
        await asyncio.sleep(0.05)

        assert len(kept) == 2
        assert calls() == before


@in_virtual_time
async def test_a_client_keeps_nothing_of_leases_that_ended(world: World) -> None:
    """However often a lock is taken, no call, task or lease of it stays behind."""
    async with world.client() as client:
        for _ in range(3):
            await (await client.lock("orders").acquire()).release()
        in_flight = client._core._objects.in_flight
        in_flight.close(ConfigError(setting="client", value="orders", reason="it was closed"))

        assert not in_flight.pending
        assert not client._core._schedule.held
