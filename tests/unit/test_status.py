"""``status`` and ``list``: what a look at the locks tells."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest

import asynclock
from asynclock import LockStatus
from asynclock._core.record import parse_record
from tests.unit.kit import (
    KEY,
    SETTINGS,
    STEADY,
    TIMING,
    World,
    hudi_record,
    in_virtual_time,
    our_record,
    until_lost,
)

DAYS = 24 * 3600.0


@in_virtual_time
async def test_a_missing_object_is_absent(world: World) -> None:
    """A lock that nobody ever took is absent, not free, and looking at it creates nothing."""
    async with world.client() as client:
        status = await client.lock("orders").status()

    assert status == LockStatus(
        name="orders",
        url="sim://store/orders",
        state="absent",
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
    """Its status has the version, so that it can be broken."""
    version = world.put(b"garbage")
    async with world.client() as client:
        status = await client.lock("orders").status()

    assert (status.state, status.version, status.owner) == ("corrupt", version, None)
    assert status.reason == "not JSON"


@in_virtual_time
async def test_a_status_without_a_usable_date_has_no_times(world: World) -> None:
    """Where this machine's clock disagrees with the store, nothing is computed from either."""
    async with world.client(wall_error=3600.0) as client:
        world.put(our_record(valid_until=world.now + 12))
        status = await client.lock("orders").status()

    assert (status.state, status.remaining, status.age) == ("held", None, None)


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


@pytest.mark.parametrize("profile", [replace(STEADY, last_modified=False)], ids=["no last_modified"])
@in_virtual_time
async def test_a_second_status_counts_as_an_observation(world: World) -> None:
    """Without usable Dates a dead holder's lock shows as expired after its validity (rule 8)."""
    world.put(our_record(valid_until=world.now + 12))
    async with world.client() as operator:
        lock = operator.lock("orders")
        first = await lock.status()
        await asyncio.sleep(TIMING.validity)

        assert first.state == "held"
        assert (await lock.status()).state == "expired"


@pytest.mark.parametrize(("beyond", "state"), [(-0.1, "held"), (0.1, "corrupt")])
@in_virtual_time
async def test_a_promise_beyond_any_validity_is_corrupt(world: World, beyond: float, state: str) -> None:
    """A record more than 8 days after the latest possible store time is corrupt (rule 9)."""
    world.put(hudi_record(world.now + 0.01 + SETTINGS.max_clock_skew + 8 * DAYS + beyond))
    async with world.client() as client:
        assert (await client.lock("orders").status()).state == state


@in_virtual_time
async def test_a_date_without_a_witness_makes_no_record_corrupt(world: World) -> None:
    """Where the machine's wall clock and the store disagree, no record is called corrupt by time."""
    world.put(hudi_record(world.now + 9 * DAYS))
    async with world.client(wall_error=1000.0) as client:
        assert (await client.lock("orders").status()).state == "held"


@in_virtual_time
async def test_the_time_of_acquisition_survives_renewals(world: World) -> None:
    """``since_ms`` is the store's time at which the lock was acquired, for as long as it is held."""
    async with world.client() as holder, world.client() as other:
        began = world.now
        async with holder.lock("orders").hold():
            await asyncio.sleep(100.0)
            status = await other.lock("orders").status()
            assert status.store_time == pytest.approx(world.now, abs=0.05)
        freed = await other.lock("orders").status()

    assert status.since_ms is not None
    assert status.since_ms / 1000 == pytest.approx(began, abs=0.05)
    assert (status.validity, status.kept, freed.since_ms) == (SETTINGS.validity, False, None)


@in_virtual_time
async def test_a_holder_that_renews_misses_nothing(world: World) -> None:
    """However often it is looked at, a live holder is never called overdue."""
    async with world.client() as holder, world.client() as other, holder.lock("orders").hold():
        missed = set()
        for _ in range(200):
            await asyncio.sleep(0.37)
            missed.add((await other.lock("orders").status()).missed_renewals)

    assert missed == {0}


@pytest.mark.parametrize("kind", ["ours", "Hudi"])
@pytest.mark.parametrize(("after", "missed"), [(1.0, 0), (2.0, 0), (7.0, 4), (9.5, 7)])
def test_renewals_that_a_dead_holder_missed_are_counted(
    world: World, kind: str, after: float, missed: int
) -> None:
    """One is due in each tenth of the validity; the skew of the store and half a pause are granted."""

    async def story() -> None:
        async with world.client() as client:
            valid_until = world.now + 10 + 1
            world.put(our_record(valid_until=valid_until) if kind == "ours" else hudi_record(valid_until - 1))
            await asyncio.sleep(after)
            status = await client.lock("orders").status()

        assert status.state == "held"
        assert status.missed_renewals is not None
        assert missed - 1 <= status.missed_renewals <= missed + 1
        assert (status.missed_renewals > 0) == (missed > 0)

    world.loop.run_until_complete(story())


@in_virtual_time
async def test_a_kept_lock_says_so_and_is_free_after_its_time(world: World) -> None:
    """While ``at_least`` keeps it, it is held and kept, with no renewal due; then free, and never expired."""
    async with world.client() as client, world.client() as other:
        async with client.lock("orders").hold(at_least=60.0):
            pass
        until, states = world.now + 60.0, set()
        status = await other.lock("orders").status()
        while world.now < until + 20.0:
            await asyncio.sleep(0.5)
            look = await other.lock("orders").status()
            states.add((look.state, look.kept))
        assert [each.state for each in await other.list()] == ["free"]

    assert (status.state, status.kept, status.missed_renewals) == ("held", True, None)
    assert status.remaining is not None
    assert status.store_time is not None
    assert status.store_time + status.remaining == pytest.approx(until, abs=1.5)
    assert states == {("held", True), ("free", False)}


@in_virtual_time
async def test_the_next_holder_of_a_kept_lock_is_an_ordinary_one(world: World) -> None:
    """The mark of a kept lock ends with it: by the next acquisition, and by a break."""
    async with world.client() as client:
        lock = client.lock("orders")
        async with lock.hold(at_least=5.0):
            pass
        async with lock.hold():
            held = await lock.status()
        async with lock.hold(at_least=500.0):
            pass
        broken = await lock.break_lock(await lock.status(), force=True)

    assert (held.state, held.kept) == ("held", False)
    assert (broken.state, broken.kept, world.record().is_kept) == ("free", False, False)


@in_virtual_time
async def test_who_waits_for_a_kept_lock_is_told_no_dead_holder(world: World) -> None:
    """The error of a timeout says until when it is kept, and the event of the wait that it is."""
    async with world.client(holder="host:4711:job") as client, world.client() as other:
        async with client.lock("orders").hold(at_least=60.0):
            pass
        with pytest.raises(asynclock.AcquireTimeoutError, match="last seen held, kept until ") as caught:
            await other.lock("orders").acquire(timeout=0)

    assert "4711" not in str(caught.value)
    assert [event.reason for event in world.events if event.kind == "waiting"] == ["kept"]
