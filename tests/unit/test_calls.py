"""Calls between loops and threads: a caller is woken once, and one that went away leaves nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import signal
import sys
import threading
import time
from concurrent.futures import Future
from contextvars import ContextVar, copy_context
from typing import TYPE_CHECKING, NoReturn, TypeVar

import pytest

import asynclock
from asynclock import BackendError, LockClient, sync
from asynclock.backends import open_backend
from asynclock.backends.gcs import GcsBackend
from asynclock.portal import Host, block_on, cancel_once, current_task, run_on, start_on, uninterrupted
from asynclock.testing import Fault, FaultyBackend

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from asynclock.client import Renewal

FOREVER = 3600.0
SOON = 5.0
T = TypeVar("T")
traced = ContextVar("traced", default="before")


@pytest.fixture
def host() -> Iterator[asyncio.AbstractEventLoop]:
    """Return a loop that runs in a thread of its own."""
    host = asyncio.new_event_loop()
    thread = threading.Thread(target=host.run_forever)
    thread.start()
    yield host
    host.call_soon_threadsafe(host.stop)
    thread.join()
    host.close()


@pytest.mark.parametrize("renewal", ["loop", "thread"])
async def test_a_cancelled_waiter_goes_at_once(renewal: Renewal) -> None:
    """Who waits for another's lock does not wait on when cancelled, and leaves the line."""
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


@pytest.mark.parametrize("told", [True, False])
def test_a_lock_whose_new_holder_is_gone_is_freed(*, told: bool) -> None:
    """A loop that stops before it takes the lease, and is closed then, leaves no lock behind."""
    loop = asyncio.SelectorEventLoop()
    backend = FaultyBackend(open_backend("memory://stopped-loop"), seed=1)
    backend.delay = (0.02, 0.02)
    backend.storm({Fault.SLOW: 1.0})
    lock = LockClient(url="memory://stopped-loop", backend=backend).lock("orders")
    with sync.connect("memory://stopped-loop") as other:
        seen = other.lock("orders")

        async def begin() -> None:
            loop.stop()  # after this turn
            _held = await lock.acquire()

        acquiring = loop.create_task(begin())
        loop.run_forever()
        assert _eventually(lambda: seen.status().state == "held")
        if told:
            assert _eventually(lambda: bool(loop._ready))  # type: ignore[attr-defined]
        assert not acquiring.done()
        del acquiring
        loop.set_exception_handler(lambda *_: None)  # it tells of the task that was destroyed
        loop.close()

        def freed() -> bool:
            gc.collect()  # not once: the host may still be in the step that told the loop
            return seen.status().state == "free"

        assert _eventually(freed)


@pytest.mark.filterwarnings("ignore:the lease on:ResourceWarning")
@pytest.mark.parametrize("begun", ["acquire", "cancel", "confirm"])
def test_a_loop_may_be_closed_in_the_middle_of_a_call(begun: str) -> None:
    """Nothing complains but asyncio itself, and the lease that was dropped; all else fails this test."""
    _close_in_the_middle_of(begun)
    gc.collect()


@pytest.mark.parametrize("what", ["a read of a lock", "a call of a cloud backend"])
async def test_a_request_may_be_dropped_from_anywhere(what: str) -> None:
    """Where a loop was closed by force, the collector drops a waiting request outside of its context."""
    backend = FaultyBackend(open_backend("memory://"), seed=1)
    backend.delay = (FOREVER, FOREVER)
    backend.storm({Fault.SLOW: 1.0})

    async def call() -> None:
        with GcsBackend("bucket")._call("get", "orders.json"):
            await asyncio.sleep(FOREVER)

    async with LockClient(url="memory://", backend=backend, renewal="loop") as client:
        waiting = client._objects.read("orders.json") if what == "a read of a lock" else call()
        copy_context().run(waiting.send, None)
        waiting.close()


def test_requests_of_two_loops_may_end_at_the_same_instant() -> None:
    """The timeout of one does not fail because another thread is in the middle of its own."""
    in_the_middle, over = threading.Event(), threading.Event()

    class SlowToCancel(asyncio.Future[None]):
        def cancel(self, msg: object = None) -> bool:
            in_the_middle.set()
            over.wait(SOON)
            return super().cancel(msg)

    async def ask(kind: type[asyncio.Future[None]]) -> None:
        async def call() -> None:
            await kind()

        async with (
            asyncio.timeout(SOON),
            LockClient(url="memory://", backend=open_backend("memory://"), renewal="loop") as client,
        ):
            with pytest.raises(BackendError, match="no answer within"):
                await client._objects.request("get", "orders.json", call(), 0.01)

    other = threading.Thread(target=asyncio.run, args=(ask(SlowToCancel),))
    other.start()
    try:
        assert in_the_middle.wait(SOON)
        asyncio.run(ask(asyncio.Future))
    finally:
        over.set()
        other.join()


def _close_in_the_middle_of(begun: str) -> None:
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)
    backend = FaultyBackend(open_backend("memory://"), seed=1)
    client = LockClient(url="memory://", backend=backend, renewal="loop")
    tasks: list[asyncio.Task[object]] = []
    leases = []

    async def begin() -> None:
        lease = await client.lock("other").acquire()
        leases.append(lease)
        backend.delay = (FOREVER, FOREVER)
        backend.storm({Fault.SLOW: 1.0})
        call = lease.confirm if begun == "confirm" else client.lock("orders").acquire
        tasks.append(asyncio.create_task(call()))
        await asyncio.sleep(0.01)
        if begun == "cancel":
            tasks[0].cancel()
            await asyncio.sleep(0)

    loop.run_until_complete(begin())
    loop.close()


def test_an_interrupt_before_the_start_starts_nothing(
    host: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C while the other loop is being told: the interrupt goes on at once, nothing runs."""
    ran = []

    async def run() -> None:
        ran.append(True)

    def interrupted(*_: object) -> NoReturn:
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(host, "call_soon_threadsafe", interrupted)
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        block_on(host, run)

    assert time.monotonic() < began + SOON
    assert not ran


def test_an_interrupt_at_any_point_takes_a_late_result_back(host: asyncio.AbstractEventLoop) -> None:
    """Wherever Ctrl-C strikes a blocking call, between its end and its return too, its result is undone."""
    made: list[str] = []
    undone: list[str] = []

    async def make() -> str:
        made.append("lease")
        return "lease"

    async def undo(result: str) -> None:
        undone.append(result)

    def call() -> str:
        return block_on(host, make, undo)

    point = 0
    while _struck(call, point) is None:
        assert undone == made, point
        point += 1

    assert len(undone) > 2
    assert len(made) == len(undone) + 1, "the last one was not interrupted"


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Let SIGINT be a KeyboardInterrupt, however these tests were begun."""
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, previous)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_ends_the_waiting_for_a_lock() -> None:
    """Ctrl-C does not wait until the lock is free, and leaves the line."""
    main = threading.main_thread().ident
    interrupt = threading.Timer(0.05, signal.pthread_kill, (main, signal.SIGINT))
    with sync.connect("memory://") as client, client.lock("orders").hold() as lease:
        began = time.monotonic()
        interrupt.start()
        with pytest.raises(KeyboardInterrupt):
            client.lock("orders").acquire(timeout=2 * SOON)
        assert time.monotonic() < began + SOON
        lease.release()
        with client.lock("orders").hold(timeout=0):
            pass


@pytest.mark.parametrize("method", ["acquire", "try_acquire"])
def test_an_interrupt_at_any_point_leaves_no_lock_behind(method: str) -> None:
    """Wherever Ctrl-C strikes a blocking acquisition, nobody holds the lock afterwards."""
    with sync.connect("memory://struck") as client, sync.connect("memory://struck") as other:
        acquire = getattr(client.lock("orders"), method)
        acquire().release()
        point = 0
        while (lease := _struck(acquire, point)) is None:
            assert _eventually(lambda: other.lock("orders").status().state == "free"), point
            point += 1
        lease.release()
        assert point > 10


def _struck(call: Callable[[], T], point: int) -> T | None:
    """Call, interrupted at that one of the instants at which Python looks for signals."""
    left = point

    def strike(_: object, event: str, __: object) -> None:
        nonlocal left
        if event in {"call", "c_return"}:
            left -= 1
            if left < 0:
                sys.setprofile(None)
                raise KeyboardInterrupt

    result = None
    with contextlib.suppress(KeyboardInterrupt):
        sys.setprofile(strike)
        result = call()
        sys.setprofile(None)
    return result


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
        _let_run(host)
    else:
        answers[0].set_result(None)
    if ends_first:
        calling.cancel()
    await asyncio.sleep(0.05)
    assert not calling.done()
    goes_on.set_result(None)

    assert await calling == "went on"


if sys.version_info >= (3, 12):

    @pytest.mark.parametrize("renewal", ["loop", "thread"])
    async def test_a_loop_may_begin_its_tasks_at_once(renewal: Renewal) -> None:
        """``asyncio.eager_task_factory`` runs a call before its task is known."""
        asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
        async with asynclock.connect("memory://", renewal=renewal) as client:
            lock = client.lock("orders")
            async with lock.hold():
                waiting = asyncio.create_task(lock.acquire())
                await asyncio.sleep(0.01)
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting
            async with lock.hold(timeout=0) as lease:
                assert lease.held


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt])
def test_an_exit_inside_of_a_call_ends_the_loop(kind: type[BaseException]) -> None:
    """Ctrl-C in a step of a call is not lost where its caller is gone, and nothing complains."""
    loop = asyncio.new_event_loop()
    complaints: list[object] = []
    loop.set_exception_handler(lambda _, context: complaints.append(context))

    async def run() -> NoReturn:
        raise kind

    start_on(loop, run)
    with pytest.raises(kind):
        loop.run_until_complete(asyncio.sleep(SOON))
    for task in asyncio.all_tasks(loop):
        task.cancel()
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    gc.collect()

    assert complaints == []


def test_an_exit_while_its_caller_is_cancelled_ends_the_loop_once() -> None:
    """The caller is told of its own cancellation, which it waits to hear of."""
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


async def test_an_end_just_before_the_waiting_is_not_missed(
    host: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread may end the call before its caller has come to wait for it."""
    wake = host.call_soon_threadsafe

    def end_at_once(begin: Callable[[], object]) -> None:
        monkeypatch.undo()
        wake(begin)
        _let_run(host)

    monkeypatch.setattr(host, "call_soon_threadsafe", end_at_once)
    async with asyncio.timeout(SOON):
        await run_on(host, _nothing)


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

    calling = _call(write)
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

    calling = _call(acquire)
    await asyncio.sleep(0.01)
    for _ in range(3):
        calling.cancel()
        await asyncio.sleep(0.005)
        cancel_once(tasks[0])
    with pytest.raises(asyncio.CancelledError):
        await calling

    assert done == ["cleaned up"]


async def test_a_cleanup_that_may_not_be_interrupted_is_gone_on_from() -> None:
    """One that was delivered is not raised again at the end of the write that frees the lock."""
    done = []

    async def acquire() -> None:
        try:
            await asyncio.sleep(FOREVER)
        finally:
            with uninterrupted():
                await asyncio.sleep(0)
            done.append("left the line")

    calling = _call(acquire)
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

    calling = _call(acquire)
    await asyncio.sleep(0.01)
    calling.cancel()
    async with asyncio.timeout(SOON):
        with pytest.raises(asyncio.CancelledError):
            await calling
    assert not reaping[0].done()
    answer.set_result(None)
    await reaping[0]


def test_a_task_may_outlive_the_call_that_started_it(host: asyncio.AbstractEventLoop) -> None:
    """A release that goes on in the background may write as any other task does."""
    ended = threading.Event()
    written: Future[str] = Future()

    async def write() -> None:
        await asyncio.to_thread(ended.wait, SOON)
        with uninterrupted():
            written.set_result("written")

    async def release() -> asyncio.Task[None]:
        return asyncio.create_task(write())

    writing = block_on(host, release)
    ended.set()

    assert written.result(SOON) == "written"
    assert _eventually(writing.done)


@pytest.mark.parametrize("renewal", ["loop", "thread"])
async def test_a_cancellation_is_not_lost_in_the_turn_of_the_end(renewal: Renewal) -> None:
    """Whoever cancels an acquisition in time never gets its lease, and the lock is free."""
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
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_nothing(), host))

    assert task.done()
    assert not task.cancelled()
    assert complaints == []


@pytest.mark.parametrize("elsewhere", [True, False])
async def test_a_task_that_never_began_ends_its_call(
    host: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch, *, elsewhere: bool
) -> None:
    """Another part of the program, ``asyncio.run`` as it ends for one, may cancel every task of the loop."""
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


async def test_the_first_call_does_not_wait_for_the_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host whose thread has not come to its loop yet takes calls, and runs them when it has."""

    class SlowHost(Host):
        def _run(self) -> None:
            time.sleep(0.1)
            self.loop.run_forever()

    host = SlowHost()
    monkeypatch.setattr(Host, "_current", host)
    async with asynclock.connect("memory://") as client, client.lock("orders").hold() as lease:
        assert lease.held

    host.loop.call_soon_threadsafe(host.loop.stop)
    await asyncio.to_thread(host._thread.join)
    host.loop.close()


@pytest.mark.parametrize("renewal", ["loop", "thread"])
@pytest.mark.parametrize("cancelled", [False, True])
async def test_a_task_keeps_its_context(renewal: Renewal, *, cancelled: bool) -> None:
    """What a task sets in a context variable after a call, or a cancelled one, stays set."""
    async with asynclock.connect("memory://", renewal=renewal) as client, client.lock("orders").hold():
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.01):
                _held = await client.lock("orders" if cancelled else "others").acquire()
        traced.set("after")
        await asyncio.sleep(0)

        assert traced.get() == "after"


async def _nothing() -> None:
    pass


def _call(start: Callable[[], Coroutine[object, object, None]]) -> asyncio.Task[None]:
    """Call ``start`` on the running loop, from a task that can be cancelled."""
    return asyncio.create_task(run_on(asyncio.get_running_loop(), start))


def _let_run(host: asyncio.AbstractEventLoop) -> None:
    """Let the loop of another thread make some turns in one turn of the running loop."""
    for _ in range(5):
        turn = asyncio.run_coroutine_threadsafe(_nothing(), host)
        while not turn.done():
            pass


def _eventually(holds: Callable[[], bool]) -> bool:
    until = time.monotonic() + SOON
    while not holds():
        if time.monotonic() > until:
            return False
        time.sleep(0.005)
    return True
