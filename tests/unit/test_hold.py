"""``hold``, ``on_lost`` and ``lead``: what becomes of the code that runs under a lease."""

# ruff: noqa: PT012  a loss is raised by the end of a body with several statements
# ruff: noqa: ASYNC110  polling is what users do with ``held``

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time

import pytest

import asynclock
from asynclock import Lease, LeaseLostError, LeaseSettings, LeaseTakenOverError, LockClient
from asynclock.errors import AcquireTimeoutError
from tests.unit.kit import KEY, World, in_virtual_time, our_record

FAST = LeaseSettings(validity=1.0, safety_margin=0.1, max_clock_skew=0.0, poll_interval=0.05)


def thief(world: World) -> None:
    """Let another record appear, so that the next renewal is a loss."""
    world.put(our_record(valid_until=world.now + 12, owner="thief"))


@in_virtual_time
async def test_hold_releases_after_the_body(world: World) -> None:
    """The lock is held in the body and free after it."""
    async with world.client() as client:
        async with client.lock("orders").hold() as lease:
            assert lease.held
            assert not world.record().expired
        assert not lease.held
        assert world.record().expired


@in_virtual_time
async def test_an_exception_of_the_body_releases_and_goes_on(world: World) -> None:
    """The body's exception comes out as it was, and the lock is free."""
    async with world.client() as client:
        with pytest.raises(KeyError, match="mine") as caught:
            async with client.lock("orders").hold():
                raise KeyError("mine")
        assert not getattr(caught.value, "__notes__", [])
        assert world.record().expired


@in_virtual_time
async def test_a_loss_cancels_the_body_once_and_is_raised(world: World) -> None:
    """The body sees one CancelledError; outside of ``hold`` it is a LeaseLostError."""
    cancellations = 0
    async with world.client() as client:
        task = asyncio.current_task()
        assert task is not None
        with pytest.raises(LeaseTakenOverError) as caught:
            async with client.lock("orders").hold() as lease:
                thief(world)
                try:
                    await asyncio.sleep(100)
                except asyncio.CancelledError:
                    cancellations += 1
                    await asyncio.sleep(3.0)  # cleaning up is not cancelled again
                    raise

        assert cancellations == 1
        assert caught.value is lease.lost
        assert task.cancelling() == 0
        await asyncio.sleep(1.0)  # no cancellation is left behind
        assert world.record().owner == "thief"


@in_virtual_time
async def test_a_body_that_swallows_the_cancellation_still_loses(world: World) -> None:
    """Whoever catches CancelledError and returns gets the loss at the end of the statement."""
    async with world.client() as client:
        with pytest.raises(LeaseLostError):
            async with client.lock("orders").hold():
                thief(world)
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.sleep(100)
        await asyncio.sleep(1.0)


@in_virtual_time
async def test_a_cancellation_from_outside_wins(world: World) -> None:
    """Cancelled from outside, the statement raises CancelledError and releases."""
    async with world.client() as client:

        async def work() -> None:
            async with client.lock("orders").hold():
                await asyncio.sleep(100)

        task = asyncio.create_task(work())
        await asyncio.sleep(1.0)
        task.cancel("stop")
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelled()
        assert world.record().expired


@pytest.mark.parametrize("first", ["loss", "outside"])
def test_a_cancellation_from_outside_wins_over_a_loss(world: World, first: str) -> None:
    """Both at once: it stays CancelledError, so that task groups and timeouts see their own."""

    async def story() -> None:
        async with world.client() as client:
            entered: list[Lease] = []

            async def work() -> None:
                async with client.lock("orders").hold() as lease:
                    entered.append(lease)
                    await asyncio.sleep(100)

            task = asyncio.create_task(work())
            await asyncio.sleep(0.5)
            (lease,) = entered
            error = LeaseLostError(key=KEY, owner="", fencing_token=0, reason="test")
            if first == "outside":
                task.cancel()
            with lease._held._mutex:
                lease._held._lose(error)
            if first == "loss":
                await asyncio.sleep(0)
                task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert task.cancelled()

    world.loop.run_until_complete(story())


@in_virtual_time
async def test_an_exception_of_the_body_wins_and_notes_the_loss(world: World) -> None:
    """What the body raises comes out; the loss is in ``lease.lost`` and in a note."""
    async with world.client() as client:
        with pytest.raises(ZeroDivisionError) as caught:
            async with client.lock("orders").hold() as lease:
                thief(world)
                try:
                    await asyncio.sleep(100)
                except asyncio.CancelledError:
                    raise ZeroDivisionError from None

        assert isinstance(lease.lost, LeaseTakenOverError)
        assert str(lease.lost) in caught.value.__notes__
        await asyncio.sleep(1.0)


@in_virtual_time
async def test_a_loss_in_the_instant_of_the_bodys_end(world: World) -> None:
    """Whichever comes first, the statement ends in one LeaseLostError or none, never a stray cancel."""
    task = asyncio.current_task()
    assert task is not None
    outcomes = set()
    for steps in range(8):
        async with world.client() as client:
            try:
                async with client.lock(f"orders-{steps}").hold() as lease:
                    error = LeaseLostError(key=KEY, owner="", fencing_token=0, reason="test")
                    with lease._held._mutex:
                        lease._held._lose(error)
                    for _ in range(steps):
                        await asyncio.sleep(0)
                outcomes.add("none")
            except LeaseLostError:
                outcomes.add("lost")
            assert task.cancelling() == 0
            await asyncio.sleep(0.1)

    assert outcomes == {"lost"}


@in_virtual_time
async def test_a_timeout_around_hold_is_a_timeout(world: World) -> None:
    """``asyncio.timeout`` outside gives TimeoutError, and the lock is free."""
    async with world.client() as client:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1.0), client.lock("orders").hold():
                await asyncio.sleep(100)
        assert world.record().expired


@in_virtual_time
async def test_a_timeout_inside_hold_is_a_timeout(world: World) -> None:
    """``asyncio.timeout`` in the body works as everywhere, and the lease is not touched."""
    async with world.client() as client, client.lock("orders").hold() as lease:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1.0):
                await asyncio.sleep(100)
        assert lease.held


@in_virtual_time
async def test_a_loss_inside_a_timeout_is_a_loss(world: World) -> None:
    """Under a timeout that has not passed, a loss stays a LeaseLostError."""
    async with world.client() as client:
        with pytest.raises(LeaseLostError):
            async with asyncio.timeout(50.0), client.lock("orders").hold():
                thief(world)
                await asyncio.sleep(100)


@in_virtual_time
async def test_a_loss_ends_a_task_group_in_the_body(world: World) -> None:
    """The tasks of a group in the body are cancelled, and the loss comes out alone."""
    ended: list[str] = []
    async with world.client() as client:

        async def work(name: str) -> None:
            try:
                await asyncio.sleep(100)
            finally:
                ended.append(name)

        with pytest.raises(LeaseLostError):
            async with client.lock("orders").hold(), asyncio.TaskGroup() as group:
                group.create_task(work("a"))
                group.create_task(work("b"))
                thief(world)
        assert sorted(ended) == ["a", "b"]


@in_virtual_time
async def test_a_loss_inside_a_task_group_fails_the_group(world: World) -> None:
    """As the error of one task, a loss cancels its siblings and comes out in the group."""
    async with world.client() as client:

        async def hold() -> None:
            async with client.lock("orders").hold():
                thief(world)
                await asyncio.sleep(100)

        with pytest.raises(BaseExceptionGroup) as caught:
            async with asyncio.TaskGroup() as group:
                group.create_task(hold())
                sibling = group.create_task(asyncio.sleep(100))

        assert caught.value.subgroup(LeaseLostError) is not None
        assert sibling.cancelled()


@in_virtual_time
async def test_a_hold_can_be_entered_once(world: World) -> None:
    """A second ``async with`` on the same object is a mistake, and told."""
    async with world.client() as client:
        hold = client.lock("orders").hold()
        async with hold:
            pass
        with pytest.raises(RuntimeError, match="call hold"):
            await hold.__aenter__()


@in_virtual_time
async def test_a_lease_is_a_context_manager_that_releases(world: World) -> None:
    """``async with await lock.acquire()`` releases at the end, without cancelling anything."""
    async with world.client() as client:
        async with await client.lock("orders").acquire() as lease:
            assert lease.held
        assert world.record().expired


@in_virtual_time
async def test_the_end_of_a_lost_lease_raises_the_loss(world: World) -> None:
    """A lease used as a context manager tells the loss when the body ended well."""
    async with world.client() as client:
        with pytest.raises(LeaseLostError):
            async with await client.lock("orders").acquire():
                thief(world)
                await asyncio.sleep(5.0)


# on_lost


def lose(client: LockClient, lease: Lease) -> None:
    """Let the lease be lost, from its own loop."""
    error = LeaseTakenOverError(key=KEY, owner=lease.owner, fencing_token=lease.fencing_token, reason="test")

    def now() -> None:
        with lease._held._mutex:
            lease._held._lose(error)

    assert client._loop is not None
    client._loop.call_soon_threadsafe(now)


@pytest.mark.parametrize("renewal", ["thread", "loop"])
async def test_on_lost_runs_once_on_a_thread_of_its_own(renewal: str) -> None:
    """The callback may block: it runs neither on the host's thread nor on the caller's."""
    called: list[tuple[LeaseLostError, threading.Thread]] = []
    done = asyncio.Event()
    loop = asyncio.get_running_loop()

    def callback(loss: LeaseLostError) -> None:
        called.append((loss, threading.current_thread()))
        loop.call_soon_threadsafe(done.set)

    async with asynclock.connect("memory://", renewal=renewal) as client:  # type: ignore[arg-type]
        lease = await client.lock("orders").acquire()
        lease.on_lost(callback)
        lose(client, lease)
        await asyncio.wait_for(done.wait(), 5)
        await asyncio.sleep(0.05)

    ((loss, thread),) = called
    assert loss is lease.lost
    assert thread not in {threading.main_thread(), threading.current_thread()}
    assert thread.name != "asynclock-host"


@pytest.mark.parametrize("renewal", ["thread", "loop"])
async def test_on_lost_comes_at_once_if_already_lost(renewal: str) -> None:
    """Registered after the loss, the callback is called, once."""
    called: list[LeaseLostError] = []
    async with asynclock.connect("memory://", renewal=renewal) as client:  # type: ignore[arg-type]
        lease = await client.lock("orders").acquire()
        lose(client, lease)
        while lease.held:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        lease.on_lost(called.append)
        await asyncio.sleep(0.1)

    assert called == [lease.lost]


async def test_on_lost_comes_at_once_where_the_loop_is_blocked() -> None:
    """With ``renewal="loop"`` a blocked loop does not hold up what is known already."""
    called = threading.Event()
    async with asynclock.connect("memory://", renewal="loop") as client:
        lease = await client.lock("orders").acquire()
        lose(client, lease)
        await asyncio.sleep(0.05)
        lease.on_lost(lambda _: called.set())

        assert called.wait(5)  # blocks the loop


async def test_on_lost_is_not_called_for_a_release() -> None:
    """A release is no loss."""
    called: list[LeaseLostError] = []
    async with asynclock.connect("memory://") as client:
        lease = await client.lock("orders").acquire()
        lease.on_lost(called.append)
        await lease.release()
        lease.on_lost(called.append)
        await asyncio.sleep(0.05)

    assert called == []


async def test_what_on_lost_raises_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """A failing callback hurts neither the lease nor the other callbacks."""
    called = threading.Event()

    def fail(_: LeaseLostError) -> None:
        raise ZeroDivisionError

    async with asynclock.connect("memory://") as client:
        lease = await client.lock("orders").acquire()
        lease.on_lost(fail)
        lease.on_lost(lambda _: called.set())
        with caplog.at_level(logging.ERROR, logger="asynclock"):
            lose(client, lease)
            assert await asyncio.to_thread(called.wait, 5)
            await asyncio.sleep(0.05)

    assert "on_lost callback" in caplog.text
    assert "ZeroDivisionError" in caplog.text


# lead


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
    """After a loss the lock is acquired anew, and the work called with the new lease."""
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
async def test_lead_gives_up_when_the_lock_is_not_to_be_had(world: World) -> None:
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
