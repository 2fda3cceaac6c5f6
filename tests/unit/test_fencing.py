"""FencedObject: an older holder's write fails, whatever it believes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Literal

import pytest

import asynclock
from asynclock import (
    AccessDeniedError,
    BackendError,
    ConfigError,
    FencedObject,
    LeaseLostError,
    RecordCorruptError,
    StaleTokenError,
)
from asynclock.testing._faulty import Fault
from tests.unit.kit import World, clock_of, faulty, in_virtual_time

if TYPE_CHECKING:
    from asynclock import Lease

KEY = "state/pointer"


@in_virtual_time
async def test_its_bytes_are_a_line_with_the_token_and_the_body(world: World) -> None:
    """Anyone can read it: one line of JSON, then the user's bytes."""
    async with world.client() as client, client.lock("orders").hold() as lease:
        value = await FencedObject(client, KEY).write(b"a\n\x00b", lease=lease)

        assert world.store.body(KEY) == b'{"fencingToken":%d}\na\n\x00b' % lease.fencing_token
        assert (value.body, value.fencing_token) == (b"a\n\x00b", lease.fencing_token)
        assert await FencedObject(client, KEY).read() == value


@in_virtual_time
async def test_nothing_is_there_before_the_first_write(world: World) -> None:
    """Reading creates nothing."""
    async with world.client() as client:
        assert await FencedObject(client, KEY).read() is None

    assert world.store.body(KEY) is None


@in_virtual_time
async def test_the_write_of_an_older_holder_is_refused(world: World) -> None:
    """After the first write under a newer token, older ones fail even if their lease looks alive."""
    async with world.client() as one, world.client() as two:
        old = await one.lock("orders").acquire()
        await FencedObject(one, KEY).write(b"old", lease=old)
        lock = two.lock("orders")
        await lock.break_lock(await lock.status(), force=True)
        new = await lock.acquire(timeout=1.0)
        await FencedObject(two, KEY).write(b"new", lease=new)
        assert old.held

        with pytest.raises(StaleTokenError) as caught:
            await FencedObject(one, KEY).write(b"late", lease=old)
        assert (caught.value.key, caught.value.fencing_token) == (KEY, old.fencing_token)
        assert caught.value.stored_token == new.fencing_token
        value = await FencedObject(two, KEY).read()
        assert value is not None
        assert value.body == b"new"


@in_virtual_time
async def test_a_lost_lease_writes_nothing(world: World) -> None:
    """The lease is checked before anything is sent."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        clock_of(client).step(100.0)
        with pytest.raises(LeaseLostError):
            await FencedObject(client, KEY).write(b"x", lease=lease)

    assert world.store.body(KEY) is None


@in_virtual_time
async def test_a_loss_after_a_write_without_an_answer_names_that_write(world: World) -> None:
    """The write may have been applied: the error's cause says so, and the lease's own error stays clean."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        faulty(client).inject(Fault.REQUEST_LOST, operation="put_if_absent")
        losing = iter([0.0, 100.0])

        def change(_: bytes | None) -> bytes:
            clock_of(client).step(next(losing))
            return b"x"

        with pytest.raises(LeaseLostError) as caught:
            await FencedObject(client, KEY).update(change, lease=lease)
        assert isinstance(caught.value.__cause__, BackendError)
        assert caught.value.__cause__.written == "unknown"
        with pytest.raises(LeaseLostError) as again:
            lease.check()
        assert again.value.__cause__ is None


@in_virtual_time
async def test_a_newer_holder_after_a_write_without_an_answer_names_that_write(world: World) -> None:
    """The write may have been applied before the newer holder's."""
    async with world.client() as one, world.client() as two:
        old = await one.lock("orders").acquire()
        faulty(one).inject(Fault.REQUEST_LOST, operation="put_if_absent")
        lock = two.lock("orders")
        await lock.break_lock(await lock.status(), force=True)
        new = await lock.acquire(timeout=1.0)
        late = asyncio.ensure_future(FencedObject(one, KEY).write(b"late", lease=old))
        await asyncio.sleep(0.01)
        await FencedObject(two, KEY).write(b"new", lease=new)

        with pytest.raises(StaleTokenError) as caught:
            await late
        assert isinstance(caught.value.__cause__, BackendError)


@in_virtual_time
async def test_updates_of_one_holder_are_all_applied(world: World) -> None:
    """Fifty concurrent increments under one lease count to fifty."""
    async with world.client() as client, client.lock("orders").hold() as lease:
        counter = FencedObject(client, KEY)
        await asyncio.gather(
            *(counter.update(lambda body: b"%d" % (int(body or 0) + 1), lease=lease) for _ in range(50))
        )
        value = await counter.read()

    assert value is not None
    assert value.body == b"50"


@in_virtual_time
async def test_updates_through_two_clients_of_one_process_are_all_applied(world: World) -> None:
    """One lease, several clients and objects of theirs: no acknowledged update is lost."""
    async with world.client() as client, world.client() as other, client.lock("orders").hold() as lease:
        counters = [FencedObject(each, KEY) for each in (client, other, client)]
        await asyncio.gather(
            *(
                counters[number % 3].update(lambda body: b"%d" % (int(body or 0) + 1), lease=lease)
                for number in range(60)
            )
        )
        value = await counters[0].read()

    assert value is not None
    assert value.body == b"60"


@pytest.mark.parametrize("renewal", ["thread", "loop"])
def test_updates_from_two_loops_are_all_applied(renewal: Literal["thread", "loop"]) -> None:
    """The updates of one lease have their turn one after the other, wherever they come from."""

    async def count(lease: Lease, times: int) -> None:
        async with asynclock.connect(f"memory://two-loops-{renewal}", renewal=renewal) as client:
            counter = FencedObject(client, KEY)
            for _ in range(times):
                await counter.update(lambda body: b"%d" % (int(body or 0) + 1), lease=lease)

    async def main() -> int:
        async with (
            asynclock.connect(f"memory://two-loops-{renewal}", renewal=renewal) as client,
            client.lock("orders").hold() as lease,
        ):
            await asyncio.gather(
                *(asyncio.to_thread(asyncio.run, count(lease, 100)) for _ in range(3)), count(lease, 100)
            )
            value = await FencedObject(client, KEY).read()
        assert value is not None
        return int(value.body)

    assert asyncio.run(main()) == 400


@pytest.mark.parametrize(
    "fault", [Fault.REPLY_LOST, Fault.REQUEST_LOST, Fault.OWN_412, Fault.CONFLICT, Fault.UNAVAILABLE]
)
def test_an_update_is_applied_once_whatever_becomes_of_the_answer(world: World, fault: Fault) -> None:
    """A lost answer is settled by reading back."""

    async def story() -> None:
        async with world.client() as client, client.lock("orders").hold() as lease:
            counter = FencedObject(client, KEY)
            await counter.write(b"1", lease=lease)
            faulty(client).inject(fault, operation="put_if_match")
            value = await counter.update(lambda body: b"%d" % (int(body or 0) + 1), lease=lease)

            assert value.body == b"2"

    world.loop.run_until_complete(story())


@in_virtual_time
async def test_something_else_in_its_place_is_not_overwritten(world: World) -> None:
    """An object without the token line is an error, and stays."""
    world.put(b"somebody's file", KEY)
    async with world.client() as client, client.lock("orders").hold() as lease:
        with pytest.raises(RecordCorruptError, match="fencingToken"):
            await FencedObject(client, KEY).write(b"x", lease=lease)

    assert world.store.body(KEY) == b"somebody's file"


@in_virtual_time
async def test_an_unreachable_store_is_an_error(world: World) -> None:
    """An update that cannot be read back says so."""
    async with world.client() as client, client.lock("orders").hold() as lease:
        faulty(client).inject(Fault.UNAVAILABLE, operation="get", times=1)
        with pytest.raises(BackendError):
            await FencedObject(client, KEY).write(b"x", lease=lease)


@pytest.mark.parametrize("key", ["", "orders.json", "a/b.json"])
def test_a_key_of_a_lock_is_refused(world: World, key: str) -> None:
    """Locks end in .json; a fenced object must not be taken for one."""
    with pytest.raises(ConfigError, match="json") as caught:
        FencedObject(world.client(), key)

    assert caught.value.setting == "key"


@in_virtual_time
async def test_a_write_that_the_store_refuses_for_good_is_not_repeated(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the right to write, one refusal is the answer; nothing else would be one later."""
    async with world.client() as client, client.lock("orders").hold() as lease:
        writes: list[str] = []

        async def refused(key: str, *_: object, **__: object) -> None:
            writes.append(key)
            raise AccessDeniedError(
                backend="s3", operation="put_if_absent", key=key, detail="403", written="no"
            )

        monkeypatch.setattr(faulty(client), "put_if_absent", refused)
        with pytest.raises(AccessDeniedError):
            await FencedObject(client, KEY).write(b"new", lease=lease)

    assert len(writes) == 1


@in_virtual_time
async def test_a_body_too_large_is_refused_before_it_is_written(world: World) -> None:
    """What could not be read back whole is not written."""
    async with world.client() as client, client.lock("orders").hold() as lease:
        fenced = FencedObject(client, KEY)
        await fenced.write(b"x" * 65_000, lease=lease)
        with pytest.raises(ConfigError, match="64 KiB"):
            await fenced.write(b"y" * 65_536, lease=lease)
        value = await fenced.read()

    assert value is not None
    assert value.body == b"x" * 65_000


@in_virtual_time
async def test_an_object_too_large_is_not_read_in_part(world: World) -> None:
    """A body cut by the backend would look whole; it is an error instead."""
    world.put(b'{"fencingToken":1}\n' + b"x" * 65_536, KEY)
    async with world.client() as client:
        with pytest.raises(RecordCorruptError, match="64 KiB"):
            await FencedObject(client, KEY).read()
