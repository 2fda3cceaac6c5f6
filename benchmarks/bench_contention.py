"""What does a hand-over cost, how long does the unluckiest wait, and what do many waiters ask of it?"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import time
import uuid
from typing import TYPE_CHECKING, Any

from asynclock import LeaseSettings
from asynclock.backends import open_backend
from asynclock.client import LockClient
from asynclock.testing._proxy import TapProxy
from benchmarks.bench_store import body
from benchmarks.contender import Counted
from benchmarks.measure import Line, interleaved, ratio
from tests.laboratory.servers import running

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.laboratory.servers import Server

ROUNDS = 5
COROUTINES = 500
SETTINGS = LeaseSettings(validity=60, max_clock_skew=1.0)
EXPRESS = 0.0145
"""Seconds of an answer of S3 Express: https://cdouglas.github.io/posts/2026/01/conditional."""
FAR_ROUNDS = 2
SECONDS = 6.0
HOLD = 0.01
LONG_HOLD = 0.1
"""Seconds of what a semaphore is for: work that takes longer than its acquisition."""
SLOTS = 4


def lines() -> Iterator[Line]:
    """Coroutines on one lock, processes next to naive polling, a semaphore and readers, on a server of S3."""
    with running("s3") as server, asyncio.Runner() as runner:
        yield from one_process("500 coroutines, one lock", server.url, server.options, runner, ROUNDS)
        yield from one_process_far_away(server, runner)
        yield from many_processes(server, "one lock, 8 processes x 64", processes=8, locks=1, coroutines=64)
        yield from many_processes(
            server, "1,000 locks x 4 contenders", processes=4, locks=1000, coroutines=1000
        )
        for hold in (HOLD, LONG_HOLD):
            yield from several_holders(server, hold, processes=4, coroutines=10)


def one_process_far_away(server: Server, runner: asyncio.Runner) -> Iterator[Line]:
    """The same on a store that answers as fast as the fastest in the cloud."""
    name = f"500 coroutines, one lock, answers after {EXPRESS * 1000:g} ms"
    proxy = TapProxy(server.endpoint, delay=EXPRESS)
    runner.run(proxy.__aenter__())
    try:
        yield from one_process(name, server.url, server.through(proxy.url), runner, FAR_ROUNDS)
    finally:
        runner.run(proxy.__aexit__(None, None, None))


def one_process(
    name: str, url: str, options: Mapping[str, object], runner: asyncio.Runner, rounds: int
) -> Iterator[Line]:
    """Hand-overs within a client next to as many bare conditional writes."""
    requests: list[float] = []
    unluckiest: list[float] = []

    def handed_over() -> float:
        seconds, sent, longest = runner.run(hand_over(url, options))
        requests.append(sent / COROUTINES)
        unluckiest.append(longest / (seconds * COROUTINES))
        return seconds

    samples = interleaved(
        {"asynclock": handed_over, "floor": lambda: runner.run(bare_writes(url, options))}, rounds=rounds
    )
    yield ratio(
        f"{name}: hand-overs a second over bare writes",
        samples["floor"],
        samples["asynclock"],
        target=0.9,
        bound="least",
    )
    yield Line(name=f"{name}: requests a hand-over", unit="requests", samples=requests[1:], target=1.1)
    yield Line(name=f"{name}: longest wait over the ideal line", unit="x", samples=unluckiest[1:], target=1.5)


async def hand_over(url: str, options: Mapping[str, object]) -> tuple[float, int, float]:
    """Return seconds a hand-over, requests, and the longest wait."""
    backend = Counted(open_backend(f"{url}/contention-{uuid.uuid4()}", **options))
    async with LockClient(url=url, backend=backend, settings=SETTINGS, renewal="loop") as client:
        lock = client.lock("lock")
        await (await lock.acquire()).release()
        backend.requests = 0
        began = time.monotonic()

        async def turn() -> float:
            async with lock.hold():
                return time.monotonic() - began

        waits = await asyncio.gather(*(turn() for _ in range(COROUTINES)))
        return (time.monotonic() - began) / COROUTINES, backend.requests, max(waits)


async def bare_writes(url: str, options: Mapping[str, object]) -> float:
    """Seconds of one conditional write, one after another."""
    backend = open_backend(f"{url}/floor-{uuid.uuid4()}", **options)
    try:
        version = (await backend.put_if_absent("lock.json", body())).version
        began = time.monotonic()
        for _ in range(COROUTINES):
            version = (await backend.put_if_match("lock.json", body(), version)).version
        return (time.monotonic() - began) / COROUTINES
    finally:
        await backend.aclose()


def many_processes(
    server: Server, name: str, *, processes: int, locks: int, coroutines: int
) -> Iterator[Line]:
    """The same contention twice: with asynclock, and with a naive look every 50 ms."""
    found = {how: contention(server, how, processes, locks, coroutines) for how in ("asynclock", "naive")}
    for how, (requests, wait, turns) in found.items():
        yield Line(name=f"{name}, {how}: requests a second", unit="1/s", samples=[requests / SECONDS])
        yield Line(name=f"{name}, {how}: median wait", unit="s", samples=[wait])
        yield Line(name=f"{name}, {how}: turns", unit="turns", samples=[turns])
    ours, theirs = found["asynclock"], found["naive"]
    fewer = (theirs[0] / max(theirs[2], 1)) / (ours[0] / max(ours[2], 1))
    yield Line(name=f"{name}: fewer requests a turn", unit="x", samples=[fewer], target=10, bound="least")
    yield Line(name=f"{name}: median wait over naive", unit="x", samples=[ours[1] / theirs[1]], target=1.0)


def several_holders(server: Server, hold: float, *, processes: int, coroutines: int) -> Iterator[Line]:
    """The same contenders for a lock, for a semaphore, and as readers."""
    name = f"{processes} processes x {coroutines}, held for {hold * 1000:g} ms"
    mutex, _, turns = contention(server, "asynclock", processes, 1, coroutines, hold=hold)
    for how, what in (("semaphore", f"a semaphore of {SLOTS} slots"), ("readers", "readers")):
        requests, _, more = contention(server, how, processes, 1, coroutines, hold=hold)
        yield Line(name=f"{name}: turns of {what} over those of a lock", unit="x", samples=[more / turns])
        asked = (requests / more) / (mutex / turns)
        yield Line(name=f"{name}: requests a turn of {what} over a lock's", unit="x", samples=[asked])


def contention(
    server: Server, how: str, processes: int, locks: int, coroutines: int, *, hold: float = HOLD
) -> tuple[int, float, int]:
    """Return all requests, the median wait and all turns of N processes."""
    job: dict[str, Any] = {
        "url": f"{server.url}/contention-{uuid.uuid4()}",
        "options": server.options,
        "how": how,
        "locks": locks,
        "coroutines": coroutines,
        "slots": SLOTS,
        "seconds": SECONDS,
        "hold": hold,
    }
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "benchmarks.contender", json.dumps(job | {"process": number})],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(processes)
    ]
    for process in started:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    answers = []
    for process in started:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in started:
        output, _ = process.communicate()
        answers.append(json.loads(output))
    waits = [wait for answer in answers for wait in answer["waits"]]
    requests = sum(answer["requests"] for answer in answers)
    return requests, statistics.median(waits), sum(sum(answer["turns"]) for answer in answers)
