"""What a table guarantees of its keys, what finds one that is stored twice, and what Hudi's indexes cost."""

from __future__ import annotations

import shutil
import statistics
import time
import uuid
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F  # noqa: N812  the name everybody uses

from asynclock.spark import hoodie, load_spec, repair, run, run_services, validate
from asynclock.spark.hudi.options import write_options
from asynclock.spark.hudi.table import Table
from asynclock.spark.reader.snapshot import snapshot
from asynclock.spark.spec.model import RECORD_KEY
from tests.laboratory.mechanisms.stage import Shown, must

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

    from asynclock.spark.spec.model import Spec
    from tests.laboratory.mechanisms.stage import Stage

_METADATA: Final = {hoodie.METADATA_ENABLE: "true"}
_RECORD_INDEX: Final = {**_METADATA, "hoodie.metadata.global.record.level.index.enable": "true"}
# Of each way the buckets of its table (0: Hudi looks keys up), and Hudi's options beside ours.
_WAYS: Final[Mapping[str, tuple[int, Mapping[str, str]]]] = {
    "buckets (our default)": (2, {}),
    "buckets, metadata table": (2, _METADATA),
    "look-up in the files": (0, {}),
    "record-level index": (0, {**_RECORD_INDEX, hoodie.INDEX_TYPE: "RECORD_INDEX"}),
}
_PLAIN: Final = """
[table]
path = "{name}"
key = ["tailnum"]
kind = "plain"
partition_by = ["{partition}"]
buckets = {buckets}
[locks]
max_clock_skew = 0.0
[streams.departures]
source = "data/departures/*.csv"
ordering = "departed_at"
columns = {{ departed_at = "timestamp", carrier = "string", flight = "int", origin = "string", dest = "string", dep_delay = "double" }}
"""  # noqa: E501  TOML takes no line end there


def show(stage: Stage) -> Shown:
    """Plant a duplicate for validation to find; then write and look up with and without Hudi's indexes."""
    spec = stage.fleet(
        rows=stage.sized(3_000, 60_000), files=2, changes={"every_commits = 10": "every_commits = 2"}
    )
    aircraft, doubled = _one_row_each(stage, spec)
    flown, rows = _one_row_in_a_partition(stage)
    return Shown(
        sentence=f"{aircraft} aircraft have one row each; a copied file stored {doubled} of them twice, "
        "which validation found and the repair undid; a plain table has one row of a key in each partition: "
        f"{rows} of {flown} aircraft, by origin; times are ratios to our default",
        table=_measured(stage),
    )


def _one_row_each(stage: Stage, spec: Spec) -> tuple[int, int]:
    """Return how many keys there are, and how many of them a foreign copy of a file stored twice."""
    run(spec, once=True, spark=stage.spark)
    run_services(spec, once=True, spark=stage.spark)
    stored = snapshot(Table(spec, stage.spark))
    aircraft = stored.count()
    must(stored.select("tailnum").distinct().count() == aircraft, "each key has one row")
    must(validate(spec, stage.spark).ok, "validation accepts the table")

    base = max((stage.folder / "table").glob("*.parquet"), key=lambda file: file.stat().st_size)
    _, token, instant = base.name.split("_")
    shutil.copyfile(base, base.with_name(f"{uuid.uuid4()}-0_{token}_{instant}"))
    report = validate(spec, stage.spark)
    doubled = stage.spark.read.parquet(str(base)).count()
    must(not report.ok, "validation refuses a table with a copied file")
    must(report.differences == doubled, f"it finds each of {doubled} keys, and found {report.differences}")
    must({one.found for one in report.sample} == {"2 rows"}, "it says that they have two rows")
    must(len(report.stray_files) == 1, "it names the file")
    repair(spec, spark=stage.spark)
    must(validate(spec, stage.spark).ok, "after the repair each key has one row again")
    return aircraft, doubled


def _one_row_in_a_partition(stage: Stage) -> tuple[int, int]:
    """Return keys and rows of a plain table that is partitioned by something that changes for a key."""
    spec = _plain(stage, "partitioned", partition="origin", buckets=1)
    run(spec, once=True, spark=stage.spark)
    must(validate(spec, stage.spark).ok, "validation accepts one row of a key in each partition")
    stored = snapshot(Table(spec, stage.spark))
    rows, keys = stored.count(), stored.select("tailnum").distinct().count()
    must(stored.select("tailnum", "origin").distinct().count() == rows, "keys are unique in each partition")
    must(rows > keys, "an aircraft that took off in two places has two rows")
    return keys, rows


def _measured(stage: Stage) -> list[dict[str, object]]:
    """Write and look up in each way, in turns."""
    flights = (
        stage.spark.read.csv(str(stage.folder / "data" / "departures"), header=True)
        .selectExpr(
            "concat(tailnum, ' ', departed_at) AS tailnum",
            "to_timestamp(departed_at) AS departed_at",
            "carrier",
            "CAST(flight AS int) AS flight",
            "origin",
            "dest",
            "CAST(dep_delay AS double) AS dep_delay",
        )
        .dropDuplicates(["tailnum"])
        .withColumn(RECORD_KEY, F.col("tailnum"))
    )
    ways = {name: _Way(stage, f"way{number}", *way) for number, (name, way) in enumerate(_WAYS.items())}
    for way in ways.values():
        way.write(flights)
    changed = flights.orderBy("tailnum").limit(stage.sized(200, 2_000)).localCheckpoint()
    wanted = changed.orderBy(F.desc("tailnum")).first()[0]
    for _ in range(stage.sized(2, 6)):
        for way in ways.values():
            way.write(changed)
            way.look_up(wanted)
    first = next(iter(ways.values()))
    return [
        {
            "index": name,
            "write": way.writes / first.writes,
            "look-up": way.lookups / first.lookups,
            "files read": f"{way.read} of {way.files()}",
        }
        for name, way in ways.items()
    ]


class _Way:
    """A copy-on-write table of flights that is written and read with an index of Hudi's."""

    def __init__(self, stage: Stage, name: str, buckets: int, more: Mapping[str, str]) -> None:
        self._spark: SparkSession = stage.spark
        spec = _plain(stage, name, partition="carrier", buckets=buckets)
        self._path = spec.table.path
        self._options = {**write_options(spec), **more}
        self._written: list[float] = []
        self._looked_up: list[float] = []
        self.read = 0

    def write(self, frame: DataFrame) -> None:
        """Upsert the rows."""
        began = time.perf_counter()
        frame.write.format("hudi").options(**self._options).mode("append").save(self._path)
        self._written.append(time.perf_counter() - began)

    def look_up(self, key: str) -> None:
        """Read the row of a key, and count the files that Spark was given for it."""
        began = time.perf_counter()
        found = self._all().where(F.col(RECORD_KEY) == key).select("flight", "dest")
        must(len(found.collect()) == 1, "the key has one row")
        self._looked_up.append(time.perf_counter() - began)
        self.read = _files_read(found)

    def files(self) -> int:
        """Return the number of files that have rows now."""
        return int(self._all().select("_hoodie_file_name").distinct().count())

    @property
    def writes(self) -> float:
        """Seconds of an upsert, the first one left out."""
        return statistics.median(self._written[1:])

    @property
    def lookups(self) -> float:
        """Seconds of a look-up."""
        return statistics.median(self._looked_up)

    def _all(self) -> DataFrame:
        names = (
            hoodie.METADATA_ENABLE,
            hoodie.INDEX_TYPE,
            "hoodie.metadata.global.record.level.index.enable",
        )
        options = {name: self._options[name] for name in names if name in self._options}
        reader = self._spark.read.format("hudi").options(**options)
        return reader.option("hoodie.enable.data.skipping", "true").load(self._path)


def _files_read(frame: DataFrame) -> int:
    """Return how many files the scan of a frame that was collected has read."""
    plan: Any = frame._jdf.queryExecution().executedPlan()
    return int(plan.collectLeaves().head().metrics().apply("numFiles").value())


def _plain(stage: Stage, name: str, *, partition: str, buckets: int) -> Spec:
    path = stage.folder / f"{name}.toml"
    path.write_text(_PLAIN.format(name=name, partition=partition, buckets=buckets))
    return load_spec(path)
