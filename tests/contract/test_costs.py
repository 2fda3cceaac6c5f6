"""What docs/backends says that a lock costs a day is what is counted."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from asynclock import LeaseSettings, LockClient
from asynclock.testing._clocks import VirtualClock
from asynclock.testing._store import SimulatedBackend, SimulatedStore, StoreProfile
from asynclock.testing._virtual import VirtualLoop

if TYPE_CHECKING:
    from asynclock.backend import Absent, Stored, Written

TEXT = Path(__file__).parents[2].joinpath("docs/backends/index.md").read_text()
HOURS = 2.4
"""A tenth of a day."""
STORE = StoreProfile(latency=(0.02, 0.0), slow=0.0, resolution=1.0, versions="etag")
WRITE, READ = 5.0, 0.4
"""Dollars for a million, as the text says."""


class Counting(SimulatedBackend):
    """A way to the store that counts requests."""

    counts: Counter[str]

    async def get(self, key: str) -> Stored | Absent:
        """Count a read."""
        self.counts["reads"] += 1
        return await super().get(key)

    async def put_if_match(self, key: str, body: bytes, version: str) -> Written:
        """Count a write."""
        self.counts["writes"] += 1
        return await super().put_if_match(key, body, version)


def _requests(*, waiters: int, poll_interval: float | None = None) -> Counter[str]:
    """Hold a lock for a tenth of a day, with that many waiters in another client; count the requests."""
    loop, counts = VirtualLoop(seed=1), Counter[str]()
    store = SimulatedStore(loop, Random(1), STORE)
    settings = LeaseSettings(poll_interval=poll_interval)

    def client(number: int) -> LockClient:
        backend = Counting(store, loop.world)
        backend.counts = counts
        return LockClient(
            url="s3://bucket",
            backend=backend,
            settings=settings,
            renewal="loop",
            clock=VirtualClock(loop),
            rng=Random(number),
        )

    async def wait(other: LockClient) -> None:
        async with other.lock("a").hold():
            pass

    async def main() -> None:
        async with client(1) as one, client(2) as two, one.lock("a").hold():
            counts.clear()
            waiting = [asyncio.create_task(wait(two)) for _ in range(waiters)]
            await asyncio.sleep(HOURS * 3600)
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
            seen.update(counts)

    seen = Counter[str]()
    try:
        loop.run_until_complete(main())
    finally:
        loop.close()
    return seen


def _number(pattern: str) -> float:
    found = re.search(pattern, TEXT)
    assert found is not None, pattern
    return float(found.group(1).replace(",", ""))


def test_a_lock_held_all_day_costs_what_is_said() -> None:
    """The renewals of a day are counted, and no reads."""
    counts = _requests(waiters=0)

    assert counts["reads"] == 0
    assert counts["writes"] * 10 == pytest.approx(_number(r"is ([\d,]+) writes"), rel=0.01)


@pytest.mark.parametrize("waiters", [1, 20])
def test_who_waits_costs_what_is_said(waiters: int) -> None:
    """The reads of a day are the same for one who waits and for twenty behind one client."""
    counts = _requests(waiters=waiters)

    assert counts["reads"] * 10 == pytest.approx(_number(r"about ([\d,]+) reads a day"), rel=0.03)


def test_a_longer_poll_interval_costs_a_fifth() -> None:
    """At 5 s a waiter reads a fifth of what it does by default."""
    assert _requests(waiters=1, poll_interval=5.0)["reads"] * 50 == pytest.approx(
        _number(r"about ([\d,]+) reads a day"), rel=0.05
    )


def test_the_dollars_follow_from_the_requests() -> None:
    """Every row of the table multiplies the requests by the prices that are given."""
    assert _number(r"\$([\d.]+) per million\s+writes") == WRITE
    assert _number(r"\$([\d.]+) per million\s+reads") == READ
    rows = re.findall(r"([\d,]+) writes, \$([\d.]+); and ([\d,]+) reads, \$([\d.]+) in all", TEXT)

    assert rows
    for writes, alone, reads, together in rows:
        cost = float(writes.replace(",", "")) * WRITE / 1e6
        assert float(alone) == pytest.approx(cost, abs=0.0005)
        assert float(together) == pytest.approx(cost + float(reads.replace(",", "")) * READ / 1e6, abs=0.005)
