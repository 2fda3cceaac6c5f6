"""A store, machines and clients in virtual time."""

from __future__ import annotations

import asyncio
import time
import warnings
from typing import TYPE_CHECKING

import pytest

from asynclock import BackendError, LeaseSettings
from asynclock.testing import Fault, StoreProfile, VirtualWorld
from asynclock.testing._clocks import EPOCH

if TYPE_CHECKING:
    from asynclock.testing import FaultyClient
    from asynclock.testing._store import Operation

SETTINGS = LeaseSettings(validity=30.0)


async def count(client: FaultyClient, times: int) -> None:
    """Take and release the lock that many times."""
    for _ in range(times):
        async with client.lock("job").hold(timeout=60):
            await asyncio.sleep(1.0)


def journal(seed: int) -> list[Operation]:
    """Return what the store saw of two processes that contend."""
    with VirtualWorld(seed=seed, settings=SETTINGS) as world:
        for name in ("one", "two"):
            process = world.process(name)
            process.start(count(world.client(process), 5))
        world.advance(60.0)
        return world.store.journal


def test_a_seed_repeats_a_run() -> None:
    """The same seed gives the same requests, byte for byte; another one gives others."""
    assert journal(1) == journal(1)
    assert journal(1) != journal(2)
    assert {each.client for each in journal(1)} == {"one", "two"}


def test_an_hour_takes_no_time() -> None:
    """``advance`` moves the clocks, not the day."""
    began = time.monotonic()
    with VirtualWorld() as world:
        world.advance(3600.0)

        assert world.loop.time() == 3600.0
    assert time.monotonic() - began < 60


def test_run_returns_what_the_program_returns() -> None:
    """The test's own program has a client with clocks that are right."""
    with VirtualWorld() as world:
        client = world.client()

        async def main() -> float:
            async with client.lock("job").hold(timeout=5):
                return asyncio.get_running_loop().time()

        assert 0 < world.run(main()) < 5


def test_a_machine_has_the_clocks_it_was_given() -> None:
    """The wall clock is ahead by the error, and the drift makes it run fast."""
    with VirtualWorld() as world:
        process = world.process("off", wall_error=900.0, drift=0.01)
        assert process.clock is not None
        world.advance(100.0)

        assert process.clock.wall() == pytest.approx(EPOCH + 900.0 + 101.0)


def test_the_holder_is_the_process() -> None:
    """The record names the process, so that traces can be read and repeated."""
    with VirtualWorld() as world:
        process = world.process("worker-7")
        lock = world.client(process).lock("job")
        process.start(lock.hold().__aenter__())
        world.advance(10.0)

        status = world.run(world.client().lock("job").status())

        assert (status.state, status.holder) == ("held", "worker-7")


def test_a_late_write_outlives_the_process_that_sent_it() -> None:
    """What travels on the network is applied though its sender was killed."""
    with VirtualWorld() as world:
        process = world.process("sender")
        backend = world.client(process).backend
        backend.inject(Fault.LATE)

        async def send() -> None:
            with pytest.raises(BackendError):
                await backend.put_if_absent("key", b"late")
            process.kill()

        process.start(send())
        world.advance(10.0)

        assert not process.alive
        assert world.store.body("key") == b"late"


def test_the_store_is_of_the_profile() -> None:
    """A store that sends no Dates sends none here either."""
    with VirtualWorld(profile=StoreProfile(dates=False)) as world:
        assert world.client().backend.sends_dates is False


def test_in_a_running_loop_nothing_is_run_and_the_error_says_why() -> None:
    """An async test is refused; no coroutine is left behind to warn of."""

    async def test() -> None:
        with VirtualWorld() as world, pytest.raises(RuntimeError, match=r"nothing was run.*not async"):
            world.advance(1.0)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asyncio.run(test())


def test_the_end_warns_of_no_lease_that_the_dead_hold() -> None:
    """A process that was killed has not released; that is what was asked for, and no mistake."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with VirtualWorld(settings=SETTINGS) as world:
            process = world.process("holder")
            process.start(count(world.client(process), 1000))
            world.advance(10.5)
            process.kill()

    assert [str(each.message) for each in caught] == []


def test_closing_twice_is_closing_once() -> None:
    """``close`` may be called again."""
    world = VirtualWorld()
    world.close()
    world.close()
