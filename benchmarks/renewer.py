"""One process of ``bench_leases``: renews many leases, or makes as many bare conditional writes a second.

Started as ``python -m benchmarks.renewer JSON``. Prints ``ready`` once the leases have their places in the
interval, starts at a line of stdin, and prints a line of JSON: CPU seconds for each write, a number for each
interval; the seconds by which each write was late; and of leases the renewals in each hundredth of an
interval, and the memory of a lease in bytes. To ``weigh`` tells that memory only, without a start.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import time
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from asynclock import LeaseSettings
from asynclock.backends import open_backend
from asynclock.client import LockClient

if TYPE_CHECKING:
    from collections.abc import Iterable

    from asynclock import Lease
    from asynclock.backend import Written
    from benchmarks.store_writers import Writer

ACQUIRED_AT_ONCE = 16
WARM_UP = 200


class Renewals:
    """When each key was written: put in the way of a backend's conditional writes."""

    def __init__(self, client: LockClient, interval: float) -> None:
        self._interval = interval
        self._write = client.backend.put_if_match
        self._last: dict[str, float] = {}
        self.count = 0
        self.late: list[float] = []
        self.hundredths: Counter[int] = Counter()
        client.backend.put_if_match = self.put_if_match  # type: ignore[method-assign]

    async def put_if_match(self, key: str, data: bytes, version: str) -> Written:
        """Note a renewal, and send it."""
        now = time.monotonic()
        self.count += 1
        self.hundredths[int(now * 100 / self._interval)] += 1
        if (last := self._last.get(key)) is not None:
            self.late.append(max(0.0, now - last - self._interval))
        self._last[key] = now
        return await self._write(key, data, version)


async def hold(job: dict[str, Any]) -> tuple[LockClient, list[Lease], int]:
    """Acquire leases together; return their client, them, and the bytes of memory before."""
    interval = job["interval"]
    backend = open_backend(job["url"], **job["options"])
    settings = LeaseSettings(validity=10 * interval, renew_interval=interval)
    client = LockClient(url=job["url"], backend=backend, settings=settings, renewal="loop")

    async def acquired(names: Iterable[str]) -> list[Lease]:
        left, leases = iter(names), []

        async def acquire() -> None:
            for name in left:
                lease = await client.lock(name).acquire()
                leases.append(lease)

        await asyncio.gather(*(acquire() for _ in range(ACQUIRED_AT_ONCE)))
        return leases

    for lease in await acquired(f"warm-up/{number}" for number in range(WARM_UP)):
        await lease.release()
    before = memory()
    leases = await acquired(f"{number}" for number in range(job["leases"]))
    return client, leases, before


async def weigh(job: dict[str, Any]) -> None:
    """Tell how much memory the leases take once each was renewed."""
    _client, leases, before = await hold(job)
    for lease in leases:
        await lease.confirm()
    tell({"memory": (memory() - before) / len(leases)})


async def renew(job: dict[str, Any]) -> None:
    """Hold leases, and count what their renewals take."""
    interval = job["interval"]
    client, leases, before = await hold(job)
    each = (memory() - before) / len(leases)
    renewals = Renewals(client, interval)
    await asyncio.sleep(interval)
    await started()
    renewals.late.clear()
    renewals.hundredths.clear()
    cpu = []
    for _ in range(job["intervals"]):
        spent, count = time.process_time(), renewals.count
        await asyncio.sleep(interval)
        cpu.append((time.process_time() - spent) / (renewals.count - count))
    assert all(lease.held for lease in leases)
    counts = renewals.hundredths
    hundredths = [counts[number] for number in range(min(counts), max(counts) + 1)]
    tell({"cpu": cpu, "memory": each, "late": renewals.late, "hundredths": hundredths})


async def write(job: dict[str, Any]) -> None:
    """Write as many objects as often, evenly and one after another."""
    async with AsyncExitStack() as stack:
        bare = await writer(job, stack)
        rate = job["leases"] / job["interval"]
        versions = [await bare(f"bare-{number}.json", body(), None) for number in range(WARM_UP)]
        await started()
        cpu, late = [], []
        due = time.monotonic()
        for _ in range(job["intervals"]):
            spent, count, end = time.process_time(), 0, due + job["interval"]
            while due < end:
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                late.append(max(0.0, time.monotonic() - due))
                number = count % WARM_UP
                versions[number] = await bare(f"bare-{number}.json", body(), versions[number])
                count += 1
                due += 1 / rate
            cpu.append((time.process_time() - spent) / count)
        tell({"cpu": cpu, "late": late})


async def writer(job: dict[str, Any], stack: AsyncExitStack) -> Writer:
    """Return the bare SDK's write; on ``memory://``, which has none, that of the backend."""
    if job["server"] is not None:
        from benchmarks.store_writers import SDK, writers  # noqa: PLC0415  not into the memory of the leases
        from tests.laboratory.servers import Server  # noqa: PLC0415

        server = Server(**job["server"])
        return (await writers(server, server.options, stack))[SDK]
    backend = open_backend(job["url"], **job["options"])

    async def put(key: str, data: bytes, version: str | None) -> str:
        if version is None:
            return (await backend.put_if_absent(key, data)).version
        return (await backend.put_if_match(key, data, version)).version

    return put


def body() -> bytes:
    """Return what was never written before, as long as a lock record."""
    return b'{"nonce":"%s","padding":"%s"}' % (os.urandom(16).hex().encode(), b"x" * 170)


async def started() -> None:
    """Say that all is ready, and wait for the start."""
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)


def tell(found: dict[str, Any]) -> NoReturn:
    """Print what was found and end at once: the locks, thousands of them, go with their store."""
    print(json.dumps(found), flush=True)
    os._exit(0)


def memory() -> int:
    """Return the bytes of memory that this process has."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    JOB = json.loads(sys.argv[1])
    asyncio.run({"leases": renew, "weigh": weigh, "bare": write}[JOB["how"]](JOB))
