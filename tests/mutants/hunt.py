# ruff: noqa: T201  a command that prints
"""Looks for a violated invariant in one scenario; run by ``tests.mutants`` on a mutated copy."""

from __future__ import annotations

import gc
import itertools
import json
import logging
import sys
import time
from typing import TYPE_CHECKING

import asynclock
from asynclock.testing._faulty import Fault
from tests.laboratory.checker import Invariant
from tests.laboratory.interleavings import interleavings
from tests.laboratory.programs import PROGRAMS, cancellations, single_faults
from tests.laboratory.simulate import simulate

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tests.laboratory.explore import Exploration

Step = tuple[int, dict[Invariant, str]]
"""How many histories a step took, and for each invariant that it violated, how."""


def steps(scenario: str, seeds: Iterable[int]) -> Iterator[Step]:
    """Yield one step after the other: a history of a scenario for each seed, or a part of an exploration."""
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
        for seed in seeds:
            yield 1, {each.invariant: each.detail for each in reversed(simulate(scenario, seed).violations)}


def hunt(
    scenario: str, wanted: set[Invariant], *, seeds: Iterable[int], most: int, seconds: float
) -> tuple[int, str | None]:
    """Return how many histories it took and how the first invariant was violated; None if none was.

    A history with an unexpected error does not count: what follows from a crash shows no mistake.
    """
    until = time.monotonic() + seconds
    gc.disable()  # cycles are collected now and then below: twice as fast
    histories = 0
    for taken, violated in steps(scenario, seeds):
        histories += taken
        if not histories % 16:
            gc.collect(1)
        found = [how for invariant, how in violated.items() if invariant in wanted]
        if found and (Invariant.NO_ERROR in wanted or Invariant.NO_ERROR not in violated):
            return histories, found[0]
        if histories >= most or time.monotonic() > until:
            break
    return histories, None


def _of(exploration: Exploration) -> Step:
    how = {
        invariant: next(text for text in exploration.failures if f": {invariant}: " in text)
        for invariant in exploration.violated
    }
    return exploration.schedules, how


def main() -> None:
    """Hunt as told by the arguments and print what was found as JSON."""
    scenario, wanted, ranges, most, seconds = sys.argv[1:]
    logging.getLogger("asynclock").setLevel(logging.CRITICAL)
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    invariants = set(Invariant) if wanted == "any" else {Invariant(wanted)}
    seeds = itertools.chain.from_iterable(range(*each) for each in json.loads(ranges))
    histories, found = hunt(scenario, invariants, seeds=seeds, most=int(most), seconds=float(seconds))
    print(json.dumps({"histories": histories, "found": found, "source": asynclock.__file__}))


if __name__ == "__main__":
    main()
