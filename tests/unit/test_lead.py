"""``lead``: work that runs under a lease and is called again after a loss."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import asynclock.sync
from asynclock import ConfigError, Lease, LeaseLostError
from asynclock._core.leading import Candidate
from asynclock.errors import AcquireTimeoutError
from tests.unit.kit import SETTINGS, World, in_virtual_time, our_record

if TYPE_CHECKING:
    from asynclock import LockStatus


@in_virtual_time
async def test_lead_returns_what_the_work_returns(world: World) -> None:
    """The work runs under the lease; afterwards the lock is free."""
    async with world.client() as client:

        async def work(lease: Lease) -> int:
            lease.check()
            await asyncio.sleep(1.0)
            return 42

        assert await client.lock("orders").lead(work) == 42
        assert world.record().expired


@in_virtual_time
async def test_lead_runs_again_after_a_loss(world: World) -> None:
    """After a loss the lock is acquired again, and the work called with the new lease."""
    tokens: list[int] = []
    async with world.client() as client:

        async def work(lease: Lease) -> str:
            tokens.append(lease.fencing_token)
            if len(tokens) < 3:
                world.put(our_record(valid_until=world.now, expired=True, epoch=lease.fencing_token + 5))
                await asyncio.sleep(100)
            return "done"

        assert await client.lock("orders").lead(work) == "done"

    assert len(tokens) == 3
    assert tokens == sorted(set(tokens))


@in_virtual_time
async def test_lead_lets_other_errors_through(world: World) -> None:
    """An error of the work propagates after the release."""
    async with world.client() as client:

        async def work(_: Lease) -> None:
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await client.lock("orders").lead(work)
        assert world.record().expired


@in_virtual_time
async def test_lead_gives_up_at_the_timeout(world: World) -> None:
    """The timeout bounds each acquisition."""
    world.put(our_record(valid_until=world.now + 12))
    async with world.client() as client:

        async def work(_: Lease) -> None:
            raise AssertionError("must not run")

        with pytest.raises(AcquireTimeoutError):
            await client.lock("orders").lead(work, timeout=1.0)


@in_virtual_time
async def test_the_loss_of_another_lease_is_an_error_of_the_work(world: World) -> None:
    """A LeaseLostError about a different lock propagates; it is not led again."""
    runs = 0
    async with world.client() as client:

        async def work(_: Lease) -> None:
            nonlocal runs
            runs += 1
            raise LeaseLostError(key="other.json", owner="x", fencing_token=1, reason="other")

        with pytest.raises(LeaseLostError, match="other"):
            await client.lock("orders").lead(work)

    assert runs == 1


async def without_end(_: Lease) -> None:
    """Work until somebody ends it."""
    await asyncio.Event().wait()


@in_virtual_time
async def test_candidates_are_told_who_leads_without_a_request_more(world: World) -> None:
    """Another's term, its end, and the own term; it reads no more often than one that hears nothing."""
    told: list[tuple[str, str | None]] = []

    async def requests(on_change: Any) -> int:  # noqa: ANN401
        world.put(our_record(valid_until=world.now + 5, lease_ms=5000))
        before = len(world.journal)
        async with world.client(holder="me") as client:
            leading = asyncio.create_task(client.lock("orders").lead(without_end, on_change=on_change))
            await asyncio.sleep(4)
            world.put(our_record(valid_until=world.now, expired=True))
            await asyncio.sleep(2)
            leading.cancel()
            await asyncio.wait([leading])
        return len(world.journal) - before

    count = await requests(lambda leader: told.append((leader.state, leader.holder)))

    assert told == [("held", "host:1:other"), ("free", "host:1:other"), ("held", "me")]
    assert abs(count - await requests(None)) <= 2  # their pauses are drawn


@in_virtual_time
async def test_who_leads_since_when_and_in_which_term(world: World) -> None:
    """One read tells; a lock that is kept after its holder has ended has no leader."""
    async with world.client(holder="me") as client, world.client() as other:
        lock = client.lock("orders")
        assert (await lock.leader()).state == "absent"
        lease = await lock.acquire(at_least=5)
        leader = await other.lock("orders").leader()
        assert (leader.holder, leader.fencing_token, leader.kept) == ("me", lease.fencing_token, False)
        assert leader.since_ms == lease.fencing_token // 1000
        await lease.release()
        assert (await other.lock("orders").leader()).kept


@in_virtual_time
async def test_what_on_change_raises_is_logged(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """The work goes on."""

    def fail(_: LockStatus) -> None:
        raise ZeroDivisionError

    async def work(_: Lease) -> str:
        await asyncio.sleep(1)
        return "done"

    async with world.client() as client:
        assert await client.lock("orders").lead(work, on_change=fail) == "done"

    assert "on_change of" in caplog.text
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.parametrize("wrong", [without_end, 7])
def test_on_change_must_be_a_plain_function(wrong: Any) -> None:  # noqa: ANN401
    """Nobody would await what a coroutine function returns."""
    with asynclock.sync.connect("memory://") as client, pytest.raises(ConfigError, match="on_change"):
        client.lock("orders").lead(lambda _: None, on_change=wrong)


def test_a_late_answer_brings_back_no_earlier_term() -> None:
    """Terms are told in the order of their tokens; a term that has ended is not told again."""
    told: list[tuple[str | None, int | None]] = []
    engine: Any = SimpleNamespace(watch=lambda _: lambda: None)
    candidate = Candidate(
        engine, lambda leader: told.append((leader.owner, leader.fencing_token)), lambda call: call()
    )

    def show(state: str, owner: str | None, token: int | None) -> None:
        seen: Any = SimpleNamespace(state=state, owner=owner, fencing_token=token, kept=False, url="x")
        candidate._look(seen)

    for seen in (
        ("held", "a", 5), ("held", "b", 7), ("held", "a", 5), ("free", "a", 5), ("free", "b", 7),
        ("held", "b", 7), ("held", "hudi", None), ("absent", None, None), ("held", "c", 9),
    ):  # fmt: skip
        show(*seen)

    assert told == [("a", 5), ("b", 7), ("b", 7), ("hudi", None), (None, None), ("c", 9)]


@in_virtual_time
async def test_a_leader_that_steps_down_makes_way(world: World) -> None:
    """Its work ends under the lease, then the lock is free, then another leads, and later it leads again."""
    log: list[str] = []
    lock = None

    async def first(lease: Lease) -> None:
        log.append("first leads")
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(1)
            log.append(f"first ends, held={lease.held} free={world.record().expired}")

    async def second(_: Lease) -> None:
        log.append("second leads")
        await asyncio.sleep(3)

    async with world.client() as one, world.client() as two:
        lock = one.lock("orders")
        assert not lock.step_down()
        leading = asyncio.create_task(lock.lead(first))
        await asyncio.sleep(1)
        other = asyncio.create_task(two.lock("orders").lead(second))
        await asyncio.sleep(1)
        assert one.lock("orders").step_down()  # by any handle of the client
        assert lock.step_down()  # twice is once
        await other
        await asyncio.sleep(2)
        assert log == ["first leads", "first ends, held=True free=False", "second leads", "first leads"]
        leading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leading
    assert not lock.step_down()


@in_virtual_time
async def test_a_lone_leader_leads_again_after_it_stood_back(world: World) -> None:
    """It stands back for two poll intervals, though its term was short."""
    began: list[float] = []

    async def work(_: Lease) -> None:
        began.append(world.now)
        if len(began) == 1:
            asyncio.get_running_loop().call_later(0.1, lock.step_down)
            await asyncio.Event().wait()

    async with world.client() as client:
        lock = client.lock("orders")
        await lock.lead(work)

    assert began[1] - began[0] > 0.1 + 2 * SETTINGS.poll_interval


@in_virtual_time
async def test_work_may_return_instead_of_stepping_down(world: World) -> None:
    """What it returns is what ``lead`` returns; a cancellation from outside wins, too."""

    async def stubborn(_: Lease) -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "done"
        return ""

    async with world.client() as client:
        lock = client.lock("orders")
        leading = asyncio.create_task(lock.lead(stubborn))
        await asyncio.sleep(1)
        lock.step_down()
        assert await leading == "done"
        endless = asyncio.create_task(lock.lead(without_end))
        await asyncio.sleep(2)
        lock.step_down()
        endless.cancel()
        with pytest.raises(asyncio.CancelledError):
            await endless
        assert world.record().expired


def test_a_leader_in_a_thread_steps_down() -> None:
    """``check()`` raises while the lock is still held; what it hears comes on a thread of its own."""
    told: list[tuple[str, bool]] = []
    terms: list[bool] = []
    here = threading.current_thread()

    def work(lease: asynclock.sync.Lease) -> str:
        terms.append(lease.held)
        if len(terms) == 2:
            return "done"
        threading.Timer(0.01, lock.step_down).start()
        try:
            while True:
                lease.check()
        finally:
            assert lease.held

    settings = asynclock.LeaseSettings(validity=1.0, max_clock_skew=0.0, poll_interval=0.05)
    with asynclock.sync.connect("memory://", settings=settings) as client:
        lock = client.lock("orders")
        returned = lock.lead(
            work, on_change=lambda leader: told.append((leader.state, threading.current_thread() is here))
        )

    assert returned == "done"
    assert terms == [True, True]
    assert told[0] == ("held", False)
    assert told[-1] == ("held", False)
