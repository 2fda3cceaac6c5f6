"""Does the price of a lock stay the same as locks, contenders and the history of an object grow?"""

from __future__ import annotations

import asyncio
import resource
import tempfile
import time
from typing import TYPE_CHECKING

import asynclock
from asynclock import LeaseSettings
from benchmarks.measure import SCRATCH, Line

if TYPE_CHECKING:
    from collections.abc import Iterator

LOCKS = (1, 10, 100, 1_000, 10_000)
CONTENDERS = (1, 10, 100, 1_000)
HISTORY = (1, 100, 10_000, 100_000)
PAIRS = 100
ROUNDS = 5
LINEAR = 1.5
"""That many times the price at the smallest size still counts as linear."""
SETTINGS = LeaseSettings(max_clock_skew=0.0)


def lines() -> Iterator[Line]:
    """Microseconds of one operation at each size, and that at the largest over that at the smallest."""
    yield from grown("an acquire and release with that many held leases", {n: beside(n) for n in LOCKS})
    yield from grown("a hand-over among that many contenders", {n: contended(n) for n in CONTENDERS})
    yield from grown("an acquire and release of a file with that many changes", asyncio.run(changed()))
    yield Line(name="memory of this process at the end", unit="MiB", samples=[_memory()])


def grown(what: str, found: dict[int, list[float]]) -> Iterator[Line]:
    """The lines of one question."""
    for size, seconds in found.items():
        yield Line(name=f"{what}: {size:,}", unit="us", samples=[each * 1e6 for each in seconds])
    small, large = (found[size] for size in (min(found), max(found)))
    samples = [one / other for one, other in zip(sorted(large), sorted(small), strict=True)]
    yield Line(name=f"{what}: {max(found):,} over {min(found):,}", unit="x", samples=samples, target=LINEAR)


def beside(count: int) -> list[float]:
    """Seconds of a pair on one lock while that many others are held."""

    async def work() -> list[float]:
        async with asynclock.connect("memory://", settings=SETTINGS, renewal="loop") as client:
            held = [await client.lock(f"held/{number}").acquire() for number in range(count)]
            found = [await _per_pair(client.lock("one"), PAIRS) for _ in range(ROUNDS)]
            assert all(lease.held for lease in held)
            return found

    return asyncio.run(work())


def contended(count: int) -> list[float]:
    """Seconds of a turn if that many coroutines take turns on one lock."""

    async def work() -> list[float]:
        async with asynclock.connect("memory://", settings=SETTINGS, renewal="loop") as client:
            lock = client.lock("one")
            turns = max(1, 1_000 // count)

            async def contender() -> None:
                for _ in range(turns):
                    async with lock.hold():
                        await asyncio.sleep(0)

            found = []
            for _ in range(ROUNDS):
                began = time.perf_counter()
                await asyncio.gather(*(contender() for _ in range(count)))
                found.append((time.perf_counter() - began) / (turns * count))
            return found

    return asyncio.run(work())


async def changed() -> dict[int, list[float]]:
    """Seconds of a pair on a lock of ``file://`` that was changed so often before."""
    found = {}
    with tempfile.TemporaryDirectory(dir=SCRATCH) as folder:
        async with asynclock.connect(
            f"file://{folder}", settings=SETTINGS, renewal="loop", fsync=False
        ) as client:
            lock, changes = client.lock("one"), 0
            for size in HISTORY:
                if pairs := (size - changes) // 2:
                    await _per_pair(lock, pairs)
                found[size] = [await _per_pair(lock, PAIRS) for _ in range(ROUNDS)]
                changes = size + 2 * ROUNDS * PAIRS
    return found


async def _per_pair(lock: asynclock.Lock, pairs: int) -> float:
    began = time.perf_counter()
    for _ in range(pairs):
        await (await lock.acquire()).release()
    return (time.perf_counter() - began) / pairs


def _memory() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
