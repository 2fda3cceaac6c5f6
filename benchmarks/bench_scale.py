"""How often do many writers commit to one table in S3, and what share has the commit lock?"""

from __future__ import annotations

import asyncio
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from asynclock.testing._proxy import TapProxy
from benchmarks.measure import SCRATCH, Line
from benchmarks.model_scale import LOCK_TAKEN, commit_lock
from tests.hudi.harness import compile_harness, lock_client_jar
from tests.laboratory.mechanisms.child import Child
from tests.laboratory.mechanisms.store_requests import settings_of
from tests.laboratory.servers import BUCKET, running

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from asynclock.testing._proxy import Tap

WRITERS = (1, 8)
SEVERAL = 16
ROUND_TRIP = 0.05
"""Seconds that each answer is late: as far as a slow store, and the processor counts for little."""
LOCK = ".hoodie/.locks/table_lock.json"
SPEC = """
[table]
path = "s3a://{bucket}/scale/{buckets}"
key = ["k"]
buckets = {buckets}
[locks]
url = "locks-{buckets}"
max_clock_skew = 0.0
validity = 120.0
[services]
"""
STREAM = """
[streams.s{number}]
source = "in/*.csv"
ordering = "at"
checkpoint = "checkpoints-{buckets}/{number}"
columns = {{ at = "bigint", x = "double" }}
"""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """The work of that many writers.

    Attributes:
        rate: Commits a second.
        apart: Seconds of a batch in which it neither waits for the commit lock nor holds it.
        waited: Seconds in which it takes the lock and gives it back.
        held: Seconds in which it holds the lock.
        taken: How often it takes the lock.
        cpu: Processor seconds of a batch, those of the store left out.
        requests: Of a batch.
        lock_requests: Those of them that read or write the commit lock.
        under_lock: Those of a batch while it holds the lock; of one writer alone.
    """

    rate: float
    apart: float
    waited: float
    held: float
    taken: float
    cpu: float
    requests: float
    lock_requests: float
    under_lock: float


def lines() -> Iterator[Line]:
    """Commits a second of that many writers, and what the model says of them."""
    with tempfile.TemporaryDirectory(dir=SCRATCH) as folder:
        try:
            done = asyncio.run(measured(Path(folder)))
        except Exception:
            print(Path(folder, "scale_driver.log").read_text()[-3000:])
            raise
    for buckets in (1, SEVERAL):
        one = done[buckets, 1]
        told = f"a batch in {buckets} buckets" if buckets > 1 else "a batch in one bucket"
        yield Line(name=f"requests of {told}", unit="requests", samples=[one.requests])
        yield Line(name="of these the commit lock's own", unit="requests", samples=[one.lock_requests])
        yield Line(name="of these while it holds the commit lock", unit="requests", samples=[one.under_lock])
        # The bar is for a batch as a pipeline has them; one in a single bucket is the shortest there is.
        target = 2.0 if buckets > 1 else None
        share = 100 * one.waited * one.rate
        yield Line(name=f"time of {told} for the commit lock", unit="%", samples=[share], target=target)
    one = done[1, 1]
    for writers in WRITERS:
        found = done[1, writers]
        # Others are kept out from when the lock is taken at the store to when it is free there.
        kept = one.held + LOCK_TAKEN * ROUND_TRIP
        apart = one.apart + one.held + one.waited - kept
        model = commit_lock(writers, apart=apart, hold=kept, trip=ROUND_TRIP)
        yield Line(name=f"commits a second of {writers} writers", unit="1/s", samples=[found.rate])
        yield Line(name="a batch holds the lock", unit="s", samples=[found.held])
        yield Line(name="it waits for the lock, takes it and gives it back", unit="s", samples=[found.waited])
        yield Line(name="the rest of it", unit="s", samples=[found.apart])
        yield Line(name="its processor time", unit="s", samples=[found.cpu])
        over = [found.rate / model.commits_a_second]
        yield Line(name=f"commits of {writers} writers over the model's", unit="x", samples=over)


async def measured(folder: Path) -> dict[tuple[int, int], Measured]:
    """Let writers commit on a server whose answers are late; by the buckets of the table and the writers."""
    classes = folder / "classes"
    classes.mkdir()
    (folder / "in").mkdir()
    for buckets in (1, SEVERAL):
        streams = (STREAM.format(number=number, buckets=buckets) for number in range(max(WRITERS)))
        text = SPEC.format(bucket=BUCKET, buckets=buckets) + "".join(streams)
        (folder / f"{buckets}.toml").write_text(text)
    lock_client = await asyncio.to_thread(lambda: lock_client_jar(compile_harness(classes), folder))
    with running("s3", own=True) as server:
        async with TapProxy(server.endpoint, delay=ROUND_TRIP, continues=True) as proxy:
            settings = settings_of(server, lock_client, endpoint=proxy.url)

            def ask() -> dict[tuple[int, int], Measured]:
                found = {}
                with Child("scale_driver", folder / "scale", package=__package__) as driver:
                    driver.tell(json.dumps(settings))
                    driver.answer()
                    for buckets, writers in ((SEVERAL, 1), *((1, writers) for writers in WRITERS)):
                        before = len(proxy.journal)
                        driver.tell(f"{folder / str(buckets)}.toml {writers}")
                        answer = json.loads(driver.answer())
                        found[buckets, writers] = _measured(answer, writers, proxy.journal[before:])
                return found

            return await asyncio.to_thread(ask)


def _measured(done: Mapping[str, float], writers: int, journal: Sequence[Tap]) -> Measured:
    batches = done["batches"]
    waited, held_for = done["waited"] / batches, done["held"] / batches
    return Measured(
        rate=batches / done["seconds"],
        apart=writers * done["seconds"] / batches - waited - held_for,
        waited=waited,
        held=held_for,
        taken=done["taken"] / batches,
        cpu=done["cpu"] / batches,
        requests=len(journal) / done["all"],
        lock_requests=sum(LOCK in tap.target for tap in journal) / done["all"],
        under_lock=sum(held(journal)) / done["all"],
    )


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
