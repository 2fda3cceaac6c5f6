"""Which time Hudi is asked for, to show what was complete at an instant; Hudi's rule is modelled here."""

from __future__ import annotations

import random

import pytest

from asynclock.errors import ConfigError
from asynclock.spark.hudi.instants import DELTA_COMMIT, Instant
from asynclock.spark.hudi.time_travel import instant_time, request_bound

START = 20261122204500000
LENGTH = 30


def at(moment: int) -> str:
    """An instant time, so many milliseconds after the start."""
    return str(START + moment)


def shown(writes: list[Instant], plans: list[str], time: str) -> set[str] | None:
    """What Hudi merges as of ``time``; None if it refuses.

    It refuses if a write requested by then is pending. It skips what was requested later, and the logs on top
    of a base file that was planned later: those of writes that were completed after the plan.
    """
    if any(one.completed is None and one.requested <= time for one in writes):
        return None
    later = min((plan for plan in plans if plan > time), default="9")
    return {one.requested for one in writes if one.requested <= time and str(one.completed) <= later}


def test_hudi_shows_what_was_complete_or_cannot() -> None:
    """Hudi shows just the commits of then as of the bound; without a compaction, if any time does that."""
    rng = random.Random(16)
    bounds = 0
    for _ in range(2000):
        writes, plans = history(rng)
        for as_of in sorted(one.completed for one in writes if one.completed):
            wanted = {one.requested for one in writes if one.completed and one.completed <= as_of}
            found = request_bound(writes, plans, "", as_of)
            if found is not None:
                bounds += 1
                assert found <= as_of
                assert shown(writes, plans, found) == wanted
            elif not plans:
                times = [time for time in map(at, range(-1, LENGTH)) if time <= as_of]
                assert all(shown(writes, plans, time) != wanted for time in times)
    assert bounds > 1000


def history(rng: random.Random) -> tuple[list[Instant], list[str]]:
    """Some writes that overlap, and the plan of a compaction, or none."""
    ends = {start: start + 2 * rng.randint(0, 8) + 1 for start in rng.sample(range(1, LENGTH, 2), 5)}
    free = [moment for moment in range(LENGTH) if moment not in {*ends, *ends.values()}]
    writes = [
        Instant(
            requested=at(start),
            completed=at(end) if end < LENGTH else None,
            action=DELTA_COMMIT,
            state="COMPLETED" if end < LENGTH else "INFLIGHT",
        )
        for start, end in sorted(ends.items())
    ]
    return writes, [at(moment) for moment in rng.sample(free, rng.randint(0, 1))]


@pytest.mark.parametrize("text", ["20261122204539123", "2026-11-22T20:45:39.123", "2026-11-22 20:45:39.123"])
def test_an_instant_may_be_written_for_people(text: str) -> None:
    """With digits only, or as a time."""
    assert instant_time(text) == "20261122204539123"


@pytest.mark.parametrize("text", ["", "yesterday", "20261122", "20261199204539123", "2026-11-22", "٢" * 17])
def test_other_text_is_no_instant(text: str) -> None:
    """Not even a date, which many instants have."""
    with pytest.raises(ConfigError, match="is no instant"):
        instant_time(text)
