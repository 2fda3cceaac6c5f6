"""What takes part in a simulated history, and what goes wrong in it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from asynclock.settings import LeaseSettings
    from asynclock.testing._faulty import Fault
    from asynclock.testing._store import StoreProfile

TROUBLES: Final = (
    *("crash", "pause", "stall", "suspend", "clock-step", "partition", "break", "wrong-date"),
    *("signal", "fork", "exit", "close", "drop"),
)
"""What can go wrong beside the faults of single requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What takes part in a history and what goes wrong in it.

    Rates are per machine and lease lifetime. Shares are 0 to 1.

    Attributes:
        settings: Of each client; there are as many machines.
        store: What kind of store it is.
        kind: What is acquired.
        slots: Of a semaphore, as each client names them; of readers.
        writers: Share of the acquisitions of a reader-writer lock that are a writer's.
        resizes: How often the number of slots is changed.
        unit: Seconds that count as a lifetime in this plan; None: the validity of the first client,
            and of each client for its users.
        lifetimes: Length of the turbulent part.
        users: Coroutines per client that want the lock.
        waiters: Likewise for each client, where they differ.
        hudi_peers: Java writers beside them.
        hudi_validity: Validity of the Java writers, seconds.
        hudi_clock: Least and most seconds by which their wall clocks are ahead.
        hudi_pauses: Rate of SIGSTOPs of the Java writers.
        hudi_holds: Least and most lifetimes that a Java writer holds the lock.
        hudi_idles: Least and most lifetimes that a Java writer is idle.
        wall_errors: Seconds by which each machine's wall clock is ahead at first.
        drifts: By how much each machine's clocks run fast.
        faults: Share of the requests that each fault spoils.
        delay: Least and most seconds by which faults delay.
        date_error: Least and most seconds by which ``STALE_DATE`` and ``CLOCK_AHEAD`` err.
        crashes: Rate of kills; the machine comes back with a new client.
        pauses: Rate of SIGSTOPs, up to two lifetimes long.
        stalls: Rate of blocked event loops, up to half a lifetime long.
        suspends: Rate of suspended machines.
        steps: Rate of wall clock steps.
        step_by: Most seconds of such a step.
        partitions: Rate of machines cut off.
        aim: Share of the pauses and partitions that hit a holder who believes just then.
        signals: Rate of signals that release everything and that the process survives.
        forks: Rate of forks; the child abandons what it holds and lives on for a while.
        exits: Rate of ends of the interpreter; the machine comes back with a new client.
        closes: Rate of clients closed in the middle of everything, by two callers.
        drops: Rate of users whose event loop is closed by force while they hold the lock.
        deaths: Share of histories in which a holder dies when the faults stop.
        deletions: How often an operator deletes the object.
        breaks: How often an operator breaks the lock.
        cancels: Share of acquisitions that are cancelled at a random time.
        deaf: Every listener of events raises whatever it hears.
        bodies: Share of acquisitions through ``hold()``, whose body never asks the lease.
        together: Share of acquisitions through ``hold_all``.
        onces: Share of acquisitions through a job that is run once a period.
        every: Length of such a period, in seconds.
        leads: Share of acquisitions through ``lead``.
        transfers: Share of the leases that end by a transfer; half of the acquisitions then use a ticket.
        holds: Least and most lifetimes that a user holds the lock.
        at_least: Least and most lifetimes that a lock is kept, however early it is released.
        at_most: Least and most lifetimes after which a lease ends by itself; 0: never.
        idles: Least and most lifetimes that a user is idle.
        fenced: Share of holds that write to the fenced object.
        shared: Share of these writes that two clients of one process make at the same time.
        impatience: Share of acquisitions with a timeout, or tried once.
        alone: Nobody else writes: the lock has to report what is refused again and again.
        longest_wait: Lifetimes after which a waiting user counts as starved; None: never.
        slack: Seconds on top of ``takeover_bound``, where it does not hold as written.
    """

    settings: tuple[LeaseSettings, ...]
    store: StoreProfile
    kind: Literal["lock", "several", "semaphore", "rwlock"] = "lock"
    slots: int = 0
    resizes: int = 0
    writers: float = 0.0
    unit: float | None = None
    lifetimes: float = 5.0
    users: int = 1
    waiters: tuple[int, ...] = ()
    hudi_peers: int = 0
    hudi_validity: float = 10.0
    hudi_clock: tuple[float, float] = (-0.25, 0.25)
    hudi_pauses: float = 0.0
    hudi_holds: tuple[float, float] = (0.05, 1.0)
    hudi_idles: tuple[float, float] = (0.0, 1.0)
    wall_errors: tuple[float, ...] = ()
    drifts: tuple[float, ...] = ()
    faults: Mapping[Fault, float] = field(default_factory=dict)
    delay: tuple[float, float] = (0.05, 1.0)
    date_error: tuple[float, float] = (30.0, 60.0)
    crashes: float = 0.0
    pauses: float = 0.0
    stalls: float = 0.0
    suspends: float = 0.0
    steps: float = 0.0
    step_by: float = 10.0
    partitions: float = 0.0
    aim: float = 0.0
    signals: float = 0.05
    forks: float = 0.0
    exits: float = 0.0
    closes: float = 0.0
    drops: float = 0.0
    deaths: float = 0.5
    deletions: int = 0
    breaks: int = 0
    cancels: float = 0.1
    deaf: bool = False
    bodies: float = 0.25
    together: float = 0.0
    onces: float = 0.0
    every: float = 0.0
    leads: float = 0.0
    transfers: float = 0.0
    holds: tuple[float, float] = (0.02, 1.2)
    at_least: tuple[float, float] = (0.0, 0.0)
    at_most: tuple[float, float] = (0.0, 0.0)
    idles: tuple[float, float] = (0.0, 0.3)
    fenced: float = 0.3
    shared: float = 0.0
    impatience: float = 1.0
    alone: bool = False
    longest_wait: float | None = None
    slack: float = 0.0
