"""A process: a machine's clocks, two event loops, clients, users; and every way to end it."""

from __future__ import annotations

import asyncio
import gc
import random
import weakref
from typing import TYPE_CHECKING, Any

from asynclock import ConfigError, LeaseSettings
from asynclock._core import portal
from asynclock.client import LockClient
from tests.laboratory.attack.line import Line
from tests.laboratory.attack.users import User
from tests.laboratory.attack.world import Machine, ProcessLoop

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from tests.laboratory.attack.bucket import Bucket
    from tests.laboratory.attack.judge import Judge
    from tests.laboratory.attack.plan import ClientPlan, Plan, ProcessPlan
    from tests.laboratory.attack.world import World

SIGNALLED = "a signal told its process to end"
FORKED = "this is a forked child, the lease is the parent's"


class _HostOf:
    """What stands for the library's host thread: a loop that runs beside the user's."""

    def __init__(self, loop: ProcessLoop) -> None:
        self.loop = loop


class Process:
    """One process.

    Args:
        name: For the trace.
        plan: Its clocks, clients and ending.
        history: The plan of the whole history.
        bucket: The store.
        judge: Told of what happens.
    """

    def __init__(self, name: str, plan: ProcessPlan, history: Plan, bucket: Bucket, judge: Judge) -> None:
        self.name = name
        self.plan = plan
        self.history = history
        self.bucket = bucket
        self.judge = judge
        self.world: World = bucket.world
        self.rng = random.Random(f"process {history.seed} {name}")
        self.machine = Machine(
            self.world,
            rate=plan.rate,
            wall_error=plan.wall_error,
            grain=plan.grain,
            origin=self.rng.random() * 1e5,
        )
        self.alive = True
        self.ending = False
        """Users begin nothing more."""
        self.clients: list[tuple[LockClient, Line]] = []
        self.tasks: list[weakref.ref[asyncio.Task[Any]]] = []
        self._made = 0
        self._new_loops()

    def _new_loops(self) -> None:
        self.user = ProcessLoop(self.world, self.machine, f"{self.name}.user")
        self.thread = ProcessLoop(self.world, self.machine, f"{self.name}.host")
        self.host = _HostOf(self.thread)

    def owns(self, loop: ProcessLoop) -> bool:
        """Whether that is one of its loops; if so its host becomes the library's."""
        if loop is not self.user and loop is not self.thread:
            return False
        portal.Host._current = self.host  # type: ignore[assignment]
        return True

    def start(self) -> None:
        """Connect every client and start its users."""
        for plan in self.plan.clients:
            client = self.connect(plan)
            for number in range(plan.users):
                user = User(self, plan, client, f"{self.name}.{self._made}.{number}", self.clients)
                self.spawn(user.run())

    def spawn(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Start a task on the user's loop."""
        task = self.user.create_task(coroutine)
        self.tasks.append(weakref.ref(task))
        return task

    def connect(self, plan: ClientPlan) -> LockClient:
        """Make a client; where the settings are refused, with twice the validity."""
        self._made += 1
        who = f"{self.name}.{self._made}"
        line = Line(self.bucket, who, random.Random(f"line {self.history.seed} {who}"))
        settings = dict(plan.settings)
        while True:
            try:
                client = LockClient(
                    url=f"attack://{who}",
                    backend=line,
                    settings=LeaseSettings(**settings),
                    renewal=plan.renewal,  # type: ignore[arg-type]
                    clock=self.machine,
                    events=line.hear,
                    holder=who,
                    rng=random.Random(f"client {self.history.seed} {who}"),
                )
            except ConfigError:
                settings["validity"] *= 2
                settings["safety_margin"] *= 2
                continue
            self.clients.append((client, line))
            return client

    def line_of(self, client: LockClient) -> Line:
        """Return the way to the store of a client."""
        return next(line for each, line in self.clients if each is client)

    # Misfortunes and ends.

    def strike(self, kind: str, size: float) -> None:
        """Let something happen to it."""
        if not self.alive:
            return
        self.world.tell(self.name, f"--- {kind} {size:.3f}")
        validity = self.rng.choice(self.plan.clients).settings["validity"]
        longest = min(1.5 * validity, 600.0)
        if kind == "stop":
            for loop in (self.user, self.thread):
                loop.stopped_until = self.world.now + size * longest
        elif kind == "suspend":
            self.machine.suspend(size * longest)
        elif kind == "step":
            self.machine.wall_error += self.rng.choice((-1, 1)) * size**3 * 2 * validity
        elif kind in {"aclose", "aclose_twice"}:
            if self.user.is_closed():
                return
            client = self.rng.choice(self.clients[-3:])[0]
            for pause in (0.0,) if kind == "aclose" else (0.0, size * 3 * self.history.weather.trip):
                self.spawn(self.close(client, pause))
        elif kind == "break":
            pass  # the operator's
        else:
            getattr(self, kind)()

    async def close(self, client: LockClient, pause: float = 0.0) -> None:
        """Close a client; from then on it holds nothing and asks the store nothing."""
        await asyncio.sleep(pause)
        line = self.line_of(client)
        first, line.closing = not line.silent, line.closing or (self.world.now, line.failures)
        await client.aclose()
        self.world.tell(line.who, "closed")
        began, failures = line.closing
        if first and failures == line.failures and self.world.now - began < 0.9 * client._core.exit_bound:
            self.judge.nothing_left(line.who)
        for claim in list(self.judge.claims):
            if claim.who == line.who and claim.held:
                self.judge.blame("closed", f"{line.who} believes in {claim.key} after an aclose()")
        line.silent = True

    def signal(self, done: Callable[[], object] = lambda: None, *, loss: str | None = SIGNALLED) -> None:
        """Do what the handlers of the library do: release all, on the loop of each client."""
        for client, line in self.clients:
            loop = client._core.loop
            if loop is not None and loop.is_running() and not line.silent:
                released = asyncio.run_coroutine_threadsafe(client._core.release_all(loss=loss), loop)
                released.add_done_callback(lambda _: done())

    def kill(self) -> None:
        """End it at once."""
        self.alive = False
        self.user.dead = self.thread.dead = True
        for _, line in self.clients:
            line.dead = True
        self.judge.claims = [each for each in self.judge.claims if not self._made_claim(each.who)]

    def _made_claim(self, who: str) -> bool:
        return any(line.who == who for _, line in self.clients)

    def exit(self) -> None:
        """End as an interpreter does: the user's loop first (half of them clean up), then ``atexit``."""
        self.ending = True
        if self.rng.random() < 0.5 and not self.user.is_closed():
            for task in [ref() for ref in self.tasks]:
                if task is not None:
                    self.user.call_soon(task.cancel)
            del task
        pause = 10 * self.history.weather.trip
        self.world.at(self.world.now + pause, self._at_exit)

    def _at_exit(self) -> None:
        if not self.alive:
            return
        self.world.tell(self.name, "--- its user's loop is closed, atexit runs")
        self.user.close()
        self.signal(loss=None)
        bound = min([2.0, *(client._core.exit_bound for client, _ in self.clients)])
        self.world.at(self.world.now + bound, self.kill)

    def close_loop(self) -> None:
        """Close the user's loop by force, its tasks as they are; the process lives on."""
        self.ending = True
        self.user.close()
        gc.collect()

    def fork(self) -> None:
        """Go on as a forked child whose parent is killed at that instant."""
        lines = self.clients
        self.user.dead = self.thread.dead = True
        self.clients = []
        for client, line in lines:
            client._core.abandon(FORKED)
            line.silent = True
            for claim in list(self.judge.claims):
                if claim.who == line.who and claim.held:
                    self.judge.blame("fork", f"the child of {line.who} believes in {claim.key}")
        self._graveyard = lines
        self._new_loops()
        self.tasks = []
        self.start()

    def finish(self) -> None:
        """End as the plan says."""
        if not self.alive or self.ending:
            return
        self.world.tell(self.name, f"--- ends: {self.plan.ending}")
        self.ending = True
        if self.plan.ending == "return":
            for client, line in self.clients:
                if not line.silent:
                    self.spawn(self.close(client))
        else:
            getattr(self, self.plan.ending)()
