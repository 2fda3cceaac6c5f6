# ruff: noqa: T201  a command that prints
"""The shipped library under a foreign explorer of schedules: ``python -m tests.laboratory foreign``.

detangle runs unmodified asyncio code on a loop of its own: at each step it decides which ready task goes
next, and time is virtual. Loop, store and checker of the simulator take no part in this.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import detangle

from asynclock import FencedObject, LockClient, PreconditionFailedError
from asynclock.backend import Absent, Entry, Stored, Written
from asynclock.settings import LeaseSettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

CLIENTS: Final = 3
SETTINGS: Final = LeaseSettings(validity=10.0, safety_margin=2.0, max_clock_skew=1.0, poll_interval=0.5)
_EPOCH: Final = 1_750_000_000.0
_ONE_WAY: Final = 0.01
_SHOWN: Final = 400
"""Steps of a schedule that breaks the lock."""
_STEPS: Final = 20_000
_LONGEST: Final = 100.0
"""Seconds of virtual time; a world that takes longer hangs."""


class LoopClock:
    """Clocks that read the time of the running loop."""

    def monotonic(self) -> float:
        """Return the loop's time."""
        return asyncio.get_running_loop().time()

    boot = monotonic

    def wall(self) -> float:
        """Return the loop's time as epoch seconds."""
        return _EPOCH + self.monotonic()


@dataclass
class Store:
    """Objects that change by conditional writes, ten milliseconds away.

    Attributes:
        keeps_conditions: If False, every write is applied: what the explorer must find.
    """

    keeps_conditions: bool = True
    name: str = "foreign"
    clock_resolution: float = 0.0
    sends_dates: bool = True
    versions_may_repeat: bool = False
    min_write_interval: float = 0.0
    _objects: dict[str, Stored] = field(default_factory=dict)
    _writes: int = 0

    async def get(self, key: str) -> Stored | Absent:
        """Read an object."""
        await asyncio.sleep(_ONE_WAY)
        found, now = self._objects.get(key), LoopClock().wall()
        await asyncio.sleep(_ONE_WAY)
        return Absent(now) if found is None else Stored(found.body, found.version, found.last_modified, now)

    async def put_if_absent(self, key: str, body: bytes) -> Written:
        """Create an object."""
        return await self._put(key, body, None)

    async def put_if_match(self, key: str, body: bytes, version: str) -> Written:
        """Replace one version of an object."""
        return await self._put(key, body, version)

    async def put(self, key: str, body: bytes) -> Written:
        """Write without a condition."""
        return await self._put(key, body, found.version if (found := self._objects.get(key)) else None)

    async def delete(self, key: str) -> None:
        """Delete an object."""
        self._objects.pop(key, None)

    async def list(self, prefix: str) -> AsyncIterator[Entry]:
        """List objects."""
        for key, found in self._objects.items():
            if key.startswith(prefix):
                yield Entry(key, len(found.body), found.last_modified)

    async def aclose(self) -> None:
        """Do nothing."""

    async def _put(self, key: str, body: bytes, version: str | None) -> Written:
        await asyncio.sleep(_ONE_WAY)
        found, now = self._objects.get(key), LoopClock().wall()
        if self.keeps_conditions and (found and found.version) != version:
            await asyncio.sleep(_ONE_WAY)
            raise PreconditionFailedError(
                backend=self.name, operation="put", key=key, detail="another version", written="no"
            )
        self._writes += 1
        written = Written(str(self._writes), now)
        self._objects[key] = Stored(bytes(body), written.version, now, now)
        await asyncio.sleep(_ONE_WAY)
        return written


class World:
    """A few clients that count in one fenced object under one lock.

    Args:
        keeps_conditions: Whether the store does.
        impatient: The first client gives up at an await that the explorer chooses, or not at all.
    """

    def __init__(self, *, keeps_conditions: bool = True, impatient: bool = False) -> None:
        self._store = Store(keeps_conditions)
        self._impatient = impatient
        self._believers: set[int] = set()
        self._tokens: list[int] = []

    async def run(self) -> None:
        """Let each client hold the lock once; then look at the count."""
        clients = [
            LockClient(
                url="foreign://store",
                backend=self._store,
                settings=SETTINGS,
                renewal="loop",
                clock=LoopClock(),
                rng=random.Random(number),
            )
            for number in range(CLIENTS)
        ]
        work = [self._count(number, client) for number, client in enumerate(clients)]
        if self._impatient:
            work[0] = detangle.maybe_timeout(work[0])
        ends = await asyncio.gather(*work, return_exceptions=True)
        failed = [each for each in ends if each is not None and not isinstance(each, TimeoutError)]
        assert not failed, failed
        found = await FencedObject(clients[-1], "count").read()
        assert found is not None
        # A write of which the answer was not waited for may be applied or not.
        assert ends.count(None) <= int(found.body) <= CLIENTS, (
            f"{ends} ended, and the count is {found.body!r}"
        )
        for client in clients:
            await client.aclose()

    async def _count(self, number: int, client: LockClient) -> None:
        async with client.lock("count").hold() as lease:
            assert not self._believers, f"{number} and {self._believers} believe"
            assert lease.fencing_token > max(self._tokens, default=0), "the token did not rise"
            self._tokens.append(lease.fencing_token)
            self._believers.add(number)
            try:
                counter = FencedObject(client, "count")
                await counter.update(lambda body: b"%d" % (int(body or b"0") + 1), lease=lease)
            finally:
                self._believers.remove(number)


def exhaust(deviations: int, *, keeps_conditions: bool = True) -> detangle.ExploreStats:
    """Run every schedule with at most that many deviations from the order in which asyncio runs its tasks.

    Raises:
        detangle.BugFound: A schedule that breaks the lock, as short as it can be made.
    """
    return detangle.explore(
        lambda: World(keeps_conditions=keeps_conditions).run(),
        strategy=detangle.DFS(max_delays=deviations),
        runs=1_000_000,
        max_steps=_STEPS,
        max_time=_LONGEST,
        database=False,
    )


def wander(runs: int, *, seed: int) -> detangle.ExploreStats:
    """Run random schedules, with timers that are late and a client that gives up.

    Raises:
        detangle.BugFound: A schedule that breaks the lock, as short as it can be made.
    """
    return detangle.explore(
        lambda: World(impatient=True).run(),
        runs=runs,
        seed=seed,
        timer_jitter=_ONE_WAY,
        max_steps=_STEPS,
        max_time=_LONGEST,
        database=False,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; 0 if no schedule breaks the lock."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.laboratory foreign", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--runs", type=int, default=10_000, help="random schedules")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    logging.getLogger("asynclock").setLevel(logging.CRITICAL)
    began = time.monotonic()
    try:
        stats = wander(options.runs, seed=options.seed)
    except detangle.BugFound as bug:
        print(bug.report.render(trace_limit=_SHOWN).partition("Reproduce this")[0])
        return 1
    print(
        f"foreign: {stats.runs} schedules, {stats.distinct_schedules} of them different, 0 violations, "
        f"{time.monotonic() - began:.0f} s"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
