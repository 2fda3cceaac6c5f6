"""Fencing tokens: they rise, follow the store's time, and none from the future is left behind (rule 11)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from random import Random

import pytest

import asynclock
from asynclock import LeaseSettings, UnsupportedBackendError
from asynclock._core.protocol.objects import LockObjects
from asynclock._core.protocol.timing import Timing
from asynclock._core.record import parse_record
from asynclock.backends._memory import MemoryBackend
from asynclock.events import Events
from asynclock.testing._clocks import EPOCH, ManualClock
from asynclock.testing._faulty import Fault
from asynclock.testing._store import StoreProfile
from tests.unit.kit import SETTINGS, STEADY, World, faulty, hudi_record, in_virtual_time, writes_by_us

FIRST_WITHOUT_A_DATE = (0.1, 2 * 86_400.0, 2 * 3600.0)


@in_virtual_time
async def test_tokens_rise_with_every_acquisition(world: World) -> None:
    """Each acquisition has a higher token than all before, kept through renewal and release."""
    tokens = []
    async with world.client() as one, world.client(wall_error=0.9) as two:
        for client in (one, two, one, one, two):
            async with client.lock("orders").hold() as lease:
                tokens.append(lease.fencing_token)
                await lease.confirm()
                assert world.record().epoch == lease.fencing_token

    assert tokens == sorted(set(tokens))


def test_the_first_token_is_store_time_in_microseconds() -> None:
    """The token of a new lock is the store's time, not this machine's, plus the resolution."""
    world = World(StoreProfile(latency=(0.01, 0.0), slow=0.0, resolution=1.0))

    async def story() -> None:
        async with world.client(wall_error=1.5) as client, client.lock("orders").hold() as lease:
            assert (EPOCH + 0.0) * 1e6 <= lease.fencing_token <= (EPOCH + 2.1) * 1e6

    world.loop.run_until_complete(story())
    world.loop.close()


@pytest.mark.parametrize("wall_error", FIRST_WITHOUT_A_DATE)
@pytest.mark.parametrize("answers", [1, 3])
def test_one_answer_without_a_date_does_not_make_a_token_of_the_wall_clock(
    world: World, wall_error: float, answers: int
) -> None:
    """A store that sends Dates is asked again: the token and the promise come from its clock."""

    async def story() -> None:
        async with world.client(wall_error=wall_error) as client:
            faulty(client).inject(Fault.NO_DATE, operation="get", times=answers)
            lease = await client.lock("orders").acquire()

            assert lease.fencing_token / 1e6 == pytest.approx(world.now, abs=1.0, rel=0)
            assert world.record().valid_until_ms / 1000 == pytest.approx(
                world.now + SETTINGS.validity, abs=60.0, rel=0
            )

    world.loop.run_until_complete(story())


@in_virtual_time
async def test_a_date_of_more_than_ten_minutes_ago_makes_no_token(world: World) -> None:
    """After a long pause the lock is read before it is written."""
    async with world.client() as client:
        await (await client.lock("orders").acquire()).release()
        await asyncio.sleep(601)
        before, began = len(world.journal), world.loop.time()

        lease = await client.lock("orders").acquire()

        assert [each.kind for each in world.journal[before:]] == ["get", "put_if_match"]
        assert world.journal[before].at - began < 0.1
        await lease.release()


@pytest.mark.parametrize("profile", [replace(STEADY, dates=False)], ids=["no Dates"])
@in_virtual_time
async def test_without_dates_the_first_token_is_wall_clock_time(world: World) -> None:
    """It counts microseconds, as tokens made of Dates do (rule 11)."""
    async with world.client(wall_error=100.0) as client, client.lock("orders").hold() as lease:
        assert lease.fencing_token / 1e6 == pytest.approx(world.now + 100.0, abs=0.1, rel=0)


@pytest.mark.parametrize("profile", [replace(STEADY, dates=False)], ids=["no Dates"])
@in_virtual_time
async def test_without_dates_a_dropped_token_is_an_error(world: World) -> None:
    """After a Hudi writer no higher token can be made, and the error says so (rule 11)."""
    world.put(hudi_record(world.now, expired=True))
    async with world.client() as client:
        with pytest.raises(UnsupportedBackendError, match="Hudi writer dropped the fencing token"):
            await client.lock("orders").acquire()

    assert writes_by_us(world) == []


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
async def test_a_token_from_the_future_is_in_no_free_record(world: World) -> None:
    """An acquisition that gives up waiting for its token drops it: no successor builds on it (rule 11)."""
    world.put(hudi_record(world.now + 5, expired=True))
    async with world.client() as client:
        with pytest.raises(asynclock.AcquireTimeoutError):
            await client.lock("orders").acquire(timeout=0.3)
        await asyncio.sleep(5)
        assert world.record().expired

    for write in world.writes():
        record = parse_record(write.body or b"")
        if record.expired and record.epoch is not None:
            assert record.epoch <= (EPOCH + write.at) * 1e6


@in_virtual_time
async def test_the_clean_up_leaves_no_token_from_the_future(world: World) -> None:
    """The free record written against an acquisition of unknown outcome has no such token (rules 3, 11)."""
    world.put(hudi_record(world.now + 5, expired=True))
    client = world.client()
    faulty(client).inject(Fault.REQUEST_LOST, operation="put_if_match")
    acquiring = asyncio.create_task(client.lock("orders").acquire())
    while not faulty(client).applied:  # noqa: ASYNC110  nothing tells of the sending
        await asyncio.sleep(0.001)
    acquiring.cancel()
    await asyncio.sleep(3)

    assert world.writes()[-1].client != "stranger"
    assert world.record().epoch is None
    await client.aclose()


@in_virtual_time
async def test_a_lease_lost_while_its_token_settles_is_not_handed_out(world: World) -> None:
    """An acquisition that is broken during the wait behind a Hudi writer goes on trying (rule 11)."""
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


@pytest.mark.parametrize("profile", [replace(STEADY, resolution=1.0)], ids=["whole seconds"])
@in_virtual_time
async def test_a_token_that_follows_one_from_the_future_is_waited_for_too(world: World) -> None:
    """A write that is seen too late to be believed in is written over, under its token plus one (rule 11)."""
    world.put(hudi_record(world.now, expired=True))
    client = world.client(LeaseSettings(validity=4.0, safety_margin=2.0, max_clock_skew=2.0))
    backend = faulty(client)
    backend.inject(Fault.REPLY_LOST, operation="put_if_match")
    acquiring = asyncio.create_task(client.lock("orders").acquire())
    while not backend.applied:  # noqa: ASYNC110  nothing tells of the sending
        await asyncio.sleep(0.001)
    backend.storm({Fault.REQUEST_LOST: 1.0})
    await asyncio.sleep(2.05)
    backend.calm()

    lease = await acquiring

    assert lease.fencing_token <= (world.now + 1.0) * 1e6  # store time is known to a second
    await client.aclose()


@in_virtual_time
async def test_a_token_that_was_settled_stays_settled(world: World) -> None:
    """After a long lease without a recent Date the release keeps the token."""
    world.put(hudi_record(world.now, expired=True))
    lease = await world.client(LeaseSettings(validity=7200.0)).lock("orders").acquire()
    await asyncio.sleep(700.0)

    await lease.release()

    assert world.record().epoch == lease.fencing_token


def some_store(resolution: float) -> LockObjects:
    """Return the store of a client whose backend's Dates are cut to ``resolution``."""
    return LockObjects(
        backend=MemoryBackend(),
        clock=ManualClock(),
        timing=Timing(SETTINGS, resolution=resolution),
        rng=Random(1),
        events=Events(),
        holder="host",
    )


@in_virtual_time
async def test_a_known_token_is_handed_out_at_once(world: World) -> None:
    """Only a dropped token makes anyone wait: neither the first one nor one above its predecessor."""
    async with world.client() as first, world.client() as second:
        for client in (first, second):
            async with client.lock("orders").hold() as lease:
                assert lease._held.tenure.head.settled_at is None


def test_a_token_is_settled_once_the_earliest_time_has_reached_it() -> None:
    """The cut-off part of a Date has passed already when it is read: ``lo + R`` decides (rule 11)."""
    store = some_store(1.0)
    now = store.now()
    store.time.observe(now.wall, sent=now, arrived=now)

    assert store.issuer.until_settled(now.wall + 1.0) == 0.0
    assert store.issuer.until_settled(now.wall - 9.0) == 0.0
    assert store.issuer.until_settled(now.wall + 1.5) == pytest.approx(0.5)


def test_the_wait_for_a_token_is_bounded() -> None:
    """Twice S + R is the most, whatever is known of the store's time (rule 11)."""
    store = some_store(1.0)

    assert store.issuer.until_settled(store.now().wall) == 2 * store.timing.slack


@in_virtual_time
async def test_a_token_that_has_settled_stays_so_after_a_renewal(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the renewal was sent before and no Date is carried any more when it lands."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        lease._held.tenure.head = lease._held.tenure.head._replace(settled_at=world.now - 1.0)
        confirming = asyncio.create_task(lease.confirm())
        await asyncio.sleep(0.001)
        assert lease._held.claim.note_settled(lease._held.tenure.head) == 0.0

        monkeypatch.setattr(client._core._objects.time, "bounds", lambda _: None)
        await confirming

        assert lease._held.claim.note_settled(lease._held.tenure.head) == 0.0
        monkeypatch.undo()
