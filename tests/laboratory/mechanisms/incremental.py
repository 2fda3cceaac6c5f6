"""A consumer that asks what changed since its last look misses no commit, however late or slow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asynclock.spark import Splice, changes, read, run, run_services, timeline
from tests.laboratory.mechanisms.stage import Shown, Stage, must
from tests.spark.pipeline_kit import Background, wait_for, waiting

if TYPE_CHECKING:
    from asynclock.spark.spec.model import Spec

_CHANGES = {
    "every_commits = 10": "every_commits = 5",
    "max_files_per_trigger = 3": "max_files_per_trigger = 1",
}


class _Copy:
    """The rows that a consumer has put together from changes alone."""

    def __init__(self, spec: Spec, stage: Stage) -> None:
        self.rows: dict[str, Any] = {}
        self.since: str | None = None
        self.polls = 0
        self.told = 0
        self._spec = spec
        self._spark = stage.spark

    def poll(self) -> None:
        got = changes(self._spec, self._spark, since=self.since)
        for row in got.frame.drop("_deleted").where("NOT _deleted").collect():
            self.rows[row.tailnum] = row
            self.told += 1
        for row in got.frame.where("_deleted").select("tailnum").collect():
            self.rows.pop(row.tailnum, None)
        self.since = got.until
        self.polls += 1


def show(stage: Stage) -> Shown:
    """Poll beside three streams; one write begins before them all and commits after them."""
    spec = stage.fleet(stage.sized(400, 8_000), files=stage.sized(4, 24), changes=_CHANGES)
    run(spec, streams=["registry"], once=True, spark=stage.spark)
    copy = _Copy(spec, stage)
    copy.poll()

    gate = stage.folder / "gate"
    row = "'SLOW' AS tailnum, now() AS arrived_at, 'LAX' AS landed_in, 1D AS arr_delay, 2D AS air_time"
    frame = waiting(stage.spark.sql(f"SELECT {row}, 3 AS distance"), gate)
    slow = Background(lambda: Splice(spec, stage.spark).write(frame, "arrivals"))
    try:
        wait_for(lambda: any(not one.completed for one in timeline(spec, stage.spark)))
        writing = Background(lambda: run(spec, streams=["departures"], once=True, spark=stage.spark))
        before = len(timeline(spec, stage.spark))
        wait_for(lambda: len(timeline(spec, stage.spark)) > before + 1)
        copy.poll()
        writing.result(within=stage.deadline)
        copy.poll()
        polled_until = str(copy.since)
    finally:
        gate.touch()
    slow.result()
    late = [one for one in timeline(spec, stage.spark) if one.requested < polled_until < str(one.completed)]
    must(late, "a commit was requested before a poll and completed after it")
    must("SLOW" not in copy.rows, "what is in flight is not told")
    writing = Background(lambda: run(spec, streams=["arrivals"], once=True, spark=stage.spark))
    run_services(spec, once=True, spark=stage.spark)
    copy.poll()
    writing.result(within=stage.deadline)
    gone = next(iter(copy.rows))
    Splice(spec, stage.spark).delete([{"tailnum": gone}])
    copy.poll()

    must("SLOW" in copy.rows, "a slow commit is reported once it is complete")
    must(gone not in copy.rows, "a deleted key is reported")
    view = {row.tailnum: row for row in read(spec, stage.spark).collect()}
    must(copy.rows == view, "the copy equals the view")
    return Shown(
        sentence=f"{copy.polls} polls beside the streams told {copy.told} rows; the copy equals the view of "
        f"{len(view)} rows; {len(late)} late commit, which a read by request time misses, was told"
    )
