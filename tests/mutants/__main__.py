# ruff: noqa: T201  a command that prints
"""``python -m tests.mutants``: plant each mistake in a copy of the source and hunt for it.

Killed means that the mutant's invariant was reported violated in its scenario; a crash, a hang
or another error does not count, nor does what is violated beside it. The unmutated source then
passes the same histories.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.mutants.catalogue import MUTANTS
from tests.mutants.planting import NoSuchDecisionError, planted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.mutants.catalogue import Mutant

ROOT: Final = Path(__file__).parents[2]
MOST: Final = 6000
"""Histories after which a mutant counts as survived."""
SECONDS: Final = 150.0
"""Likewise, seconds."""
DETAIL: Final = 100
"""Characters shown of how an invariant was violated."""
GRACE: Final = 60.0
"""Seconds after which a hunt that has not ended counts as a hang."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one hunt.

    Attributes:
        killed: Whether what was looked for was found.
        histories: How many it took.
        detail: How the invariant was violated; or what went wrong with the hunt itself.
    """

    killed: bool
    histories: int
    detail: str = ""


def hunt(
    scenario: str, wanted: str, *, first: int = 0, most: int = MOST, mutant: Mutant | None = None
) -> Outcome:
    """Hunt from seed ``first`` on, on a copy of the source with ``mutant`` planted in it if given.

    Raises:
        NoSuchDecisionError: The source does not take the decision that the mutant is a mistake in.
    """
    with tempfile.TemporaryDirectory(prefix="asynclock-mutant-") as folder:
        copy = Path(folder, "asynclock")
        shutil.copytree(ROOT / "asynclock", copy, ignore=shutil.ignore_patterns("spark", "__pycache__"))
        for path, source in planted(mutant.changes if mutant else (), ROOT).items():
            Path(folder, path).write_text(source, encoding="utf-8")
        command = [sys.executable, "-m", "tests.mutants.hunt", scenario, wanted]
        command += [str(first), str(most), str(SECONDS)]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join((folder, str(ROOT)))}
        try:
            done = subprocess.run(
                command,
                cwd=folder,
                env=environment,
                capture_output=True,
                text=True,
                timeout=SECONDS + GRACE,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Outcome(killed=False, histories=0, detail="it hangs, which does not count")
        if done.returncode:
            last = done.stderr.strip().splitlines()[-1:] or ["no output"]
            return Outcome(killed=False, histories=0, detail=f"it crashes, which does not count: {last[0]}")
        found = json.loads(done.stdout)
        assert found["source"].startswith(folder), "the hunt did not run on the mutated copy"
        return Outcome(found["found"] is not None, found["histories"], found["found"] or "")


def check_unmutated(used: dict[str, int], first: int, pool: ThreadPoolExecutor) -> list[str]:
    """Run the unmutated source over the same histories of each scenario; return what failed."""
    scenarios = sorted(used)
    outcomes = pool.map(lambda name: hunt(name, "any", first=first, most=used[name]), scenarios)
    return [
        f"the unmutated source fails in {name}: {outcome}"
        for name, outcome in zip(scenarios, outcomes, strict=True)
        if outcome.killed or outcome.detail
    ]


def misplaced(mutants: Iterable[Mutant]) -> list[str]:
    """Return, for each mutant whose decision is not in the source exactly once, what is there instead."""
    failures = []
    for mutant in mutants:
        try:
            planted(mutant.changes, ROOT)
        except NoSuchDecisionError as error:
            failures.append(f"mutant {mutant.name!r} has no place in the source:\n{error}\n")
    return failures


def chosen(names: Iterable[str]) -> list[Mutant]:
    """Return the mutants whose name contains one of ``names``, all if there are none."""
    wanted = list(names)
    return [each for each in MUTANTS if not wanted or any(part in each.name for part in wanted)]


def main() -> int:
    """Hunt all mutants; 0 if every one is killed and the unmutated source passes."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", help="only mutants whose name contains one of these")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="hunts side by side")
    parser.add_argument("--first", type=int, default=0, help="first seed of each hunt")
    options = parser.parse_args()
    mutants = chosen(options.names)
    if failures := misplaced(mutants):
        print("\n".join(failures))
        return 1
    used: dict[str, int] = defaultdict(int)
    killed = 0
    began = time.monotonic()

    def hunt_one(mutant: Mutant) -> Outcome:
        return hunt(mutant.scenario, mutant.invariant, first=options.first, mutant=mutant)

    with ThreadPoolExecutor(options.jobs) as pool:
        for mutant, outcome in zip(mutants, pool.map(hunt_one, mutants), strict=True):
            used[mutant.scenario] = max(used[mutant.scenario], outcome.histories)
            killed += outcome.killed
            verdict = "killed  " if outcome.killed else "SURVIVED"
            print(
                f"{verdict} {outcome.histories:>6} histories  {mutant.scenario:<18} "
                f"{mutant.invariant:<22} {mutant.name}: {outcome.detail[:DETAIL]}",
                flush=True,
            )
        failures = check_unmutated(used, options.first, pool)
    for failure in failures:
        print(failure)
    if not failures:
        print(f"the unmutated source passes the same histories; {time.monotonic() - began:.0f} s")
    print(f"mutants: {len(mutants)} mutants, {killed} killed, {len(mutants) - killed} survived")
    return 0 if killed == len(mutants) and not failures else 1


if __name__ == "__main__":
    sys.exit(main())
