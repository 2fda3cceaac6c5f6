"""``break_lock``: an operator frees what nobody holds any more, or what is held by force (rule 10)."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

from asynclock import LeaseTakenOverError, LockChangedError, OutcomeUnknownError, RecordCorruptError
from asynclock.testing._faulty import Fault
from tests.unit.kit import KEY, World, faulty, in_virtual_time, our_record, until_lost

if TYPE_CHECKING:
    from asynclock import Written


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
        assert (await lock.break_lock(await lock.status())).state == "absent"

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
async def test_the_loss_of_a_broken_lease_names_the_operator(world: World) -> None:
    """The reason of the loss says that an operator broke the lock."""
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
    """Breaking garbage leaves a free record as if its fields had been dropped: the token starts again."""
    world.put(b"garbage")
    async with world.client() as client:
        lock = client.lock("orders")
        after = await lock.break_lock(await lock.status())

        assert (after.state, after.fencing_token) == ("free", None)
        assert set(json.loads(world.store.body(KEY) or b"")) == {"expired", "validUntil", "owner"}
        lease = await lock.acquire(timeout=10.0)
        assert lease.fencing_token > 0


@in_virtual_time
async def test_a_lock_that_was_renewed_meanwhile_is_not_broken(world: World) -> None:
    """A break is about one version of the record: another one is refused, with its status."""
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
def test_a_break_whose_answer_was_lost_succeeds(world: World, fault: Fault) -> None:
    """The record in the store shows that the break was written."""

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
    """The error says that it may have been written; the operator can look again."""
    world.put(our_record(valid_until=world.now + 12))
    async with world.client() as client:
        lock = client.lock("orders")
        status = await lock.status()
        faulty(client).inject(Fault.REQUEST_LOST, operation="put_if_match")
        with pytest.raises(OutcomeUnknownError):
            await lock.break_lock(status, force=True)

        assert not world.record().expired


@pytest.mark.parametrize("force", [False, True])
@in_virtual_time
async def test_a_lock_that_was_released_meanwhile_is_not_broken(world: World, *, force: bool) -> None:
    """A status of an older version is refused, with force too, and nothing is written (rule 10)."""
    async with world.client() as client, world.client() as operator:
        lease = await client.lock("orders").acquire()
        status = await operator.lock("orders").status()
        await lease.release()
        before = len(world.journal)

        with pytest.raises(LockChangedError):
            await operator.lock("orders").break_lock(status, force=force)

        assert [each.kind for each in world.journal[before:]] == ["get"]


@in_virtual_time
async def test_a_break_succeeds_though_another_client_takes_the_lock_at_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write that the store confirmed is not a failure, whatever follows it (rule 10)."""
    world.put(our_record(valid_until=world.now + 20))
    async with world.client() as operator:
        lock = operator.lock("orders")
        status = await lock.status()
        replace_if_match = faulty(operator).put_if_match

        async def taken_at_once(key: str, body: bytes, version: str) -> Written:
            written = await replace_if_match(key, body, version)
            world.put(our_record(valid_until=world.now + 20, owner="the next"))
            return written

        monkeypatch.setattr(faulty(operator), "put_if_match", taken_at_once)

        assert (await lock.break_lock(status, force=True)).owner == "the next"


@in_virtual_time
async def test_a_break_that_a_renewal_overtook_is_refused(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The operator's write finds another version, and the error says that the lock changed (rule 10)."""
    world.put(our_record(valid_until=world.now + 20))
    async with world.client() as operator:
        lock = operator.lock("orders")
        status = await lock.status()
        replace_if_match = faulty(operator).put_if_match

        async def renewed_before(key: str, body: bytes, version: str) -> Written:
            world.put(our_record(valid_until=world.now + 21, nonce="1" * 32))
            return await replace_if_match(key, body, version)

        monkeypatch.setattr(faulty(operator), "put_if_match", renewed_before)

        with pytest.raises(LockChangedError):
            await lock.break_lock(status, force=True)


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize(
    "body",
    [b'{"a":1}', b"[1, 2]", b'"text"', b"{}", b'{"fencingToken":7}\n{"rows":3}', b'{"token":1,"data":"x"}'],
)
@in_virtual_time
async def test_what_is_evidently_no_lock_stays(world: World, body: bytes, *, force: bool) -> None:
    """Whole JSON without any field of a lock, and a fenced object, stay as they are."""
    world.put(body)
    async with world.client() as client:
        lock = client.lock("orders")
        status = await lock.status()
        assert status.state == "corrupt"
        with pytest.raises(RecordCorruptError, match="the object is not a lock"):
            await lock.break_lock(status, force=force)

    assert world.store.body(KEY) == body


@pytest.mark.parametrize("body", [b"", b"hello", b'{"expired":true}', b'{"expired":false,"validUnt'])
@in_virtual_time
async def test_a_damaged_lock_is_overwritten(world: World, body: bytes) -> None:
    """What may be the rest of a lock file is freed."""
    world.put(body)
    async with world.client() as client:
        lock = client.lock("orders")

        assert (await lock.break_lock(await lock.status())).state == "free"
