"""One request to the store: it ends in time, and no cancellation is lost, invented or counted twice."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import TYPE_CHECKING
from weakref import ref

import pytest

import asynclock
from asynclock import OutcomeUnknownError, connect
from tests.unit.kit import KEY, SETTINGS, World, in_virtual_time

if TYPE_CHECKING:
    from collections.abc import Coroutine

LIMIT = 1.0
traced: ContextVar[object] = ContextVar("traced")


class Asking:
    """A task that asks once, and what is left of it at its end."""

    def __init__(self, world: World, call: Coroutine[object, object, object]) -> None:
        self._store = world.client()._core._objects
        self._call = call
        self.answer: object = None
        self.cancelling = -1
        self.task = asyncio.create_task(self._ask())

    async def _ask(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            self.answer = await self._store.request("put_if_match", KEY, self._call, LIMIT)
        finally:
            self.cancelling = task.cancelling()
            await asyncio.sleep(0)  # where a cancellation that was left over would strike


@in_virtual_time
async def test_a_request_that_ends_by_its_timeout_leaves_no_cancellation(world: World) -> None:
    """The task that asked goes on as if it had never been cancelled."""
    asking = Asking(world, asyncio.sleep(1000))
    with pytest.raises(OutcomeUnknownError, match="no answer within 1 s"):
        await asking.task

    assert asking.cancelling == 0


async def stubborn() -> str:
    """Answer all the same when cancelled."""
    try:
        await asyncio.sleep(1000)
    except asyncio.CancelledError:
        return "answered"
    raise AssertionError


@in_virtual_time
async def test_an_answer_beats_the_timeout(world: World) -> None:
    """A backend that has an answer when its time is out may still give it."""
    asking = Asking(world, stubborn())
    await asking.task

    assert (asking.answer, asking.cancelling) == ("answered", 0)


async def failing(error: BaseException) -> None:
    """Fail with an error of its own when cancelled."""
    try:
        await asyncio.sleep(1000)
    except asyncio.CancelledError:
        raise error from None


@pytest.mark.parametrize("error", [TimeoutError(), ValueError()])
@in_virtual_time
async def test_an_error_of_a_backend_at_its_timeout_is_a_timeout(world: World, error: Exception) -> None:
    """SDKs turn a cancellation into errors of their own; such a request was not answered."""
    asking = Asking(world, failing(error))
    with pytest.raises(OutcomeUnknownError, match="no answer within 1 s"):
        await asking.task

    assert asking.cancelling == 0


@pytest.mark.parametrize("when", ["before", "in the turn of", "after"])
@in_virtual_time
async def test_a_cancellation_from_outside_wins_over_the_timeout(world: World, when: str) -> None:
    """Whichever comes first, and it is counted as the one that it is."""
    loop = asyncio.get_running_loop()
    asking: list[Asking] = []

    def cancel() -> None:
        asking[0].task.cancel()

    if when == "before":
        loop.call_later(LIMIT, cancel)
        asking.append(Asking(world, asyncio.sleep(1000)))
    elif when == "in the turn of":
        asking.append(Asking(world, asyncio.sleep(1000)))
        await asyncio.sleep(0)
        loop.call_later(LIMIT, cancel)
    else:
        asking.append(Asking(world, asyncio.sleep(1000)))
        await asyncio.sleep(0)
        loop.call_later(LIMIT, loop.call_soon, cancel)
    await asyncio.wait([asking[0].task])

    assert asking[0].task.cancelled() or asking[0].task.cancelling() == 1
    assert when == "after" or asking[0].task.cancelled()


@in_virtual_time
async def test_a_task_that_is_being_cancelled_may_still_ask(world: World) -> None:
    """What cleans up after a cancellation gets its answers and its timeouts."""
    ended = []

    async def clean_up() -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            task = asyncio.current_task()
            assert task is not None
            with pytest.raises(OutcomeUnknownError, match="no answer within 1 s"):
                await world.client()._core._objects.request("put_if_match", KEY, asyncio.sleep(1000), LIMIT)
            with pytest.raises(OutcomeUnknownError, match="cancelled inside the SDK"):
                await world.client()._core._objects.request("put_if_match", KEY, shared(), LIMIT)
            ended.append(task.cancelling())

    async def shared() -> None:
        raise asyncio.CancelledError

    cleaning = asyncio.create_task(clean_up())
    await asyncio.sleep(0)
    cleaning.cancel()
    await asyncio.wait([cleaning])

    assert ended == [1]
    assert cleaning.cancelled()


async def test_a_request_keeps_nothing_of_its_context() -> None:
    """Its timer, which the loop forgets only long after, does not keep what the caller has traced."""

    class Trace: ...

    async def ask() -> ref[Trace]:
        trace = Trace()
        traced.set(trace)
        await client._core._objects.request("put_if_match", KEY, asyncio.sleep(0), LIMIT)
        return ref(trace)

    async with connect("memory://", renewal="loop") as client:
        first = asyncio.get_running_loop().call_later(LIMIT / 2, int)  # before it nothing is forgotten
        trace = await asyncio.create_task(ask())
        await asyncio.sleep(0)

        assert trace() is None
        first.cancel()


@pytest.mark.parametrize(("timeout", "lasting"), [(None, 2.0), (100.0, 2.0), (0.5, 0.5)])
@in_virtual_time
async def test_a_request_that_is_not_answered_ends_in_time(
    world: World, timeout: float | None, lasting: float
) -> None:
    """It ends after a fifth of the validity, or sooner where less is left, and the error says so (rule 5)."""
    client = world.client()
    began = world.now

    with pytest.raises(OutcomeUnknownError, match=f"no answer within {lasting:g} s"):
        await client._core._objects.request("put_if_match", KEY, asyncio.sleep(1000), timeout)

    assert world.now - began == pytest.approx(lasting, abs=0.001)


@in_virtual_time
async def test_a_request_may_take_a_fifth_of_the_validity(world: World) -> None:
    """One try on a store that does not answer takes L / 5, not more (rule 5)."""
    client = world.client()
    world.store.cut_off.add(world.loop.world)
    began = world.now

    with pytest.raises(asynclock.BackendError):
        await client.lock("orders").try_acquire()

    assert world.now - began == pytest.approx(SETTINGS.validity / 5, abs=0.1)
