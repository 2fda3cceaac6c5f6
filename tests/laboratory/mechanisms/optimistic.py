"""Two drivers under optimistic concurrency control: what a conflict costs, and that it costs no row."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pandas as pd

from asynclock.spark.results import Wasted
from asynclock.spark.runs.run import run
from asynclock.spark.writer.splice import Splice
from tests.laboratory.mechanisms.plain_flights import (
    DRIVERS,
    begun,
    deliver,
    departures,
    frame,
    is_newest,
    refusal,
    table,
)
from tests.laboratory.mechanisms.stage import Shown, must
from tests.spark.pipeline_kit import Background, waiting

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from asynclock.spark.spec.model import Spec
    from tests.laboratory.mechanisms.stage import Stage

_SETTINGS = 'buckets = 1\npartition_by = ["origin"]\nconcurrency = "occ"'


def show(stage: Stage) -> Shown:
    """Let two drivers write the same files, and files of their own."""
    sentence = refusal(stage.folder / "splice", 'concurrency = "occ"', kind="splice")
    must("streams of a merge-on-read splice table would starve" in sentence, f"the reason is in {sentence!r}")
    events = departures(stage, stage.sized(3_000, 60_000))
    newark = events["origin"] == "EWR"
    by_turns = pd.Series(range(len(events))) % 2 == 0
    cases = {
        "different files": (events[newark], events[~newark]),
        "same files": (events[by_turns], events[~by_turns]),
    }
    rows = [_drivers(stage, name, halves) for name, halves in cases.items()]
    apart, together = rows
    must(apart["conflicts"] == 0, "writes of different files do not conflict")
    must(together["conflicts"], "writes of the same files conflict")
    return Shown(
        sentence=(
            f"of two drivers on the same files {together['conflicts']} writes conflicted and were written "
            f"again, {together['wasted s']:.1f} s of work wasted; on different files none; no row lost"
        ),
        table=rows,
    )


def _drivers(stage: Stage, name: str, halves: Sequence[pd.DataFrame]) -> Mapping[str, object]:
    """Let each driver write its half: one batch that begins before the other's commit, the rest as files."""
    spec = table(stage.folder / name.replace(" ", "-"), _SETTINGS)
    files = stage.sized(2, 12)
    for driver, half in zip(DRIVERS, halves, strict=True):
        deliver(spec, driver, half[100:], files=files)
    overtaken = _overtaken(stage, spec, [half[:100] for half in halves])
    started = time.monotonic()
    drivers = [
        Background(lambda driver=driver: run(spec, streams=[driver], once=True, spark=stage.spark))  # type: ignore[misc]
        for driver in DRIVERS
    ]
    reports = [driver.result(within=stage.deadline) for driver in drivers]
    seconds = time.monotonic() - started
    must(is_newest(spec, stage.spark, pd.concat(halves)), "each key has its newest event")
    wasted = sum((report.wasted for report in reports), overtaken)
    batches = 1 + 1 + sum(stream.batches for report in reports for stream in report.streams)
    return {
        "two drivers on": name,
        "batches": batches,
        "conflicts": wasted.conflicts,
        "wasted s": wasted.seconds,
        "files took s": seconds,
    }


def _overtaken(stage: Stage, spec: Spec, halves: Sequence[pd.DataFrame]) -> Wasted:
    """Commit the first half while the write of the second is running; return what that wasted."""
    first, second = (frame(stage.spark, half) for half in halves)
    splices = [Splice(spec, stage.spark) for _ in DRIVERS]
    splices[0].write(first.limit(1), DRIVERS[0])  # creates the table
    gate = spec.path.with_name("gate")
    slow = Background(lambda: splices[1].write(waiting(second, gate), DRIVERS[1]))
    begun(spec, stage.spark)
    splices[0].write(first, DRIVERS[0])
    gate.touch()
    slow.result()
    must(splices[0].wasted == Wasted(), "the first of two to commit has no conflict")
    return splices[1].wasted
