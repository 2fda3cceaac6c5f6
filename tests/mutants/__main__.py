# ruff: noqa: T201  a command that prints
"""``python -m tests.mutants``: plant each mistake in a copy of the source and hunt for it.

A mutant of the lock is killed if its invariant was reported violated in its scenario, one of the pipeline if
its test failed in what it expects. A crash, a hang or another error does not count, nor does what is violated
beside it. The unmutated source then passes the same histories and tests.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.laboratory.cores import STANDS_BACK
from tests.mutants.catalogue import MUTANTS
from tests.mutants.copies import ROOT, copy_package
from tests.mutants.pipeline import PIPELINE_MUTANTS
from tests.mutants.planting import NoSuchDecisionError, planted
from tests.mutants.suites import check_unmutated_suites, hunt_by_test, warm_sparks

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tests.mutants.catalogue import Mutant
    from tests.mutants.pipeline import PipelineMutant

MOST: Final = 8000
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
        copy_package(Path(folder), mutant.changes if mutant else (), without=("spark",))
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


def misplaced(mutants: Iterable[Mutant | PipelineMutant]) -> list[str]:
    """Return, for each mutant whose decision is not in the source exactly once, what is there instead."""
    failures = []
    for mutant in mutants:
        try:
            planted(mutant.changes, ROOT)
        except NoSuchDecisionError as error:
            failures.append(f"mutant {mutant.name!r} has no place in the source:\n{error}\n")
    return failures


def hunt_lock(mutants: Sequence[Mutant], pool: ThreadPoolExecutor, *, first: int) -> tuple[int, list[str]]:
    """Hunt for mistakes in the lock; return how many were found, and what the source as it is fails."""
    used: dict[str, int] = defaultdict(int)
    killed = 0

    def hunt_one(mutant: Mutant) -> Outcome:
        return hunt(mutant.scenario, mutant.invariant, first=first, mutant=mutant)

    for mutant, outcome in zip(mutants, pool.map(hunt_one, mutants), strict=True):
        used[mutant.scenario] = max(used[mutant.scenario], outcome.histories)
        killed += outcome.killed
        print(
            f"{_verdict(outcome.killed)} {outcome.histories:>6} histories  {mutant.scenario:<18} "
            f"{mutant.invariant:<22} {mutant.name}: {outcome.detail[:DETAIL]}",
            flush=True,
        )
    return killed, check_unmutated(used, first, pool)


def hunt_pipeline(
    mutants: Sequence[PipelineMutant], pool: ThreadPoolExecutor, *, jobs: int
) -> tuple[int, list[str]]:
    """Hunt for mistakes in the pipeline; return how many were found, and what the source as it is fails."""
    killed = 0
    with warm_sparks(jobs if mutants else 0) as sparks:

        def hunt_one(mutant: PipelineMutant) -> tuple[bool, str, float]:
            spark = sparks.get()
            try:
                return hunt_by_test(mutant, spark)
            finally:
                sparks.put(spark)

        for mutant, (found, how, seconds) in zip(mutants, pool.map(hunt_one, mutants), strict=True):
            killed += found
            print(
                f"{_verdict(found)} {seconds:>4.0f} s  {mutant.name}: {' '.join(how.split())[:DETAIL]} "
                f"({mutant.test})",
                flush=True,
            )
    return killed, check_unmutated_suites(mutants, jobs)


def _verdict(killed: bool) -> str:  # noqa: FBT001  what is shown
    return "killed  " if killed else "SURVIVED"


def main() -> int:
    """Hunt all mutants; 0 if every one is killed and the unmutated source passes."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", help="only mutants whose name contains one of these")
    parser.add_argument("--only", choices=("lock", "pipeline"), help="only those of one part")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="hunts side by side")
    parser.add_argument(
        "--first", type=int, default=0, help="first seed of each hunt for a mistake in the lock"
    )
    options = parser.parse_args()

    def is_chosen(mutant: Mutant | PipelineMutant) -> bool:
        return not options.names or any(part in mutant.name for part in options.names)

    lock = [each for each in MUTANTS if options.only != "pipeline" and is_chosen(each)]
    pipeline = [each for each in PIPELINE_MUTANTS if options.only != "lock" and is_chosen(each)]
    if failures := misplaced([*lock, *pipeline]):
        print("\n".join(failures))
        return 1
    os.nice(STANDS_BACK)
    killed = 0
    began = time.monotonic()
    with ThreadPoolExecutor(options.jobs) as pool:
        for found, failed in (
            hunt_lock(lock, pool, first=options.first),
            hunt_pipeline(pipeline, pool, jobs=options.jobs),
        ):
            killed += found
            failures += failed
    for failure in failures:
        print(failure)
    if not failures:
        print(f"the unmutated source passes the same histories and tests; {time.monotonic() - began:.0f} s")
    count = len(lock) + len(pipeline)
    print(f"mutants: {count} mutants, {killed} killed, {count - killed} survived")
    return 0 if killed == count and not failures else 1


if __name__ == "__main__":
    sys.exit(main())
