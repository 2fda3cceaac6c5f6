"""Six processes on one server, killed, paused and cut off at random: no acknowledged write is lost."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import sys
import uuid
from asyncio.subprocess import DEVNULL, Process
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from asynclock.backends import open_backend
from asynclock.testing._proxy import TapProxy, Wire

if TYPE_CHECKING:
    from tests.laboratory.servers import Server

WORKERS = 6
SECONDS = 60.0
SEED = 20261121
WORKER = Path(__file__).with_name("fenced_worker.py")
ROOT = Path(__file__).parents[2]


class Crowd:
    """The worker processes, each replaced when it is killed."""

    def __init__(self, arguments: list[str], folder: Path) -> None:
        self._arguments = arguments
        self._folder = folder
        self._started = 0
        self.workers: list[Process] = []
        self.kills = self.pauses = 0

    async def start(self) -> Process:
        """Start one more worker, with a log of its own."""
        self._started += 1
        log = self._folder / f"{self._started}.log"
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        return await asyncio.create_subprocess_exec(
            sys.executable, str(WORKER), *self._arguments, str(log), env=environment, stderr=DEVNULL
        )

    async def trouble(self, rng: random.Random) -> None:
        """Kill a random worker and replace it, or stop one for up to twice its lease."""
        number = rng.randrange(WORKERS)
        worker = self.workers[number]
        if rng.random() < 0.5:
            self.kills += 1
            worker.kill()
            await worker.wait()
            self.workers[number] = await self.start()
        else:
            self.pauses += 1
            worker.send_signal(signal.SIGSTOP)
            await asyncio.sleep(rng.uniform(0.2, 6.0))
            worker.send_signal(signal.SIGCONT)

    async def stop(self) -> None:
        """End all workers."""
        for worker in self.workers:
            with contextlib.suppress(ProcessLookupError):
                worker.kill()
            await worker.wait()

    def acknowledged(self) -> list[int]:
        """Return every count that the store confirmed to a worker."""
        return [int(line) for log in self._folder.glob("*.log") for line in log.read_text().split()]


@pytest.mark.timeout(180)
async def test_a_fenced_counter_survives_kills_pauses_and_cuts(minio: Server, tmp_path: Path) -> None:
    """For a minute six processes count up one object: every acknowledged count is there once."""
    rng = random.Random(SEED)
    name = f"fenced-{uuid.uuid4()}"
    async with TapProxy(minio.endpoint, seed=SEED) as proxy:
        proxy.storm(0.1, Wire.CUT_AFTER, Wire.CUT_BEFORE, Wire.CUT_MIDDLE)
        url = f"{minio.url}/processes"
        crowd = Crowd([url, json.dumps(minio.through(proxy.url)), name], tmp_path)
        crowd.workers = [await crowd.start() for _ in range(WORKERS)]
        try:
            end = asyncio.get_running_loop().time() + SECONDS
            while asyncio.get_running_loop().time() < end:
                await asyncio.sleep(rng.uniform(0.2, 1.5))
                await crowd.trouble(rng)
        finally:
            await crowd.stop()
    counts = await asyncio.to_thread(crowd.acknowledged)
    backend = open_backend(url, **minio.options)
    stored = [await backend.get(entry.key) async for entry in backend.list(name) if "counter" in entry.key]
    await backend.aclose()

    assert len(stored) == 1
    assert stored[0] is not None
    final = int(stored[0].body.split(b"\n", 1)[1])
    assert len(set(counts)) == len(counts), "two processes were told the same count: one was lost"
    assert max(counts) <= final
    assert len(counts) > WORKERS
    assert min(crowd.kills, crowd.pauses, proxy.faults()) > 0
    sys.stderr.write(
        f"{len(counts)} counts, {crowd.kills} kills, {crowd.pauses} pauses, {proxy.faults()} cuts\n"
    )
