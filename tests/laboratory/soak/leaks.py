"""What grows without an end, judged by samples: no processes, no files, no clock.

In a run of minutes a process warms up for most of its life: classes are loaded, pools fill, a heap grows to
its limit. A slope over such samples says nothing. So threads, descriptors and sockets are counted at states
of rest, when all that was delivered is committed and nothing more comes: what is there then and was not
there at the rest before is kept by somebody. What leaks by a piece of work rises from each rest to the next,
in step with the work; a pool that fills does not, and the first two minutes of a process are not judged.

In a run of hours slopes decide as well: of the smallest value in each minute, which is a state of rest
without a pause of the run, by least squares and with Student's interval. A leak is a slope whose whole
interval lies above the bound, after the warm-up. The memory of a process is judged in this way alone, and so
is the pace of a stream: what a commit, a row and the wait for the commit lock take. The slopes of a shorter
life are shown and not judged.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

COUNTS: Final = ("threads", "descriptors", "sockets", "lock_objects", "temporary")
RESTS: Final = 3
"""Fewest states of rest that are judged."""
YOUNG_SECONDS: Final = 120.0
"""So long the pools of a process fill."""
LEAK_AT_REST: Final = 0.25
"""Things kept for each commit of the table, above which a process leaks."""
FEWEST: Final = 6
"""Things kept in all, below which a process does not leak."""
WARM_UP_SECONDS: Final = 600.0
WINDOW_SECONDS: Final = 60.0
FEWEST_WINDOWS: Final = 20
LONG_SECONDS: Final = WARM_UP_SECONDS + FEWEST_WINDOWS * WINDOW_SECONDS
"""A shorter life does not tell a leak from a warm-up."""
SHORT_WINDOW_SECONDS: Final = 15.0
_FEWEST_POINTS: Final = 5
BOUNDS: Final[Mapping[str, float]] = {
    "threads": 30.0,
    "descriptors": 30.0,
    "sockets": 30.0,
    "rss": 100e6,
    "lock_objects": 1.0,
    "log_files": 60.0,
    "timeline": 60.0,
    "temporary": 30.0,
}
"""Most that a measure may rise in an hour: things, and bytes for ``rss``."""
PACES: Final = ("commit_seconds", "row_seconds", "lock_wait_seconds")
SLOWER: Final = 0.05
"""Share of itself by which a pace may rise in an hour: some of many slopes of mere noise lie above zero."""
# Two-sided 95 % of Student's distribution by degrees of freedom; between two of them the smaller one counts.
_STUDENT: Final = {1: 12.71, 2: 4.31, 3: 3.19, 4: 2.78, 5: 2.58, 6: 2.45, 7: 2.37, 8: 2.31, 9: 2.27, 10: 2.23,
                   12: 2.18, 15: 2.14, 20: 2.09, 30: 2.05, 60: 2.01, 120: 1.99}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One look at a process or at a table.

    Attributes:
        who: The process, by name and number, or the table.
        seconds: Time since the begin of the run.
        counts: The measures by their names.
        rest: Number of the state of rest; None: at work.
        work: Commits of the table so far.
    """

    who: str
    seconds: float
    counts: Mapping[str, float]
    rest: int | None = None
    work: int = 0


@dataclass(frozen=True, kw_only=True)
class Trend:
    """A slope by least squares.

    Attributes:
        slope: What one unit of the first coordinate adds to the second.
        low: The lower end of its interval, with 95 % confidence.
        high: The upper end.
    """

    slope: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Slope:
    """How much a measure rises in an hour.

    Attributes:
        who: The process or the table.
        name: The measure.
        an_hour: What an hour adds to it.
        judged: Whether the life was long enough to tell a leak from a warm-up.
        bound: Most that it may rise in an hour.
    """

    who: str
    name: str
    an_hour: Trend
    judged: bool
    bound: float

    def __str__(self) -> str:
        found = self.an_hour
        return (
            f"{self.who}: {self.name} rise by {found.slope:.4g} an hour ({found.low:.4g} to {found.high:.4g})"
        )


def trend(points: Sequence[tuple[float, float]]) -> Trend:
    """Return the slope through at least three points, and its confidence."""
    xs, ys = zip(*points, strict=True)
    slope, offset = statistics.linear_regression(xs, ys)
    left = sum((y - offset - slope * x) ** 2 for x, y in points)
    mean = statistics.fmean(xs)
    error = math.sqrt(left / (len(points) - 2) / sum((x - mean) ** 2 for x in xs))
    width = error * _STUDENT[max(each for each in _STUDENT if each <= len(points) - 2)]
    return Trend(slope=slope, low=slope - width, high=slope + width)


def leaks(samples: Iterable[Sample]) -> list[str]:
    """Return a sentence for each measure of each process and table that grows without an end."""
    taken = list(samples)
    kept = [sentence for who, own in _by_who(taken) for sentence in _kept_at_rest(who, own)]
    rising = [
        f"{slope}, more than {slope.bound:.4g}"
        for slope in slopes(taken)
        if slope.judged and slope.an_hour.low > slope.bound
    ]
    return [*kept, *rising]


def slopes(samples: Iterable[Sample]) -> list[Slope]:
    """Return the slope of each measure of each process and table that lived long enough to have one."""
    return [slope for who, own in _by_who(samples) for slope in _slopes(who, own)]


def watched(samples: Iterable[Sample]) -> list[str]:
    """Return a line for each process and table: the measures whose slopes are judged, shown or not there."""
    lines = []
    for who, own in _by_who(samples):
        found = list(_slopes(who, own))
        names = ", ".join(slope.name for slope in found) or "nothing, it was not looked at often enough"
        judged = found and found[0].judged
        lived = (own[-1].seconds - own[0].seconds) / 60
        lines.append(
            f"{who}, {lived:.0f} min: {'judged' if judged else 'shown, too short to judge'}: {names}"
        )
    return lines


def _by_who(samples: Iterable[Sample]) -> list[tuple[str, list[Sample]]]:
    found: dict[str, list[Sample]] = defaultdict(list)
    for sample in samples:
        found[sample.who].append(sample)
    return sorted(found.items())


def _kept_at_rest(who: str, samples: Sequence[Sample]) -> Iterable[str]:
    old = samples[0].seconds + YOUNG_SECONDS
    rests = [sample for sample in samples if sample.rest is not None and sample.seconds >= old]
    if len(rests) < RESTS:
        return
    work = rests[-1].work - rests[0].work
    for name in COUNTS:
        counts = [sample.counts[name] for sample in rests if name in sample.counts]
        if len(counts) < RESTS or not all(before < after for before, after in pairwise(counts)):
            continue
        kept = counts[-1] - counts[0]
        if kept > max(FEWEST, LEAK_AT_REST * work):
            yield f"{who}: {name} at rest rise with every rest, {counts}, over {work} commits"


def _slopes(who: str, samples: Sequence[Sample]) -> Iterable[Slope]:
    first, last = samples[0].seconds, samples[-1].seconds
    judged = last - first >= LONG_SECONDS
    begin, width = (
        (first + WARM_UP_SECONDS, WINDOW_SECONDS)
        if judged
        else (first + (last - first) / 3, SHORT_WINDOW_SECONDS)
    )
    for name in (*BOUNDS, *PACES):
        smallest: dict[int, float] = {}
        for sample in samples:
            if sample.seconds >= begin and name in sample.counts:
                window = int(sample.seconds // width)
                smallest[window] = min(sample.counts[name], smallest.get(window, math.inf))
        if len(smallest) >= _FEWEST_POINTS:
            points = [(window * width / 3600, value) for window, value in smallest.items()]
            bound = BOUNDS[name] if name in BOUNDS else SLOWER * statistics.fmean(smallest.values())
            yield Slope(who=who, name=name, an_hour=trend(points), judged=judged, bound=bound)
