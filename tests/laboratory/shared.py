"""Locks that several may hold, in simulated histories: who takes part, and what must hold."""

from __future__ import annotations

import re
from random import Random
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from asynclock._text import SUFFIX
from asynclock.errors import BackendError, ConfigError, RecordCorruptError
from asynclock.settings import LeaseSettings
from asynclock.testing._faulty import Fault
from tests.laboratory import draw
from tests.laboratory.draw import MINUTE, SKEW
from tests.laboratory.invariants import Invariant
from tests.laboratory.names import KEY, NAME, NAMES
from tests.laboratory.plan import Plan

if TYPE_CHECKING:
    from collections.abc import Callable

    from asynclock.client import LockClient
    from asynclock.lease import Lease
    from asynclock.lock import Holdable
    from tests.laboratory.history import Simulation
    from tests.laboratory.machines import Machine
    from tests.laboratory.watched import Holding

WRITER_KEY: Final = f"{NAME}/rw=w.json"
SIZE_KEY: Final = f"{NAME}/slots"
_FOUND: Final = re.compile(r"has (\d+) slots")
_SIZE: Final = re.compile(rb'\{"slots":(\d+)\}\n')


class Sharing:
    """Judges who may believe beside whom, and who may have which slot.

    Args:
        run: The history.
    """

    def __init__(self, run: Simulation) -> None:
        self._run = run
        self._rng = Random(f"{run.label}/sides")
        self._named: WeakKeyDictionary[LockClient, int] = WeakKeyDictionary()
        if run.plan.kind != "lock":
            run.checker.allows = self._allows

    def wanted(self, client: LockClient) -> Holdable:
        """Return what a user acquires next."""
        if self._run.plan.kind == "semaphore":
            return client.semaphore(NAME, self._named.get(client, self._run.plan.slots))
        if self._run.plan.kind == "rwlock":
            rw = client.rwlock(NAME)
            # Few, so that they are all taken at times; no client knows.
            client._core.readers(NAME).slots = self._run.plan.slots
            return rw.write if self._rng.random() < self._run.plan.writers else rw.read
        if self._run.plan.kind == "several":
            return client.lock(self._rng.choice(NAMES))
        return client.lock(NAME)

    async def acquired(self, client: LockClient) -> Lease:
        """Return a lease, got in the calm."""
        try:
            return await self.wanted(client).acquire()
        except ConfigError as error:
            if not self.refused(client, error):
                raise
        return await self.wanted(client).acquire()

    def refused(self, client: LockClient, error: ConfigError) -> bool:
        """Whether a client was refused for naming another number of slots; it names the right one then."""
        found = _FOUND.search(error.reason) if error.setting == "slots" else None
        if found is not None:
            self._named[client] = int(found[1])
        return found is not None

    def _allows(self, believing: list[Holding]) -> bool:
        keys = {str(getattr(each.lease, "key", "")) for each in believing}
        if len(keys) < len(believing):
            return False  # two in one slot
        if self._run.plan.kind == "several":
            return True
        if self._run.plan.kind == "rwlock":
            if WRITER_KEY in keys:
                names = " and ".join(f"{each.who} ({each.lease.owner[:8]})" for each in believing)
                self._run.checker.violated(Invariant.BESIDE, f"{names}, one of them a writer")
            return True
        return len(believing) <= max(self._sizes(since=0.0))

    def _sizes(self, *, since: float) -> list[int]:
        """Return the numbers of slots that stood in the store from then on."""
        sizes = [self._run.plan.slots]
        for each in self._run.store.journal:
            if each.key == SIZE_KEY and each.applied and each.kind != "get":
                found = _SIZE.fullmatch(each.body or b"")
                assert found is not None
                sizes = [*sizes, int(found[1])] if each.at >= since else [int(found[1])]
        return sizes

    def left_keys(self) -> set[str]:
        """Return the locks that must be free when all that live have left.

        Of several slots, one that was lost or whose holder has died may wait for somebody who takes it over:
        only those count that were written in the time of the last belief, by a process that lives. If answers
        are damaged, any belief may have ended early.
        """
        run = self._run
        if run.plan.kind == "lock":
            return {KEY}
        if not run.checker.losses_are_true:
            return set()
        each = run.plan.settings[0]
        since = run.loop.time() - (each.validity - (each.safety_margin or 0.0)) * 0.9
        alive = [f'"{each.name}:{each._life}:'.encode() for each in run.machines if each.process.alive]
        last = {each.key: each for each in run.store.journal if each.applied and each.key.endswith(SUFFIX)}
        return {
            key
            for key, write in last.items()
            if write.at > since and any(one in (write.body or b"") for one in alive)
        }

    def check_slot(self, who: str, lease: Lease) -> None:
        """Check that the store had the slot of a lease after its acquisition was written."""
        if lease.slot is None or self._run.plan.kind != "semaphore":
            return
        owner, run = lease.owner.encode(), self._run
        landed = next(each.at for each in run.store.journal if each.applied and owner in (each.body or b""))
        if lease.slot >= max(self._sizes(since=landed)):
            detail = f"{who} got slot {lease.slot} of {self._sizes(since=landed)}"
            run.checker.violated(Invariant.SLOTS, detail)

    def resize(self, machine: Machine, slots: int) -> None:
        """Change the number of slots from a machine."""
        if machine.process.alive:
            machine.process.start(self._resize(machine, slots), name="operator")

    async def _resize(self, machine: Machine, slots: int) -> None:
        self._run.checker.note(machine.name, f"*** asks for {slots} slots")
        client = machine.client
        try:
            await client.semaphore(NAME, self._named.get(client, self._run.plan.slots)).resize(slots)
            self._named[client] = slots
        except (BackendError, ConfigError, RecordCorruptError) as error:
            self._run.checker.note(machine.name, f"resize failed: {type(error).__name__}")


def semaphore(rng: Random) -> Plan:
    """Several clients, each with several users, want a slot of few; machines die, stop and lose answers."""
    clients = rng.choice((2, 3, 3))
    return Plan(
        kind="semaphore",
        slots=rng.choice((1, 2, 2, 3)),
        settings=draw.settings(rng, clients),
        store=draw.store(rng, slow=0.02, slow_by=4.0),
        wall_errors=draw.walls(rng, clients),
        users=2,
        crashes=0.1,
        pauses=0.15,
        partitions=0.1,
        aim=0.5,
        cancels=0.2,
        fenced=0.0,
        holds=(0.05, 0.8),
        faults={Fault.REPLY_LOST: 0.03, Fault.REQUEST_LOST: 0.02, Fault.LATE: 0.03, Fault.CONFLICT: 0.02},
        # A slot that may be free is seen at the next look only.
        slack=4.0,
    )


def resized(rng: Random) -> Plan:
    """The number of slots changes under load, and with it how many may hold one."""
    clients = rng.choice((2, 3))
    return Plan(
        kind="semaphore",
        slots=rng.choice((2, 3)),
        resizes=3,
        settings=draw.settings(rng, clients),
        store=draw.store(rng, slow=0.1, slow_by=3.0),
        wall_errors=draw.walls(rng, clients),
        users=3,
        fenced=0.0,
        holds=(0.05, 0.3),
        idles=(0.0, 0.1),
        faults={Fault.REPLY_LOST: 0.03, Fault.LATE: 0.03},
        slack=4.0,
    )


def slot_turns(rng: Random) -> Plan:
    """Two machines take slot after slot, each with somebody always in line."""
    each = LeaseSettings(validity=10.0, max_clock_skew=SKEW, poll_interval=0.5)
    return Plan(
        kind="semaphore",
        slots=2,
        settings=(each,) * 2,
        store=draw.store(rng, latency=(0.002, 0.01), slow=0.0),
        wall_errors=draw.walls(rng, 2),
        users=4,
        holds=(0.03, 0.1),
        idles=(0.0, 0.005),
        impatience=0.0,
        cancels=0.0,
        fenced=0.0,
        longest_wait=2.5,
        lifetimes=3.0,
        slack=4.0,
    )


def rwlock(rng: Random) -> Plan:
    """Readers and writers on several machines, which die, stop and lose answers."""
    clients = rng.choice((2, 3, 3))
    return Plan(
        kind="rwlock",
        slots=rng.choice((2, 3, 4)),
        writers=rng.choice((0.2, 0.4)),
        settings=draw.settings(rng, clients),
        store=draw.store(rng, slow=0.05, slow_by=4.0),
        wall_errors=draw.walls(rng, clients),
        users=2,
        crashes=0.1,
        pauses=0.2,
        partitions=0.15,
        aim=0.5,
        cancels=0.2,
        fenced=0.0,
        holds=(0.05, 0.8),
        idles=(0.0, 0.1),
        faults={Fault.REPLY_LOST: 0.03, Fault.REQUEST_LOST: 0.02, Fault.LATE: 0.03, Fault.CONFLICT: 0.02},
        slack=4.0,
    )


def rw_clocks(rng: Random) -> Plan:
    """A reader-writer lock on machines that are paused and whose clocks step and drift."""
    clients = rng.choice((2, 3))
    return Plan(
        kind="rwlock",
        slots=2,
        writers=0.4,
        settings=draw.settings(rng, clients),
        store=draw.store(rng),
        wall_errors=tuple(rng.choice((0.0, 1.0, -MINUTE)) * rng.random() for _ in range(clients)),
        drifts=tuple(rng.uniform(-0.05, 0.05) for _ in range(clients)),
        users=2,
        pauses=0.3,
        stalls=0.2,
        suspends=0.1,
        steps=0.4,
        aim=0.5,
        fenced=0.0,
        idles=(0.0, 0.1),
        slack=4.0,
    )


SHARED_SCENARIOS: Final[dict[str, Callable[[Random], Plan]]] = {
    "semaphore": semaphore,
    "resized": resized,
    "slot-turns": slot_turns,
    "rwlock": rwlock,
    "rw-clocks": rw_clocks,
}
