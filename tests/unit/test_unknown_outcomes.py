"""Lost answers, late writes and zombies: settled by the nonce, and nothing left behind (rules 2, 3)."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from asynclock import (
    AcquireTimeoutError,
    BackendError,
    ConfigError,
    LeaseTakenOverError,
    RecordCorruptError,
)
from asynclock.testing.faulty import Fault
from tests.unit.kit import KEY, SETTINGS, World, faulty, hudi_record, in_virtual_time, our_record, until_lost

ALWAYS = 10_000


@pytest.mark.parametrize("fault", [Fault.REPLY_LOST, Fault.OWN_412])
@pytest.mark.parametrize("operation", ["put_if_absent", "put_if_match"])
def test_an_acquisition_whose_answer_was_lost_is_adopted(world: World, fault: Fault, operation: str) -> None:
    """A record with our nonce is ours: its token, and its send time for the deadline."""

    async def story() -> None:
        if operation == "put_if_match":
            world.put(our_record(valid_until=world.now, expired=True))
        async with world.client() as client:
            faulty(client).inject(fault, operation=operation)
            lease = await client.lock("orders").acquire(timeout=5)

            assert lease.owner == world.record().owner
            assert lease.fencing_token == world.record().epoch
            assert lease.remaining() == pytest.approx(9.0 - 0.04)  # from the write, not from the look
            assert len(world.writes()) == (1 if operation == "put_if_absent" else 2)
            assert "adopted" in world.told()

    world.loop.run_until_complete(story())


@in_virtual_time
async def test_an_acquisition_is_adopted_once_where_the_read_back_is_lost_too(world: World) -> None:
    """The look after the next finds our record; nothing is written over it."""
    async with world.client() as client:
        faulty(client).inject(Fault.REPLY_LOST, operation="put_if_absent")
        faulty(client).inject(Fault.UNAVAILABLE, operation="get", nth=2)
        lease = await client.lock("orders").acquire(timeout=5)

        assert len(world.writes()) == 1
        assert lease.fencing_token == world.record().epoch


@pytest.mark.parametrize("fault", [Fault.REPLY_LOST, Fault.OWN_412, Fault.CONFLICT, Fault.UNAVAILABLE])
def test_a_renewal_whose_answer_was_lost_costs_nothing(world: World, fault: Fault) -> None:
    """The lease goes on, whatever became of the write."""

    async def story() -> None:
        async with world.client() as client:
            lease = await client.lock("orders").acquire()
            token = lease.fencing_token
            faulty(client).inject(fault, operation="put_if_match")
            await asyncio.sleep(15.0)

            assert lease.held
            assert (world.record().owner, world.record().epoch) == (lease.owner, token)

    world.loop.run_until_complete(story())


@in_virtual_time
async def test_a_renewal_that_landed_late_counts_from_its_sending(world: World) -> None:
    """An adopted renewal extends belief from when it was sent."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        faulty(client).inject(Fault.REPLY_LOST, operation="put_if_match")
        await lease.confirm()

        assert lease.remaining() == pytest.approx(9.0 - 0.04)


@pytest.mark.parametrize("fault", [Fault.REPLY_LOST, Fault.OWN_412, Fault.UNAVAILABLE, Fault.REQUEST_LOST])
def test_a_release_whose_answer_was_lost_frees_the_lock(world: World, fault: Fault) -> None:
    """After ``release`` the lock is free, however the first attempt ended."""

    async def story() -> None:
        async with world.client() as client:
            lease = await client.lock("orders").acquire()
            faulty(client).inject(fault, operation="put_if_match")
            await lease.release()

            assert world.record().expired
            assert world.told()[-1] == "released"

    world.loop.run_until_complete(story())


@in_virtual_time
async def test_equality_of_owners_proves_nothing(world: World) -> None:
    """A record with our owner but another nonce is not ours."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        world.put(our_record(valid_until=world.now + 12, owner=lease.owner, nonce="a" * 32))
        await until_lost(lease)

        assert isinstance(lease.lost, LeaseTakenOverError)


@in_virtual_time
async def test_a_late_write_of_a_timed_out_acquisition_is_reaped(world: World) -> None:
    """A write that lands after its acquisition gave up leaves no lock that nobody holds."""
    async with world.client() as client:
        backend = faulty(client)
        backend.delay = (1.5, 1.5)
        backend.inject(Fault.LATE, operation="put_if_absent")
        backend.inject(Fault.UNAVAILABLE, operation="put_if_absent", times=50)
        with pytest.raises(AcquireTimeoutError):
            await client.lock("orders").acquire(timeout=0.5)
        backend.calm()
        await asyncio.sleep(20.0)

        assert world.record().expired
    async with world.client() as other:
        lease = await other.lock("orders").acquire(timeout=1.0)
        assert lease.held


@in_virtual_time
async def test_reaping_kills_a_write_before_it_lands(world: World) -> None:
    """A free record over the base of the lost write lets that write fail when it arrives."""
    world.put(our_record(valid_until=world.now, expired=True))
    async with world.client() as client:
        backend = faulty(client)
        backend.delay = (3.0, 3.0)
        backend.inject(Fault.LATE, operation="put_if_match")
        backend.inject(Fault.UNAVAILABLE, operation="get", nth=2, times=4)
        with pytest.raises((AcquireTimeoutError, BackendError)):
            await client.lock("orders").acquire(timeout=0.0)
        await asyncio.sleep(10.0)

    held = [each for each in world.writes() if b'"expired":false' in (each.body or b"")]
    assert held == []
    assert world.record().expired


@in_virtual_time
async def test_a_lost_lease_reaps_its_write_in_flight(world: World) -> None:
    """A renewal that may land after the loss is killed, or freed if it has landed."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        backend = faulty(client)
        backend.inject(Fault.REQUEST_LOST, operation="put_if_match", times=ALWAYS)
        await until_lost(lease)
        backend.calm()
        await asyncio.sleep(5.0)

        assert world.record().expired
        assert "reaped" in world.told()


@in_virtual_time
async def test_reaping_ends(world: World) -> None:
    """Nothing polls for ever: the reaper stops after L plus a request timeout."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        faulty(client).inject(Fault.REQUEST_LOST, times=ALWAYS)
        await until_lost(lease)
        await asyncio.sleep(10.0 + 2.0 + 5.0)
        calls = len(faulty(client).journal)
        await asyncio.sleep(60.0)

        assert len(faulty(client).journal) == calls


@in_virtual_time
async def test_a_successor_of_a_lost_lease_is_left_alone(world: World) -> None:
    """The reaper frees our records only."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        faulty(client).inject(Fault.REQUEST_LOST, operation="put_if_match", times=ALWAYS)
        await asyncio.sleep(8.0)
        world.put(our_record(valid_until=world.now + 12, owner="successor"))
        await until_lost(lease)
        faulty(client).calm()
        await asyncio.sleep(20.0)

        assert world.record().owner == "successor"
        assert not world.record().expired


@in_virtual_time
async def test_a_corrupt_object_is_never_overwritten(world: World) -> None:
    """Corrupt is neither held nor free: the error names object and version, nothing is written."""
    version = world.put(b'{"expired":true}')
    async with world.client() as client:
        with pytest.raises(RecordCorruptError, match="break_lock") as caught:
            await client.lock("orders").acquire(timeout=5)
        with pytest.raises(RecordCorruptError):
            await client.lock("orders").try_acquire()

    assert (caught.value.key, caught.value.version) == (KEY, version)
    assert world.store.body(KEY) == b'{"expired":true}'


@in_virtual_time
async def test_a_dead_holder_is_taken_over_within_the_bound(world: World) -> None:
    """A watching waiter has the lock ``takeover_bound`` and two round trips after the last write."""
    async with world.client() as client:
        dead = world.put(our_record(valid_until=world.now + 11))
        began = world.loop.time()
        lease = await client.lock("orders").acquire()
        took = world.loop.time() - began

        assert dead
        assert lease.held
        assert 10.0 <= took <= client.settings.takeover_bound(0.0) + 0.04
        assert lease.fencing_token > 1_600_000_000_000_000


@in_virtual_time
async def test_a_wrong_wall_clock_takes_over_by_observation_only(world: World) -> None:
    """With a wall clock that is off, a dead holder's lock is freed by watching it for L."""
    async with world.client(wall_error=3600.0) as client:
        world.put(our_record(valid_until=world.now - 100))
        await asyncio.sleep(50.0)
        began = world.loop.time()
        lease = await client.lock("orders").acquire()

        assert lease.held
        assert world.loop.time() - began >= 10.0


@in_virtual_time
async def test_a_holder_that_met_only_a_wrong_node_keeps_its_lock(world: World) -> None:
    """Date, ``validUntil`` and ``last_modified`` agree on a minute ago: nobody judges by them."""
    right = world.store.profile
    world.store.profile = replace(right, nodes=(-60.0,))
    async with world.client() as holder, world.client() as other:
        lease = await holder.lock("orders").acquire()
        world.store.profile = right
        with pytest.raises(AcquireTimeoutError):
            await other.lock("orders").acquire(timeout=0)
        assert lease.held

        holder._renewals.close()  # nothing renews it any more
        limit = SETTINGS.validity + 2 * SETTINGS.poll_interval + 1.0
        successor = await other.lock("orders").acquire(timeout=limit)
        assert successor.held
        assert not lease.held


@in_virtual_time
async def test_observation_belongs_to_the_client(world: World) -> None:
    """Many short attempts finish an observation that no single one would."""
    async with world.client(wall_error=3600.0) as client:
        world.put(our_record(valid_until=world.now - 100))
        lock = client.lock("orders")
        for _ in range(12):
            with pytest.raises(AcquireTimeoutError):
                await lock.acquire(timeout=0.8)
            if world.loop.time() > 10.0:
                break
        lease = await lock.acquire(timeout=3.0)

        assert lease.held


@in_virtual_time
async def test_a_live_holder_is_never_taken_over(world: World) -> None:
    """A lease that is renewed lives on under waiters, for ten validities."""
    async with world.client() as holder, world.client() as waiter, world.client(wall_error=0.9) as other:
        lease = await holder.lock("orders").acquire()
        for client in (waiter, other):
            with pytest.raises(AcquireTimeoutError) as caught:
                await client.lock("orders").acquire(timeout=50.0)
            assert caught.value.status is not None
            assert caught.value.status.owner == lease.owner

        assert lease.held


@in_virtual_time
async def test_a_token_dropped_by_hudi_is_not_handed_out_early(world: World) -> None:
    """After a Hudi writer the lease is handed out when store time has reached its token."""
    world.put(hudi_record(world.now + 5, expired=True))
    async with world.client() as client:
        lease = await client.lock("orders").acquire()

        assert lease.fencing_token <= world.now * 1e6
        assert lease.held
        assert 0.9 <= world.loop.time() <= 2.5  # S + R, and no more than twice that


@in_virtual_time
async def test_who_gives_up_waiting_for_a_token_drops_it(world: World) -> None:
    """No successor builds on a token from the future: the release comes without fields, or late."""
    world.put(hudi_record(world.now + 5, expired=True))
    async with world.client() as client:
        with pytest.raises(AcquireTimeoutError):
            await client.lock("orders").acquire(timeout=0.3)
        await asyncio.sleep(5.0)
        record = world.record()

        assert record.expired
        assert record.epoch is None or record.epoch <= world.now * 1e6


@in_virtual_time
async def test_a_throttled_store_is_waited_for(world: World) -> None:
    """429 and 503 delay an acquisition; they do not end it."""
    async with world.client() as client:
        faulty(client).inject(Fault.THROTTLED, times=3)
        faulty(client).inject(Fault.UNAVAILABLE, nth=4, times=2)
        lease = await client.lock("orders").acquire(timeout=30.0)

        assert lease.held


@in_virtual_time
async def test_a_timeout_names_the_failure_of_the_store(world: World) -> None:
    """The last failure of the store is the cause of the timeout."""
    async with world.client() as client:
        faulty(client).inject(Fault.UNAVAILABLE, times=ALWAYS)
        with pytest.raises(AcquireTimeoutError) as caught:
            await client.lock("orders").acquire(timeout=2.0)

        assert isinstance(caught.value.__cause__, BackendError)
        assert caught.value.status is None
        faulty(client).calm()


@in_virtual_time
async def test_a_store_that_never_answers_does_not_hang_an_acquire(world: World) -> None:
    """A cut network ends an acquisition at its timeout, give or take a request."""
    async with world.client() as client:
        world.store.cut_off.add(world.loop.world)
        began = world.loop.time()
        with pytest.raises(AcquireTimeoutError):
            await client.lock("orders").acquire(timeout=3.0)
        world.store.cut_off.clear()

        assert world.loop.time() - began <= 3.0 + 2.0


@in_virtual_time
async def test_a_backend_that_cannot_be_opened_fails_the_acquisition_at_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A profile that does not exist is told as such, not waited for."""
    async with world.client() as client:
        monkeypatch.setattr(client.backend, "get", unopened)
        with pytest.raises(ConfigError, match="profile"):
            _held = await client.lock("orders").acquire()
        assert world.loop.time() == 0.0


@in_virtual_time
async def test_a_lease_outlives_a_backend_that_cannot_be_opened_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its renewals fail as under an outage, and its release goes on until it is through."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        with monkeypatch.context() as broken:
            for method in ("get", "put_if_match"):
                broken.setattr(client.backend, method, unopened)
            with pytest.raises(BackendError, match="profile"):
                await lease.confirm()
            await asyncio.sleep(3.0)
            assert lease.held
            await lease.release()
        await asyncio.sleep(3.0)
        assert world.record().expired
        again = await client.lock("orders").acquire(timeout=0)
        assert again.held


async def unopened(*_: object) -> object:
    """What a backend does whose SDK client cannot be made."""
    raise ConfigError(setting="profile", value="prod", reason="there is no such profile")
