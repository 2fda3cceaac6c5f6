# ruff: noqa: T201  a command that prints
"""Hostile plans bred by coverage: which branches of ``asynclock/_core/protocol/`` no history has reached.

``python -m tests.laboratory guided --histories 3000`` runs a plan of each scenario, keeps those
whose history reaches a branch that none has reached before, changes them at random and goes on
from there. It prints which branches were never reached and why. A plan is named by its recipe,
``hand-off/22+5+119``: seed 22 of the scenario, changed by what seeds 5 and 119 draw; ``--replay``
runs one.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from coverage import Coverage

import asynclock._core.protocol
from asynclock.testing._faulty import Fault
from tests.laboratory.history import Simulation
from tests.laboratory.scenarios import SCENARIOS
from tests.laboratory.simulate import quiet
from tests.laboratory.unreached import WHY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.laboratory.history import History
    from tests.laboratory.plan import Plan

PROTOCOL: Final = Path(asynclock._core.protocol.__file__).parent
FIRST: Final = 4
"""Plans of each scenario that are run as they are."""
RATES: Final = (
    *("crashes", "pauses", "stalls", "suspends", "steps", "partitions"),
    *("signals", "forks", "exits", "closes"),
)
SHARES: Final = ("cancels", "bodies", "fenced", "impatience", "aim")
FAULTS: Final = tuple(
    fault for fault in Fault if fault not in {Fault.DELETED, Fault.STALE_DATE, Fault.CLOCK_AHEAD}
)
"""What may happen to a request of any plan; wrong Dates are promised not to come beside wrong clocks."""


class Recipe(NamedTuple):
    """Names a plan.

    Attributes:
        scenario: Where it began.
        seed: Of the scenario, and of the history.
        changes: Seeds of the changes that were made to it.
    """

    scenario: str
    seed: int
    changes: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"{self.scenario}/{'+'.join(map(str, (self.seed, *self.changes)))}"

    @classmethod
    def of(cls, text: str) -> Recipe:
        """Read what ``str`` has written."""
        scenario, _, seeds = text.partition("/")
        seed, *changes = map(int, seeds.split("+"))
        return cls(scenario, seed, tuple(changes))

    def plan(self) -> Plan:
        """Make the plan."""
        plan = SCENARIOS[self.scenario](Random(f"plan/{self.scenario}/{self.seed}"))
        for change in self.changes:
            plan = changed(plan, Random(change))
        return plan

    def run(self) -> History:
        """Run its history."""
        return Simulation(self.scenario, self.seed, self.plan()).run()


def changed(plan: Plan, rng: Random) -> Plan:
    """Return ``plan`` with one to three of its features drawn again."""
    for _ in range(rng.randint(1, 3)):
        kind = rng.choice(("rate", "rate", "share", "fault", "fault", "store", "times"))
        new: dict[str, Any]
        if kind == "rate":
            new = {rng.choice(RATES): rng.choice((0.0, 0.1, 0.3, 0.8))}
        elif kind == "share":
            new = {rng.choice(SHARES): rng.choice((0.0, 0.3, 0.8))}
        elif kind == "fault":
            faults = dict(plan.faults) | {rng.choice(FAULTS): rng.choice((0.02, 0.1, 0.2))}
            total = sum(faults.values())
            new = {"faults": {fault: share / max(1.0, total + 1e-9) for fault, share in faults.items()}}
        elif kind == "store":
            new = {"store": replace(plan.store, **_store_feature(rng))}
        else:
            new = rng.choice(
                (
                    {"users": rng.randint(1, 3), "waiters": ()},
                    {"holds": (0.0, rng.choice((0.1, 0.5, 2.0)))},
                    {"idles": (0.0, rng.choice((0.01, 0.3, 1.0)))},
                    {"delay": (0.0, rng.choice((0.5, 3.0, 12.0)))},
                    {"breaks": rng.randint(0, 2)},
                )
            )
        plan = replace(plan, **new)
    return replace(plan, longest_wait=None, alone=False)  # which hold for the users that the scenario has


def _store_feature(rng: Random) -> dict[str, Any]:
    features: tuple[dict[str, Any], ...] = (
        {"slow": rng.choice((0.0, 0.1, 0.4)), "slow_by": rng.choice((0.5, 2.0))},
        {"undated": rng.choice((0.0, 0.1, 0.5))},
        {"unmodified": rng.choice((0.0, 0.3))},
        {"versions": rng.choice(("content", "generation"))},
        {"write_interval": rng.choice((0.0, 1.0)), "versions": "generation"},
    )
    return rng.choice(features)


class Guide:
    """Runs histories and remembers which branches they reach.

    Attributes:
        kept: The recipes whose history reached something new, in that order.
        failures: One text for each violating history.
        histories: How many were run.
    """

    def __init__(self) -> None:
        self.kept: list[Recipe] = []
        self.failures: list[str] = []
        self.histories = 0
        self._reached: set[tuple[str, tuple[int, int]]] = set()
        self._coverage = Coverage(
            branch=True, include=[f"{PROTOCOL}/*.py"], data_file=None, config_file=False, messages=False
        )

    def run(self, recipe: Recipe) -> None:
        """Run one history and keep its recipe if it reached something new."""
        self._coverage.start()
        try:
            history = recipe.run()
        finally:
            self._coverage.stop()
        self.histories += 1
        if history.violations:
            first = history.violations[0]
            self.failures.append(f"{recipe}  # {first.invariant}: {first.detail}")
        data = self._coverage.get_data()
        reached = {(path, arc) for path in data.measured_files() for arc in data.arcs(path) or ()}
        if reached - self._reached:
            self.kept.append(recipe)
            self._reached = reached

    def branches(self) -> tuple[int, list[tuple[str, int, int]]]:
        """Return how many branches there are, and (file, line, line) of those that were not reached."""
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder, "coverage.json")
            self._coverage.json_report(outfile=str(report))
            files = json.loads(report.read_text())["files"]
        total = sum(each["summary"]["num_branches"] for each in files.values())
        missing = [
            (Path(path).name, first, last)
            for path, each in sorted(files.items())
            for first, last in each["missing_branches"]
        ]
        return total, missing


def recipes(rng: Random, kept: list[Recipe]) -> Iterator[Recipe]:
    """Yield the plans of the scenarios, then changes of those in ``kept``, which grows meanwhile."""
    for seed in range(FIRST):
        for scenario in SCENARIOS:
            yield Recipe(scenario, seed)
    while True:
        # The latest more often: what they reach has been tried the least.
        parent = kept[int(len(kept) * rng.random() ** 0.5)]
        yield Recipe(parent.scenario, parent.seed, (*parent.changes[-3:], rng.getrandbits(24)))


def explore(histories: int, seed: int) -> Guide:
    """Run that many histories."""
    guide = Guide()
    gc.disable()
    try:
        with quiet():
            for recipe in recipes(Random(seed), guide.kept):
                if guide.histories >= histories:
                    break
                guide.run(recipe)
                if not guide.histories % 8:
                    gc.collect(1)
    finally:
        gc.enable()
    return guide


def report(guide: Guide) -> int:
    """Print what was not reached and why; 0 if there is a reason for all of it and no violation."""
    total, missing = guide.branches()
    unexplained = 0
    for name, first, last in missing:
        lines = (PROTOCOL / name).read_text(encoding="utf-8").splitlines()
        text = lines[first - 1].strip()
        towards = lines[abs(last) - 1].strip() if last > 0 else "the end"
        why = WHY.get((name, text))
        unexplained += why is None
        print(f"{name}:{first}: {text}  ->  {towards}\n    {why or 'NO REASON IS KNOWN'}")
    for failure in guide.failures:
        print(f"python -m tests.laboratory guided --replay {failure}")
    print(
        f"guided: {guide.histories} histories, {total - len(missing)} of {total} branches reached, "
        f"{unexplained} not and for no known reason, {len(guide.failures)} violations"
    )
    return 1 if unexplained or guide.failures else 0


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tests.laboratory guided", description=__doc__)
    parser.add_argument("--histories", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=0, help="of the choice of plans")
    parser.add_argument("--replay", metavar="RECIPE", help="run this one, with its trace")
    options = parser.parse_args()
    if options.replay is None:
        return report(explore(options.histories, options.seed))
    with quiet():
        history = Recipe.of(options.replay).run()
    print(history.trace())
    for violation in history.violations:
        print(f"VIOLATION at {violation.at:.3f}: {violation.invariant}: {violation.detail}")
    return 1 if history.violations else 0


if __name__ == "__main__":
    sys.exit(main())
