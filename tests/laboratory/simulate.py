# ruff: noqa: T201  a command that prints
"""Simulated histories by the thousand, and the replay of one.

``python -m tests.laboratory simulate --seeds 25000`` runs seeds 0 to 24999 over all scenarios
on all cores; ``--scenario S --seed N`` replays one with a trace of who believed what when. Over
many seeds a violating history is printed as soon as it is found, and stderr tells once a minute
how far the run is.
"""

from __future__ import annotations

import argparse
import gc
import logging
import os
import statistics
import sys
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Final

from asynclock.errors import ConfigError
from asynclock.testing._faulty import Fault
from tests.laboratory.cores import spread
from tests.laboratory.history import Simulation
from tests.laboratory.plan import TROUBLES
from tests.laboratory.scenarios import CYCLE, SCENARIOS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tests.laboratory.history import History

CHUNK: Final = 40
"""Seeds given to a worker at a time."""
KINDS: Final = (*(str(fault) for fault in Fault), *TROUBLES)
"""Every kind of fault that a full run must have applied."""
ENOUGH: Final = 2000
"""From this many seeds on, a fault that was never applied or a tame median fails the run."""
FULL: Final = 25_000
"""Histories of a full run."""
LEAST_OPERATIONS: Final = 5_000_000
"""Store operations of a full run."""
TELL_EVERY: Final = 60.0
"""Seconds between two lines that tell how far a run is."""
LEAST_MEDIANS: Final = {"clients": 3.0, "store operations": 100.0, "lifetimes": 5.0, "faults": 1.0}


def simulate(scenario: str, seed: int) -> History:
    """Run one history: the shipped client in virtual time against a simulated store.

    Args:
        scenario: One of ``SCENARIOS``.
        seed: The same scenario and seed give the same history, bit for bit.

    Raises:
        ConfigError: There is no such scenario.
    """
    if scenario not in SCENARIOS:
        raise ConfigError(setting="scenario", value=scenario, reason=f"must be one of {', '.join(SCENARIOS)}")
    plan = SCENARIOS[scenario](Random(f"plan/{scenario}/{seed}"))
    return Simulation(scenario, seed, plan).run()


def scenario_of(seed: int) -> str:
    """Return the scenario that a run over many seeds uses for ``seed``."""
    return CYCLE[seed % len(CYCLE)]


def replay_command(scenario: str, seed: int) -> str:
    """Return the command that replays a history with its trace."""
    return f"python -m tests.laboratory simulate --scenario {scenario} --seed {seed}"


@dataclass(slots=True)
class Summary:
    """What many histories came to.

    Attributes:
        failures: One text for each violating history: the command that replays it, and why.
        applied: How often each kind of fault was applied.
        clients, operations, lifetimes, faults: One number for each history.
        acquisitions: Leases handed out in all.
    """

    failures: list[str] = field(default_factory=list)
    applied: Counter[str] = field(default_factory=Counter)
    clients: list[int] = field(default_factory=list)
    operations: list[int] = field(default_factory=list)
    lifetimes: list[float] = field(default_factory=list)
    faults: list[int] = field(default_factory=list)
    acquisitions: int = 0

    def add(self, history: History) -> None:
        """Take in one history."""
        self.applied += history.applied
        self.clients.append(history.clients)
        self.operations.append(history.operations)
        self.lifetimes.append(history.lifetimes)
        self.faults.append(history.applied.total())
        self.acquisitions += history.acquisitions
        if history.violations:
            first = history.violations[0]
            self.failures.append(
                f"{replay_command(history.scenario, history.seed)}  # {first.invariant}: {first.detail}"
            )

    def merge(self, other: Summary) -> None:
        """Take in what another process ran."""
        self.failures += other.failures
        self.applied += other.applied
        self.clients += other.clients
        self.operations += other.operations
        self.lifetimes += other.lifetimes
        self.faults += other.faults
        self.acquisitions += other.acquisitions

    def medians(self) -> dict[str, float]:
        """Return the median history."""
        numbers: tuple[Sequence[float], ...] = (self.clients, self.operations, self.lifetimes, self.faults)
        medians = [float(statistics.median(each)) for each in numbers]
        return dict(zip(LEAST_MEDIANS, medians, strict=True))

    def shortcomings(self) -> list[str]:
        """Return why the run proves too little, if it does."""
        never = [kind for kind in KINDS if not self.applied[kind]]
        tame = [name for name, median in self.medians().items() if median < LEAST_MEDIANS[name]]
        short = [f"never applied: {kind}" for kind in never] + [f"median too small: {name}" for name in tame]
        if len(self.operations) >= FULL and sum(self.operations) < LEAST_OPERATIONS:
            short.append(f"fewer than {LEAST_OPERATIONS} store operations")
        return short


def run_seeds(seeds: Sequence[int], *, scenario: str | None = None) -> Summary:
    """Run one history for each seed in this process."""
    summary = Summary()
    gc.disable()  # cycles are collected between histories, where few objects are alive
    try:
        with quiet():
            for seed in seeds:
                summary.add(simulate(scenario or scenario_of(seed), seed))
                if seed % 8 == 0:
                    gc.collect(1)
    finally:
        gc.enable()
        gc.collect()
    return summary


@contextmanager
def quiet() -> Iterator[None]:
    """Keep the losses and failures that a run makes on purpose out of the log."""
    loggers = [logging.getLogger(name) for name in ("asynclock", "asyncio")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def run_parallel(
    seeds: range,
    *,
    scenario: str | None = None,
    jobs: int | None = None,
    on_part: Callable[[Summary], object] = lambda _: None,
) -> Summary:
    """Run one history for each seed.

    Args:
        seeds: Of the histories.
        scenario: One for all; None: all in turn.
        jobs: How many processes; None: one for each core.
        on_part: Called with what each ``CHUNK`` of seeds came to, in their order, while others run.
    """
    chunks = [(seeds[start : start + CHUNK], scenario) for start in range(0, len(seeds), CHUNK)]
    total = Summary()
    for part in spread(_run_chunk, chunks, processes=jobs):
        on_part(part)
        total.merge(part)
    return total


def _run_chunk(job: tuple[Sequence[int], str | None]) -> Summary:
    return run_seeds(job[0], scenario=job[1])


class Progress:
    """Tells what a long run has found at once, and how far it is every ``TELL_EVERY`` seconds.

    Args:
        histories: How many there will be.
        clock: Returns seconds.
    """

    def __init__(self, histories: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._histories = histories
        self._clock = clock
        self._began = self._told_at = clock()
        self._done = self._operations = self._violations = 0

    def add(self, part: Summary) -> None:
        """Take in what some of the histories came to; failures go to stdout, how far it is to stderr."""
        for failure in part.failures:
            print(failure, flush=True)
        self._done += len(part.operations)
        self._operations += sum(part.operations)
        self._violations += len(part.failures)
        now = self._clock()
        if now - self._told_at < TELL_EVERY or not 0 < self._done < self._histories:
            return
        self._told_at = now
        left = round((now - self._began) * (self._histories - self._done) / self._done)
        print(
            f"{self._done} of {self._histories} histories, {self._operations} store operations, "
            f"{self._violations} violations, about {left // 3600} h {left // 60 % 60:02} min left",
            file=sys.stderr,
            flush=True,
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; 0 if no history violates an invariant."""
    parser = argparse.ArgumentParser(prog="python -m tests.laboratory simulate", description=__doc__)
    parser.add_argument("--scenario", choices=list(SCENARIOS), help="default: all in turn")
    parser.add_argument("--seed", type=int, help="replay this history with its trace")
    parser.add_argument("--seeds", type=int, default=FULL, help="how many histories")
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--jobs", type=int, help="processes; default: every core")
    options = parser.parse_args(arguments)
    if options.seed is not None:
        return _replay(options.scenario or scenario_of(options.seed), options.seed)
    return _many(range(options.first, options.first + options.seeds), options.scenario, options.jobs)


def _replay(scenario: str, seed: int) -> int:
    with quiet():
        history = simulate(scenario, seed)
    print(history.trace())
    for violation in history.violations:
        print(f"VIOLATION at {violation.at:.3f}: {violation.invariant}: {violation.detail}")
    print(
        f"simulate: {scenario} seed {seed}, {history.operations} store operations, "
        f"{history.acquisitions} acquisitions, {len(history.violations)} violations"
    )
    return 1 if history.violations else 0


def _many(seeds: range, scenario: str | None, jobs: int | None) -> int:
    began = time.perf_counter()
    total = run_parallel(seeds, scenario=scenario, jobs=jobs, on_part=Progress(len(seeds)).add)
    seconds = time.perf_counter() - began
    cores = jobs or os.cpu_count() or 1
    for kind in KINDS:
        print(f"{kind:<20} applied {total.applied[kind]:>8} times")
    for name, median in total.medians().items():
        print(f"median {name:<17} {median:g}")
    operations = sum(total.operations)
    print(
        f"{len(seeds) / seconds / cores:.1f} histories and {operations / seconds / cores:.0f} "
        f"store operations per second and core, {total.acquisitions} acquisitions, "
        f"{seconds:.0f} s on {cores} cores"
    )
    for failure in total.failures:
        print(failure)
    short = total.shortcomings() if scenario is None and len(seeds) >= ENOUGH else []
    for shortcoming in short:
        print(shortcoming)
    print(
        f"simulate: {len(seeds)} histories, {operations} store operations, {len(total.failures)} violations "
        f"(seeds {seeds[0]}..{seeds[-1]})"
    )
    return 1 if total.failures or short else 0


if __name__ == "__main__":
    sys.exit(main())
