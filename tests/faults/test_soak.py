"""Hundreds of answers cut under 32 contended locks: no false loss, no second holder, no leak."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.laboratory.soak_cut import LOCKS, soak

if TYPE_CHECKING:
    from tests.laboratory.servers import Server

CUTS = 300


async def test_cut_answers_cost_nothing(cloud: Server) -> None:
    """300 writes are applied and their answers lost, as in ``make soak-cut``."""
    tally = await soak(cloud, cuts=CUTS)

    assert tally.cuts >= CUTS
    assert tally.holds > LOCKS
    assert (tally.lost, tally.doubled, tally.leaks) == (0, 0, 0)
