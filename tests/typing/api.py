"""The public surface as a type checker sees it; checked by four type checkers, never run."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import TYPE_CHECKING, Any, assert_type

import asynclock
from asynclock import (
    Backend,
    BackendOptions,
    Clock,
    FencedObject,
    Lease,
    LeaseLostError,
    LeaseSettings,
    Lock,
    LockClient,
    LockStatus,
    RWLock,
    Semaphore,
    SystemClock,
    sync,
)
from asynclock.backends._local import LocalBackend
from asynclock.backends._memory import MemoryBackend
from asynclock.fencing import FencedValue

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from asynclock.events import Event

clock: Clock = SystemClock()
backend: Backend = MemoryBackend()
other: type[Backend] = LocalBackend


def listener(event: Event) -> None:
    """Take an event."""
    assert_type(event.kind == "lost", bool)


async def asynchronous() -> None:
    """Use every awaitable name."""
    settings = LeaseSettings(validity=60, renew_interval=None)
    client = asynclock.connect(
        "memory://",
        settings=settings,
        renewal="loop",
        events=listener,
        clock=clock,
        holder="me",
        min_write_interval=0.5,
    )
    assert_type(client, LockClient)
    assert_type(client.url, str)
    assert_type(client.settings, LeaseSettings)
    assert_type(client.backend, Backend)
    lock = client.lock("orders")
    assert_type(lock, Lock)
    assert_type(await lock.acquire(timeout=1), Lease)
    assert_type(await lock.try_acquire(), Lease | None)
    assert_type(lock.hold(), AbstractAsyncContextManager[Lease])
    assert_type(await lock.status(), LockStatus)
    assert_type(await lock.break_lock(await lock.status(), force=True), LockStatus)
    assert_type(await client.list("a"), list[LockStatus])
    async for status in client.scan("a"):
        assert_type(status, LockStatus)
    semaphore = client.semaphore("exports", 4)
    assert_type(semaphore, Semaphore)
    assert_type(semaphore.slots, int)
    assert_type((await semaphore.acquire()).slot, int | None)
    await semaphore.resize(8)
    assert_type(client.rwlock("orders"), RWLock)
    assert_type(await client.rwlock("orders").write.try_acquire(), Lease | None)
    async with lock as held:
        assert_type(held, Lease)
    async with client, lock.hold(timeout=3) as lease:
        assert_type(lease, Lease)
        assert_type(lease.held, bool)
        assert_type(lease.lost, LeaseLostError | None)
        assert_type(lease.remaining(), float)
        assert_type(lease.fencing_token, int)
        assert_type(lease.owner, str)
        lease.check()
        await lease.confirm()
        lease.on_lost(print)
        value = await FencedObject(client, "pointer").update(lambda body: body or b"", lease=lease)
        assert_type(value, FencedValue)
        assert_type(await FencedObject(client, "pointer").read(), FencedValue | None)

    async def work(lease: Lease) -> int:
        return lease.fencing_token

    typed: Callable[[Lease], Awaitable[int]] = work
    assert_type(await lock.lead(typed, timeout=5.0, on_change=print), int)
    assert_type(await lock.leader(), LockStatus)
    assert_type(lock.step_down(), bool)
    assert_type(await (await lock.acquire(ticket="...")).transfer(within=60.0), str)
    async with await lock.acquire() as again:
        assert_type(again, Lease)
    await client.aclose()


def blocking() -> None:
    """Use the blocking twins."""
    with sync.connect("memory://") as client:
        assert_type(client, sync.LockClient)
        lock = client.lock("orders")
        assert_type(lock.acquire(), sync.Lease)
        assert_type(lock.try_acquire(), sync.Lease | None)
        assert_type(lock.hold(), AbstractContextManager[sync.Lease])
        assert_type(client.list(), list[LockStatus])
        for status in client.scan():
            assert_type(status, LockStatus)
        assert_type(lock.lead(lambda lease: lease.fencing_token, on_change=print), int)
        assert_type(lock.leader(), LockStatus)
        assert_type(lock.step_down(), bool)
        assert_type(lock.acquire(ticket="...").transfer(), str)
        assert_type(client.semaphore("exports", slots=4), sync.Semaphore)
        client.semaphore("exports", 4).resize(8)
        assert_type(client.rwlock("orders").read.acquire(), sync.Lease)
        with lock as held:
            assert_type(held, sync.Lease)
        with lock.hold() as lease:
            assert_type(lease.remaining(), float)
            assert_type(sync.FencedObject(client, "pointer").write(b"", lease=lease), FencedValue)


async def options_of_backends(own: dict[str, Any]) -> None:
    """Give options by name, in a typed dictionary, and, for a backend of another package, in any."""
    assert_type(asynclock.__version__, str)
    options: BackendOptions = {"region": "eu-west-1", "path_style": True, "min_write_interval": 1}
    assert_type(asynclock.connect("s3://bucket/locks", holder="me", **options), LockClient)
    assert_type(sync.connect("s3://bucket/locks", **options), sync.LockClient)
    assert_type(asynclock.connect("az://box", sas_token=None, credential=object()), LockClient)
    assert_type(await asynclock.probe("file:///tmp/locks", fsync=False), asynclock.ProbeReport)
    assert_type(asynclock.connect("mystore://place", **own), LockClient)
