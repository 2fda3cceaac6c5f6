"""Processes on one folder of locks, killed at any instant."""

from __future__ import annotations

import pytest

from tests.laboratory.soak_kill import HOLDER_SHARE, soak

KILLS = 200


@pytest.mark.timeout(900)
def test_kill_9_at_any_instant() -> None:
    """200 kills, a quarter of them inside a critical section: no two holders, no lock stuck."""
    seen = soak(KILLS)

    assert seen.kills == KILLS
    assert seen.of_holder * HOLDER_SHARE >= KILLS
    assert seen.double_holds == 0
    assert seen.stuck == 0
    assert seen.acquisitions > KILLS
