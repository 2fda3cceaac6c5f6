"""One simulated history: the shipped client against a simulated store, while things go wrong.

A ``Plan`` says what takes part and what goes wrong; ``Simulation`` carries it out and
``History`` keeps what happened.
"""

from __future__ import annotations

import asyncio
import warnings
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any, Final

from asynclock._text import SUFFIX
from asynclock.errors import BackendError, ConfigError, LockChangedError, RecordCorruptError
from asynclock.testing._clocks import EPOCH
from asynclock.testing._faulty import Fault
from asynclock.testing._store import SimulatedStore, is_answer
from asynclock.testing._virtual import DeadlockError, VirtualLoop
from tests.laboratory.checker import Checker, Invariant
from tests.laboratory.endings import ROUND_TRIPS, Endings
from tests.laboratory.machines import Machine
from tests.laboratory.names import FENCED_KEY, KEY, NAME
from tests.laboratory.shared import Sharing
from tests.laboratory.users import JavaWriter

if TYPE_CHECKING:
    from collections.abc import Callable

    from asynclock.testing._store import Operation
    from tests.laboratory.checker import Violation
    from tests.laboratory.plan import Plan

WITNESSED: Final = 10.0
"""Seconds within which a client whose wall clock is wrong has learned the store's time."""
_EVEN: Final = 0.5

Trouble = tuple[float, "Callable[[int], None]", int]
"""True time, what happens then, to which machine."""


@dataclass(slots=True, kw_only=True)
class History:
    """What happened in one history.

    Attributes:
        scenario: Its name.
        seed: The same scenario and seed give the same history, bit for bit.
        violations: Invariants that did not hold.
        operations: Requests that reached the store.
        clients: Machines and Java writers.
        lifetimes: Its length in lease lifetimes.
        acquisitions: How many leases were handed out.
        applied: How often each kind of fault was applied.
        journal: The store's journal.
        events: (true time, who, what).
    """

    scenario: str
    seed: int
    violations: list[Violation]
    operations: int
    clients: int
    lifetimes: float
    acquisitions: int
    applied: Counter[str]
    journal: list[Operation]
    events: list[tuple[float, str, str]]

    def trace(self) -> str:
        """Return who believed, wrote and suffered what, a line each, in order of true time."""
        lines = [(at, f"{at:10.3f}  {who:<12} {what}") for at, who, what in self.events]
        lines.extend(
            (each.at, f"{each.at:10.3f}  {each.client:<12}     {_described(each)}") for each in self.journal
        )
        lines.sort(key=lambda line: line[0])
        return "\n".join(text for _, text in lines)


class Simulation:
    """Carries out one plan.

    Args:
        scenario: Its name.
        seed: Everything is drawn from the two.
        plan: What takes part and what goes wrong.
    """

    def __init__(self, scenario: str, seed: int, plan: Plan) -> None:
        self.plan = plan
        self.label = f"{scenario}/{seed}"
        rng = self._rng = Random(self.label)
        self.loop = VirtualLoop(rng.getrandbits(64))
        self.loop.set_exception_handler(self._failed)
        self.store = SimulatedStore(self.loop, Random(rng.getrandbits(64)), plan.store)
        self.checker = Checker(self.store, key=KEY, fenced_key=FENCED_KEY)
        self.sharing = Sharing(self)
        self.checker.losses_are_true = not plan.faults.get(Fault.CORRUPT)
        misled = plan.store.wrong_dates or {Fault.STALE_DATE, Fault.CLOCK_AHEAD} & plan.faults.keys()
        if plan.store.dates and not misled and not plan.drifts:
            ahead = EPOCH + max(plan.store.nodes) + plan.store.resolution
            self.checker.store_time = lambda: self.loop.now + ahead
        self.loop.on_step = self.checker.after_step
        self.unit = plan.unit or plan.settings[0].validity
        self.ends = plan.lifetimes * self.unit
        self.applied: Counter[str] = Counter()
        self._scenario, self._seed = scenario, seed
        self.machines = [Machine(self, index) for index in range(len(plan.settings))]
        self.endings = Endings(self)
        self.java = [JavaWriter(self, index, Random(rng.getrandbits(64))) for index in range(plan.hudi_peers)]

    def run(self) -> History:
        """Run to the end and return what happened."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ResourceWarning)  # some users forget their lease
                self.loop.run_until_complete(self._main())
        except DeadlockError as error:
            self.checker.violated(Invariant.NOTHING_LEFT, str(error))
        finally:
            lasted = self.loop.time()
            self.checker.forget()
            self.loop.close()
        self.checker.check_fenced()
        for machine in self.machines:
            self.count(machine)
        self.applied["wrong-date"] += self.store.wrong_dates_sent
        self.applied[Fault.THROTTLED] += self.store.throttled
        return History(
            scenario=self._scenario,
            seed=self._seed,
            violations=self.checker.violations,
            operations=len(self.store.journal),
            clients=len(self.machines) + len(self.java),
            lifetimes=lasted / self.unit,
            acquisitions=self.checker.acquisitions,
            applied=+self.applied,
            journal=self.store.journal,
            events=self.checker.events,
        )

    async def _main(self) -> None:
        for at, act, index in self._troubles() + self.endings.troubles():
            self.loop.call_at(at, act, index)
        for machine in self.machines:
            machine.start()
        for writer in self.java:
            writer.start()
        await asyncio.sleep(self.ends)
        self._calm()
        await self._end()

    def _troubles(self) -> list[Trouble]:
        plan, rng = self.plan, self._rng
        rates: tuple[tuple[float, Callable[[int], None]], ...] = (
            (plan.crashes, self._crash),
            (plan.pauses, self._pause),
            (plan.stalls, self._stall),
            (plan.suspends, self._suspend),
            (plan.steps, self._step),
            (plan.partitions, self._partition),
        )
        troubles: list[Trouble] = []
        for rate, act in rates:
            expected = rate * plan.lifetimes * len(self.machines)
            times = int(expected) + (rng.random() < expected % 1)
            troubles += [
                (rng.random() * self.ends, act, rng.randrange(len(self.machines))) for _ in range(times)
            ]
        for writer in self.java:
            expected = plan.hudi_pauses * plan.lifetimes
            times = int(expected) + (rng.random() < expected % 1)
            for _ in range(times):
                at = rng.random() * self.ends
                self.loop.call_at(at, writer.process.pause)
                self.loop.call_at(at + rng.random() * 2 * self.unit, writer.process.resume)
        for _ in range(plan.resizes):
            at, slots, machine = rng.random() * self.ends, rng.randint(1, 4), rng.choice(self.machines)
            self.loop.call_at(at, self.sharing.resize, machine, slots)
        operator: tuple[tuple[int, Callable[[int], None]], ...] = (
            (plan.deletions, self._delete),
            (plan.breaks, self._break),
        )
        for count, act in operator:
            troubles += [(rng.random() * self.ends * 0.9, act, 0) for _ in range(count)]
        return troubles

    def suffers(self, index: int, what: str) -> Machine | None:
        """Note a trouble of a machine; None if it is down."""
        machine = self.machines[index]
        if not machine.process.alive:
            return None
        self.applied[what.partition(" ")[0]] += 1
        self.checker.note(machine.name, f"*** {what}")
        return machine

    def _crash(self, index: int) -> None:
        if self.java and self.plan.aim and self._rng.random() < self.plan.aim:
            # Before its first renewal, so that the record can be taken over as soon as may be.
            self.endings.while_settling(self._kill, index, lambda each: each.renew_interval or 0.0)
        else:
            self._kill(index)

    def _kill(self, index: int) -> None:
        if self.loop.time() < self.ends and (machine := self.suffers(index, "crash")) is not None:
            machine.process.kill()
            self.count(machine)
            self.loop.call_later(self._rng.random() * self.unit, self.restart, machine)

    def restart(self, machine: Machine) -> None:
        """Let a machine whose process has ended come back."""
        if self.loop.time() < self.ends:
            machine.boot()
            machine.start()

    def _pause(self, index: int) -> None:
        self._stop(self.aimed(index), "pause", self._rng.random() * 2 * self.unit)

    def _stall(self, index: int) -> None:
        self._stop(index, "stall", self._rng.random() * self.unit / 2)

    def aimed(self, index: int) -> int:
        """Return a machine that believes, if this trouble is aimed and there is one; else ``index``."""
        if self.plan.aim and self._rng.random() < self.plan.aim:
            believing = {holding.process for holding in self.checker.believers()}
            return next((at for at, each in enumerate(self.machines) if each.process in believing), index)
        return index

    def _stop(self, index: int, what: str, seconds: float) -> None:
        if (machine := self.suffers(index, f"{what} for {seconds:.2f} s")) is not None:
            machine.process.pause()
            machine.stop(until=self.loop.time() + seconds)
            self.loop.call_later(seconds, machine.process.resume)

    def _suspend(self, index: int) -> None:
        seconds = self._rng.random() * 2 * self.unit
        if (machine := self.suffers(index, f"suspend for {seconds:.2f} s")) is not None:
            machine.process.suspend(seconds)
            machine.stop(until=max(machine.runs_from, self.loop.time()) + seconds)

    def _step(self, index: int) -> None:
        seconds = self._rng.uniform(-1, 1) * self.plan.step_by
        clock = self.machines[index].clock
        while self._errs_like_a_date(clock.wall() - EPOCH - self.loop.time() + seconds):
            seconds = self._rng.uniform(-1, 1) * self.plan.step_by
        if (machine := self.suffers(index, f"clock-step by {seconds:+.2f} s")) is not None:
            machine.clock.step(seconds)

    def _errs_like_a_date(self, error: float) -> bool:
        """Whether a wall clock of that error may confirm a wrong Date, which is documented as not covered."""
        store = self.plan.store
        slack = 2 * (self.plan.settings[0].max_clock_skew + store.resolution)
        least, most = store.wrong_by
        return store.wrong_dates > 0 and least - slack <= abs(error) <= most + slack

    def _partition(self, index: int) -> None:
        seconds = self._rng.random() * 1.5 * self.unit
        if (machine := self.suffers(self.aimed(index), f"partition for {seconds:.2f} s")) is not None:
            self.store.cut_off.add(machine.process)
            self.loop.call_later(seconds, self.store.cut_off.discard, machine.process)

    def _delete(self, _: int) -> None:
        """Delete the object; everybody keeps away for L and a request timeout, as documented."""
        self.applied[Fault.DELETED] += 1
        self.checker.note("operator", "*** deletes the object")
        away = 1.2 * max(machine.settings.validity for machine in self.machines)
        for machine in self.machines:
            for user in machine.users:
                if user.holding:
                    user.away_until = self.loop.time() + away
                if user.holding or user.task is None or not machine.process.alive:
                    continue
                user.stop()
                user.start(delay=away)
        self.store.delete_now(KEY)

    def _break(self, _: int) -> None:
        self.applied["break"] += 1
        machine = self.machines[-1]
        if machine.process.alive:
            machine.process.start(self._break_lock(machine), name="operator")

    async def _break_lock(self, machine: Machine) -> None:
        lock = machine.client.lock(NAME)
        self.checker.note("operator", "*** breaks the lock")
        try:
            status = await lock.status()
            with self.checker.breaking():
                await lock.break_lock(status, force=True)
        except (BackendError, RecordCorruptError, LockChangedError) as error:
            self.checker.note("operator", f"break failed: {type(error).__name__}")

    def _calm(self) -> None:
        """Stop all faults; with an even chance the machines that hold die first."""
        checker = self.checker
        checker.note("simulation", "--- faults stop")
        if self._rng.random() < self.plan.deaths and len(self.machines) > 1:
            for holding in checker.believers()[:1]:
                holding.process.kill()
                checker.note(holding.who, "*** killed for good")
        for writer in self.java:
            writer.process.resume()
            if self._rng.random() < _EVEN:
                writer.process.kill()
        self.store.cut_off.clear()
        self.store.calm = True
        for machine in self.machines:
            for backend in machine.backends:
                backend.calm()
            machine.process.resume()
        self.endings.calm()
        if self.java:
            self._right_a_clock()

    def _right_a_clock(self) -> None:
        """Put one clock right where all are wrong: nobody may free a dead Hudi lock then (rule 8)."""
        alive = [machine for machine in self.machines if machine.process.alive]
        if alive and not any(self._agrees_with_the_store(machine) for machine in alive):
            self.checker.note("operator", f"*** puts the clock of {alive[0].name} right")
            alive[0].clock.set_error(0.0)

    def _agrees_with_the_store(self, machine: Machine) -> bool:
        error = machine.clock.wall() - EPOCH - self.loop.time()
        skew = machine.settings.max_clock_skew
        return all(abs(error - node) <= skew for node in self.plan.store.nodes)

    async def _end(self) -> None:
        alive = [machine for machine in self.machines if machine.process.alive]
        began = self.loop.time()
        for machine in alive:
            for user in machine.users:
                user.check_wait()
                user.stop()
        last = [machine.process.start(self._last_turn(machine), name="last turn") for machine in alive]
        if last:
            await self._taken_over(last, began)
        for machine in alive:
            await self.endings.farewell(machine)
        if alive:
            self._check_left(alive)

    async def _taken_over(self, last: list[asyncio.Task[None]], began: float) -> None:
        """Somebody acquires within the bound, or is refused for good; then everybody does."""
        bound = self._bound()
        with suppress(TimeoutError):
            async with asyncio.timeout(3 * bound):
                await self.checker.next_acquisition()
        # A machine that was suspended as the faults stopped runs on with a clock that still stands.
        awake = [machine.clock.wakes_at for machine in self.machines if machine.process.alive]
        since = max([began, *awake, *(each.at for each in self._foreign_writes(began))])
        took = self.loop.time() - since
        if took > bound:
            self.checker.violated(
                Invariant.TAKEOVER_BOUND, f"nobody acquired within {bound:.2f} s ({took:.2f} s)"
            )
        _, waiting = await asyncio.wait(last, timeout=len(last) * (bound + 2 * self.unit) + WITNESSED)
        for task in waiting:
            self.checker.violated(Invariant.FAIR, "somebody never got the lock in the calm")
            task.cancel()

    def _foreign_writes(self, began: float) -> list[Operation]:
        """Return writes of the dead that landed after the faults stopped: the bound counts from them."""
        alive = {machine.name for machine in self.machines if machine.process.alive}
        return [
            each
            for each in self.store.journal
            if each.at > began and each.applied and each.key.endswith(SUFFIX) and each.client not in alive
        ]

    def _bound(self) -> float:
        resolution = self.plan.store.resolution
        bound = max(each.takeover_bound(resolution) for each in self.plan.settings)
        if self.plan.hudi_peers:
            skew = self.plan.settings[0].max_clock_skew
            longest = max(each.validity for each in self.plan.settings)
            hudi = self.plan.hudi_validity + max(self.plan.hudi_clock) + 0.5
            # A dead Java writer, and the wait for the token behind it (rule 11).
            bound += max(0.0, hudi - longest) + 2 * (skew + resolution)
        return bound + ROUND_TRIPS + self.plan.slack

    async def _last_turn(self, machine: Machine) -> None:
        try:
            lease = await self.sharing.acquired(machine.client)
        except RecordCorruptError as error:
            self.unreadable(machine.name, error)
        except ConfigError as error:
            machine.check_refusal(error)
        else:
            await machine.users[0].hold(lease, 0.1 * self.unit)

    def _check_left(self, alive: list[Machine]) -> None:
        closed = [process for process, *_ in self.endings.closed]
        for process in (*(machine.process for machine in alive), *closed):
            if process.alive:
                left = [repr(task.get_coro()) for task in process.tasks()]
                left += [repr(timer) for timer in process.timers() if not is_answer(timer)]
                if left:
                    self.checker.violated(Invariant.NOTHING_LEFT, f"{process.name} left {', '.join(left)}")
        if self.java:
            return
        for key in self.sharing.left_keys():
            body = self.store.body(key)
            if body is not None and b'"expired":true' not in body:
                self.checker.violated(Invariant.NOTHING_LEFT, f"the lock is still held: {body!r}")

    def unreadable(self, who: str, error: RecordCorruptError) -> None:
        """Check that a record that is corrupt to somebody was not ours."""
        if not self.plan.faults.get(Fault.CORRUPT):
            self.checker.violated(Invariant.READABLE, f"{who} finds the lock corrupt: {error.reason}")

    def count(self, machine: Machine) -> None:
        """Add up the faults of a machine's requests."""
        self.applied.update({str(fault): count for fault, count in machine.backend.applied.items()})

    def _failed(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.checker.violated(Invariant.NO_ERROR, f"{context.get('message')}: {error!r}")


def _described(operation: Operation) -> str:
    base = f" on {operation.base[:6]}" if operation.base else ""
    became = f" -> {operation.version[:6]}" if operation.version else " -> none"
    done = "" if operation.applied or operation.kind == "get" else " REFUSED"
    body = f" {operation.body.decode(errors='replace')}" if operation.body and operation.kind != "get" else ""
    return f"{operation.kind} {operation.key}{base}{became}{done}{body}"
