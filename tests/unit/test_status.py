"""``status``, ``list`` and ``break_lock``."""

from __future__ import annotations

import asyncio
import json

import pytest

import asynclock
from asynclock import LeaseTakenOverError, LockChangedError, LockStatus, OutcomeUnknownError
from asynclock.backend import Stored
from asynclock.record import parse_record
from asynclock.testing.faulty import Fault
from tests.unit.kit import KEY, World, faulty, hudi_record, in_virtual_time, our_record, until_lost


@in_virtual_time
async def test_a_missing_object_is_free(world: World) -> None:
    """A lock that nobody ever took is free, and looking at it creates nothing."""
    async with world.client() as client:
        status = await client.lock("orders").status()

    assert status == LockStatus(
        name="orders",
        url="sim://store/orders.json",
        state="free",
        owner=None,
        holder=None,
        fencing_token=None,
        valid_until_ms=None,
        remaining=None,
        age=None,
        version=None,
    )
    assert world.store.body(KEY) is None


@in_virtual_time
async def test_the_status_of_a_held_lock(world: World) -> None:
    """It says who holds, since when, and how long others must wait by the store's clock."""
    async with world.client(holder="host:1:job") as holder, world.client() as other:
        lease = await holder.lock("orders").acquire()
        written = world.loop.time()
        status = await other.lock("orders").status()
        record = world.record()

    assert (status.state, status.owner, status.holder) == ("held", lease.owner, "host:1:job")
    assert (status.fencing_token, status.valid_until_ms) == (lease.fencing_token, record.valid_until_ms)
    assert status.version == world.writes()[0].version
    assert status.age == pytest.approx(world.loop.time() - written, abs=0.03)
    assert status.remaining == pytest.approx(11.0, abs=0.05)


@in_virtual_time
async def test_a_released_lock_is_free_and_keeps_its_token(world: World) -> None:
    """``expired:true`` is free; owner and token stay readable."""
    async with world.client() as client:
        lock = client.lock("orders")
        async with lock.hold() as lease:
            pass
        status = await lock.status()

    assert (status.state, status.fencing_token, status.owner) == ("free", lease.fencing_token, lease.owner)


@pytest.mark.parametrize("kind", ["ours", "Hudi"])
def test_a_lock_past_its_time_is_expired(world: World, kind: str) -> None:
    """A dead holder's lock shows as expired, with a negative remainder."""

    async def story() -> None:
        async with world.client() as client:
            valid_until = world.now + 12
            world.put(our_record(valid_until=valid_until) if kind == "ours" else hudi_record(valid_until))
            first = await client.lock("orders").status()
            await asyncio.sleep(40.0)
            later = await client.lock("orders").status()

            assert first.state == "held"
            assert later.state == "expired"
            assert later.remaining is not None
            assert later.remaining < 0
            assert later.age == pytest.approx(40.0, abs=0.1)

    world.loop.run_until_complete(story())


@in_virtual_time
async def test_a_corrupt_object_is_shown_as_corrupt(world: World) -> None:
    """A status of garbage tells its version, so that it can be broken."""
    version = world.put(b"garbage")
    async with world.client() as client:
        status = await client.lock("orders").status()

    assert (status.state, status.version, status.owner) == ("corrupt", version, None)


@in_virtual_time
async def test_a_status_without_a_usable_date_has_no_times(world: World) -> None:
    """Where this machine's clock disagrees with the store, nothing is computed from either."""
    async with world.client(wall_error=3600.0) as client:
        world.put(our_record(valid_until=world.now + 12))
        status = await client.lock("orders").status()

    assert (status.state, status.remaining, status.age) == ("held", None, None)


# list


@in_virtual_time
async def test_a_listing_shows_every_lock_by_name(world: World) -> None:
    """Locks come in the order of their names; other objects are passed over."""
    for name in ("b", "a/y", "a/x", "a"):
        world.put(our_record(valid_until=world.now + 12, owner=name), f"{name}.json")
    for key in ("notes.txt", ".json", "..json", "a/.json", "a b.json", f"{'x' * 513}.json", "bad.json"):
        world.put(b"garbage", key)
    async with world.client() as client:
        found = await client.list()
        inside = await client.list("a/")

    assert [(each.name, each.owner) for each in found] == [
        ("a", "a"), ("a/x", "a/x"), ("a/y", "a/y"), ("b", "b"), ("bad", None)
    ]  # fmt: skip
    assert found[-1].state == "corrupt"
    assert [each.name for each in inside] == ["a/x", "a/y"]


@in_virtual_time
async def test_a_listing_of_many_locks_is_whole(world: World) -> None:
    """A hundred locks are a hundred statuses."""
    for number in range(100):
        world.put(our_record(valid_until=world.now + 12), f"lock-{number:03}.json")
    async with world.client() as client:
        found = await client.list("lock-")

    assert [each.name for each in found] == [f"lock-{number:03}" for number in range(100)]


@in_virtual_time
async def test_breaking_a_free_lock_does_nothing(world: World) -> None:
    """A free lock stays as it is; nothing is written."""
    world.put(our_record(valid_until=world.now, expired=True))
    async with world.client() as client:
        lock = client.lock("orders")
        status = await lock.status()
        writes = len(world.writes())

        assert (await lock.break_lock(status)).version == status.version
        assert len(world.writes()) == writes


@in_virtual_time
async def test_breaking_a_missing_lock_creates_nothing(world: World) -> None:
    """No object, no write."""
    async with world.client() as client:
        lock = client.lock("orders")
        assert (await lock.break_lock(await lock.status())).state == "free"

    assert world.store.body(KEY) is None


@in_virtual_time
async def test_a_live_lock_needs_force(world: World) -> None:
    """Without ``force`` a live lock is refused, and the error says what to do."""
    async with world.client() as holder, world.client() as operator:
        lease = await holder.lock("orders").acquire()
        lock = operator.lock("orders")
        status = await lock.status()
        with pytest.raises(LockChangedError, match="force") as caught:
            await lock.break_lock(status)

        assert (caught.value.key, caught.value.expected) == (KEY, status.version)
        assert caught.value.status.state == "held"
        assert lease.held
        assert not world.record().expired


@in_virtual_time
async def test_force_frees_a_live_lock_and_keeps_its_token(world: World) -> None:
    """The record is freed under its own token; the old holder learns at its next renewal."""
    async with world.client() as holder, world.client() as operator:
        lease = await holder.lock("orders").acquire()
        lock = operator.lock("orders")
        after = await lock.break_lock(await lock.status(), force=True)

        assert (after.state, after.fencing_token) == ("free", lease.fencing_token)
        successor = await lock.acquire(timeout=1.0)
        assert successor.fencing_token > lease.fencing_token
        took = await until_lost(lease)
        assert took <= 1.1
        assert isinstance(lease.lost, LeaseTakenOverError)


@in_virtual_time
async def test_a_broken_lease_is_told_so(world: World) -> None:
    """The loss says that an operator broke the lock."""
    async with world.client() as holder, world.client() as operator:
        lease = await holder.lock("orders").acquire()
        lock = operator.lock("orders")
        await lock.break_lock(await lock.status(), force=True)
        await until_lost(lease)

        assert "broken" in str(lease.lost)


@in_virtual_time
async def test_an_expired_lock_is_broken_without_force(world: World) -> None:
    """A dead holder's lock is free afterwards, token kept."""
    world.put(our_record(valid_until=world.now - 100, epoch=77))
    async with world.client(wall_error=0.0) as client:
        await asyncio.sleep(20.0)
        lock = client.lock("orders")
        status = await lock.status()
        assert status.state == "expired" or status.remaining is None
        after = await lock.break_lock(status, force=status.state == "held")

    assert (after.state, after.fencing_token) == ("free", 77)


@in_virtual_time
async def test_a_corrupt_object_is_replaced_without_a_token(world: World) -> None:
    """Breaking garbage leaves a free record as if its fields had been dropped: the token starts anew."""
    world.put(b"garbage")
    async with world.client() as client:
        lock = client.lock("orders")
        after = await lock.break_lock(await lock.status())

        assert (after.state, after.fencing_token) == ("free", None)
        assert set(json.loads(world.store.body(KEY) or b"")) == {"expired", "validUntil", "owner"}
        lease = await lock.acquire(timeout=10.0)
        assert lease.fencing_token > 0


@in_virtual_time
async def test_a_lock_that_changed_meanwhile_is_not_broken(world: World) -> None:
    """The decision is about one version: another one is refused, with its status."""
    async with world.client() as holder, world.client() as operator:
        lease = await holder.lock("orders").acquire()
        lock = operator.lock("orders")
        status = await lock.status()
        await lease.confirm()
        with pytest.raises(LockChangedError, match="changed since") as caught:
            await lock.break_lock(status, force=True)

        assert caught.value.status.version != status.version
        assert lease.held


@pytest.mark.parametrize("fault", [Fault.REPLY_LOST, Fault.OWN_412])
def test_a_break_whose_answer_was_lost_is_told_as_done(world: World, fault: Fault) -> None:
    """What the store shows decides."""

    async def story() -> None:
        world.put(our_record(valid_until=world.now + 12))
        async with world.client() as client:
            lock = client.lock("orders")
            status = await lock.status()
            faulty(client).inject(fault, operation="put_if_match")

            assert (await lock.break_lock(status, force=True)).state == "free"

    world.loop.run_until_complete(story())


@in_virtual_time
async def test_a_break_that_did_not_reach_the_store_is_an_error(world: World) -> None:
    """The operator is told that it may have been written, and may look again."""
    world.put(our_record(valid_until=world.now + 12))
    async with world.client() as client:
        lock = client.lock("orders")
        status = await lock.status()
        faulty(client).inject(Fault.REQUEST_LOST, operation="put_if_match")
        with pytest.raises(OutcomeUnknownError):
            await lock.break_lock(status, force=True)

        assert not world.record().expired


async def test_memory_stores_are_shared_by_name() -> None:
    """``memory://NAME`` is one store of the process, ``memory://`` is private."""
    async with (
        asynclock.connect("memory://shared-by-name") as one,
        asynclock.connect("memory://shared-by-name") as two,
        asynclock.connect("memory://") as alone,
        asynclock.connect("memory://shared-by-name/deep") as deep,
        one.lock("orders").hold(),
    ):
        assert await two.lock("orders").try_acquire() is None
        assert [each.name for each in await two.list()] == ["orders"]
        assert await alone.list() == []
        assert await deep.list() == []


async def test_a_memory_store_reads_64_kib_and_a_byte_at_most() -> None:
    """An oversized object is cut there, as every store does."""
    backend = asynclock.connect("memory://").backend
    await backend.put("orders.json", b"x" * 100_000)
    stored = await backend.get("orders.json")

    assert isinstance(stored, Stored)
    assert len(stored.body) == 65_537


async def test_a_named_memory_store_outlives_its_clients() -> None:
    """A later client of the process finds the token of the last holder, and goes on from it."""
    tokens = []
    for _ in range(2):
        async with asynclock.connect("memory://long-lived") as client, client.lock("orders").hold() as lease:
            tokens.append(lease.fencing_token)
            found = await client.list()
        del client

    assert [each.name for each in found] == ["orders"]
    assert tokens[0] < tokens[1]


@in_virtual_time
async def test_hostile_text_reaches_neither_log_nor_error(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """Text from a lock file is escaped before it is shown."""
    body = json.loads(our_record(valid_until=world.now + 12)) | {
        "owner": "\x1b[31m\n",
        "holder": "\x07\u202e",
    }
    raw = json.dumps(body).encode()
    parse_record(raw)
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        world.put(raw)
        with caplog.at_level("DEBUG", logger="asynclock"):
            await until_lost(lease)
            with pytest.raises(asynclock.AcquireTimeoutError) as caught:
                await client.lock("orders").acquire(timeout=0.5)

    assert str(caught.value).isprintable()
    assert str(lease.lost).isprintable()
    assert all(record.getMessage().isprintable() for record in caplog.records)
