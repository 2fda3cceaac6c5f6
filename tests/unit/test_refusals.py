"""A store that refuses a write over what it goes on showing is broken, not contended for (rule 23)."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

import asynclock
from asynclock import AcquireTimeoutError, FencedObject, LeaseLostError, PreconditionFailedError
from asynclock._core.record import parse_record
from asynclock.backend import Stored
from asynclock.errors import UnsupportedBackendError
from asynclock.testing._faulty import Fault
from asynclock.testing._store import SimulatedBackend
from tests.unit.kit import ALWAYS, KEY, World, faulty, in_virtual_time, our_record


def _refuse(client: asynclock.LockClient, times: int = ALWAYS) -> None:
    faulty(client).inject(Fault.REFUSED, times=times)


@pytest.mark.parametrize("exists", [False, True], ids=["absent", "free"])
@in_virtual_time
async def test_three_refusals_over_what_is_still_shown_end_the_wait(world: World, *, exists: bool) -> None:
    """``acquire`` without a timeout ends, says what was seen, and names the doctor."""
    if exists:
        world.put(our_record(valid_until=world.now + 12, expired=True))
    async with world.client() as client:
        _refuse(client)
        began = world.loop.time()
        with pytest.raises(UnsupportedBackendError) as caught:
            await client.lock("orders").acquire()

        refused = [each for each in faulty(client).journal if each.fault is Fault.REFUSED]
        assert world.loop.time() - began < 2.0
    assert len(refused) in {3, 4}  # one more cleans up
    assert "3 times in a row (412 precondition failed)" in str(caught.value)
    assert "asynclock doctor sim://store" in str(caught.value)
    assert caught.value.written == "no"
    assert world.told().count("acquire_failed") == 2
    assert world.told()[-1] == "not_acquired"


@in_virtual_time
async def test_a_write_of_another_begins_the_count_anew(world: World) -> None:
    """Two refusals, another's write, and two more refusals are contention: the lock is acquired."""
    async with world.client() as client:
        _refuse(client, 2)
        faulty(client).inject(Fault.DELETED, operation="put_if_match")
        _refuse(client, 2)
        world.put(our_record(valid_until=world.now + 12, expired=True))
        async with client.lock("orders").hold() as lease:
            assert lease.held
        assert faulty(client).applied == {Fault.REFUSED: 4, Fault.DELETED: 1}


@pytest.mark.parametrize("fault", [Fault.CONFLICT, Fault.UNAVAILABLE, Fault.REQUEST_LOST, Fault.THROTTLED])
@in_virtual_time
async def test_an_answer_that_is_no_refusal_is_not_counted(world: World, fault: Fault) -> None:
    """S3's 409 to racing writes, a lost answer and a full store leave the wait going on."""
    async with world.client() as client:
        faulty(client).inject(fault, operation="put_if_absent", times=6)
        async with client.lock("orders").hold() as lease:
            assert lease.held
        assert faulty(client).applied[fault] == 6


@in_virtual_time
async def test_real_contention_is_never_called_a_broken_store(world: World) -> None:
    """Where every write of ours comes second, the wait goes on until the time is out."""

    class Second(SimulatedBackend):
        async def put_if_match(self, key: str, body: bytes, version: str) -> asynclock.Written:
            world.put(our_record(valid_until=world.now + 12, expired=True, epoch=version.encode()[0]))
            return await super().put_if_match(key, body, version)

    world.put(our_record(valid_until=world.now + 12, expired=True))
    client = world.client()
    faulty(client)._inner = Second(world.store, world.loop.world)
    async with client:
        with pytest.raises(AcquireTimeoutError) as caught:
            await client.lock("orders").acquire(timeout=5.0)
    assert caught.value.reason is None


@pytest.mark.parametrize("timeout", [0, 0.1])
@in_virtual_time
async def test_a_timeout_before_the_third_refusal_names_it(world: World, timeout: float) -> None:
    """The reason of the timeout is the store, not others: ``asynclock run`` ends with 69."""
    async with world.client() as client:
        _refuse(client)
        with pytest.raises(AcquireTimeoutError) as caught:
            await client.lock("orders").acquire(timeout=timeout)

    assert caught.value.reason is not None
    assert "asynclock doctor sim://store" in caught.value.reason


@in_virtual_time
async def test_single_tries_reach_three_too(world: World) -> None:
    """A leader that only tries hears of it at its third try, and at each one after that."""
    async with world.client() as client:
        _refuse(client)
        lock, raised = client.lock("orders"), []
        for _ in range(4):
            try:
                await lock.try_acquire()
            except PreconditionFailedError as error:
                raised.append((type(error), "doctor" in str(error)))
            except UnsupportedBackendError as error:
                raised.append((type(error), "doctor" in str(error)))

    assert raised == [(PreconditionFailedError, True)] * 2 + [(UnsupportedBackendError, True)] * 2


@in_virtual_time
async def test_a_version_that_is_another_in_every_read_is_recognised_by_its_record(world: World) -> None:
    """Where something changes versions on the way, the same record is the same object."""
    world.put(our_record(valid_until=world.now + 12, expired=True))

    class Changed(SimulatedBackend):
        reads = 0

        async def get(self, key: str) -> Stored | asynclock.Absent:
            found = await super().get(key)
            self.reads += 1
            return replace(found, version=f'"{self.reads}-gzip"') if isinstance(found, Stored) else found

    client = world.client()
    faulty(client)._inner = Changed(world.store, world.loop.world)
    async with client:
        with pytest.raises(UnsupportedBackendError, match="ETags are changed on the way"):
            await client.lock("orders").acquire(timeout=8.0)


@in_virtual_time
async def test_a_held_lease_lasts_to_its_deadline_and_says_why_it_is_lost(world: World) -> None:
    """Refused renewals end no lease early; ``confirm`` raises from the third on, and the loss names them."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        _refuse(client)
        raised = []
        for _ in range(3):
            with pytest.raises((PreconditionFailedError, UnsupportedBackendError)) as caught:
                await lease.confirm()
            raised.append(caught.type)
        assert lease.held
        await asyncio.sleep(8.5)
        assert lease.held
        await asyncio.sleep(1.0)
        with pytest.raises(LeaseLostError, match="the store refuses them over the version that it shows"):
            lease.check()

    assert raised == [PreconditionFailedError, PreconditionFailedError, UnsupportedBackendError]


@in_virtual_time
async def test_a_store_that_takes_renewals_again_keeps_the_lease(world: World) -> None:
    """After one renewal that landed the count begins again."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        for _ in range(2):
            _refuse(client, 2)
            for _ in range(2):
                with pytest.raises(PreconditionFailedError):
                    await lease.confirm()
            await lease.confirm()
        await asyncio.sleep(12.0)
        assert lease.held
        await lease.release()


@in_virtual_time
async def test_a_release_that_is_refused_is_reported_soon(world: World) -> None:
    """It is given up after the third refusal, and the event says why: the lock frees itself."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        _refuse(client)
        await lease.release()
        await asyncio.sleep(2.0)

        told = [event for event in world.events if event.kind == "release_unconfirmed"]
        assert "3 times in a row" in told[0].detail
    assert not parse_record(world.store.body(KEY) or b"").expired


@in_virtual_time
async def test_a_refused_fenced_write_ends_after_three(world: World) -> None:
    """A fenced object is not retried a hundred times; nothing was written."""
    async with world.client() as client, client.lock("orders").hold() as lease:
        fenced = FencedObject(client, "state/pointer")
        await fenced.write(b"one", lease=lease)
        _refuse(client, 3)
        with pytest.raises(UnsupportedBackendError, match="asynclock doctor sim://store"):
            await fenced.write(b"two", lease=lease)

        assert (await fenced.write(b"three", lease=lease)).body == b"three"


@in_virtual_time
async def test_a_refused_break_ends_after_three(world: World) -> None:
    """An operator hears that the store is the reason, after three tries; two refusals are made up for."""
    world.put(our_record(valid_until=world.now + 12))
    async with world.client() as client:
        lock = client.lock("orders")
        _refuse(client, 3)
        with pytest.raises(UnsupportedBackendError, match="asynclock doctor"):
            await lock.break_lock(await lock.status(), force=True)
        assert not world.record().expired
        _refuse(client, 2)
        assert (await lock.break_lock(await lock.status(), force=True)).state == "free"
