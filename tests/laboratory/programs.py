"""Three small programs, cancelled at every await and spoiled at every request."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from asynclock.errors import BackendError, LeaseLostError, RecordCorruptError
from asynclock.testing._faulty import Fault
from tests.laboratory.checker import Invariant
from tests.laboratory.explore import VALIDITY, Bench, Exploration
from tests.laboratory.names import NAME

if TYPE_CHECKING:
    from asynclock.lease import Lease
    from asynclock.testing._virtual import Process
    from tests.laboratory.checker import Violation

PROMPT: Final = 3.0
"""Seconds within which a fault must have been got over: a request timeout and a retry."""
_MOST_REQUESTS: Final = 16
"""No program makes more."""


async def alone(bench: Bench) -> None:
    """Acquire, renew, release."""
    lease = await bench.clients[0].lock(NAME).acquire()
    await bench.hold(0, lease, lease.confirm())


async def twice(bench: Bench) -> None:
    """Acquire and release, then again from what is remembered."""
    await alone(bench)
    await alone(bench)


async def in_line(bench: Bench) -> None:
    """Wait in line behind another coroutine of the same client: a hand-off."""
    lock = bench.clients[0].lock(NAME)
    first = await lock.acquire()
    second = asyncio.get_running_loop().create_task(_after(first))
    try:
        lease = await lock.acquire()
        await bench.hold(0, lease, lease.confirm())
    finally:
        while not second.done():  # its end is not ours to cut short
            with suppress(asyncio.CancelledError):
                await asyncio.wait([second])


async def _after(lease: Lease) -> None:
    await asyncio.sleep(0.01)
    with suppress(LeaseLostError):
        await lease.release()


PROGRAMS: Final = {"alone": alone, "twice": twice, "in-line": in_line}


def cancellations(
    name: str, *, fault: Fault | None = None, operation: str = "put_if_absent", second: bool = True
) -> Exploration:
    """Cancel a program after each of its steps, once, and again after each later one.

    A step is a callback of the client's process, so that every await of the program and of the
    client's own tasks is covered.

    Args:
        name: One of ``PROGRAMS``.
        fault: Spoils the first ``operation``: ``put_if_absent`` acquires, ``put_if_match`` renews.
        operation: See there.
        second: Whether to cancel a second time.
    """
    found = Exploration()
    first = 0
    while True:
        steps, violations = _cancelled(name, (first,), fault, operation)
        found.add(f"{name}, {fault} on {operation}, cancelled after step {first}", violations)
        if steps <= first:
            return found
        for later in range(first + 1, steps + 1) if second else ():
            _, violations = _cancelled(name, (first, later), fault, operation)
            found.add(
                f"{name}, {fault} on {operation}, cancelled after steps {first} and {later}", violations
            )
        first += 1


def _cancelled(
    name: str, cuts: tuple[int, ...], fault: Fault | None, operation: str
) -> tuple[int, list[Violation]]:
    """Run once; return after how many steps the program had ended, and the violations."""
    bench = Bench(1)
    if fault is not None:
        bench.backends[0].inject(fault, operation=operation)
    taken = 0
    delivered = False
    task = bench.start(0, PROGRAMS[name](bench))

    def count(process: Process) -> None:
        nonlocal taken, delivered
        bench.checker.after_step(process)
        if process is bench.processes[0] and not task.done():
            if taken in cuts:
                delivered = task.cancel() or delivered
            taken += 1

    bench.loop.on_step = count

    async def main() -> None:
        await asyncio.wait([task], timeout=5 * VALIDITY)
        if not task.done():
            bench.checker.violated(Invariant.NOTHING_LEFT, "the cancelled program never ended")
        elif delivered and not task.cancelled():
            # Nothing may stand in its place, not even the store's error: who cancelled waits for it.
            error = task.exception()
            bench.checker.violated(Invariant.NO_ERROR, f"the cancellation was swallowed: {error!r}")
        await asyncio.sleep(2 * VALIDITY)  # what still goes on in the background ends
        bench.free_again()

    violations = bench.run(main())
    return taken, violations


def single_faults() -> Exploration:
    """Spoil every request of every program with every kind of fault, and every two in a row."""
    found = Exploration()
    for name in PROGRAMS:
        for fault in Fault:
            for nth in range(1, _MOST_REQUESTS + 1):
                for times in (1, 2):
                    applied, violations = _spoiled(name, fault, nth, times)
                    if applied == times:
                        found.add(f"{name}, {fault} on request {nth}, {times} in a row", violations)
    return found


def _spoiled(name: str, fault: Fault, nth: int, times: int) -> tuple[int, list[Violation]]:
    bench = Bench(1)
    bench.backends[0].inject(fault, nth=nth, times=times)
    task = bench.start(0, PROGRAMS[name](bench))
    allowed = (BackendError, RecordCorruptError, LeaseLostError)

    async def main() -> None:
        await asyncio.wait([task], timeout=5 * VALIDITY)
        took = bench.loop.time()
        if took > PROMPT:
            bench.checker.violated(Invariant.TAKEOVER_BOUND, f"one fault cost {took:.1f} s")
        error = None if not task.done() else task.exception()
        if error is not None and not isinstance(error, allowed):
            bench.checker.violated(Invariant.NO_ERROR, repr(error))
        if isinstance(error, LeaseLostError) and fault not in {Fault.DELETED, Fault.CORRUPT}:
            bench.checker.violated(Invariant.NO_FALSE_LOSS, f"lost to {fault}: {error}")
        await asyncio.sleep(3 * VALIDITY)
        bench.free_again()

    violations = bench.run(main())
    return bench.backends[0].applied[fault], violations
