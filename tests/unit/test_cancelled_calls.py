"""Cancelling a call across loops: once, with its message, and after what may not be cut off."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING

import pytest

import asynclock
from asynclock._core.portal import cancel_once, current_task, run_on, uninterrupted
from tests.unit.loops import FOREVER, SOON, call_here, let_run, nothing

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from asynclock._core.home import Renewal


@pytest.mark.parametrize("renewal", ["loop", "thread"])
async def test_a_cancelled_waiter_goes_at_once(renewal: Renewal) -> None:
    """A waiter behind another holder ends as soon as it is cancelled, and leaves the queue."""
    async with asynclock.connect("memory://", renewal=renewal) as client:
        lock = client.lock("orders")
        async with lock.hold():
            waiting = asyncio.create_task(lock.acquire())
            await asyncio.sleep(0.01)
            waiting.cancel("enough")
            await asyncio.wait([waiting], timeout=SOON)
            assert waiting.cancelled()
        async with lock.hold(timeout=0):
            pass


@pytest.mark.parametrize("renewal", ["loop", "thread"])
async def test_a_cancellation_keeps_its_message(renewal: Renewal) -> None:
    """``task.cancel(message)`` says why, and says nothing where nothing was said."""
    async with asynclock.connect("memory://", renewal=renewal) as client, client.lock("orders").hold():
        said = []
        for message in ("enough", None):
            waiting = asyncio.create_task(client.lock("orders").acquire())
            await asyncio.sleep(0)
            waiting.cancel(message)
            try:
                await waiting
            except asyncio.CancelledError as error:
                said.append(error.args)

    assert said == [("enough",), ()]


@pytest.mark.parametrize("renewal", ["loop", "thread"])
async def test_a_cancellation_just_before_the_end_of_a_call_is_not_lost(renewal: Renewal) -> None:
    """An acquisition that was cancelled in time returns no lease, and the lock is free."""
    async with asynclock.connect("memory://", renewal=renewal) as client:
        lock = client.lock("orders")
        late = False
        for turns in itertools.count():
            acquiring = asyncio.create_task(lock.acquire())
            for _ in range(turns):
                await asyncio.sleep(0)
            late = not acquiring.cancel()
            await asyncio.wait([acquiring])
            assert acquiring.cancelled() or late
            if late:
                break
            async with lock.hold(timeout=SOON):
                pass
        await acquiring.result().release()


async def test_a_cancellation_after_the_end_is_none(host: asyncio.AbstractEventLoop) -> None:
    """One that reaches the other loop too late finds nothing to cancel, and nothing complains."""
    complaints: list[object] = []
    host.set_exception_handler(lambda _, context: complaints.append(context))

    async def task_of_the_call() -> asyncio.Task[object]:
        return current_task()

    task = await run_on(host, task_of_the_call)
    host.call_soon_threadsafe(cancel_once, task)
    for _ in range(2):
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(nothing(), host))

    assert task.done()
    assert not task.cancelled()
    assert complaints == []


@pytest.mark.parametrize("elsewhere", [True, False])
@pytest.mark.parametrize("ends_first", [True, False])
async def test_an_end_and_a_cancellation_at_once_wake_once(
    host: asyncio.AbstractEventLoop, *, ends_first: bool, elsewhere: bool
) -> None:
    """A second wake would be one too many for what the task awaits next."""
    here = asyncio.get_running_loop()
    loop = host if elsewhere else here
    answers: list[asyncio.Future[None]] = []
    goes_on = here.create_future()

    async def wait() -> None:
        answers.append(loop.create_future())
        await answers[0]

    async def call() -> str:
        with pytest.raises(asyncio.CancelledError):
            await run_on(loop, wait)
        await goes_on
        return "went on"

    calling = asyncio.create_task(call())
    await asyncio.sleep(0.05)
    if not ends_first:
        calling.cancel()
    if elsewhere:
        host.call_soon_threadsafe(answers[0].set_result, None)
        let_run(host)
    else:
        answers[0].set_result(None)
    if ends_first:
        calling.cancel()
    await asyncio.sleep(0.05)
    assert not calling.done()
    goes_on.set_result(None)

    assert await calling == "went on"


async def test_a_cleanup_is_not_interrupted_by_the_cancellation_it_follows() -> None:
    """One that was deferred to the end of a write is raised there, and not once more."""
    done = []
    answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def write() -> None:
        try:
            with uninterrupted():
                await answer
        finally:
            await asyncio.sleep(0.01)
            done.append("cleaned up")

    calling = call_here(write)
    await asyncio.sleep(0.01)
    calling.cancel()
    await asyncio.sleep(0.01)
    assert not calling.done()
    answer.set_result(None)
    with pytest.raises(asyncio.CancelledError):
        await calling

    assert done == ["cleaned up"]


async def test_a_cleanup_is_not_interrupted_by_further_cancellations() -> None:
    """The caller may be cancelled again and its client be closed: the call is cancelled once."""
    done = []
    tasks: list[asyncio.Task[object]] = []

    async def acquire() -> None:
        tasks.append(current_task())
        try:
            await asyncio.sleep(FOREVER)
        finally:
            await asyncio.sleep(0.05)
            done.append("cleaned up")

    calling = call_here(acquire)
    await asyncio.sleep(0.01)
    for _ in range(3):
        calling.cancel()
        await asyncio.sleep(0.005)
        cancel_once(tasks[0])
    with pytest.raises(asyncio.CancelledError):
        await calling

    assert done == ["cleaned up"]


async def test_a_cancellation_is_raised_once_though_a_cleanup_follows() -> None:
    """A cancellation that was delivered is not raised again at the end of the write that frees the lock."""
    done = []

    async def acquire() -> None:
        try:
            await asyncio.sleep(FOREVER)
        finally:
            with uninterrupted():
                await asyncio.sleep(0)
            done.append("left the line")

    calling = call_here(acquire)
    await asyncio.sleep(0.01)
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling

    assert done == ["left the line"]


async def test_a_write_in_the_background_does_not_hold_up_a_cancellation() -> None:
    """A task that a call has started is not the call: what it must finish, it finishes alone."""
    answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    reaping: list[asyncio.Task[None]] = []

    async def reap() -> None:
        with uninterrupted():
            await answer

    async def acquire() -> None:
        reaping.append(asyncio.create_task(reap()))
        await asyncio.sleep(FOREVER)

    calling = call_here(acquire)
    await asyncio.sleep(0.01)
    calling.cancel()
    async with asyncio.timeout(SOON):
        with pytest.raises(asyncio.CancelledError):
            await calling
    assert not reaping[0].done()
    answer.set_result(None)
    await reaping[0]


def test_an_exit_while_its_caller_is_cancelled_ends_the_loop_once() -> None:
    """The cancelled caller still learns of its own cancellation."""
    loop = asyncio.new_event_loop()
    seen: list[type[BaseException]] = []

    async def exit_when_cancelled() -> None:
        try:
            await asyncio.sleep(FOREVER)
        finally:
            raise SystemExit

    async def call() -> None:
        try:
            await run_on(loop, exit_when_cancelled)
        except BaseException as error:
            seen.append(type(error))
            raise

    calling = loop.create_task(call())
    loop.call_later(0.01, calling.cancel)
    with pytest.raises(SystemExit):
        loop.run_until_complete(calling)
    loop.run_until_complete(asyncio.wait([calling]))
    loop.close()

    assert calling.cancelled()
    assert seen == [asyncio.CancelledError]


@pytest.mark.parametrize("elsewhere", [True, False])
async def test_a_task_that_never_began_ends_its_call(
    host: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch, *, elsewhere: bool
) -> None:
    """Other code, such as ``asyncio.run`` when it ends, may cancel every task of the loop."""
    loop = host if elsewhere else asyncio.get_running_loop()
    create_task = loop.create_task
    began = []

    def create_and_cancel(coroutine: Coroutine[object, object, None]) -> asyncio.Task[None]:
        monkeypatch.undo()
        task = create_task(coroutine)
        task.cancel()
        return task

    async def begin() -> None:
        began.append(True)

    monkeypatch.setattr(loop, "create_task", create_and_cancel)
    async with asyncio.timeout(SOON):
        with pytest.raises(asyncio.CancelledError):
            await run_on(loop, begin)

    assert not began
