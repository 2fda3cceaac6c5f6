"""What does the blocking facade add to a call, in hops between two threads?"""

from __future__ import annotations

import asyncio
import itertools
import time
from typing import TYPE_CHECKING

import asynclock
from asynclock import LeaseSettings, sync
from asynclock.portal import Host
from benchmarks.measure import Line, interleaved, microseconds

if TYPE_CHECKING:
    from collections.abc import Iterator

ROUNDS = 25
PAIRS = 200
HOPS_OF_A_PAIR = 2
MOST = 1.3
SETTINGS = LeaseSettings(max_clock_skew=0)


def lines() -> Iterator[Line]:
    """A pair of calls through the facade less the same pair awaited on the host's loop, over bare hops."""
    loop = Host.get().loop
    numbers = itertools.count()
    with sync.connect("memory://", settings=SETTINGS) as blocking:
        awaited = asynclock.connect("memory://", settings=SETTINGS)

        def through_facade() -> float:
            lock = blocking.lock(f"{next(numbers)}")
            lock.acquire().release()
            began = time.perf_counter()
            for _ in range(PAIRS):
                lock.acquire().release()
            return (time.perf_counter() - began) / PAIRS

        def on_host() -> float:
            return asyncio.run_coroutine_threadsafe(pairs(awaited.lock(f"{next(numbers)}")), loop).result()

        def bare_hops() -> float:
            began = time.perf_counter()
            for _ in range(PAIRS):
                asyncio.run_coroutine_threadsafe(nothing(), loop).result()
            return (time.perf_counter() - began) / PAIRS

        samples = interleaved({"facade": through_facade, "host": on_host, "hop": bare_hops}, rounds=ROUNDS)
        asyncio.run_coroutine_threadsafe(awaited.aclose(), loop).result()
    yield microseconds("sync acquire+release, facade", samples["facade"])
    yield microseconds("sync acquire+release, awaited on the host's loop", samples["host"])
    yield microseconds("bare run_coroutine_threadsafe", samples["hop"])
    added = zip(samples["facade"], samples["host"], samples["hop"], strict=True)
    yield Line(
        name="sync facade over a bare hop",
        unit="x",
        samples=[(facade - host) / (HOPS_OF_A_PAIR * hop) for facade, host, hop in added],
        target=MOST,
    )


async def pairs(lock: asynclock.Lock) -> float:
    """Seconds per acquire and release on the running loop."""
    await (await lock.acquire()).release()
    began = time.perf_counter()
    for _ in range(PAIRS):
        await (await lock.acquire()).release()
    return (time.perf_counter() - began) / PAIRS


async def nothing() -> None:
    """The shortest coroutine."""
