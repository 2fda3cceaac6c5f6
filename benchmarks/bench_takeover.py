"""How long after `kill -9` of a holder has another process its lock?"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import asynclock
from asynclock import LeaseSettings
from benchmarks.measure import SCRATCH, Line
from tests.laboratory.servers import running

if TYPE_CHECKING:
    from collections.abc import Iterator

ROUNDS = 2
LOCKS = 50
WATCHED = 1.0
"""Seconds for which the waiters have been looking before the holder is killed."""
ON_FILE = LeaseSettings(validity=4.0, max_clock_skew=0.0)
ON_S3 = LeaseSettings(validity=10.0, max_clock_skew=1.0)
HOLDER = """
import json, sys, time
from asynclock import LeaseSettings, sync
url, options, settings, locks = json.loads(sys.argv[1])
client = sync.connect(url, settings=LeaseSettings(**settings), **options)
leases = [client.lock(f"{number}").acquire() for number in range(locks)]
print("ready", flush=True)
time.sleep(600)
"""


def lines() -> Iterator[Line]:
    """On a disk of this machine, and on a server of S3, whose Dates are whole seconds."""
    with tempfile.TemporaryDirectory(dir=SCRATCH) as folder:
        yield from takeovers("file", f"file://{folder}", {"fsync": False}, ON_FILE)
    with running("s3") as server:
        yield from takeovers("s3", f"{server.url}/takeover-{uuid.uuid4()}", server.options, ON_S3)


def takeovers(name: str, url: str, options: dict[str, Any], settings: LeaseSettings) -> Iterator[Line]:
    """The waits of all locks of a killed process, and their 99th percentile next to the theory."""
    waits = [wait for number in range(ROUNDS) for wait in killed(f"{url}/{number}", options, settings)]
    theory = settings.validity + settings.safety_margin + settings.max_clock_skew
    longest = statistics.quantiles(waits, n=100, method="inclusive")[98]
    yield Line(name=f"{name}: takeover after kill -9", unit="s", samples=waits)
    yield Line(
        name=f"{name}: 99th percentile over validity + margin + skew ({theory:g} s) and one poll",
        unit="x",
        samples=[longest / (theory + settings.poll_interval)],
        target=1.0,
    )


def killed(url: str, options: dict[str, Any], settings: LeaseSettings) -> list[float]:
    """Seconds from the death of a process that held many locks until each of them is held by this one."""
    job = json.dumps([url, options, asdict(settings), LOCKS])
    with subprocess.Popen([sys.executable, "-c", HOLDER, job], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "ready\n"
        return asyncio.run(taken_over(holder, asynclock.connect(url, settings=settings, **options)))


async def taken_over(holder: subprocess.Popen[str], client: asynclock.LockClient) -> list[float]:
    """Wait for all locks of a process, kill it, and return how long after that each one was acquired."""

    async def wait(name: str) -> float:
        async with client.lock(name).hold():
            return time.monotonic()

    async with client:
        waiting = [asyncio.create_task(wait(f"{number}")) for number in range(LOCKS)]
        await asyncio.sleep(WATCHED)
        holder.kill()
        killed_at = time.monotonic()
        return [at - killed_at for at in await asyncio.gather(*waiting)]
