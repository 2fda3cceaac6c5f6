"""Does the model of many writers say what few writers do: how often do they commit to one table in S3?"""

from __future__ import annotations

import asyncio
import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from asynclock.testing.proxy import TapProxy
from benchmarks.measure import SCRATCH, Line
from benchmarks.model_scale import REQUESTS_UNDER_LOCK, commit_lock
from tests.hudi.harness import compile_harness, lock_client_jar
from tests.laboratory.mechanisms.child import Child
from tests.laboratory.mechanisms.store_requests import settings_of
from tests.laboratory.servers import BUCKET, running

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from asynclock.testing.proxy import Tap

WRITERS = (1, 2, 4, 8)
ROUND_TRIP = 0.1
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


def lines() -> Iterator[Line]:
    """Commits a second of so many writers, over what the model says."""
    with tempfile.TemporaryDirectory(dir=SCRATCH) as folder:
        try:
            rates, under_lock = asyncio.run(measured(Path(folder)))
        except Exception:
            print(Path(folder, "scale_driver.log").read_text()[-3000:])
            raise
    yield Line(
        name=f"requests of a commit under the commit lock; the model has {REQUESTS_UNDER_LOCK}",
        unit="requests",
        samples=under_lock,
    )
    hold = sorted(under_lock)[len(under_lock) // 2] * ROUND_TRIP
    apart = 1 / rates[1] - hold
    yield Line(name="a commit's share of the time of one writer", unit="x", samples=[hold * rates[1]])
    for writers, rate in rates.items():
        says = commit_lock(writers, apart=apart, hold=hold)
        yield Line(name=f"commits a second of {writers} writers", unit="1/s", samples=[rate])
        yield Line(name="... over the model's", unit="x", samples=[rate / says.commits_a_second])


async def measured(folder: Path) -> tuple[dict[int, float], list[int]]:
    """Return the commits a second by the number of writers, and each commit's requests under the lock."""
    classes = folder / "classes"
    classes.mkdir()
    (folder / "in").mkdir()
    spec = folder / "scale.toml"
    spec.write_text(
        SPEC.format(bucket=BUCKET) + "".join(STREAM.format(number=number) for number in range(max(WRITERS)))
    )
    lock_client = await asyncio.to_thread(lambda: lock_client_jar(compile_harness(classes), folder))
    with running("s3", own=True) as server:
        async with TapProxy(server.endpoint, delay=ROUND_TRIP) as proxy:
            settings = settings_of(server, lock_client, endpoint=proxy.url)

            def ask() -> tuple[dict[int, float], list[int]]:
                rates, under_lock = {}, []
                with Child("scale_driver", spec, package=__package__) as driver:
                    driver.tell(json.dumps(settings))
                    for writers in WRITERS:
                        before = len(proxy.journal)
                        driver.tell(str(writers))
                        done = json.loads(driver.answer())
                        rates[writers] = done["batches"] / done["seconds"]
                        if writers == 1:
                            under_lock = held(proxy.journal[before:])
                return rates, under_lock

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
