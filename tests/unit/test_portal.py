"""Calls between loops and threads: a caller is woken once, and one that went away leaves nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import subprocess
import sys
import threading
import time
from concurrent.futures import Future
from contextvars import ContextVar, copy_context
from typing import TYPE_CHECKING, NoReturn
from weakref import ref

import pytest

import asynclock
from asynclock import BackendError, LockClient, sync
from asynclock._core.portal import Call, Host, block_on, run_on, start_on, uninterrupted
from asynclock.backends import open_backend
from asynclock.backends._cloud import BackendCall
from asynclock.backends._gcs import GcsBackend
from asynclock.backends._offload import Workers
from asynclock.testing import Fault, FaultyBackend
from tests.unit.loops import FOREVER, SOON, eventually, let_run, nothing

if TYPE_CHECKING:
    from collections.abc import Callable
    from weakref import ReferenceType

    from asynclock._core.home import Renewal

traced = ContextVar("traced", default="before")


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
        assert eventually(lambda: seen.status().state == "held")
        if told:
            assert eventually(lambda: bool(loop._ready))  # type: ignore[attr-defined]
        assert not acquiring.done()
        del acquiring
        loop.set_exception_handler(lambda *_: None)  # it tells of the task that was destroyed
        loop.close()

        def freed() -> bool:
            gc.collect()  # not once: the host may still be in the step that told the loop
            return seen.status().state == "free"

        assert eventually(freed)


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
        with BackendCall(GcsBackend("bucket"), "get", "orders.json"):
            await asyncio.sleep(FOREVER)

    async with LockClient(url="memory://", backend=backend, renewal="loop") as client:
        waiting = client._core._objects.read("orders.json") if what == "a read of a lock" else call()
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
                await client._core._objects.request("get", "orders.json", call(), 0.01)

    other = threading.Thread(target=asyncio.run, args=(ask(SlowToCancel),))
    other.start()
    try:
        assert in_the_middle.wait(SOON)
        asyncio.run(ask(asyncio.Future))
    finally:
        over.set()
        other.join()


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


async def test_the_end_of_a_call_just_before_the_caller_waits_is_not_missed(
    host: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread may end the call before its caller waits for it."""
    wake = host.call_soon_threadsafe

    def end_at_once(begin: Callable[[], object]) -> None:
        monkeypatch.undo()
        wake(begin)
        let_run(host)

    monkeypatch.setattr(host, "call_soon_threadsafe", end_at_once)
    async with asyncio.timeout(SOON):
        await run_on(host, nothing)


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
    assert eventually(writing.done)


async def test_the_first_call_does_not_wait_for_the_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host whose thread has not come to its loop yet takes calls, and runs them when it has."""

    class SlowHost(Host):
        def run(self) -> None:
            time.sleep(0.1)
            self.loop.run_forever()

    host = SlowHost()
    monkeypatch.setattr(Host, "_current", host)
    thread = threading.Thread(target=host.run)
    thread.start()
    async with asynclock.connect("memory://") as client, client.lock("orders").hold() as lease:
        assert lease.held

    host.loop.call_soon_threadsafe(host.loop.stop)
    await asyncio.to_thread(thread.join)
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


async def test_a_call_waits_for_a_thread_where_no_more_may_be_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """From Python 3.12 on an interpreter that shuts down starts no thread; those that run serve on."""

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    workers, held = Workers("test", 2), threading.Event()
    await workers.run(lambda: None)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    first = asyncio.create_task(workers.run(held.wait))
    await asyncio.sleep(0)
    others = [asyncio.create_task(workers.run(lambda number=number: number)) for number in range(3)]
    await asyncio.sleep(0)
    held.set()

    assert await asyncio.wait_for(asyncio.gather(first, *others), 5) == [True, 0, 1, 2]
    workers.close()


HANGS = """
import asyncio, threading, time
from asynclock._core.portal import Host
begun = threading.Event()
def hang():
    begun.set()
    time.sleep(60)
asyncio.run_coroutine_threadsafe(asyncio.to_thread(hang), Host.get().loop)
begun.wait()
"""


def test_a_call_that_hangs_on_the_host_does_not_keep_the_process() -> None:
    """A name that takes a minute to look up is not waited for at the end."""
    subprocess.run([sys.executable, "-c", HANGS], timeout=20, check=True)


def test_a_call_whose_caller_is_gone_keeps_nothing_alive() -> None:
    """Its event loop was closed by force: what it refers to, such as a lease, can be collected."""

    class Work:
        """Something that a call needs."""

    async def wait(work: object, begun: threading.Event) -> object:
        begun.set()
        await asyncio.get_running_loop().create_future()
        return work

    def call() -> ReferenceType[Work]:
        work, begun = Work(), threading.Event()
        loop = asyncio.new_event_loop()
        task = loop.create_task(run_on(Host.get().loop, lambda: wait(work, begun)))
        loop.run_until_complete(asyncio.sleep(0))
        assert begun.wait(10)
        assert not task.done()
        loop.close()
        return ref(work)

    work = call()
    gc.collect()

    assert work() is None


def test_no_interrupt_is_lost_where_a_call_is_collected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python runs no code of ours then: a Ctrl-C that struck it would be printed and ignored."""
    loop = asyncio.new_event_loop()
    monkeypatch.setattr(Host, "owns", lambda _: True)
    call = Call(loop, asyncio.Event().wait)
    call.begin_alone()
    loop.close()
    ran: list[str] = []
    gone = ref(call)

    # Hypothesis, once it has run in this process, has a callback of its own there.
    callbacks, gc.callbacks[:] = gc.callbacks[:], []
    sys.setprofile(lambda frame, event, _: ran.append(frame.f_code.co_name) if event == "call" else None)
    del call
    gc.collect()
    sys.setprofile(None)
    gc.callbacks[:] = callbacks

    assert gone() is None
    assert ran == []
