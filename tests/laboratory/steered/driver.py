"""Runs one behaviour of the specification on the shipped code: each step is forced, each state compared."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from random import Random
from typing import TYPE_CHECKING, Any, Final, Literal

import orjson

from asynclock.backend import Absent, Stored, Written
from asynclock.client import LockClient
from asynclock.errors import (
    BackendUnavailableError,
    OutcomeUnknownError,
    PreconditionFailedError,
    UnsupportedBackendError,
)
from asynclock.settings import LeaseSettings
from asynclock.testing._clocks import VirtualClock
from asynclock.testing._store import SimulatedBackend, SimulatedStore, StoreProfile
from asynclock.testing._virtual import DeadlockError, VirtualLoop
from tests.laboratory.names import KEY, NAME, URL
from tests.laboratory.steered.behaviours import CLIENTS, MARGIN, VALIDITY

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from asynclock.lease import Lease
    from asynclock.testing._virtual import Process
    from tests.laboratory.steered.behaviours import Step

TICK: Final = 300.0
"""Seconds; so long that what the code waits for between two steps adds up to much less."""
_OFTEN: Final = 40
"""Steps of the loop's clock within which the code must do what a step needs."""
_PAUSE: Final = 0.1
_INTERVAL: Final = 0.02
"""Seconds between two writes to a store that limits them."""
_SOME: Final = 0.5
_RARELY: Final = 0.1
_FOREVER: Final = 1e9
_SETTINGS: Final = LeaseSettings(
    validity=VALIDITY * TICK, safety_margin=MARGIN * TICK, max_clock_skew=TICK, poll_interval=0.05
)
_SILENCE: Final = 10.0
"""Seconds, more than a client waits for the store when it is closed."""
_NEVER: Final = 1e12


class LeftError(Exception):
    """The code does not go the way of the behaviour: what the step needs does not come."""


class DiffersError(AssertionError):
    """The code is in another state than the specification."""


@dataclass(slots=True, eq=False)
class _Request:
    """A request that waits until the behaviour lets it be served and answered."""

    kind: str
    body: bytes | None
    base: str | None
    answer: asyncio.Future[Any]
    at: float
    taken: bool = False
    served: bool = False
    result: Any = None

    def deliver(self) -> None:
        """Give its sender the answer."""
        if not self.answer.done():
            self.answer.set_result(self.result)


class _Gate(SimulatedBackend):
    """A backend whose requests wait."""

    def __init__(self, store: SimulatedStore, process: Process, *, dated: bool) -> None:
        super().__init__(store, process)
        self.sends_dates = dated
        self.requests: list[_Request] = []
        self.clock_resolution = TICK

    async def _send(self, kind: str, key: str, body: bytes | None, base: str | None) -> Any:  # type: ignore[override]  # noqa: ANN401
        assert key == KEY
        request = _Request(kind, body, base, self._store.loop.create_future(), self._store.loop.time())
        self.requests.append(request)
        answer = await request.answer
        if isinstance(answer, Exception):
            raise answer  # here, since coverage does not see what is thrown in
        return answer

    def serve(self, request: _Request) -> None:
        """Let the store apply a request. What was written looks older than it is, by less than S + R."""
        request.served = True
        result = self._store.serve(self._process.name, request.kind, KEY, request.body, request.base)
        if isinstance(result, Stored) and result.last_modified is not None:
            result = replace(result, last_modified=result.last_modified - 1.5 * TICK)
        if not self.sends_dates and isinstance(result, Stored | Absent | Written):
            result = replace(result, server_time=None)
        request.result = result


@dataclass(slots=True)
class _Side:
    """A client of the behaviour."""

    process: Process
    gate: _Gate
    client: LockClient
    task: asyncio.Task[Any] | None = None
    renewal: asyncio.Task[Any] | None = None
    leaving: asyncio.Task[Any] | None = None
    lease: Lease | None = None
    names: list[_Request] = field(default_factory=list)
    looked: _Request | None = None
    shown: str | None = None

    def pending(self, *kinds: str) -> _Request | None:
        """Return the oldest request of these kinds that waits for its answer, and that no step was about."""
        for request in self.gate.requests:
            if request.kind in kinds and not request.answer.done() and not request.taken:
                return request
        return None


class Driver:
    """Runs one behaviour.

    Args:
        seed: Of what the specification leaves open: how requests fail, what kind of store it is, what a lease
            is asked for.
        steps: The behaviour.
        dateless: The clients that see no Date.

    Attributes:
        done: Steps that were forced.
    """

    def __init__(self, seed: int, steps: Sequence[Step], *, dateless: Sequence[int] = ()) -> None:
        self._steps = steps
        self._random = Random(seed)
        self._paced = self._random.random() < _SOME
        self._at_most = self._random.choice((None, _FOREVER))
        versions: Literal["content", "generation"] = self._random.choice(("content", "generation"))
        profile = StoreProfile(latency=(0.0, 0.0), slow=0.0, versions=versions)
        self.loop = VirtualLoop(0)
        self.loop.set_exception_handler(lambda _, __: None)
        self.store = SimulatedStore(self.loop, Random(0), profile)
        self.sides = [
            self._side(f"client-{number}", dated=number not in dateless) for number in range(CLIENTS)
        ]
        self.done = 0

    def _side(self, name: str, *, dated: bool) -> _Side:
        clock = VirtualClock(self.loop)
        process = self.loop.process(name, clock)
        gate = _Gate(self.store, process, dated=dated)
        gate.min_write_interval = _INTERVAL if self._paced else 0.0
        with self.loop.running_as(process):
            client = LockClient(
                url=URL,
                backend=gate,
                settings=_SETTINGS,
                clock=clock,
                renewal="loop",
                rng=Random(name),
                holder=name,
            )
        core = client._core
        core._objects.timing.request_timeout = _FOREVER  # the behaviour says when no answer comes
        core._objects.timing.renew_interval = 0.0
        core._schedule._interval = _NEVER
        return _Side(process, gate, client)

    def run(self) -> str:
        """Force the steps, one after the other; return why the code left the way, or an empty text.

        After that every client is closed, and must come to an end without a belief.

        Raises:
            DiffersError: The code is in another state than the specification.
        """
        try:
            why = self._force()
            self._close()
        except DeadlockError as error:
            return f"deadlock: {error}"
        else:
            return why
        finally:
            for side in self.sides:
                side.process.kill()
                side.client._core.abandon("the behaviour is over")
            self.loop.close()

    def _force(self) -> str:
        for step in self._steps:
            try:
                getattr(self, "_" + step.action.replace(" ", "_"))(self.sides[step.client], step)
            except LeftError as left:
                return f"{step.action}: {left}"
            self._forget(step)
            self._compare(step)
            self.done += 1
        return ""

    def _close(self) -> None:
        closing = [side.process.start(side.client.aclose()) for side in self.sides]
        if self._random.random() < _RARELY:
            self._turn(_SILENCE)  # so it ends without an answer
        for _ in range(_OFTEN):
            for side in self.sides:
                for request in [each for each in side.gate.requests if not each.answer.done()]:
                    self._answer(side, request)
            if all(each.done() for each in closing):
                break
            self._turn(_PAUSE)
        else:
            raise DiffersError("a client that is closed does not come to an end")
        for each in closing:
            each.result()
        if any(side.lease is not None and side.lease.held for side in self.sides):
            raise DiffersError("a client that was closed believes")

    # The code's turn.

    def _turn(self, seconds: float = 0.001) -> None:
        self.loop.run_until_complete(asyncio.sleep(seconds))

    def _until(self, side: _Side, *kinds: str) -> _Request:
        """Return the request of these kinds that the code sends next."""
        for _ in range(_OFTEN):
            if (request := side.pending(*kinds)) is not None:
                return request
            self._turn(_PAUSE)
        raise LeftError(f"no {' or '.join(kinds)}")

    def _write(self, side: _Side, *, reads: bool | None = None) -> None:
        """Wait for the next write; a read before it gets no answer, or one if ``reads``."""
        for _ in range(_OFTEN):
            if (write := side.pending("put_if_absent", "put_if_match")) is not None:
                write.taken = True
                side.names.append(write)
                return
            if reads is not None and (read := side.pending("get")) is not None:
                if not reads:
                    self._fail(read)
                elif self._version() != side.shown:
                    raise LeftError("its Date is too old to write by, and what it looks at again has changed")
                else:
                    self._answer(side, read)
            self._turn(_PAUSE)
        raise LeftError("no write")

    def _fail(self, request: _Request, kind: Callable[..., Exception] | None = None) -> None:
        if not request.answer.done():
            unclear = BackendUnavailableError if request.kind == "get" else OutcomeUnknownError
            about: dict[str, Any] = {"backend": "simulated", "operation": request.kind, "key": KEY}
            bug = RuntimeError("a bug below the backend")
            strange = kind is None and self._random.random() < _RARELY
            request.answer.set_result(bug if strange else (kind or unclear)(**about, detail="lost"))
        self._turn()

    def _answer(self, side: _Side, request: _Request) -> None:
        if not request.served:
            side.gate.serve(request)
        request.deliver()
        self._turn()

    # Steps.

    def _tick(self, _: _Side, step: Step) -> None:
        for side, phase in zip(self.sides, step.phases, strict=True):
            if phase == "ready" and side.pending("put_if_absent", "put_if_match") is not None:
                raise LeftError("it writes at once, and its lease counts from then")
        self._turn(TICK)

    def _acquire(self, side: _Side) -> None:
        """Let a client acquire the lock, if it does not yet; it must look first."""
        side.names.clear()
        observation = side.client._core.engine(NAME)._observation
        if side.gate.sends_dates:
            observation._version = ""  # these clients use Dates only
        if side.task is None or side.task.done():
            observation.freed = None
            side.task = side.process.start(side.client.lock(NAME).acquire(at_most=self._at_most))

    def _wait(self, side: _Side, _: Step) -> None:
        self._acquire(side)
        if self._random.random() < _RARELY:
            self._fail(self._until(side, "get"))
        self._answer(side, self._until(side, "get"))
        if side.pending("put_if_absent", "put_if_match") is not None:
            raise DiffersError("it writes over a record that is not free")

    def _watch(self, side: _Side, step: Step) -> None:
        side.client._core.engine(NAME)._observation._version = ""  # what it has read back does not count
        self._wait(side, step)

    def _look(self, side: _Side, _: Step) -> None:
        self._acquire(side)
        side.looked, side.shown = None, self._version()
        if (write := side.pending("put_if_absent", "put_if_match")) is not None:
            if write.base != side.shown:
                raise LeftError("it has looked before")
            return  # what it read back showed that the lock is free
        side.looked = self._until(side, "get")
        side.gate.serve(side.looked)

    def _version(self) -> str | None:
        found = self.store._objects.get(KEY)
        return None if found is None else found.version

    def _send(self, side: _Side, _: Step) -> None:
        if side.looked is not None:
            self._answer(side, side.looked)
            side.looked = None
        self._write(side, reads=True)
        if self.loop.time() - side.names[-1].at > TICK / 2:
            raise LeftError("it has written before, and its lease counts from then")

    def _acquired(self, side: _Side) -> None:
        if side.task is None or not side.task.done() or side.task.cancelled() or side.task.exception():
            raise LeftError("no lease")
        side.lease = side.task.result()

    def _answered(self, side: _Side, _: Step) -> None:
        self._answer(side, side.names[-1])
        self._acquired(side)

    def _no_answer(self, side: _Side, _: Step) -> None:
        """Lose the answer, or have a write refused that cannot land; or one that has, and was sent twice."""
        write = side.names[-1]
        refused = write.served or write.base != self._version()
        self._fail(write, PreconditionFailedError if refused and self._random.random() < _SOME else None)

    def _read(self, side: _Side, step: Step) -> None:
        if step.phases[step.client] == "free-saw":
            self._fail(side.names[-1])
        elif step.phases[step.client] == "saw" and self._random.random() < _RARELY:
            self._fail(self._until(side, "get"))
        side.gate.serve(self._until(side, "get"))
        side.shown = self._version()

    def _settle(self, side: _Side, step: Step) -> None:
        self._answer(side, self._until(side, "get"))
        if step.phases[step.client] == "held":
            self._acquired(side)

    def _give_up(self, side: _Side, _: Step) -> None:
        assert side.task is not None
        if not side.names and side.pending("put_if_absent", "put_if_match") is not None:
            raise LeftError("it has looked before, and writes at once")
        if side.names and self._random.random() < _SOME:
            self._end_otherwise(side, side.names[-1])
        side.task.cancel()
        side.looked = None
        self._turn(_SILENCE if side.names else _PAUSE)

    def _end_otherwise(self, side: _Side, write: _Request) -> None:
        """End an acquisition by an error that waiting does not mend, or have it start over after a signal."""
        if write.answer.done():
            side.process.start(side.client._core.release_all(loss="a signal"))
            self._turn()
            if (read := side.pending("get")) is not None:
                self._fail(read)
        else:
            about: dict[str, Any] = {"backend": "simulated", "operation": write.kind, "key": KEY}
            write.answer.set_result(UnsupportedBackendError(**about, detail="418", written="unknown"))
        self._turn()

    def _renew(self, side: _Side, _: Step) -> None:
        assert side.lease is not None
        side.names.clear()
        side.renewal = side.process.start(side.lease.confirm())
        side.shown = self._version()
        self._write(side, reads=True)

    def _renew_again(self, side: _Side, _: Step) -> None:
        assert side.lease is not None
        if (read := side.pending("get")) is not None:
            self._fail(read)
        side.renewal = side.process.start(side.lease.confirm())
        self._write(side)

    def _renewed(self, side: _Side, _: Step) -> None:
        read = side.pending("get")
        self._answer(side, side.names[-1] if read is None else read)

    def _end(self, side: _Side, _: Step) -> None:
        assert side.lease is not None
        side.leaving = side.process.start(side.lease.release())
        self._turn()

    def _release(self, side: _Side, _: Step) -> None:
        for request in side.names:
            self._fail(request)
        self._write(side, reads=False)

    def _freed(self, side: _Side, step: Step) -> None:
        read = side.pending("get")
        self._answer(side, side.names[-1] if read is None else read)
        if step.phases[step.client] == "free-wait":
            # The code does not wait for the same write: it sends another one over the same base.
            side.names.pop()
            self._write(side)
        elif step.phases[step.client] == "idle":
            self._settle_down(side)

    def _settle_down(self, side: _Side) -> None:
        """Answer what the code still asks once nothing that it writes can land."""
        for _ in range(_OFTEN):
            if (request := side.pending("get", "put_if_absent", "put_if_match")) is None:
                return
            self._answer(side, request)
            self._turn(_PAUSE)
        raise LeftError("it does not come to an end")

    def _crash(self, side: _Side, _: Step) -> None:
        side.process.kill()
        side.client._core.abandon("its process was killed")
        number = self.sides.index(side)
        self.sides[number] = self._side(f"{side.process.name}+", dated=side.gate.sends_dates)

    def _land(self, side: _Side, step: Step) -> None:
        request = side.names[step.attempt]
        side.gate.serve(request)
        if isinstance(request.result, Exception):
            raise DiffersError(f"the store refuses a write that may land: {request.result}")

    # The state.

    def _forget(self, step: Step) -> None:
        """Forget attempts that do not count any more."""
        for side, tries in zip(self.sides, step.tries, strict=True):
            del side.names[tries:]

    def _compare(self, step: Step) -> None:
        body = self.store.body(KEY)
        fields = None if body is None else orjson.loads(body)
        head = "none" if fields is None else "free" if fields["expired"] else "live"
        if head != step.head:
            raise DiffersError(f"after {step.action} the newest record is {head}, must be {step.head}")
        for number, side in enumerate(self.sides):
            held = side.lease is not None and side.lease.held
            if held != step.believes[number]:
                raise DiffersError(
                    f"after {step.action} of {step.client} client {number} believes: {held}, must be "
                    f"{step.believes[number]} ({step.phases[number]})"
                )
