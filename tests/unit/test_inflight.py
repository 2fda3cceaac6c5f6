"""What a client has under way: what an exit waits for, and what the end of a client cuts off (rule 18)."""

from __future__ import annotations

import asyncio

import pytest

from asynclock import ConfigError
from asynclock._core.inflight import InFlight
from asynclock._core.portal import run_on

CLOSED = ConfigError(setting="client", value="memory://", reason="it was closed")


@pytest.fixture
def in_flight() -> InFlight:
    """Return the work of a client that has none."""
    return InFlight()


def soon(seconds: float = 5.0) -> float:
    """Return the loop time in some seconds."""
    return asyncio.get_running_loop().time() + seconds


async def test_without_work_there_is_nothing_to_wait_for(in_flight: InFlight) -> None:
    """An exit with nothing under way does not wait."""
    assert not await in_flight.progress(soon())


async def test_the_end_of_each_work_is_progress(in_flight: InFlight) -> None:
    """After each end the caller looks again, until nothing is left."""
    tasks = [in_flight.spawn(asyncio.sleep(seconds)) for seconds in (0.01, 0.05)]

    assert await in_flight.progress(soon())
    assert [task.done() for task in tasks] == [True, False]
    assert await in_flight.progress(soon())
    assert not await in_flight.progress(soon())


async def test_progress_ends_at_its_time(in_flight: InFlight) -> None:
    """An exit is bounded, whatever is under way."""
    task = in_flight.spawn(asyncio.sleep(30))

    assert await in_flight.progress(soon(0.02))
    assert not await in_flight.progress(soon(0.0))
    task.cancel()


async def test_who_waited_for_the_work_goes_on_before_the_exit_looks_again(in_flight: InFlight) -> None:
    """An acquisition whose write was waited for has its lock by then, and the exit releases it."""
    landed: list[bool] = []

    async def acquire() -> None:
        await asyncio.wait([in_flight.spawn(asyncio.sleep(0.01))])
        landed.append(True)

    acquiring = asyncio.create_task(acquire())
    await asyncio.sleep(0)

    assert await in_flight.progress(soon())
    assert landed
    await acquiring


async def test_a_protected_task_is_work_until_the_outermost_body_ends(in_flight: InFlight) -> None:
    """A release contains writes: it is under way until its own end, not theirs."""
    with in_flight.protect():
        with in_flight.protect():
            pass
        assert in_flight.pending == [asyncio.current_task()]

    assert in_flight.pending == []


async def test_an_acquisition_is_waited_for_only_once_the_client_is_closed(in_flight: InFlight) -> None:
    """A signal does not wait for those who wait; ``aclose`` cancels them and waits for their clean-up."""

    async def acquire() -> None:
        with in_flight.until_closed():
            await asyncio.sleep(30)

    acquiring = asyncio.create_task(acquire())
    await asyncio.sleep(0)
    assert not await in_flight.progress(soon())

    in_flight.close(CLOSED)

    assert await in_flight.progress(soon())
    with pytest.raises(ConfigError, match="it was closed"):
        await acquiring


async def test_an_acquisition_is_waited_for_while_a_write_of_it_may_stand(in_flight: InFlight) -> None:
    """An exit leaves no record to expire that the acquisition is about to adopt or to free."""

    async def acquire() -> None:
        with in_flight.until_closed():
            in_flight.note(stands=True)
            await asyncio.sleep(0.01)
            in_flight.note(stands=False)
            await asyncio.sleep(30)

    acquiring = asyncio.create_task(acquire())
    await asyncio.sleep(0)

    assert await in_flight.progress(soon())
    assert not await in_flight.progress(soon())
    acquiring.cancel()


async def test_nothing_is_acquired_after_the_end(in_flight: InFlight) -> None:
    """A closed client says so at once."""
    in_flight.close(CLOSED)

    with pytest.raises(ConfigError, match="it was closed"), in_flight.until_closed():
        raise AssertionError


async def test_a_cancellation_of_the_caller_stays_one(in_flight: InFlight) -> None:
    """Only the end of the client is raised as its error."""

    async def acquire() -> None:
        with in_flight.until_closed():
            await asyncio.sleep(30)

    acquiring = asyncio.create_task(acquire())
    await asyncio.sleep(0)
    acquiring.cancel()

    with pytest.raises(asyncio.CancelledError):
        await acquiring


async def test_what_is_left_at_the_end_is_cut_off(in_flight: InFlight) -> None:
    """Work that the store does not let end is cancelled, and so is what it starts to clean up."""
    started: list[asyncio.Task[None]] = []

    async def release() -> None:
        try:
            await asyncio.sleep(30)
        finally:
            started.append(in_flight.spawn(asyncio.sleep(30)))

    in_flight.add(asyncio.get_running_loop().create_future())  # a hand-over that nobody will settle
    task = in_flight.spawn(release())
    await asyncio.sleep(0)

    await in_flight.cut_off()

    assert task.cancelled()
    assert started[0].cancelled()


async def test_a_call_that_is_cancelled_in_a_protected_body_finishes_it(in_flight: InFlight) -> None:
    """The write goes on to its answer, which is taken in, before the cancellation is raised."""
    answers: list[str] = []
    begun = asyncio.Event()

    async def write() -> None:
        with in_flight.protect():
            begun.set()
            await asyncio.sleep(0.02)
            answers.append("landed")

    call = asyncio.create_task(run_on(asyncio.get_running_loop(), write))
    await begun.wait()
    call.cancel()

    with pytest.raises(asyncio.CancelledError):
        await call
    assert answers == ["landed"]
    assert in_flight.pending == []
