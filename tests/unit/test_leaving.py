"""Leaving a body waits two seconds at most for the store's word; the rest goes on behind them (rule 24)."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING

import pytest

from asynclock import AcquireTimeoutError, LeaseSettings, LockClient
from asynclock._core.protocol.timing import ROUND_TRIP
from asynclock.testing._clocks import VirtualClock
from asynclock.testing._faulty import Fault, FaultyBackend
from tests.unit.kit import ALWAYS, KEY, World, faulty, in_virtual_time, while_renewing
from tests.unit.programs import record, run

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

LONG = LeaseSettings(validity=300.0, max_clock_skew=1.0, poll_interval=0.25)
"""A request may take 60 s."""
BOUND = 2.0
ROUNDING = 0.01


def refuse(world: World, client: LockClient) -> None:
    """Let the store refuse every write."""
    del world
    faulty(client).inject(Fault.UNAVAILABLE, operation="put_if_match", times=ALWAYS)


def hang(world: World, client: LockClient) -> None:
    """Let the store answer nothing."""
    del client
    world.store.cut_off.add(world.loop.world)


def recover(world: World, client: LockClient) -> None:
    """Let the store work again."""
    faulty(client).calm()
    world.store.cut_off.clear()


async def end_of_body(world: World, client: LockClient, fail: Callable[[World, LockClient], None]) -> float:
    """Leave ``hold()`` at its end."""
    async with client.lock("orders").hold():
        fail(world, client)
        return world.now


async def release(world: World, client: LockClient, fail: Callable[[World, LockClient], None]) -> float:
    """Release by hand."""
    lease = await client.lock("orders").acquire()
    fail(world, client)
    began = world.now
    await lease.release()
    return began


async def error(world: World, client: LockClient, fail: Callable[[World, LockClient], None]) -> float:
    """Leave by an exception."""
    with suppress(ZeroDivisionError):
        async with client.lock("orders") as lease:
            await while_renewing(lease)
            fail(world, client)
            began = world.now
            raise ZeroDivisionError
    return began


async def cancellation(world: World, client: LockClient, fail: Callable[[World, LockClient], None]) -> float:
    """Be cancelled in the body, and again while leaving."""

    async def body() -> None:
        async with client.lock("orders").hold():
            await asyncio.sleep(1000)

    task = asyncio.create_task(body())
    await asyncio.sleep(1)
    fail(world, client)
    began = world.now
    for _ in range(3):
        task.cancel()
        await asyncio.sleep(0.3)
    await asyncio.wait([task])
    assert task.cancelled()
    return began


async def cancelled_release(
    world: World, client: LockClient, fail: Callable[[World, LockClient], None]
) -> float:
    """Be cancelled while leaving only."""
    lease = await client.lock("orders").acquire()
    fail(world, client)
    began = world.now
    task = asyncio.create_task(lease.release())
    await asyncio.sleep(0.5)
    task.cancel()
    await asyncio.wait([task])
    return began


async def handed_on(world: World, client: LockClient, fail: Callable[[World, LockClient], None]) -> float:
    """Release while another of this client waits."""
    lease = await client.lock("orders").acquire()
    receiving = asyncio.create_task(client.lock("orders").acquire())
    await asyncio.sleep(0.1)
    fail(world, client)
    began = world.now
    await lease.release()
    receiving.cancel()
    return began


@pytest.mark.parametrize("fail", [refuse, hang])
@pytest.mark.parametrize(
    "leave",
    [end_of_body, release, error, cancellation, cancelled_release, handed_on],
)
def test_leaving_waits_two_seconds_at_most_for_the_store(
    world: World,
    leave: Callable[[World, LockClient, Callable[[World, LockClient], None]], Awaitable[float]],
    fail: Callable[[World, LockClient], None],
) -> None:
    """Belief has ended by then; the release goes on in the background, says so, and frees the lock."""

    async def story() -> None:
        client = world.client(LONG)
        began = await leave(world, client, fail)
        assert world.now - began <= BOUND + ROUNDING
        assert world.told()[-1] == "release_pending"
        assert client._core._schedule.held == [] or not any(
            each.belief.end_if_due() > 0 for each in client._core._schedule.held
        )
        await asyncio.sleep(10.0)
        recover(world, client)
        await asyncio.sleep(100.0)

        assert world.record().expired
        assert world.told()[-1] == "released"
        await client.aclose()

    world.loop.run_until_complete(story())


@pytest.mark.parametrize("operation", ["put_if_absent", "get"])
def test_a_cancelled_acquisition_ends_within_the_bound(world: World, operation: str) -> None:
    """Its write is cut off two seconds after the cancellation, and made harmless after that (rule 16)."""

    async def story() -> None:
        client = world.client(LONG)
        faulty(client).delay = (30.0, 30.0)
        faulty(client).inject(Fault.SLOW, operation=operation)
        task = asyncio.create_task(client.lock("orders").acquire())
        await asyncio.sleep(1.0)
        began = world.now
        task.cancel()
        await asyncio.sleep(0.1)
        task.cancel()
        await asyncio.wait([task])

        assert task.cancelled()
        assert world.now - began <= BOUND + ROUNDING
        await asyncio.sleep(100.0)
        assert world.store.body(KEY) is None or world.record().expired
        await client.aclose()

    world.loop.run_until_complete(story())


@in_virtual_time
async def test_a_lock_that_a_cancelled_acquisition_got_is_released_within_the_same_bound(
    world: World,
) -> None:
    """The wait for the write and that for the release share the two seconds."""
    client = world.client(LONG)
    faulty(client).delay = (2.5, 2.5)
    faulty(client).inject(Fault.SLOW, operation="put_if_absent")
    faulty(client).inject(Fault.UNAVAILABLE, operation="put_if_match", times=ALWAYS)
    task = asyncio.create_task(client.lock("orders").acquire())
    await asyncio.sleep(1.0)
    began = world.now
    task.cancel()
    await asyncio.wait([task])

    assert world.now - began <= BOUND + ROUNDING
    faulty(client).calm()
    await asyncio.sleep(60.0)
    assert world.record().expired
    await client.aclose()


@in_virtual_time
async def test_a_successor_of_the_same_client_waits_for_the_release_in_the_background(world: World) -> None:
    """It has the lock once that has ended; a timeout before that says why."""
    client = world.client(LONG)
    lease = await client.lock("orders").acquire()
    refuse(world, client)
    await lease.release()
    with pytest.raises(AcquireTimeoutError, match=r"last release is not confirmed.*put_if_match"):
        await client.lock("orders").acquire(timeout=5.0)
    successor = asyncio.create_task(client.lock("orders").acquire())
    await asyncio.sleep(5.0)
    assert not successor.done()
    recover(world, client)
    following = await successor

    assert following.held
    assert following.fencing_token > lease.fencing_token
    await following.release()
    await client.aclose()


@in_virtual_time
async def test_a_client_that_is_closed_during_it_says_how_it_ended(world: World) -> None:
    """Closing waits for it within its own bound, and reports what was not confirmed."""
    client = world.client(LONG)
    lease = await client.lock("orders").acquire()
    refuse(world, client)
    await lease.release()
    began = world.now
    await client.aclose()

    assert world.now - began <= BOUND + ROUNDING
    assert world.told() == ["acquired", "release_pending", "release_unconfirmed"]


@in_virtual_time
async def test_an_exit_during_it_says_that_it_was_not_confirmed(world: World) -> None:
    """An exit waits for it as for any release, and its last word is no silence."""
    client = world.client(LONG)
    lease = await client.lock("orders").acquire()
    refuse(world, client)
    await lease.release()
    await client._core.release_all()

    assert world.told() == ["acquired", "release_pending", "release_unconfirmed"]
    assert "the process ended" in world.events[-1].detail
    await client.aclose()


@in_virtual_time
async def test_a_signal_that_is_survived_says_what_is_still_under_way(world: World) -> None:
    """The lease is lost; its release goes on, and ends as any other."""
    client = world.client(LONG)
    _held = await client.lock("orders").acquire()
    refuse(world, client)
    await client._core.release_all(loss="a signal")
    recover(world, client)
    await asyncio.sleep(60.0)

    assert world.told() == ["acquired", "lost", "release_pending", "released"]
    await client.aclose()


@pytest.mark.parametrize("validity", [2.0, 3.0, 5.0, 20.0])
@pytest.mark.parametrize("leave", ["release", "exit", "close"])
def test_leaving_gives_a_paced_store_the_time_that_it_takes(
    world: World, validity: float, leave: str
) -> None:
    """Cloud Storage takes a write a second: a lock that was just acquired is free after any end (rule 24)."""

    async def story() -> None:
        clock = VirtualClock(world.loop)
        backend = FaultyBackend(world.store.backend(world.loop.world), clock=clock)
        backend.min_write_interval = 1.0
        settings = LeaseSettings(validity=validity, max_clock_skew=0.1, poll_interval=0.1)
        client = LockClient(
            url="sim://store", backend=backend, settings=settings, renewal="loop", clock=clock, rng=Random(1)
        )
        lease = await client.lock("orders").acquire()
        began = world.now
        if leave == "release":
            await lease.release()
        elif leave == "exit":
            await client._core.release_all()
        else:
            await client.aclose()

        assert world.record().expired
        assert world.now - began <= 1.0 + ROUND_TRIP
        await client.aclose()

    world.loop.run_until_complete(story())


STUCK = """
from asynclock.backends._local import LocalBackend
from asynclock.errors import BackendUnavailableError

kept, refusing = LocalBackend.put_if_match, True

async def put_if_match(self, key, body, version):
    if refusing:
        raise BackendUnavailableError(backend="file", operation="put", key=key, detail="full", written="no")
    return await kept(self, key, body, version)

LocalBackend.put_if_match = put_if_match
told = []

async def main():
    global refusing
    tell = lambda event: told.append(event.kind)
    client = asynclock.connect(url, settings=settings, renewal=RENEWAL, events=tell)
    async with client.lock("orders").hold():
        pass

asyncio.run(main())
print(*told)
refusing = False
"""


@pytest.mark.parametrize("renewal", ["thread", "loop"])
def test_a_release_in_the_background_goes_on_at_the_exit(tmp_path: Path, renewal: str) -> None:
    """Also where the loop that it ran on was closed by ``asyncio.run`` meanwhile."""
    outcome, output, errors = run(STUCK.replace("RENEWAL", repr(renewal)), tmp_path)

    assert (outcome, output) == (0, "acquired release_pending\n"), errors
    assert record(tmp_path).expired
