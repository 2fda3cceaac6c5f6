"""Draws what the scenarios of the simulator have in common: settings, stores, wall clocks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from asynclock.settings import LeaseSettings
from asynclock.testing._store import StoreProfile

if TYPE_CHECKING:
    from random import Random

SKEW: Final = 2.0
"""S of the simulated clients; the nodes of a store differ by no more."""
MINUTE: Final = 60.0
HOUR: Final = 3600.0


def settings(
    rng: Random, clients: int, *, validity: float = 10.0, margin: float | None = None
) -> tuple[LeaseSettings, ...]:
    """Draw the settings of all clients, the same for each."""
    poll = rng.choice((0.1, 0.15, 0.2)) * validity
    each = LeaseSettings(
        validity=validity, safety_margin=margin, max_clock_skew=SKEW, poll_interval=min(5.0, poll)
    )
    return (each,) * clients


def nodes(rng: Random) -> tuple[float, ...]:
    """Nodes that differ from each other and from true time by at most S."""
    lowest = -rng.random() * SKEW
    return tuple(lowest + rng.random() * SKEW for _ in range(rng.randint(1, 4)))


def store(rng: Random, **more: object) -> StoreProfile:
    """Draw a store; ``more`` is what the scenario says of it."""
    profile: dict[str, object] = {
        "nodes": nodes(rng),
        "resolution": rng.choice((0.0, 1.0)),
        "versions": rng.choice(("content", "generation")),
    }
    return StoreProfile(**{**profile, **more})  # type: ignore[arg-type]


def walls(rng: Random, clients: int, most: float = SKEW / 2) -> tuple[float, ...]:
    """Draw the seconds by which each wall clock is ahead, ``most`` either way."""
    return tuple(rng.uniform(-most, most) for _ in range(clients))


def agreeing_walls(rng: Random, clients: int, nodes: tuple[float, ...]) -> list[float]:
    """Draw the seconds by which each wall clock is ahead, within S of every one of ``nodes``."""
    return [rng.uniform(max(nodes) - SKEW, min(nodes) + SKEW) for _ in range(clients)]
