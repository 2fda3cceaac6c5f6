"""Compaction, cleaning, archiving, savepoints, clustering: in the writes, and by elected leaders."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from py4j.protocol import Py4JJavaError

from asynclock.errors import SpecError
from asynclock.spark import (
    ClusteringPlanError,
    delete_savepoint,
    read,
    repair,
    run,
    run_services,
    savepoint,
    timeline,
)
from asynclock.spark.hudi.options import compaction_options, write_options
from asynclock.spark.hudi.table import Table
from asynclock.spark.services.work import Compaction, write_client
from tests.laboratory.mechanisms.feed import STREAMS, Feed, seen
from tests.laboratory.mechanisms.stage import Shown, must
from tests.spark.pipeline_kit import Background

if TYPE_CHECKING:
    from asynclock.spark.results import ServicesReport
    from asynclock.spark.spec.model import Spec
    from tests.laboratory.mechanisms.stage import Stage

_EVERY: Final = {
    "every_commits = 10": "every_commits = 3",
    "retain_commits = 10 }": "retain_commits = 1 }\n"
    "archiving = { keep_min_commits = 2, keep_max_commits = 3 }",
}


def show(stage: Stage) -> Shown:
    """Each service does its work once, and what it must not do is refused."""
    files = stage.sized(1, 6)
    feed = Feed(stage, stage.sized(2_000, 60_000), files=4 * files, changes=_EVERY)
    table = [
        *_elected(stage, feed, files),
        _one_plan(stage, feed, files),
        _plan_by_hand(stage, feed.spec),
        _inline(stage, feed),
        _clustered(stage, feed),
    ]
    state = seen(feed.spec, stage.spark)
    must(all(state[stream] == feed.expected(stream) for stream in STREAMS), "no service changes a row")
    return Shown(sentence=f"{len(table)} table services and faults of them, no row changed", table=table)


def _elected(stage: Stage, feed: Feed, files: int) -> list[dict[str, object]]:
    spec, spark = feed.spec, stage.spark
    compactions = list(_write_and_serve(stage, feed, files))
    kept = savepoint(spec, spark=spark)
    protected = {name for name in _data(spec) if name.endswith(".parquet")}
    must(protected, "the newest compaction's files are those of the savepoint")
    compactions += _write_and_serve(stage, feed, files)
    must(protected <= _data(spec), "cleaning keeps the files of a savepoint")
    with_savepoint = len(timeline(spec, spark))
    delete_savepoint(spec, kept, spark=spark)
    compactions += _write_and_serve(stage, feed, files)
    cleaned = protected - _data(spec)
    must(cleaned, "cleaning removes those files once the savepoint is deleted")
    instants = timeline(spec, spark, archived=True)
    done = [one.requested for one in instants if one.action == "commit"]
    must(sorted(compactions) == sorted(done), "of two leaders one does each compaction, once")
    must(len(done) >= 3, "a compaction after each round of writes")
    archived = sum(one.archived for one in instants)
    must(archived, "old instants are archived")
    return [
        _row("compaction", f"{len(done)} by two services at once, each plan once"),
        _row("savepoint", f"{len(protected)} files kept by cleaning, {with_savepoint} instants by archiving"),
        _row("cleaning", f"{len(cleaned)} of these files removed once the savepoint was deleted"),
        _row("archiving", f"{archived} of {len(instants)} instants in the archive"),
    ]


def _write_and_serve(stage: Stage, feed: Feed, files: int) -> list[str]:
    """Write that many files of each stream; then two services do what is due. Return the compactions."""
    for stream in STREAMS:
        feed.deliver(stream, files)
    run(feed.spec, once=True, spark=stage.spark)
    done: list[str] = []
    for _ in range(2):  # what a compaction has replaced is cleaned in the next round
        both = [Background(lambda: run_services(feed.spec, once=True, spark=stage.spark)) for _ in range(2)]
        reports: list[ServicesReport] = [one.result() for one in both]
        done += [instant for report in reports for instant in report.compactions]
    return done


def _one_plan(stage: Stage, feed: Feed, files: int) -> dict[str, object]:
    """While one compactor is at work on a plan, another begins the same plan without an election."""
    spec, spark = feed.spec, stage.spark
    for stream in STREAMS:
        feed.deliver(stream, files)
    run(spec, once=True, spark=spark)
    jvm: Any = spark._jvm
    empty = jvm.org.apache.hudi.common.util.Option.empty
    second = Compaction(Table(spec, spark))
    with write_client(Table(spec, spark), compaction_options(spec, tasks=2)) as first:
        instant = first.scheduleCompaction(empty()).get()
        result = first.compact(instant)
        refusal = ""
        try:
            second.step()
        except Py4JJavaError as error:
            refusal = str(error.java_exception.getMessage())
        must(
            "heartbeat" in refusal, f"Hudi refuses the second compactor while the first one lives: {refusal}"
        )
        first.commitCompaction(instant, result, empty())
    second.step()
    done = [one for one in timeline(spec, spark) if one.requested == instant and one.completed]
    must(len(done) == 1 and not second.done, "the plan is done once")
    return _row(
        "two compactors", "the second one is refused while the first one lives; the plan is done once"
    )


def _plan_by_hand(stage: Stage, spec: Spec) -> dict[str, object]:
    """A clustering plan on a splice table stops streams and services by its name; a command removes it."""
    jvm: Any = stage.spark._jvm
    options = write_options(spec) | {"hoodie.clustering.inline.max.commits": "1"}
    with write_client(Table(spec, stage.spark), options) as client:
        instant = client.scheduleClustering(jvm.org.apache.hudi.common.util.Option.empty()).get()
    for refused in (run, run_services):
        named = ""
        try:
            refused(spec, once=True, spark=stage.spark)
        except ClusteringPlanError as error:
            named = error.instant
        must(named == instant, f"{refused.__name__} names the clustering plan {instant}")
    must(repair(spec, spark=stage.spark).plans == (instant,), "pipeline repair removes it")
    run(spec, once=True, spark=stage.spark)
    run_services(spec, once=True, spark=stage.spark)
    return _row("clustering plan by hand", "named by streams and services, removed by pipeline repair")


def _inline(stage: Stage, feed: Feed) -> dict[str, object]:
    """A plain table whose writes compact it."""
    spec = feed.plain(
        "inline", 'type = "mor"\nbuckets = 1', 'mode = "inline"\ncompaction = { every_commits = 2 }'
    )
    run(spec, once=True, spark=stage.spark)
    instants = timeline(spec, stage.spark)
    writes = sum(one.action == "deltacommit" for one in instants)
    done = sum(one.action == "commit" for one in instants)
    must(done >= writes // 2 > 0, f"{writes} writes compact their table after every second one: {done}")
    with suppress(SpecError):
        run_services(spec, once=True, spark=stage.spark)
        must(holds=False, what="services beside a table whose writes do their work are refused")
    return _row("inline", f"{writes} writes, {done} compactions among them; services beside them refused")


def _clustered(stage: Stage, feed: Feed) -> dict[str, object]:
    """A plain table whose rows an elected leader sorts."""
    spec = feed.plain(
        "clustered",
        'type = "cow"\nbuckets = 0',
        'clustering = { every_commits = 2, sort_by = ["origin"] }',
    )
    run(spec, once=True, spark=stage.spark)
    before, rows = _origins(stage, spec), read(spec, stage.spark).count()
    must(before != sorted(before), "before the clustering the rows are not sorted")
    done = run_services(spec, once=True, spark=stage.spark).clusterings
    after = _origins(stage, spec)
    must(len(done) == 1 and after == sorted(after), "an elected leader sorts the rows")
    must(read(spec, stage.spark).count() == rows, "clustering loses no row")
    return _row("clustering", f"{rows} rows of a plain table sorted by their origin")


def _origins(stage: Stage, spec: Spec) -> list[str]:
    """Return the origins of the rows, file by file, in the order in which they are stored."""
    files = sorted(read(spec, stage.spark).inputFiles())
    must(len(files) == 1, f"so few rows are in one file: {files}")
    return [row.origin for row in stage.spark.read.parquet(*files).select("origin").collect()]


def _data(spec: Spec) -> set[str]:
    folder = Path(urlsplit(spec.table.path).path)
    return {path.name for path in folder.iterdir() if path.is_file() and path.suffix != ".crc"}


def _row(service: str, done: str) -> dict[str, object]:
    return {"service": service, "what it did": done}
