"""After kill -9 of either side the other one goes on, not too early, and tokens only rise."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import TYPE_CHECKING, Final

from asynclock import hudi
from asynclock.backends import open_backend
from asynclock.record import parse_record

if TYPE_CHECKING:
    from collections.abc import Callable

    from asynclock.testing.servers import Server
    from tests.hudi.conftest import Table
    from tests.hudi.harness import Providers

VALIDITY: Final = 10.0
_RESOLUTION: Final = 1.0


async def test_both_take_over_from_the_killed_other(
    new_jvm: Callable[..., Providers], jvm: Providers, minio: Server, table: Table
) -> None:
    """Three holders die at once: a JVM whose clock is behind, one ahead, and a Python process."""
    skews = {"behind": -4_000, "ahead": 2_000}
    bases = {name: f"{table.base}-{name}" for name in (*skews, "python")}
    for base in bases.values():
        backend = open_backend(base, **minio.options)
        await backend.put(".hoodie/hoodie.properties", b"hoodie.table.version=9\n")
        await backend.aclose()
    tokens = {name: await _token(bases[name], table) for name in skews}

    dying = await asyncio.to_thread(new_jvm)
    for name, skew_ms in skews.items():
        await asyncio.to_thread(dying.provider, name, bases[name], skew_ms=skew_ms)
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

    await asyncio.to_thread(jvm.provider, "heir", bases["python"], skew_ms=-1_000)

    async def java_takes() -> float:
        assert await asyncio.to_thread(jvm.ask, "tryLockFor", "heir", "40000") == "true"
        return time.monotonic() - killed

    async def python_takes(name: str) -> tuple[float, int]:
        lock = hudi.table_lock(bases[name], table.options, timeout=40, fencing=True)
        async with lock as lease:
            # It holds before it hands the token out.
            return time.monotonic() - killed, lease.fencing_token

    java, behind, ahead = await asyncio.gather(java_takes(), python_takes("behind"), python_takes("ahead"))
    # A renewal may have been sent up to an interval before the kill.
    assert java > VALIDITY - 1.5
    assert behind[0] > VALIDITY - 1.5
    assert ahead[0] > VALIDITY - 1.5 + 2
    assert behind[1] > tokens["behind"]
    assert ahead[1] > tokens["ahead"]
    assert await asyncio.to_thread(jvm.ask, "close", "heir") == "ok"
    assert await _token(bases["python"], table) > tokens["python"]


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
