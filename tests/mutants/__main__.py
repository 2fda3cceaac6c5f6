# ruff: noqa: T201  a command that prints
"""``python -m tests.mutants``: plant each mistake in a copy of the source and hunt for it.

Killed means that the mutant's invariant was reported violated in its scenario; a crash, a hang
or another error does not count. The unmutated source then passes the same histories.
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

from tests.mutants.catalogue import MUTANTS, THIN

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.mutants.catalogue import Mutant

ROOT: Final = Path(__file__).parents[2]
MOST: Final = 6000
"""Histories after which a mutant counts as survived."""
SECONDS: Final = 150.0
"""Likewise, seconds."""
GRACE: Final = 60.0
"""Seconds after which a hunt that has not ended counts as a hang."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one hunt.

    Attributes:
        killed: Whether what was looked for was found.
        histories: How many it took.
        detail: What went wrong with the hunt itself; empty if nothing did.
    """

    killed: bool
    histories: int
    detail: str = ""


def planted(mutant: Mutant, source: str) -> str:
    """Return ``source`` with the mistake in it.

    Raises:
        ValueError: The text to replace does not occur exactly once: the source has moved on.
    """
    count = source.count(mutant.old)
    if count != 1:
        raise ValueError(f"{mutant.path}: the text of mutant {mutant.name!r} occurs {count} times, not once")
    return source.replace(mutant.old, mutant.new)


def hunt(scenario: str, wanted: str, *, most: int, mutant: Mutant | None = None) -> Outcome:
    """Hunt on a copy of the source, with ``mutant`` planted in it if given."""
    with tempfile.TemporaryDirectory(prefix="asynclock-mutant-") as folder:
        copy = Path(folder, "asynclock")
        shutil.copytree(ROOT / "asynclock", copy, ignore=shutil.ignore_patterns("spark", "__pycache__"))
        if mutant is not None:
            path = copy / mutant.path
            path.write_text(planted(mutant, path.read_text()))
        command = [sys.executable, "-m", "tests.mutants.hunt", scenario, wanted, str(most), str(SECONDS)]
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
        return Outcome(killed=bool(found["found"]), histories=found["histories"])


def hunt_mutant(mutant: Mutant) -> Outcome:
    """Hunt for one mutant's invariant in its scenario."""
    return hunt(mutant.scenario, mutant.invariant, most=MOST, mutant=mutant)


def check_unmutated(used: dict[str, int], pool: ThreadPoolExecutor) -> list[str]:
    """Run the unmutated source over as many histories of each scenario; return what failed."""
    scenarios = sorted(used)
    outcomes = pool.map(lambda name: hunt(name, "any", most=used[name]), scenarios)
    return [
        f"the unmutated source fails in {name}: {outcome}"
        for name, outcome in zip(scenarios, outcomes, strict=True)
        if outcome.killed or outcome.detail
    ]


def chosen(names: Iterable[str], *, quick: bool = False) -> list[Mutant]:
    """Return the mutants whose name contains one of ``names``, all if there are none.

    Args:
        names: Parts of names.
        quick: Leave out those that take too long to find for a test run.
    """
    wanted = list(names)
    return [
        each
        for each in MUTANTS
        if (not wanted or any(part in each.name for part in wanted)) and not (quick and each.name in THIN)
    ]


def main() -> int:
    """Hunt all mutants; 0 if every one is killed and the unmutated source passes."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", help="only mutants whose name contains one of these")
    parser.add_argument("--quick", action="store_true", help="leave out those that are rarely found")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="hunts side by side")
    options = parser.parse_args()
    mutants = chosen(options.names, quick=options.quick)
    used: dict[str, int] = defaultdict(int)
    killed = 0
    began = time.monotonic()
    with ThreadPoolExecutor(options.jobs) as pool:
        for mutant, outcome in zip(mutants, pool.map(hunt_mutant, mutants), strict=True):
            used[mutant.scenario] = max(used[mutant.scenario], outcome.histories)
            killed += outcome.killed
            verdict = "killed  " if outcome.killed else "SURVIVED"
            print(
                f"{verdict} {outcome.histories:>6} histories  {mutant.scenario:<18} "
                f"{mutant.invariant:<22} {mutant.name}  {outcome.detail}",
                flush=True,
            )
        failures = check_unmutated(used, pool)
    for failure in failures:
        print(failure)
    if not failures:
        print(f"the unmutated source passes the same histories; {time.monotonic() - began:.0f} s")
    print(f"mutants: {len(mutants)} mutants, {killed} killed, {len(mutants) - killed} survived")
    return 0 if killed == len(mutants) and not failures else 1


if __name__ == "__main__":
    sys.exit(main())
