"""Leases whose holder is gone without a release: dropped, or on an event loop that was closed (rule 18)."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import warnings
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Literal

import pytest

import asynclock
from asynclock import LeaseLostError, LeaseSettings, LockClient, sync
from asynclock._core.protocol.belief import Phase
from asynclock._core.protocol.schedule import Schedule
from tests.unit.kit import FAST

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine
    from typing import Any

    from asynclock._core.protocol.held import HeldLock
    from asynclock.events import Event

SETTINGS = LeaseSettings(validity=20.0)
WITHIN = 2.0
"""The longest that an exit may take, and with it the end of a loop or of the last reference."""


def client_of(name: str) -> LockClient:
    """Return a client of a store of that name."""
    return asynclock.connect(f"memory://{name}", settings=SETTINGS)


def free_within(client: LockClient, seconds: float) -> bool:
    """Whether the lock is free within that time."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if asyncio.run(client.lock("orders").status()).state == "free":
            return True
        time.sleep(0.01)
    return False


def test_a_dropped_lease_is_released_with_a_warning() -> None:
    """A lease that the garbage collector finds is released, with a ResourceWarning."""
    client = client_of("dropped")
    with pytest.warns(ResourceWarning, match=r"'orders' was dropped"):
        asyncio.run(client.lock("orders").acquire())

    assert free_within(client, WITHIN)


def test_a_dropped_blocking_lease_is_released_with_a_warning() -> None:
    """The same for threads."""
    client = sync.connect("memory://dropped-sync", settings=SETTINGS)
    with pytest.warns(ResourceWarning, match=r"'orders' was dropped"):
        client.lock("orders").acquire()

    assert free_within(client_of("dropped-sync"), WITHIN)


def refuse(*_: object, **__: object) -> None:
    """Show a warning as a program does in which showing one fails."""
    raise KeyboardInterrupt


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("action", ["error", "always"])
@pytest.mark.parametrize("renewal", ["thread", "loop"])
async def test_a_dropped_lease_is_released_although_its_warning_raises(
    monkeypatch: pytest.MonkeyPatch, action: Literal["error", "always"], renewal: Literal["thread", "loop"]
) -> None:
    """It is let go first: with ``-W error``, and where Ctrl-C comes while the warning is shown."""
    url = f"memory://raises-{action}-{renewal}"
    monkeypatch.setattr(warnings, "showwarning", refuse)
    with warnings.catch_warnings():
        warnings.simplefilter(action)
        async with asynclock.connect(url, settings=SETTINGS, renewal=renewal) as client:
            lease: asynclock.Lease | None = await client.lock("orders").acquire()
            del lease
            gc.collect()

            async with asynclock.connect(url, settings=SETTINGS) as other:
                await (await other.lock("orders").acquire(timeout=10.0)).release()


@pytest.mark.parametrize("end", ["release", "lose"])
def test_a_lease_that_has_ended_is_dropped_in_silence(end: str) -> None:
    """No warning where nothing is left to be released."""

    async def main() -> None:
        async with client_of(f"ended-{end}") as client:
            lease = await client.lock("orders").acquire()
            if end == "release":
                await lease.release()
            else:
                await client._core.release_all(loss="a test")

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asyncio.run(main())
        gc.collect()


async def in_hold(client: LockClient) -> None:
    """Stay in the body of ``hold``."""
    async with client.lock("orders").hold():
        await asyncio.Event().wait()


async def in_lease(client: LockClient) -> None:
    """Stay in the body of a lease."""
    async with await client.lock("orders").acquire():
        await asyncio.Event().wait()


async def in_generator(client: LockClient) -> None:
    """Stay in an async generator that holds the lock."""

    async def numbers() -> AsyncIterator[int]:
        async with client.lock("orders").hold():
            while True:
                yield 1

    generator = numbers()
    await anext(generator)
    await asyncio.Event().wait()


async def in_context_manager(client: LockClient) -> None:
    """Stay in a context manager that holds the lock."""

    @asynccontextmanager
    async def guarded() -> AsyncIterator[None]:
        async with client.lock("orders").hold():
            yield

    async with guarded():
        await asyncio.Event().wait()


BODIES = [in_hold, in_lease, in_generator, in_context_manager]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("kept", [True, False], ids=["task kept", "task dropped"])
@pytest.mark.parametrize("body", BODIES)
def test_a_loop_that_is_closed_around_a_body_frees_the_lock(
    body: Callable[[LockClient], Coroutine[Any, Any, None]], *, kept: bool
) -> None:
    """The lease is not renewed forever, whether or not somebody still has the task."""
    client = client_of(f"closed-{body.__name__}-{kept}")
    loop = asyncio.new_event_loop()
    task = loop.create_task(body(client))
    loop.run_until_complete(asyncio.wait([task], timeout=0.1))
    loop.close()
    if not kept:
        del task
        gc.collect()

    assert free_within(client, WITHIN)


async def test_an_async_generator_that_is_closed_has_released() -> None:
    """``aclose`` of the generator waits for the release."""
    async with client_of("generator") as client:

        async def numbers() -> AsyncIterator[int]:
            async with client.lock("orders").hold():
                yield 1

        generator = numbers()
        await anext(generator)
        await generator.aclose()  # type: ignore[attr-defined]

        assert (await client.lock("orders").status()).state == "free"


async def test_a_lease_whose_loop_was_closed_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its ``lost`` says why. It is lost before its renewal ends: a fork gives up what is renewed."""
    client = client_of("told")
    phases: list[Phase] = []
    discard = Schedule.discard

    def watched(schedule: Schedule, held: HeldLock) -> None:
        phases.append(held.belief.phase)
        discard(schedule, held)

    monkeypatch.setattr(Schedule, "discard", watched)
    leases: list[asynclock.Lease] = []
    losses: list[LeaseLostError] = []

    async def body() -> None:
        async with client.lock("orders").hold() as lease:
            lease.on_lost(losses.append)
            leases.append(lease)
            await asyncio.Event().wait()

    loop = asyncio.new_event_loop()
    tasks = []

    def run() -> None:
        tasks.append(loop.create_task(body()))
        loop.run_until_complete(asyncio.wait(tasks, timeout=0.1))
        loop.close()

    await asyncio.to_thread(run)
    for _ in range(200):
        if losses:
            break
        await asyncio.sleep(0.01)

    assert not leases[0].held
    assert "event loop of its holder was closed" in str(losses[0])
    assert Phase.HELD not in phases
    tasks[0].get_coro().close()


def test_a_lock_acquired_for_a_waiter_on_a_closed_loop_is_released() -> None:
    """A program that drops its event loop during a wait leaves no lock that is renewed forever."""
    told: list[str] = []
    settled = threading.Event()

    def listen(event: Event) -> None:
        told.append(event.kind)
        if event.kind == "released":
            settled.set()

    with sync.connect("memory://dropped", settings=FAST) as holder:
        lease = holder.lock("orders").acquire()
        client = asynclock.connect("memory://dropped", settings=FAST, events=listen)
        loop = asyncio.new_event_loop()
        waiting = loop.create_task(client.lock("orders").acquire())
        loop.run_until_complete(asyncio.sleep(0.05))
        loop.close()
        lease.release()

        assert settled.wait(10 * FAST.validity)
        assert told[-2:] == ["acquired", "released"]
    waiting._log_destroy_pending = False  # type: ignore[attr-defined]  # dropped on purpose
