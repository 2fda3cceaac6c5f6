"""How many histories and store operations does the simulator get through, per second and core?"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from benchmarks.measure import Line
from tests.laboratory.scenarios import SCENARIOS
from tests.laboratory.simulate import run_seeds

if TYPE_CHECKING:
    from collections.abc import Iterator

ROUNDS: Final = 3
SEEDS: Final = range(4 * len(SCENARIOS))
CORE_SECONDS: Final = 2 * 5 * 60
"""What a test run has for its histories: five minutes of two cores."""
HISTORIES: Final = 25_000
OPERATIONS: Final = 5_000_000


def lines() -> Iterator[Line]:
    """Rates of the same histories, every scenario in turn, in this process."""
    histories, operations = [], []
    for _ in range(ROUNDS + 1):
        began = time.process_time()  # of this core: others may be busy with something else
        summary = run_seeds(SEEDS)
        seconds = time.process_time() - began
        histories.append(len(SEEDS) / seconds)
        operations.append(sum(summary.operations) / seconds)
    for name, samples, target in (
        ("histories", histories[1:], HISTORIES / CORE_SECONDS),  # the first round warms up
        ("store operations", operations[1:], OPERATIONS / CORE_SECONDS),
    ):
        yield Line(
            name=f"simulated {name} per second and core",
            unit="1/s",
            samples=samples,
            target=round(target, 1),
            bound="least",
        )
