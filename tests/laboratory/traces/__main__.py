# ruff: noqa: T201  a command that prints
"""``python -m tests.laboratory traces``: histories of the simulator are behaviours of the specification.

The histories of the shipped code must be accepted by TLC, those of the code with a planted mistake refused.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from itertools import count, islice
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final

from tests.laboratory.scenarios import CYCLE, SCENARIOS
from tests.laboratory.simulate import quiet
from tests.laboratory.traces.checking import accepted, refused_at
from tests.laboratory.traces.mutants import REFUSED
from tests.laboratory.traces.recorder import Line, OutsideError, leaves_out, record
from tests.mutants.__main__ import noted
from tests.mutants.catalogue import MUTANTS
from tests.mutants.copies import ROOT, copy_package

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.mutants.mutant import Mutant

CHUNK: Final = 50
"""Histories that one run of TLC checks."""
FULL: Final = 2000
_DRIVER: Final = "tests.laboratory.traces.mutant_driver"

History = tuple[str, int, list[Line]]
"""Scenario, seed and lines."""


def histories(first: int = 0) -> Iterator[History]:
    """Yield the histories that the specification covers: seeds in a row, over all scenarios in turn."""
    for seed in count(first):
        scenario = CYCLE[seed % len(CYCLE)]
        if leaves_out(SCENARIOS[scenario](Random(f"plan/{scenario}/{seed}"))):
            continue
        try:
            with quiet():
                lines = record(scenario, seed)
        except OutsideError:
            continue
        yield scenario, seed, lines


def of_mutant(mutant: Mutant, seeds: Sequence[int]) -> list[list[Line]]:
    """Record histories of the code with a mistake planted in a copy; those that it crashes are left out.

    Raises:
        RuntimeError: They could not be recorded.
    """
    with tempfile.TemporaryDirectory(prefix="asynclock-mutant-") as folder:
        copy_package(Path(folder), mutant.changes, without=("spark",))
        done = subprocess.run(
            [sys.executable, "-m", _DRIVER, mutant.scenario, *map(str, seeds)],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": os.pathsep.join((folder, str(ROOT)))},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            message = f"{mutant.name}: {done.stderr[-2000:]}"
            raise RuntimeError(message)
        recorded = json.loads(done.stdout)
    assert recorded["source"].startswith(folder), "the history is not of the copy"
    return [[Line(**line) for line in each] for each in recorded["histories"]]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; 0 if all is accepted and refused as it must be."""
    parser = argparse.ArgumentParser(prog="python -m tests.laboratory traces", description=__doc__)
    parser.add_argument("--histories", type=int, default=FULL, help="how many")
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--only", help="mutants whose name begins so")
    options = parser.parse_args(arguments)
    began, lines, wrong = time.monotonic(), 0, 0
    taken = islice(histories(options.first), options.histories)
    while chunk := list(islice(taken, CHUNK)):
        lines += sum(len(each) for _, _, each in chunk)
        verdicts = accepted([each for _, _, each in chunk])
        for (scenario, seed, each), good in zip(chunk, verdicts, strict=True):
            if not good:
                wrong += 1
                at, _ = refused_at(each)
                print(f"refused: {scenario} seed {seed} at line {at} of {len(each)}: {each[at]}", flush=True)
    print(f"{lines} lines, {time.monotonic() - began:.0f} s", flush=True)
    mutants = [each for each in MUTANTS if each.name in REFUSED and each.name.startswith(options.only or "")]
    survived = _survivors(mutants)
    print(
        f"traces: {options.histories} histories, {wrong} refused; {len(mutants)} mutants, {survived} accepted"
    )
    return 1 if wrong or survived else 0


def _survivors(mutants: Sequence[Mutant]) -> int:
    seeds, survived = noted(), 0
    for start in range(0, len(mutants), CHUNK):
        chunk = mutants[start : start + CHUNK]
        recorded = [(each, lines) for each in chunk for lines in of_mutant(each, [seeds.get(each.name, 0)])]
        verdicts = accepted([lines for _, lines in recorded])
        refused = {each.name for (each, _), good in zip(recorded, verdicts, strict=True) if not good}
        for each in chunk:
            if each.name not in refused:
                survived += 1
                print(f"accepted: {each.name} ({each.scenario} seed {seeds.get(each.name, 0)})", flush=True)
    return survived


if __name__ == "__main__":
    sys.exit(main())
