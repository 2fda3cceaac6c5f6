"""A reader-writer lock: readers share it, a writer has it alone (rule 32)."""

from __future__ import annotations

import asyncio

import pytest

from asynclock import (
    AcquireTimeoutError,
    BackendError,
    ConfigError,
    LeaseTakenOverError,
    LockChangedError,
    LockClient,
    RecordCorruptError,
)
from asynclock.testing._faulty import Fault
from tests.unit.kit import (
    ALWAYS,
    BELIEF,
    SETTINGS,
    World,
    clock_of,
    faulty,
    in_virtual_time,
    our_record,
    until_lost,
)


@in_virtual_time
async def test_readers_share_it_and_a_writer_has_it_alone(world: World) -> None:
    """Each waits for the other side until it has left."""
    async with world.client() as first, world.client() as second:
        mine, other = first.rwlock("t"), second.rwlock("t")
        async with mine.read.hold(), other.read.hold() as two:
            assert two.held
            assert await first.rwlock("t").write.try_acquire() is None
            with pytest.raises(
                AcquireTimeoutError, match="'t/rw=w' was not acquired within 1 s; last seen held"
            ):
                await asyncio.create_task(second.rwlock("t").write.acquire(timeout=1.0))
        async with mine.write.hold() as lease:
            assert (lease.name, lease.slot) == ("t/rw=w", None)
            assert await other.read.try_acquire() is None
            assert await other.write.try_acquire() is None
            with pytest.raises(AcquireTimeoutError, match="'t' was not acquired within 1 s; last seen held"):
                await asyncio.create_task(other.read.acquire(timeout=1.0))
        async with other.read.hold():
            pass


@in_virtual_time
async def test_a_reader_again_is_one_write_and_one_look(world: World) -> None:
    """The version of the slot is known; the writer's lock is read after the slot is confirmed."""
    async with world.client() as client:
        read = client.rwlock("t").read
        async with read as lease:
            slot = lease.slot
        began = len(world.journal)
        async with read as lease:
            assert lease.slot == slot

    kinds = [(each.kind, each.key) for each in world.journal[began:]]
    assert kinds[:2] == [("put_if_match", f"t/rw=r{slot}.json"), ("get", "t/rw=w.json")]


@in_virtual_time
async def test_many_readers_of_a_client_go_back_to_the_slots_that_they_left(world: World) -> None:
    """Three requests a turn, as for one reader alone, though short reads end while others begin."""
    clients, turns, began = [world.client() for _ in range(3)], 0, len(world.journal)

    async def read(client: LockClient) -> None:
        nonlocal turns
        for _ in range(20):
            async with client.rwlock("t").read.hold():
                await asyncio.sleep(0.05)
            turns += 1

    await asyncio.gather(*(read(client) for client in clients for _ in range(8)))
    assert len(world.journal) - began < 3.5 * turns
    for client in clients:
        await client.aclose()


@in_virtual_time
async def test_a_writer_reads_every_slot_after_its_lock_is_confirmed(world: World) -> None:
    """Each of the sixty-four, once, and all again for the next lease."""
    async with world.client() as client:
        for _ in range(2):
            began = len(world.journal)
            async with client.rwlock("t").write:
                pass
            keys = [each.key for each in world.journal[began:]]
            confirmed = next(
                at for at, each in enumerate(world.journal[began:]) if each.kind.startswith("put")
            )
            assert sorted(keys[confirmed + 1 : -1]) == sorted(f"t/rw=r{slot}.json" for slot in range(64))


@in_virtual_time
async def test_a_waiting_writer_keeps_new_readers_out(world: World) -> None:
    """However many come: it gets its turn as soon as those inside have left."""
    order: list[str] = []
    async with world.client() as first, world.client() as second:

        async def read(name: str, seconds: float) -> None:
            async with first.rwlock("t").read.hold():
                order.append(name)
                await asyncio.sleep(seconds)

        async def write() -> None:
            async with second.rwlock("t").write.hold():
                order.append("writer")
                await asyncio.sleep(1.0)

        inside = asyncio.create_task(read("inside", 5.0))
        await asyncio.sleep(0.5)
        writing = asyncio.create_task(write())
        await asyncio.sleep(0.5)
        late = [asyncio.create_task(read("late", 0.1)) for _ in range(5)]
        await asyncio.wait([inside, writing, *late])

    assert order == ["inside", "writer", *["late"] * 5]


@in_virtual_time
async def test_readers_in_turns_do_not_starve_a_writer(world: World) -> None:
    """There is always a reader in, and the writer waits for one of them at most."""
    async with world.client() as first, world.client() as second:

        async def keep_reading() -> None:
            while True:
                async with first.rwlock("t").read.hold():
                    await asyncio.sleep(0.5)
                await asyncio.sleep(0.01)

        reading = []
        for _ in range(4):
            reading.append(asyncio.create_task(keep_reading()))
            await asyncio.sleep(0.13)
        for _ in range(5):
            began = world.now
            async with second.rwlock("t").write.hold():
                assert world.now - began < 0.5 + 3 * SETTINGS.poll_interval
            await asyncio.sleep(2.0)
        for task in reading:
            task.cancel()
        await asyncio.wait(reading)


@in_virtual_time
async def test_readers_take_no_turns_among_themselves(world: World) -> None:
    """A client that reads all the time never makes way: it is in nobody's way."""
    async with world.client() as client:
        for _ in range(200):
            began = world.now
            async with client.rwlock("t").read.hold():
                assert world.now - began < 0.2
                await asyncio.sleep(0.1)


@pytest.mark.parametrize("key", ["t/rw=w.json", "t/rw=r63.json"])
@in_virtual_time
async def test_the_dead_keep_it_for_the_time_of_their_lease(world: World, key: str) -> None:
    """A writer waits for a dead reader, and a reader for a dead writer."""
    world.put(our_record(valid_until=world.now + 10), key)
    began = world.now
    async with world.client() as client:
        rw = client.rwlock("t")
        async with (rw.read if key == "t/rw=w.json" else rw.write).hold():
            waited = world.now - began

    assert 10.0 <= waited <= SETTINGS.takeover_bound(0.0) + 1.0


@pytest.mark.parametrize("key", ["t/rw=w.json", "t/rw=r7.json"])
@in_virtual_time
async def test_what_is_no_record_is_neither_held_nor_free(world: World, key: str) -> None:
    """Neither side goes on beside it."""
    world.put(b"?", key)
    async with world.client() as client:
        rw = client.rwlock("t")
        with pytest.raises(RecordCorruptError):
            await rw.write.acquire()
        if key == "t/rw=w.json":
            with pytest.raises(RecordCorruptError):
                await rw.read.acquire()
            assert (await rw.read.status()).state == "corrupt"


@in_virtual_time
async def test_a_reader_whose_slot_is_lost_during_its_look_takes_another(world: World) -> None:
    """It looked too late: a writer may have been in since."""
    async with world.client() as client:
        read = client.rwlock("t").read
        async with read as lease:
            lost = lease.slot
        faulty(client).delay = (1.0, 1.0)
        faulty(client).inject(Fault.SLOW, operation="get")
        trying = asyncio.create_task(read.try_acquire())
        await asyncio.sleep(0.5)
        clock_of(client).step(60.0)

        async with await trying or read as lease:
            assert lease.held
            assert lease.slot != lost


@in_virtual_time
async def test_a_writer_that_is_lost_while_it_waits_begins_anew(world: World) -> None:
    """With another lease, and another look at all readers."""
    async with world.client() as first, world.client() as second:
        lease = await first.rwlock("t").read.acquire()
        writing = asyncio.create_task(second.rwlock("t").write.acquire())
        await asyncio.sleep(1.0)
        owner = world.record("t/rw=w.json").owner
        faulty(second).inject(Fault.REQUEST_LOST, times=ALWAYS)
        await asyncio.sleep(BELIEF + 5.0)
        assert lease.held
        faulty(second).calm()
        await asyncio.sleep(5.0)
        assert not writing.done()
        await lease.release()
        write = await writing
        assert write.owner != owner
        await write.release()


@in_virtual_time
async def test_a_reader_that_loses_its_slot_is_told_and_keeps_no_writer_out(world: World) -> None:
    """As of any lease: by the time that the writer is in, it has stopped believing."""
    async with world.client() as first, world.client() as second:
        lease = await first.rwlock("t").read.acquire()
        faulty(first).inject(Fault.REQUEST_LOST, times=ALWAYS)
        writing = asyncio.create_task(second.rwlock("t").write.acquire())
        await until_lost(lease)
        assert not writing.done()
        await (await writing).release()
        faulty(first).calm()


@in_virtual_time
async def test_whoever_has_one_side_may_not_ask_for_the_other(world: World) -> None:
    """It would wait for itself: in a body and after ``acquire``, in both directions."""
    async with world.client() as client:
        rw = client.rwlock("t")
        async with rw.read.hold():
            with pytest.raises(RuntimeError, match="reads 't', so its write would wait for itself"):
                await rw.write.acquire()
            with pytest.raises(RuntimeError, match="reads 't', so its write would wait"):
                await client.rwlock("t").write.hold().__aenter__()
            with pytest.raises(RuntimeError, match="would wait for itself"):
                await rw.read.hold().__aenter__()
        async with rw.write:
            with pytest.raises(RuntimeError, match="writes 't', so its read would wait for itself"):
                await rw.read.acquire()
        lease = await rw.read.acquire()
        with pytest.raises(RuntimeError, match="reads 't'"):
            await rw.write.acquire()
        await lease.release()
        async with rw.write.hold(timeout=1.0):
            pass


@in_virtual_time
async def test_a_side_got_by_one_try_counts_too(world: World) -> None:
    """The task has it as after ``acquire``; another task that asks for the other side waits."""
    async with world.client() as client:
        rw = client.rwlock("t")
        for has, asked in ((rw.read, rw.write), (rw.write, rw.read)):
            lease = await has.try_acquire()
            assert lease is not None
            with pytest.raises(RuntimeError, match="would wait for itself"):
                await asked.acquire(timeout=1.0)
            with pytest.raises(AcquireTimeoutError):
                await asyncio.create_task(asked.acquire(timeout=1.0))
            await lease.release()
            async with asked:
                pass


@in_virtual_time
async def test_a_reader_with_two_slots_may_not_write_until_both_are_free(world: World) -> None:
    """In whatever order they are released."""
    async with world.client() as client:
        rw = client.rwlock("t")
        for last in (0, 1):
            leases = [await rw.read.acquire(), await rw.read.acquire()]
            await leases.pop(1 - last).release()
            with pytest.raises(RuntimeError, match="reads 't', so its write would wait for itself"):
                await rw.write.acquire(timeout=1.0)
            await leases[0].release()
            async with rw.write:
                pass


@in_virtual_time
async def test_a_lost_answer_costs_a_writer_one_read_more(world: World) -> None:
    """What it has seen free stays seen: else it would never get in where many reads fail."""
    async with world.client() as client:
        write = client.rwlock("t").write
        async with write:
            pass
        for nth in (2, 20, 40):
            faulty(client).inject(Fault.REQUEST_LOST, operation="get", nth=nth)
        began = len(world.journal)
        async with write.hold(timeout=30.0):
            pass

    read = [each.key for each in world.journal[began:] if each.kind == "get" and "rw=r" in each.key]
    assert sorted(read) == sorted(f"t/rw=r{slot}.json" for slot in range(64))


@in_virtual_time
async def test_a_failing_store_ends_one_try_and_no_wait(world: World) -> None:
    """Both sides; what was taken by then is given back."""
    async with world.client() as client:
        rw = client.rwlock("t")
        async with rw.read:
            pass
        async with rw.write:
            pass
        for side, key in ((rw.read, "t/rw=r"), (rw.write, "t/rw=w")):
            faulty(client).inject(Fault.REQUEST_LOST, operation="get")
            with pytest.raises(BackendError):
                await side.try_acquire()
            assert all(
                b'"expired":true' in (world.store.body(each.key) or b"")
                for each in world.writes()
                if each.key.startswith(key)
            )
            faulty(client).inject(Fault.REQUEST_LOST, operation="get", times=3)
            await (await side.acquire(timeout=10.0)).release()


@in_virtual_time
async def test_the_writers_of_a_client_hand_it_over(world: World) -> None:
    """In their order, each after a look at the readers of its own."""
    order: list[int] = []
    async with world.client() as client:

        async def write(number: int) -> None:
            async with client.rwlock("t").write.hold():
                order.append(number)
                await asyncio.sleep(0.1)

        await asyncio.gather(*(write(number) for number in range(5)))

    assert order == list(range(5))


@in_virtual_time
async def test_a_status_shows_who_is_in(world: World) -> None:
    """The writer to both sides, a reader to the writer's side; and both can be broken."""
    async with world.client() as client, world.client() as other:
        rw, there = client.rwlock("t"), other.rwlock("t")
        assert (await there.write.status()).state == "absent"
        assert (await there.read.status()).state == "absent"
        reader = await rw.read.acquire()
        status = await there.write.status()
        assert (status.state, status.owner) == ("held", reader.owner)
        assert (await there.read.status()).state == "absent"
        assert (await rw.write.status()).owner == reader.owner  # also to its own client
        with pytest.raises(LockChangedError):
            await there.write.break_lock(status)
        await there.write.break_lock(status, force=True)
        with pytest.raises(LeaseTakenOverError):
            await reader.release()
        writer = await rw.write.acquire()
        for side in (there.read, there.write):
            assert (await side.status()).owner == writer.owner
        await there.read.break_lock(await there.read.status(), force=True)
        with pytest.raises(LeaseTakenOverError):
            await writer.release()


@in_virtual_time
async def test_the_end_of_the_client_ends_who_waits(world: World) -> None:
    """A reader behind a writer, and a writer behind a reader, which gives its lock back."""
    async with world.client() as first, world.client() as second:
        reader = await first.rwlock("t").read.acquire()
        writer = await first.rwlock("u").write.acquire()
        waiting = [
            asyncio.create_task(second.rwlock("t").write.acquire()),
            asyncio.create_task(second.rwlock("u").read.acquire()),
        ]
        await asyncio.sleep(1.0)
        await second.aclose()
        for task in waiting:
            with pytest.raises(ConfigError, match="closed"):
                await task
        assert world.record("t/rw=w.json").expired
        await reader.release()
        await writer.release()


@in_virtual_time
async def test_a_name_must_leave_room(world: World) -> None:
    """For those of its slots."""
    async with world.client() as client:
        with pytest.raises(ConfigError, match="a lock name is"):
            client.rwlock("t" * 507)
        assert repr(client.rwlock("t")) == "<RWLock 't'>"
