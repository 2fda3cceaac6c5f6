"""A long delete next to an ingestion: it may starve under OCC, and not with a reservation or through a merge.

Under OCC once at gates, where the ingestion commits in the middle of each attempt: the worst case. And in
races, where the ingestion has a pace of its own and knows nothing of the delete.
"""

from __future__ import annotations

import sys
import threading
import time
from dataclasses import dataclass, replace
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
_NO_PAUSE: Final = "without a pause"
_PACES: Final = {_NO_PAUSE: 0.0, "a file every 10 s": 10.0}
_LATER: Final = datetime(2100, 1, 1, tzinfo=UTC)


@dataclass
class Outcome:
    """What came of one way to delete.

    Attributes:
        way: Its name.
        attempts: How often the delete was begun.
        succeeded: Whether it was committed.
        seconds: From the begin of the first attempt to the end of the last one.
        wasted_seconds: Of attempts that failed; in a race also of the ingestion's.
        wasted_bytes: Size of the files that these attempts have written.
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
    """Delete a carrier's aircraft while departures arrive: at gates, in races, reserved, and as a splice."""
    attempts = stage.sized(1, 8)
    rows = stage.sized(3_000, 120_000)
    feed = Feed(stage, rows, files=_FIRST_FILES + attempts + 2)
    feed.deliver(STREAM, _FIRST_FILES)
    worst = _alone(stage, feed, attempts)
    paces = stage.sized((_NO_PAUSE,), tuple(_PACES))
    races = [_raced(stage, rows, pace, attempts=attempts) for pace in paces]
    others = [_reserved(stage, feed), _spliced(stage, feed)]
    must(not worst.succeeded, "a delete that is overtaken in each attempt never commits")
    must(all(one.succeeded and one.attempts == 1 for one in others), "the others commit at once")
    told = ", ".join(
        f"{'committed at attempt' if one.succeeded else 'lost all'} {one.attempts} ({pace})"
        for pace, one in zip(paces, races, strict=True)
    )
    return Shown(
        sentence=f"under OCC alone a delete may starve: in the worst case, an ingestion that commits in the "
        f"middle of each attempt, it lost {attempts} of {attempts}, {worst.wasted_seconds:.1f} s of work; in "
        f"races with an ingestion of its own pace it {told}; with a reservation and through the splice the "
        "first attempt commits",
        table=[one.row() for one in (worst, *races, *others)],
    )


def _alone(stage: Stage, feed: Feed, attempts: int) -> Outcome:
    """Each attempt reads, an ingestion commits, and the attempt writes: too late."""
    spec = _occ(feed)
    outcome = Outcome("OCC alone, gates: the worst case")
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


def _raced(stage: Stage, rows: int, pace: str, *, attempts: int) -> Outcome:
    """Delete again and again while an ingestion commits file after file at its own pace."""
    folder = stage.folder / f"race-{pace.replace(' ', '-')}"
    folder.mkdir()
    feed = Feed(replace(stage, folder=folder), rows, files=_FIRST_FILES + stage.sized(8, 60))
    feed.deliver(STREAM, _FIRST_FILES)
    spec = _occ(feed)
    run(spec, once=True, spark=stage.spark)
    outcome = Outcome(f"OCC alone, race: {pace}")
    stop = threading.Event()
    arrivals = Background(partial(_arrive, feed, _PACES[pace], stop))
    ingestion = Background(lambda: run(spec, spark=stage.spark, stop=stop))
    try:
        wait_for(lambda: len(_instants(stage, spec)) > _FIRST_FILES)
        started = time.monotonic()
        while not outcome.succeeded and outcome.attempts < attempts:
            _attempt(stage, spec, outcome)
        outcome.seconds = time.monotonic() - started
    finally:
        stop.set()
        arrivals.result()
    report = ingestion.result(within=stage.deadline).streams[0]
    must(report.batches, "the ingestion commits meanwhile")
    outcome.wasted_seconds += report.wasted.seconds
    # A write that failed stays pending until the services roll it back.
    failed = [one.requested for one in timeline(spec, stage.spark) if one.completed is None]
    outcome.wasted_bytes = sum(_written(spec, instant) for instant in failed)
    outcome.delay = report.reservation_wait_seconds
    return outcome


def _arrive(feed: Feed, every: float, stop: threading.Event) -> None:
    """Deliver all further files: one after the other, or at once if there is nothing between them."""
    if not every:
        feed.deliver(STREAM, sys.maxsize)
    while not stop.wait(every or None):
        feed.deliver(STREAM)


def _attempt(stage: Stage, spec: Spec, outcome: Outcome) -> None:
    """Delete once, and note what came of it."""
    outcome.attempts += 1
    begun = time.monotonic()
    try:
        _delete(stage, spec)
    except Py4JJavaError as error:
        must(conflict_of(error), f"the delete fails by a conflict only: {error.java_exception}")
        outcome.wasted_seconds += time.monotonic() - begun
    else:
        outcome.succeeded = True


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


def _delete(stage: Stage, spec: Spec, gate: Path | None = None) -> None:
    """A job of Hudi's own: it reads the rows, waits for the gate if there is one, and deletes them."""
    options = write_options(spec) | {"hoodie.datasource.write.operation": "delete"}
    rows = _rows(stage, spec) if gate is None else waiting(_rows(stage, spec), gate)
    rows.write.format("hudi").options(**options).mode("append").save(spec.table.path)


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
