"""Early conflict detection: what a long write that must lose has done by the time it fails."""

from __future__ import annotations

import contextlib
import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from asynclock.spark.results import Wasted
from asynclock.spark.writer.splice import Splice
from tests.laboratory.mechanisms.plain_flights import (
    DRIVERS,
    begun,
    commits_held_up,
    data_files,
    departures,
    frame,
    is_newest,
    refusal,
    table,
)
from tests.laboratory.mechanisms.stage import Shown, must
from tests.spark.pipeline_kit import Background, wait_for, waiting

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import pandas as pd
    from pyspark.sql import DataFrame

    from asynclock.spark.spec.model import Spec
    from tests.laboratory.mechanisms.stage import Stage

_LATE: Final = "at the commit"
_MODES: Final = {
    _LATE: 'concurrency = "occ"',
    "early, direct markers": 'concurrency = "occ-early"\nmarkers = "direct"',
    "early, timeline server": 'concurrency = "occ-early"\nmarkers = "timeline-server"',
}


def show(stage: Stage) -> Shown:
    """Let a long write lose against a short one, by each way to detect it."""
    sentence = refusal(stage.folder / "refused", 'concurrency = "occ-early"', kind="splice")
    must("streams of a merge-on-read splice table would starve" in sentence, f"the reason is in {sentence!r}")
    sentence = refusal(stage.folder / "unknown", 'concurrency = "nbcc-early"')
    must("occ-early" in sentence, f"what exists is named in {sentence!r}")
    events = departures(stage, stage.sized(9_000, 300_000))
    files = stage.sized(12, 32)
    losses = [_lose(stage, mode, events, files=files) for mode in _MODES]
    late, direct, served = losses
    must(late.files == files, "late detection comes after the last file")
    must(direct.files == 0, "a task looks for the markers of others before it makes its file")
    must(served.files < files, "the timeline server stops the write before its last file")
    saved = ", ".join(
        f"{late.seconds - early.seconds:.1f} s and {late.megabytes - early.megabytes:.2f} MB with {name}"
        for early, name in ((direct, "direct markers"), (served, "the timeline server"))
    )
    return Shown(
        sentence=f"of a write of {files} files that must lose, early detection saves {saved}",
        table=[
            {
                "detected": loss.mode,
                "s until it fails": loss.seconds,
                "files written": f"{loss.files} of {files}",
                "MB written": loss.megabytes,
            }
            for loss in losses
        ],
    )


@dataclass(frozen=True, kw_only=True)
class _Loss:
    mode: str
    seconds: float
    files: int
    megabytes: float


def _lose(stage: Stage, mode: str, events: pd.DataFrame, *, files: int) -> _Loss:
    """Write all events while another driver writes a few of each file, and fail; then succeed."""
    spec = table(stage.folder / mode.replace(" ", "-"), f"buckets = {files}\n{_MODES[mode]}")
    few = frame(stage.spark, events[:: len(events) // (40 * files) or 1])
    winner, loser = (Splice(spec, stage.spark) for _ in DRIVERS)
    # Makes the files that both will write: markers of two new files would not have the same name.
    winner.write(few, DRIVERS[0])
    # Hudi looks only for writes that began earlier, so the one that wins begins first.
    winning, ahead = _begin(stage, spec, winner, few, "winner")
    losing, instant = _begin(stage, spec, loser, frame(stage.spark, events), "loser", known=[ahead])
    with contextlib.ExitStack() as held:
        reasons = held.enter_context(_reasons())
        if mode == _LATE:
            _gate(spec, "winner").touch()
            winning.result()
        else:
            held.enter_context(commits_held_up(spec))
            _gate(spec, "winner").touch()
            wait_for(lambda: len(data_files(spec, ahead)) == files)
        _gate(spec, "loser").touch()
        started = time.monotonic()
        wait_for(lambda: loser.wasted.conflicts)
        seconds = time.monotonic() - started
    winning.result()
    losing.result()
    must(winner.wasted == Wasted(), "the driver that is ahead commits at once")
    must(is_newest(spec, stage.spark, events), "the events are committed by a further attempt")
    early = "HoodieEarlyConflictDetectionException" in reasons[0]
    must(early == (mode != _LATE), f"the conflict is detected {mode}, not by {reasons[0]!r}")
    written = data_files(spec, instant)
    megabytes = sum(path.stat().st_size for path in written) / 1e6
    return _Loss(mode=mode, seconds=seconds, files=len(written), megabytes=megabytes)


def _begin(
    stage: Stage, spec: Spec, splice: Splice, rows: DataFrame, who: str, *, known: Sequence[str] = ()
) -> tuple[Background, str]:
    """Begin a write that waits for its gate; return it and its instant."""
    driver = DRIVERS[len(known)]
    writing = Background(lambda: splice.write(waiting(rows, _gate(spec, who)), driver))
    return writing, begun(spec, stage.spark, known)


def _gate(spec: Spec, who: str) -> Path:
    return spec.path.with_name(f"{who}-gate")


@contextlib.contextmanager
def _reasons() -> Iterator[list[str]]:
    """Collect what the writers say of their conflicts."""
    said: list[str] = []

    class _Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(record.getMessage())

    logger, handler = logging.getLogger("asynclock.spark.writer.conflicts"), _Handler()
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield said
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
