"""Early conflict detection: what writes that lose have done by the time they fail.

Once at gates, where the one that wins has noted all of its files before the other begins with its first: the
best case of early detection. And in races, where both begin at the same moment and the machine decides.
"""

from __future__ import annotations

import contextlib
import logging
import time
from dataclasses import dataclass
from functools import partial
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
    pending,
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
_BEST: Final = "gates: the best case"
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
    rounds = stage.sized(1, 5)
    raced = stage.sized((_LATE,), tuple(_MODES))
    races = [_race(stage, mode, events, files=stage.sized(4, files), rounds=rounds) for mode in raced]
    saved = ", ".join(
        f"{late.seconds - early.seconds:.1f} s and {late.megabytes - early.megabytes:.2f} MB with {name}"
        for early, name in ((direct, "direct markers"), (served, "the timeline server"))
    )
    told = ", ".join(f"{race.seconds:.1f} s ({race.mode}, conflicts: {race.conflicts})" for race in races)
    return Shown(
        sentence=f"of a write of {files} files that must lose, early detection saves in its best case "
        f"{saved}; without gates, {stage.sized('a race', f'{rounds} races')} wasted {told}",
        table=[loss.row() for loss in (*losses, *races)],
    )


@dataclass(frozen=True, kw_only=True)
class _Loss:
    mode: str
    case: str
    conflicts: int
    seconds: float
    files: int
    most_files: int
    megabytes: float

    def row(self) -> dict[str, object]:
        """Return a row of the table."""
        return {
            "case": self.case,
            "detected": self.mode,
            "conflicts": self.conflicts,
            "s wasted": self.seconds,
            "files wasted": f"{self.files} of {self.most_files}",
            "MB wasted": self.megabytes,
        }


def _race(stage: Stage, mode: str, events: pd.DataFrame, *, files: int, rounds: int) -> _Loss:
    """Let both drivers begin at the same moment, one with all events and one with a few of each file."""
    spec = table(stage.folder / f"race-{mode.replace(' ', '-')}", f"buckets = {files}\n{_MODES[mode]}")
    few = frame(stage.spark, events[:: len(events) // (40 * files) or 1])
    rows = dict(zip(DRIVERS, (frame(stage.spark, events), few), strict=True))
    splices = {driver: Splice(spec, stage.spark) for driver in DRIVERS}
    splices[DRIVERS[1]].write(few, DRIVERS[1])  # makes the files that both will write
    for _ in range(rounds):
        writes = [Background(partial(splices[driver].write, rows[driver], driver)) for driver in DRIVERS]
        for write in writes:
            write.result(within=stage.deadline)
    must(is_newest(spec, stage.spark, events), "each event is committed, also those of the writer that lost")
    wasted = sum((splice.wasted for splice in splices.values()), Wasted())
    # A write that failed stays pending until the services roll it back.
    left = [path for instant in pending(spec, stage.spark) for path in data_files(spec, instant)]
    return _Loss(
        mode=mode,
        case="race",
        conflicts=wasted.conflicts,
        seconds=wasted.seconds,
        files=len(left),
        most_files=files * wasted.conflicts,
        megabytes=sum(path.stat().st_size for path in left) / 1e6,
    )


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
    return _Loss(
        mode=mode,
        case=_BEST,
        conflicts=1,
        seconds=seconds,
        files=len(written),
        most_files=files,
        megabytes=megabytes,
    )


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
