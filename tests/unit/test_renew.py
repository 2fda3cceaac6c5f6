"""Renewing a lease: when, what is published, lost answers, and ``confirm`` (rules 4 to 6)."""


# ruff: noqa: PT012  a loss is raised by the end of a body with several statements

from __future__ import annotations

import asyncio
import itertools
import time
from contextvars import ContextVar
from dataclasses import replace

import pytest

import asynclock
from asynclock import (
    BackendError,
    LeaseExpiredError,
    LeaseLostError,
    LeaseSettings,
    Written,
)
from asynclock._core.record import parse_record
from asynclock.clock import CARRY_SECONDS
from asynclock.testing._clocks import EPOCH
from asynclock.testing._faulty import Fault
from tests.unit.kit import (
    BELIEF,
    SETTINGS,
    STEADY,
    TIMING,
    World,
    faulty,
    in_virtual_time,
    unopened,
    writes_by_us,
)

FAST = LeaseSettings(validity=1.0, safety_margin=0.1, max_clock_skew=0.0, poll_interval=0.05)


@in_virtual_time
async def test_a_lease_is_renewed_at_each_interval(world: World) -> None:
    """A lease lives as long as it is renewed, by one write per interval."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        before = len(world.writes())
        await asyncio.sleep(60.0)

        assert lease.held
        assert 58 <= len(world.writes()) - before <= 61


@pytest.mark.parametrize("nth", [1, 2], ids=["acquisition", "renewal"])
@in_virtual_time
async def test_the_next_renewal_counts_from_the_sending_of_the_last_write(world: World, nth: int) -> None:
    """A slow answer does not delay the next renewal (rule 5)."""
    async with world.client() as client:
        faulty(client).delay = (0.7, 0.7)
        faulty(client).inject(Fault.SLOW, operation="put_if_absent" if nth == 1 else "put_if_match")
        lease = await client.lock("orders").acquire()
        await asyncio.sleep(3)

        applied = [each.at for each, _ in writes_by_us(world)]
        assert applied[nth] - applied[nth - 1] == pytest.approx(TIMING.renew_interval, abs=0.1)
        await lease.release()


@in_virtual_time
async def test_a_renewal_that_the_stores_pace_delays_past_the_deadline_is_not_sent(world: World) -> None:
    """The deadline is checked again after the wait for the store's pace (rule 5)."""
    client = world.client()
    faulty(client).min_write_interval = 2 * BELIEF
    lease = await client.lock("orders").acquire()

    await asyncio.sleep(3 * BELIEF)

    assert isinstance(lease.lost, LeaseExpiredError)
    assert len(writes_by_us(world)) == 1


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


@pytest.mark.parametrize("fault", [Fault.REPLY_LOST, Fault.OWN_412, Fault.CONFLICT, Fault.UNAVAILABLE])
def test_a_renewal_whose_answer_was_lost_costs_nothing(world: World, fault: Fault) -> None:
    """The lease goes on, whatever became of the write."""

    async def story() -> None:
        async with world.client() as client:
            lease = await client.lock("orders").acquire()
            token = lease.fencing_token
            faulty(client).inject(fault, operation="put_if_match")
            await asyncio.sleep(15.0)

            assert lease.held
            assert (world.record().owner, world.record().epoch) == (lease.owner, token)

    world.loop.run_until_complete(story())


@in_virtual_time
async def test_a_renewal_that_landed_late_counts_from_its_sending(world: World) -> None:
    """An adopted renewal extends belief from when it was sent."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        faulty(client).inject(Fault.REPLY_LOST, operation="put_if_match")
        await lease.confirm()

        assert lease.remaining() == pytest.approx(9.0 - 0.04)


@pytest.mark.parametrize("failure", [asyncio.CancelledError, RuntimeError])
@in_virtual_time
async def test_a_failure_inside_of_the_sdk_costs_no_lease(
    world: World, monkeypatch: pytest.MonkeyPatch, failure: type[BaseException]
) -> None:
    """A cancellation that nobody sent, or a bug, is a request of unknown outcome; its text is not shown."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        replace_if_match = faulty(client).put_if_match

        async def failing(*_: object) -> Written:
            monkeypatch.setattr(faulty(client), "put_if_match", replace_if_match)
            raise failure("Authorization: secret")

        monkeypatch.setattr(faulty(client), "put_if_match", failing)
        with pytest.raises(asynclock.OutcomeUnknownError) as caught:
            await lease.confirm()
        await asyncio.sleep(20)

        assert lease.held
        assert "secret" not in str(caught.value)
        await lease.release()


@in_virtual_time
async def test_a_lease_outlives_a_backend_that_cannot_be_opened_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its renewals fail as under an outage, and its release goes on until it is through."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        with monkeypatch.context() as broken:
            for method in ("get", "put_if_match"):
                broken.setattr(client.backend, method, unopened)
            with pytest.raises(BackendError, match="profile"):
                await lease.confirm()
            await asyncio.sleep(3.0)
            assert lease.held
            await lease.release()
        await asyncio.sleep(3.0)
        assert world.record().expired
        again = await client.lock("orders").acquire(timeout=0)
        assert again.held


@in_virtual_time
async def test_the_published_time_outlasts_the_deadline(world: World) -> None:
    """``validUntil`` is hi + S + L: always later than the deadline by M + S at least."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        for _ in range(40):
            await asyncio.sleep(0.31)
            published = world.record().valid_until_ms / 1000
            assert published >= world.now + lease.remaining() + 1.0 + 1.0 - 0.001


@in_virtual_time
async def test_valid_until_never_falls_after_an_unusable_date(world: World) -> None:
    """A Date that the wall clock contradicts does not shorten the promise."""
    async with world.client() as client:
        _held = await client.lock("orders").acquire()
        faulty(client).inject(Fault.STALE_DATE, times=20)
        published = []
        for _ in range(30):
            await asyncio.sleep(1.0)
            published.append(world.record().valid_until_ms)

    assert published == sorted(published)


@in_virtual_time
async def test_valid_until_never_falls_after_a_usable_date_that_is_behind(world: World) -> None:
    """A node whose clock is behind does not shorten what was promised to Hudi's readers (rule 4)."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        faulty(client).date_error = (0.9, 0.9)
        faulty(client).inject(Fault.STALE_DATE, operation="put_if_match")
        await lease.confirm()
        await lease.confirm()

        promised = [parse_record(each.body or b"").valid_until_ms for each in world.writes()]
        assert promised == sorted(promised)
        await lease.release()


@pytest.mark.parametrize("profile", [replace(STEADY, resolution=1.0)], ids=["whole seconds"])
@in_virtual_time
async def test_a_date_in_whole_seconds_shortens_no_promise(world: World) -> None:
    """``validUntil`` is L + S after the sending or later (rule 4)."""
    await asyncio.sleep(0.9)
    async with world.client() as client:
        lease = await client.lock("orders").acquire()

        sent = EPOCH + world.writes()[-1].at - 0.01
        promised = world.record().valid_until_ms / 1000
        assert promised >= sent + SETTINGS.validity + SETTINGS.max_clock_skew
        await lease.release()


@in_virtual_time
async def test_renewals_keep_the_stores_time_known(world: World) -> None:
    """After hours of one lease the next one takes one request, because each write's answer has a Date."""
    async with world.client() as client:
        lock = client.lock("orders")
        lease = await lock.acquire()
        await asyncio.sleep(CARRY_SECONDS + 100)
        await lease.release()
        before = len(world.journal)

        await (await lock.acquire()).release()

        assert [each.kind for each in world.journal[before:]] == ["put_if_match"] * 2


@in_virtual_time
async def test_renewals_do_not_inherit_the_acquirers_context(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No trace, transaction or log context of the acquirer is seen by renewals."""
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


async def test_a_blocked_event_loop_does_not_cost_the_lease() -> None:
    """With ``renewal="thread"`` the lease lives while the loop is blocked for twice its validity."""
    async with asynclock.connect("memory://", settings=FAST) as client, client.lock("x").hold() as lease:
        time.sleep(2.0)  # noqa: ASYNC251  the point of the test
        assert lease.held
        await lease.confirm()


async def test_a_blocked_event_loop_costs_the_lease_in_loop_mode() -> None:
    """With ``renewal="loop"`` a blocked loop ends in a loss, never in a false hold."""
    async with asynclock.connect("memory://", settings=FAST, renewal="loop") as client:
        with pytest.raises(LeaseLostError):
            async with client.lock("x").hold() as lease:
                time.sleep(1.0)  # noqa: ASYNC251  the point of the test
                assert not lease.held
                await asyncio.sleep(5)


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
async def test_confirm_beside_a_release_raises(world: World) -> None:
    """A lease that is released meanwhile is not renewed, and the error says why."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire()

        _, confirmed = await asyncio.gather(lease.release(), lease.confirm(), return_exceptions=True)

        assert isinstance(confirmed, LeaseLostError)
        assert confirmed.reason == "it was released"
        assert [record.expired for _, record in writes_by_us(world)] == [False, True]


@in_virtual_time
async def test_a_renewal_that_the_program_cancels_is_made_up_for(world: World) -> None:
    """A program that cancels all tasks of its loop does not stop the renewals that follow."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        while len(asyncio.all_tasks()) == 1:  # noqa: ASYNC110  nothing reports that a renewal begins
            await asyncio.sleep(0.001)

        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await asyncio.sleep(3 * BELIEF)

        assert lease.held
