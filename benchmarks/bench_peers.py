"""What do the locks that people use cost next to ours, and what do their users learn when a holder stalls?"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

import boto3
from python_dynamodb_lock.python_dynamodb_lock import DynamoDBLockClient
from redis import Redis

from asynclock.testing._proxy import TapProxy
from benchmarks.measure import SCRATCH, Line, Samples, interleaved, ratio
from benchmarks.peers.link import link
from benchmarks.peers.servers import etcd, redis
from tests.hudi.harness import Providers, compile_harness
from tests.laboratory.servers import Server, running

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LIFETIME = 10
"""Seconds: the shortest of Hudi's lock, and so that of all."""
CYCLES = 50
ROUNDS = 9
LINK = 0.04
FAR_CYCLES = 3
FAR_ROUNDS = 5
DEATHS = 2
WATCHED = 2.5
"""Seconds after which a holder is killed or stopped: not those of a renewal, every 2 s, which a stop on
``file://`` would catch in the middle of its write, with the side file locked until the process goes on."""
STALLED = 3.0
"""Seconds for which the holder is still stopped when another one has its lock."""
TOLD_WITHIN = 90.0
OURS = "asynclock, S3"


class Running(Protocol):
    """A process with one client."""

    pid: int

    def cycle(self, count: int = CYCLES) -> float:
        """Mean seconds of an acquire and release, of that many."""

    def acquire(self) -> tuple[float, object]:
        """Wait for the lock; when it was had, and its token."""

    def told(self, seconds: float) -> float | None:
        """When the library said that the lock is lost; None: not in that time."""

    def release(self) -> None:
        """Free it."""

    def close(self) -> None:
        """End the process."""


@dataclass(frozen=True, kw_only=True)
class Peer:
    """A lock that is compared.

    Attributes:
        name: For the lines.
        library: What ``benchmarks.peers.client`` runs; empty: Hudi's provider in a JVM.
        job: What the client is given.
        endpoint: Its server, where HTTP is spoken to it; requests are counted there.
    """

    name: str
    library: str
    job: dict[str, Any] = field(default_factory=dict)
    endpoint: str = ""


def lines() -> Iterator[Line]:
    """Latency by turns, near and far; then, all locks at a time, requests, takeover and a stall."""
    with contextlib.ExitStack() as stack:
        bench = Bench(stack)
        yield from bench.latency()
        yield from asyncio.run(bench.far())
        yield from bench.requests()
        yield from bench.takeover()
        yield from bench.stall()


class Bench:
    """The servers of all, and a lock of each that nobody else uses.

    Args:
        stack: Ends what is started.
    """

    def __init__(self, stack: contextlib.ExitStack) -> None:
        self._stack = stack
        self._s3: Server = stack.enter_context(running("s3"))
        moto = stack.enter_context(running("moto"))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=SCRATCH)))
        self._classes = compile_harness(folder / "classes")
        access = {"aws_access_key_id": "x", "aws_secret_access_key": "x", "region_name": "us-east-1"}
        database = boto3.client("dynamodb", endpoint_url=moto.endpoint, **access)
        DynamoDBLockClient.create_dynamodb_table(database)
        self._folder = folder
        self._moto = moto.endpoint
        self._redis = stack.enter_context(redis())
        self._etcd = stack.enter_context(etcd())
        self._pool = stack.enter_context(ThreadPoolExecutor(32))

    def peers(self) -> list[Peer]:
        """Locks that were never held."""
        unused = str(uuid.uuid4())
        below = self._folder / unused
        below.mkdir()
        s3 = {"url": f"{self._s3.url}/{unused}", "options": self._s3.options, "max_clock_skew": 1.0}
        return [
            Peer(name=OURS, library="asynclock", job=s3, endpoint=self._s3.endpoint),
            Peer(name="Hudi's provider, S3", library="", job=s3, endpoint=self._s3.endpoint),
            Peer(name="python-dynamodb-lock", library="dynamodb",
                 job={"endpoint": self._moto, "name": unused}, endpoint=self._moto),
            Peer(name="etcd", library="etcd",
                 job={"endpoint": self._etcd, "name": unused}, endpoint=self._etcd),
            Peer(name="redis-py", library="redis", job={"port": self._redis, "name": unused}),
            Peer(name="asynclock, file", library="asynclock",
                 job={"url": f"file://{below}", "options": {"fsync": False}}),
            Peer(name="filelock", library="filelock", job={"folder": str(below)}),
        ]  # fmt: skip

    def start(self, peer: Peer, endpoint: str = "") -> Running:
        """Start a process with a client of that lock, maybe behind a proxy."""
        if not peer.library:
            return self._stack.enter_context(
                contextlib.closing(Hudi(self._classes, self._s3, peer.job["url"], endpoint))
            )
        job = peer.job | {"lifetime": LIFETIME}
        if endpoint and "options" in job:
            job["options"] = self._s3.through(endpoint)
        elif endpoint and "port" in job:
            job["port"] = urlsplit(endpoint).port
        elif endpoint:
            job["endpoint"] = endpoint
        return self._stack.enter_context(contextlib.closing(Client(peer.library, job)))

    def latency(self) -> Iterator[Line]:
        """An acquire and release without anybody else."""
        found = {peer.name: self.start(peer) for peer in self.peers()}
        samples = interleaved({name: one.cycle for name, one in found.items()}, rounds=ROUNDS)
        for one in found.values():
            one.close()
        yield from _compared("acquire and release", samples)
        yield ratio(
            "asynclock, file, over filelock, both without fsync",
            samples["asynclock, file"],
            samples["filelock"],
            target=1.0,
        )

    async def far(self) -> list[Line]:
        """The same behind a link, for the locks that have a server."""
        found: dict[str, Running] = {}
        async with contextlib.AsyncExitStack() as links:
            for peer in self.peers():
                port = urlsplit(peer.endpoint).port or peer.job.get("port")
                if port is not None:
                    near = await links.enter_async_context(link(port, delay=LINK))
                    found[peer.name] = await asyncio.to_thread(self.start, peer, f"http://127.0.0.1:{near}")
            cycles = {name: partial(one.cycle, FAR_CYCLES) for name, one in found.items()}
            samples = await asyncio.to_thread(interleaved, cycles, rounds=FAR_ROUNDS)
            for one in found.values():
                await asyncio.to_thread(one.close)
        return list(_compared(f"acquire and release behind {LINK * 1e3:.0f} ms", samples))

    def requests(self) -> Iterator[Line]:
        """Requests of an acquisition, of a lifetime for which the lock is held, and of a release."""
        counted = [peer for peer in self.peers() if peer.endpoint or peer.library == "redis"]
        for peer, counts in zip(counted, asyncio.run(self._count(counted)), strict=True):
            for what, count in zip(("acquire", f"hold for {LIFETIME} s", "release"), counts, strict=True):
                yield Line(name=f"{peer.name}: requests, {what}", unit="requests", samples=[count])

    def takeover(self) -> Iterator[Line]:
        """From the death of a holder until a waiter that watches has its lock, over the lifetime."""
        peers = self.peers()
        rounds = [list(self._pool.map(self._death, self.peers())) for _ in range(DEATHS)]
        for peer, *waits in zip(peers, *rounds, strict=True):
            over = [wait / LIFETIME for wait in waits]
            yield Line(name=f"{peer.name}: takeover after kill -9 over the lifetime", unit="x", samples=over)

    def stall(self) -> Iterator[Line]:
        """What a holder learns that was stopped until another one had its lock."""
        peers = self.peers()
        for peer, (after, rises) in zip(peers, self._pool.map(self._stop, peers), strict=True):
            yield Line(
                name=f"{peer.name}: time until a resumed holder learns that it has lost the lock",
                unit="ms",
                samples=[after * 1e3],
            )
            yield Line(
                name=f"{peer.name}: a fencing token that rises (1: yes)", unit="", samples=[float(rises)]
            )

    async def _count(self, peers: list[Peer]) -> list[tuple[int, ...]]:
        return await asyncio.gather(*(self._count_one(peer) for peer in peers))

    async def _count_one(self, peer: Peer) -> tuple[int, ...]:
        if not peer.endpoint:
            return await self._steps(self.start(peer), self._redis_commands)
        async with TapProxy(upstream=peer.endpoint, continues=True) as proxy:
            client = await asyncio.to_thread(self.start, peer, proxy.url)
            return await self._steps(client, lambda: len(proxy.journal))

    async def _steps(self, client: Running, count: Callable[[], int]) -> tuple[int, ...]:
        """What the second acquisition of a client costs, and what follows it."""
        await asyncio.to_thread(client.acquire)
        await asyncio.to_thread(client.release)
        marks = [count()]
        for step in (client.acquire, partial(time.sleep, LIFETIME), client.release):
            await asyncio.to_thread(step)
            marks.append(count())
        await asyncio.to_thread(client.close)
        return tuple(after - before for before, after in pairwise(marks))

    def _redis_commands(self) -> int:
        """Commands that a client sent; those that a script runs in the server are not among them."""
        found = Redis(port=self._redis).info("commandstats")
        return sum(found.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("set", "eval", "evalsha"))

    def _death(self, peer: Peer) -> float:
        holder, waiter = self.start(peer), self.start(peer)
        holder.acquire()
        taken = self._pool.submit(waiter.acquire)
        time.sleep(WATCHED)
        os.kill(holder.pid, signal.SIGKILL)
        died = time.monotonic()
        at, _ = taken.result()
        waiter.close()
        return at - died

    def _stop(self, peer: Peer) -> tuple[float, bool]:
        holder, waiter = self.start(peer), self.start(peer)
        _, first = holder.acquire()
        told = self._pool.submit(holder.told, TOLD_WITHIN)
        taken = self._pool.submit(waiter.acquire)
        time.sleep(WATCHED)
        os.kill(holder.pid, signal.SIGSTOP)
        _, second = taken.result()
        time.sleep(STALLED)
        went_on = time.monotonic()
        os.kill(holder.pid, signal.SIGCONT)
        at = told.result()
        for one in (holder, waiter):
            one.close()
        rises = isinstance(first, int) and isinstance(second, int) and second > first
        if at is None:
            message = f"{peer.name}: its holder was not told in {TOLD_WITHIN} s"
            raise RuntimeError(message)
        return at - went_on, rises


def _compared(what: str, samples: Samples) -> Iterator[Line]:
    """Lines of times, and of their ratios to ours."""
    for name, seconds in samples.items():
        yield Line(name=f"{name}: {what}", unit="ms", samples=[each * 1e3 for each in seconds])
    for name, seconds in samples.items():
        if name != OURS:
            yield ratio(f"{name}: {what} over {OURS}", seconds, samples[OURS])


class Client:
    """A Python library in a process of its own."""

    def __init__(self, library: str, job: dict[str, Any]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.peers.client", library, json.dumps(job)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pid = self._process.pid

    def cycle(self, count: int = CYCLES) -> float:
        """Ask it."""
        return float(self._ask(f"cycles {count}")["seconds"])

    def acquire(self) -> tuple[float, object]:
        """Wait."""
        answer = self._ask("acquire")
        return answer["at"], answer["token"]

    def told(self, seconds: float) -> float | None:
        """Wait, too."""
        at: float | None = self._ask(f"told {seconds}")["at"]
        return at

    def release(self) -> None:
        """Release."""
        self._ask("release")

    def close(self) -> None:
        """End it, whatever it does."""
        self._process.kill()
        self._process.communicate()

    def _ask(self, command: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{command}\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer


class Hudi:
    """Hudi's ``StorageBasedLockProvider`` in a JVM; it renews once a second."""

    def __init__(self, classes: Path, server: Server, base: str, endpoint: str) -> None:
        # Compiled as well as Java can, as in a driver that runs for days.
        full = ("-XX:TieredStopAtLevel=4",)
        self._jvm = Providers(classes, server, endpoint=endpoint or None, flags=full)
        self._jvm.provider("p", base)
        self.pid = self._jvm.process.pid

    def cycle(self, count: int = CYCLES) -> float:
        """Ask it; the harness renews between the two, which does not count."""
        times = [
            [float(each) for each in cycle.split(",")]
            for cycle in self._jvm.ask("cycles", "p", str(count)).split()
        ]
        return statistics.fmean(acquire + release for acquire, _, release in times) / 1e3

    def acquire(self) -> tuple[float, object]:
        """Wait; there is no token."""
        answer = self._jvm.ask("tryLockFor", "p", "600000")
        assert answer == "true", answer
        return time.monotonic(), None

    def told(self, seconds: float) -> float | None:
        """It interrupts the thread that holds the lock, and forgets the lock."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            answer = self._jvm.ask("getLock", "p")
            if answer == "null" or answer.endswith(" interrupted"):
                return time.monotonic()
            time.sleep(0.001)
        return None

    def release(self) -> None:
        """Release."""
        self._jvm.ask("unlock", "p")

    def close(self) -> None:
        """End it."""
        if self._jvm.process.poll() is None:
            self._jvm.__exit__()
