"""Lines below the rules that no other test would miss: store, reaper, clocks, line and handles."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING

import pytest

from asynclock import AcquireTimeoutError, LeaseTakenOverError, LockChangedError, OutcomeUnknownError
from asynclock.backends.memory import MemoryBackend
from asynclock.clock import CARRY_SECONDS, Date, Instant, StoreTime
from asynclock.events import Events
from asynclock.protocol.decisions import Observation, Seen, judge
from asynclock.protocol.objects import LockObjects
from asynclock.protocol.timing import Timing
from asynclock.record import parse_record
from asynclock.testing.clocks import ManualClock
from asynclock.testing.faulty import Fault
from tests.unit.kit import (
    KEY,
    SETTINGS,
    STEADY,
    World,
    clock_of,
    faulty,
    hudi_record,
    in_virtual_time,
    our_record,
)

if TYPE_CHECKING:
    from asynclock import LeaseLostError, Written

TIMING = Timing.of(SETTINGS, resolution=0.0)


# Freeing a lock.


@in_virtual_time
async def test_a_release_waits_for_the_stores_pace(world: World) -> None:
    """A lock that is freed at once after it was taken costs no refused write (GCS: one a second)."""
    async with world.client() as client:
        faulty(client).min_write_interval = 1.0
        lease = await client.lock("orders").acquire()
        await lease.release()

        taken, freed = [each.at for each in world.writes()]
        assert freed - taken >= 1.0 - 0.02


@in_virtual_time
async def test_a_release_that_finds_a_corrupt_record_leaves_it(world: World) -> None:
    """It is neither ours nor free: nothing is written over it, and nothing is tried again [3, 9]."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        world.put(b"{}")
        before = len(world.journal)

        with pytest.raises(LeaseTakenOverError, match="corrupt"):
            await lease.release()
        await asyncio.sleep(5)

        assert [each.kind for each in world.journal[before:]] == ["put_if_match", "get"]
        assert world.store.body("orders.json") == b"{}"
        assert world.told() == ["acquired", "lost"]


@in_virtual_time
async def test_a_release_that_is_not_answered_begins_with_short_pauses(world: World) -> None:
    """A quarter of the poll interval, doubled each time: most failures pass in a moment [3]."""
    client = world.client()
    lease = await client.lock("orders").acquire()
    faulty(client).storm({Fault.UNAVAILABLE: 1.0})
    before = len(faulty(client).journal)
    await lease.release()

    tried = [each.at for each in faulty(client).journal[before:] if each.operation == "put_if_match"]
    gaps = [later - earlier for earlier, later in pairwise(tried)]
    for count, gap in enumerate(gaps[:4]):
        pause = TIMING.poll_interval / 4 * 2**count
        assert pause / 2 <= gap <= pause + 0.06


@in_virtual_time
async def test_a_late_renewal_is_freed_without_a_pause(world: World) -> None:
    """A release that was overtaken by a write of its own lease goes on at once, on what it found [3]."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        faulty(client).delay = (0.05, 0.05)
        faulty(client).inject(Fault.LATE, operation="put_if_match")
        await asyncio.sleep(1.06)

        began = world.now
        await lease.release()

        assert world.record().expired
        assert [each.applied for each in world.journal if each.kind == "put_if_match"] == [True, False, True]
        assert world.now - began == pytest.approx(0.06, abs=0.01)


# The line.


@pytest.mark.parametrize("turns", range(8))
@in_virtual_time
async def test_a_receiver_cancelled_in_any_turn_of_the_loop_leaves_the_line(world: World, turns: int) -> None:
    """The lock is freed, and nobody waits for who is gone [12]."""
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
async def test_what_was_freed_for_a_cancelled_receiver_is_remembered(world: World) -> None:
    """The next one acquires in one request: its client wrote last [13]."""
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


@in_virtual_time
async def test_a_timeout_names_who_holds_the_lock_now(world: World) -> None:
    """Not the client's own lease that ended before."""
    async with world.client() as client, world.client() as other:
        await (await client.lock("orders").acquire()).release()
        lease = await other.lock("orders").acquire()

        with pytest.raises(AcquireTimeoutError) as caught:
            await client.lock("orders").acquire(timeout=0.5)

        assert caught.value.status is not None
        assert caught.value.status.owner == lease.owner
        await lease.release()


@pytest.mark.parametrize("timeout", [None, 60])
@in_virtual_time
async def test_a_client_makes_way_for_two_poll_intervals_at_most(world: World, timeout: float | None) -> None:
    """After a run of its own it is away for one to two of them, and no longer [14]."""
    async with world.client() as client:
        lock = client.lock("orders")
        lease = await lock.acquire()
        await asyncio.sleep(TIMING.run_length)
        await lease.release()
        began = world.now

        lease = await lock.acquire(timeout=timeout)

        assert TIMING.poll_interval <= world.now - began <= 2 * TIMING.poll_interval + 0.1
        await lease.release()


@in_virtual_time
async def test_who_keeps_away_keeps_to_its_timeout(world: World) -> None:
    """A timeout that ends while the client makes way is no longer than it was asked to be."""
    async with world.client() as client:
        await client.release_all()
        began = world.now

        with pytest.raises(AcquireTimeoutError):
            await client.lock("orders").acquire(timeout=0.5)

        assert world.now - began == pytest.approx(0.5, abs=0.1)


# Breaking a lock.


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


@pytest.mark.parametrize("profile", [replace(STEADY, last_modified=False)], ids=["no last_modified"])
@in_virtual_time
async def test_an_operator_who_looks_twice_has_observed_the_lock(world: World) -> None:
    """Where no Date decides, a dead holder's lock is told to be expired after its validity [8]."""
    world.put(our_record(valid_until=world.now + 12))
    async with world.client() as operator:
        lock = operator.lock("orders")
        first = await lock.status()
        await asyncio.sleep(TIMING.validity)

        assert first.state == "held"
        assert (await lock.status()).state == "expired"


# What is known of the store's time.


def some_store(resolution: float) -> LockObjects:
    """Return the store of a client whose backend's Dates are cut to ``resolution``."""
    return LockObjects(
        backend=MemoryBackend(),
        clock=ManualClock(),
        timing=Timing.of(SETTINGS, resolution=resolution),
        rng=Random(1),
        events=Events(),
        holder="host",
    )


def test_a_token_is_settled_once_the_earliest_time_has_reached_it() -> None:
    """The cut-off part of a Date has passed already when it is read: ``lo + R`` decides [11]."""
    store = some_store(1.0)
    now = store.now()
    store.time.observe(now.wall, sent=now, arrived=now)

    assert store.until_settled(now.wall + 1.0) == 0.0
    assert store.until_settled(now.wall - 9.0) == 0.0
    assert store.until_settled(now.wall + 1.5) == pytest.approx(0.5)


def test_nobody_waits_longer_for_a_token_than_any_can_be_ahead() -> None:
    """Twice S + R is the most, whatever is known of the store's time [11]."""
    store = some_store(1.0)

    assert store.until_settled(store.now().wall) == 2 * store.timing.slack


def test_the_stores_time_lies_between_two_bounds() -> None:
    """``lo`` counts from the arrival, ``hi`` from the sending, and a cut-off second is above [4, 11]."""
    clock = ManualClock()
    time = StoreTime(skew=2.0, resolution=1.0)
    sent = Instant.now(clock)
    clock.advance(0.5)
    time.observe(sent.wall, sent=sent, arrived=Instant.now(clock))
    clock.advance(100.0)
    now = Instant.now(clock)

    bounds = time.bounds(now)

    assert bounds is not None
    assert [bound - sent.wall for bound in bounds] == pytest.approx([100.0, 101.5])
    assert time.latest(now) == bounds[1]


def test_what_is_published_by_an_old_date_is_stretched_by_its_age() -> None:
    """Beyond ten minutes 1 % is added for a boot clock that drifts [4]."""
    clock = ManualClock()
    time = StoreTime(skew=2.0, resolution=1.0)
    sent = Instant.now(clock)
    time.observe(sent.wall, sent=sent, arrived=sent)
    clock.advance(1000.0)

    latest = time.latest(Instant.now(clock))

    assert latest is not None
    assert latest - sent.wall == pytest.approx(1.0 + 1010.0)


@pytest.mark.parametrize(("step", "value"), [(5.0, 1.5), (5.0, 5.0), (-5.0, -0.5), (-5.0, -3.5)])
def test_a_wall_clock_that_steps_during_a_request_is_no_witness(step: float, value: float) -> None:
    """Both its readings must bear the Date out, each carried over the trip."""
    clock = ManualClock()
    sent = Instant.now(clock)
    clock.advance(1.0)
    clock.step(step)
    time = StoreTime(skew=2.0, resolution=1.0)

    date = time.observe(sent.wall + value, sent=sent, arrived=Instant.now(clock))

    assert date is not None
    assert not date.by_wall


@pytest.mark.parametrize(("apart", "usable"), [(0.3, False), (1.0, True)])
def test_witnesses_are_a_second_apart(apart: float, *, usable: bool) -> None:
    """Answers of one moment are one witness: one wrong node may have given them all."""
    clock = ManualClock()
    time = StoreTime(skew=2.0, resolution=1.0)

    def look() -> Date | None:
        now = Instant.now(clock)
        return time.observe(now.wall + 1000.0, sent=now, arrived=now)

    for _ in range(3):
        look()
        clock.advance(apart)
    clock.advance(2.0)
    date = look()

    assert date is not None
    assert date.usable is usable


DAYS = 24 * 3600.0


@pytest.mark.parametrize(("beyond", "state"), [(-0.1, "held"), (0.1, "corrupt")])
@in_virtual_time
async def test_a_promise_beyond_any_validity_is_corrupt(world: World, beyond: float, state: str) -> None:
    """More than 8 days after the latest that the store's clock may show [9]."""
    world.put(hudi_record(world.now + 0.01 + SETTINGS.max_clock_skew + 8 * DAYS + beyond))
    async with world.client() as client:
        assert (await client.lock("orders").status()).state == state


@in_virtual_time
async def test_a_date_without_a_witness_makes_no_record_corrupt(world: World) -> None:
    """Where the machine's wall clock and the store disagree, neither is believed."""
    world.put(hudi_record(world.now + 9 * DAYS))
    async with world.client(wall_error=1000.0) as client:
        assert (await client.lock("orders").status()).state == "held"


@in_virtual_time
async def test_renewals_keep_the_stores_time_known(world: World) -> None:
    """After hours of one lease the next one takes one request: each write's answer bears a Date."""
    async with world.client() as client:
        lock = client.lock("orders")
        lease = await lock.acquire()
        await asyncio.sleep(CARRY_SECONDS + 100)
        await lease.release()
        before = len(world.journal)

        await (await lock.acquire()).release()

        assert [each.kind for each in world.journal[before:]] == ["put_if_match"] * 2


# What an answer says of the lock.


@pytest.mark.parametrize(
    ("timing", "lease", "under_way"),
    [
        (Timing.of(SETTINGS, resolution=0.0), 30.0, 6.0),
        (Timing.of(SETTINGS, resolution=1.0), 5.0, 2.0),
        (replace(TIMING, skew=0.2), 2.0, 1.0),
    ],
    ids=["a fifth of its lease", "skew and resolution", "a second"],
)
@pytest.mark.parametrize("early", [True, False])
def test_a_write_dated_before_it_was_sent_is_observed(
    timing: Timing, lease: float, under_way: float, *, early: bool
) -> None:
    """No more than a request's time and all skew may lie between the promise and the dating [8]."""
    modified = 1_700_000_000.0
    valid_until = modified + lease + 2 * timing.slack + under_way + (0.01 if early else -0.01)
    record = parse_record(our_record(valid_until=valid_until, lease_ms=round(lease * 1000)))
    now = Instant(0.0, 0.0, modified + 1000.0)
    seen = Seen(record, "v1", modified, Date(now.wall, now, now, usable=True, by_wall=True), now)
    observation = Observation()
    observation.note(seen)

    assert judge(seen, observation, timing).free is not early


def test_a_waiter_is_told_when_its_observation_ends() -> None:
    """Where no Date tells, the next look is due when the record has been seen for long enough."""
    record = parse_record(our_record(valid_until=1_700_000_013.0))
    observation = Observation()
    for monotonic in (0.0, 9.9):
        now = Instant(monotonic, monotonic, 0.0)
        seen = Seen(record, "v1", None, None, now)
        observation.note(seen)

    assert judge(seen, observation, TIMING).wait == pytest.approx(0.1)


# One request.


@pytest.mark.parametrize(("timeout", "lasting"), [(None, 2.0), (100.0, 2.0), (0.5, 0.5)])
@in_virtual_time
async def test_a_request_that_is_not_answered_ends_in_time(
    world: World, timeout: float | None, lasting: float
) -> None:
    """After a fifth of the validity, or sooner where less is left, and the error says so [5]."""
    client = world.client()
    began = world.now

    with pytest.raises(OutcomeUnknownError, match=f"no answer within {lasting:g} s"):
        await client._objects.request("put_if_match", KEY, asyncio.sleep(1000), timeout)

    assert world.now - began == pytest.approx(lasting, abs=0.001)


# The handle.


@in_virtual_time
async def test_who_watches_a_lease_too_late_is_told_of_its_loss(world: World) -> None:
    """A loss is told once to each who asks, also after it has happened."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        clock_of(client).step(20.0)
        assert not lease.held
        await asyncio.sleep(0.1)
        told: list[LeaseLostError] = []

        lease.watch(told.append)
        await asyncio.sleep(0.1)

        assert told == [lease.lost]
