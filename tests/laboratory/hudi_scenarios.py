"""The scenarios of the simulator in which Hudi's own Java writers want the same lock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from asynclock.testing._faulty import Fault
from tests.laboratory import draw
from tests.laboratory.draw import HOUR, MINUTE, SKEW
from tests.laboratory.plan import Plan

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random


def hudi_peer(rng: Random) -> Plan:
    """Hudi's own Java writers want the same lock."""
    clients = rng.choice((2, 2, 3))
    alone = rng.random() < 0.5
    return Plan(
        # Java's clock may be ahead by M + 0.5: just that.
        settings=draw.settings(rng, clients, margin=SKEW - 0.5),
        store=draw.store(rng),
        wall_errors=draw.walls(rng, clients),
        hudi_peers=1 if alone else 2,
        # Two Java writers must agree within Hudi's 500 ms; one, with the store within S.
        hudi_clock=(-SKEW, SKEW) if alone else (-0.25, 0.25),
        hudi_validity=10.0 if alone else rng.choice((10.0, 20.0)),
        hudi_pauses=0.2,
        holds=(0.02, 0.6),
        lifetimes=6.0,
        crashes=0.05,
        pauses=0.1,
        partitions=0.4,
        faults={Fault.REPLY_LOST: 0.02, Fault.LATE: 0.01},
    )


def hudi_clocks(rng: Random) -> Plan:
    """A Java writer beside clients whose wall clocks step and answers whose Dates are wrong."""
    clients = rng.choice((2, 3))
    walls = list(draw.walls(rng, clients))
    if rng.random() < 0.3:
        walls[0] = rng.choice((-1, 1)) * rng.choice((1.5 * MINUTE, HOUR))
    return Plan(
        settings=draw.settings(rng, clients),
        store=draw.store(rng, wrong_dates=rng.choice((0.0, 0.02))),
        wall_errors=tuple(walls),
        hudi_peers=1,
        hudi_clock=(-SKEW / 2, SKEW / 2),
        hudi_validity=10.0,
        hudi_pauses=0.1,
        holds=(0.02, 1.0),
        lifetimes=6.0,
        steps=0.1,
        step_by=HOUR,
        partitions=0.2,
    )


def hudi_turns(rng: Random) -> Plan:
    """Java writers and clients take turns within seconds, on nodes that differ as much as they may."""
    lowest = -rng.random() * SKEW
    return Plan(
        settings=draw.settings(rng, 2),
        store=draw.store(rng, nodes=(lowest, lowest + SKEW)),
        wall_errors=draw.walls(rng, 2),
        hudi_peers=1,
        hudi_holds=(0.0, 0.02),
        hudi_idles=(0.0, 0.1),
        holds=(0.0, 0.02),
        idles=(0.0, 0.1),
        impatience=0.5,
        cancels=0.3,
        fenced=0.0,
    )


def hudi_ahead(rng: Random) -> Plan:
    """Java writers whose clocks are ahead by M + 0.5, clients cut off, a node behind by S."""
    clients = rng.choice((2, 2, 3))
    return Plan(
        settings=draw.settings(rng, clients, margin=SKEW - 0.5),
        store=draw.store(rng, nodes=(-rng.uniform(0.9, 1.0) * SKEW,), resolution=1.0, slow=0.1, slow_by=1.5),
        wall_errors=tuple(rng.uniform(-SKEW / 2, 0.0) for _ in range(clients)),
        hudi_peers=2,
        hudi_clock=(0.9 * SKEW, SKEW),
        holds=(0.5, 2.0),
        hudi_holds=(0.02, 0.3),
        lifetimes=6.0,
        partitions=0.3,
        pauses=0.1,
        aim=1.0,
    )


def hudi_behind(rng: Random) -> Plan:
    """A Java writer whose clock is behind and whose process stops, on a node that is ahead."""
    clients = rng.choice((2, 2, 3))
    return Plan(
        settings=draw.settings(rng, clients),
        store=draw.store(rng, nodes=(rng.uniform(0.75, 1.0) * SKEW,)),
        wall_errors=tuple(rng.uniform(0.0, SKEW / 2) for _ in range(clients)),
        hudi_peers=1,
        hudi_clock=(-SKEW, -0.75 * SKEW),
        hudi_pauses=0.6,
        hudi_holds=(0.5, 2.0),
        hudi_idles=(0.0, 0.1),
        holds=(0.02, 0.3),
        lifetimes=6.0,
    )


HUDI_SCENARIOS: Final[dict[str, Callable[[Random], Plan]]] = {
    "hudi-peer": hudi_peer,
    "hudi-clocks": hudi_clocks,
    "hudi-turns": hudi_turns,
    "hudi-ahead": hudi_ahead,
    "hudi-behind": hudi_behind,
}
"""What takes part in a history beside Java writers, and what goes wrong in it."""
