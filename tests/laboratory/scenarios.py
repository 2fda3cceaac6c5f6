"""The scenarios of the simulator: what takes part, and what goes wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from asynclock.settings import LeaseSettings
from asynclock.testing._faulty import Fault
from tests.laboratory import draw
from tests.laboratory.draw import HOUR, MINUTE, SKEW
from tests.laboratory.edge_scenarios import EDGE_SCENARIOS
from tests.laboratory.hudi_scenarios import HUDI_SCENARIOS
from tests.laboratory.plan import Plan
from tests.laboratory.shared import SHARED_SCENARIOS

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random


def contention(rng: Random) -> Plan:
    """Several clients want one lock; little goes wrong."""
    clients = rng.choice((3, 3, 3, 4, 5))
    return Plan(
        settings=draw.settings(rng, clients),
        store=draw.store(rng),
        wall_errors=draw.walls(rng, clients),
        holds=(0.02, 0.5),
        pauses=0.05,
        faults={Fault.SLOW: 0.01},
    )


def crash_storm(rng: Random) -> Plan:
    """Machines are killed at any await and come back."""
    clients = rng.choice((3, 3, 4))
    return Plan(
        settings=draw.settings(rng, clients),
        store=draw.store(rng),
        wall_errors=draw.walls(rng, clients),
        crashes=0.3,
        holds=(0.1, 1.0),
        faults={Fault.REPLY_LOST: 0.02},
    )


def zombie_writes(rng: Random) -> Plan:
    """Answers are lost, writes land late, twice, or are refused for having been written."""
    clients = rng.choice((3, 3, 4))
    return Plan(
        settings=draw.settings(rng, clients),
        store=draw.store(rng, slow=0.03, slow_by=8.0),
        wall_errors=draw.walls(rng, clients),
        faults={
            Fault.REPLY_LOST: 0.05,
            Fault.REQUEST_LOST: 0.03,
            Fault.LATE: 0.06,
            Fault.DUPLICATE: 0.05,
            Fault.OWN_412: 0.05,
            Fault.CONFLICT: 0.03,
            Fault.SLOW: 0.03,
        },
        delay=(0.05, rng.choice((1.0, 6.0, 15.0))),
        pauses=0.1,
        cancels=0.3,
    )


def clock_chaos(rng: Random) -> Plan:
    """Wall clocks off by hours, stepping, drifting; machines paused, stalled, suspended."""
    clients = rng.choice((3, 3, 4))
    return Plan(
        settings=draw.settings(rng, clients),
        store=draw.store(rng),
        wall_errors=tuple(rng.choice((0.0, 1.0, -MINUTE, HOUR)) * rng.random() for _ in range(clients)),
        drifts=tuple(rng.uniform(-0.05, 0.05) for _ in range(clients)),
        pauses=0.2,
        stalls=0.2,
        suspends=0.1,
        steps=0.6,
        step_by=rng.choice((5.0, MINUTE, HOUR)),
        faults={Fault.REPLY_LOST: 0.01},
    )


def wrong_store_times(rng: Random) -> Plan:
    """Dates off by a minute, a node constantly off, no Dates, no ``last_modified``, a wrong wall clock.

    Of these a wrong wall clock may come with a proxy that answers with Dates of its own.
    """
    clients = rng.choice((3, 3, 4))
    kind = rng.choice(("few", "few", "node", "none", "unmodified", "wall", "proxy"))
    nodes = draw.nodes(rng)
    walls = list(draw.walls(rng, clients))
    if kind == "node":
        # Beside a node that is wrong for good, a holder's wall clock must be right.
        walls = draw.agreeing_walls(rng, clients, nodes)
        nodes = (*(nodes + nodes)[:3], rng.choice((-MINUTE, MINUTE)))
    if kind in {"wall", "proxy"}:
        walls[0] = rng.choice((-1, 1)) * rng.choice((1.5 * MINUTE, HOUR))
    faults = {Fault.STALE_DATE: 0.01, Fault.NO_DATE: 0.02, Fault.CLOCK_AHEAD: 0.01, Fault.REPLY_LOST: 0.02}
    if kind == "none":
        faults = {Fault.REPLY_LOST: 0.02}
    if kind == "proxy":
        faults[Fault.CLOCK_AHEAD] = 0.4
    return Plan(
        settings=draw.settings(rng, clients),
        store=draw.store(
            rng,
            nodes=nodes,
            dates=kind != "none",
            last_modified=kind not in {"none", "unmodified"},
            wrong_dates=0.02 if kind in {"few", "wall", "unmodified"} else 0.0,
        ),
        wall_errors=tuple(walls),
        faults=faults,
        date_error=(MINUTE, MINUTE) if kind == "proxy" else (MINUTE / 2, MINUTE),
        crashes=0.1,
        pauses=0.1,
    )


def deletion(rng: Random) -> Plan:
    """An operator deletes the object; somebody reads half of it."""
    clients = rng.choice((3, 3, 4))
    return Plan(
        settings=draw.settings(rng, clients),
        store=draw.store(rng),
        wall_errors=draw.walls(rng, clients),
        deletions=rng.randint(1, 2),
        lifetimes=6.0,
        faults={Fault.CORRUPT: 0.01, Fault.REPLY_LOST: 0.01, Fault.SLOW: 0.01},
    )


def broken(rng: Random) -> Plan:
    """An operator breaks a live lock."""
    clients = 3
    return Plan(
        settings=draw.settings(rng, clients),
        store=draw.store(rng),
        wall_errors=draw.walls(rng, clients),
        users=rng.choice((1, 1, 2)),
        breaks=rng.randint(1, 3),
        holds=(0.2, 1.5),
        fenced=0.8,
        faults={Fault.REPLY_LOST: 0.01},
    )


def partition(rng: Random) -> Plan:
    """The network reaches some machines and not others."""
    clients = rng.choice((3, 3, 3, 4, 5))
    return Plan(
        settings=draw.settings(rng, clients),
        store=draw.store(rng),
        wall_errors=draw.walls(rng, clients),
        partitions=0.5,
        deaf=True,
        holds=(0.2, 1.5),
        faults={Fault.SLOW: 0.01},
    )


def refused_writes(rng: Random) -> Plan:
    """The store answers reads and refuses most writes, for so long that leases run out."""
    clients = rng.choice((3, 3, 4))
    return Plan(
        settings=draw.settings(rng, clients),
        store=draw.store(rng),
        wall_errors=draw.walls(rng, clients),
        holds=(1.0, 2.5),
        cancels=0.0,
        faults={Fault.CONFLICT: rng.choice((0.6, 0.8, 0.9)), Fault.BLOCKED: 0.02},
    )


def slow_answers(rng: Random) -> Plan:
    """Answers come late, then none at all; nodes differ by S, margins are thin."""
    clients = rng.choice((3, 3, 4))
    validity = 10.0
    each = LeaseSettings(
        validity=validity, safety_margin=validity / 50, max_clock_skew=SKEW, poll_interval=0.04 * validity
    )
    return Plan(
        settings=(each,) * clients,
        store=draw.store(rng, nodes=(-SKEW / 2, -SKEW / 2, SKEW / 2), resolution=0.0),
        wall_errors=draw.walls(rng, clients),
        holds=(1.5, 3.0),
        fenced=1.0,
        partitions=0.2,
        aim=1.0,
        faults={Fault.SLOW: 0.4, Fault.REPLY_LOST: 0.02},
        delay=(1.0, 1.8),
    )


def throttling_storm(rng: Random) -> Plan:
    """429, 503 and 409 for a good part of all requests."""
    clients = rng.choice((3, 3, 4))
    share = rng.choice((0.05, 0.15, 0.3))
    return Plan(
        settings=draw.settings(rng, clients),
        store=draw.store(rng),
        wall_errors=draw.walls(rng, clients),
        faults={Fault.THROTTLED: share, Fault.UNAVAILABLE: share, Fault.CONFLICT: share / 2},
        lifetimes=6.0,
    )


def paced(rng: Random) -> Plan:
    """A store that takes a write of an object a second; holds, renewals and hand-offs wait for it."""
    clients = rng.choice((3, 3, 4))
    return Plan(
        # Renewed twice as often as the store takes it, so that things happen while a write waits.
        settings=draw.settings(rng, clients, validity=5.0),
        store=draw.store(rng, versions="generation", write_interval=1.0),
        wall_errors=draw.walls(rng, clients),
        users=2,
        holds=(0.0, 0.5),
        idles=(0.0, 0.2),
        lifetimes=7.0,
        cancels=0.3,
        crashes=0.05,
        pauses=0.3,
        steps=0.1,
        step_by=10.0,
        aim=0.5,
        faults={Fault.REPLY_LOST: 0.02, Fault.CONFLICT: 0.02},
    )


def hand_off(rng: Random) -> Plan:
    """Several coroutines of each client wait in line; holds are short."""
    return Plan(
        settings=draw.settings(rng, 3),
        store=draw.store(rng, slow=0.02),
        wall_errors=draw.walls(rng, 3),
        users=3,
        holds=(0.0, 0.15),
        idles=(0.0, 0.3),
        lifetimes=5.0,
        cancels=0.3,
        pauses=0.1,
        faults={Fault.REPLY_LOST: 0.03, Fault.LATE: 0.02, Fault.OWN_412: 0.02, Fault.SLOW: 0.02},
    )


def mixed_settings(rng: Random) -> Plan:
    """Clients with different validity, margin, renewal and polling."""
    clients = rng.choice((3, 3, 4))
    settings = tuple(
        LeaseSettings(
            validity=validity,
            renew_interval=validity / rng.choice((10, 15)),
            safety_margin=validity / rng.choice((5, 10, 20)),
            max_clock_skew=SKEW,
            poll_interval=rng.choice((0.4, 0.8, 1.5)),
        )
        for validity in (10.0, 5.0, *rng.choices((5.0, 10.0, 20.0), k=clients - 2))
    )
    return Plan(
        settings=settings,
        lifetimes=4.0,
        store=draw.store(rng),
        wall_errors=draw.walls(rng, clients),
        crashes=0.05,
        pauses=0.4,
        partitions=0.1,
        aim=1.0,
        faults={Fault.REPLY_LOST: 0.02, Fault.LATE: 0.02},
    )


def truncated_dates(rng: Random) -> Plan:
    """Dates cut to the second on nodes that differ as much as they may; short leases."""
    clients = rng.choice((3, 3, 4))
    lowest = -rng.random() * SKEW
    return Plan(
        settings=draw.settings(rng, clients, validity=5.0),
        store=draw.store(rng, nodes=(lowest, lowest + SKEW), resolution=1.0),
        wall_errors=draw.walls(rng, clients, SKEW),
        lifetimes=7.0,
        crashes=0.1,
        pauses=0.15,
        faults={Fault.REPLY_LOST: 0.02, Fault.SLOW: 0.02},
    )


def observation(rng: Random) -> Plan:
    """A store that tells no time at all, slow answers, margins as thin as they may be."""
    validity = 10.0
    thin = LeaseSettings(
        validity=validity, safety_margin=validity / 20, max_clock_skew=SKEW, poll_interval=0.1 * validity
    )
    wide = LeaseSettings(validity=2 * validity, max_clock_skew=SKEW, poll_interval=0.1 * validity)
    clients = rng.choice((3, 3, 4))
    return Plan(
        settings=tuple(rng.choice((thin, thin, wide)) for _ in range(clients)),
        store=draw.store(rng, dates=False, last_modified=False, slow=0.1, slow_by=1.9),
        wall_errors=draw.walls(rng, clients, HOUR),
        drifts=(0.0,) * clients,
        pauses=0.3,
        crashes=0.1,
        partitions=0.1,
    )


def worst_clocks(rng: Random) -> Plan:
    """Machines whose clocks run apart by nearly M / L, on nodes that differ by S, cut to the second."""
    lowest = -rng.random() * SKEW
    drifts = tuple(rng.choice((-1, 1)) * rng.uniform(0.06, 0.09) for _ in range(3))
    return Plan(
        settings=draw.settings(rng, 3),
        store=draw.store(rng, nodes=(lowest, lowest + SKEW), resolution=1.0, slow=0.1, slow_by=1.9),
        drifts=drifts,
        # Within S + R of the store for as long as can be, since drift moves it all the time.
        wall_errors=tuple(-drift * 25 for drift in drifts),
        pauses=0.4,
        partitions=0.2,
    )


def turns(rng: Random) -> Plan:
    """Two machines take the lock again and again, each with somebody always in line."""
    each = LeaseSettings(validity=10.0, max_clock_skew=SKEW, poll_interval=0.5)
    return Plan(
        settings=(each,) * 2,
        store=draw.store(rng, latency=(0.002, 0.01), slow=0.0),
        wall_errors=draw.walls(rng, 2),
        users=2,
        holds=(0.03, 0.1),
        idles=(0.0, 0.005),
        impatience=0.0,
        cancels=0.0,
        fenced=0.0,
        # A run and a hold, and as much again for a look that failed while the other was away.
        longest_wait=2.5,
        lifetimes=6.0,
        faults={Fault.REPLY_LOST: 0.01, Fault.CONFLICT: 0.01},
    )


SCENARIOS: Final[dict[str, Callable[[Random], Plan]]] = {
    "contention": contention,
    "crash-storm": crash_storm,
    "zombie-writes": zombie_writes,
    "clock-chaos": clock_chaos,
    "wrong-store-times": wrong_store_times,
    "deletion": deletion,
    "broken": broken,
    "partition": partition,
    "refused-writes": refused_writes,
    "slow-answers": slow_answers,
    "throttling-storm": throttling_storm,
    "hand-off": hand_off,
    "paced": paced,
    "mixed-settings": mixed_settings,
    "truncated-dates": truncated_dates,
    "observation": observation,
    "worst-clocks": worst_clocks,
    "turns": turns,
    **HUDI_SCENARIOS,
    **EDGE_SCENARIOS,
    **SHARED_SCENARIOS,
}
"""What takes part in a simulated history, and what goes wrong in it."""
RARELY: Final = {
    "slow-waiter": 1,
    "slot-turns": 1,
    "hudi-short": 2,
    "shared-fence": 2,
    "together": 2,
    "once": 2,
}
"""Those that come less often than three times in a cycle: their histories are long, or soon tell."""
CYCLE: Final = [name for turn in range(3) for name in SCENARIOS if turn < RARELY.get(name, 3)]
"""The scenarios of seeds in a row."""
