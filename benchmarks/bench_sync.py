"""What does the blocking facade add to a call, in hops between two threads?"""

from __future__ import annotations

import asyncio
import itertools
import time
from typing import TYPE_CHECKING

from anyio.from_thread import start_blocking_portal

import asynclock
from asynclock import LeaseSettings, sync
from asynclock._core.portal import Host, block_on
from benchmarks.measure import Line, interleaved, microseconds, ratio

if TYPE_CHECKING:
    from collections.abc import Iterator

ROUNDS = 25
PAIRS = 200
HOPS_OF_A_PAIR = 2
MOST = 1.5
SETTINGS = LeaseSettings(max_clock_skew=0)


def lines() -> Iterator[Line]:
    """A bare call through the portal; and what the facade adds to a pair of calls, in bare hops."""
    loop = Host.get().loop
    numbers = itertools.count()
    with sync.connect("memory://", settings=SETTINGS) as blocking, start_blocking_portal() as anyio_portal:
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

        def bare_calls() -> float:
            began = time.perf_counter()
            for _ in range(PAIRS):
                block_on(loop, nothing)
            return (time.perf_counter() - began) / PAIRS

        def anyio_calls() -> float:
            began = time.perf_counter()
            for _ in range(PAIRS):
                anyio_portal.call(nothing)
            return (time.perf_counter() - began) / PAIRS

        contenders = {
            "facade": through_facade,
            "host": on_host,
            "hop": bare_hops,
            "call": bare_calls,
            "anyio": anyio_calls,
        }
        samples = interleaved(contenders, rounds=ROUNDS)
        asyncio.run_coroutine_threadsafe(awaited.aclose(), loop).result()
    yield microseconds("sync acquire+release, facade", samples["facade"])
    yield microseconds("sync acquire+release, awaited on the host's loop", samples["host"])
    yield microseconds("bare run_coroutine_threadsafe", samples["hop"])
    yield microseconds("bare call through the portal", samples["call"])
    yield microseconds("bare call through anyio's BlockingPortal", samples["anyio"])
    yield ratio("portal over anyio's BlockingPortal", samples["call"], samples["anyio"], target=1.0)
    yield ratio("portal over a bare hop", samples["call"], samples["hop"], target=MOST)
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
