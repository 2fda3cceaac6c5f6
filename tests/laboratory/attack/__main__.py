"""Run histories by their seeds: ``python -m tests.laboratory attack [--seeds N] [--first N] [--seed N]``."""

from __future__ import annotations

import argparse
import gc
import logging
import multiprocessing
import os
import sys
import time
from collections import Counter

from tests.laboratory.attack.history import History, Outcome
from tests.laboratory.attack.plan import draw

SEEDS = 10_000
SHOWN = 400


def _say(line: object) -> None:
    sys.stdout.write(f"{line}\n")


def run(seed: int) -> Outcome:
    """Run one history; only a violation keeps its trace."""
    outcome = History(draw(seed)).run()
    return outcome if outcome.violations else Outcome(seed, (), outcome.acquisitions, outcome.events, ())


def main() -> int:
    """Run what is asked for; 1 where anything was violated."""
    parser = argparse.ArgumentParser(prog="python -m tests.laboratory attack", description=__doc__)
    parser.add_argument("--seeds", type=int, default=SEEDS, help="how many histories")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="replay one history and print its trace")
    parser.add_argument("--all", action="store_true", help="do not stop at the first violation; count them")
    options = parser.parse_args()
    logging.getLogger("asynclock").setLevel(logging.CRITICAL)
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    if options.seed is not None:
        return _replay(options.seed)
    seeds = range(options.first, options.first + options.seeds)
    gc.freeze()
    began, found, acquisitions, events = time.monotonic(), [], 0, 0
    with multiprocessing.Pool(os.cpu_count()) as pool:
        for outcome in pool.imap_unordered(run, seeds, chunksize=8):
            acquisitions += outcome.acquisitions
            events += outcome.events
            if outcome.violations:
                found.append(outcome)
                if not options.all:
                    break
    for outcome in sorted(found, key=lambda each: each.seed):
        _say(f"seed {outcome.seed}: {outcome.violations[0]}")
    if found and not options.all:
        _show(found[0])
    kinds = Counter(rule for outcome in found for rule in {each.split(":")[0] for each in outcome.violations})
    _say(
        f"{acquisitions} acquisitions, {events} events, {time.monotonic() - began:.0f} s {dict(kinds) or ''}"
    )
    _say(f"attack: {len(seeds)} histories, {len(found)} violations")
    return 1 if found else 0


def _replay(seed: int) -> int:
    outcome = History(draw(seed)).run()
    _say(draw(seed))
    for line in outcome.trace:
        _say(line)
    _say(f"attack: 1 histories, {len(outcome.violations)} violations")
    return 1 if outcome.violations else 0


def _show(outcome: Outcome) -> None:
    for line in outcome.trace[-SHOWN:]:
        _say(line)
    for violation in outcome.violations:
        _say(violation)
    _say(f"replay it: python -m tests.laboratory attack --seed {outcome.seed}")


if __name__ == "__main__":
    sys.exit(main())
