"""How often do many writers commit to one table in S3, and what share has the commit lock?"""

from __future__ import annotations

import asyncio
import json
import statistics
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from asynclock.testing.proxy import TapProxy
from benchmarks.measure import SCRATCH, Line
from tests.hudi.harness import compile_harness, lock_client_jar
from tests.laboratory.mechanisms.child import Child
from tests.laboratory.mechanisms.store_requests import settings_of
from tests.laboratory.servers import BUCKET, running

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from asynclock.testing.proxy import Tap

WRITERS = (1, 2, 4, 8)
ROUND_TRIP = 0.05
"""Seconds that each answer is late: as far as a slow store, and the processor counts for little."""
LOCK = ".hoodie/.locks/table_lock.json"
SPEC = """
[table]
path = "s3a://{bucket}/scale/table"
key = ["k"]
buckets = 1
[locks]
url = "locks"
max_clock_skew = 0.0
validity = 120.0
[services]
"""
STREAM = """
[streams.s{number}]
source = "in/*.csv"
ordering = "at"
checkpoint = "checkpoints/{number}"
columns = {{ at = "bigint", x = "double" }}
"""


@dataclass
class Measured:
    """What writers have done.

    Attributes:
        rates: Commits a second, by the number of writers.
        requests: Of a batch of one writer.
        lock_requests: Those of them that read or write the commit lock.
        under_lock: Those of each batch of one writer while it holds the commit lock: when it begins its
            instant, and when it completes it.
    """

    rates: dict[int, float] = field(default_factory=dict)
    requests: float = 0.0
    lock_requests: float = 0.0
    under_lock: Sequence[int] = ()


def lines() -> Iterator[Line]:
    """Commits a second of so many writers, over what the model says."""
    with tempfile.TemporaryDirectory(dir=SCRATCH) as folder:
        try:
            done = asyncio.run(measured(Path(folder)))
        except Exception:
            print(Path(folder, "scale_driver.log").read_text()[-3000:])
            raise
    yield Line(name="requests of a batch in one bucket", unit="requests", samples=[done.requests])
    share = 100 * done.lock_requests / done.requests
    yield Line(name="of these the commit lock's own", unit="%", samples=[share], target=2.0)
    yield Line(
        name="requests of a batch while it holds the commit lock", unit="requests", samples=done.under_lock
    )
    held_for = statistics.median(done.under_lock) * ROUND_TRIP * done.rates[1]
    yield Line(name="share of the time in which one writer holds it", unit="%", samples=[100 * held_for])
    for writers, rate in done.rates.items():
        yield Line(name=f"commits a second of {writers} writers", unit="1/s", samples=[rate])
        if writers > 1:
            times = [rate / done.rates[1]]
            yield Line(name=f"commits of {writers} writers over those of one", unit="x", samples=times)


async def measured(folder: Path) -> Measured:
    """Let writers commit to a table on a server whose answers are late."""
    classes = folder / "classes"
    classes.mkdir()
    (folder / "in").mkdir()
    spec = folder / "scale.toml"
    spec.write_text(
        SPEC.format(bucket=BUCKET) + "".join(STREAM.format(number=number) for number in range(max(WRITERS)))
    )
    lock_client = await asyncio.to_thread(lambda: lock_client_jar(compile_harness(classes), folder))
    with running("s3", own=True) as server:
        async with TapProxy(server.endpoint, delay=ROUND_TRIP, continues=True) as proxy:
            settings = settings_of(server, lock_client, endpoint=proxy.url)

            def ask() -> Measured:
                found = Measured()
                with Child("scale_driver", spec, package=__package__) as driver:
                    driver.tell(json.dumps(settings))
                    driver.answer()
                    for writers in WRITERS:
                        before = len(proxy.journal)
                        driver.tell(str(writers))
                        done = json.loads(driver.answer())
                        found.rates[writers] = done["batches"] / done["seconds"]
                        if writers == 1:
                            sent = proxy.journal[before:]
                            found.requests = len(sent) / done["batches"]
                            found.lock_requests = sum(LOCK in tap.target for tap in sent) / done["batches"]
                            holds = held(sent)
                            found.under_lock = [*map(sum, zip(holds[::2], holds[1::2], strict=True))]
                return found

            return await asyncio.to_thread(ask)


def held(journal: Sequence[Tap]) -> list[int]:
    """Return how many requests each holder of the commit lock sent from its acquisition to its release."""
    found, since = [], None
    for place, tap in enumerate(journal):
        if LOCK in tap.target and tap.write and tap.applied:
            if since is None:
                since = place
            else:
                found.append(place - since)
                since = None
    return found
