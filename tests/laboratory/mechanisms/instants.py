"""Every action on the table is an instant, and each batch is exactly one of them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from asynclock.spark import Splice, read, run, run_services, savepoint, timeline
from asynclock.spark.hudi.instants import DELETES
from tests.laboratory.mechanisms.stage import Shown, Stage, must
from tests.spark.pipeline_kit import Background, wait_for, waiting

if TYPE_CHECKING:
    from asynclock.spark.results import StreamReport

_SERVICES = "compaction = { every_commits = 4 }\ncleaning = { retain_commits = 2 }\n"
_CHANGES = {
    "compaction = { every_commits = 10 }\ncleaning = { retain_commits = 10 }\n": _SERVICES
    + "archiving = { keep_min_commits = 4, keep_max_commits = 6 }\n",
    "max_files_per_trigger = 3": "max_files_per_trigger = 1",
}


def show(stage: Stage) -> Shown:
    """Write, delete, compact, clean, archive and save, and find all of it on the timeline."""
    spec = stage.fleet(stage.sized(300, 8_000), files=stage.sized(4, 24), changes=_CHANGES)
    reports: list[StreamReport] = []
    compactions: set[str] = set()
    for streams in (["registry", "departures"], ["arrivals"]):
        reports += run(spec, streams=streams, once=True, spark=stage.spark).streams
        compactions |= {*run_services(spec, once=True, spark=stage.spark).compactions}
    keys = read(spec, stage.spark).select("tailnum").limit(3)
    deleted = Splice(spec, stage.spark).delete(keys)
    kept = savepoint(spec, spark=stage.spark)

    gate = stage.folder / "gate"
    row = "'N1' AS tailnum, now() AS departed_at, 'AA' AS carrier, 1 AS flight, 'JFK' AS origin"
    frame = stage.spark.sql(f"SELECT {row}, 'LAX' AS dest, 0D AS dep_delay")
    write = Background(lambda: Splice(spec, stage.spark).write(waiting(frame, gate), "departures"))
    try:
        wait_for(lambda: timeline(spec, stage.spark)[-1].completed is None)
        *_, pending = timeline(spec, stage.spark)
    finally:
        gate.touch()
    write.result()
    found = timeline(spec, stage.spark, archived=True)

    must(pending.state in {"REQUESTED", "INFLIGHT"}, "a write that goes on is pending")
    must(pending.latency is None and pending.stream is None, "nobody knows yet what it will be")
    batches = Counter(
        (one.stream, one.batch) for one in found if one.batch is not None and one.stream != DELETES
    )
    expected = Counter((one.stream, batch) for one in reports for batch in range(one.batches))
    must(batches == expected, f"each batch is one instant: {batches} instead of {expected}")
    tokens = {one.stream: one.fencing_token for one in reports}
    of_batches = [one for one in found if (one.stream, one.batch) in expected]
    must(all(one.token == tokens[str(one.stream)] for one in of_batches), "each carries its lease's token")
    must(all(one.rows and one.bytes and one.latency for one in of_batches), "each has rows, bytes, latency")
    must(sum(one.rows or 0 for one in found if one.stream == DELETES) == deleted.written, "the delete counts")
    must(any(one.action == "savepoint" and one.requested == kept for one in found), "the savepoint is there")
    must(compactions == {one.requested for one in found if one.action == "commit"}, "so are the compactions")
    must(any(one.action == "clean" for one in found), "and the cleaning")
    completed = [one.completed for one in found if one.completed]
    must(completed == sorted(completed), "they are in the order of completion")
    archived = sum(one.archived for one in found)
    must(archived and not any(one.archived for one in timeline(spec, stage.spark)), "some are archived")
    actions = Counter(one.action for one in found)
    said = ", ".join(f"{number} {action}" for action, number in sorted(actions.items()))
    return Shown(sentence=f"{len(found)} instants ({said}), {archived} of them archived; each batch is one")
