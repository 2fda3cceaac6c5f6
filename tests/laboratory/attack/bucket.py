"""A store of many nodes with clocks of their own."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from asynclock.backend import Absent, Stored, Written

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from tests.laboratory.attack.world import World


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
        wrong_date: The answer has a Date that is far off.
        undated: The answer has no Date.
        unmodified: The answer has no ``last_modified``.
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

    def get(self, key: str) -> Stored | Absent:
        """Return the object, or that there is none, with the answer's Date."""
        thing = self.things.get(key)
        date = self.date()
        if thing is None:
            return Absent(date)
        modified = None if self.rng.random() < self.weather.unmodified else thing.modified
        return Stored(thing.body, thing.version, modified, date)

    def put(
        self, key: str, body: bytes, base: str | None, by: str, *, always: bool = False
    ) -> Written | None:
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


def _short(body: bytes) -> str:
    try:
        said = json.loads(body)
        return " ".join(f"{name}={str(said[name])[:17]}" for name in said if name not in {"holder", "nonce"})
    except (ValueError, TypeError):
        return repr(body[-40:])
