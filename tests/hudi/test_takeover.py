"""After kill -9 of either side the other one goes on, not too early, and tokens only rise."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import TYPE_CHECKING, Final

from asynclock import LeaseSettings, hudi
from asynclock._core.record import parse_record
from asynclock.backends import open_backend

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.hudi.conftest import Table
    from tests.hudi.harness import Providers
    from tests.laboratory.servers import Server

SETTINGS: Final = LeaseSettings(validity=10, renew_interval=1, max_clock_skew=0)
"""Those of ``lock_options``: the shortest lease that Hudi allows, one node's clock."""
RESOLUTION: Final = 1.0
SLOW: Final = 3.0
"""How much later than promised a loaded machine may be."""
JAVA_RETRY: Final = 1.0
JAVA_DRIFT: Final = 0.5
JVM_CLOCKS: Final = {
    # JVM that holds: seconds its clock is ahead
    "behind": -4.0,
    "ahead": 2.0,
}
HEIR_CLOCK: Final = -1.0


def python_bound(jvm_ahead: float) -> float:
    """``takeover_bound``, with a dead JVM's validity as its clock had it, and the wait for a token."""
    dead = max(SETTINGS.validity + jvm_ahead + JAVA_DRIFT, SETTINGS.validity)
    token = 2 * SETTINGS.max_clock_skew + 2 * RESOLUTION
    return SETTINGS.takeover_bound(RESOLUTION) - SETTINGS.validity + dead + token


def java_bound(heir_ahead: float) -> float:
    """When Hudi takes over from us: ``validUntil`` on its own clock, half a second, a try each second."""
    published = SETTINGS.validity + SETTINGS.max_clock_skew + RESOLUTION
    return published - heir_ahead + JAVA_DRIFT + JAVA_RETRY


async def test_both_take_over_from_the_killed_other(
    new_jvm: Callable[..., Providers], jvm: Providers, minio: Server, table: Table
) -> None:
    """From JVMs with clocks behind and ahead, and from Python: not before the lease's end, soon after."""
    bases = {name: f"{table.base}-{name}" for name in (*JVM_CLOCKS, "python")}
    for base in bases.values():
        backend = open_backend(base, **minio.options)
        await backend.put(".hoodie/hoodie.properties", b"hoodie.table.version=9\n")
        await backend.aclose()
    tokens = {name: await _token(bases[name], table) for name in JVM_CLOCKS}

    dying = await asyncio.to_thread(new_jvm)
    for name, ahead in JVM_CLOCKS.items():
        await asyncio.to_thread(dying.provider, name, bases[name], skew_ms=round(ahead * 1000))
        assert await asyncio.to_thread(dying.ask, "tryLock", name) == "true"
    holder = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.hudi.holder",
        bases["python"],
        json.dumps(table.options),
        stdout=asyncio.subprocess.PIPE,
    )
    assert holder.stdout is not None
    tokens["python"] = int(await holder.stdout.readline())
    killed = time.monotonic()
    holder.kill()
    await holder.wait()
    await asyncio.to_thread(dying.kill)

    await asyncio.to_thread(jvm.provider, "heir", bases["python"], skew_ms=round(HEIR_CLOCK * 1000))

    async def java_takes(within: float) -> tuple[float, int]:
        assert await asyncio.to_thread(jvm.ask, "tryLockFor", "heir", str(round(within * 1000))) == "true"
        took = time.monotonic() - killed
        assert await asyncio.to_thread(jvm.ask, "close", "heir") == "ok"
        return took, await _token(bases["python"], table)

    async def python_takes(name: str, within: float) -> tuple[float, int]:
        lock = hudi.table_lock(bases[name], table.options, timeout=within, fencing=True)
        async with lock as lease:
            return time.monotonic() - killed, lease.fencing_token

    bounds = {name: python_bound(ahead) for name, ahead in JVM_CLOCKS.items()}
    bounds["python"] = java_bound(HEIR_CLOCK)
    takes = [
        java_takes(SLOW * bounds["python"]),
        *(python_takes(name, SLOW * bounds[name]) for name in JVM_CLOCKS),
    ]
    took = dict(zip(("python", *JVM_CLOCKS), await asyncio.gather(*takes), strict=True))

    shown = ", ".join(f"{name} {seconds:.1f} of {bounds[name]:.1f} s" for name, (seconds, _) in took.items())
    sys.stderr.write(f"taken over from the killed: {shown}\n")
    for name, (seconds, token) in took.items():
        # A renewal may have been sent up to an interval before the kill.
        soonest = SETTINGS.validity - 1.5 + max(JVM_CLOCKS.get(name, 0.0), 0.0)
        assert soonest < seconds < SLOW * bounds[name], shown
        assert token > tokens[name], name


async def test_python_takes_over_from_a_java_thread_that_ended(jvm: Providers, table: Table) -> None:
    """Hudi stops renewing when the thread that acquired has ended; the lock then runs out by itself."""
    jvm.provider("orphan", table.base)
    owner = (await asyncio.to_thread(jvm.ask, "orphan", "orphan")).split()[2]
    ended = time.monotonic()
    within = python_bound(0.0)

    async with hudi.table_lock(table.base, table.options, timeout=SLOW * within) as lease:
        took = time.monotonic() - ended
        assert lease.owner != owner
    assert SETTINGS.validity - 1.5 < took < SLOW * within
    await asyncio.to_thread(jvm.ask, "close", "orphan")


async def test_a_holder_with_a_clock_ahead_does_not_take_a_live_lock(jvm: Providers, table: Table) -> None:
    """A Java clock that is ahead by less than the margin and half a second waits for a Python holder."""
    async with hudi.table_lock(table.base, table.options):
        record = parse_record(await table.lock_file())
        ahead_ms = 1_500
        jvm.provider("p", table.base, skew_ms=ahead_ms)
        until = time.monotonic() + 4  # several renewals
        while time.monotonic() < until:
            assert await asyncio.to_thread(jvm.ask, "tryLock", "p") == "false"
            await asyncio.sleep(0.05)
        assert parse_record(await table.lock_file()).owner == record.owner
    assert await asyncio.to_thread(jvm.ask, "tryLock", "p") == "true"
    await asyncio.to_thread(jvm.ask, "close", "p")


async def _token(base: str, table: Table) -> int:
    async with hudi.table_lock(base, table.options, timeout=30, fencing=True) as lease:
        return lease.fencing_token
