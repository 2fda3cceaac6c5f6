"""One process of ``bench_contention``: coroutines that contend for locks, with asynclock or by naive polling.

With asynclock, they may contend for a semaphore or read under a reader-writer lock in place of locks.

Started as ``python -m benchmarks.contender JSON``; prints ``ready``, starts at a line on stdin, and prints a
line of JSON: ``requests``, and ``waits`` and ``turns`` of all its coroutines. A wait that the end cuts off
counts for as long as it was: else a lock that one of many gets again and again would have the shortest waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from typing import TYPE_CHECKING, Any

from asynclock import AcquireTimeoutError, LeaseSettings
from asynclock.backends import open_backend
from asynclock.client import LockClient
from asynclock.errors import PreconditionFailedError

if TYPE_CHECKING:
    from asynclock.backend import Absent, Backend, Stored, Written
    from asynclock.lock import Holdable

FREE = b'{"held":false}'
POLL = 0.05


class Counted:
    """A backend that counts its requests; all else is the backend's own."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.requests = 0

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  as the backend has it
        return getattr(self._backend, name)

    async def get(self, key: str) -> Stored | Absent:
        """Count a read."""
        self.requests += 1
        return await self._backend.get(key)

    async def put_if_absent(self, key: str, data: bytes) -> Written:
        """Count a write."""
        self.requests += 1
        return await self._backend.put_if_absent(key, data)

    async def put_if_match(self, key: str, data: bytes, version: str) -> Written:
        """Count a write."""
        self.requests += 1
        return await self._backend.put_if_match(key, data, version)


class Naive:
    """What people write by hand: look every 50 ms, and take the lock if it is free."""

    def __init__(self, backend: Counted, key: str, number: int) -> None:
        self._backend = backend
        self._key = key
        self._body = b'{"held":true,"by":%d,"turn":%%d}' % number
        self._turn = 0

    async def acquire(self) -> str:
        """Return the version that this coroutine wrote."""
        while True:
            found = await self._backend.get(self._key)
            if getattr(found, "body", FREE).startswith(FREE[:-1]):
                self._turn += 1
                body = self._body % self._turn
                with contextlib.suppress(PreconditionFailedError):
                    version = getattr(found, "version", None)
                    if version is None:
                        return (await self._backend.put_if_absent(self._key, body)).version
                    return (await self._backend.put_if_match(self._key, body, version)).version
            await asyncio.sleep(POLL)

    async def release(self, version: str) -> None:
        """Free the lock, with bytes that it never had."""
        self._turn += 1
        free = FREE[:-1] + b',"of":%s}' % (self._body % self._turn)
        await self._backend.put_if_match(self._key, free, version)


def wanted(client: LockClient, job: dict[str, Any], number: int) -> Holdable:
    """Return what a coroutine acquires."""
    if job["how"] == "semaphore":
        return client.semaphore("semaphore", job["slots"])
    if job["how"] == "readers":
        return client.rwlock("rwlock").read
    return client.lock(f"lock-{number % job['locks']}")


async def contend(job: dict[str, Any]) -> dict[str, Any]:
    """Run the coroutines for ``seconds``; each holds its lock for ``hold`` seconds at every turn."""
    backend = Counted(open_backend(job["url"], **job["options"]))
    settings = LeaseSettings(validity=60, max_clock_skew=1.0)
    client = LockClient(url=job["url"], backend=backend, settings=settings, renewal="loop")
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    end = time.monotonic() + job["seconds"]
    waits: list[float] = []

    async def work(number: int) -> int:
        lock = wanted(client, job, number)
        naive = Naive(backend, f"naive-{number % job['locks']}", job["process"] * 10_000 + number)
        turns = 0
        while (began := time.monotonic()) < end:
            if job["how"] == "naive":
                try:
                    version = await asyncio.wait_for(naive.acquire(), end - began)
                except TimeoutError:
                    waits.append(time.monotonic() - began)
                    break
                waits.append(time.monotonic() - began)
                await asyncio.sleep(job["hold"])
                await naive.release(version)
            else:
                try:
                    lease = await lock.acquire(timeout=end - began)
                except AcquireTimeoutError:
                    waits.append(time.monotonic() - began)
                    break
                waits.append(time.monotonic() - began)
                await asyncio.sleep(job["hold"])
                await lease.release()
            turns += 1
        return turns

    turns = await asyncio.gather(*(work(number) for number in range(job["coroutines"])))
    await client.aclose()
    await backend.aclose()
    return {"requests": backend.requests, "waits": waits, "turns": turns}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(contend(json.loads(sys.argv[1])))), flush=True)
