# ruff: noqa: T201  a command that prints
"""``python -m tests.laboratory steered``: the shipped code goes through behaviours of the specification.

After each step the code must believe, and the store must hold, what the specification says.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from coverage import Coverage

from tests.laboratory.simulate import quiet
from tests.laboratory.steered.asked import NOT_ASKED, PROTOCOL, text_of
from tests.laboratory.steered.behaviours import behaviours
from tests.laboratory.steered.driver import DiffersError, Driver
from tests.laboratory.steered.world import World
from tests.laboratory.steered.worlds import worlds

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

FULL: Final = 100_000
CHUNK: Final = 1000
"""Behaviours that one run of TLC draws."""
COVERED: Final = 10
"""Chunks whose branches are counted."""
_WORLDS: Final = 8
"""One chunk of this many is of ``World.tla``, the others of ``Lease.tla``."""
MOST_LEFT: Final = 0.3
"""Share of the behaviours that the code may leave before their end."""


@dataclass
class Outcome:
    """What the behaviours of a chunk came to.

    Attributes:
        steps: Steps that were forced.
        left: How often the code left a behaviour, by the reason.
        differs: A line for each behaviour in which it differs.
        branches: How many the protocol has, if they were counted.
        missed: Those that were not reached: file and lines.
    """

    steps: int = 0
    left: Counter[str] = field(default_factory=Counter)
    differs: list[str] = field(default_factory=list)
    branches: int = 0
    missed: set[tuple[str, int, int]] = field(default_factory=set)


def dateless(seed: int) -> tuple[int, ...]:
    """Return the clients without Dates in the behaviours of a seed of TLC."""
    return (1,) if seed % 4 > 1 else ()


def drawn(count: int, seed: int) -> list[Callable[[int], Driver | World]]:
    """Return what runs each behaviour of a seed, given a seed of what the specification leaves open."""
    if seed % _WORLDS == 1:
        return [partial(World, behaviour=each) for each in worlds(count, seed=seed)]
    without = dateless(seed)
    return [
        partial(Driver, steps=each, dateless=without)
        for each in behaviours(count, seed=seed, dateless=without)
    ]


def run(count: int, seed: int, *, covered: bool = False) -> Outcome:
    """Draw behaviours, and force them on the code."""
    outcome, runs = Outcome(), drawn(count, seed)
    coverage = Coverage(
        branch=True, include=[f"{PROTOCOL}/*.py"], data_file=None, config_file=False, messages=False
    )
    if covered:
        coverage.start()
    for number, make in enumerate(runs):
        driver = make(number)
        try:
            with quiet():
                why = driver.run()
        except DiffersError as error:
            outcome.differs.append(f"seed {seed}, behaviour {number}, step {driver.done}: {error}")
        else:
            outcome.left[why] += bool(why)
        outcome.steps += driver.done
    if covered:
        coverage.stop()
        outcome.branches, outcome.missed = _counted(coverage)
    return outcome


def _counted(coverage: Coverage) -> tuple[int, set[tuple[str, int, int]]]:
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "coverage.json")
        coverage.json_report(outfile=str(report))
        files = json.loads(report.read_text())["files"]
    missed = {(Path(name).name, *ends) for name, each in files.items() for ends in each["missing_branches"]}
    return sum(each["summary"]["num_branches"] for each in files.values()), missed


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; 0 if the code never differs, and leaves few behaviours."""
    parser = argparse.ArgumentParser(prog="python -m tests.laboratory steered", description=__doc__)
    parser.add_argument("--behaviours", type=int, default=FULL, help="how many")
    parser.add_argument("--seed", type=int, default=0, help="of TLC")
    options = parser.parse_args(arguments)
    began, steps, differs = time.monotonic(), 0, 0
    left: Counter[str] = Counter()
    covered: list[Outcome] = []
    starts = range(0, options.behaviours, CHUNK)
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        runs = [
            pool.submit(
                run,
                min(CHUNK, options.behaviours - start),
                options.seed + start // CHUNK,
                covered=start < COVERED * CHUNK,
            )
            for start in starts
        ]
        for each in runs:
            try:
                outcome = each.result()
            except BaseException:
                pool.shutdown(cancel_futures=True)  # else all of it runs before the error is raised
                raise
            steps, differs, left = steps + outcome.steps, differs + len(outcome.differs), left + outcome.left
            for line in outcome.differs:
                print(line, flush=True)
            covered += [outcome] if outcome.branches else []
    branches = max((each.branches for each in covered), default=0)
    missed = sorted(set.intersection(*(each.missed for each in covered)))
    missed = [each for each in missed if text_of(each) not in NOT_ASKED]
    for branch in missed:
        print("not reached: {}: {}  ->  {}".format(*text_of(branch)))
    asked, first = branches - len(NOT_ASKED), min(options.behaviours, COVERED * CHUNK)
    reached = f"{asked - len(missed)} of {asked} branches reached"
    print(f"{reached} by the first {first}; {len(NOT_ASKED)} are not asked for")
    for why, times in left.most_common():
        print(f"left {times} times at {why}")
    print(f"{time.monotonic() - began:.0f} s")
    print(
        f"steered: {options.behaviours} behaviours, {steps} steps, {reached}, "
        f"{left.total()} left, {differs} differ"
    )
    return 1 if differs or left.total() > MOST_LEFT * options.behaviours else 0


if __name__ == "__main__":
    sys.exit(main())
