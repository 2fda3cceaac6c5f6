"""One history: a plan is carried out, everything ends, and a stranger tries to take every lock."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
import sys
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from asynclock import AsyncLockError, RecordCorruptError
from asynclock._core import portal
from tests.laboratory.attack.bucket import Bucket, Thing
from tests.laboratory.attack.hudi import DRIFT, HudiWriter
from tests.laboratory.attack.judge import Judge
from tests.laboratory.attack.plan import ClientPlan, Plan, ProcessPlan
from tests.laboratory.attack.process import Process
from tests.laboratory.attack.world import OutOfEventsError, ProcessLoop, World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LIVE = ("close_loop",)


@dataclass(frozen=True)
class Outcome:
    """What became of a history."""

    seed: int
    violations: tuple[str, ...]
    acquisitions: int
    events: int
    trace: tuple[str, ...]


class History:
    """A plan and the universe that it happens in."""

    def __init__(self, plan: Plan, *, alter: Callable[[History], object] = lambda _: None) -> None:
        self.plan = plan
        self.world = World()
        self.world.before_step = self._enter
        self.rng = random.Random(f"bucket {plan.seed}")
        self.bucket = Bucket(
            self.world,
            self.rng,
            plan.nodes,
            plan.resolution,
            plan.weather,
            hashed=plan.hashed,
            spacing=plan.spacing,
        )
        self.judge = Judge(self.world, self.bucket, every=plan.every)
        if plan.kind == "semaphore":
            self.judge.most = plan.slots
        elif plan.kind == "rwlock":
            self.judge.alone = f"{plan.locks[-1]}.json"
        self.bucket.landed = self._landed
        self.processes: list[Process] = []
        self.started = self.world.now
        self._broken_by_force: set[str] = set()
        self._last: ProcessLoop | None = None
        alter(self)

    def _enter(self, loop: ProcessLoop) -> None:
        if loop is not self._last:
            self._last = loop
            any(each.owns(loop) for each in self.processes)

    def _landed(self, key: str, thing: Thing) -> None:
        if thing.by.startswith("operator"):
            self.judge.excuse(key)
        self.judge.landed(key, thing)

    def run(self) -> Outcome:
        """Carry it out."""
        try:
            with self.inside():
                self._act()
                self._last_will()
        except OutOfEventsError:
            self.judge.blame("spins", "more events than any history needs")
        finally:
            with self.inside():
                self._bury()
        return Outcome(
            self.plan.seed,
            tuple(self.judge.violations),
            self.judge.acquisitions,
            self.world.events,
            tuple(self.world.trace),
        )

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """Let the processes of the history be the library's, in place of the one that runs the test."""
        host = portal.Host._current
        self._last = None  # whose host stood in for it when the history was left
        try:
            with quiet():
                yield
        finally:
            portal.Host._current = host

    def begin(self, plan: ProcessPlan, name: str | None = None) -> Process:
        """Start a process."""
        process = Process(name or f"p{len(self.processes)}", plan, self.plan, self.bucket, self.judge)
        self.processes.append(process)
        self._last = None
        process.start()
        return process

    def _act(self) -> None:
        plan, start = self.plan, self.started
        for process in plan.processes:
            self.begin(process)
        for number, writer in enumerate(plan.hudi):
            HudiWriter(
                self.bucket,
                self.judge,
                random.Random(f"hudi {plan.seed} {number}"),
                name=f"hudi{number}",
                key=f"{plan.locks[0]}.json",
                validity=writer.validity,
                ahead=writer.ahead,
                until=start + writer.until,
                dies=writer.dies,
            )
        for each in plan.misfortunes:
            self.world.at(start + each.at, lambda each=each: self._strike(each))  # type: ignore[misc]
        if plan.night is not None:
            self.world.run(start + plan.night)
            self._night()
        self.world.run(self.world.now + plan.horizon - (plan.night or 0.0))
        self.judge.look()
        if plan.turns:
            self.judge.overdue(plan.patience)
        for process in self.processes:
            process.finish()
        plan.weather.calm(min(plan.weather.trip, min(plan.validities) / 60))
        self.world.run(self.world.now + 4.0 + 20 * plan.weather.trip)

    def _strike(self, each: Any) -> None:  # noqa: ANN401  a Misfortune
        if each.kind == "break":
            self._break()
            return
        process = self.processes[each.process]
        process.strike(each.kind, each.size)
        if not process.alive or process.ending:
            pass

    def _break(self) -> None:
        """An operator breaks the first lock by force."""
        operator = self.begin(_stranger(self.plan, users=0), "operator")
        key = self.plan.locks[0]

        async def work() -> None:
            lock = operator.clients[0][0].lock(key)
            with contextlib.suppress(AsyncLockError):
                await lock.break_lock(await lock.status(), force=True)

        operator.spawn(work())

    def _night(self) -> None:
        """All processes end; after the documented wait every lock is deleted by hand."""
        crew = [each.plan for each in self.processes if each.name.startswith("p")]
        for process in self.processes:
            process.kill()
        longest = max(self.plan.validities)
        self.world.run(self.world.now + 1.2 * longest + 3 * self.plan.weather.late_by + 60)
        for name in self.plan.locks:
            self.world.tell("operator", f"deletes {name}.json")
            self.bucket.things.pop(f"{name}.json", None)
        for number, plan in enumerate(crew):
            self.begin(plan, f"q{number}")

    # The end.

    def _last_will(self) -> None:
        """Kill what still lives; nothing may be held for longer than a dead holder's bound."""
        for process in self.processes:
            if process.plan.ending not in LIVE and process.alive and not process.user.is_closed():
                process.kill()
            process.ending = True
        resumed = [
            max(each.user.stopped_until, each.machine.asleep_until) for each in self.processes if each.alive
        ]
        self.world.run(max([self.world.now, *resumed]) + 20 * self.plan.weather.trip)
        gc.collect()
        self.world.run(self.world.now + 3 * self.plan.weather.late_by + 10 * self.plan.weather.trip + 2)
        self._nobody_renews()
        stranger = self.begin(_stranger(self.plan, users=0), "stranger")
        taken: list[str] = []
        tasks = [stranger.spawn(self._take(stranger, name, taken)) for name in self.plan.locks]
        for name in self.plan.locks:
            self.world.tell("stranger", f"may wait {self._bound(f'{name}.json'):.3f} s for {name}")
        longest = max(self._bound(f"{name}.json") for name in self.plan.locks)
        self.world.run(self.world.now + longest + 60, lambda: all(task.done() for task in tasks))
        for name in self.plan.locks:
            if name not in taken:
                head = self.judge.head(f"{name}.json") or {}
                self.judge.blame("held forever", f"{name} was not free in time: {head}")
        for process in self.processes:
            for _, line in process.clients:
                for trespass in line.trespasses:
                    self.judge.blame("trespass", f"{line.who}: {trespass}")
        self.judge.count_updates(once=not self.plan.shared_leases)

    def _nobody_renews(self) -> None:
        """A process whose users are gone renews nothing: those with a closed loop still live."""
        gc.collect()
        # An acquisition holds and renews until its token has settled, also if nobody waits for it (rule 11).
        slack = self.plan.skew + self.plan.resolution + 20 * self.plan.weather.trip
        settled = max((token + slack for token in self.judge.settling.values()), default=0.0)
        self.world.run(max(self.world.now + 0.1 * max(self.plan.validities), settled))
        before = {name: self.bucket.things.get(f"{name}.json") for name in self.plan.locks}
        self.world.run(self.world.now + 0.25 * max(self.plan.validities))
        for name, thing in before.items():
            head = self.judge.head(f"{name}.json") or {}
            if thing is not self.bucket.things.get(f"{name}.json") and not head.get("expired"):
                self.judge.blame("held forever", f"{name} is renewed for nobody: {head}")
                for process in self.processes:
                    process.kill()

    async def _take(self, stranger: Process, name: str, taken: list[str]) -> None:
        client, line = stranger.clients[0]
        lock, wait = client.lock(name), self._bound(f"{name}.json")
        try:
            for _ in range(1 if self.plan.weather.undated in {0.0, 1.0} else 10):
                await lock.status()  # a dead Hudi writer's time counts from the first answer with a Date
                await asyncio.sleep(1.0)
            await asyncio.sleep(max(0.0, wait - self._lingering()))
            lease = await lock.acquire(timeout=self._lingering())
            self.judge.given(lock.key, line.who, lease, lease.fencing_token)
            await lease.release()
            taken.append(name)
        except RecordCorruptError as error:
            self.judge.corrupt(line.who, error.key, error)
        except AsyncLockError as error:
            self.world.tell("stranger", repr(error))

    def _lingering(self) -> float:
        """Return what an acquisition of a free lock may take: polls, round trips, a token that settles."""
        plan = self.plan
        poll = max(client.settings["poll_interval"] for each in plan.processes for client in each.clients)
        dates = (
            0.0 if plan.weather.undated in {0.0, 1.0} else 30.0
        )  # read again each second until there is one
        settling = 2 * (plan.skew + plan.resolution)
        return 2 * poll + 20 * plan.weather.trip + 2 * plan.spacing + settling + dates + 2

    def _bound(self, key: str) -> float:
        """Return how long a stranger who looks from now on may have to wait."""
        plan, record, now = self.plan, self.judge.head(key), self.world.now
        if record is None or record.get("expired") or "validUntil" not in record:
            return self._lingering()
        longest = max(plan.validities)
        slack = 2 * (plan.skew + plan.resolution)
        if "leaseMs" in record:
            return max(record["leaseMs"] / 1000, longest) * 1.02 + slack + self._lingering()
        return max(record["validUntil"] / 1000 + DRIFT - now, longest * 1.02) + slack + self._lingering()

    def _bury(self) -> None:
        for process in self.processes:
            process.kill()
            process.user.close()
            process.thread.close()
            process.clients.clear()
        self.processes.clear()
        self.judge.claims.clear()
        self.bucket.landed = lambda *_: None
        gc.collect()


def _stranger(plan: Plan, *, users: int) -> ProcessPlan:
    settings = next(client.settings for each in plan.processes for client in each.clients)
    return ProcessPlan((ClientPlan(settings, "loop", users),), 1.0, 0.0, 0.0, "return")


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Whatever is dropped with a dead process complains in vain."""
    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
    enabled = gc.isenabled()
    gc.disable()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        sys.unraisablehook = hook
        if enabled:
            gc.enable()
