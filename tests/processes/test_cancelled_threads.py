"""Cancellation across the boundary of the loop thread."""

from __future__ import annotations

import asyncio
import random
import sys
import time
from typing import TYPE_CHECKING

import pytest

from asynclock import LeaseSettings, LockClient
from asynclock.backends import open_backend
from asynclock.testing import Fault, FaultyBackend

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from asynclock import Lease, Lock

DELIVERED = 1_250
"""Cancellations of each call: 6,250 of all five."""
LANES = 10
"""Locks side by side."""
SETTINGS = LeaseSettings(validity=60.0, max_clock_skew=0.5, poll_interval=0.05)


class Lane:
    """One lock, on which one call after the other is cancelled.

    Attributes:
        delivered: How many ended cancelled.
        written: How many of them had changed the object by then.
    """

    def __init__(self, lock: Lock, rng: random.Random) -> None:
        self.lock = lock
        self.delivered = self.written = 0
        self._rng = rng
        self._longest = 0.002

    async def cut(self, call: Coroutine[object, object, Lease | None]) -> None:
        """Cancel ``call`` once or twice, at instants drawn from the time that such a call takes."""
        before = (await self.lock.status()).version
        began = time.monotonic()
        task = asyncio.create_task(call)
        delivered = False
        for at in sorted(self._rng.random() for _ in range(self._rng.choice((1, 1, 2)))):
            await asyncio.sleep(0)  # a task that was cancelled before its first step has called nothing
            while not task.done() and time.monotonic() < began + at * self._longest:  # noqa: ASYNC110  no event comes then
                await asyncio.sleep(0)
            delivered = task.cancel() or delivered
        await asyncio.wait([task])
        assert task.cancelled() or not delivered, "the CancelledError was not kept"
        if task.cancelled():
            self.delivered += 1
            self.written += (await self.lock.status()).version != before
        else:
            # It was too quick for us.
            self._longest = 0.9 * self._longest + 0.1 * (time.monotonic() - began)
            lease = task.result()
            if lease is not None:
                await lease.release()


async def acquiring(lane: Lane) -> None:
    """Cancel an acquisition: it leaves nothing."""
    await lane.cut(lane.lock.acquire())


async def confirming(lane: Lane) -> None:
    """Cancel a renewal: the lease goes on."""
    lease = await lane.lock.acquire(timeout=5.0)
    await lane.cut(lease.confirm())
    assert lease.held
    await lease.confirm()
    await lease.release()


async def releasing(lane: Lane) -> None:
    """Cancel a release: it frees all the same."""
    lease = await lane.lock.acquire(timeout=5.0)
    await lane.cut(lease.release())
    assert not lease.held


async def holding(lane: Lane) -> None:
    """Cancel a body, on its way in, inside, or on its way out: nothing is held after it."""

    async def body() -> None:
        async with lane.lock.hold(timeout=5.0) as lease:
            assert lease.held
            await asyncio.sleep(0)
            await lease.confirm()

    await lane.cut(body())


async def receiving(lane: Lane) -> None:
    """Cancel who waits in line while the lock is handed on: nobody holds it afterwards."""
    giver = await lane.lock.acquire(timeout=5.0)
    release = asyncio.create_task(later(giver.release))
    await lane.cut(lane.lock.acquire())
    await release


async def later(call: Callable[[], Awaitable[object]]) -> None:
    """Let others run first."""
    await asyncio.sleep(0)
    await call()


@pytest.mark.parametrize("call", [acquiring, confirming, releasing, holding, receiving])
async def test_no_cancellation_leaves_a_lock_behind(
    call: Callable[[Lane], Awaitable[None]], capsys: pytest.CaptureFixture[str]
) -> None:
    """Cancelled at random instants, no call on the loop thread leaves a lock held that nobody has."""
    backend = FaultyBackend(open_backend("memory://"), seed=5)
    backend.delay = (0.0, 0.001)
    backend.storm({Fault.SLOW: 0.5})  # so that a call on that thread has instants to be cut at
    client = LockClient(url="memory://", backend=backend, settings=SETTINGS, renewal="thread")
    lanes = [Lane(client.lock(f"job-{index}"), random.Random(index)) for index in range(LANES)]

    async def work(lane: Lane) -> None:
        while lane.delivered < DELIVERED / LANES:
            await call(lane)
            assert (await lane.lock.status()).state in {"absent", "free"}

    async with client:
        await asyncio.gather(*(work(lane) for lane in lanes))

    delivered = sum(lane.delivered for lane in lanes)
    written = sum(lane.written for lane in lanes)
    with capsys.disabled():
        sys.stdout.write(f"\n{call.__name__}: {delivered} cancelled, {written} of them after a write\n")
    assert delivered >= DELIVERED
    assert written > 0
