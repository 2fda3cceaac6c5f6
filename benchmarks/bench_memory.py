"""What does a lock on memory:// cost compared with asyncio.Lock, in both renewal modes?"""

from __future__ import annotations

import asyncio
import itertools
import sys
import time
from typing import TYPE_CHECKING

import asynclock
from asynclock import LeaseSettings
from benchmarks.measure import Line, interleaved, microseconds, ratio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

ROUNDS = 15
PAIRS = 300
SETTINGS = LeaseSettings(max_clock_skew=0)


def lines() -> Iterator[Line]:
    """Times of one acquire and release, and their ratios to ``asyncio.Lock``."""
    with asyncio.Runner() as runner:
        clients = {mode: runner.run(connect(mode)) for mode in ("loop", "thread")}
        numbers = itertools.count()

        def contender(mode: str) -> float:
            return runner.run(per_pair(lease_pair(clients[mode].lock(f"{next(numbers)}"))))

        samples = interleaved(
            {
                "asyncio.Lock": lambda: runner.run(per_pair(plain_pair(asyncio.Lock()))),
                "loop": lambda: contender("loop"),
                "thread": lambda: contender("thread"),
            },
            rounds=ROUNDS,
        )
        counted = runner.run(calls(lease_pair(clients["loop"].lock("counted"))))
        for client in clients.values():
            runner.run(client.aclose())
    for name, seconds in samples.items():
        yield microseconds(f"memory acquire+release, {name}", seconds)
    for mode in ("loop", "thread"):
        yield ratio(
            f"memory acquire+release, {mode} over asyncio.Lock", samples[mode], samples["asyncio.Lock"]
        )
    yield Line(name="memory acquire+release, loop: function calls", unit="calls", samples=[counted])


async def connect(mode: str) -> asynclock.LockClient:
    """A client with a private store, made on the loop that uses it."""
    return asynclock.connect("memory://", settings=SETTINGS, renewal=mode)


async def per_pair(pair: Callable[[], Awaitable[None]]) -> float:
    """Seconds per pair, the first one left out: it creates the object."""
    await pair()
    began = time.perf_counter()
    for _ in range(PAIRS):
        await pair()
    return (time.perf_counter() - began) / PAIRS


async def calls(pair: Callable[[], Awaitable[None]]) -> float:
    """Functions that a pair calls, of Python and C, those of the loop included: the same on any machine."""
    await pair()
    counted = 0

    def count(_frame: object, event: str, _function: object) -> None:
        nonlocal counted
        counted += event in {"call", "c_call"}

    sys.setprofile(count)
    try:
        for _ in range(PAIRS):
            await pair()
    finally:
        sys.setprofile(None)
    return counted / PAIRS


def lease_pair(lock: asynclock.Lock) -> Callable[[], Awaitable[None]]:
    """One acquire and release of asynclock."""

    async def pair() -> None:
        await (await lock.acquire()).release()

    return pair


def plain_pair(lock: asyncio.Lock) -> Callable[[], Awaitable[None]]:
    """One acquire and release of ``asyncio.Lock``."""

    async def pair() -> None:
        await lock.acquire()
        lock.release()

    return pair
