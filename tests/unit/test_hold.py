"""``hold``: what becomes of the code that runs under a lease."""


# ruff: noqa: PT012  a loss is raised by the end of a body with several statements

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import anyio
import pytest

from asynclock import LeaseExpiredError, LeaseLostError, LeaseTakenOverError, LockClient, Written
from asynclock._core.protocol.belief import End
from asynclock.backends._memory import MemoryBackend
from tests.unit.kit import World, clock_of, in_virtual_time, our_record, steps

if TYPE_CHECKING:
    from asynclock._core.protocol.held import HeldLock
    from asynclock.lease import Lease


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


def thief(world: World) -> None:
    """Let another record appear, so that the next renewal is a loss."""
    world.put(our_record(valid_until=world.now + 12, owner="thief"))


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
    """A body that catches CancelledError and returns gets the loss at the end of the statement."""
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
            if first == "outside":
                task.cancel()
            lease._held.belief.end(End.LET_GO, "test")
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
    for turns in range(8):
        async with world.client() as client:
            try:
                async with client.lock(f"orders-{turns}").hold() as lease:
                    lease._held.belief.end(End.LET_GO, "test")
                    for _ in range(turns):
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
    """A second ``async with`` on the same object is an error."""
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
    """A lease used as a context manager raises the loss when the body ended well."""
    async with world.client() as client:
        with pytest.raises(LeaseLostError):
            async with await client.lock("orders").acquire():
                thief(world)
                await asyncio.sleep(5.0)


@in_virtual_time
async def test_a_loss_in_the_last_instant_of_hold_is_raised(world: World) -> None:
    """A body that ends while its lock is still held, but whose release comes too late, gets the loss."""

    async def body(client: LockClient) -> None:
        async with client.lock("orders").hold():
            engine = client._core.engine("orders")
            finish = engine.finish

            async def too_late(held: HeldLock | None) -> bool:
                clock_of(client).step(20.0)
                return await finish(held)

            engine.finish = too_late  # type: ignore[method-assign]

    async with world.client() as client:
        with pytest.raises(LeaseExpiredError):
            await body(client)


class SlowToFree(MemoryBackend):
    """Answers a replacement only after the loop has run a hundred times."""

    async def put_if_match(self, key: str, body: bytes, version: str) -> Written:
        """Replace an object; see ``Backend.put_if_match``."""
        await steps(100)
        return await super().put_if_match(key, body, version)


async def test_a_scope_that_cancels_again_and_again_wakes_a_release_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Under anyio's repeated cancellation the end of ``hold`` does not spin until the store answers."""
    waits = 0
    shield = asyncio.shield

    def counted(ended: asyncio.Future[None]) -> asyncio.Future[None]:
        nonlocal waits
        waits += 1
        return shield(ended)

    async with LockClient(url="memory://", backend=SlowToFree(), renewal="loop") as client:
        with anyio.CancelScope() as scope:
            async with client.lock("orders").hold():
                monkeypatch.setattr(asyncio, "shield", counted)
                scope.cancel()
                await asyncio.sleep(30)

        assert scope.cancelled_caught
    assert 0 < waits < 10
