"""What would a lock take in the cloud, by the latencies that others measured there?"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import statistics
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

import asynclock
from asynclock import LeaseSettings
from asynclock._cli.cost import cost_of
from asynclock.testing._proxy import TapProxy
from benchmarks.measure import Line
from tests.laboratory.servers import running

if TYPE_CHECKING:
    from collections.abc import Iterator

    from asynclock import Lock, LockClient
    from tests.laboratory.servers import Server

PAIRS = 12
HAND_OFFS = 10
LOCKS = 20
WATCHED = 2.0
"""Seconds for which the waiters have been looking before the holder goes silent."""
SETTINGS = LeaseSettings(validity=20.0)
_TAIL = 2.326
"""How many standard deviations above the mean the 99th percentile of a normal distribution is."""


@dataclass(frozen=True)
class Cloud:
    """A store as others measured it: conditional writes of one object, in a tight loop, in its region.

    Attributes:
        server: The server that stands in for it.
        median: Seconds of an answer.
        tail: Their 99th percentile.
        writes_every: Seconds between two writes of one object that it takes.
    """

    server: str
    median: float
    tail: float
    writes_every: float = 0.0


# https://cdouglas.github.io/posts/2026/01/conditional. Cloud Storage has the tail of Azure here: what was
# measured there, seconds, comes from its limit of writes to one object.
CLOUDS = {
    "S3 Standard": Cloud("s3", 0.065, 0.112),
    "S3 Express": Cloud("s3", 0.0145, 0.0177),
    "Azure": Cloud("azure", 0.095, 0.231),
    "Cloud Storage": Cloud("gcs", 0.173, 0.173 * 231 / 95, writes_every=1.0),
}


def lines() -> Iterator[Line]:
    """Each store is a server of this machine behind a proxy that draws the delay of every answer.

    All stores at once: they wait for those delays nearly all of the time.
    """
    logging.getLogger("asynclock").setLevel(logging.CRITICAL)  # what is cut off would complain
    with ThreadPoolExecutor(len(CLOUDS)) as pool:
        for found in pool.map(of_one_store, CLOUDS):
            yield from found


def of_one_store(name: str) -> list[Line]:
    """Start what stands in for it, and measure."""
    with running(CLOUDS[name].server) as server:
        return asyncio.run(measured(name, CLOUDS[name], server))


async def measured(name: str, cloud: Cloud, server: Server) -> list[Line]:
    """All that is asked of one store."""
    rng = random.Random(1)
    spread = math.log(cloud.tail / cloud.median) / _TAIL

    def delay() -> float:
        return rng.lognormvariate(math.log(cloud.median), spread)

    async with AsyncExitStack() as stack:
        proxy = await stack.enter_async_context(TapProxy(server.endpoint, delay=delay))
        own = {"min_write_interval": cloud.writes_every} if cloud.writes_every else {}
        options = server.through(proxy.url) | own
        url = f"{server.url}/clouds-{uuid.uuid4()}"
        one, other = [
            await stack.enter_async_context(asynclock.connect(url, settings=SETTINGS, **options))
            for _ in range(2)
        ]
        acquires, releases = await pairs(one.lock("pair"))
        before = len(proxy.journal)
        waits = await hand_offs(one.lock("handed"), other.lock("handed"))
        asked = (len(proxy.journal) - before) / HAND_OFFS
        taken = await takeovers(stack, server, url, own, other)
    theory = SETTINGS.takeover_bound(1.0)
    day = cost_of(server.url.partition(":")[0], SETTINGS)
    found = [
        Line(name=f"{name}: acquire", unit="ms", samples=[1000 * each for each in acquires]),
        Line(name=f"{name}: release", unit="ms", samples=[1000 * each for each in releases]),
        Line(name=f"{name}: hand-off to a client that waits", unit="s", samples=waits),
        Line(name=f"{name}: requests a hand-off", unit="requests", samples=[asked]),
        Line(name=f"{name}: takeover, validity {SETTINGS.validity:g} s", unit="s", samples=taken),
        Line(name=f"{name}: longest takeover over the bound of {theory:g} s", unit="x",
             samples=[max(taken) / theory], target=1.0),
        Line(name=f"{name}: writes a day of a lock that is held", unit="requests", samples=[day.writes]),
        Line(name=f"{name}: their price", unit="dollars a day", samples=[day.dollars]),
    ]  # fmt: skip
    for what, samples in (("acquire", acquires), ("hand-off", waits)):
        tail = statistics.quantiles(samples, n=100, method="inclusive")[98]
        found.append(Line(name=f"{name}: {what}, 99th percentile", unit="s", samples=[tail]))
    return found


async def pairs(lock: Lock) -> tuple[list[float], list[float]]:
    """Seconds of each acquire and of each release, the first left out: it creates the object."""
    acquires, releases = [], []
    for _ in range(PAIRS + 1):
        began = time.perf_counter()
        lease = await lock.acquire()
        held = time.perf_counter()
        await lease.release()
        acquires.append(held - began)
        releases.append(time.perf_counter() - held)
    return acquires[1:], releases[1:]


async def hand_offs(one: Lock, other: Lock) -> list[float]:
    """Seconds from the call of a release until a waiter of the other client, in turns, has the lock."""
    waits = []
    lease = await one.acquire()
    for _ in range(HAND_OFFS):
        one, other = other, one
        waiting = asyncio.create_task(one.acquire())
        await asyncio.sleep(SETTINGS.poll_interval * 2)  # it has begun to look
        began = time.perf_counter()
        await lease.release()
        lease = await waiting
        waits.append(time.perf_counter() - began)
    await lease.release()
    return waits


async def takeovers(
    stack: AsyncExitStack, server: Server, url: str, own: dict[str, float], waiter: LockClient
) -> list[float]:
    """Seconds from the silence of a holder until a waiter has its locks: its way to the store is cut."""
    proxy = TapProxy(server.endpoint)
    await proxy.__aenter__()
    holder = asynclock.connect(url, settings=SETTINGS, **server.through(proxy.url) | own)
    stack.push_async_callback(holder.aclose)
    held = [await holder.lock(f"dead-{number}").acquire() for number in range(LOCKS)]

    async def taken(number: int) -> float:
        lease = await waiter.lock(f"dead-{number}").acquire()
        at = time.perf_counter()
        await lease.release()
        return at

    waiting = [asyncio.create_task(taken(number)) for number in range(LOCKS)]
    await asyncio.sleep(WATCHED)
    assert all(lease.held for lease in held)
    await proxy.__aexit__(None, None, None)
    silent = time.perf_counter()
    return [at - silent for at in await asyncio.gather(*waiting)]
