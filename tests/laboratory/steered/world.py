"""Behaviours of what users, operators and Hudi do with a lock: the shipped code goes along."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, Final, Literal

import orjson

from asynclock._core import verification
from asynclock._core.prune import prune
from asynclock.client import LockClient
from asynclock.errors import (
    AcquireTimeoutError,
    AsyncLockError,
    BackendError,
    BackendUnavailableError,
    ConfigError,
    LeaseLostError,
    LockChangedError,
    TicketSpentError,
    UnsupportedBackendError,
)
from asynclock.settings import LeaseSettings
from asynclock.testing._clocks import EPOCH, VirtualClock
from asynclock.testing._store import SimulatedStore, StoreProfile
from asynclock.testing._virtual import DeadlockError, VirtualLoop
from tests.laboratory.names import KEY, NAME, URL
from tests.laboratory.steered.driver import DiffersError, LeftError
from tests.laboratory.steered.weather import GOOD, Sky, WeatherBackend

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from asynclock.lease import Lease
    from asynclock.lock import Lock
    from asynclock.testing._virtual import Process
    from tests.laboratory.steered.worlds import Behaviour, Step

TICK: Final = 60.0
"""Seconds."""
_SETTINGS: Final = LeaseSettings(
    validity=4.45 * TICK,
    safety_margin=0.95 * TICK,
    max_clock_skew=0.5,
    poll_interval=1.0,
    renew_interval=0.1 * TICK,
)
_FULL: Final = 0.3 * TICK
"""What the steps of a tick may take, so that ages are those of the specification."""
_PAUSE: Final = 0.25
_PATIENCE: Final = 44
"""Pauses after which the code must be where the specification is."""
_REFUSED: Final = 4.0
_DAY: Final = 90_000.0
_WRONG: Final = 3600.0
_CROWD: Final = 70
_ASLEEP: Final = 2.0
"""Seconds, more than between two looks of a client at its locks."""
_RARELY: Final = 0.02
_SOME: Final = 0.25
_OFTEN: Final = 0.6


@dataclass(slots=True)
class _Side:
    """A client of the behaviour, and what it does."""

    process: Process
    client: LockClient
    task: asyncio.Task[Any] | None = None
    line: asyncio.Task[Any] | None = None
    lease: Lease | None = None
    leave: asyncio.Event = field(default_factory=asyncio.Event)
    dozes: bool = False
    tasks: list[asyncio.Task[Any]] = field(default_factory=list)

    @property
    def believes(self) -> bool:
        """Whether it believes that it holds the lock."""
        for task in (self.task, self.line):
            if task is not None and task.done() and not task.cancelled() and task.exception() is None:
                self.lease = task.result() or self.lease
        return self.lease is not None and self.lease.held

    def start(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run a call of a user in its process."""
        task = self.process.start(coroutine)
        self.tasks.append(task)
        return task


class World:
    """Runs one behaviour.

    Args:
        seed: Of what the specification leaves open: how a call is made, what kind of store it is.
        behaviour: What is done.

    Attributes:
        done: Steps that were gone along.
    """

    def __init__(self, seed: int, behaviour: Behaviour) -> None:
        self.done = 0
        self._rng = Random(seed)
        self._behaviour = behaviour
        self._loop = VirtualLoop(seed)
        self._loop.set_exception_handler(lambda _, __: None)
        self._sky = Sky(behaviour.trouble, self._rng)
        self._store = self._made_store()
        self._place = self._rng.choice((None, None, "", GOOD, "slow", "fails"))
        self._sides = [self._side(f"client-{number}") for number in range(2)]
        self._operator = self._side("operator")
        self._tick_began = self._loop.time()
        self._ticket = ""
        self._crowded: _Side | None = None
        self._gone: list[_Side] = []  # a lease that is collected would be released

    def _made_store(self) -> SimulatedStore:
        paced = self._rng.random() < _SOME
        versions: Literal["content", "generation"] = self._rng.choice(("content", "generation"))
        profile = StoreProfile(
            dates=self._behaviour.dated,
            last_modified=self._behaviour.modified,
            latency=(0.005, 0.01),
            slow=0.0,
            versions="generation" if paced else versions,
            write_interval=1.0 if paced else 0.0,
        )
        return SimulatedStore(self._loop, self._rng, profile)

    def _side(self, name: str) -> _Side:
        wrong = self._behaviour.wrong and name.startswith("client-1")
        clock = VirtualClock(self._loop, offset=_WRONG if wrong else 0.0)
        process = self._loop.process(name, clock)
        verification._verified[GOOD] = time.monotonic()
        backend = WeatherBackend(self._store, process, self._sky, self._place)
        with self._loop.running_as(process):
            client = LockClient(
                url=URL,
                backend=backend,
                settings=_SETTINGS,
                clock=clock,
                renewal="loop",
                rng=Random(name),
                holder=name,
            )
        return _Side(process, client)

    def run(self) -> str:
        """Go along; return why the code left the way, or an empty text.

        After that every client is closed, and must come to an end without a belief.

        Raises:
            DiffersError: The code is in another state than the specification.
        """
        try:
            why = self._go()
            self._close_all()
        except DeadlockError as error:
            return f"deadlock: {error}"
        else:
            return why
        finally:
            for side in (*self._sides, self._operator):
                side.process.kill()
                side.client._core.abandon("the behaviour is over")
            self._loop.close()

    def _go(self) -> str:
        if self._rng.random() < _RARELY and all(step.action != "night" for step in self._behaviour.steps):
            self._warm_up()
        before: tuple[bool, ...] = (False, False)
        for step in self._behaviour.steps:
            try:
                getattr(self, "_" + step.action.replace(" ", "_"))(step.client)
                self._come_to(step, before)
            except LeftError as left:
                return f"{step.action}: {left}"
            before = step.may_believe
            self.done += 1
        return ""

    def _warm_up(self) -> None:
        """Have a client hold many more locks, whose renewals are spread."""
        side = self._crowded = self._sides[0]
        for _ in range(2):  # some are in line behind a store that is tried out
            for number in range(_CROWD):
                side.start(side.client.lock(f"other-{number}").acquire(timeout=0.5))
            self._turn(5.0)
        self._turn(TICK)
        self._tick_began = self._loop.time()

    def _close_all(self) -> None:
        self._sky.clear()
        for side in self._sides:
            side.process.resume()
        closing = [side.process.start(side.client.aclose()) for side in (*self._sides, self._operator)]
        for _ in range(_PATIENCE):
            if all(each.done() for each in closing):
                break
            self._turn()
        else:
            raise DiffersError("a client that is closed does not come to an end")
        for each in closing:
            each.result()
        if any(side.believes for side in self._sides):
            raise DiffersError("a client that was closed believes")

    # Where the code is.

    def _turn(self, seconds: float = _PAUSE) -> None:
        self._loop.run_until_complete(asyncio.sleep(seconds))

    def _come_to(self, step: Step, before: tuple[bool, ...]) -> None:
        """Wait until the code is where the specification is; meanwhile nobody else believes."""
        for _ in range(_PATIENCE):
            self._turn()
            if self._is_at(step):
                break
            if any(
                side.believes and not (was or will)
                for side, was, will in zip(self._sides, before, step.may_believe, strict=True)
            ):
                break
        if not self._is_at(step):
            believe = [side.believes for side in self._sides]
            raise DiffersError(
                f"after {step.action} of {step.client}: believe {believe}, {self._kind()}; "
                f"must be {step.believes}, {step.kind} ({step.phases})"
            )
        for side, phase in zip(self._sides, step.phases, strict=True):
            if phase == "waits" and side.task is not None and side.task.done():
                raise DiffersError(f"after {step.action}: {side.process.name} does not wait")
        if step.action in {"crash", "pause", "down"} and not self._saw_the_last(step):
            raise LeftError("it was renewed after the last look")
        if self._loop.time() - self._tick_began > _FULL:
            raise LeftError("the tick is full")

    def _saw_the_last(self, step: Step) -> bool:
        """Whether who watches has seen what the holder wrote last before it fell silent."""
        return all(
            self._has_seen_the_last(side)
            for side, phase, watched in zip(self._sides, step.phases, step.watched, strict=True)
            if watched and phase in {"idle", "waits"}
        )

    def _has_seen_the_last(self, side: _Side) -> bool:
        found = self._store._objects.get(KEY)
        return found is None or side.client._core.engine(NAME)._observation._version == found.version

    def _is_at(self, step: Step) -> bool:
        believe = [side.believes for side in self._sides]
        for side, phase in zip(self._sides, step.phases, strict=True):
            if phase == "idle" and side.task is not None and not side.task.done():
                return False  # it waits no more
        ranges = zip(step.believes, believe, step.may_believe, strict=True)
        return all(least <= now <= most for least, now, most in ranges) and self._kind() == step.kind

    def _kind(self) -> str:
        body = self._store.body(KEY)
        if body is None:
            return "none"
        try:
            fields = orjson.loads(body)
        except orjson.JSONDecodeError:
            return "corrupt"
        if fields["expired"]:
            return "free"
        return "kept" if fields.get("kept") else "live" if "epoch" in fields else "hudi"

    # Users.

    def _ready(self, number: int) -> _Side:
        """Return a client that makes way for nobody."""
        side = self._sides[number]
        fairness = side.client._core.engine(NAME).turns.fairness
        while fairness.away_for(self._loop.time()) > 0:
            self._turn()
        return side

    def _acquire(self, number: int, **named: Any) -> None:  # noqa: ANN401  those of ``acquire``
        side = self._ready(number)
        if self._crowded is side:
            side.process.suspend(_ASLEEP)
        side.lease = None
        side.leave = asyncio.Event()
        how = self._rng.choice(("acquire", "acquire", "timeout", "body", "together", "try"))
        lock = side.client.lock(NAME)
        if "at_most" in named:  # only who leaves frees the record
            how = self._rng.choice(("body", "outlives"))
        if how == "timeout":
            named["timeout"] = self._rng.choice((60.0, 8.0))
        if how == "body":
            side.task = None
            side.start(self._hold(side, lambda: lock.hold(**named)))
        elif how == "together" and not named:
            side.task = None
            # A new one each time: a record that a lost lock has left there would have to be waited for.
            names = [NAME, f"of-{side.process.name}-{self.done}"]
            side.start(self._hold(side, lambda: side.client.hold_all(names)))
        elif how == "outlives":
            side.task = None
            side.start(self._outlive(side, lock, **named))
        elif how == "try" and not named:
            side.task = side.start(self._tried(lock))
        else:
            side.task = side.start(lock.acquire(**named))

    async def _outlive(self, side: _Side, lock: Lock, **named: Any) -> None:  # noqa: ANN401  as above
        """Hold a lock to its end, and then release it twice at a time."""
        lease = side.lease = await lock.acquire(**named)
        lease._held.on_lost(lambda _: side.leave.set())
        await side.leave.wait()
        if not lease.held:
            await asyncio.gather(self._released(lease), self._released(lease))

    async def _tried(self, lock: Lock) -> Lease:
        """Try once first; who makes way, or has seen no usable Date yet, gets nothing by that."""
        with suppress(UnsupportedBackendError, BackendUnavailableError):
            if (lease := await lock.try_acquire()) is not None:
                return lease
        return await lock.acquire()

    def _hurry(self, number: int) -> None:
        side = self._ready(number)
        task = side.start(side.client.lock(NAME).acquire(timeout=0.3))
        for _ in range(_PATIENCE):
            self._turn()
            if task.done():
                break
        if not isinstance(task.exception(), AcquireTimeoutError):
            raise LeftError("the token has settled in no time")
        if self._kind() == "hudi":
            raise LeftError("its time was up before it could write")

    def _doze(self, number: int) -> None:
        side = self._ready(number)
        side.lease = None
        side.task = side.start(side.client.lock(NAME).acquire())
        for _ in range(_PATIENCE * 25):
            self._turn(0.01)
            if self._kind() == "live":
                break
        self._turn(self._rng.choice((0.0, 0.02)))
        if side.believes:
            raise LeftError("its token has settled in no time")
        side.dozes = True
        side.process.pause()

    def _break_in_line(self, number: int) -> None:
        self._operate(self._broken())
        self._release(number)

    def _acquire_keeping(self, number: int) -> None:
        self._acquire(number, at_least=8.45 * TICK)

    def _acquire_capped(self, number: int) -> None:
        self._acquire(number, at_most=2.45 * TICK)

    async def _hold(self, side: _Side, entered: Callable[[], Any]) -> None:
        with suppress(LeaseLostError):
            async with entered() as held:
                side.lease = held[0] if isinstance(held, list) else held
                await side.leave.wait()

    def _fail(self, number: int) -> None:
        side = self._ready(number)
        lock = side.client.lock(NAME)
        silent = self._sky.down and self._sky.trouble == "silent"
        how = "soon" if silent else self._rng.choice(("try", "once", "soon"))
        call = lock.try_acquire() if how == "try" else lock.acquire(timeout=0 if how == "once" else 1.5)
        trial = side.start(call)
        for _ in range(_PATIENCE):
            self._turn()
            if trial.done():
                break
        else:
            raise DiffersError(f"a call that must fail soon ({how}) does not end")
        self._let_refuse()
        error = trial.exception()
        if error is None and trial.result() is not None:
            raise DiffersError("it has acquired a lock that is not free")
        if error is not None and not isinstance(error, AsyncLockError):
            raise error

    def _wait(self, number: int) -> None:
        side = self._ready(number)
        side.lease = None
        side.task = side.start(side.client.lock(NAME).acquire())

    def _give_up(self, number: int) -> None:
        side = self._sides[number]
        for _ in range(_PATIENCE):
            if self._sky.down or self._has_seen_the_last(side):
                break
            self._turn()  # it looks at each poll, and not only at a step
        assert side.task is not None
        with self._loop.running_as(side.process):
            side.task.cancel()

    def _line(self, number: int) -> None:
        side = self._sides[number]
        timeout = self._rng.choice((None, None, 0.2))
        side.line = side.start(side.client.lock(NAME).acquire(timeout=timeout))
        if timeout is not None:  # it leaves the line, and another one takes its place
            self._turn(1.0)
            side.line = side.start(side.client.lock(NAME).acquire())

    def _leave_line(self, number: int) -> None:
        line = self._sides[number].line
        assert line is not None
        with self._loop.running_as(self._sides[number].process):
            line.cancel()

    def _release(self, number: int) -> None:
        side = self._sides[number]
        lease = side.lease
        assert lease is not None
        side.task, side.line = side.line, None
        if side.leave.is_set() or not side.tasks:
            raise LeftError("it has left")
        with self._loop.running_as(side.process):
            side.leave.set()
        if self._rng.random() < _SOME:
            side.start(self._confirmed(lease))
            side.start(self._confirmed(lease))
            self._turn(self._rng.choice((0.001, 0.012)))
        side.start(self._released(lease))
        self._let_refuse()

    async def _confirmed(self, lease: Lease) -> None:
        with suppress(LeaseLostError, BackendError, ConfigError):
            await lease.confirm()

    def _let_refuse(self) -> None:
        """Wait until what is freed has been refused three times."""
        if self._sky.down and self._sky.trouble == "refused":
            self._turn(_REFUSED)

    async def _released(self, lease: Lease) -> None:
        with suppress(LeaseLostError):
            await lease.release()

    def _leave_handed(self, number: int) -> None:
        line = self._sides[number].line
        assert line is not None
        self._release(number)
        self._turn(self._rng.choice((0.0, 0.003, 0.006)))
        with self._loop.running_as(self._sides[number].process):
            line.cancel()

    def _transfer(self, number: int) -> None:
        side = self._sides[number]
        assert side.lease is not None
        task = side.start(side.lease.transfer())
        for _ in range(_PATIENCE):
            self._turn()
            if task.done():
                break
        self._ticket = task.result()
        side.task = None
        with self._loop.running_as(side.process):
            side.leave.set()

    def _redeem(self, number: int) -> None:
        side = self._ready(number)
        side.lease = None
        side.task = side.start(side.client.lock(NAME).acquire(ticket=self._ticket))

    def _redeem_spent(self, number: int) -> None:
        side = self._ready(number)
        task = side.start(side.client.lock(NAME).acquire(ticket=self._ticket))
        for _ in range(_PATIENCE):
            self._turn()
            if task.done():
                break
        if not isinstance(task.exception(), TicketSpentError):
            raise DiffersError(f"a spent ticket gives {task.exception()}")

    # Processes.

    def _crash(self, number: int) -> None:
        side = self._sides[number]
        side.process.kill()
        side.client._core.abandon("its process was killed")
        self._gone.append(side)
        self._sides[number] = self._side(f"{side.process.name}b")

    def _pause(self, number: int) -> None:
        side = self._sides[number]
        while any(held.renewer.running for held in side.client._core._schedule.held):
            self._turn(0.01)
        side.process.pause()

    def _resume(self, number: int) -> None:
        side = self._sides[number]
        timing = side.client._core._objects.timing
        interval = timing.renew_interval
        # Who has dozed may have little left: it renews before it is handed the lock (7).
        timing.renew_interval = self._rng.choice((interval, 4 * TICK, 4 * TICK))
        side.process.resume()
        if side.dozes and self._rng.random() < _OFTEN:
            self._jump(side)
        side.dozes = False
        self._turn(0.5)
        timing.renew_interval = interval
        self._let_refuse()

    def _jump(self, side: _Side) -> None:
        """Move a wall clock ahead and back while a client acquires, so that nothing is left of its lease."""
        clock, task = side.process.clock, side.task
        assert clock is not None
        assert task is not None
        self._turn(self._rng.choice((0.003, 0.008, 0.012)))
        if task.done():
            return
        clock.step(_SETTINGS.validity)
        self._turn(0.01)
        clock.step(-_SETTINGS.validity)
        if task.done() and not task.cancelled() and task.exception() is None and not side.believes:
            raise LeftError("its clock jumped after the last look at the lease")

    def _close(self, number: int) -> None:
        side = self._sides[number]
        side.start(side.client.aclose())
        self._turn(3.0)
        if side.believes:
            raise DiffersError("a client that was closed believes")
        if side.lease is not None and self._rng.random() < _SOME:
            entered = side.start(self._entered(side.lease))
            self._turn()
            entered.result()
        side.process.kill()
        side.client._core.abandon("its process has ended")
        self._gone.append(side)
        self._sides[number] = self._side(f"{side.process.name}b")

    async def _entered(self, lease: Lease) -> None:
        """Enter a lease whose client was closed: it was released, or is lost."""
        with suppress(LeaseLostError):
            async with lease:
                if lease.held:
                    raise DiffersError("a lease of a closed client is entered")

    def _signal(self, number: int) -> None:
        side = self._sides[number]
        side.start(side.client._core.release_all(loss="a signal told its process to end"))

    # The others.

    def _hudi_take(self, _: int) -> None:
        until = round((EPOCH + self._loop.time() + _SETTINGS.validity) * 1000)
        self._write(orjson.dumps({"expired": False, "validUntil": until, "owner": "hudi"}))

    def _hudi_release(self, _: int) -> None:
        self._write(orjson.dumps({"expired": True, "validUntil": 1_700_000_000_000, "owner": "hudi"}))

    def _corrupt(self, _: int) -> None:
        self._write(b"{not a record")

    def _write(self, body: bytes) -> None:
        for _ in range(_PATIENCE):
            found = self._store._objects.get(KEY)
            kind = "put_if_absent" if found is None else "put_if_match"
            answer = self._store.serve("other", kind, KEY, body, None if found is None else found.version)
            if not isinstance(answer, Exception):
                return
            self._turn()
        raise LeftError("the store limits writes")

    def _break(self, _: int) -> None:
        self._operate(self._broken())

    async def _broken(self) -> None:
        lock = self._operator.client.lock(NAME)
        while True:
            with suppress(BackendUnavailableError, LockChangedError):  # the store limits writes
                await lock.break_lock(await lock.status(), force=True)
                return

    def _delete(self, _: int) -> None:
        self._store.delete_now(KEY)

    def _night(self, _: int) -> None:
        self._turn(_DAY)
        self._tick_began = self._loop.time()

    def _prune(self, _: int) -> None:
        self._operate(prune(self._operator.client._core, older_than=86_400.0))

    def _operate(self, call: Coroutine[Any, Any, Any]) -> None:
        task = self._operator.start(call)
        for _ in range(_PATIENCE):
            self._turn()
            if task.done():
                break
        task.result()

    # The store and time.

    def _down(self, _: int) -> None:
        self._sky.down = True

    def _clear(self, _: int) -> None:
        self._sky.clear()
        self._turn(8.0)

    def _tick(self, _: int) -> None:
        self._tick_began += TICK
        self._turn(self._tick_began - self._loop.time())
