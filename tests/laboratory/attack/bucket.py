"""A store of many nodes with clocks of their own, and the unreliable way to it."""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from asynclock.backend import Entry, Stored, Written
from asynclock.errors import BackendUnavailableError, OutcomeUnknownError, PreconditionFailedError

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncIterator, Callable

    from tests.laboratory.attack.world import ProcessLoop, World

try:  # where ``get`` returns None for a missing object, its Date comes by a side door
    from asynclock.backend import note_date
except ImportError:  # pragma: no cover

    def note_date(server_time: float | None) -> None:
        """Do nothing: the Date of a missing object comes in the answer."""


@dataclass
class Weather:
    """How unreliable the store and the way to it are; chances for each request.

    Attributes:
        trip: Seconds from a client to the store, on average.
        jam: It takes up to ``jam_by`` seconds longer to arrive.
        lost: The request never arrives.
        mute: It arrives, its answer does not.
        late: It arrives ``late_by`` later than the client may wait for.
        twice: It arrives twice, and the second answer is delivered.
        busy: 429, 503 or 409: nothing is done.
        wrong_date: The answer bears a Date that is far off.
        undated: The answer bears no Date.
        unmodified: The answer bears no ``last_modified``.
    """

    trip: float = 0.01
    jam: float = 0.0
    jam_by: float = 0.0
    lost: float = 0.0
    mute: float = 0.0
    late: float = 0.0
    late_by: float = 0.0
    twice: float = 0.0
    busy: float = 0.0
    wrong_date: float = 0.0
    wrong_by: tuple[float, float] = (0.0, 0.0)
    undated: float = 0.0
    unmodified: float = 0.0

    def calm(self, trip: float) -> None:
        """Let every request arrive once and be answered, after ``trip`` seconds each way or so."""
        self.trip = trip
        self.jam = 0.0
        self.lost = self.mute = self.late = self.twice = self.busy = self.wrong_date = 0.0


@dataclass
class Thing:
    """An object of the bucket, as its last write left it."""

    body: bytes
    version: str
    modified: float
    landed: float
    by: str


@dataclass
class Bucket:
    """The objects. Conditions hold, unless it is a broken one.

    Attributes:
        nodes: How far the clock of each node is ahead of true time.
        resolution: Dates and modification times are cut down to multiples of this.
        hashed: Versions are hashes of the body (S3), not counted.
        spacing: Seconds between two writes of one object, else 429 (GCS).
        broken: Conditions are ignored: to show that the checker sees it.
        landed: Called with the key and the new object after each write.
    """

    world: World
    rng: random.Random
    nodes: list[float]
    resolution: float
    weather: Weather
    hashed: bool = False
    spacing: float = 0.0
    broken: bool = False
    things: dict[str, Thing] = field(default_factory=dict)
    landed: Callable[[str, Thing], object] = lambda *_: None
    _versions: int = 0

    def node_time(self) -> float:
        """Return the time of whichever node is asked."""
        return self._cut(self.world.now + self.rng.choice(self.nodes))

    def _cut(self, value: float) -> float:
        return math.floor(value / self.resolution) * self.resolution if self.resolution else value

    def date(self) -> float | None:
        """Return the Date of an answer, or None."""
        weather = self.weather
        if weather.undated and self.rng.random() < weather.undated:
            return None
        if weather.wrong_date and self.rng.random() < weather.wrong_date:
            return self.node_time() + self.rng.uniform(*weather.wrong_by)
        return self.node_time()

    def get(self, key: str) -> Stored | float | None:
        """Return the object, or the Date of the answer that there is none."""
        thing = self.things.get(key)
        date = self.date()
        if thing is None:
            return date
        modified = None if self.rng.random() < self.weather.unmodified else thing.modified
        return Stored(thing.body, thing.version, modified, date)

    def put(self, key: str, body: bytes, base: str | None, by: str, *, always: bool = False) -> Written | None:
        """Write if the condition holds; None: refused."""
        thing = self.things.get(key)
        if not (always or self.broken) and (None if thing is None else thing.version) != base:
            return None
        self._versions += 1
        version = hashlib.sha256(body).hexdigest()[:12] if self.hashed else f"v{self._versions}"
        new = Thing(body, version, self.node_time(), self.world.now, by)
        self.things[key] = new
        self.world.tell(by, f"wrote {key} {version} over {base}: {_short(body)}")
        self.landed(key, new)
        return Written(version, self.date())

    def too_soon(self, key: str) -> bool:
        """Whether the store takes no other write of this object yet."""
        thing = self.things.get(key)
        return thing is not None and self.world.now - thing.landed < self.spacing


class Line:
    """A client's way to the bucket: its ``Backend``.

    Args:
        bucket: The store.
        loop: The loop that its calls are made on, asked at each call.
        who: For the trace.
        rng: For the fate of each request.
    """

    name: Final = "attack"

    def __init__(self, bucket: Bucket, who: str, rng: random.Random) -> None:
        self.clock_resolution = bucket.resolution
        self.min_write_interval = bucket.spacing
        self.sends_dates = bucket.weather.undated < 1
        self.versions_may_repeat = bucket.hashed
        self.who = who
        self.dead = False
        self.silent = False
        """Its client was closed or belongs to a forked child: every request is a violation."""
        self.trespasses: list[str] = []
        self.closed = 0
        self.trips: dict[str, tuple[float, float]] = {}
        """Seconds there and back of a ``get`` or a ``put``, where they are not drawn."""
        self.failures = 0
        """How many of its requests had another fate than to be answered in time."""
        self._bucket = bucket
        self._rng = rng

    async def get(self, key: str) -> Stored | None:
        found = await self._send("get", key, lambda: self._bucket.get(key))
        if isinstance(found, Stored):
            return found
        note_date(found)
        return None

    async def put_if_absent(self, key: str, body: bytes) -> Written:
        return await self._write("put_if_absent", key, body, None)

    async def put_if_match(self, key: str, body: bytes, version: str) -> Written:
        return await self._write("put_if_match", key, body, version)

    async def _write(self, operation: str, key: str, body: bytes, base: str | None) -> Written:
        written = await self._send(operation, key, lambda: self._bucket.put(key, body, base, self.who))
        if written is None:
            raise PreconditionFailedError(backend=self.name, operation=operation, key=key, detail="412")
        return written

    async def _send(self, operation: str, key: str, act: Callable[[], Any]) -> Any:  # noqa: ANN401
        world, weather, rng = self._bucket.world, self._bucket.weather, self._rng
        loop: ProcessLoop = asyncio.get_running_loop()  # type: ignore[assignment]
        answer = loop.create_future()
        if self.silent:
            self.trespasses.append(f"{operation} {key} after its end")
            world.tell(self.who, f"TRESPASS {operation} {key}")
        if self.dead:
            return await answer  # for ever: the process is gone
        there, back = (weather.trip * rng.uniform(0.2, 2.0) for _ in range(2))
        if weather.jam and rng.random() < weather.jam:
            there += weather.jam_by * rng.random()
        there, back = self.trips.get(operation[:3], (there, back))
        fate = self._fate(operation)
        if fate:
            self.failures += 1
            world.tell(self.who, f"{operation} {key}: {fate}")

        def deliver(outcome: Any, error: Exception | None = None) -> None:  # noqa: ANN401
            if loop.dead or loop.is_closed():
                return
            loop.call_soon(_settle, answer, outcome, error)

        def error(kind: type[Exception], detail: str) -> Exception:
            return kind(backend=self.name, operation=operation, key=key, detail=detail)  # type: ignore[call-arg]

        def again() -> None:
            outcome = act()
            world.at(world.now + back, lambda: deliver(outcome))

        def arrive() -> None:
            if operation != "get" and self._bucket.too_soon(key):
                world.at(world.now + back, lambda: deliver(None, error(BackendUnavailableError, "429 pace")))
                return
            outcome = act()
            if fate == "twice":
                world.at(world.now + there, again)
            elif fate == "mute":
                if rng.random() < 0.5:  # else there is silence until the client gives up
                    world.at(world.now + back, lambda: deliver(None, error(OutcomeUnknownError, "cut")))
            elif fate != "late":
                world.at(world.now + back, lambda: deliver(outcome))

        if fate == "lost":
            if rng.random() < 0.5:
                world.at(world.now + there + back, lambda: deliver(None, error(OutcomeUnknownError, "cut")))
        elif fate == "busy":
            refusal = rng.choice(_REFUSALS)
            world.at(world.now + there + back, lambda: deliver(None, error(refusal, "busy")))
        else:
            delay = weather.late_by * rng.random() if fate == "late" else 0.0
            world.at(world.now + there + delay, arrive)
        return await answer

    def _fate(self, operation: str) -> str:
        weather, draw = self._bucket.weather, self._rng.random()
        for fate in ("lost", "mute", "late", "twice", "busy"):
            chance = getattr(weather, fate)
            if draw < chance:
                return fate if operation != "get" or fate in {"lost", "mute", "busy"} else ""
            draw -= chance
        return ""

    async def list(self, prefix: str) -> AsyncIterator[Entry]:
        for key, thing in sorted(self._bucket.things.items()):
            if key.startswith(prefix):
                yield Entry(key, len(thing.body), thing.modified)

    async def put(self, key: str, body: bytes) -> Written:
        return await self._send("put", key, lambda: self._bucket.put(key, body, None, self.who, always=True))

    async def delete(self, key: str) -> None:
        await self._send("delete", key, lambda: self._bucket.things.pop(key, None))

    async def aclose(self) -> None:
        self.closed += 1


_REFUSALS: Final = (BackendUnavailableError, OutcomeUnknownError, PreconditionFailedError)


def _settle(answer: asyncio.Future[Any], outcome: Any, error: Exception | None) -> None:  # noqa: ANN401
    if answer.done():
        return
    if error is None:
        answer.set_result(outcome)
    else:
        answer.set_exception(error)


def _short(body: bytes) -> str:
    try:
        said = json.loads(body)
        return " ".join(
            f"{name}={str(said[name])[:17]}" for name in said if name not in {"holder", "nonce"}
        )
    except (ValueError, TypeError):
        return repr(body[-40:])
