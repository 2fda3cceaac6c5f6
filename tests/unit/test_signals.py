"""Signals: locks are released, the program's handlers run, and a survivor has lost its leases (rule 18)."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

import asynclock
from asynclock import Lease, LeaseLostError, LeaseSettings
from asynclock.spark.work.threads import stopped_by_signals
from asynclock.testing._faulty import Fault
from tests.unit.kit import FAST, KEY, STEADY, World, faulty, hudi_record, in_virtual_time, our_record
from tests.unit.programs import SYNC_HELD, record, run, signalled

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterator
    from pathlib import Path


SIGNALS = [signal.SIGTERM, signal.SIGHUP, signal.SIGINT]
LONG = LeaseSettings(validity=300.0, max_clock_skew=2.0, poll_interval=0.25)
SELDOM = LeaseSettings(validity=300.0, max_clock_skew=1.0, poll_interval=5.0)
"""Its waits between two tries are longer than an exit may take."""
SIGNALLED = "a signal told its process to end"


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_with_handlers_installed_releases_and_then_kills(
    tmp_path: Path, number: signal.Signals
) -> None:
    """The lock is free, and the process ends as that signal ends it."""
    program = SYNC_HELD + "asynclock.install_signal_handlers()\nready()\ntime.sleep(30)\n"
    outcome, _, errors = signalled(program, tmp_path, number)

    assert outcome == -number, errors
    assert record(tmp_path).expired


def test_a_handler_that_is_not_pythons_stays_and_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program around this Python set it: we could not call it, and its signal would do nothing more."""
    taken: list[int] = []
    before = {signal.SIGTERM: None, signal.SIGHUP: signal.SIG_DFL, signal.SIGINT: signal.SIG_IGN}
    monkeypatch.setattr(signal, "getsignal", lambda number: before[number])
    monkeypatch.setattr(signal, "signal", lambda number, _: taken.append(number))

    with pytest.warns(RuntimeWarning, match="SIGTERM .* releases no lease") as told:
        asynclock.install_signal_handlers()

    assert taken == [signal.SIGHUP]
    assert [each.filename for each in told] == [__file__]


def test_streams_leave_a_handler_that_is_not_pythons(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """They could not put it back after their work; the log says that it does not stop them."""
    taken: list[tuple[int, object]] = []
    before = {signal.SIGTERM: None, signal.SIGINT: signal.SIG_DFL}
    monkeypatch.setattr(signal, "getsignal", lambda number: before[number])
    monkeypatch.setattr(signal, "signal", lambda number, handler: taken.append((number, handler)))

    with stopped_by_signals(threading.Event()):
        assert [number for number, _ in taken] == [signal.SIGINT]
    assert taken[1:] == [(signal.SIGINT, signal.SIG_DFL)]
    assert "SIGTERM has a handler that is not Python's" in caplog.text


@pytest.mark.parametrize("renewal", ["thread", "loop"])
@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_releases_the_leases_of_a_running_loop(
    tmp_path: Path, number: signal.Signals, renewal: str
) -> None:
    """Both renewal modes release when a signal comes into a running event loop."""
    program = f"""
async def main():
    client = asynclock.connect(url, settings=settings, renewal={renewal!r})
    await client.lock("orders").acquire()
    asynclock.install_signal_handlers()
    ready()
    await asyncio.sleep(30)
asyncio.run(main())
"""
    outcome, _, errors = signalled(program, tmp_path, number)

    assert outcome == -number, errors
    assert record(tmp_path).expired


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_ends_a_loop_that_waits_for_nothing_soon(tmp_path: Path, number: signal.Signals) -> None:
    """No lease is held, so no timer of a renewal wakes the loop: the signal does."""
    program = f"""
async def main():
    client = asynclock.connect(url, settings=settings, renewal="loop")
    async with client.lock("orders"):
        pass
    asynclock.install_signal_handlers()
    threading.Timer(0.5, os.kill, (os.getpid(), {number:d})).start()
    await asyncio.sleep(300)
asyncio.run(main())
"""
    outcome, _, errors = run(program, tmp_path)

    assert outcome == -number, errors


def test_a_signal_chains_to_the_handler_before(tmp_path: Path) -> None:
    """What the program had installed itself runs afterwards, with the lock free."""
    program = (
        SYNC_HELD
        + """
def mine(number, frame):
    print("mine", lease.held, flush=True)
    os._exit(7)
signal.signal(signal.SIGTERM, mine)
asynclock.install_signal_handlers()
asynclock.install_signal_handlers()
ready()
time.sleep(30)
"""
    )
    outcome, output, errors = signalled(program, tmp_path, signal.SIGTERM)

    assert (outcome, output) == (7, "mine False\n"), errors
    assert record(tmp_path).expired


def test_a_signal_in_the_middle_of_a_log_call_releases_too(tmp_path: Path) -> None:
    """The interrupted thread has the lock of its log handler: what is logged of the loss has to wait."""
    program = (
        """
import logging
class Interrupted(logging.StreamHandler):
    def emit(self, line):
        super().emit(line)
        if line.getMessage() == "now":
            ready()
            time.sleep(30)
logging.getLogger().addHandler(Interrupted())
"""
        + SYNC_HELD
        + """
asynclock.install_signal_handlers()
logging.getLogger("app").warning("now")
"""
    )
    outcome, _, errors = signalled(program, tmp_path, signal.SIGTERM)

    assert outcome == -signal.SIGTERM, errors
    assert record(tmp_path).expired


def test_a_signal_that_ends_the_process_is_in_its_log(tmp_path: Path) -> None:
    """The loss of the lease is logged before the signal takes its course."""
    program = SYNC_HELD + "asynclock.install_signal_handlers()\nready()\ntime.sleep(30)\n"
    outcome, _, errors = signalled(program, tmp_path, signal.SIGTERM)

    assert outcome == -signal.SIGTERM
    assert "orders: the lease was lost" in errors


def test_an_ignored_signal_stays_ignored_and_releases_nothing(tmp_path: Path) -> None:
    """Under nohup a hang-up does not take the locks from a program that goes on."""
    program = (
        SYNC_HELD
        + """
signal.signal(signal.SIGHUP, signal.SIG_IGN)
asynclock.install_signal_handlers()
ready()
time.sleep(1)
print(lease.held)
"""
    )
    outcome, output, errors = signalled(program, tmp_path, signal.SIGHUP)

    assert (outcome, output) == (0, "True\n"), errors


def test_without_handlers_a_signal_leaves_the_lock_to_expire(tmp_path: Path) -> None:
    """SIGTERM without handlers is like ``kill -9``: nothing is promised but expiry."""
    outcome, _, _ = signalled(SYNC_HELD + "ready()\ntime.sleep(30)\n", tmp_path, signal.SIGTERM)

    assert outcome == -signal.SIGTERM
    assert not record(tmp_path).expired


def test_an_interrupt_of_a_blocking_acquire_leaves_nothing(tmp_path: Path) -> None:
    """Ctrl-C while waiting: KeyboardInterrupt, and the waiter never gets the lock later."""
    program = """
holder = sync.connect(url, settings=settings)
client = sync.connect(url, settings=settings)
lease = holder.lock("orders").acquire()
threading.Timer(0.2, ready).start()
try:
    client.lock("orders").acquire()
except KeyboardInterrupt:
    print("interrupted", flush=True)
lease.release()
time.sleep(1.5)
print(client.lock("orders").status().state)
"""
    outcome, output, errors = signalled(program, tmp_path, signal.SIGINT)

    assert (outcome, output) == (0, "interrupted\nfree\n"), errors


def test_an_interrupt_in_a_body_releases(tmp_path: Path) -> None:
    """Ctrl-C under ``with lock.hold()`` comes out of it, and the lock is free."""
    program = """
with sync.connect(url, settings=settings) as client:
    try:
        with client.lock("orders").hold():
            ready()
            time.sleep(30)
    except KeyboardInterrupt:
        print(client.lock("orders").status().state, flush=True)
"""
    outcome, output, errors = signalled(program, tmp_path, signal.SIGINT)

    assert (outcome, output) == (0, "free\n"), errors


def test_handlers_are_installed_from_the_main_thread_only() -> None:
    """Python allows it nowhere else, and the error says so."""
    errors: list[BaseException] = []

    def install() -> None:
        try:
            asynclock.install_signal_handlers()
        except RuntimeError as error:
            errors.append(error)

    thread = threading.Thread(target=install)
    thread.start()
    thread.join()

    assert "main thread" in str(errors[0])


@pytest.fixture
def survivor() -> Iterator[None]:
    """A program whose own handler outlives SIGHUP, with ours installed before it."""
    numbers = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
    before = [signal.getsignal(number) for number in numbers]
    signal.signal(signal.SIGHUP, lambda *_: None)
    asynclock.install_signal_handlers()
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


@pytest.mark.usefixtures("survivor")
@pytest.mark.parametrize("renewal", ["thread", "loop"])
async def test_a_signal_that_the_program_survives_is_a_loss(renewal: str) -> None:
    """The body of ``hold`` is cancelled, so that it does not go on without the lock."""
    told = threading.Event()

    async def body(lease: Lease) -> None:
        lease.on_lost(lambda _: told.set())
        os.kill(os.getpid(), signal.SIGHUP)
        await asyncio.sleep(30)

    async with asynclock.connect("memory://", settings=FAST, renewal=renewal) as client:  # type: ignore[arg-type]
        with pytest.raises(LeaseLostError, match="signal"):
            async with client.lock("orders").hold() as lease:
                await body(lease)

        assert (await client.lock("orders").status()).state == "free"
    assert told.wait(5)


@pytest.mark.parametrize("profile", [replace(STEADY, resolution=1.0)], ids=["whole seconds"])
@pytest.mark.parametrize("after", [0.1, 0.5, 1.0])
def test_an_attempt_that_was_given_up_is_not_adopted_again(world: World, after: float) -> None:
    """A signal while the token settles ends the lease for good, even if its release lands late."""

    async def story() -> None:
        first, second = world.client(LONG), world.client(LONG)
        world.put(hudi_record(world.now - 60.0, expired=True))
        acquiring = asyncio.create_task(first.lock("orders").acquire())
        await asyncio.sleep(0.1)
        assert world.record().nonce is not None
        await asyncio.sleep(after)
        faulty(first).inject(Fault.LATE, operation="put_if_match", times=20)
        faulty(first).delay = (6.0, 6.0)
        await first._core.release_all(loss=SIGNALLED)

        leases: list[Lease] = []

        async def take(lease: Awaitable[Lease]) -> None:
            leases.append(await lease)
            assert [each.held for each in leases].count(True) == 1
            await asyncio.sleep(20.0)
            assert [each.held for each in leases].count(True) == 1
            await leases[-1].release()

        await asyncio.gather(take(acquiring), take(second.lock("orders").acquire()))

    world.loop.run_until_complete(story())


@pytest.mark.parametrize("profile", [replace(STEADY, resolution=1.0)], ids=["whole seconds"])
@in_virtual_time
async def test_an_acquisition_goes_on_after_a_signal_under_a_new_token(world: World) -> None:
    """An acquisition that waited for its token to settle starts again, with a higher token."""
    async with world.client() as client:
        world.put(hudi_record(world.now - 60.0, expired=True))
        acquiring = asyncio.create_task(client.lock("orders").acquire(timeout=60))
        await asyncio.sleep(0.1)
        assert world.record().nonce is not None
        given_up = world.record(KEY)
        await asyncio.sleep(1.0)
        await client._core.release_all(loss=SIGNALLED)
        lease = await acquiring

        assert lease.held
        assert given_up.epoch is not None
        assert lease.fencing_token > given_up.epoch


@in_virtual_time
async def test_after_a_signal_nothing_is_acquired_for_a_while(world: World) -> None:
    """While a process may be ending, its waiters take no lock (rule 18)."""
    async with world.client() as client, world.client() as other:
        held = await other.lock("orders").acquire()
        acquiring = asyncio.create_task(client.lock("orders").acquire())
        await asyncio.sleep(0.5)
        await client._core.release_all(loss="a signal")
        until = world.now + 2 * client._core.exit_bound
        await held.release()

        lease = await acquiring

        assert until <= world.now < until + 1
        await lease.release()


@in_virtual_time
async def test_after_a_signal_a_lock_that_is_new_to_the_client_is_not_acquired_either(world: World) -> None:
    """While a process may be ending, no lock is taken, whatever its name (rule 18)."""
    async with world.client() as client:
        _held = await client.lock("stocks").acquire()
        await client._core.release_all(loss="a signal")

        assert await client.lock("orders").try_acquire() is None


@in_virtual_time
async def test_a_lock_that_waits_to_be_handed_on_is_freed_when_the_process_ends(world: World) -> None:
    """A signal between a release and its receiver's write leaves no lock to expire (rule 18)."""
    async with world.client() as client:
        faulty(client).min_write_interval = 1.0
        lock = client.lock("orders")
        giver = await lock.acquire()
        receiving = asyncio.create_task(lock.acquire())
        await asyncio.sleep(0.2)
        await giver.release()
        await asyncio.sleep(0.2)

        await client._core.release_all(loss="a signal")

        assert world.record().expired
        receiving.cancel()


@in_virtual_time
async def test_a_receiver_that_waits_for_its_next_try_frees_the_lock_when_the_process_ends(
    world: World,
) -> None:
    """It does not sleep beyond the exit, with a lock that was handed over to it (rule 18)."""
    async with world.client(SELDOM) as client:
        lock = client.lock("orders")
        giver = await lock.acquire()
        receiving = asyncio.create_task(lock.acquire())
        await asyncio.sleep(0.1)
        faulty(client).inject(Fault.UNAVAILABLE, operation="put_if_match")
        faulty(client).inject(Fault.UNAVAILABLE, operation="get")
        releasing = asyncio.create_task(giver.release())
        await asyncio.sleep(0.1)

        await client._core.release_all(loss=SIGNALLED)

        assert world.record().expired
        receiving.cancel()
        await asyncio.gather(receiving, releasing, return_exceptions=True)


@pytest.mark.parametrize("reading", [Fault.SLOW, Fault.UNAVAILABLE], ids=["reads", "waits to read again"])
@pytest.mark.parametrize("writing", [Fault.REPLY_LOST, Fault.LATE], ids=["landed", "may land"])
@in_virtual_time
async def test_an_acquisition_that_does_not_know_what_it_wrote_frees_it_when_the_process_ends(
    world: World, writing: Fault, reading: Fault
) -> None:
    """A write whose answer was lost does not hold the lock for its validity after the end (rule 18)."""
    world.put(our_record(valid_until=world.now, expired=True))
    async with world.client(SELDOM) as client:
        faulty(client).delay = (0.5, 0.5)
        faulty(client).inject(writing, operation="put_if_match")
        faulty(client).inject(reading, operation="get", nth=2)
        acquiring = asyncio.create_task(client.lock("orders").acquire())
        await asyncio.sleep(0.1)

        await client._core.release_all(loss=SIGNALLED)

        when_it_ended = world.record()
        await asyncio.sleep(1.0)
        assert when_it_ended.expired
        assert world.record().expired
        acquiring.cancel()
