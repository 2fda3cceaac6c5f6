"""A lost lease: why it was lost, and who learns of it (rule 6)."""

# ruff: noqa: ASYNC110  polling is what users do with ``held``

from __future__ import annotations

import _thread
import asyncio
import logging
import threading
import time
from typing import TYPE_CHECKING

import pytest

import asynclock
from asynclock import (
    Lease,
    LeaseExpiredError,
    LeaseLostError,
    LeaseSettings,
    LeaseTakenOverError,
    LockClient,
    sync,
)
from asynclock._core.protocol.belief import End
from asynclock._core.reserve import Reserve
from asynclock.testing._clocks import ManualClock
from tests.unit.kit import KEY, World, clock_of, in_virtual_time, our_record, until_lost
from tests.unit.programs import run

if TYPE_CHECKING:
    from pathlib import Path

    from asynclock.lease import Lease


@in_virtual_time
async def test_another_record_in_the_store_is_a_loss(world: World) -> None:
    """The loss that a renewal finds says who took over."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        world.put(our_record(valid_until=world.now + 12, owner="thief", epoch=1_700_000_500_000_000))
        await until_lost(lease)

        assert isinstance(lease.lost, LeaseTakenOverError)
        assert lease.lost.new_owner == "thief"
        assert lease.lost.new_token == 1_700_000_500_000_000
        with pytest.raises(LeaseTakenOverError):
            await lease.release()
        assert world.record().owner == "thief"


@in_virtual_time
async def test_a_deleted_object_is_a_loss(world: World) -> None:
    """A renewal that finds no object has lost the lock and creates none."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        world.store.delete_now(KEY)
        await until_lost(lease)

        assert isinstance(lease.lost, LeaseTakenOverError)
        assert "deleted" in lease.lost.reason
        await asyncio.sleep(1.0)
        assert world.store.body(KEY) is None


@in_virtual_time
async def test_a_corrupt_object_is_a_loss(world: World) -> None:
    """A renewal that finds a corrupt object has lost the lock and writes nothing."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        world.put(b"garbage")
        await until_lost(lease)
        await asyncio.sleep(1.0)

        assert "corrupt" in str(lease.lost)
        assert world.store.body(KEY) == b"garbage"


@in_virtual_time
async def test_the_first_reason_of_a_loss_stays(world: World) -> None:
    """A renewal that finds another owner after the deadline has passed reports nothing more (rule 6)."""
    client = world.client()
    lease = await client.lock("orders").acquire()
    world.put(our_record(valid_until=world.now + 30))
    confirming = asyncio.create_task(lease.confirm())
    await asyncio.sleep(0.03)  # its write was refused, and the object is being read
    clock_of(client).step(20.0)
    first = lease.lost

    with pytest.raises(LeaseExpiredError):
        await confirming
    await asyncio.sleep(1)

    assert isinstance(first, LeaseExpiredError)
    assert lease.lost is first
    assert world.told().count("lost") == 1


def test_a_loss_that_another_thread_sees_first_is_reported() -> None:
    """The first look at the lease after its deadline reports the loss to every callback."""
    told = threading.Event()
    clock = ManualClock(wall=time.time())  # that of the store
    with sync.connect("memory://", settings=LeaseSettings(validity=300.0), clock=clock) as client:
        lease = client.lock("orders").acquire()
        lease.on_lost(lambda _: told.set())
        client.lock("orders").status()  # a round trip: it is being watched now

        clock.advance(300.0)

        assert not lease.held
        assert told.wait(5)


@in_virtual_time
async def test_a_callback_added_after_the_loss_is_called(world: World) -> None:
    """A loss is reported once to each callback, also to one that is added after it."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        clock_of(client).step(20.0)
        assert not lease.held
        await asyncio.sleep(0.1)
        told: list[LeaseLostError] = []

        lease._held.on_lost(told.append)
        await asyncio.sleep(0.1)

        assert told == [lease.lost]


@in_virtual_time
async def test_a_callback_that_fails_does_not_stop_the_others(world: World) -> None:
    """One watcher whose loop is closed does not keep the loss from the others."""
    told: list[LeaseLostError] = []
    gone = asyncio.new_event_loop()
    gone.close()
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        lease._held.on_lost(lambda loss: gone.call_soon_threadsafe(told.append, loss))
        lease._held.on_lost(told.append)
        await asyncio.sleep(0)

        await client.lock("orders").break_lock(await client.lock("orders").status(), force=True)
        await asyncio.sleep(2)

        assert told == [lease.lost]


def lose(client: LockClient, lease: Lease) -> None:
    """Let the lease be lost, from its own loop."""

    def now() -> None:
        lease._held.belief.end(End.TAKEN_OVER, "test")
        lease._held.belief.end_if_due()

    assert client._core._home.loop is not None
    client._core._home.loop.call_soon_threadsafe(now)


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
    """A release is not a loss."""
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


def no_thread(*_: object) -> None:
    """Do as the start of a thread does where the process may have no more of them."""
    raise RuntimeError("can't start new thread")


@pytest.mark.parametrize("until", ["the registration", "the loss"])
async def test_on_lost_runs_where_no_thread_can_be_started(
    monkeypatch: pytest.MonkeyPatch, until: str
) -> None:
    """One is in reserve; if there never was one, the callback runs in the thread that finds the loss."""
    called: list[str] = []
    reserve = Reserve("reserve")
    monkeypatch.setattr("asynclock._core.handles.callbacks", reserve)
    async with asynclock.connect("memory://") as client:
        lease = await client.lock("orders").acquire()
        with monkeypatch.context() as patch:
            if until == "the registration":
                patch.setattr(_thread, "start_new_thread", no_thread)
            for _ in range(3):
                lease.on_lost(lambda _: called.append(threading.current_thread().name))
            patch.setattr(_thread, "start_new_thread", no_thread)
            lose(client, lease)
            while len(called) < 3:
                await asyncio.sleep(0.01)
            with pytest.raises(LeaseLostError):
                await lease.release()

    assert set(called) == {"asynclock-host" if until == "the registration" else "reserve"}


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, ZeroDivisionError])
async def test_whatever_on_lost_raises_the_next_callback_runs_in_the_reserve(
    monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    """The only thread that is left survives it."""
    called = threading.Event()

    def fail(_: LeaseLostError) -> None:
        raise error

    async with asynclock.connect("memory://") as client:
        lease = await client.lock("orders").acquire()
        lease.on_lost(fail)
        lease.on_lost(lambda _: called.set())
        with monkeypatch.context() as patch:
            patch.setattr(_thread, "start_new_thread", no_thread)
            lose(client, lease)
            while not called.is_set():
                await asyncio.sleep(0.01)


def test_a_loss_on_a_closed_loop_is_told_by_whoever_finds_it() -> None:
    """With ``renewal="loop"``: ``on_lost`` runs and the event is sent, though the loop that would is gone."""
    told: list[str] = []
    called = threading.Event()
    clock = ManualClock(wall=time.time())
    client = asynclock.connect(
        "memory://", renewal="loop", clock=clock, events=lambda event: told.append(event.kind)
    )
    loop = asyncio.new_event_loop()
    lease = loop.run_until_complete(client.lock("orders").acquire())
    lease.on_lost(lambda _: called.set())
    loop.close()
    clock.advance(1000.0)

    assert not lease.held
    assert called.wait(5)
    assert not lease.held
    assert told == ["acquired", "lost"]


EXHAUSTED = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
settings = LeaseSettings(validity=2.0, max_clock_skew=0.0)
told = threading.Event()

async def main():
    async with asynclock.connect(url, settings=settings) as client:
        taken = []
        try:
            async with client.lock("orders").hold() as lease:
                lease.on_lost(lambda _: told.set())
                try:
                    while True:
                        taken.append(os.open("/dev/null", os.O_RDONLY))
                except OSError:
                    pass
                await asyncio.sleep(20)
        except asynclock.LeaseExpiredError:
            print("cancelled")
        print("told", told.wait(5))
        for each in taken:
            os.close(each)
        await (await client.lock("orders").acquire(timeout=10)).release()
        print("acquired again")

asyncio.run(main())
"""


def test_a_loss_while_no_file_can_be_opened_reaches_everybody(tmp_path: Path) -> None:
    """The body is cancelled, ``on_lost`` runs, and the client can take the lock again afterwards."""
    outcome, output, errors = run(EXHAUSTED, tmp_path)

    assert (outcome, output.splitlines()) == (0, ["cancelled", "told True", "acquired again"]), errors
