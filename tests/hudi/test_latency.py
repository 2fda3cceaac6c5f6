"""Requests and milliseconds of acquire, renew and release: Java and Python in one run."""

from __future__ import annotations

import asyncio
import itertools
import statistics
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from asynclock import hudi
from asynclock.testing._proxy import TapProxy

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.hudi.conftest import Table
    from tests.hudi.harness import Providers
    from tests.laboratory.servers import Server

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
    """Both sides, printed; Python's first acquisition looks for the table, later ones know the lock."""
    # Nobody renews by itself meanwhile.
    slow: dict[str, Any] = {
        "write_lock_storage_validity_timeout_secs": "300",
        "write_lock_storage_renew_interval_secs": "30",
    }
    options = table.options | {f"hoodie.{key.replace('_', '.')}": value for key, value in slow.items()}
    steps: dict[str, list[int]] = {"java": [], "python, first": [], "python, then": []}
    async with TapProxy(upstream=minio.endpoint, seed=9) as proxy:

        async def count(side: str, *calls: Callable[[], Awaitable[object]]) -> None:
            for call in calls:
                before = len(proxy.journal)
                assert await call() in {True, None, "true", "ok"}
                steps[side].append(len(proxy.journal) - before)

        jvm = await asyncio.to_thread(new_jvm, proxy.url)
        await asyncio.to_thread(lambda: jvm.provider("p", table.base, **slow))
        await count(
            "java",
            *(partial(asyncio.to_thread, jvm.ask, word, "p") for word in ("tryLock", "renew", "close")),
        )
        lock = hudi.table_lock(
            table.base, options | {"asynclock.endpoint_url": proxy.url, "asynclock.verify": "false"}
        )
        for side in ("python, first", "python, then"):
            await count(side, lock.try_lock, lock.renew_lock, lock.unlock)
        await lock.aclose()

    for side, (acquire, renew, release) in steps.items():
        sys.stderr.write(f"requests {side}: acquire {acquire}, renew {renew}, release {release}\n")
    # Java reads the lock before it writes; both ask for the audit switch.
    assert steps == {"java": [3, 1, 1], "python, first": [4, 1, 1], "python, then": [2, 1, 1]}
