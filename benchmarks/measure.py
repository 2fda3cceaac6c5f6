"""Measuring side by side: every contender in every round, so that the machine's moods hit all alike."""

from __future__ import annotations

import random
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

SCRATCH = Path(__file__).parent / "results"
"""For temporary folders too: a disk, which ``/tmp`` need not be."""
Seconds = float
Samples = dict[str, list[Seconds]]


@dataclass(frozen=True, kw_only=True)
class Line:
    """One result.

    Attributes:
        name: What was measured.
        unit: Of the numbers; ``x`` for a ratio.
        samples: One number a round.
        target: The bound of the median; None: there is none, which counts as met.
        bound: Whether the target is the most or the least.
    """

    name: str
    unit: str
    samples: Sequence[float]
    target: float | None = None
    bound: Literal["most", "least"] = "most"

    @property
    def median(self) -> float:
        """The middle of the samples."""
        return statistics.median(self.samples)

    @property
    def quartiles(self) -> tuple[float, float]:
        """The bounds of the middle half of the samples."""
        if len(self.samples) == 1:
            return self.samples[0], self.samples[0]
        first, _, third = statistics.quantiles(self.samples, n=4, method="inclusive")
        return first, third

    @property
    def met(self) -> bool:
        """Whether the median keeps to the target."""
        if self.target is None:
            return True
        return self.median <= self.target if self.bound == "most" else self.median >= self.target

    def __str__(self) -> str:
        low, high = self.quartiles
        shown = (
            f"{self.name}: {self.median:.4g} {self.unit} (IQR {low:.4g} to {high:.4g}, n={len(self.samples)})"
        )
        if self.target is None:
            return shown
        sign = "<=" if self.bound == "most" else ">="
        return f"{shown}, target {sign} {self.target:g}: {'met' if self.met else 'NOT MET'}"


def interleaved(
    contenders: Mapping[str, Callable[[], Seconds]], *, rounds: int, warm_up: bool = True
) -> Samples:
    """Call each contender once per round, in a new order each time, so that none always follows the same one.

    Args:
        contenders: By name; each returns seconds per operation.
        rounds: How often.
        warm_up: Whether one more round comes before, which does not count.
    """
    names = list(contenders)
    samples: Samples = {name: [] for name in names}
    rng = random.Random(1)
    for number in range(rounds + warm_up):
        for name in rng.sample(names, len(names)):
            seconds = contenders[name]()
            if number >= warm_up:
                samples[name].append(seconds)
    return samples


def microseconds(name: str, samples: Sequence[Seconds]) -> Line:
    """A line of absolute times."""
    return Line(name=name, unit="us", samples=[each * 1e6 for each in samples])


def ratio(
    name: str,
    above: Sequence[Seconds],
    below: Sequence[Seconds],
    *,
    target: float | None = None,
    bound: Literal["most", "least"] = "most",
) -> Line:
    """A line of ratios, round by round."""
    samples = [one / other for one, other in zip(above, below, strict=True)]
    return Line(name=name, unit="x", samples=samples, target=target, bound=bound)
