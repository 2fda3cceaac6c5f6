"""A plain table with a partition for each hour of departure, and flights that are reported late."""

from __future__ import annotations

import csv
import time
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F  # noqa: N812  the name everybody uses

from asynclock.errors import SpecError
from asynclock.spark import changes, load_spec, read, run, validate
from tests.laboratory.mechanisms.stage import Shown, must

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from asynclock.spark.spec.model import Spec
    from tests.laboratory.mechanisms.stage import Stage

Row = dict[str, str]
_NAMES: Final = ("flight_id", "hour", "departed_at", "carrier", "dep_delay")
_LATE_HOURS: Final = 3
_SPEC: Final = """\
[table]
path = "hours"
kind = "plain"
key = ["flight_id", "hour"]
partition_by = ["hour"]
buckets = 1

[streams.reports]
source = "reports/*.csv"
ordering = "departed_at"
columns = { departed_at = "timestamp", carrier = "string", dep_delay = "double" }
"""


def show(stage: Stage) -> Shown:
    """Report the flights of some hours late; they must be in the partition of their hour, and read alone."""
    stage.fleet(stage.sized(1_500, 30_000))
    flights = _flights(stage.folder / "data" / "departures")
    hours = sorted({row["hour"] for row in flights})
    late_hours = hours[: 2 * _LATE_HOURS : 2]
    late = [row for row in flights if row["hour"] in late_hours][::2]
    held_back = {row["flight_id"] for row in late}
    path = stage.folder / "hours.toml"
    path.write_text(_SPEC)
    reports = stage.folder / "reports"
    reports.mkdir()
    _deliver(reports / "in-time.csv", [row for row in flights if row["flight_id"] not in held_back])
    spec = load_spec(path)
    run(spec, once=True, spark=stage.spark)
    since = changes(spec, stage.spark).until
    before = _files(stage.folder / "hours")
    _deliver(reports / "late.csv", late)
    run(spec, once=True, spark=stage.spark)
    after = _files(stage.folder / "hours")

    written = {file.split("/")[0] for file in after - before}
    must(
        written == {f"hour={hour}" for hour in late_hours},
        "late rows touch the partitions of their hours only",
    )
    whole, whole_files, whole_seconds = _counted(stage.spark, spec, None)
    fresh, fresh_files, fresh_seconds = _counted(stage.spark, spec, since)
    must(fresh == held_back, "the increment is the late rows, all of them and no others")
    must(len(whole) == len(flights), "the table has every flight")
    must(whole_files == len(hours), "the whole table is one file for each hour")
    must(fresh_files == _LATE_HOURS, "the increment is read from the files that changed, and no others")
    hour = F.date_format("departed_at", "yyyy-MM-dd'T'HH")
    must(read(spec, stage.spark).where(hour != F.col("hour")).isEmpty(), "each row is in its hour")
    must(validate(spec, stage.spark).ok, "the table agrees with the reports")
    _refused(stage)
    return Shown(
        sentence=f"{len(late)} late flights are in the partitions of {_LATE_HOURS} of {len(hours)} hours; "
        f"the increment read {fresh_files} of {whole_files} files; a splice table refuses a partition by "
        "its ordering column",
        table=[
            {"read": "whole table", "files": whole_files, "rows": len(whole), "seconds": whole_seconds},
            {"read": "increment", "files": fresh_files, "rows": len(fresh), "seconds": fresh_seconds},
        ],
    )


def _flights(folder: Path) -> list[Row]:
    """Return the departures, each once, with the hour of the event."""
    found: dict[str, Row] = {}
    for file in sorted(folder.glob("*.csv")):
        with file.open(newline="") as lines:
            for row in csv.DictReader(lines):
                row["flight_id"] = f"{row['tailnum']}-{row['carrier']}{row['flight']}-{row['departed_at']}"
                row["hour"] = row["departed_at"][:13]
                found[row["flight_id"]] = {name: row[name] for name in _NAMES}
    return list(found.values())


def _deliver(file: Path, rows: list[Row]) -> None:
    hidden = file.with_name(f".{file.name}")
    with hidden.open("w", newline="") as lines:
        writer = csv.DictWriter(lines, _NAMES, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    hidden.rename(file)


def _files(table: Path) -> set[str]:
    return {str(file.relative_to(table)) for file in table.glob("hour=*/*.parquet")}


def _counted(spark: SparkSession, spec: Spec, since: str | None) -> tuple[set[str], int, float]:
    """Return the keys of a read, the data files that Spark's scans of the table opened, and the seconds."""
    jvm: Any = spark._jsparkSession
    store = jvm.sharedState().statusStore()
    begun = store.executionsCount()
    started = time.monotonic()
    frame = changes(spec, spark, since=since).frame
    keys = {row[0] for row in frame.select("flight_id").collect()}
    seconds = time.monotonic() - started
    jvm.sparkContext().listenerBus().waitUntilEmpty()
    executions = store.executionsList()
    files: dict[int, int] = {}  # an adaptive plan lists a scan again each time that it changes
    for place in range(begun, executions.size()):
        execution = executions.apply(place)
        values = store.executionMetrics(execution.executionId())
        metrics = execution.metrics()
        for number in range(metrics.size()):
            metric = metrics.apply(number)
            value = values.get(metric.accumulatorId())
            if metric.name() == "number of files read" and value.isDefined():
                files[metric.accumulatorId()] = int(value.get().replace(",", ""))
    return keys, sum(files.values()), seconds


def _refused(stage: Stage) -> None:
    """A splice table must refuse partitions by the time of an event."""
    splice = _SPEC.replace('kind = "plain"\n', "").replace('["hour"]', '["departed_at"]')
    whole_numbers = splice.replace('departed_at = "timestamp"', 'departed_at = "bigint"')
    path = stage.folder / "refused.toml"
    for text, reason in (
        (whole_numbers, "cannot order a stream"),
        (splice, "no type for a key or partition"),
    ):
        path.write_text(text)
        message = ""
        try:
            load_spec(path)
        except SpecError as error:
            message = str(error)
        must(reason in message, f"a splice table refuses partitions by the time of an event: {reason}")
