"""The machines of a simulated history: clocks, clients, and the way to the store."""

from __future__ import annotations

import re
from random import Random
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from asynclock._text import SUFFIX
from asynclock.client import LockClient
from asynclock.testing._clocks import VirtualClock
from asynclock.testing._faulty import FaultyBackend
from tests.laboratory.names import KEY, URL
from tests.laboratory.users import User

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from asynclock.backend import Absent, Stored, Written
    from asynclock.clock import Clock
    from asynclock.errors import ConfigError, RecordCorruptError
    from asynclock.events import Event
    from asynclock.testing._store import SimulatedBackend, SimulatedStore
    from asynclock.testing._virtual import Process, VirtualLoop
    from tests.laboratory.checker import Checker
    from tests.laboratory.plan import Plan
    from tests.laboratory.shared import Sharing

T = TypeVar("T")
_LEAST_BEHIND_HUDI: Final = 1.25
"""A lease must last this many times S + R to get a token behind a Hudi writer, which drops tokens."""
_OWNER: Final = re.compile(rb'"owner":"([^"]+)"')


def _refuse_to_hear(event: Event) -> None:
    raise RuntimeError(event.kind)


class Stage(Protocol):
    """What a machine needs to know of the history it takes part in."""

    plan: Plan
    label: str
    loop: VirtualLoop
    store: SimulatedStore
    checker: Checker
    sharing: Sharing
    ends: float

    def unreadable(self, who: str, error: RecordCorruptError) -> None:
        """Check that a record that is corrupt to somebody was not ours."""
        ...


class SimulatedFaults(FaultyBackend):
    """Faults whose late writes travel on the network, not in the process that sent them."""

    network: Process

    def __init__(self, inner: SimulatedBackend, *, seed: int = 0, clock: Clock | None = None) -> None:
        super().__init__(inner, seed=seed, clock=clock)
        self._way = inner
        self._store = inner._store
        self._writing: list[str] = []

    async def get(self, key: str) -> Stored | Absent:
        """Read an object, perhaps spoiled."""
        self._way.note_use("get")
        return await super().get(key)

    async def put_if_absent(self, key: str, body: bytes) -> Written:
        """Create an object, perhaps spoiled."""
        self._way.note_use("put_if_absent")
        return await self._watched(key, body, super().put_if_absent(key, body))

    async def put_if_match(self, key: str, body: bytes, version: str) -> Written:
        """Replace an object, perhaps spoiled."""
        self._way.note_use("put_if_match")
        return await self._watched(key, body, super().put_if_match(key, body, version))

    @property
    def used(self) -> bool:
        """Whether a request was ever sent."""
        return self._way.used

    @property
    def closed(self) -> bool:
        """Whether ``aclose`` was called."""
        return self._way.closed

    def spawn(self, stray: Coroutine[Any, Any, Any]) -> None:
        """Run a late write on the network."""
        self.network.start(stray)

    async def _watched(self, key: str, body: bytes, call: Coroutine[Any, Any, Written]) -> Written:
        """Tell the store of a write of the lock as long as its sender waits for it."""
        if not key.endswith(SUFFIX) or self._store.on_send is None:
            return await call
        found = _OWNER.search(body)
        assert found is not None
        owner = found[1].decode()
        if not self._store.on_send(owner, body, beside=owner in self._writing):
            return await call
        self._writing.append(owner)
        try:
            return await call
        finally:
            self._writing.remove(owner)

    def _noted(
        self,
        operation: str,  # noqa: ARG002
        key: str,  # noqa: ARG002
        fault: object,  # noqa: ARG002
        call: Coroutine[Any, Any, T],
    ) -> Coroutine[Any, Any, T]:
        # No journal: the store's is the truth.
        return call


class Machine:
    """One machine: clocks that survive a crash, and the program that runs on it.

    Attributes:
        clients: The client that locks, and where fenced objects are shared one beside it.
        runs_from: True time since which, or from which, it runs without being stopped.
    """

    def __init__(self, run: Stage, index: int) -> None:
        plan = run.plan
        self.name = f"client-{index}"
        self._index = index
        self.settings = plan.settings[index]
        self.clock = VirtualClock(
            run.loop,
            offset=plan.wall_errors[index] if plan.wall_errors else 0.0,
            drift=plan.drifts[index] if plan.drifts else 0.0,
            boot=1000.0 * (index + 1),
        )
        self._run = run
        self._rng = Random(f"{run.label}/{self.name}")
        self._life = 0
        self.runs_from = 0.0
        self._stops: list[tuple[float, float]] = []
        self.boot()

    def stop(self, *, until: float) -> None:
        """Note that it is stopped from now on."""
        begin = max(self._run.loop.time(), self.runs_from)
        if until > begin:
            self._stops.append((begin, until))
            self.runs_from = until

    def ran(self, since: float) -> float:
        """Return for how many seconds since then it was not stopped."""
        now = self._run.loop.time()
        return now - since - sum(max(0.0, min(end, now) - max(begin, since)) for begin, end in self._stops)

    def boot(self) -> None:
        """Start a new process with a new client."""
        run = self._run
        self._life += 1
        self.process = run.loop.process(self.name, self.clock)
        self.backend = self._backend(self._rng)
        self.client = self._client(self.backend, self._rng)
        self.clients, self.backends = [self.client], [self.backend]
        if run.plan.shared:
            rng = Random(f"{run.label}/{self.name}/{self._life}/beside")
            self.backends.append(self._backend(rng))
            self.clients.append(self._client(self.backends[-1], rng))
        users = run.plan.waiters[self._index] if run.plan.waiters else run.plan.users
        self.users = [
            User(run, self, f"{self.name}/{number}" if run.plan.users > 1 else self.name, self._rng)
            for number in range(users)
        ]

    def _backend(self, rng: Random) -> SimulatedFaults:
        run = self._run
        backend = SimulatedFaults(run.store.backend(self.process), seed=rng.getrandbits(32), clock=self.clock)
        backend.network = run.store.network
        backend.delay = run.plan.delay
        backend.date_error = run.plan.date_error
        backend.storm(run.plan.faults)
        return backend

    def _client(self, backend: SimulatedFaults, rng: Random) -> LockClient:
        with self._run.loop.running_as(self.process):
            return LockClient(
                url=URL,
                backend=backend,
                settings=self.settings,
                clock=self.clock,
                renewal="loop",
                rng=Random(rng.getrandbits(64)),
                holder=f"{self.name}:{self._life}:simulation",
                events=_refuse_to_hear if self._run.plan.deaf else None,
            )

    def check_refusal(self, error: ConfigError) -> None:
        """Check that a lease was refused for being too short to get a token behind a Hudi writer (rule 11).

        Raises:
            ConfigError: It was refused for something else.
        """
        run, name = self._run, self.name
        slack = self.settings.max_clock_skew + run.plan.store.resolution
        journal = (each for each in reversed(run.store.journal) if each.client == name)
        seen = next((each.body for each in journal if each.kind == "get" and each.key == KEY), None)
        too_short = error.setting == "validity" and self.settings.validity < _LEAST_BEHIND_HUDI * slack
        if not too_short or seen is None or b'"epoch"' in seen:
            raise error
        run.checker.refused(name)

    def start(self) -> None:
        """Let the users begin."""
        for user in self.users:
            user.start()
