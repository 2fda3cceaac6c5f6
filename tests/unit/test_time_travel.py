"""Which time Hudi is asked for, to show what was complete at an instant; Hudi's rule is modelled here."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, cast

import pytest

from asynclock.errors import ConfigError
from asynclock.spark.hudi.instants import DELTA_COMMIT, Instant
from asynclock.spark.hudi.time_travel import instant_time, request_bound

if TYPE_CHECKING:
    from collections.abc import Iterator

    from asynclock.spark.hudi.timeline import Timeline

START = 20261122204500000
LENGTH = 30


def at(moment: int) -> str:
    """An instant time, that many milliseconds after the start."""
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
    """As of the bound, Hudi shows just the commits of that time; without plans every bound is found."""
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


class Table:
    """A timeline in UTC or in local times, with a few completed instants."""

    def __init__(self, *completed: str, utc: bool = True) -> None:
        self._completed = completed
        self._utc = utc

    def is_utc(self) -> bool:
        """As the timeline says it."""
        return self._utc

    def instants(self) -> list[Instant]:
        """One commit for each completion."""
        return [
            Instant(requested=one, completed=one, action=DELTA_COMMIT, state="COMPLETED", utc=self._utc)
            for one in self._completed
        ]


def taken(text: str, *completed: str, utc: bool = True) -> str:
    """The digits for which Hudi is asked."""
    return instant_time(text, cast("Timeline", Table(*completed, utc=utc)))


@pytest.fixture
def in_berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process whose people are in Berlin."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Europe/Berlin")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("in_berlin")
@pytest.mark.parametrize(
    "text",
    [
        "20261122194539123", "2026-11-22T20:45:39.123", "2026-11-22 20:45:39.123", "2026-11-22T19:45:39.123Z",
        "2026-11-22T14:45:39.123-05:00",
    ],
)  # fmt: skip
def test_an_instant_may_be_written_for_people(text: str) -> None:
    """With digits only, as the timeline has it, or as a time: a local one, or one with its offset."""
    assert taken(text) == "20261122194539123"


@pytest.mark.usefixtures("in_berlin")
def test_a_time_of_a_table_in_local_times_is_taken_as_it_stands() -> None:
    """Nobody knows the zone of its drivers, so an offset means nothing there."""
    assert taken("2026-11-22T20:45:39.123", utc=False) == "20261122204539123"
    with pytest.raises(ConfigError, match="is no instant"):
        taken("2026-11-22T20:45:39.123Z", utc=False)


@pytest.mark.usefixtures("in_berlin")
@pytest.mark.parametrize("completed", ["20261025003000000", "20261025013000000"])
def test_of_the_hour_that_comes_twice_the_one_with_an_instant_is_meant(completed: str) -> None:
    """What the timeline prints for an instant finds that instant."""
    (instant,) = cast("list[Instant]", Table(completed).instants())

    assert instant.in_local_time().completed == "20261025023000000"
    assert taken("2026-10-25T02:30:00.000", completed) == completed


@pytest.mark.parametrize("text", ["", "yesterday", "20261122", "20261199204539123", "2026-11-22", "٢" * 17])
def test_other_text_is_no_instant(text: str) -> None:
    """Not even a date, which many instants have."""
    with pytest.raises(ConfigError, match="is no instant"):
        taken(text)
