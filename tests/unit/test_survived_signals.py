"""Signals that a process survives: its leases are lost, its acquisitions go on (rules 2, 11 and 18)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from asynclock import Lease, LeaseSettings
from asynclock.testing.faulty import Fault
from asynclock.testing.store import StoreProfile
from tests.unit.kit import KEY, faulty, hudi_record, in_virtual_time

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from tests.unit.kit import World

LONG = LeaseSettings(validity=300.0, max_clock_skew=2.0, poll_interval=0.25)
SIGNALLED = "a signal told its process to end"


@pytest.fixture
def profile() -> StoreProfile:
    """Return a store whose Dates are cut to seconds, so that a token needs a long wait to settle."""
    return StoreProfile(latency=(0.01, 0.0), slow=0.0, resolution=1.0)


@pytest.mark.parametrize("after", [0.1, 0.5, 1.0])
def test_an_attempt_that_was_given_up_is_not_adopted_again(world: World, after: float) -> None:
    """A signal while the token settles ends the lease for good, even if its release lands late."""

    async def story() -> None:
        first, second = world.client(LONG), world.client(LONG)
        world.put(hudi_record(world.now - 60.0, expired=True))
        acquiring = asyncio.create_task(first.lock("orders").acquire())
        await asyncio.sleep(0.1)
        assert world.record().nonce is not None
        await asyncio.sleep(after)
        faulty(first).inject(Fault.LATE, operation="put_if_match", times=20)
        faulty(first).delay = (6.0, 6.0)
        await first.release_all(loss=SIGNALLED)

        leases: list[Lease] = []

        async def take(lease: Awaitable[Lease]) -> None:
            leases.append(await lease)
            assert [each.held for each in leases].count(True) == 1
            await asyncio.sleep(20.0)
            assert [each.held for each in leases].count(True) == 1
            await leases[-1].release()

        await asyncio.gather(take(acquiring), take(second.lock("orders").acquire()))

    world.loop.run_until_complete(story())


@in_virtual_time
async def test_an_acquisition_goes_on_after_a_signal_under_a_new_token(world: World) -> None:
    """Who was waiting for its token to settle acquires anew, with a token above the one given up."""
    async with world.client() as client:
        world.put(hudi_record(world.now - 60.0, expired=True))
        acquiring = asyncio.create_task(client.lock("orders").acquire(timeout=60))
        await asyncio.sleep(0.1)
        assert world.record().nonce is not None
        given_up = world.record(KEY)
        await asyncio.sleep(1.0)
        await client.release_all(loss=SIGNALLED)
        lease = await acquiring

        assert lease.held
        assert given_up.epoch is not None
        assert lease.fencing_token > given_up.epoch
