"""A semaphore: at most N leases, each on a slot of its own (rule 31)."""

from __future__ import annotations

import asyncio

import pytest

from asynclock import (
    AcquireTimeoutError,
    BackendError,
    ConfigError,
    LeaseSettings,
    LockChangedError,
    RecordCorruptError,
)
from asynclock.testing._faulty import Fault
from tests.unit.kit import ALWAYS, SETTINGS, World, clock_of, faulty, in_virtual_time, our_record

BUSY = LeaseSettings(validity=2.0, max_clock_skew=0.0, poll_interval=0.05)


@in_virtual_time
async def test_as_many_hold_it_as_there_are_slots(world: World) -> None:
    """Each on a slot of its own; one more waits until one of them releases."""
    async with world.client() as first, world.client() as second:
        held = [await first.semaphore("s", 3).acquire() for _ in range(2)]
        held.append(await second.semaphore("s", 3).acquire())

        assert sorted(lease.slot or 0 for lease in held) == [0, 1, 2]
        assert await second.semaphore("s", 3).try_acquire() is None
        with pytest.raises(AcquireTimeoutError, match="'s' was not acquired within 1 s; last seen held"):
            await second.semaphore("s", 3).acquire(timeout=1.0)

        waiting = asyncio.create_task(second.semaphore("s", 3).acquire())
        await asyncio.sleep(1.0)
        await held[0].release()
        lease = await waiting
        assert (lease.slot, lease.name) == (held[0].slot, f"s/slot={lease.slot}")
        for each in (lease, *held[1:]):
            await each.release()


@in_virtual_time
async def test_an_acquisition_again_is_one_write_and_one_look(world: World) -> None:
    """The version of the slot is known, and the number of slots is read after it is confirmed."""
    async with world.client() as client:
        semaphore = client.semaphore("s", 8)
        async with semaphore.hold() as lease:
            slot = lease.slot
        began = len(world.journal)
        async with semaphore.hold() as lease:
            assert lease.slot == slot

    kinds = [(each.kind, each.key) for each in world.journal[began:]]
    assert kinds[:3] == [
        ("put_if_match", f"s/slot={slot}.json"),
        ("get", "s/slots"),
        ("put_if_match", f"s/slot={slot}.json"),
    ]


@pytest.mark.parametrize("slots", [0, -1, 65, True, 2.0, "3"])
@in_virtual_time
async def test_a_number_that_is_none_is_refused(world: World, slots: object) -> None:
    """At once, and nothing is written."""
    async with world.client() as client:
        with pytest.raises(ConfigError, match=r"slots=.* must be a whole number from 1 to 64"):
            client.semaphore("s", slots)  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="a lock name is"):
            client.semaphore("s" * 505, 2)
        with pytest.raises(ConfigError, match="a whole number"):
            await client.semaphore("s", 2).resize(slots)  # type: ignore[arg-type]

    assert world.journal == []


@in_virtual_time
async def test_two_sizes_are_refused(world: World) -> None:
    """By the store between clients, and at once within one; no slot is touched."""
    async with world.client() as first, world.client() as second:
        await (await first.semaphore("s", 3).acquire()).release()
        writes = len(world.writes())
        with pytest.raises(ConfigError, match=r"'s' has 3 slots; nothing was written. Name that number, or"):
            await second.semaphore("s", 4).acquire()
        with pytest.raises(ConfigError, match="has 3 slots"):
            first.semaphore("s", 4)

        assert len(world.writes()) == writes
        await (await second.semaphore("t", 4).acquire()).release()


@in_virtual_time
async def test_what_is_no_number_in_the_store_is_refused(world: World) -> None:
    """Of any writer."""
    async with world.client() as client:
        for at, body in enumerate((b"{}", b'{"slots":65}', b'{"slots":0}', b"x" * 100_000)):
            world.put(body, f"s{at}/slots")
            with pytest.raises(RecordCorruptError, match="does not say how many slots"):
                await client.semaphore(f"s{at}", 4).acquire()


@in_virtual_time
async def test_a_slot_that_is_no_record_is_an_error(world: World) -> None:
    """As of a lock: it is neither held nor free."""
    world.put(b"?", "s/slot=0.json")
    async with world.client() as client:
        with pytest.raises(RecordCorruptError):
            await client.semaphore("s", 1).acquire()


@in_virtual_time
async def test_more_slots_are_there_at_once(world: World) -> None:
    """Also for a client that waits, and for one that has the old number in its program."""
    async with world.client() as first, world.client() as second:
        one = await first.semaphore("s", 1).acquire()
        waiting = asyncio.create_task(second.semaphore("s", 1).acquire())
        await asyncio.sleep(1.0)
        await first.semaphore("s", 1).resize(2)
        two = await asyncio.wait_for(waiting, 1.0)

        assert {one.slot, two.slot} == {0, 1}
        assert second.semaphore("s", 1).slots == 2
        await one.release()
        await two.release()


@in_virtual_time
async def test_fewer_slots_let_nobody_in_beyond_them(world: World) -> None:
    """Who holds one beyond keeps it; a client that has not heard of it learns after its write."""
    async with world.client() as first, world.client() as second:
        held = [await first.semaphore("s", 4).acquire() for _ in range(4)]
        other = second.semaphore("s", 4)
        assert await other.try_acquire() is None
        await first.semaphore("s", 4).resize(1)
        for lease in held:
            assert lease.held
            if lease.slot:
                await lease.release()

        assert await other.try_acquire() is None  # three are free, and none may be had
        waiting = asyncio.create_task(other.acquire())
        await asyncio.sleep(5.0)
        assert not waiting.done()
        await next(lease for lease in held if not lease.slot).release()
        assert (await waiting).slot == 0
        await waiting.result().release()


@in_virtual_time
async def test_a_change_of_the_number_beside_another_is_one_of_the_two(world: World) -> None:
    """A refused write is tried again over what was written meanwhile."""
    async with world.client() as first, world.client() as second:
        await asyncio.gather(first.semaphore("s", 2).resize(3), second.semaphore("s", 2).resize(4))

        assert world.store.body("s/slots") in {b'{"slots":3}\n', b'{"slots":4}\n'}


@in_virtual_time
async def test_a_slot_of_the_dead_is_taken_over(world: World) -> None:
    """After its lease, like any lock."""
    world.put(our_record(valid_until=world.now + 10), "s/slot=0.json")
    async with world.client() as client:
        began = world.now
        async with client.semaphore("s", 1).hold() as lease:
            assert lease.slot == 0
            assert world.now - began <= SETTINGS.takeover_bound(0.0) + 1.0


@in_virtual_time
async def test_the_waiters_of_a_client_form_a_line(world: World) -> None:
    """First come, first served; a slot that this client leaves is tried at once."""
    order: list[int] = []
    async with world.client() as client:
        semaphore = client.semaphore("s", 2)

        async def work(number: int) -> None:
            async with semaphore:
                order.append(number)
                await asyncio.sleep(1.0)

        began = world.now
        await asyncio.gather(*(work(number) for number in range(8)))

        assert order == list(range(8))
        assert world.now - began < 4 * 1.3  # four times two, without a poll interval between


@in_virtual_time
async def test_a_run_is_one_of_all_slots(world: World) -> None:
    """A client whose tasks take slot after slot makes way for another, whichever slots those are."""
    turns: list[str] = []
    async with world.client(BUSY) as busy, world.client(BUSY) as other:

        async def keep_taking(name: str, client: object) -> None:
            while world.loop.time() < 15:
                async with client.semaphore("s", 3).hold():  # type: ignore[attr-defined]
                    turns.append(name)
                    await asyncio.sleep(0.05)

        await asyncio.gather(
            *(keep_taking("busy", busy) for _ in range(6)), *(keep_taking("other", other) for _ in range(6))
        )

    assert min(turns.count("busy"), turns.count("other")) >= len(turns) / 4


@pytest.mark.parametrize("slots", [1, 3, 24])
@in_virtual_time
async def test_a_waiter_gets_its_turn_beside_a_client_that_takes_all(world: World, slots: int) -> None:
    """Within two runs and the time that a waiter takes to read all slots."""
    waits: list[float] = []
    async with world.client(BUSY) as busy, world.client(BUSY) as other:

        async def keep_taking() -> None:
            while True:
                async with busy.semaphore("s", slots).hold():
                    await asyncio.sleep(0.02)

        taking = [asyncio.create_task(keep_taking()) for _ in range(2 * slots)]
        await asyncio.sleep(0.5)
        for _ in range(10):
            began = world.now
            async with other.semaphore("s", slots).hold():
                waits.append(world.now - began)
            await asyncio.sleep(0.3)
        for task in taking:
            task.cancel()
        await asyncio.wait(taking)

    assert max(waits) <= 2 * 1.0 + 1.0


@in_virtual_time
async def test_what_fails_for_a_while_is_tried_again(world: World) -> None:
    """A waiter outlasts the store's failures; one try does not, and a timeout names them."""
    async with world.client() as client:
        semaphore = client.semaphore("s", 2)
        faulty(client).inject(Fault.REQUEST_LOST, times=3)
        await (await semaphore.acquire()).release()
        faulty(client).inject(Fault.REQUEST_LOST, times=ALWAYS)
        with pytest.raises(BackendError):
            await semaphore.try_acquire()
        began = world.now
        with pytest.raises(AcquireTimeoutError) as timed_out:
            await semaphore.acquire(timeout=0.5)
        assert timed_out.value.reason is not None
        assert world.now - began <= 2.0


@in_virtual_time
async def test_a_slot_whose_look_fails_is_released(world: World) -> None:
    """Nobody is let in on a slot that may be too many."""
    async with world.client() as client:
        semaphore = client.semaphore("s", 1)
        await (await semaphore.acquire()).release()
        faulty(client).inject(Fault.REQUEST_LOST, operation="get")
        with pytest.raises(BackendError):
            await semaphore.try_acquire()

        assert world.record("s/slot=0.json").expired


@in_virtual_time
async def test_a_slot_that_is_lost_during_the_look_is_not_handed_out(world: World) -> None:
    """Another may have had it since, with a higher token."""
    async with world.client() as client:
        semaphore, clock = client.semaphore("s", 1), clock_of(client)
        await (await semaphore.acquire()).release()
        faulty(client).delay = (1.0, 1.0)
        faulty(client).inject(Fault.SLOW, operation="get")
        trying = asyncio.create_task(semaphore.try_acquire())
        await asyncio.sleep(0.5)
        clock.step(60.0)

        assert await trying is None


@in_virtual_time
async def test_the_end_of_the_client_ends_its_waiters(world: World) -> None:
    """In the middle of a wait, and whatever they hold is released."""
    async with world.client() as first, world.client() as second:
        lease = await first.semaphore("s", 1).acquire()
        waiting = asyncio.create_task(second.semaphore("s", 1).acquire())
        await asyncio.sleep(1.0)
        await second.aclose()
        with pytest.raises(ConfigError, match="closed"):
            await waiting
        await lease.release()


@in_virtual_time
async def test_a_status_is_that_of_the_slot_that_is_free_first(world: World) -> None:
    """And it writes nothing, also where no slot has ever been held."""
    async with world.client() as client, world.client() as other:
        semaphore = client.semaphore("s", 2)
        assert (await semaphore.status()).state == "absent"
        assert world.writes() == []

        held = [await semaphore.acquire() for _ in range(2)]
        status = await other.semaphore("s", 2).status()
        assert status.state == "held"
        with pytest.raises(LockChangedError):
            await other.semaphore("s", 2).break_lock(status)
        after = await other.semaphore("s", 2).break_lock(status, force=True)
        assert (after.state, after.name) == ("free", status.name)
        with pytest.raises(ConfigError, match="of no slot of 's'"):
            await semaphore.break_lock(await client.lock("t").status())
        for lease in held:
            if lease.name != status.name:
                await lease.release()
            else:
                with pytest.raises(Exception, match="broken"):
                    await lease.release()


@in_virtual_time
async def test_no_side_is_handed_over_by_a_ticket(world: World) -> None:
    """Who redeemed it would not look at the other side; the lease goes on."""
    async with world.client() as client:
        for lock in (client.semaphore("s", 1), client.rwlock("t").read, client.rwlock("u").write):
            async with lock as lease:
                with pytest.raises(ConfigError, match="takes no ticket"):
                    await lease.transfer()
                assert lease.held
        async with client.lock("v") as lease:
            ticket = await lease.transfer()
        with pytest.raises(ConfigError, match="takes no ticket"):
            await client.semaphore("s", 1).acquire(ticket=ticket)


@in_virtual_time
async def test_a_lock_of_the_same_name_is_another(world: World) -> None:
    """Its lease has no slot."""
    async with world.client() as client, client.semaphore("s", 1).hold(), client.lock("s").hold() as lease:
        assert lease.slot is None


@in_virtual_time
async def test_a_task_may_hold_two_slots_of_several(world: World) -> None:
    """Of one slot, the second hold would wait for itself."""
    async with world.client() as client:
        async with client.semaphore("s", 2).hold() as one, client.semaphore("s", 2).hold() as two:
            assert {one.slot, two.slot} == {0, 1}
        async with client.semaphore("t", 1).hold():
            with pytest.raises(RuntimeError, match="would wait for itself"):
                await client.semaphore("t", 1).hold().__aenter__()


@in_virtual_time
async def test_a_holder_that_stops_costs_one_slot(world: World) -> None:
    """It loses that slot at its deadline, and others go on with the rest."""
    async with world.client() as first, world.client() as second:
        lease = await first.semaphore("s", 2).acquire()
        faulty(first).inject(Fault.REQUEST_LOST, times=ALWAYS)
        for _ in range(20):
            async with second.semaphore("s", 2).hold():
                await asyncio.sleep(0.5)
        assert not lease.held
        both = [await second.semaphore("s", 2).acquire(timeout=10.0) for _ in range(2)]
        faulty(first).calm()
        for each in both:
            await each.release()
