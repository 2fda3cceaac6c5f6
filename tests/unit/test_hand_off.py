"""Hand-off between waiters of one client: one write that releases and acquires (rule 15)."""

from __future__ import annotations

import asyncio

import pytest

from asynclock import AcquireTimeoutError, LeaseTakenOverError
from asynclock._core.record import parse_record
from asynclock.lock import Lock
from asynclock.testing._faulty import Fault
from tests.unit.kit import (
    BELIEF,
    SETTINGS,
    World,
    faulty,
    hudi_record,
    in_virtual_time,
    our_record,
    refused,
    while_renewing,
    writes_by_us,
)


class Turns:
    """Coroutines that take one lock in turn and note what they saw.

    Attributes:
        done: Numbers of those whose body ran, in order.
        tokens: The token of each body.
        overlaps: How often somebody else was inside.
    """

    def __init__(self) -> None:
        self.done: list[int] = []
        self.tokens: list[int] = []
        self.owners: list[str] = []
        self.overlaps = 0
        self._inside = 0

    async def take(self, lock: object, number: int, *, lasting: float = 0.05) -> None:
        """Take the lock once."""
        async with lock.hold() as lease:  # type: ignore[attr-defined]
            self.overlaps += self._inside
            self._inside += 1
            try:
                await asyncio.sleep(lasting)
                lease.check()
            finally:
                self._inside -= 1
            self.done.append(number)
            self.tokens.append(lease.fencing_token)
            self.owners.append(lease.owner)


@in_virtual_time
async def test_a_hand_off_is_one_write(world: World) -> None:
    """Ten waiters cost one look, ten acquisitions and one release."""
    turns = Turns()
    async with world.client() as client:
        lock = client.lock("orders")
        await asyncio.gather(*(turns.take(lock, number) for number in range(10)))

    assert turns.done == list(range(10))
    assert [each.kind for each in world.journal] == ["get", "put_if_absent"] + ["put_if_match"] * 10


@in_virtual_time
async def test_each_turn_has_an_owner_and_a_token_of_its_own(world: World) -> None:
    """A hand-off is an acquisition: new owner, higher token, and both are in the store."""
    turns = Turns()
    async with world.client() as client:
        lock = client.lock("orders")
        await asyncio.gather(*(turns.take(lock, number) for number in range(5)))

    stored = [parse_record(each.body) for each in world.writes()[:-1] if each.body]
    assert [record.owner for record in stored] == turns.owners
    assert [record.epoch for record in stored] == turns.tokens
    assert turns.tokens == sorted(set(turns.tokens))
    assert len(set(turns.owners)) == 5
    assert world.record().expired


@in_virtual_time
async def test_the_giver_believes_nothing_when_the_hand_off_lands(world: World) -> None:
    """The belief of the giver has ended before the receiver's begins."""
    believed: list[bool] = []
    async with world.client() as client:
        lock = client.lock("orders")
        giver = await lock.acquire()
        receiving = asyncio.create_task(lock.acquire())
        await asyncio.sleep(0.1)
        world.store.on_change = lambda _: believed.append(giver.held)
        await giver.release()
        receiver = await receiving

        assert believed[0] is False
        assert receiver.held
        assert receiver.remaining() == pytest.approx(9.0, abs=0.1)


FAULTS = [
    Fault.REPLY_LOST,
    Fault.REQUEST_LOST,
    Fault.OWN_412,
    Fault.CONFLICT,
    Fault.UNAVAILABLE,
    Fault.THROTTLED,
    Fault.DUPLICATE,
    Fault.LATE,
    Fault.SLOW,
]


@pytest.mark.parametrize("nth", [1, 2, 3])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_spoiled_hand_off_costs_nobody_the_turn(world: World, fault: Fault, nth: int) -> None:
    """Whatever becomes of one hand-off, all have their turn, one at a time, and the lock ends free."""

    async def story() -> None:
        turns = Turns()
        async with world.client() as client:
            faulty(client).inject(fault, operation="put_if_match", nth=nth)
            lock = client.lock("orders")
            await asyncio.gather(*(turns.take(lock, number) for number in range(4)))
            await asyncio.sleep(15.0)

            assert sorted(turns.done) == [0, 1, 2, 3]
            assert turns.overlaps == 0
            assert turns.tokens == sorted(set(turns.tokens))
            assert world.record().expired
            assert "lost" not in world.told()

    world.loop.run_until_complete(story())


@pytest.mark.parametrize("last", [False, True], ids=["others wait", "nobody else waits"])
@pytest.mark.parametrize("after", [0.004 * step for step in range(14)])
def test_a_receiver_cancelled_at_any_instant_leaves_nothing(
    world: World, after: float, *, last: bool
) -> None:
    """The next one has the turn, or the lock is free."""

    async def story() -> None:
        turns = Turns()
        async with world.client() as client:
            lock = client.lock("orders")
            giver = await lock.acquire()
            receiver = asyncio.create_task(turns.take(lock, 0))
            await asyncio.sleep(0.01)
            others = [] if last else [asyncio.create_task(turns.take(lock, number)) for number in (1, 2)]
            await asyncio.sleep(0.01)
            releasing = asyncio.create_task(giver.release())
            await asyncio.sleep(after)
            receiver.cancel()
            await asyncio.gather(releasing, receiver, *others, return_exceptions=True)
            await asyncio.sleep(0.1)

            assert [number for number in turns.done if number] == ([] if last else [1, 2])
            assert turns.overlaps == 0
            assert world.record().expired
            assert client._core._schedule.held == []
            lease = await lock.try_acquire()
            assert lease is not None
            await lease.release()

    world.loop.run_until_complete(story())


@in_virtual_time
async def test_a_receiver_whose_time_is_up_is_not_served(world: World) -> None:
    """A waiter that timed out gets no lock later; the next one does."""
    turns = Turns()
    async with world.client() as client:
        lock = client.lock("orders")
        giver = await lock.acquire()
        late = asyncio.create_task(lock.acquire(timeout=0.5))
        await asyncio.sleep(0)
        other = asyncio.create_task(turns.take(lock, 1))
        await asyncio.sleep(1.0)
        await giver.release()
        await other
        with pytest.raises(AcquireTimeoutError):
            await late

    assert turns.done == [1]


@in_virtual_time
async def test_a_lost_lease_is_not_handed_on(world: World) -> None:
    """What another has taken over cannot be given away; the waiter waits for the store."""
    async with world.client() as client:
        lock = client.lock("orders")
        giver = await lock.acquire()
        waiting = asyncio.create_task(lock.acquire(timeout=3.0))
        await asyncio.sleep(0.1)
        world.put(our_record(valid_until=world.now + 12, owner="thief"))
        with pytest.raises(AcquireTimeoutError):
            await waiting

        assert not giver.held
        assert world.record().owner == "thief"


@in_virtual_time
async def test_a_lock_that_another_took_over_is_neither_handed_on_nor_freed(world: World) -> None:
    """The receiver waits for the other holder like any client, and nothing is written over its record."""
    async with world.client() as client:
        lock = client.lock("orders")
        giver = await lock.acquire()
        receiving = asyncio.create_task(lock.acquire(timeout=2 * BELIEF))
        await asyncio.sleep(0.1)
        world.put(our_record(valid_until=world.now + 1000, lease_ms=1_000_000, owner="thief"))
        with pytest.raises(LeaseTakenOverError):
            await giver.release()

        with pytest.raises(AcquireTimeoutError):
            await receiving

        tried = [each for each in world.journal if each.kind == "put_if_match"]
        assert len(tried) == 1
        assert world.record().owner == "thief"
        assert not world.record().expired
        assert "release_unconfirmed" not in world.told()


@in_virtual_time
async def test_hand_offs_end_after_a_run(world: World) -> None:
    """A long line of one client does not shut out another client."""
    began = world.loop.time()
    async with world.client() as busy, world.client() as other:
        turns = Turns()
        tasks = [
            asyncio.create_task(turns.take(busy.lock("orders"), number, lasting=0.2)) for number in range(200)
        ]
        await asyncio.sleep(0.1)
        lease = await other.lock("orders").acquire()
        waited = world.loop.time() - began
        await lease.release()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    poll = SETTINGS.poll_interval or 0.0
    assert waited <= 20 * poll + 4 * poll + 0.5


@in_virtual_time
async def test_nothing_is_handed_on_past_the_givers_deadline(world: World) -> None:
    """A receiver that had to wait too long frees what it was handed, and acquires again (rule 15)."""
    client = world.client()
    faulty(client).min_write_interval = BELIEF + 1
    lock = client.lock("orders")
    giver = await lock.acquire()
    receiving = asyncio.create_task(lock.acquire(timeout=60))
    await asyncio.sleep(0.5)  # before its first renewal
    await giver.release()

    receiver = await receiving

    assert receiver.held
    assert [record.expired for _, record in writes_by_us(world)] == [False, True, False]
    assert [each.kind for each in world.journal] == [
        "get",
        "put_if_absent",
        "put_if_match",
        "get",
        "put_if_match",
    ]
    await client.aclose()


@in_virtual_time
async def test_a_token_from_the_future_is_not_handed_on(world: World) -> None:
    """A lease that did not wait for its token frees the lock without it (rules 11, 15)."""
    world.put(hudi_record(world.now + 5, expired=True))
    client = world.client()
    engine = client._core.engine("orders")
    engine.fencing = False
    lease = await Lock(engine).acquire()
    receiving = asyncio.create_task(client.lock("orders").acquire())
    await asyncio.sleep(0.1)

    await lease.release()

    (_, freed) = writes_by_us(world)[1]
    assert freed.expired
    assert freed.epoch is None
    assert (await receiving).held
    await client.aclose()


@in_virtual_time
async def test_a_hand_off_is_reported_as_a_release_and_an_acquisition(world: World) -> None:
    """A listener that counts events sees every lease end, handed on or freed."""
    async with world.client() as client:
        lock = client.lock("orders")
        giver = await lock.acquire()
        receiving = asyncio.create_task(lock.acquire())
        await asyncio.sleep(0.1)
        await giver.release()
        await (await receiving).release()

        assert world.told() == ["acquired", "released", "acquired", "released"]


@in_virtual_time
async def test_a_hand_off_that_was_refused_is_sent_again(world: World) -> None:
    """Where the giver's record still stands, the receiver does not wait for it to expire (rule 15)."""
    async with world.client() as client:
        lock = client.lock("orders")
        giver = await lock.acquire()
        receiving = asyncio.create_task(lock.acquire())
        faulty(client).inject(Fault.CONFLICT, operation="put_if_match")
        await asyncio.sleep(0.1)
        began = world.now
        await giver.release()

        await (await receiving).release()

        assert world.now - began < 1


@in_virtual_time
async def test_a_late_renewal_of_the_giver_does_not_stop_the_hand_off(world: World) -> None:
    """The receiver also replaces a record with another nonce of the giver (rule 15)."""
    async with world.client() as client:
        lock = client.lock("orders")
        giver = await lock.acquire()
        receiving = asyncio.create_task(lock.acquire())
        faulty(client).delay = (0.05, 0.05)
        faulty(client).inject(Fault.LATE, operation="put_if_match")
        await asyncio.sleep(1.06)
        began = world.now
        await giver.release()

        receiver = await receiving

        assert world.now - began < 1
        assert [record.owner for _, record in writes_by_us(world)] == [
            giver.owner,
            giver.owner,
            receiver.owner,
        ]
        await receiver.release()


@in_virtual_time
async def test_a_hand_off_waits_for_the_renewal_under_way(world: World) -> None:
    """The receiver replaces the record of the renewal; the store refuses neither write (rules 6, 15)."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        receiver = asyncio.create_task(client.lock("orders").acquire())
        await while_renewing(lease)

        await lease.release()

        assert (await receiver).held
        assert refused(world) == 0


@pytest.mark.parametrize("turns", range(8))
@in_virtual_time
async def test_a_receiver_cancelled_in_any_turn_of_the_loop_leaves_the_queue(
    world: World, turns: int
) -> None:
    """The lock is freed, and nobody waits for the cancelled receiver (rule 12)."""
    async with world.client() as client:
        lock = client.lock("orders")
        giver = await lock.acquire()
        receiving = asyncio.create_task(lock.acquire())
        await asyncio.sleep(0.1)
        releasing = asyncio.create_task(giver.release())
        for _ in range(turns):
            await asyncio.sleep(0)
        receiving.cancel()
        await asyncio.gather(releasing, receiving, return_exceptions=True)
        await asyncio.sleep(0.1)

        assert world.record().expired
        await (await lock.acquire(timeout=5)).release()


@in_virtual_time
async def test_a_receiver_cancelled_in_its_write_frees_what_it_wrote_in_one_request(world: World) -> None:
    """On a store that paces writes, or within an exit, there may be no time for more (rules 3 and 18)."""
    async with world.client() as client:
        lock = client.lock("orders")
        giver = await lock.acquire()
        receiving = asyncio.create_task(lock.acquire())
        await asyncio.sleep(0.1)
        before = len(world.journal)
        releasing = asyncio.create_task(giver.release())
        await asyncio.sleep(0.005)
        receiving.cancel()
        await asyncio.gather(releasing, receiving, return_exceptions=True)
        await asyncio.sleep(0.1)

        assert [each.kind for each in world.journal[before:]] == ["put_if_match"] * 2
        assert world.record().expired
        assert giver.lost is None


@in_virtual_time
async def test_the_release_for_a_cancelled_receiver_is_remembered(world: World) -> None:
    """The next waiter acquires in one request, because its client wrote last (rule 13)."""
    async with world.client() as client:
        lock = client.lock("orders")
        giver = await lock.acquire()
        receiving = asyncio.create_task(lock.acquire())
        await asyncio.sleep(0.1)
        releasing = asyncio.create_task(giver.release())
        receiving.cancel()
        await asyncio.gather(releasing, receiving, return_exceptions=True)
        await asyncio.sleep(0.1)
        before = len(world.journal)

        await (await lock.acquire()).release()

        assert [each.kind for each in world.journal[before:]] == ["put_if_match"] * 2
