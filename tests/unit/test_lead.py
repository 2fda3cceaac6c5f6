"""``lead``: work that runs under a lease and is called again after a loss."""

from __future__ import annotations

import asyncio

import pytest

from asynclock import Lease, LeaseLostError
from asynclock.errors import AcquireTimeoutError
from tests.unit.kit import World, in_virtual_time, our_record


@in_virtual_time
async def test_lead_returns_what_the_work_returns(world: World) -> None:
    """The work runs under the lease; afterwards the lock is free."""
    async with world.client() as client:

        async def work(lease: Lease) -> int:
            lease.check()
            await asyncio.sleep(1.0)
            return 42

        assert await client.lock("orders").lead(work) == 42
        assert world.record().expired


@in_virtual_time
async def test_lead_runs_again_after_a_loss(world: World) -> None:
    """After a loss the lock is acquired anew, and the work called with the new lease."""
    tokens: list[int] = []
    async with world.client() as client:

        async def work(lease: Lease) -> str:
            tokens.append(lease.fencing_token)
            if len(tokens) < 3:
                world.put(our_record(valid_until=world.now, expired=True, epoch=lease.fencing_token + 5))
                await asyncio.sleep(100)
            return "done"

        assert await client.lock("orders").lead(work) == "done"

    assert len(tokens) == 3
    assert tokens == sorted(set(tokens))


@in_virtual_time
async def test_lead_lets_other_errors_through(world: World) -> None:
    """An error of the work propagates after the release."""
    async with world.client() as client:

        async def work(_: Lease) -> None:
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await client.lock("orders").lead(work)
        assert world.record().expired


@in_virtual_time
async def test_lead_gives_up_at_the_timeout(world: World) -> None:
    """The timeout bounds each acquisition."""
    world.put(our_record(valid_until=world.now + 12))
    async with world.client() as client:

        async def work(_: Lease) -> None:
            raise AssertionError("must not run")

        with pytest.raises(AcquireTimeoutError):
            await client.lock("orders").lead(work, timeout=1.0)


@in_virtual_time
async def test_the_loss_of_another_lease_is_an_error_of_the_work(world: World) -> None:
    """A LeaseLostError about a different lock propagates; it is not led again."""
    runs = 0
    async with world.client() as client:

        async def work(_: Lease) -> None:
            nonlocal runs
            runs += 1
            raise LeaseLostError(key="other.json", owner="x", fencing_token=1, reason="other")

        with pytest.raises(LeaseLostError, match="other"):
            await client.lock("orders").lead(work)

    assert runs == 1
