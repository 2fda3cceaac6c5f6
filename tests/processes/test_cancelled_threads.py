"""Cancellation across the boundary of the loop thread."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress

import pytest

from asynclock import LeaseSettings, connect

CANCELLATIONS = 5_000
SETTINGS = LeaseSettings(validity=60.0, max_clock_skew=0.5, poll_interval=0.05)


@pytest.mark.timeout(600)
async def test_no_cancellation_leaves_a_lock_behind() -> None:
    """Cancelled at 5,000 random instants, an acquisition on the loop thread leaves nothing held."""
    rng = random.Random(5)
    cancelled = 0
    async with connect("memory://", settings=SETTINGS) as client:
        lock = client.lock("job")
        for _ in range(CANCELLATIONS):
            task = asyncio.create_task(lock.acquire())
            for _ in range(rng.randrange(4)):
                await asyncio.sleep(0)
            if rng.random() < 0.5:
                await asyncio.sleep(rng.random() * 0.0008)
            cancelled += task.cancel()
            with suppress(asyncio.CancelledError):
                lease = await task
                await lease.release()
        status = await lock.status()
        assert status.state == "free"
        async with lock.hold(timeout=5.0) as lease:
            assert lease.held

    assert cancelled > CANCELLATIONS / 4
