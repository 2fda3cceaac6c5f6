"""Nothing on the way of a loss, a release or a renewal is imported for the first time."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from tests.laboratory.servers import Server

PROGRAM = """
import asyncio, gc, json, sys, warnings
import asynclock
from asynclock import LeaseSettings, LockClient
from asynclock.backends import open_backend
from asynclock.testing._faulty import Fault, FaultyBackend

url, options = sys.argv[1], json.loads(sys.argv[2])
settings = LeaseSettings(validity=2.0, max_clock_skew=0.1, poll_interval=0.05)
warnings.simplefilter("ignore", ResourceWarning)
asked = []


class Refuse:
    # Codecs are looked up by an import as well.
    def find_spec(self, name, path=None, target=None):
        asked.append(name)
        raise ImportError(f"{name} cannot be read")


async def endings(renewal):
    backend = FaultyBackend(open_backend(url, **options))
    client = LockClient(url=url, backend=backend, settings=settings, renewal=renewal)
    warm = await client.lock("warm").acquire(timeout=20)
    refuse = Refuse()
    sys.meta_path.insert(0, refuse)
    lock = client.lock("a")

    async def broken():
        await lock.break_lock(await lock.status(), force=True)

    lease = await lock.acquire()
    lease.on_lost(lambda loss: None)
    await lease.confirm()
    await lease.release()
    lease = await lock.acquire()
    await broken()
    try:
        await lease.release()
    except asynclock.LeaseTakenOverError:
        pass
    try:
        async with lock.hold():
            await broken()
            await asyncio.sleep(5)
    except asynclock.LeaseTakenOverError:
        pass
    lease = await lock.acquire()
    for fault in Fault.REPLY_LOST, Fault.UNAVAILABLE, Fault.CONFLICT, Fault.THROTTLED, Fault.REQUEST_LOST:
        backend.inject(fault, operation="put_if_match")
        try:
            await lease.confirm()
        except asynclock.BackendError:
            pass
    backend.storm({Fault.UNAVAILABLE: 1.0})
    while lease.held:
        await asyncio.sleep(0.05)
    backend.calm()
    lease = await lock.acquire()
    backend.storm({Fault.UNAVAILABLE: 1.0})
    await lease.release()
    await asyncio.sleep(1.0)
    backend.calm()
    cancelled = asyncio.create_task(lock.acquire())
    await asyncio.sleep(0.001)
    cancelled.cancel()
    await asyncio.wait([cancelled])
    lease = await lock.acquire()
    receiving = asyncio.create_task(lock.acquire())
    await asyncio.sleep(0.01)
    await lease.release()
    lease = await receiving
    del lease, receiving, cancelled
    gc.collect()
    lease = await lock.acquire(timeout=10)
    body = asyncio.create_task(held(client))
    await asyncio.sleep(0.5)
    await client.aclose()
    await asyncio.wait([body])
    sys.meta_path.remove(refuse)


async def held(client):
    async with client.lock("b").hold():
        await asyncio.sleep(10)


for renewal in "thread", "loop":
    asyncio.run(endings(renewal))
print(*asked)
"""


def asked_for(url: str, options: object) -> str:
    """Return which modules the ends of leases and their renewals asked for."""
    command = [sys.executable, "-c", PROGRAM, url, json.dumps(options)]
    process = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert process.returncode == 0, process.stderr
    return process.stdout


def test_ends_and_renewals_import_nothing(tmp_path: Path) -> None:
    """Losses, releases, renewals, cancellations and the end of a client need no module that was not there."""
    assert asked_for(f"file://{tmp_path}", {}) == "\n"


def test_ends_and_renewals_import_nothing_in_a_cloud(cloud: Server) -> None:
    """The same through each SDK."""
    assert asked_for(f"{cloud.url}/first-{uuid.uuid4()}", cloud.options) == "\n"
