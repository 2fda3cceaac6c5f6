"""Releasing a lock: what is written, when, and how often it is tried (rules 3, 6)."""

from __future__ import annotations

import asyncio
import gc
from itertools import pairwise

import pytest

import asynclock
from asynclock import LeaseLostError, LeaseTakenOverError
from asynclock.testing._faulty import Fault
from tests.unit.kit import FAST, TIMING, World, faulty, in_virtual_time, our_record, refused, while_renewing


@in_virtual_time
async def test_a_released_lease_believes_nothing(world: World) -> None:
    """After a release nothing remains; a second one does nothing; ``lost`` stays None."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        await lease.release()
        before = len(world.journal)
        await lease.release()

        assert (lease.held, lease.remaining(), lease.lost) == (False, 0.0, None)
        assert len(world.journal) == before
        with pytest.raises(LeaseLostError, match="released"):
            lease.check()
        with pytest.raises(LeaseLostError, match="released"):
            await lease.confirm()


@in_virtual_time
async def test_belief_ends_before_the_release_is_sent(world: World) -> None:
    """Nobody believes any more by the time the store frees the lock."""
    believed: list[bool] = []
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        world.store.on_change = lambda _: believed.append(lease.held)
        await lease.release()

    assert believed == [False]


@in_virtual_time
async def test_a_release_keeps_token_owner_and_promise(world: World) -> None:
    """The free record differs from the held one in ``expired`` and the nonce only."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        held = world.record()
        await lease.release()
        freed = world.record()

    assert freed.expired
    assert (freed.owner, freed.epoch, freed.valid_until_ms) == (held.owner, held.epoch, held.valid_until_ms)
    assert freed.nonce != held.nonce
    assert freed.epoch == lease.fencing_token


@pytest.mark.parametrize("sent_by", ["confirm", "the interval"])
@in_virtual_time
async def test_a_release_waits_for_the_renewal_in_flight(world: World, sent_by: str) -> None:
    """Two writes of one lease are never under way at once: the store refuses neither."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        backend = faulty(client)
        backend.delay = (0.5, 0.5)
        backend.inject(Fault.SLOW, operation="put_if_match")
        confirming = asyncio.create_task(lease.confirm() if sent_by == "confirm" else asyncio.sleep(0))
        await while_renewing(lease)
        await asyncio.sleep(0.05)
        await lease.release()
        await asyncio.gather(confirming, return_exceptions=True)

        assert world.record().expired
        assert refused(world) == 0
        assert all(call.outcome == "ok" for call in backend.journal[1:])
        assert "renewed" not in world.told()  # outcomes for an ended lease raise no event


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
    """Nothing is written over a corrupt record, and nothing is tried again (rules 3, 9)."""
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
async def test_a_release_returns_within_the_exit_bound(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a write gets no answer and the look after it is slow; it goes on in the background."""
    limit = TIMING.request_timeout
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        faulty(client).delay = (0.9 * limit, 0.9 * limit)
        faulty(client).inject(Fault.SLOW, operation="get", times=9)
        with monkeypatch.context() as patch:
            patch.setattr(faulty(client), "put_if_match", lambda *_: asyncio.sleep(60))
            began = world.now
            await lease.release()
            took = world.now - began
        await asyncio.sleep(3 * limit)

        assert took <= TIMING.exit_bound + 0.01
        assert world.record().expired


@in_virtual_time
async def test_a_release_that_is_not_answered_is_tried_less_and_less_often(world: World) -> None:
    """Pauses double from a quarter of the poll interval up to the renew interval, jittered by half."""
    client = world.client()
    lease = await client.lock("orders").acquire()
    faulty(client).storm({Fault.UNAVAILABLE: 1.0})
    before = len(faulty(client).journal)
    await lease.release()
    await asyncio.sleep(15)

    tried = [each.at for each in faulty(client).journal[before:] if each.operation == "put_if_match"]
    gaps = [later - earlier for earlier, later in pairwise(tried)]
    for count, gap in enumerate(gaps[:8]):
        pause = min(TIMING.poll_interval / 4 * 2**count, TIMING.renew_interval)
        assert pause / 2 <= gap <= pause + 0.06
    assert max(gaps) <= TIMING.renew_interval + 0.06
    assert len(tried) < 40


@in_virtual_time
async def test_a_late_renewal_is_freed_without_a_pause(world: World) -> None:
    """A release that was overtaken by a late renewal of its own lease frees that record at once (rule 3)."""
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


@in_virtual_time
async def test_a_free_record_of_another_holder_is_a_loss(world: World) -> None:
    """A release that finds that others have held the lock meanwhile does not claim to have freed it."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        world.put(our_record(valid_until=world.now, expired=True))

        with pytest.raises(LeaseTakenOverError):
            await lease.release()

        assert world.told() == ["acquired", "lost"]


@pytest.mark.filterwarnings("ignore:the lease on:ResourceWarning")
def test_a_release_on_a_loop_that_stopped_is_refused() -> None:
    """With renewal="loop" a release does not wait forever for an event loop that has stopped."""
    client = asynclock.connect("memory://stopped", renewal="loop", settings=FAST)
    loop = asyncio.new_event_loop()
    lease = loop.run_until_complete(client.lock("orders").acquire())

    with pytest.raises(asynclock.ConfigError, match="does not run any more"):
        asyncio.run(lease.release())
    loop.run_until_complete(client.aclose())

    loop.close()
    del lease
    gc.collect()  # asyncio.run leaves a cycle with the lease in it
