# ruff: noqa: T201  a command that prints
"""``python -m tests.laboratory steered``: the shipped code goes through behaviours of the specification.

After each step the code must believe, and the store must hold, what the specification says.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

from coverage import Coverage

import asynclock._core.protocol
from tests.laboratory.simulate import quiet
from tests.laboratory.steered.behaviours import behaviours
from tests.laboratory.steered.driver import DiffersError, Driver

if TYPE_CHECKING:
    from collections.abc import Sequence

FULL: Final = 100_000
CHUNK: Final = 2000
"""Behaviours that one run of TLC draws."""
MOST_LEFT: Final = 0.3
"""Share of the behaviours that the code may leave before their end."""
PROTOCOL: Final = Path(asynclock._core.protocol.__path__[0])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; 0 if the code never differs, and leaves few behaviours."""
    parser = argparse.ArgumentParser(prog="python -m tests.laboratory steered", description=__doc__)
    parser.add_argument("--behaviours", type=int, default=FULL, help="how many")
    parser.add_argument("--seed", type=int, default=0, help="of TLC")
    options = parser.parse_args(arguments)
    coverage = Coverage(
        branch=True, include=[f"{PROTOCOL}/*.py"], data_file=None, config_file=False, messages=False
    )
    began, steps, differs = time.monotonic(), 0, 0
    left: Counter[str] = Counter()
    for start in range(0, options.behaviours, CHUNK):
        count, seed = min(CHUNK, options.behaviours - start), options.seed + start // CHUNK
        drawn = behaviours(count, seed=seed)
        if not start:
            coverage.start()
        for number, behaviour in enumerate(drawn):
            driver = Driver()
            try:
                with quiet():
                    why = driver.run(behaviour)
            except DiffersError as error:
                differs += 1
                print(f"seed {seed}, behaviour {number}, step {driver.done}: {error}", flush=True)
            else:
                left[why] += bool(why)
            steps += driver.done
        if not start:
            coverage.stop()
            print(_reached(coverage), flush=True)
    for why, times in (+left).most_common():
        print(f"left {times} times at {why}")
    print(f"{time.monotonic() - began:.0f} s")
    print(f"steered: {options.behaviours} behaviours, {steps} steps, {left.total()} left, {differs} differ")
    return 1 if differs or left.total() > MOST_LEFT * options.behaviours else 0


def _reached(coverage: Coverage) -> str:
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "coverage.json")
        coverage.json_report(outfile=str(report))
        files = json.loads(report.read_text())["files"].values()
    total = sum(each["summary"]["num_branches"] for each in files)
    missing = sum(len(each["missing_branches"]) for each in files)
    return f"{total - missing} of {total} branches of the protocol reached by the first {CHUNK}"


if __name__ == "__main__":
    sys.exit(main())
