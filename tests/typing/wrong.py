"""Wrong uses, each in a line marked ``refused``: every type checker tells the user of it. Never run."""

from __future__ import annotations

import asynclock
from asynclock import BackendOptions, Clock, LeaseSettings, Lock, LockClient, LockStatus, sync


def wrong(client: LockClient, lock: Lock, status: LockStatus, blocking: sync.LockClient) -> None:
    """Use what nobody should."""
    asynclock.connect("memory://", settings={"validity": 3})  # refused
    asynclock.connect("memory://", renewal="process")  # refused
    client.lock(name=1)  # refused
    lock.hold(3)  # refused
    status.owner = "me"  # refused
    LeaseSettings(60)  # refused
    asynclock.connect("s3://bucket/locks", regoin="eu-west-1")  # refused, not by ty
    asynclock.connect("s3://bucket/locks", path_style="yes")  # refused
    sync.connect("gs://bucket/locks", user_projekt="me")  # refused, not by ty
    options: BackendOptions = {"acces_key_id": "me"}  # refused
    asynclock.connect("s3://bucket/locks", **options)
    clock: Clock = object()  # refused
    asynclock.connect("memory://", clock=clock)
    with lock.hold():  # refused
        pass
    with blocking.lock("orders").hold() as lease:
        lease.renew()  # refused


async def wrong_in_asyncio(client: LockClient, lock: Lock) -> list[str]:
    """Likewise."""
    lease = await lock.try_acquire()
    lease.check()  # refused
    async with client.lock("orders").hold() as held:
        held.fencing_token = 3  # refused
    return await client.list()  # refused
