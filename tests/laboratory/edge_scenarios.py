"""The scenarios of the simulator at the edges: endings, settings far apart, answers that tell little."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from asynclock.settings import MAX_VALIDITY, MIN_VALIDITY, LeaseSettings
from asynclock.testing._faulty import Fault
from tests.laboratory import draw
from tests.laboratory.draw import HOUR, MINUTE, SKEW
from tests.laboratory.plan import Plan

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

DAY: Final = 86_400.0


def endings(rng: Random) -> Plan:
    """Signals, forks, exits and closed clients, while answers are slow or do not come."""
    clients = rng.choice((2, 3))
    return Plan(
        settings=draw.settings(rng, clients),
        store=draw.store(rng),
        wall_errors=draw.walls(rng, clients),
        users=rng.choice((1, 2)),
        signals=0.1,
        forks=0.1,
        exits=0.05,
        closes=0.15,
        aim=0.7,
        partitions=rng.choice((0.0, 0.2)),
        cancels=0.2,
        holds=(0.05, 1.0),
        faults={Fault.SLOW: 0.05, Fault.REPLY_LOST: 0.03, Fault.LATE: 0.02},
        delay=(0.05, 2.5),
    )


def leaders(rng: Random) -> Plan:
    """Candidates for a leader, who steps down now and then; they are told who leads."""
    clients = rng.choice((1, 2, 3))
    return Plan(
        settings=draw.settings(rng, clients),
        store=draw.store(rng, slow=0.1, slow_by=2.0),
        wall_errors=draw.walls(rng, clients),
        leads=0.9,
        holds=(0.05, 1.5),
        crashes=0.05,
        pauses=0.1,
        closes=0.05,
        faults={Fault.SLOW: 0.05, Fault.REPLY_LOST: 0.03},
        delay=(0.05, 1.0),
    )


def transfers(rng: Random) -> Plan:
    """Locks pass on by tickets, some of which are used twice, while answers get lost."""
    clients = rng.choice((2, 3))
    return Plan(
        settings=draw.settings(rng, clients),
        store=draw.store(rng, slow=0.03, slow_by=2.0),
        wall_errors=draw.walls(rng, clients),
        users=rng.choice((1, 1, 2)),
        transfers=0.6,
        breaks=rng.choice((0, 0, 1)),
        holds=(0.02, 0.5),
        crashes=0.05,
        pauses=0.1,
        cancels=0.2,
        hudi_peers=rng.choice((0, 0, 0, 1)),
        faults={Fault.SLOW: 0.03, Fault.REPLY_LOST: 0.05, Fault.REQUEST_LOST: 0.02, Fault.OWN_412: 0.02},
        delay=(0.05, 1.0),
    )


def closed_loops(rng: Random) -> Plan:
    """Event loops are closed by force while their coroutines hold the lock; the client lives on."""
    clients = rng.choice((2, 3))
    return Plan(
        settings=draw.settings(rng, clients),
        store=draw.store(rng),
        wall_errors=draw.walls(rng, clients),
        drops=0.3,
        aim=0.7,
        bodies=0.5,
        holds=(0.05, 1.0),
        faults={Fault.SLOW: 0.02, Fault.REPLY_LOST: 0.02},
    )


def hudi_endings(rng: Random) -> Plan:
    """Signals and exits while a client waits for its token behind a Java writer."""
    lowest = -rng.random() * SKEW
    return Plan(
        settings=draw.settings(rng, 2),
        store=draw.store(rng, nodes=(lowest, lowest + SKEW), slow=0.25, slow_by=2.0),
        wall_errors=draw.walls(rng, 2),
        hudi_peers=1,
        hudi_holds=(0.0, 0.05),
        hudi_idles=(0.0, 0.5),
        holds=(0.0, 0.1),
        idles=(0.0, 0.1),
        impatience=0.5,
        lifetimes=7.0,
        signals=1.0,
        exits=0.02,
        closes=0.05,
        cancels=0.2,
        faults={Fault.REQUEST_LOST: 0.05, Fault.LATE: 0.05},
    )


def any_validity(rng: Random) -> Plan:
    """Leases of 0.1 s to 7 days on machines whose wall clocks are right or wrong."""
    clients = 3
    longest = math.exp(rng.uniform(math.log(MIN_VALIDITY), math.log(MAX_VALIDITY)))
    validity = rng.choice((longest, longest, MIN_VALIDITY, MAX_VALIDITY))
    unit = min(validity, 10.0)
    skew = min(rng.choice((SKEW, SKEW, HOUR / 2)), validity / 4) * rng.random()
    settings = tuple(
        LeaseSettings(
            validity=validity,
            max_clock_skew=skew * rng.choice((1.0, 1.5)),
            poll_interval=min(5.0, max(0.02, 0.15 * unit)) * rng.choice((0.5, 1.0)),
        )
        for _ in range(clients)
    )
    lowest = -rng.random() * skew
    walls = list(draw.walls(rng, clients, skew / 2))
    walls[0] += rng.choice((0.0, -1, 1)) * rng.choice((MINUTE, HOUR, 2 * DAY))
    return Plan(
        settings=settings,
        store=draw.store(
            rng,
            nodes=(lowest, lowest + skew),
            resolution=rng.choice((0.0, 1.0)) if validity >= 3 * (1 + 1.5 * skew) else 0.0,
            latency=(0.0005 * unit, 0.005 * unit),
            slow=0.005,
            slow_by=0.1 * unit,
        ),
        wall_errors=tuple(walls),
        unit=unit,
        lifetimes=7.0,
        users=rng.choice((1, 2)),
        # A dead holder of a lease of days is waited for by nobody.
        deaths=0.5 if validity <= MINUTE else 0.0,
        crashes=0.05 if validity <= MINUTE else 0.0,
        faults={Fault.REPLY_LOST: 0.01},
        delay=(0.0, 0.1 * unit),
        # Until three Dates, a second apart, have agreed, a machine whose clock is wrong has none to rely on.
        slack=4.0 if abs(walls[0]) > MINUTE / 2 else 0.0,
    )


def _undated_walls(rng: Random, clients: int) -> tuple[float, ...]:
    walls = list(draw.walls(rng, clients))
    walls[0] += rng.choice((0.0, -1, 1)) * rng.choice((MINUTE, 2 * HOUR, 2 * DAY))
    return tuple(walls)


def undated(rng: Random) -> Plan:
    """Answers with a Date and without, with ``last_modified`` and without, as each one comes."""
    clients = 3
    return Plan(
        settings=draw.settings(rng, clients),
        store=draw.store(rng, undated=rng.choice((0.1, 0.3, 0.6)), unmodified=rng.choice((0.0, 0.3))),
        wall_errors=_undated_walls(rng, clients),
        lifetimes=7.0,
        crashes=0.1,
        pauses=0.1,
        faults={Fault.REPLY_LOST: 0.02},
    )


def hudi_undated(rng: Random) -> Plan:
    """The same beside a Java writer; on some stores no object ever has a ``last_modified``."""
    clients = rng.choice((2, 3))
    always = rng.random() < 0.5
    return Plan(
        settings=draw.settings(rng, clients),
        store=draw.store(
            rng,
            undated=rng.choice((0.0, 0.1, 0.4)),
            unmodified=rng.choice((0.0, 0.3)),
            last_modified=always,
        ),
        wall_errors=_undated_walls(rng, clients),
        hudi_peers=1,
        hudi_holds=(0.02, 0.5),
        hudi_idles=(0.0, 0.3),
        holds=(0.02, 0.5),
        faults={Fault.REPLY_LOST: 0.01},
    )


def hudi_short(rng: Random) -> Plan:
    """Leases as short as they may be, nodes that differ by S; clients die beside a Java writer.

    Half of the leases are too short to get a token behind it and refused then, most of them by little
    more than a round trip.
    """
    skew, resolution = 5 * SKEW, rng.choice((0.0, 0.0, 1.0))
    least = 1.25 if rng.random() < 0.5 else 1.0 + 0.25 * rng.random() ** 3
    validity = least * (skew + resolution)
    each = LeaseSettings(
        validity=validity, safety_margin=validity / 10, max_clock_skew=skew, poll_interval=0.1
    )
    return Plan(
        settings=(each,) * 3,
        store=draw.store(
            rng, nodes=(-skew / 2, skew / 2), resolution=resolution, slow=0.2, slow_by=validity / 5
        ),
        wall_errors=draw.walls(rng, 3, skew / 2),
        hudi_peers=1,
        hudi_validity=validity,
        hudi_holds=(0.0, 0.1),
        hudi_idles=(0.0, 0.5),
        holds=(0.0, 0.2),
        idles=(0.0, 0.1),
        lifetimes=12.0,
        crashes=1.0,
        aim=0.5,
        fenced=0.0,
    )


def slow_waiter(rng: Random) -> Plan:
    """One client looks all the time and always has somebody in line, another looks every 5 s."""
    fast = LeaseSettings(validity=10.0, max_clock_skew=SKEW, poll_interval=rng.choice((0.01, 0.05)))
    slow = LeaseSettings(validity=10.0, max_clock_skew=SKEW, poll_interval=rng.choice((2.0, 5.0)))
    return Plan(
        settings=(fast, slow),
        store=draw.store(rng, latency=(0.002, 0.01), slow=0.0),
        wall_errors=draw.walls(rng, 2),
        users=2,
        waiters=(2, 1),
        holds=(0.03, 0.1),
        idles=(0.0, 0.005),
        impatience=0.0,
        cancels=0.0,
        bodies=0.0,
        fenced=0.0,
        signals=0.0,
        deaths=0.0,
        lifetimes=8.0,
        longest_wait=3.0,
    )


def shared_fence(rng: Random) -> Plan:
    """Two clients of one process change a fenced object at the same time, under one lease."""
    clients = rng.choice((2, 3))
    return Plan(
        settings=draw.settings(rng, clients),
        store=draw.store(rng),
        wall_errors=draw.walls(rng, clients),
        fenced=0.9,
        shared=0.8,
        breaks=rng.randint(0, 1),
        pauses=0.1,
        holds=(0.1, 1.0),
        lifetimes=4.0,
        faults={Fault.REPLY_LOST: 0.03, Fault.LATE: 0.02, Fault.OWN_412: 0.02},
    )


def kept(rng: Random) -> Plan:
    """Locks are kept for a time after their release; answers are lost, machines die and are closed."""
    clients = rng.choice((2, 3, 4))
    most = rng.choice((0.3, 1.0, 3.0))
    settings = draw.settings(rng, clients)
    return Plan(
        settings=settings,
        store=draw.store(rng),
        wall_errors=draw.walls(rng, clients),
        at_least=(0.0, most),
        holds=(0.0, 0.5 * most),
        lifetimes=8.0,
        users=rng.choice((1, 1, 2)),
        pauses=rng.choice((0.0, 0.05)),
        crashes=rng.choice((0.0, 0.05)),
        faults={
            Fault.REPLY_LOST: 0.04,
            Fault.REQUEST_LOST: 0.02,
            Fault.OWN_412: 0.03,
            Fault.CONFLICT: 0.02,
            Fault.SLOW: 0.02,
        },
        slack=most * settings[0].validity,
    )


def capped(rng: Random) -> Plan:
    """Leases end by themselves, while answers are lost or late and wall clocks are set back and forth."""
    clients = rng.choice((2, 3))
    settings = draw.settings(rng, clients)
    return Plan(
        settings=settings,
        store=draw.store(rng),
        wall_errors=draw.walls(rng, clients),
        at_most=(0.1, rng.choice((0.5, 1.0, 2.5))),
        holds=(0.05, 3.0),
        bodies=0.4,
        lifetimes=8.0,
        users=rng.choice((1, 1, 2)),
        steps=rng.choice((0.0, 1.0)),
        step_by=SKEW / 2 + rng.choice((0.0, 6.0)),
        pauses=rng.choice((0.0, 0.1)),
        partitions=rng.choice((0.0, 0.2)),
        crashes=rng.choice((0.0, 0.05)),
        aim=0.7,
        closes=rng.choice((0.0, 0.1)),
        faults={
            Fault.REPLY_LOST: 0.1,
            Fault.REQUEST_LOST: 0.05,
            Fault.LATE: 0.05,
            Fault.OWN_412: 0.03,
            Fault.SLOW: 0.05,
        },
        delay=(0.05, 2.5),
    )


def together(rng: Random) -> Plan:
    """Several locks are held at once, named in any order, while answers are lost and late."""
    clients = rng.choice((2, 3))
    return Plan(
        kind="several",
        together=0.8,
        settings=draw.settings(rng, clients),
        store=draw.store(rng, slow=0.03, slow_by=2.0),
        wall_errors=draw.walls(rng, clients),
        holds=(0.05, 0.6),
        idles=(0.0, 0.2),
        impatience=0.5,
        cancels=0.2,
        fenced=0.0,
        breaks=rng.choice((0, 1)),
        crashes=rng.choice((0.0, 0.05)),
        pauses=rng.choice((0.0, 0.15)),
        partitions=rng.choice((0.0, 0.2)),
        aim=0.7,
        faults={Fault.SLOW: 0.05, Fault.REPLY_LOST: 0.03, Fault.REQUEST_LOST: 0.02, Fault.UNAVAILABLE: 0.03},
        delay=(0.05, 2.5),
        # Those that wait for each other in a circle do so to the end.
        lifetimes=8.0,
        longest_wait=6.5,
    )


def once(rng: Random) -> Plan:
    """A job is called again and again, and fails at times; one run is to be done in each period."""
    clients = rng.choice((2, 3))
    walls = list(draw.walls(rng, clients))
    walls[0] += rng.choice((0.0, 0.0, MINUTE, -HOUR))
    return Plan(
        onces=0.95,
        every=rng.choice((12.0, 20.0)),
        settings=draw.settings(rng, clients),
        store=draw.store(rng, slow=0.05, slow_by=3.0, undated=rng.choice((0.0, 0.0, 0.3))),
        wall_errors=tuple(walls),
        users=rng.choice((1, 2)),
        lifetimes=8.0,
        holds=(0.02, 0.5),
        idles=(0.0, 0.3),
        impatience=0.5,
        fenced=0.0,
        crashes=rng.choice((0.0, 0.1)),
        pauses=rng.choice((0.0, 0.2)),
        partitions=rng.choice((0.0, 0.1)),
        aim=0.5,
        faults={Fault.SLOW: 0.03, Fault.REPLY_LOST: 0.04, Fault.REQUEST_LOST: 0.02, Fault.LATE: 0.03},
        delay=(0.05, 2.5),
        slack=4.0,
    )


def refusals(rng: Random) -> Plan:
    """A store that refuses what it has just shown, at times or most of the time; half are alone."""
    clients = rng.choice((1, 1, 2, 3))
    return Plan(
        settings=draw.settings(rng, clients),
        store=draw.store(rng),
        wall_errors=draw.walls(rng, clients),
        users=1,
        alone=clients == 1,
        bodies=0.0,
        signals=0.0,
        deaths=0.0,
        cancels=0.0,
        holds=(0.02, 0.3),
        faults={
            Fault.REFUSED: rng.choice((0.1, 0.3, 0.6)),
            Fault.REPLY_LOST: 0.03,
            Fault.REQUEST_LOST: 0.03,
            Fault.CONFLICT: 0.1,
        },
    )


def leaving(rng: Random) -> Plan:
    """Who leaves gets no answer for long; some stores have a pace; clients are closed, and nobody listens."""
    clients = rng.choice((2, 3))
    paced = rng.random() < 0.3
    return Plan(
        # A request may take three times as long as leaving.
        settings=draw.settings(rng, clients, validity=30.0),
        store=draw.store(rng, **({"versions": "generation", "write_interval": 1.0} if paced else {})),
        wall_errors=draw.walls(rng, clients),
        users=rng.choice((1, 2)),
        bodies=0.8,
        holds=(0.02, 0.3),
        cancels=0.4,
        closes=0.2,
        exits=0.05,
        partitions=rng.choice((0.2, 0.5)),
        aim=0.8,
        deaf=True,
        faults={
            Fault.SLOW: 0.1,
            Fault.UNAVAILABLE: rng.choice((0.05, 0.5)),
            Fault.REPLY_LOST: 0.05,
            Fault.REQUEST_LOST: 0.05,
        },
        delay=(0.05, 8.0),
    )


EDGE_SCENARIOS: Final[dict[str, Callable[[Random], Plan]]] = {
    "endings": endings,
    "leaders": leaders,
    "transfers": transfers,
    "closed-loops": closed_loops,
    "hudi-endings": hudi_endings,
    "any-validity": any_validity,
    "undated": undated,
    "hudi-undated": hudi_undated,
    "hudi-short": hudi_short,
    "slow-waiter": slow_waiter,
    "shared-fence": shared_fence,
    "kept": kept,
    "capped": capped,
    "together": together,
    "once": once,
    "leaving": leaving,
    "refusals": refusals,
}
"""What takes part in a history at the edges, and what goes wrong in it."""
