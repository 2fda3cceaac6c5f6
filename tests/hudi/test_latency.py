"""Requests and milliseconds of acquire, renew and release: Java and Python in one run."""

from __future__ import annotations

import asyncio
import itertools
import statistics
import sys
import time
from typing import TYPE_CHECKING, Final

from asynclock import hudi
from asynclock.testing.proxy import TapProxy

if TYPE_CHECKING:
    from collections.abc import Callable

    from asynclock.testing.servers import Server
    from tests.hudi.conftest import Table
    from tests.hudi.harness import Providers

CYCLES: Final = 60
_WARM: Final = 20


async def test_what_each_step_costs(jvm: Providers, table: Table) -> None:
    """Both sides in one run, printed; the speed is reported, not judged."""
    jvm.provider("p", table.base)
    answer = await asyncio.to_thread(jvm.ask, "cycles", "p", str(CYCLES))
    java = [tuple(map(float, cycle.split(","))) for cycle in answer.split()]
    assert await asyncio.to_thread(jvm.ask, "close", "p") == "ok"

    python = []
    lock = hudi.table_lock(table.base, table.options)
    for _ in range(CYCLES):
        marks = [time.perf_counter()]
        assert await lock.try_lock()
        marks.append(time.perf_counter())
        assert await lock.renew_lock()
        marks.append(time.perf_counter())
        await lock.unlock()
        marks.append(time.perf_counter())
        python.append(tuple((after - before) * 1000 for before, after in itertools.pairwise(marks)))
    await lock.aclose()

    for name, cycles in (("java", java), ("python", python)):
        assert len(cycles) == CYCLES
        columns = list(zip(*cycles[_WARM:], strict=True))
        shown = ", ".join(
            f"{step} {statistics.median(times):.1f}"
            for step, times in zip(("acquire", "renew", "release"), columns, strict=True)
        )
        sys.stderr.write(f"latency {name}, median ms: {shown}\n")


async def test_how_many_requests_each_step_sends(
    new_jvm: Callable[..., Providers], minio: Server, table: Table
) -> None:
    """Python sends no more than Java, whose provider lives for one acquisition as in Hudi."""
    # Nobody renews by itself meanwhile.
    times = {"validity.timeout.secs": "300", "renew.interval.secs": "30"}
    options = table.options | {f"hoodie.write.lock.storage.{key}": value for key, value in times.items()}
    async with TapProxy(upstream=minio.endpoint, seed=9) as proxy:
        jvm = await asyncio.to_thread(new_jvm, proxy.url)
        lock = hudi.table_lock(table.base, options | {"asynclock.endpoint_url": proxy.url})
        assert await lock.try_lock()  # sees once that there is such a table
        await lock.unlock()
        steps = {}

        async def counted(step: str, *words: str) -> None:
            before = len(proxy.journal)
            answer = await asyncio.to_thread(jvm.ask, *words)
            assert answer in {"true", "ok"}
            steps[f"java {step}"] = len(proxy.journal) - before

        for step, call in (
            ("acquire", lock.try_lock),
            ("renew", lock.renew_lock),
            ("release", lock.unlock),
        ):
            before = len(proxy.journal)
            await call()
            steps[f"python {step}"] = len(proxy.journal) - before
        slow = {
            "write_lock_storage_validity_timeout_secs": "300",
            "write_lock_storage_renew_interval_secs": "30",
        }
        await asyncio.to_thread(lambda: jvm.provider("p", table.base, **slow))
        await counted("acquire", "tryLock", "p")
        await counted("renew", "renew", "p")
        await counted("release", "close", "p")
        await lock.aclose()

    # Java reads the lock before it writes; both ask for the audit switch. Python knows its own last release.
    assert steps == {
        "java acquire": 3,
        "java renew": 1,
        "java release": 1,
        "python acquire": 2,
        "python renew": 1,
        "python release": 1,
    }
