"""To close a client is a loss for everybody who works under one of its leases (rule 25)."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Literal

import pytest

import asynclock
from asynclock import Lease, LeaseLostError, LockClient, sync
from tests.unit.kit import World, in_virtual_time

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path
    from typing import Any

CLOSED = "the client was closed"
Work = "Callable[[Lease], Coroutine[Any, Any, None]]"


async def in_hold(client: LockClient, work: Work) -> None:
    """Work in ``hold()``."""
    async with client.lock("orders").hold() as lease:
        await work(lease)


async def in_lock(client: LockClient, work: Work) -> None:
    """Work in ``async with`` a lock."""
    async with client.lock("orders") as lease:
        await work(lease)


async def in_lease(client: LockClient, work: Work) -> None:
    """Work in ``async with`` a lease; nothing cancels that body."""
    async with await client.lock("orders").acquire() as lease:
        await work(lease)


async def in_lead(client: LockClient, work: Work) -> None:
    """Work as the leader."""
    await client.lock("orders").lead(work)


@pytest.mark.parametrize("renewal", ["thread", "loop"])
@pytest.mark.parametrize("body", [in_hold, in_lock, in_lease, in_lead])
async def test_closing_the_client_is_a_loss_for_a_body(
    body: Callable[[LockClient, Work], Coroutine[Any, Any, None]], renewal: Literal["thread", "loop"]
) -> None:
    """It is cancelled, ``on_lost`` is called, the statement raises the loss, and the lease says the same."""
    told = threading.Event()
    leases: list[Lease] = []
    kinds: list[str] = []
    client = asynclock.connect("memory://", renewal=renewal, events=lambda event: kinds.append(event.kind))
    inside = asyncio.Event()

    async def work(lease: Lease) -> None:
        lease.on_lost(lambda _: told.set())
        leases.append(lease)
        inside.set()
        await asyncio.sleep(0.3 if body is in_lease else 60)

    task = asyncio.create_task(body(client, work))
    await inside.wait()
    await client.aclose()
    with pytest.raises(LeaseLostError, match=CLOSED):
        await asyncio.wait_for(task, 10)

    (lease,) = leases
    assert await asyncio.to_thread(told.wait, 5)
    assert (lease.held, lease.remaining()) == (False, 0.0)
    assert lease.lost is not None
    assert lease.lost.reason == CLOSED
    with pytest.raises(LeaseLostError, match=CLOSED):
        lease.check()
    assert kinds == ["acquired", "lost", "released"]


async def test_leaving_the_statement_of_the_client_is_the_same() -> None:
    """A task that outlives ``async with client`` gets an error."""
    inside = asyncio.Event()

    async def work(_: Lease) -> None:
        inside.set()
        await asyncio.sleep(60)

    async with asynclock.connect("memory://") as client:
        task = asyncio.create_task(in_hold(client, work))
        await inside.wait()

    with pytest.raises(LeaseLostError, match=CLOSED):
        await asyncio.wait_for(task, 10)


async def test_a_body_that_closes_its_own_client_has_lost_the_lock() -> None:
    """Nothing tells it apart from any other body."""
    client = asynclock.connect("memory://")

    async def close(_: Lease) -> None:
        await client.aclose()
        await asyncio.sleep(60)

    with pytest.raises(LeaseLostError, match=CLOSED):
        await asyncio.wait_for(in_hold(client, close), 10)


@in_virtual_time
async def test_a_body_that_begins_while_its_client_is_closed_raises(world: World) -> None:
    """Whenever the closing comes, no body works without the lock and ends well."""
    for delay in range(0, 60, 3):
        client = world.client()
        ended: list[bool] = []

        async def work(lease: Lease) -> None:
            await asyncio.sleep(5)
            ended.append(lease.held)  # noqa: B023  of this round

        task = asyncio.create_task(in_hold(client, work))
        await asyncio.sleep(delay / 1000)
        await client.aclose()
        await asyncio.wait([task])

        assert isinstance(task.exception(), LeaseLostError | asynclock.ConfigError)
        assert ended == []


async def test_on_lost_alone_is_told_too() -> None:
    """A caller of ``on_lost`` works under the lease, whether or not in a body."""
    told = threading.Event()
    async with asynclock.connect("memory://") as client:
        lease = await client.lock("orders").acquire()
        lease.on_lost(lambda _: told.set())

    assert await asyncio.to_thread(told.wait, 5)
    with pytest.raises(LeaseLostError, match=CLOSED):
        await lease.release()


@pytest.mark.parametrize("statement", ["hold", "lock", "lease"])
def test_a_thread_is_told_at_the_end_of_its_body(statement: str) -> None:
    """Nothing can cancel it, so its statement raises; it can ask its lease before."""
    client = sync.connect("memory://")
    lock = client.lock("orders")
    inside, closed = threading.Event(), threading.Event()
    ends: list[BaseException | str] = []

    def work() -> None:
        try:
            with {"hold": lock.hold, "lock": lambda: lock, "lease": lock.acquire}[statement]() as lease:  # type: ignore[operator]
                inside.set()
                closed.wait(10)
                ends.append("held" if lease.held else "not held")
        except LeaseLostError as loss:
            ends.append(loss)

    thread = threading.Thread(target=work)
    thread.start()
    inside.wait(10)
    client.close()
    closed.set()
    thread.join(10)

    assert ends[0] == "not held"
    assert isinstance(ends[1], LeaseLostError)
    assert ends[1].reason == CLOSED


def test_the_leader_of_a_thread_does_not_lead_on() -> None:
    """The loss ends ``lead``, since nothing can be acquired any more."""
    client = sync.connect("memory://")

    def work(lease: sync.Lease) -> None:
        client.close()
        lease.check()

    with pytest.raises(LeaseLostError, match=CLOSED):
        client.lock("orders").lead(work)


def test_closing_where_the_loop_of_the_client_is_closed_is_the_same(tmp_path: Path) -> None:
    """With ``renewal="loop"``: ``on_lost`` is called, and the event is sent, from wherever it is closed."""
    told = threading.Event()
    kinds: list[str] = []
    client = asynclock.connect(
        f"file://{tmp_path}", renewal="loop", events=lambda event: kinds.append(event.kind)
    )
    loop = asyncio.new_event_loop()
    lease = loop.run_until_complete(client.lock("orders").acquire())
    lease.on_lost(lambda _: told.set())
    loop.close()

    asyncio.run(client.aclose())

    assert told.wait(5)
    assert lease.lost is not None
    assert lease.lost.reason == CLOSED
    assert kinds == ["acquired", "lost", "released"]
