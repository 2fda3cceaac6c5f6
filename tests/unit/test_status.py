"""``status`` and ``list``: what a look at the locks tells."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest

import asynclock
from asynclock import LockStatus
from asynclock.record import parse_record
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
