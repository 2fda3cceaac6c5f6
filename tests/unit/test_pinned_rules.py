"""Lines of the rules that no other test would miss, a moment each in which they decide."""

from __future__ import annotations

import asyncio
import threading
import time
from contextvars import ContextVar
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

import asynclock
from asynclock import (
    AccessDeniedError,
    AcquireTimeoutError,
    BackendError,
    ConfigError,
    LeaseExpiredError,
    LeaseLostError,
    LeaseSettings,
    LeaseTakenOverError,
    RecordCorruptError,
    UnsupportedBackendError,
    Written,
    sync,
)
from asynclock.lock import Lock
from asynclock.protocol.timing import Timing
from asynclock.protocol.waiting import Fairness
from asynclock.record import LockRecord, parse_record
from asynclock.testing.clocks import ManualClock
from asynclock.testing.faulty import Fault
from tests.unit.kit import (
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
    from asynclock import LockClient
    from asynclock.protocol.held import HeldLock
    from asynclock.testing.store import Operation

TIMING = Timing.of(SETTINGS, resolution=0.0)
BELIEF = TIMING.belief


def writes_by_us(world: World) -> list[tuple[Operation, LockRecord]]:
    """Return the writes of clients that changed the lock, and what they wrote."""
    return [(each, parse_record(each.body or b"")) for each in world.writes() if each.client != "stranger"]


async def while_renewing(lease: asynclock.Lease) -> None:
    """Wait until a renewal of the lease is under way."""
    while not lease._held.renewing:  # noqa: ASYNC110  nothing tells of the sending
        await asyncio.sleep(0.001)


# Waiting for the store's pace (GCS: one write a second of one object).


@in_virtual_time
async def test_a_renewal_whose_time_came_too_late_is_not_sent(world: World) -> None:
    """The deadline is looked at after the wait for the store's pace, not only before it [5]."""
    client = world.client()
    faulty(client).min_write_interval = 2 * BELIEF
    lease = await client.lock("orders").acquire()

    await asyncio.sleep(3 * BELIEF)

    assert isinstance(lease.lost, LeaseExpiredError)
    assert len(writes_by_us(world)) == 1


@in_virtual_time
async def test_nothing_is_handed_on_past_the_givers_deadline(world: World) -> None:
    """A receiver that had to wait too long frees what it was handed, and acquires anew [15]."""
    client = world.client()
    faulty(client).min_write_interval = BELIEF + 1
    lock = client.lock("orders")
    giver = await lock.acquire()
    receiving = asyncio.create_task(lock.acquire(timeout=60))
    await asyncio.sleep(1)
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


# Hand-off.


@in_virtual_time
async def test_a_token_from_the_future_is_not_handed_on(world: World) -> None:
    """A lease that did not wait for its token frees the lock without it: nobody builds on it [11, 15]."""
    world.put(hudi_record(world.now + 5, expired=True))
    client = world.client()
    lease = await Lock(client.engine("orders"), client.home, fencing=False).acquire()
    receiving = asyncio.create_task(client.lock("orders").acquire())
    await asyncio.sleep(0.1)

    await lease.release()

    (_, freed) = writes_by_us(world)[1]
    assert freed.expired
    assert freed.epoch is None
    assert (await receiving).held
    await client.aclose()


@in_virtual_time
async def test_a_hand_off_is_told_as_a_release_and_an_acquisition(world: World) -> None:
    """Who counts events sees every lease end, handed on or freed."""
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
    """Where the giver's record still stands, the receiver does not wait for it to expire [15]."""
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
    """A record with another nonce of the giver is written over as well, on the version that it has [15]."""
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
async def test_a_lock_that_another_took_over_is_not_handed_on_nor_freed(world: World) -> None:
    """What was handed on is forgotten once another's record stands there: no write of ours aims at it."""
    async with world.client() as client:
        lock = client.lock("orders")
        giver = await lock.acquire()
        receiving = asyncio.create_task(lock.acquire(timeout=2 * BELIEF))
        await asyncio.sleep(0.1)
        world.put(our_record(valid_until=world.now + 1000, lease_ms=1_000_000))
        with pytest.raises(LeaseTakenOverError):
            await giver.release()

        with pytest.raises(AcquireTimeoutError):
            await receiving

        tried = [each for each in world.journal if each.kind == "put_if_match"]
        assert len(tried) == 1
        assert "release_unconfirmed" not in world.told()


# Renewal.


@pytest.mark.parametrize("nth", [1, 2], ids=["acquisition", "renewal"])
@in_virtual_time
async def test_the_next_renewal_counts_from_the_sending_of_the_last_write(world: World, nth: int) -> None:
    """A slow answer does not put it off [5]."""
    async with world.client() as client:
        faulty(client).delay = (0.7, 0.7)
        faulty(client).inject(Fault.SLOW, operation="put_if_absent" if nth == 1 else "put_if_match")
        lease = await client.lock("orders").acquire()
        await asyncio.sleep(3)

        applied = [each.at for each, _ in writes_by_us(world)]
        assert applied[nth] - applied[nth - 1] == pytest.approx(TIMING.renew_interval, abs=0.1)
        await lease.release()


@in_virtual_time
async def test_renewals_inherit_nothing_of_who_acquired(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No trace, transaction or log context of the acquirer is seen by what goes on for hours."""
    request = ContextVar("request", default="nobody's")
    client = world.client()
    replace_if_match = faulty(client).put_if_match
    seen: list[str] = []

    async def noted(key: str, body: bytes, version: str) -> Written:
        seen.append(request.get())
        return await replace_if_match(key, body, version)

    monkeypatch.setattr(faulty(client), "put_if_match", noted)
    request.set("mine")
    lease = await client.lock("orders").acquire()
    await asyncio.sleep(2.5)
    renewed = list(seen)
    await lease.release()

    assert renewed == ["nobody's"] * 2
    await client.aclose()


# The end of a lease.


@in_virtual_time
async def test_a_release_that_is_not_answered_is_tried_less_and_less_often(world: World) -> None:
    """From a quarter of the poll interval up to the renew interval: a store in trouble is spared [3]."""
    client = world.client()
    lease = await client.lock("orders").acquire()
    faulty(client).storm({Fault.UNAVAILABLE: 1.0})
    before = len(faulty(client).journal)
    await lease.release()
    await asyncio.sleep(15)

    tried = [each for each in faulty(client).journal[before:] if each.operation == "put_if_match"]
    assert 8 < len(tried) < 40


@in_virtual_time
async def test_anothers_free_record_is_no_release_of_ours(world: World) -> None:
    """Who finds that the lock has gone through other hands meanwhile does not claim to have freed it."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        world.put(our_record(valid_until=world.now, expired=True))

        with pytest.raises(LeaseTakenOverError):
            await lease.release()

        assert world.told() == ["acquired", "lost"]


@in_virtual_time
async def test_closing_waits_for_the_renewal_under_way(world: World) -> None:
    """``aclose`` too sends its release when the renewal is answered, not beside it [6]."""
    client = world.client()
    lease = await client.lock("orders").acquire()
    await while_renewing(lease)

    await client.aclose()

    assert world.record().expired
    assert all(each.applied for each in world.journal if each.kind.startswith("put"))


@in_virtual_time
async def test_the_first_reason_of_a_loss_stays(world: World) -> None:
    """A renewal that finds another owner after the deadline has passed changes and tells nothing [6]."""
    client = world.client()
    lease = await client.lock("orders").acquire()
    world.put(our_record(valid_until=world.now + 30))
    confirming = asyncio.create_task(lease.confirm())
    await asyncio.sleep(0.03)  # its write was refused, and the object is being read
    clock_of(client).step(20.0)
    first = lease.lost

    with pytest.raises(LeaseExpiredError):
        await confirming
    await asyncio.sleep(1)

    assert isinstance(first, LeaseExpiredError)
    assert lease.lost is first
    assert world.told().count("lost") == 1


@in_virtual_time
async def test_a_confirmation_beside_a_release_is_told_so(world: World) -> None:
    """Of a lease that is released meanwhile nothing is renewed, and ``confirm`` says why."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire()

        _, confirmed = await asyncio.gather(lease.release(), lease.confirm(), return_exceptions=True)

        assert isinstance(confirmed, LeaseLostError)
        assert confirmed.reason == "it was released"
        assert [record.expired for _, record in writes_by_us(world)] == [False, True]


def test_a_loss_that_another_thread_sees_first_is_told() -> None:
    """Whoever asks the lease first after its deadline makes the loss known to all who watch it."""
    told = threading.Event()
    clock = ManualClock(wall=time.time())  # that of the store
    with sync.connect("memory://", settings=LeaseSettings(validity=300.0), clock=clock) as client:
        lease = client.lock("orders").acquire()
        lease.on_lost(lambda _: told.set())
        client.lock("orders").status()  # a round trip: it is being watched now

        clock.advance(300.0)

        assert not lease.held
        assert told.wait(5)


@in_virtual_time
async def test_a_loss_in_the_last_instant_of_hold_is_raised(world: World) -> None:
    """A body that ends while its lock is still held, and whose release comes too late, is told."""

    async def body(client: LockClient) -> None:
        async with client.lock("orders").hold() as lease:
            release = lease._end

            async def too_late(tenure: HeldLock) -> bool:
                clock_of(client).step(20.0)
                return await release(tenure)

            lease._end = too_late

    async with world.client() as client:
        with pytest.raises(LeaseExpiredError):
            await body(client)


# Acquiring.


@in_virtual_time
async def test_a_lease_lost_while_its_token_settles_is_not_handed_out(world: World) -> None:
    """Who is overtaken during the wait behind a Hudi writer goes on trying: what it gets is held [11]."""
    settings = LeaseSettings(validity=10.0, safety_margin=1.0, max_clock_skew=2.0, poll_interval=0.25)
    world.put(hudi_record(world.now, expired=True))
    client, operator = world.client(settings), world.client(settings)
    acquiring = asyncio.create_task(client.lock("orders").acquire(timeout=60))
    await asyncio.sleep(0.3)
    broken = world.record()
    await operator.lock("orders").break_lock(await operator.lock("orders").status(), force=True)

    lease = await acquiring

    assert not broken.expired
    assert lease.held
    assert [record.expired for _, record in writes_by_us(world)][-3:] == [False, True, False]
    await client.aclose()


@pytest.mark.parametrize("late", [8.5, 20.0], ids=["little left", "nothing left"])
@in_virtual_time
async def test_a_late_answer_costs_one_more_write(
    world: World, monkeypatch: pytest.MonkeyPatch, late: float
) -> None:
    """With little left it is a renewal, with nothing left a new attempt; nobody is told of a loss [7]."""
    client = world.client()
    create = faulty(client).put_if_absent

    async def answered_late(key: str, body: bytes) -> Written:
        written = await create(key, body)
        clock_of(client).step(late)
        return written

    monkeypatch.setattr(faulty(client), "put_if_absent", answered_late)

    lease = await client.lock("orders").acquire()

    assert lease.held
    assert len(writes_by_us(world)) == 2
    assert world.told() == (["renewed"] if late < BELIEF else []) + ["acquired"]
    await client.aclose()


@in_virtual_time
async def test_an_acquisition_whose_renewal_came_too_late_goes_on(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What ran out while it was renewed is not handed out: it is acquired anew [7]."""
    client = world.client()
    create, replace_if_match = faulty(client).put_if_absent, faulty(client).put_if_match

    async def answered_late(key: str, body: bytes) -> Written:
        written = await create(key, body)
        clock_of(client).step(8.5)
        return written

    async def answered_too_late(key: str, body: bytes, version: str) -> Written:
        monkeypatch.setattr(faulty(client), "put_if_match", replace_if_match)
        written = await replace_if_match(key, body, version)
        clock_of(client).step(8.5)
        return written

    monkeypatch.setattr(faulty(client), "put_if_absent", answered_late)
    monkeypatch.setattr(faulty(client), "put_if_match", answered_too_late)

    lease = await client.lock("orders").acquire()

    assert lease.held
    await client.aclose()


@in_virtual_time
async def test_a_timeout_shorter_than_a_round_trip_gets_a_free_lock(world: World) -> None:
    """The requests of an acquisition may outlast its timeout: cut off, they would only leave zombies."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire(timeout=0.005)

        assert lease.held
        await lease.release()


@in_virtual_time
async def test_a_refusal_of_the_store_is_told_at_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a permission to write, waiting would not help, and there is nothing to free."""
    client = world.client()
    tries = 0

    async def refuse(key: str, _: bytes) -> Written:
        nonlocal tries
        tries += 1
        raise AccessDeniedError(backend="store", operation="put_if_absent", key=key, detail="403")

    monkeypatch.setattr(faulty(client), "put_if_absent", refuse)
    began = world.now

    with pytest.raises(AccessDeniedError):
        await client.lock("orders").acquire(timeout=60)

    assert world.now - began < 1
    await asyncio.sleep(5)
    assert tries == 1


@in_virtual_time
async def test_no_time_to_wait_ends_as_a_timeout(world: World) -> None:
    """On a store that does not answer ``acquire(timeout=0)`` is out of time; the failure is its cause."""
    async with world.client() as client:
        faulty(client).inject(Fault.UNAVAILABLE, operation="get")

        with pytest.raises(AcquireTimeoutError) as caught:
            await client.lock("orders").acquire(timeout=0)

        assert isinstance(caught.value.__cause__, BackendError)


@in_virtual_time
async def test_no_time_to_wait_hides_no_corrupt_record(world: World) -> None:
    """What waiting would not change is raised as it is, whatever the timeout."""
    world.put(b"{}")
    async with world.client() as client:
        with pytest.raises(RecordCorruptError):
            await client.lock("orders").acquire(timeout=0)


@pytest.mark.parametrize("timeout", [0, 60])
@in_virtual_time
async def test_a_refusal_to_read_is_told_at_once(
    world: World, monkeypatch: pytest.MonkeyPatch, timeout: float
) -> None:
    """A missing permission is no timeout, with much time or none."""
    client = world.client()

    async def refuse(key: str) -> None:
        raise AccessDeniedError(backend="store", operation="get", key=key, detail="403")

    monkeypatch.setattr(faulty(client), "get", refuse)
    began = world.now

    with pytest.raises(AccessDeniedError):
        await client.lock("orders").acquire(timeout=timeout)

    assert world.now - began < 1


@in_virtual_time
async def test_one_try_tells_that_its_write_was_refused(world: World) -> None:
    """A 409 that changed nothing says nothing of who holds the lock: it is raised, not None."""
    async with world.client() as client:
        faulty(client).inject(Fault.CONFLICT, operation="put_if_absent")

        with pytest.raises(BackendError, match="409"):
            await client.lock("orders").try_acquire()


@pytest.mark.parametrize("remembers", [False, True])
@in_virtual_time
async def test_one_try_is_one_look(world: World, monkeypatch: pytest.MonkeyPatch, *, remembers: bool) -> None:
    """However often others are faster, one try looks once, or twice where its memory was out of date."""
    client = world.client()
    world.put(our_record(valid_until=world.now, expired=True))
    if remembers:
        await (await client.lock("orders").acquire()).release()
    replace = faulty(client).put_if_match
    tries = 0

    async def beaten(key: str, body: bytes, version: str) -> Written:
        nonlocal tries
        tries += 1
        assert tries < 5
        world.put(our_record(valid_until=world.now, expired=True, nonce=f"{tries:032x}"))
        return await replace(key, body, version)

    monkeypatch.setattr(faulty(client), "put_if_match", beaten)

    assert await client.lock("orders").try_acquire() is None
    assert tries == 1 + remembers
    await client.aclose()


@in_virtual_time
async def test_a_write_that_changed_nothing_is_not_repeated_at_once(world: World) -> None:
    """Between two writes on the same base a quarter of the poll interval passes, and a round trip."""
    async with world.client() as client:
        faulty(client).storm({Fault.CONFLICT: 1.0})
        with pytest.raises(AcquireTimeoutError):
            await client.lock("orders").acquire(timeout=3)
        sent = [each.at for each in faulty(client).journal if each.operation == "put_if_absent"]
        faulty(client).calm()

    pauses = [later - earlier for earlier, later in pairwise(sent)]
    assert len(pauses) > 10
    assert min(pauses[:-1]) >= TIMING.poll_interval / 4
    assert max(pauses) < TIMING.poll_interval / 2


@in_virtual_time
async def test_after_a_signal_nothing_is_acquired_for_a_while(world: World) -> None:
    """Who waits when a process may be ending takes no lock before it is known to live on [18]."""
    async with world.client() as client, world.client() as other:
        held = await other.lock("orders").acquire()
        acquiring = asyncio.create_task(client.lock("orders").acquire())
        await asyncio.sleep(0.5)
        await client.release_all(loss="a signal")
        until = world.now + 2 * client.exit_bound
        await held.release()

        lease = await acquiring

        assert until <= world.now < until + 1
        await lease.release()


@in_virtual_time
async def test_a_lock_that_waits_to_be_handed_on_is_freed_when_the_process_ends(world: World) -> None:
    """A signal between a release and its receiver's write leaves no lock to expire [18]."""
    async with world.client() as client:
        faulty(client).min_write_interval = 1.0
        lock = client.lock("orders")
        giver = await lock.acquire()
        receiving = asyncio.create_task(lock.acquire())
        await asyncio.sleep(0.2)
        await giver.release()
        await asyncio.sleep(0.2)

        await client.release_all(loss="a signal")

        assert world.record().expired
        receiving.cancel()


@in_virtual_time
async def test_after_a_signal_a_lock_that_is_new_to_the_client_is_not_acquired_either(world: World) -> None:
    """The process may be ending, whichever lock is asked for [18]."""
    async with world.client() as client:
        _held = await client.lock("stocks").acquire()
        await client.release_all(loss="a signal")

        assert await client.lock("orders").try_acquire() is None


@pytest.mark.parametrize("profile", [replace(STEADY, dates=False)], ids=["no Dates"])
@in_virtual_time
async def test_without_dates_too_a_remembered_release_saves_the_look(world: World) -> None:
    """The version of the own last release is enough to acquire in one request [13]."""
    async with world.client() as client:
        for _ in range(2):
            await (await client.lock("orders").acquire()).release()

        assert [each.kind for each in world.journal] == ["get", "put_if_absent", *["put_if_match"] * 3]


@pytest.mark.parametrize("profile", [replace(STEADY, dates=False)], ids=["no Dates"])
@in_virtual_time
async def test_without_dates_the_first_token_is_the_wall_clocks(world: World) -> None:
    """In microseconds, as those made of Dates are [11]."""
    async with world.client(wall_error=100.0) as client, client.lock("orders").hold() as lease:
        assert lease.fencing_token / 1e6 == pytest.approx(world.now + 100.0, abs=0.1, rel=0)


@pytest.mark.parametrize("profile", [replace(STEADY, dates=False)], ids=["no Dates"])
@in_virtual_time
async def test_without_dates_a_token_that_was_dropped_is_refused(world: World) -> None:
    """After a Hudi writer there is nothing to make a higher token from: an error says so [11]."""
    world.put(hudi_record(world.now, expired=True))
    async with world.client() as client:
        with pytest.raises(UnsupportedBackendError, match="Hudi writer dropped the fencing token"):
            await client.lock("orders").acquire()

    assert writes_by_us(world) == []


@in_virtual_time
async def test_one_try_makes_way_as_well(world: World) -> None:
    """While a client keeps away, a try asks the store nothing and gets nothing."""
    async with world.client() as client:
        lock = client.lock("orders")
        await client.release_all()

        assert await lock.try_acquire() is None
        assert world.journal == []
        await asyncio.sleep(2 * client.exit_bound)
        lease = await lock.try_acquire()
        assert lease is not None
        await lease.release()


@in_virtual_time
async def test_a_waiter_cancelled_as_its_turn_comes_passes_it_on(world: World) -> None:
    """If nobody else waits, the line is free again, not waiting for somebody who is gone [12]."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        waiting = asyncio.create_task(client.lock("orders").acquire())
        await asyncio.sleep(0.1)
        (call,) = client._in_flight._acquisitions
        lease._held.ended.add_done_callback(lambda _: call.cancel())
        clock_of(client).step(20.0)
        assert not lease.held  # its end gives the waiter the turn
        clock_of(client).step(-20.0)

        with pytest.raises(asyncio.CancelledError):
            await waiting

        await (await client.lock("orders").acquire(timeout=30)).release()


@in_virtual_time
async def test_a_client_keeps_nothing_of_what_has_ended(world: World) -> None:
    """However often a lock is taken, no call, task or lease of it stays behind."""
    async with world.client() as client:
        for _ in range(3):
            await (await client.lock("orders").acquire()).release()
        client._in_flight.close(ConfigError(setting="client", value="orders", reason="it was closed"))

        assert not client._in_flight.pending
        assert not client._renewals.held


# Turns.


def test_a_pause_between_two_turns_ends_the_run() -> None:
    """Who stayed away for more than two poll intervals has let the others have their chance [14]."""
    turns = Fairness(TIMING)
    turns.began(0.0, started_at=0.0, owner="a", predecessor=None)
    turns.ended(1.0, jittered=lambda _: 1.0)
    again = 1.0 + 2 * TIMING.poll_interval + 0.1

    turns.began(again, started_at=again, owner="b", predecessor="a")

    assert turns.may_hand_over(again + TIMING.run_length - 0.1)


def test_who_has_made_way_begins_a_new_run() -> None:
    """A client that nobody else wanted to pass does not make way again after its next turn [14]."""
    turns = Fairness(TIMING)
    turns.began(0.0, started_at=0.0, owner="a", predecessor=None)
    turns.ended(TIMING.run_length, jittered=lambda _: 1.0)
    back = TIMING.run_length + turns.away_for(TIMING.run_length)

    turns.began(back, started_at=TIMING.run_length, owner="b", predecessor="a")
    turns.ended(back + 0.1, jittered=lambda _: 1.0)

    assert turns.away_for(back + 0.1) <= 0


def test_a_short_stand_back_does_not_cut_a_long_one_short() -> None:
    """Whoever keeps away for two reasons keeps away for the longer one."""
    turns = Fairness(TIMING)

    turns.stand_back(4.0)
    turns.stand_back(1.0)

    assert turns.away_for(0.0) == pytest.approx(4.0)
