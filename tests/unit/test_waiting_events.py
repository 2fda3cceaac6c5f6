"""What a listener hears of an acquisition that does not succeed at once."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import pytest

from asynclock.errors import AcquireTimeoutError, BackendError
from asynclock.testing._faulty import Fault
from tests.unit.kit import KEY, faulty, in_virtual_time, our_record

if TYPE_CHECKING:
    from tests.unit.kit import World


@in_virtual_time
async def test_a_waiting_acquisition_reports_who_holds_the_lock(world: World) -> None:
    """The event has the holder's owner, its words, and the longest time until the lock may be free."""
    world.put(our_record(valid_until=world.now + 12, owner="other"))
    async with world.client() as client:
        with pytest.raises(AcquireTimeoutError) as caught:
            await client.lock("orders").acquire(timeout=1.0)

    first = next(event for event in world.events if event.kind == "waiting")
    assert (first.key, first.owner) == (KEY, "other")
    assert first.remaining is not None
    assert 0 < first.remaining < 30
    assert caught.value.reason is None


@in_virtual_time
@pytest.mark.parametrize("here", [False, True])
@pytest.mark.parametrize("kind", ["semaphore", "read", "write"])
async def test_a_wait_for_a_slot_or_a_side_is_said_and_so_is_its_end(
    world: World,
    caplog: pytest.LogCaptureFixture,
    kind: str,
    here: bool,  # noqa: FBT001
) -> None:
    """Under the name of what is asked for, whether another client is in the way or this one."""
    caplog.set_level(logging.INFO, "asynclock")
    async with world.client() as client, world.client(holder="another") as other:
        sides = []
        for each in (client, client if here else other):
            rwlock = each.rwlock("orders")
            semaphore = each.semaphore("orders", 1)
            sides.append(
                {
                    "semaphore": (semaphore,) * 2,
                    "read": (rwlock.read, rwlock.write),
                    "write": (rwlock.write, rwlock.read),
                }[kind]
            )
        asked, in_the_way = sides[0][0], sides[1][1]
        lease = await in_the_way.acquire()

        async def wait(timeout: float) -> None:
            await (await asked.acquire(timeout=timeout)).release()

        with pytest.raises(AcquireTimeoutError, match="last seen held"):
            await asyncio.create_task(wait(1.0))
        assert any(event.kind == "not_acquired" for event in world.events)
        waiting = asyncio.create_task(wait(30.0))
        await asyncio.sleep(6.0)
        await lease.release()
        await waiting
    name = "orders/rw=w" if kind == "write" else "orders"
    said = [text for text in caplog.messages if text.startswith(("waiting for", "acquired"))]
    assert len(said) == 3, said
    assert all(text.startswith(f"waiting for sim://store/{name}, held by ") for text in said[:2])
    assert said[2].startswith(f"acquired sim://store/{name} after ")
    assert any(event.kind == "waiting" for event in world.events) is not here


@in_virtual_time
async def test_a_failed_round_is_reported_with_its_reason(world: World) -> None:
    """A store that does not answer is an event of its own, and the cause of the timeout, in its text too."""
    async with world.client() as client:
        faulty(client).inject(Fault.REQUEST_LOST, times=10_000)
        with pytest.raises(AcquireTimeoutError) as caught:
            await client.lock("orders").acquire(timeout=5.0)

    failed = next(event for event in world.events if event.kind == "acquire_failed")
    assert caught.value.reason is not None
    assert caught.value.reason.partition(" [")[0] in str(caught.value)
    assert isinstance(caught.value.__cause__, BackendError)
    assert failed.detail


@in_virtual_time
@pytest.mark.parametrize("kind", ["lock", "semaphore", "read", "write"])
async def test_a_failed_round_says_how_long_is_left(world: World, kind: str) -> None:
    """Of each kind of lock: until the call gives up, which a reader of the log wants to know."""
    async with world.client() as client:
        rwlock, semaphore = client.rwlock("orders"), client.semaphore("orders", 2)
        # A writer looks at the readers when its own lock is written.
        fault = {"operation": "get", "nth": 2} if kind == "write" else {}
        faulty(client).inject(Fault.REQUEST_LOST, times=10_000, **fault)
        asked = {
            "lock": client.lock("orders"),
            "semaphore": semaphore,
            "read": rwlock.read,
            "write": rwlock.write,
        }
        with pytest.raises(AcquireTimeoutError):
            await asked[kind].acquire(timeout=5.0)

    limits = [event.limit for event in world.events if event.kind == "acquire_failed"]
    assert limits
    assert all(limit is not None and 0.0 <= limit <= 5.0 for limit in limits)


@in_virtual_time
async def test_a_failure_before_the_last_look_is_not_the_cause_of_a_timeout(world: World) -> None:
    """The store answers again and shows another holder: that is why the lock was not acquired."""
    world.put(our_record(valid_until=world.now + 100, owner="other"))
    async with world.client() as client:
        faulty(client).inject(Fault.REQUEST_LOST, times=1)
        acquiring = asyncio.create_task(client.lock("orders").acquire(timeout=8.0))
        with pytest.raises(AcquireTimeoutError) as caught:
            await acquiring

    assert "acquire_failed" in world.told()
    assert caught.value.reason is None
    assert caught.value.__cause__ is None
