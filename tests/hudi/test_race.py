"""Java and Python contend for one lock that guards a counter in another object."""

from __future__ import annotations

import asyncio
import random
import sys
import time
from typing import TYPE_CHECKING, Final

import pytest

from asynclock import hudi
from asynclock.backend import Stored

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.hudi.conftest import Table
    from tests.hudi.harness import Providers

CONTENDERS: Final = 4
WINS: Final = 500
_FENCED_EVERY: Final = 80
COUNTER: Final = "counter"


@pytest.mark.timeout(300)
async def test_nothing_is_lost_between_java_and_python(
    new_jvm: Callable[..., Providers], table: Table
) -> None:
    """Four of each, until each side has held 500 times: the counter has every step, tokens rise.

    Java pauses while it is ahead. Neither side promises turns, and on a busy machine Java holds the lock a
    hundred times for each time of Python's.
    """
    jvm = await asyncio.to_thread(new_jvm)  # ends with the test, however that ends
    await table.backend.put(COUNTER, b"0")
    rng = random.Random(6)
    wins = [0] * CONTENDERS
    tokens: list[int] = []
    stop = asyncio.Event()

    async def contend(number: int) -> None:
        plain = hudi.table_lock(table.base, table.options)
        fenced = hudi.table_lock(table.base, table.options, fencing=True)
        try:
            while not stop.is_set():
                lock = fenced if wins[number] % _FENCED_EVERY == _FENCED_EVERY // 2 else plain
                if await lock.try_lock():
                    stored = await table.backend.get(COUNTER)
                    assert isinstance(stored, Stored)
                    await table.backend.put(COUNTER, b"%d" % (int(stored.body) + 1))
                    wins[number] += 1
                    if lock is fenced:
                        assert lock.lease is not None
                        tokens.append(lock.lease.fencing_token)
                    await lock.unlock()
                await asyncio.sleep(rng.uniform(0.001, 0.02))
        finally:
            await plain.aclose()
            await fenced.aclose()

    began = time.monotonic()
    started = await asyncio.to_thread(
        jvm.ask, "race", str(CONTENDERS), f"{table.base}/{COUNTER}", *jvm.properties(table.base)
    )
    assert started == "ok"
    async with asyncio.TaskGroup() as contenders:
        for number in range(CONTENDERS):
            contenders.create_task(contend(number))
        java = 0
        while min(sum(wins), java) < WINS:
            await asyncio.sleep(0.2)
            answer = await asyncio.to_thread(jvm.ask, "wins")
            assert "error" not in answer.lower(), answer
            java = int(answer.split()[0])
        stop.set()
    last, _, error = (await asyncio.to_thread(jvm.ask, "stop")).partition(" ")

    assert error == ""
    stored = await table.backend.get(COUNTER)
    assert isinstance(stored, Stored)
    assert int(stored.body) == int(last) + sum(wins)
    assert len(tokens) >= 3
    assert tokens == sorted(set(tokens))
    assert min(wins) > 0
    took = time.monotonic() - began
    sys.stderr.write(f"race: {took:.0f} s, java {last}, python {sum(wins)} {wins}, {len(tokens)} tokens\n")
