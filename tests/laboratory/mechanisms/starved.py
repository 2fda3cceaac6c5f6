"""A long delete beside a short ingestion: under OCC it starves, with a reservation or a merge it does not."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from py4j.protocol import Py4JJavaError

from asynclock.spark import Splice, read, reserve, run, timeline
from asynclock.spark.faults import conflict_of
from asynclock.spark.hudi.options import write_options
from tests.laboratory.mechanisms.feed import Feed
from tests.laboratory.mechanisms.stage import Shown, must
from tests.spark.pipeline_kit import Background, wait_for, waiting

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from asynclock.spark.spec.model import Spec
    from tests.laboratory.mechanisms.stage import Stage

STREAM: Final = "departures"
CARRIER: Final = "EV"
_FIRST_FILES: Final = 3
_LATER: Final = datetime(2100, 1, 1, tzinfo=UTC)


@dataclass
class Outcome:
    """What came of one way to delete.

    Attributes:
        way: Its name.
        attempts: How often the delete was begun.
        succeeded: Whether it was committed.
        seconds: From the begin of the first attempt to the end of the last one.
        wasted_seconds: Of attempts that failed.
        wasted_bytes: Size of the files that failed attempts have written.
        delay: Seconds that the ingestion waited for the delete.
    """

    way: str
    attempts: int = 0
    succeeded: bool = False
    seconds: float = 0.0
    wasted_seconds: float = 0.0
    wasted_bytes: int = 0
    delay: float = 0.0

    def row(self) -> dict[str, object]:
        """Return a row of the table."""
        return {
            "delete": self.way,
            "attempts": self.attempts,
            "outcome": "committed" if self.succeeded else "starved",
            "time (s)": self.seconds,
            "wasted (s)": self.wasted_seconds,
            "wasted (kB)": self.wasted_bytes / 1000,
            "ingestion waited (s)": self.delay,
        }


def show(stage: Stage) -> Shown:
    """Delete a carrier's aircraft three ways, while each time a file of departures arrives in the middle."""
    attempts = stage.sized(2, 8)
    feed = Feed(stage, stage.sized(3_000, 120_000), files=_FIRST_FILES + attempts + 2)
    feed.deliver(STREAM, _FIRST_FILES)
    alone = _alone(stage, feed, attempts)
    outcomes = [alone, _reserved(stage, feed), _spliced(stage, feed)]
    must(not alone.succeeded, "under OCC alone the delete never commits")
    must(all(one.succeeded and one.attempts == 1 for one in outcomes[1:]), "the others commit at once")
    return Shown(
        sentence=f"under OCC alone a delete starves: {attempts} attempts of {attempts} lost to an ingestion "
        f"that committed meanwhile, {alone.wasted_seconds:.1f} s of work wasted; with a reservation and "
        "through the splice the first attempt commits",
        table=[one.row() for one in outcomes],
    )


def _alone(stage: Stage, feed: Feed, attempts: int) -> Outcome:
    """Each attempt reads, an ingestion commits, and the attempt writes: too late."""
    spec = _occ(feed)
    outcome = Outcome("OCC alone")
    run(spec, once=True, spark=stage.spark)
    rows = _rows(stage, spec).count()
    must(rows > 0, f"there are aircraft of {CARRIER}")
    started = time.monotonic()
    for number in range(attempts):
        outcome.attempts += 1
        gate = stage.folder / f"gate-{number}"
        begun = time.monotonic()
        known = _instants(stage, spec)
        delete = Background(partial(_delete, stage, spec, gate))
        instant = _requested(stage, spec, known, gate)
        feed.deliver(STREAM)
        outcome.delay += run(spec, once=True, spark=stage.spark).streams[0].reservation_wait_seconds
        gate.touch()
        try:
            delete.result()
            outcome.succeeded = True
        except Py4JJavaError as error:
            must(conflict_of(error), f"the delete fails by a conflict only: {error.java_exception}")
        outcome.wasted_seconds += time.monotonic() - begun
        outcome.wasted_bytes += _written(spec, instant)
    outcome.seconds = time.monotonic() - started
    must(_rows(stage, spec).count() >= rows, "a failed delete deletes nothing")
    return outcome


def _reserved(stage: Stage, feed: Feed) -> Outcome:
    """The same delete in a reservation, for which the ingestion waits."""
    spec = _occ(feed)
    outcome = Outcome("OCC, reserved", attempts=1)
    started = time.monotonic()
    gate = stage.folder / "gate-reserved"
    feed.deliver(STREAM)
    with reserve(spec, timeout=60.0, spark=stage.spark):
        ingestion = Background(lambda: run(spec, once=True, spark=stage.spark))
        delete = Background(partial(_delete, stage, spec, gate))
        try:
            wait_for(lambda: _parked(spec))
        finally:
            gate.touch()
        delete.result()
        must(_rows(stage, spec).count() == 0, "the delete has deleted every row")
        outcome.seconds = time.monotonic() - started
    outcome.succeeded = True
    report = ingestion.result().streams[0]
    must(report.batches == 1, "the ingestion goes on afterwards")
    outcome.delay = report.reservation_wait_seconds
    return outcome


def _spliced(stage: Stage, feed: Feed) -> Outcome:
    """A delete that is appended and merged, beside an ingestion that commits meanwhile."""
    spec = feed.spec
    outcome = Outcome("splice", attempts=1)
    run(spec, streams=[STREAM], once=True, spark=stage.spark)
    keys = read(spec, stage.spark).where(f"carrier = '{CARRIER}'").select("tailnum").collect()
    must(keys, f"there are aircraft of {CARRIER}")
    # One task, so that those of the ingestion find a core while it waits.
    frame = stage.spark.createDataFrame(keys, "tailnum string").coalesce(1)
    started = time.monotonic()
    gate = stage.folder / "gate-splice"
    delete = Background(
        lambda: Splice(spec, stage.spark).delete(waiting(frame, gate), stream=STREAM, up_to=_LATER)
    )
    try:
        feed.deliver(STREAM)
        report = run(spec, streams=[STREAM], once=True, spark=stage.spark).streams[0]
    finally:
        gate.touch()
    must(delete.result().written == len(keys), "the delete writes a tombstone for each aircraft")
    outcome.seconds = time.monotonic() - started
    outcome.succeeded = True
    outcome.delay = report.reservation_wait_seconds
    must(report.batches == 1, "the ingestion commits while the delete is at work")
    left = read(spec, stage.spark).join(frame, "tailnum").where("departed_at IS NOT NULL").count()
    must(left == 0, "no departure of these aircraft is left, also of those that came meanwhile")
    return outcome


def _occ(feed: Feed) -> Spec:
    return feed.plain("plain", 'type = "cow"\nbuckets = 1\nconcurrency = "occ"')


def _rows(stage: Stage, spec: Spec) -> DataFrame:
    """The stored rows of the carrier, without Hudi's own columns."""
    stored = stage.spark.read.format("hudi").load(spec.table.path).where(f"carrier = '{CARRIER}'")
    # One task, so that those of the ingestion find a core while it waits.
    return stored.select(*(name for name in stored.columns if not name.startswith("_hoodie"))).coalesce(1)


def _delete(stage: Stage, spec: Spec, gate: Path) -> None:
    """A job of Hudi's own: it reads the rows, which takes until the gate is open, and deletes them."""
    options = write_options(spec) | {"hoodie.datasource.write.operation": "delete"}
    waiting(_rows(stage, spec), gate).write.format("hudi").options(**options).mode("append").save(
        spec.table.path
    )


def _instants(stage: Stage, spec: Spec) -> set[str]:
    return {one.requested for one in timeline(spec, stage.spark)}


def _requested(stage: Stage, spec: Spec, known: set[str], gate: Path) -> str:
    """Wait until the delete is on the timeline; return its instant."""
    try:
        wait_for(lambda: _instants(stage, spec) - known)
    except AssertionError:
        gate.touch()
        raise
    return (_instants(stage, spec) - known).pop()


def _written(spec: Spec, instant: str) -> int:
    folder = Path(urlsplit(spec.table.path).path)
    return sum(path.stat().st_size for path in folder.rglob(f"*_{instant}.parquet"))


def _parked(spec: Spec) -> bool:
    with spec.locks.connect() as client:
        return any(one.state == "held" for one in client.list("parked/"))
