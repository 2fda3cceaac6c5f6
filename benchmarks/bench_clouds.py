"""What do acquire, hand-over and takeover take on each store, and what do they cost a day?"""

from __future__ import annotations

import asyncio
import logging
import random
import statistics
import tempfile
import time
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import asynclock
from asynclock import LeaseSettings
from benchmarks import fleet, modelled
from benchmarks.measure import SCRATCH, Line
from tests.laboratory.servers import running

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

PAIRS: Final = 100
HAND_OVERS: Final = 5
LANES: Final = 20
"""Locks that are handed over at the same time."""
LOCKS: Final = 500
DEFAULT: Final = LeaseSettings()
SOONER: Final = LeaseSettings(validity=235.0)
"""A fifth sooner than the defaults: what that costs is a line of its own."""
HERE: Final = {
    "file": LeaseSettings(validity=20.0, max_clock_skew=0.0),
    "MinIO": LeaseSettings(validity=20.0, max_clock_skew=1.0),
}
"""Of the takeovers of real processes: with the defaults they would take five minutes."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """Seconds of one store.

    Attributes:
        first: Of an acquisition by a client that does not know the lock: a read and a write.
        again: Of one by the client that released the lock last: a write.
        handed: From a release until a waiter in another process has the lock.
        taken: From the death of a process until a waiter has the lock.
        settings: Of these takeovers.
    """

    first: Sequence[float]
    again: Sequence[float]
    handed: Sequence[float]
    taken: Sequence[float]
    settings: LeaseSettings

    def lines(self, name: str) -> Iterator[Line]:
        """The lines of a store: medians with their quartiles, and each 99th percentile."""
        for what, seconds in (
            ("acquire, first time", self.first),
            ("acquire, again", self.again),
            ("hand-over", self.handed),
            (f"takeover, validity {self.settings.validity:g} s", self.taken),
        ):
            yield Line(name=f"{name}: {what}", unit="s", samples=seconds)
            yield Line(name=f"{name}: {what}, 99th percentile", unit="s", samples=[tail(seconds)])
        lifetimes = [tail(self.taken) / self.settings.validity]
        told = f"{name}: takeover, 99th percentile over the validity"
        yield Line(name=told, unit="x", samples=lifetimes, target=1.0)

    def row(self, name: str, day: modelled.Day | None) -> dict[str, str]:
        """The row of a store in the table."""
        return {
            "store": name,
            "acquire, first": _both(self.first),
            "again": _both(self.again),
            "hand-over": _both(self.handed),
            "takeover": _both(self.taken),
            "of the validity": _both([each / self.settings.validity for each in self.taken], unit="x"),
            "requests a day": f"{day.writes:,.0f} + {day.reads:,.0f}" if day else "no charge",
            "dollars a day": f"{day.writes_dollars:.3f} + {day.reads_dollars:.3f}" if day else "0",
        }


_TABLE: Final[list[dict[str, str]]] = []


def lines() -> Iterator[Line]:
    """Clouds in virtual time, and what is here: a disk, and an S3 server of this machine."""
    logging.getLogger("asynclock").setLevel(logging.CRITICAL)  # those that are killed would complain
    _TABLE.clear()
    for name, cloud in modelled.CLOUDS.items():
        first, again = modelled.acquisitions(cloud)
        found = Found(
            first=first,
            again=again,
            handed=modelled.hand_overs(cloud, DEFAULT),
            taken=modelled.takeovers(cloud, DEFAULT),
            settings=DEFAULT,
        )
        day = modelled.day(cloud, DEFAULT)
        _TABLE.append(found.row(name, day))
        yield from found.lines(name)
        yield from _of_a_day(name, day)
    yield from sooner()
    with tempfile.TemporaryDirectory(dir=SCRATCH) as folder:
        yield from here("file", f"file://{folder}", {"fsync": False})
    with running("s3") as server:
        yield from here("MinIO", f"{server.url}/clouds-{uuid.uuid4()}", server.options)


def table() -> list[dict[str, str]]:
    """The same as a table, each pair the median and the 99th percentile."""
    return _TABLE


def sooner() -> Iterator[Line]:
    """What a takeover within 0.8 of the default validity takes, and its price."""
    cloud = modelled.CLOUDS["S3 Standard"]
    taken = modelled.takeovers(cloud, SOONER)
    day, usual = modelled.day(cloud, SOONER), modelled.day(cloud, DEFAULT)
    told = f"S3 Standard, validity {SOONER.validity:g} s: takeover, 99th percentile over the default validity"
    yield Line(name=told, unit="x", samples=[tail(taken) / DEFAULT.validity], target=0.8)
    told = f"S3 Standard, validity {SOONER.validity:g} s: writes a day over those of the defaults"
    yield Line(name=told, unit="x", samples=[day.writes / usual.writes])
    yield from _of_a_day(f"S3 Standard, validity {SOONER.validity:g} s", day)


def here(name: str, url: str, options: dict[str, Any]) -> Iterator[Line]:
    """The lines of a store of this machine."""
    first, again = asyncio.run(pairs(url, options))
    found = Found(
        first=first,
        again=again,
        handed=asyncio.run(hand_overs(url, options)),
        taken=asyncio.run(fleet.taken_over(f"{url}/fleet", options, HERE[name], LOCKS)),
        settings=HERE[name],
    )
    _TABLE.append(found.row(name, None))
    yield from found.lines(name)


async def pairs(url: str, options: Mapping[str, Any]) -> tuple[list[float], list[float]]:
    """Seconds of acquisitions by a client that does not know the lock, and of its next ones."""
    first, again = [], []
    async with (
        asynclock.connect(url, **options) as before,
        asynclock.connect(url, **options) as client,
    ):
        for number in range(PAIRS):
            await (await before.lock(f"pair-{number}").acquire()).release()
            for seconds in (first, again):
                began = time.perf_counter()
                lease = await client.lock(f"pair-{number}").acquire()
                seconds.append(time.perf_counter() - began)
                await lease.release()
    return first, again


async def hand_overs(url: str, options: Mapping[str, Any]) -> list[float]:
    """Seconds from the call of a release until a waiter of another client has the lock."""
    waits = []
    rng = random.Random(1)
    async with asynclock.connect(url, **options) as one, asynclock.connect(url, **options) as other:

        async def lane(number: int) -> None:
            name = f"handed-{number}"
            lease = await one.lock(name).acquire()
            for turn in range(HAND_OVERS):
                waiting = asyncio.create_task((other, one)[turn % 2].lock(name).acquire())
                await asyncio.sleep(rng.uniform(0.5, 1.5))
                began = time.perf_counter()
                await lease.release()
                lease = await waiting
                waits.append(time.perf_counter() - began)
            await lease.release()

        await asyncio.gather(*(lane(number) for number in range(LANES)))
    return waits


def tail(seconds: Sequence[float]) -> float:
    """The 99th percentile."""
    return statistics.quantiles(seconds, n=100, method="inclusive")[98]


def _of_a_day(name: str, day: modelled.Day) -> Iterator[Line]:
    yield Line(name=f"{name}: writes a day of a lock that is held", unit="requests", samples=[day.writes])
    yield Line(name=f"{name}: their price", unit="dollars a day", samples=[day.writes_dollars])
    yield Line(name=f"{name}: reads a day of a process that waits", unit="requests", samples=[day.reads])
    yield Line(name=f"{name}: their price", unit="dollars a day", samples=[day.reads_dollars])


def _both(numbers: Sequence[float], unit: str = "s") -> str:
    """The median and the 99th percentile."""
    middle, last = statistics.median(numbers), tail(numbers)
    if unit == "x":
        return f"{middle:.3f} / {last:.3f}"
    if last < 1:
        return f"{1000 * middle:.3g} / {1000 * last:.3g} ms"
    return f"{middle:.4g} / {last:.4g} s"
