# ruff: noqa: T201  a command that prints
"""Looks for a violated invariant in one scenario; run by ``tests.mutants`` on a mutated copy."""

from __future__ import annotations

import gc
import json
import logging
import sys
import time
from typing import TYPE_CHECKING

import asynclock
from asynclock.testing.checker import Invariant
from asynclock.testing.faulty import Fault
from asynclock.testing.interleavings import interleavings
from asynclock.testing.programs import PROGRAMS, cancellations, single_faults
from asynclock.testing.simulate import simulate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from asynclock.testing.explore import Exploration

Step = tuple[int, set[Invariant]]
"""How many histories a step took, and which invariants it violated."""


def steps(scenario: str) -> Iterator[Step]:
    """Yield one step after the other of a scenario or an exploration."""
    if scenario == "single-faults":
        yield _of(single_faults())
    elif scenario == "cancellations":
        for name in PROGRAMS:
            yield _of(cancellations(name))
            for fault in (Fault.REPLY_LOST, Fault.LATE):
                for operation in ("put_if_absent", "put_if_match"):
                    yield _of(cancellations(name, fault=fault, operation=operation))
    elif scenario == "interleavings":
        for dead_holder in (False, True):
            yield _of(interleavings(2, dead_holder=dead_holder))
            yield _of(interleavings(2, lags=1, dead_holder=dead_holder))
            yield _of(interleavings(3, preemptions=2, dead_holder=dead_holder))
    else:
        seed = 0
        while True:
            yield 1, {violation.invariant for violation in simulate(scenario, seed).violations}
            seed += 1


def hunt(scenario: str, wanted: set[Invariant], *, most: int, seconds: float) -> tuple[int, list[str]]:
    """Return how many histories it took and what was violated; nothing if it was not found."""
    until = time.monotonic() + seconds
    gc.disable()  # cycles are collected now and then below: twice as fast
    histories = 0
    for taken, violated in steps(scenario):
        histories += taken
        if not histories % 16:
            gc.collect(1)
        if found := violated & wanted:
            return histories, sorted(found)
        if histories >= most or time.monotonic() > until:
            break
    return histories, []


def _of(exploration: Exploration) -> Step:
    return exploration.schedules, exploration.violated


def main() -> None:
    """Hunt as told by the arguments and print what was found as JSON."""
    scenario, wanted, most, seconds = sys.argv[1:]
    logging.getLogger("asynclock").setLevel(logging.CRITICAL)
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    invariants = set(Invariant) if wanted == "any" else {Invariant(wanted)}
    histories, found = hunt(scenario, invariants, most=int(most), seconds=float(seconds))
    print(json.dumps({"histories": histories, "found": found, "source": asynclock.__file__}))


if __name__ == "__main__":
    main()
