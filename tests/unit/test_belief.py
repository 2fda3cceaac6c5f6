"""Belief in a lease: when it ends, what renews it, and that nothing revives it (rules 4 to 7)."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from asynclock import (
    BackendError,
    LeaseExpiredError,
    LeaseLostError,
    LeaseSettings,
    LeaseTakenOverError,
)
from asynclock.testing.clocks import EPOCH
from asynclock.testing.faulty import Fault
from asynclock.testing.store import StoreProfile
from tests.unit.kit import (
    KEY,
    SETTINGS,
    World,
    clock_of,
    faulty,
    in_virtual_time,
    our_record,
    until_lost,
)

BELIEF = 9.0
"""Validity less margin of ``SETTINGS``."""
ALWAYS = 10_000


@in_virtual_time
async def test_belief_counts_from_the_sending(world: World) -> None:
    """Right after an acquisition, validity less margin and less the round trip remain."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire()

        assert lease.remaining() == pytest.approx(BELIEF - 0.02)
        assert lease.held
        assert lease.lost is None


@in_virtual_time
async def test_a_lease_is_renewed_at_each_interval(world: World) -> None:
    """A lease lives as long as it is renewed, by one write per interval."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        before = len(world.writes())
        await asyncio.sleep(60.0)

        assert lease.held
        assert 58 <= len(world.writes()) - before <= 61


@in_virtual_time
async def test_what_is_published_outlasts_what_is_believed(world: World) -> None:
    """``validUntil`` is hi + S + L: always later than the end of belief by M + S at least."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        for _ in range(40):
            await asyncio.sleep(0.31)
            published = world.record().valid_until_ms / 1000
            assert published >= world.now + lease.remaining() + 1.0 + 1.0 - 0.001


@in_virtual_time
async def test_valid_until_never_falls_during_a_lease(world: World) -> None:
    """Wrong Dates on the way do not shorten the promise."""
    async with world.client() as client:
        _held = await client.lock("orders").acquire()
        faulty(client).inject(Fault.STALE_DATE, times=20)
        published = []
        for _ in range(30):
            await asyncio.sleep(1.0)
            published.append(world.record().valid_until_ms)

    assert published == sorted(published)


@in_virtual_time
async def test_a_step_of_the_wall_clock_ends_belief(world: World) -> None:
    """Belief ends by the largest clock, and the loss says that the deadline passed."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        clock_of(client).step(BELIEF + 0.01)

        assert not lease.held
        assert isinstance(lease.lost, LeaseExpiredError)
        with pytest.raises(LeaseExpiredError):
            lease.check()


@in_virtual_time
async def test_a_suspended_machine_loses_its_lease(world: World) -> None:
    """The monotonic clock stands still during a suspend; the boot clock does not."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        faulty(client).inject(Fault.REQUEST_LOST, times=ALWAYS)
        clock = clock_of(client)
        clock.suspend(100.0)
        clock.step(-100.0)
        before = clock.monotonic()
        await asyncio.sleep(BELIEF)

        assert clock.monotonic() == before
        assert not lease.held


@in_virtual_time
async def test_a_wall_clock_that_goes_back_does_not_prolong_belief(world: World) -> None:
    """Belief still ends by the other two clocks."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        clock_of(client).step(-3600.0)
        faulty(client).inject(Fault.REQUEST_LOST, operation="put_if_match", times=ALWAYS)

        assert await until_lost(lease) == pytest.approx(BELIEF, abs=0.05)


@in_virtual_time
async def test_an_unreachable_store_costs_the_lease_at_its_deadline(world: World) -> None:
    """A transient failure is not loss; the deadline decides."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        faulty(client).inject(Fault.UNAVAILABLE, times=ALWAYS)

        assert await until_lost(lease) == pytest.approx(BELIEF, abs=0.05)
        await asyncio.sleep(0.05)

    assert isinstance(lease.lost, LeaseExpiredError)
    assert world.told()[0] == "acquired"
    assert "renewal_failed" in world.told()
    assert world.told().count("lost") == 1


@in_virtual_time
async def test_an_unknown_renewal_is_tried_again_soon(world: World) -> None:
    """After a failure the next attempt comes after a quarter of the interval, jittered."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        faulty(client).inject(Fault.UNAVAILABLE, operation="put_if_match", times=8)
        await asyncio.sleep(5.0)

        failed = [call.at for call in faulty(client).journal if call.outcome == "OutcomeUnknownError"]
        assert lease.held
        assert len(failed) == 8
        for one, other in itertools.pairwise(failed):
            assert 0.1 <= other - one <= 0.35


@in_virtual_time
async def test_nothing_is_written_past_the_deadline_but_a_free_record(world: World) -> None:
    """Past the deadline no renewal is sent and nothing is revived."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        faulty(client).inject(Fault.REQUEST_LOST, times=ALWAYS)
        await until_lost(lease)
        faulty(client).calm()
        after = len(world.journal)
        await asyncio.sleep(30.0)

        assert not lease.held
        assert all(
            b'"expired":true' in (each.body or b"")
            for each in world.writes()
            if each in world.journal[after:]
        )


@in_virtual_time
async def test_an_answer_after_the_deadline_revives_nothing(world: World) -> None:
    """A renewal that lands before the deadline and is answered after it comes too late."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        await asyncio.sleep(0.5)
        backend = faulty(client)
        backend.delay = (1.9, 1.9)
        backend.inject(Fault.SLOW, operation="put_if_match", times=1)
        await asyncio.sleep(1.0)
        assert world.record().nonce is not None
        clock_of(client).step(BELIEF)  # the deadline passes while the answer is under way
        loss = lease.lost
        await asyncio.sleep(5.0)

        assert isinstance(loss, LeaseExpiredError)
        assert lease.lost is loss
        assert lease.remaining() == 0.0
        assert world.record().expired  # what landed is freed again (rule 3)


@in_virtual_time
async def test_whoever_asks_first_makes_the_loss_final(world: World) -> None:
    """A wall clock that jumps ahead and back does not bring the lease back."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        clock_of(client).step(100.0)
        assert not lease.held
        clock_of(client).step(-100.0)

        assert not lease.held
        with pytest.raises(LeaseExpiredError):
            await lease.confirm()


@in_virtual_time
async def test_another_record_in_the_store_is_a_loss(world: World) -> None:
    """A renewal that finds another owner says who took over."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        world.put(our_record(valid_until=world.now + 12, owner="thief", epoch=1_700_000_500_000_000))
        await until_lost(lease)

        assert isinstance(lease.lost, LeaseTakenOverError)
        assert lease.lost.new_owner == "thief"
        assert lease.lost.new_token == 1_700_000_500_000_000
        with pytest.raises(LeaseTakenOverError):
            await lease.release()
        assert world.record().owner == "thief"


@in_virtual_time
async def test_a_deleted_object_is_a_loss(world: World) -> None:
    """A renewal that finds no object has lost the lock and creates none."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        world.store.delete_now(KEY)
        await until_lost(lease)

        assert isinstance(lease.lost, LeaseTakenOverError)
        assert "deleted" in lease.lost.reason
        await asyncio.sleep(1.0)
        assert world.store.body(KEY) is None


@in_virtual_time
async def test_a_corrupt_object_is_a_loss(world: World) -> None:
    """A renewal that finds something that is no record has lost the lock and writes nothing."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        world.put(b"garbage")
        await until_lost(lease)
        await asyncio.sleep(1.0)

        assert "corrupt" in str(lease.lost)
        assert world.store.body(KEY) == b"garbage"


@in_virtual_time
async def test_confirm_writes_once_and_extends_belief(world: World) -> None:
    """``confirm`` is one conditional write after which the full belief remains."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        await asyncio.sleep(0.5)
        before = len(world.journal)
        await lease.confirm()

        assert [each.kind for each in world.journal[before:]] == ["put_if_match"]
        assert lease.remaining() == pytest.approx(BELIEF - 0.02)


@in_virtual_time
async def test_confirm_joins_a_renewal_under_way(world: World) -> None:
    """Ten confirmations at once are one write: one write per lease at a time."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        before = len(world.journal)
        await asyncio.gather(*(lease.confirm() for _ in range(10)))

        assert len(world.journal) - before == 1


@in_virtual_time
async def test_confirm_says_when_the_store_does_not(world: World) -> None:
    """An unknown outcome is a BackendError, and the lease lasts until its deadline."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        faulty(client).inject(Fault.UNAVAILABLE, operation="put_if_match")

        with pytest.raises(BackendError):
            await lease.confirm()
        assert lease.held


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
    """The free record bears what the held one bore, but ``expired`` and a fresh nonce."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        held = world.record()
        await lease.release()
        freed = world.record()

    assert freed.expired
    assert (freed.owner, freed.epoch, freed.valid_until_ms) == (held.owner, held.epoch, held.valid_until_ms)
    assert freed.nonce != held.nonce
    assert freed.epoch == lease.fencing_token


@in_virtual_time
async def test_every_attempt_has_a_nonce_of_its_own(world: World) -> None:
    """No two writes bear the same nonce, whatever they are for."""
    async with world.client() as client:
        faulty(client).inject(Fault.UNAVAILABLE, operation="put_if_match", nth=3, times=3)
        for _ in range(3):
            async with client.lock("orders").hold():
                await asyncio.sleep(3.0)

    nonces = [each.body.partition(b'"nonce":')[2][:34] for each in world.writes() if each.body]
    assert len(nonces) > 9
    assert len(set(nonces)) == len(nonces)


@in_virtual_time
async def test_a_release_settles_the_renewal_in_flight_first(world: World) -> None:
    """Two writes of one lease are never under way at once."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        backend = faulty(client)
        backend.delay = (0.5, 0.5)
        backend.inject(Fault.SLOW, operation="put_if_match")
        confirming = asyncio.create_task(lease.confirm())
        await asyncio.sleep(0.05)
        await lease.release()
        await asyncio.gather(confirming, return_exceptions=True)

        assert world.record().expired
        assert all(call.outcome == "ok" for call in backend.journal[1:])
        assert "renewed" not in world.told()  # outcomes for an ended lease raise no event


@in_virtual_time
async def test_a_slow_acquisition_is_renewed_before_it_is_returned(world: World) -> None:
    """With no more than a renew interval left, it is renewed once first (rule 7)."""
    settings = LeaseSettings(validity=10.0, safety_margin=5.0, max_clock_skew=1.0, poll_interval=0.25)
    async with world.client(settings) as client:
        backend = faulty(client)
        backend.inject(Fault.REPLY_LOST, operation="put_if_absent")
        backend.inject(Fault.UNAVAILABLE, operation="get", nth=2, times=5)
        backend.delay = (2.0, 2.0)
        lease = await client.lock("orders").acquire()

        assert lease.remaining() > 1.0


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


def test_the_settings_of_this_file_leave_nine_seconds_of_belief() -> None:
    """The constants of these tests fit their settings."""
    assert SETTINGS.safety_margin is not None
    assert SETTINGS.validity - SETTINGS.safety_margin == BELIEF
