"""A run with something for each metric."""

from __future__ import annotations

import asyncio

import pytest

from asynclock import AcquireTimeoutError
from asynclock.events import Event, Events
from asynclock.testing._faulty import Fault
from tests.unit.kit import ALWAYS, SETTINGS, World, faulty, our_record, until_lost

HOSTILE = 'mallory"} 1\nasynclock_lock_losses_total{error_type="forged\x1b[31m'


async def run(world: World) -> None:
    """Wait, take over, hold, renew, stall, lose, reap, and leave a release unconfirmed."""
    world.put(our_record(valid_until=world.now + 10, owner=HOSTILE), "dead.json")
    async with world.client() as client:
        backend = faulty(client)
        lease = await client.lock("dead").acquire()
        with pytest.raises(AcquireTimeoutError):
            await client.lock("dead").acquire(timeout=0.5)
        await asyncio.sleep(2.0)
        world.loop.now += 3.0  # a callback that blocks the event loop
        await asyncio.sleep(2.0)
        await lease.release()
        backend.inject(Fault.REPLY_LOST, operation="put_if_absent")
        adopted = await client.lock("adopted").acquire()
        backend.inject(Fault.REQUEST_LOST, times=ALWAYS)
        await until_lost(adopted)
        backend.calm()
        await asyncio.sleep(30.0)
        lease = await client.lock("unconfirmed").acquire()
        backend.inject(Fault.REQUEST_LOST, times=ALWAYS)
        await lease.release()
        await asyncio.sleep(2 * SETTINGS.validity)
        backend.calm()


@pytest.fixture(scope="session")
def events() -> list[Event]:
    """Return the events of that run, and one of each kind that has hostile text."""
    world = World()
    world.loop.run_until_complete(run(world))
    world.loop.close()
    told = list(world.events)
    hostile = Events(told.append, url="s3://key:secret@bucket/locks", validity=10.0)
    for kind in ("waiting", "acquire_failed", "renewal_failed", "lost"):
        hostile.emit(kind, "orders.json", HOSTILE, 7, HOSTILE, reason=HOSTILE)
    return told
