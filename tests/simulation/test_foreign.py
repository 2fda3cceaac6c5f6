"""The library under an explorer of schedules that nobody here wrote."""

from __future__ import annotations

import detangle
import pytest

from tests.laboratory.foreign import exhaust, wander


def test_no_schedule_with_two_deviations_breaks_the_lock() -> None:
    """Three clients count under one lock, in every order that two deviations from asyncio's can make."""
    stats = exhaust(2)

    assert stats.exhausted
    assert stats.distinct_schedules > 100


def test_no_random_schedule_breaks_the_lock() -> None:
    """Timers are late, and one client gives up at any await."""
    assert wander(300, seed=0).runs == 300


def test_a_store_that_ignores_conditions_is_found() -> None:
    """The explorer is not blind: two clients believe at once."""
    with pytest.raises(detangle.BugFound, match="believe"):
        exhaust(0, keeps_conditions=False)
