"""The virtual-time loop."""

from __future__ import annotations

import asyncio
import gc
import time

import pytest

from asynclock.testing._clocks import EPOCH, VirtualClock
from asynclock.testing._virtual import DeadlockError, VirtualLoop, run_virtual


def test_time_passes_without_waiting() -> None:
    """A day of sleep takes no time and the loop's clock shows the day."""

    async def main() -> float:
        await asyncio.sleep(86_400)
        return asyncio.get_running_loop().time()

    began = time.monotonic()
    assert run_virtual(main()) == 86_400
    assert time.monotonic() - began < 60


def test_callbacks_of_one_process_keep_their_order() -> None:
    """What asyncio promises holds: callbacks run in the order in which they were registered."""
    seen: list[int] = []

    async def main() -> None:
        for number in range(50):
            asyncio.get_running_loop().call_soon(seen.append, number)
        await asyncio.sleep(0)

    run_virtual(main())
    assert seen == list(range(50))


def test_the_seed_orders_processes() -> None:
    """Which of several ready processes goes next depends on the seed, and on nothing else."""
    assert _order(1) == _order(1)
    assert len({_order(seed) for seed in range(20)}) > 1


def _order(seed: int) -> str:
    loop = VirtualLoop(seed)
    seen: list[str] = []

    async def speak(name: str) -> None:
        for _ in range(3):
            seen.append(name)
            await asyncio.sleep(1)

    try:
        tasks = [loop.process(name).start(speak(name)) for name in "abcd"]
        loop.run_until_complete(asyncio.wait(tasks))
    finally:
        loop.close()
    return "".join(seen)


@pytest.fixture
def loop() -> VirtualLoop:
    """Return a loop that is closed by the test's end."""
    return VirtualLoop(0)


def test_a_paused_process_stands_still(loop: VirtualLoop) -> None:
    """While paused nothing of a process runs; what came due runs when it goes on."""
    ticks: list[float] = []

    async def tick() -> None:
        while True:
            await asyncio.sleep(1)
            ticks.append(loop.time())

    process = loop.process("ticker")
    process.start(tick())
    loop.call_at(2.5, process.pause)
    loop.call_at(7.5, process.resume)
    loop.run_until_complete(asyncio.sleep(9))
    loop.close()

    assert ticks == [1, 2, 7.5, 8.5]


def test_a_suspended_machine_stops_its_monotonic_clock(loop: VirtualLoop) -> None:
    """Suspended, the monotonic clock stands still and timers are late; boot and wall clocks go on."""
    clock = VirtualClock(loop, boot=0.0)
    readings: list[tuple[float, float, float]] = []

    async def read() -> None:
        await asyncio.sleep(4)
        readings.append((clock.monotonic(), clock.boot(), clock.wall()))

    process = loop.process("laptop", clock)
    process.start(read())
    loop.call_at(1, process.suspend, 10)
    loop.run_until_complete(asyncio.sleep(20))
    loop.close()

    assert readings == [(4, 14, EPOCH + 14)]


def test_a_suspended_machine_is_woken_by_nothing_else(loop: VirtualLoop) -> None:
    """Neither the end of a pause nor that of an earlier sleep runs a machine whose clock stands still."""
    woken: list[float] = []

    async def work() -> None:
        woken.append(loop.time())

    process = loop.process("laptop", VirtualClock(loop))
    loop.call_at(1, process.suspend, 10)
    loop.call_at(2, process.suspend, 5)
    loop.call_at(3, process.resume)
    loop.call_at(12, lambda: process.start(work()))
    loop.run_until_complete(asyncio.sleep(30))
    loop.close()

    assert woken == [16]


def test_a_killed_process_runs_no_cleanup(loop: VirtualLoop) -> None:
    """Killed, a process runs neither except nor finally, as after SIGKILL."""
    seen: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(10)
        finally:
            seen.append("cleanup")

    process = loop.process("victim")
    process.start(work())
    loop.call_at(1, process.kill)
    loop.run_until_complete(asyncio.sleep(20))

    assert seen == []
    loop.close()


def test_waiting_for_ever_is_an_error() -> None:
    """A program that waits for something that nothing will bring does not hang."""

    async def main() -> None:
        await asyncio.Event().wait()

    with pytest.raises(DeadlockError):
        run_virtual(main())


def test_threads_are_refused() -> None:
    """A thread would break the reproduction of a run, so the loop has none."""

    async def main() -> None:
        await asyncio.to_thread(time.time)

    with pytest.raises(RuntimeError, match="no threads"):
        run_virtual(main())


def test_timeouts_and_cancellation_work_as_in_asyncio() -> None:
    """asyncio.timeout, wait_for and TaskGroup behave in virtual time as in real time."""

    async def main() -> str:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await asyncio.sleep(10)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.sleep(10), 1)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(asyncio.sleep(3, "done"))
        return f"{task.result()} at {asyncio.get_running_loop().time():g}"

    assert run_virtual(main()) == "done at 9"


def test_a_wall_clock_drifts_steps_and_is_set() -> None:
    """A wall clock has an error of its own, which steps change."""
    loop = VirtualLoop(0, start=100.0)
    clock = VirtualClock(loop, offset=2.0, drift=0.01)

    assert clock.wall() == pytest.approx(EPOCH + 103, abs=1e-5)
    clock.step(-10)
    assert clock.wall() == pytest.approx(EPOCH + 93, abs=1e-5)
    clock.set_error(5)
    assert clock.wall() == pytest.approx(EPOCH + 105, abs=1e-5)
    loop.close()


def test_closing_drops_what_a_cleanup_starts(recwarn: pytest.WarningsRecorder) -> None:
    """A task that a dropped program starts on its way out is dropped too, without a warning."""

    async def program() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            asyncio.create_task(asyncio.sleep(1))  # noqa: RUF006  dropped with the loop

    loop = VirtualLoop(0)
    loop.process("program").start(program())
    loop.run_until_complete(asyncio.sleep(1))
    loop.close()
    gc.collect()

    assert [str(each.message) for each in recwarn] == []
