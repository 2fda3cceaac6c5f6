"""What does a lock on S3, GCS and Azure cost above the two conditional writes it is made of?"""

from __future__ import annotations

import asyncio
import os
import time
import uuid
from contextlib import AsyncExitStack
from itertools import pairwise
from typing import TYPE_CHECKING

import asynclock
from asynclock import LeaseSettings
from asynclock.backends import open_backend
from asynclock.testing._proxy import TapProxy
from benchmarks.measure import Line, Samples, interleaved, microseconds, ratio
from benchmarks.store_writers import HTTP, SDK, writers
from tests.laboratory.servers import running

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping

    from asynclock._core.client import Renewal
    from asynclock.backend import Backend
    from benchmarks.store_writers import Writer
    from tests.laboratory.servers import Server

ROUNDS = 61
PAIRS = 10
FAR_ROUNDS = 11
FAR_PAIRS = 2
LINK = 0.04
MODES: tuple[Renewal, ...] = ("loop", "thread")
SETTINGS = LeaseSettings(max_clock_skew=1.0)
BACKEND = "asynclock backend"
LOOP = "asynclock loop"
CPU = 1.15
FAR = 1.05


def lines() -> Iterator[Line]:
    """Wall and CPU time per operation, requests at the server, and the wall behind a slow link."""
    for name in ("s3", "gcs", "azure"):
        with running(name) as server, asyncio.Runner() as runner:
            yield from near(server, runner)
            yield from counted(server, runner)
            yield from far(server, runner)


def near(server: Server, runner: asyncio.Runner) -> Iterator[Line]:
    """Lock and bare writes side by side, on the loopback."""
    stack = AsyncExitStack()
    try:
        pairs = runner.run(contenders(server, server.options, stack))
        cpu: Samples = {name: [] for name in pairs}
        wall = interleaved(
            {name: timed(runner, pair, PAIRS, cpu[name]) for name, pair in pairs.items()}, rounds=ROUNDS
        )
    finally:
        runner.run(stack.aclose())
    cpu = {name: spent[1:] for name, spent in cpu.items()}  # the first is the warm-up's
    for name in wall:
        yield microseconds(f"{server.name} per operation, {name}", wall[name])
        yield microseconds(f"{server.name} CPU per operation, {name}", cpu[name])
    for name, target in ((BACKEND, CPU), (LOOP, None)):
        yield ratio(f"{server.name} CPU over the {SDK}, {name}", cpu[name], cpu[SDK], target=target)
    yield ratio(f"{server.name} CPU of the {SDK} over {HTTP}", cpu[SDK], cpu[HTTP])


def counted(server: Server, runner: asyncio.Runner) -> Iterator[Line]:
    """Requests of acquire, renewal and release, the first time and after."""
    first, after = runner.run(count(server))
    for when, counts, targets in (("first", first, (2, 1, 1)), ("later", after, (1, 1, 1))):
        for step, number, target in zip(("acquire", "renewal", "release"), counts, targets, strict=True):
            name = f"{server.name} requests, {when} {step}"
            yield Line(name=name, unit="requests", samples=[number], target=target)


async def count(server: Server) -> list[list[int]]:
    """Count the requests of two rounds on one fresh lock."""
    async with (
        TapProxy(server.endpoint) as proxy,
        asynclock.connect(
            f"{server.url}/count-{uuid.uuid4()}", settings=SETTINGS, **server.through(proxy.url)
        ) as client,
    ):
        rounds = []
        for _ in range(2):
            marks = [len(proxy.journal)]
            lease = await client.lock("a").acquire()
            marks.append(len(proxy.journal))
            await lease.confirm()
            marks.append(len(proxy.journal))
            await lease.release()
            marks.append(len(proxy.journal))
            rounds.append([after - before for before, after in pairwise(marks)])
        return rounds


def far(server: Server, runner: asyncio.Runner) -> Iterator[Line]:
    """The same behind a link of 40 ms there and back."""
    stack = AsyncExitStack()

    async def opened() -> Mapping[str, Callable[[], Awaitable[None]]]:
        proxy = await stack.enter_async_context(TapProxy(server.endpoint, delay=LINK))
        found = await contenders(server, server.through(proxy.url), stack)
        return {name: found[name] for name in (LOOP, "asynclock thread", SDK)}

    pairs = runner.run(opened())
    try:
        wall = interleaved(
            {name: timed(runner, pair, FAR_PAIRS, []) for name, pair in pairs.items()}, rounds=FAR_ROUNDS
        )
    finally:
        runner.run(stack.aclose())
    for mode in MODES:
        name = f"{server.name} behind 40 ms over the {SDK}, {mode}"
        yield ratio(name, wall[f"asynclock {mode}"], wall[SDK], target=FAR)


async def contenders(
    server: Server, options: Mapping[str, object], stack: AsyncExitStack
) -> dict[str, Callable[[], Awaitable[None]]]:
    """Open every contender and do one pair with each, so that objects and connections are there."""
    prefix = f"bench-{uuid.uuid4()}"
    pairs: dict[str, Callable[[], Awaitable[None]]] = {}
    for mode in MODES:
        client = await stack.enter_async_context(
            asynclock.connect(f"{server.url}/{prefix}-{mode}", settings=SETTINGS, renewal=mode, **options)
        )
        pairs[f"asynclock {mode}"] = lock_pair(client.lock("lock"))
    backend = open_backend(f"{server.url}/{prefix}-backend", **options)
    stack.push_async_callback(backend.aclose)
    for name, writer in {
        BACKEND: backend_writer(backend),
        **await writers(server, options, stack),
    }.items():
        pairs[name] = await write_pair(writer, f"{prefix}/{name.replace(' ', '-')}.json")
    for pair in pairs.values():
        await pair()
    return pairs


def backend_writer(backend: Backend) -> Writer:
    """Our own writes, without a lock."""

    async def write(key: str, data: bytes, version: str | None) -> str:
        if version is None:
            return (await backend.put_if_absent(key, data)).version
        return (await backend.put_if_match(key, data, version)).version

    return write


def lock_pair(lock: asynclock.Lock) -> Callable[[], Awaitable[None]]:
    """One acquisition and its release."""

    async def pair() -> None:
        lease = await lock.acquire()
        await lease.release()

    return pair


async def write_pair(writer: Writer, key: str) -> Callable[[], Awaitable[None]]:
    """Two conditional writes of a record's size, with different bytes."""
    version = await writer(key, body(), None)

    async def pair() -> None:
        nonlocal version
        for _ in range(2):
            version = await writer(key, body(), version)

    return pair


def body() -> bytes:
    """As long as a lock record, and never the same twice."""
    return b'{"nonce":"%s","padding":"%s"}' % (os.urandom(16).hex().encode(), b"x" * 170)


def timed(
    runner: asyncio.Runner, pair: Callable[[], Awaitable[None]], pairs: int, cpu: list[float]
) -> Callable[[], float]:
    """A contender for ``interleaved``: seconds per operation, a pair being two."""

    async def run() -> float:
        spent, began = time.process_time(), time.perf_counter()
        for _ in range(pairs):
            await pair()
        took = time.perf_counter() - began
        cpu.append((time.process_time() - spent) / pairs / 2)
        return took / pairs / 2

    return lambda: runner.run(run())
