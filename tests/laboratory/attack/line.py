"""A client's unreliable way to the bucket."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from asynclock.backend import Absent, Entry, Stored, Written
from asynclock.errors import (
    BackendError,
    BackendUnavailableError,
    OutcomeUnknownError,
    PreconditionFailedError,
)

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncIterator, Callable

    from asynclock.events import Event
    from tests.laboratory.attack.bucket import Bucket
    from tests.laboratory.attack.world import ProcessLoop

FATES: Final = ("lost", "mute", "late", "twice", "busy")
REFUSALS: Final = (BackendUnavailableError, OutcomeUnknownError, PreconditionFailedError)
NAME: Final = "attack"


class Line:
    """A client's way to the bucket: its ``Backend``.

    Args:
        bucket: The store.
        who: For the trace.
        rng: For the fate of each request.
    """

    name: Final = NAME

    def __init__(self, bucket: Bucket, who: str, rng: random.Random) -> None:
        self.clock_resolution = bucket.resolution
        self.min_write_interval = bucket.spacing
        self.sends_dates = bucket.weather.undated < 1
        self.versions_may_repeat = bucket.hashed
        self.who = who
        self.dead = False
        """Its process was killed: nothing more is sent."""
        self.silent = False
        """Its client was closed or belongs to a forked child: every request is a violation."""
        self.closing: tuple[float, int] | None = None
        """When its client began to close, and how many requests had failed by then."""
        self.pending: set[str] = set()
        """Owners whose release has returned before the store confirmed it."""
        self.trespasses: list[str] = []
        self.trips: dict[str, tuple[float, float]] = {}
        """Seconds there and back of a ``get`` or a ``put``, where they are not drawn."""
        self.failures = 0
        """How many of its requests had another fate than to be answered in time."""
        self.bucket = bucket
        self.rng = rng

    def hear(self, event: Event) -> None:
        """Take an event of the client."""
        if event.kind == "release_pending":
            self.pending.add(event.owner)

    async def get(self, key: str) -> Stored | Absent:
        """Read an object."""
        found: Stored | Absent = await self._send("get", key, lambda: self.bucket.get(key))
        return found

    async def put_if_absent(self, key: str, body: bytes) -> Written:
        """Create an object."""
        return await self._write("put_if_absent", key, body, None)

    async def put_if_match(self, key: str, body: bytes, version: str) -> Written:
        """Replace a version of an object."""
        return await self._write("put_if_match", key, body, version)

    async def _write(self, operation: str, key: str, body: bytes, base: str | None) -> Written:
        written = await self._send(operation, key, lambda: self.bucket.put(key, body, base, self.who))
        if written is None:
            raise PreconditionFailedError(backend=NAME, operation=operation, key=key, detail="412")
        assert isinstance(written, Written)
        return written

    async def _send(self, operation: str, key: str, act: Callable[[], Any]) -> Any:  # noqa: ANN401  what act returns
        if self.silent:
            self.trespasses.append(f"{operation} {key} after its end")
            self.bucket.world.tell(self.who, f"TRESPASS {operation} {key}")
        request = Request(self, operation, key, act)
        if not self.dead:
            request.send()
        return await request.answer

    async def list(self, prefix: str) -> AsyncIterator[Entry]:
        """List objects."""
        for key, thing in sorted(self.bucket.things.items()):
            if key.startswith(prefix):
                yield Entry(key, len(thing.body), thing.modified)

    async def put(self, key: str, body: bytes) -> Written:
        """Write without a condition; nothing here does."""
        raise NotImplementedError

    async def delete(self, key: str) -> None:
        """Delete without a condition; nothing here does."""
        raise NotImplementedError

    async def aclose(self) -> None:
        """Do nothing: the client is asked whether it has closed, not its backend."""


class Request:
    """One request: its fate, and the future that its caller awaits.

    Args:
        line: Whose request it is.
        operation: What the client calls it.
        key: Of the object.
        act: What it does to the bucket; returns what is answered.
    """

    def __init__(self, line: Line, operation: str, key: str, act: Callable[[], Any]) -> None:
        self._line, self._operation, self._key, self._act = line, operation, key, act
        self._bucket, self._rng = line.bucket, line.rng
        self._loop: ProcessLoop = asyncio.get_running_loop()  # type: ignore[assignment]
        self.answer = self._loop.create_future()
        weather = self._bucket.weather
        there, back = (weather.trip * self._rng.uniform(0.2, 2.0) for _ in range(2))
        if weather.jam and self._rng.random() < weather.jam:
            there += weather.jam_by * self._rng.random()
        self._there, self._back = line.trips.get(operation[:3], (there, back))
        self._fate = self._draw()

    def _draw(self) -> str:
        draw = self._rng.random()
        for fate in FATES:
            chance = getattr(self._bucket.weather, fate)
            if draw < chance:
                return "" if self._operation == "get" and fate in {"late", "twice"} else fate
            draw -= chance
        return ""

    def send(self) -> None:
        """Let it meet its fate."""
        if self._fate:
            self._line.failures += 1
            self._bucket.world.tell(self._line.who, f"{self._operation} {self._key}: {self._fate}")
        both = self._there + self._back
        if self._fate == "lost":
            self._cut(both)
        elif self._fate == "busy":
            self._later(both, lambda: self._deliver(None, self._rng.choice(REFUSALS)))
        elif self._fate == "late":
            self._later(self._there + self._bucket.weather.late_by * self._rng.random(), self._arrive)
        else:
            self._later(self._there, self._arrive)

    def _arrive(self) -> None:
        if self._operation != "get" and self._bucket.too_soon(self._key):
            self._later(self._back, lambda: self._deliver(None, BackendUnavailableError))
            return
        outcome = self._act()
        if self._fate == "twice":
            self._later(self._there, self._arrive_again)
        elif self._fate == "mute":
            self._cut(self._back)
        else:
            self._later(self._back, lambda: self._deliver(outcome))

    def _arrive_again(self) -> None:
        outcome = self._act()
        self._later(self._back, lambda: self._deliver(outcome))

    def _cut(self, after: float) -> None:
        """Half of all lost answers are seen to be lost; else there is silence until the client gives up."""
        if self._rng.random() < 0.5:
            self._later(after, lambda: self._deliver(None, OutcomeUnknownError))

    def _later(self, seconds: float, call: Callable[[], object]) -> None:
        self._bucket.world.at(self._bucket.world.now + seconds, call)

    def _deliver(self, outcome: object, kind: type[BackendError] | None = None) -> None:
        if not self._loop.dead and not self._loop.is_closed():
            error = kind and kind(backend=NAME, operation=self._operation, key=self._key, detail=self._fate)
            self._loop.call_soon(self._settle, outcome, error)

    def _settle(self, outcome: object, error: BackendError | None) -> None:
        if self.answer.done():
            return
        if error is None:
            self.answer.set_result(outcome)
        else:
            self.answer.set_exception(error)
