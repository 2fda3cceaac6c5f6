"""One table, three looks: as it is, as of the last compaction, and as of any instant."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asynclock.errors import ConfigError
from asynclock.spark import read, run, run_services, timeline
from asynclock.spark.hudi.layout import layout_of
from asynclock.spark.hudi.options import read_options
from tests.laboratory.mechanisms.stage import Shown, Stage, must

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from asynclock.spark.spec.model import Spec

_CHANGES = {
    "every_commits = 10": "every_commits = 1",
    "retain_commits = 10 }": "retain_commits = 30 }\n"
    "archiving = { keep_min_commits = 40, keep_max_commits = 50 }",
}


def show(stage: Stage) -> Shown:
    """Keep what a reader sees after each step, and ask for all of it again at the end."""
    spec = stage.fleet(stage.sized(300, 8_000), changes=_CHANGES)
    then = {}
    for stream in ("registry", "departures", "services", "arrivals"):
        if stream == "services":
            run_services(spec, once=True, spark=stage.spark)
        else:
            run(spec, streams=[stream], once=True, spark=stage.spark)
        newest = timeline(spec, stage.spark)[-1].completed
        then[str(newest)] = _rows(read(spec, stage.spark))
        if stream == "services":
            compacted = _rows(read(spec, stage.spark))
            must(
                _optimized(spec, stage) == compacted,
                "after a compaction the read-optimized rows are all rows",
            )
    must(_optimized(spec, stage) == compacted, "a read-optimized query stays at the compaction")
    must(compacted != then[max(then)], "a snapshot has what came after it")
    for as_of, rows in then.items():
        must(_rows(read(spec, stage.spark, as_of=as_of)) == rows, f"as of {as_of} the table is what it was")
    read(spec, stage.spark, as_of=min(then)).createOrReplaceTempView("mechanisms_then")
    counted = stage.spark.sql("SELECT count(*), count(origin) FROM mechanisms_then").collect()[0]
    stage.spark.catalog.dropTempView("mechanisms_then")
    must(tuple(counted) == (len(then[min(then)]), 0), "SQL sees the table before the second stream began")
    _refuses(spec, stage, "20120101000000000", "before the first instant")
    _refuses(spec, stage, "29990101000000000", "in the future")
    return Shown(
        sentence=f"{len(then)} instants read again cell by cell; read-optimized is the table as compacted, "
        f"{len(compacted)} rows without the arrivals; instants that do not exist are refused"
    )


def _rows(frame: DataFrame) -> list[str]:
    return sorted(str(row) for row in frame.collect())


def _optimized(spec: Spec, stage: Stage) -> list[str]:
    reader = stage.spark.read.format("hudi").options(**read_options(spec, query_type="read_optimized"))
    return _rows(layout_of(spec).shown(reader.load(spec.table.path)))


def _refuses(spec: Spec, stage: Stage, as_of: str, what: str) -> None:
    try:
        read(spec, stage.spark, as_of=as_of)
    except ConfigError:
        return
    must(holds=False, what=f"an instant {what} is refused")
