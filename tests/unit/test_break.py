"""``break_lock``: an operator frees what nobody holds any more, or what is held by force (rule 10)."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

from asynclock import LeaseTakenOverError, LockChangedError, OutcomeUnknownError
from asynclock.testing.faulty import Fault
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


@pytest.mark.parametrize("force", [False, True])
@in_virtual_time
async def test_what_has_changed_since_it_was_looked_at_is_not_broken(world: World, *, force: bool) -> None:
    """Also where it is free now: the operator is told, and nothing is written [10]."""
    async with world.client() as client, world.client() as operator:
        lease = await client.lock("orders").acquire()
        status = await operator.lock("orders").status()
        await lease.release()
        before = len(world.journal)

        with pytest.raises(LockChangedError):
            await operator.lock("orders").break_lock(status, force=force)

        assert [each.kind for each in world.journal[before:]] == ["get"]


@in_virtual_time
async def test_a_lock_that_was_taken_as_soon_as_it_was_broken_is_broken(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write that the store confirmed is no failure, whoever comes next [10]."""
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
async def test_a_lock_that_was_renewed_while_it_was_broken_is_not_broken(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The refused write of the operator is told as what it is [10]."""
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
