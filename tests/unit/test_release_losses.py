"""A loss that only the release finds is reported as a loss (rule 6)."""

from __future__ import annotations

import asyncio

import pytest

from asynclock import LeaseTakenOverError
from asynclock.testing._faulty import Fault
from tests.unit.kit import KEY, World, clock_of, faulty, hudi_record, in_virtual_time, our_record


def break_it(world: World) -> None:
    """Do as ``break_lock(force=True)`` does."""
    record = world.record()
    world.put(record.released(nonce="f" * 32).encode())


def take_it(world: World) -> None:
    """Let another client hold the lock."""
    world.put(our_record(valid_until=world.now + 60.0))


def take_it_as_hudi(world: World) -> None:
    """Let a Hudi writer hold the lock."""
    world.put(hudi_record(world.now + 60.0))


def delete_it(world: World) -> None:
    """Delete the object by hand."""
    world.store.delete_now(KEY)


def spoil_it(world: World) -> None:
    """Put something else in its place."""
    world.put(b"no record")


CASES = [
    (break_it, "it was broken by an operator"),
    (take_it, "another owner has taken over"),
    (take_it_as_hudi, "another owner has taken over"),
    (delete_it, "its object was deleted"),
    (spoil_it, "its object is corrupt"),
]


@pytest.mark.parametrize(("change", "reason"), CASES)
def test_a_release_that_finds_anything_but_its_own_record_raises(
    world: World, change: object, reason: str
) -> None:
    """The body did not hold the lock to its end, and the release raises the loss."""

    async def story() -> None:
        async with world.client() as client:
            lease = await client.lock("orders").acquire()
            change(world)  # type: ignore[operator]
            with pytest.raises(LeaseTakenOverError, match=reason):
                await lease.release()
            assert lease.lost is not None
            with pytest.raises(LeaseTakenOverError):
                await lease.release()
            assert world.told() == ["acquired", "lost"]

    world.loop.run_until_complete(story())


@in_virtual_time
async def test_hold_raises_a_loss_that_its_release_finds(world: World) -> None:
    """``hold()`` does not return well although another holds the lock."""
    async with world.client() as client:
        with pytest.raises(LeaseTakenOverError) as caught:
            async with client.lock("orders").hold():
                take_it(world)

        assert caught.value.new_owner == "another"
        assert caught.value.new_token == 1_600_000_000_000_000


@in_virtual_time
async def test_an_exception_of_the_body_wins_over_a_loss_found_at_release(world: World) -> None:
    """The body's own error is raised, with the loss as a note."""
    async with world.client() as client:

        async def body() -> None:
            async with client.lock("orders").hold():
                take_it(world)
                raise KeyError("mine")

        with pytest.raises(KeyError) as caught:
            await body()

        assert any("taken over" in note for note in caught.value.__notes__)


@in_virtual_time
async def test_on_lost_is_called_for_a_loss_found_at_release(world: World) -> None:
    """Callbacks learn of it as of any loss."""
    told: list[object] = []
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        lease._held.on_lost(told.append)
        await asyncio.sleep(0)
        take_it(world)
        with pytest.raises(LeaseTakenOverError):
            await lease.release()
        await asyncio.sleep(0.1)

    assert told == [lease.lost]


@in_virtual_time
async def test_a_release_that_is_not_answered_is_no_loss(world: World) -> None:
    """An unreachable store is another event: ``release_pending``, then ``release_unconfirmed``."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        faulty(client).inject(Fault.REQUEST_LOST, times=10_000)
        await lease.release()
        await asyncio.sleep(60.0)

        assert lease.lost is None
        assert world.told() == ["acquired", "release_pending", "release_unconfirmed"]


@pytest.mark.parametrize("fault", [Fault.REPLY_LOST, Fault.OWN_412, Fault.DUPLICATE, Fault.LATE])
def test_a_release_whose_answer_is_lost_is_no_loss(world: World, fault: Fault) -> None:
    """Its own free record, read back, is recognized by its nonce."""

    async def story() -> None:
        async with world.client() as client:
            lease = await client.lock("orders").acquire()
            faulty(client).inject(fault, operation="put_if_match")
            await lease.release()
            assert lease.lost is None
            assert world.told() == ["acquired", "released"]

    world.loop.run_until_complete(story())


@pytest.mark.parametrize(("change", "reason"), CASES)
def test_a_giver_gets_the_loss_that_its_hand_off_finds(world: World, change: object, reason: str) -> None:
    """A release that hands the lock on raises the loss when the receiver's write finds another's record."""

    async def story() -> None:
        async with world.client() as client:
            lock = client.lock("orders")
            lease = await lock.acquire()
            receiving = asyncio.create_task(lock.acquire(timeout=5))
            await asyncio.sleep(0.1)
            change(world)  # type: ignore[operator]
            with pytest.raises(LeaseTakenOverError, match=reason):
                await lease.release()
            receiving.cancel()
            await asyncio.wait([receiving])
            if not receiving.cancelled():
                receiving.exception()

    world.loop.run_until_complete(story())


@pytest.mark.parametrize("fault", [Fault.REPLY_LOST, Fault.LATE])
def test_a_release_that_landed_before_another_took_the_lock_is_no_loss(world: World, fault: Fault) -> None:
    """Its answer is lost, and somebody else holds the lock when it is read back: it was free before."""

    async def story() -> None:
        async with world.client() as client, world.client() as other:
            faulty(client).delay = (0.0, 0.0)
            lease = await client.lock("orders").acquire()
            taking = asyncio.create_task(other.lock("orders").acquire())
            await asyncio.sleep(1.0)
            faulty(client).inject(fault, operation="put_if_match")
            faulty(client).inject(Fault.REQUEST_LOST, operation="get", times=3)
            await lease.release()
            await (await taking).release()

            assert lease.lost is None
            assert "lost" not in world.told()

    world.loop.run_until_complete(story())


@in_virtual_time
async def test_a_giver_whose_receiver_may_have_freed_the_lock_is_told_of_no_loss(world: World) -> None:
    """The receiver gives up and frees what was handed on; another takes the lock before that is known."""
    async with world.client() as client, world.client() as other:
        lock = client.lock("orders")
        lease = await lock.acquire()
        receiving = asyncio.create_task(lock.acquire())
        taking = asyncio.create_task(other.lock("orders").acquire())
        await asyncio.sleep(1.0)
        faulty(client).inject(Fault.REQUEST_LOST, operation="put_if_match")  # the receiver's own write
        faulty(client).inject(Fault.REPLY_LOST, operation="put_if_match")  # what it frees the lock with
        faulty(client).inject(Fault.REQUEST_LOST, operation="get", nth=2, times=3)
        releasing = asyncio.create_task(lease.release())
        await asyncio.sleep(0.03)
        receiving.cancel()
        await releasing
        await (await taking).release()

        assert lease.lost is None
        assert "lost" not in world.told()


@in_virtual_time
async def test_a_release_that_goes_on_in_the_background_remembers_what_may_have_landed(world: World) -> None:
    """Its first write landed unseen, and another holds the lock once the store answers again."""
    async with world.client() as client, world.client() as other:
        lease = await client.lock("orders").acquire()
        faulty(client).inject(Fault.REPLY_LOST, operation="put_if_match")
        faulty(client).inject(Fault.REQUEST_LOST, operation="get", times=1000)
        await lease.release()
        taken = await other.lock("orders").acquire()
        faulty(client).calm()
        await asyncio.sleep(5.0)

        assert lease.lost is None
        assert "lost" not in world.told()
        await taken.release()


@in_virtual_time
async def test_a_giver_past_its_deadline_whose_receiver_has_the_lock_is_told_of_no_loss(world: World) -> None:
    """The receiver's write landed unseen; what was handed on is given back before it is read again."""
    async with world.client() as client:
        lock = client.lock("orders")
        lease = await lock.acquire()
        receiving = asyncio.create_task(lock.acquire())
        await asyncio.sleep(1.0)
        faulty(client).inject(Fault.REPLY_LOST, operation="put_if_match")
        faulty(client).inject(Fault.REQUEST_LOST, operation="get", times=2)
        releasing = asyncio.create_task(lease.release())
        await asyncio.sleep(0.03)
        clock_of(client).step(60.0)  # past the deadline of the giver
        await releasing
        receiver = await receiving

        assert lease.lost is None
        assert "lost" not in world.told()
        await receiver.release()
