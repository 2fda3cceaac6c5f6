# ruff: noqa: T201  a command that prints
"""``python -m tests.mutants``: plant each mistake in a copy of the source and hunt for it.

A mutant of the lock is killed if its invariant was reported violated in its scenario, one of the pipeline if
its test failed in what it expects. Crashes, hangs and other errors do not count, nor do other violations.
The unmutated source then passes the same histories and tests.

The hunt for a mistake in the lock begins with the seed that ``found.json`` notes for it, and goes on from
``--first``. ``--note`` writes into that file what this run has found, and keeps what it says of the others.
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
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.laboratory.cores import STANDS_BACK
from tests.laboratory.scenarios import SCENARIOS
from tests.mutants.catalogue import MUTANTS
from tests.mutants.copies import ROOT, copy_package
from tests.mutants.pipeline import PIPELINE_MUTANTS
from tests.mutants.planting import NoSuchDecisionError, planted
from tests.mutants.suites import check_unmutated_suites, hunt_by_test, warm_sparks

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from tests.mutants.mutant import Mutant
    from tests.mutants.pipeline import PipelineMutant

MOST: Final = 8000
"""Histories after which a mutant counts as survived."""
SECONDS: Final = 150.0
"""Likewise, seconds."""
DETAIL: Final = 100
"""Characters shown of how an invariant was violated."""
GRACE: Final = 60.0
"""Seconds after which a hunt that has not ended counts as a hang."""
FOUND: Final = Path(__file__).with_name("found.json")
"""For each mutant of the lock that the first seed does not find: the seed that found it last."""


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
    scenario: str,
    wanted: str,
    *,
    seeds: Iterable[range] = (range(MOST),),
    most: int = MOST,
    mutant: Mutant | None = None,
) -> Outcome:
    """Hunt on a copy of the source, with ``mutant`` planted in it if given.

    Args:
        scenario: One of the simulator's, or an exploration.
        wanted: The invariant; ``any`` for every one.
        seeds: Of the histories, in their order; an exploration needs none.
        most: Histories after which it ends.
        mutant: The mistake.

    Raises:
        NoSuchDecisionError: The source does not take the decision that the mutant is a mistake in.
    """
    with tempfile.TemporaryDirectory(prefix="asynclock-mutant-") as folder:
        copy_package(Path(folder), mutant.changes if mutant else (), without=("spark",))
        command = [sys.executable, "-m", "tests.mutants.hunt", scenario, wanted]
        command += [json.dumps([[each.start, each.stop] for each in seeds]), str(most), str(SECONDS)]
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


def check_unmutated(used: dict[str, set[int]], pool: ThreadPoolExecutor) -> list[str]:
    """Run the unmutated source over the same histories of each scenario; return what failed."""

    def hunt_any(scenario: str) -> Outcome:
        seeds = [range(seed, seed + 1) for seed in sorted(used[scenario])]
        return hunt(scenario, "any", seeds=seeds, most=len(seeds))

    scenarios = sorted(used)
    return [
        f"the unmutated source fails in {name}: {outcome}"
        for name, outcome in zip(scenarios, pool.map(hunt_any, scenarios), strict=True)
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


def noted() -> dict[str, int]:
    """Return the seed that found a mutant last, by the mutant's name."""
    seeds: dict[str, int] = json.loads(FOUND.read_text(encoding="utf-8"))
    return seeds


def write_down(found: Mapping[str, int], *, hunted: Collection[str]) -> None:
    """Note the seeds of the mutants that were hunted; the others keep theirs, if they still exist."""
    seeds = {name: seed for name, seed in noted().items() if name not in hunted} | found
    known = {each.name: seeds[each.name] for each in MUTANTS if each.name in seeds}
    FOUND.write_text(json.dumps(known, indent=2) + "\n", encoding="utf-8")


def seeds_of(mutant: Mutant, before: Mapping[str, int], *, first: int) -> list[range]:
    """Return the seeds of a hunt: the one that found the mutant before, and then those from ``first`` on."""
    at = before.get(mutant.name)
    return [*([] if at is None else [range(at, at + 1)]), range(first, first + MOST)]


def hunt_lock(
    mutants: Sequence[Mutant], pool: ThreadPoolExecutor, *, first: int, note: bool = False
) -> tuple[int, list[str]]:
    """Hunt for mistakes in the lock; return how many were found, and what the source as it is fails.

    Args:
        mutants: The mistakes.
        pool: As many hunts run side by side.
        first: The first seed of each hunt, after the one noted.
        note: Write down which seed has found each.
    """
    seeds = {each.name: seeds_of(each, noted(), first=first) for each in mutants}
    used: dict[str, set[int]] = defaultdict(set)
    now: dict[str, int] = {}
    killed = 0

    def hunt_one(mutant: Mutant) -> Outcome:
        return hunt(mutant.scenario, mutant.invariant, seeds=seeds[mutant.name], mutant=mutant)

    for mutant, outcome in zip(mutants, pool.map(hunt_one, mutants), strict=True):
        tried = list(islice(chain.from_iterable(seeds[mutant.name]), outcome.histories))
        used[mutant.scenario].update(tried)
        killed += outcome.killed
        if outcome.killed and tried[-1] != first and mutant.scenario in SCENARIOS:
            now[mutant.name] = tried[-1]
        print(
            f"{_verdict(outcome.killed)} {outcome.histories:>6} histories  {mutant.scenario:<18} "
            f"{mutant.invariant:<22} {mutant.name}: {outcome.detail[:DETAIL]}",
            flush=True,
        )
    if note:
        write_down(now, hunted=seeds)
    return killed, check_unmutated(used, pool)


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
    parser.add_argument("--note", action="store_true", help="note which seed has found each, in found.json")
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
            hunt_lock(lock, pool, first=options.first, note=options.note),
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
