"""Renewal where a task runs at once to its first wait, as eager tasks of Python 3.12 do (rules 5 and 6)."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING

import pytest

from asynclock import BackendError, BackendUnavailableError, LockClient, Written
from asynclock.backends._memory import MemoryBackend
from asynclock.testing._clocks import VirtualClock
from tests.unit.kit import SETTINGS, World, in_virtual_time, start_eagerly, steps

if TYPE_CHECKING:
    from asynclock import Lease


MANY = 100


class AtOnce(MemoryBackend):
    """Objects in memory, on the clock of the machine; its answers come without a wait.

    Attributes:
        replaced: How many writes over a version were asked of it.
        fails: Whether it answers requests with an error.
    """

    sends_dates = False
    replaced = 0
    fails = False

    async def put_if_match(self, key: str, body: bytes, version: str) -> Written:
        """Replace one version of an object, or fail."""
        self.replaced += 1
        if self.replaced > MANY:  # renewed on every turn: time would never go on
            asyncio.get_running_loop().stop()
        if self.fails:
            raise BackendUnavailableError(backend=self.name, operation="put_if_match", key=key, detail="down")
        return await super().put_if_match(key, body, version)


async def acquired(world: World, monkeypatch: pytest.MonkeyPatch) -> tuple[LockClient, AtOnce, Lease]:
    """Return a lease whose renewals end before the call that starts them returns."""
    backend = AtOnce()
    clock, rng = VirtualClock(world.loop), Random(1)
    client = LockClient(
        url="memory://", backend=backend, settings=SETTINGS, renewal="loop", clock=clock, rng=rng
    )
    lease = await client.lock("orders").acquire()
    monkeypatch.setattr(client._core._objects.in_flight, "spawn", start_eagerly)
    return client, backend, lease


@in_virtual_time
async def test_a_renewal_that_ends_at_once_is_followed_by_a_pause(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One write an interval, not one a turn of the loop."""
    client, backend, lease = await acquired(world, monkeypatch)
    for count in (1, 2, 3):
        await asyncio.sleep(SETTINGS.renew_interval)
        await steps(20)

        assert backend.replaced == count
    assert lease.held
    await client.aclose()


@in_virtual_time
async def test_confirm_raises_the_error_of_a_renewal_that_ends_at_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the store did not say is not taken for its agreement."""
    client, backend, lease = await acquired(world, monkeypatch)
    backend.fails = True

    with pytest.raises(BackendError, match="down"):
        await lease.confirm()

    backend.fails = False
    await client.aclose()
