"""A session's settings change nothing of what is stored, and stay as they are."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any, Final

import pyarrow.parquet as pq

from asynclock.spark.check.validation import validate
from asynclock.spark.hudi.own import own_session
from asynclock.spark.reader.snapshot import read as read_table
from asynclock.spark.runs.run import run, run_services
from asynclock.spark.spec.load import load_spec
from asynclock.spark.writer.splice import Splice

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from asynclock.spark.spec.model import Spec

# For each setting about types, dates, case, arithmetic, null and old behaviour: not its default.
ODD: Final = {
    "spark.sql.timestampType": "TIMESTAMP_NTZ",
    "spark.sql.session.timeZone": "Asia/Kathmandu",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.ansi.enforceReservedKeywords": "true",
    "spark.sql.ansi.doubleQuotedIdentifiers": "true",
    "spark.sql.caseSensitive": "true",
    "spark.sql.storeAssignmentPolicy": "STRICT",
    "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
    "spark.sql.charVarcharAsString": "true",
    "spark.sql.readSideCharPadding": "false",
    "spark.sql.decimalOperations.allowPrecisionLoss": "false",
    "spark.sql.datetime.java8API.enabled": "true",
    "spark.sql.parser.escapedStringLiterals": "true",
    "spark.sql.parser.quotedRegexColumnNames": "true",
    "spark.sql.jsonGenerator.ignoreNullFields": "false",
    "spark.sql.json.filterPushdown.enabled": "false",
    "spark.sql.sources.default": "json",
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    "spark.sql.sources.partitionOverwriteMode": "dynamic",
    "spark.sql.files.ignoreCorruptFiles": "true",
    "spark.sql.files.ignoreMissingFiles": "true",
    "spark.sql.parquet.binaryAsString": "true",
    "spark.sql.parquet.int96AsTimestamp": "false",
    "spark.sql.parquet.int96TimestampConversion": "true",
    "spark.sql.parquet.inferTimestampNTZ.enabled": "false",
    "spark.sql.parquet.outputTimestampType": "INT96",
    "spark.sql.parquet.writeLegacyFormat": "true",
    "spark.sql.parquet.enableVectorizedReader": "false",
    "spark.sql.parquet.mergeSchema": "true",
    "spark.sql.parquet.respectSummaryFiles": "true",
    "spark.sql.parquet.fieldId.read.enabled": "true",
    "spark.sql.parquet.datetimeRebaseModeInRead": "LEGACY",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "LEGACY",
    "spark.sql.parquet.int96RebaseModeInRead": "LEGACY",
    "spark.sql.parquet.int96RebaseModeInWrite": "LEGACY",
    "spark.sql.avro.datetimeRebaseModeInRead": "LEGACY",
    "spark.sql.avro.datetimeRebaseModeInWrite": "LEGACY",
    "spark.sql.legacy.timeParserPolicy": "LEGACY",
    "spark.sql.legacy.castComplexTypesToString.enabled": "true",
    "spark.sql.legacy.charVarcharAsString": "true",
    "spark.sql.legacy.sizeOfNull": "true",
    "spark.sql.legacy.parseNullPartitionSpecAsStringLiteral": "true",
    "spark.sql.legacy.allowNegativeScaleOfDecimal": "true",
    "spark.sql.legacy.interval.enabled": "true",
    "spark.sql.legacy.statisticalAggregate": "true",
    "spark.sql.legacy.integerGroupingId": "true",
    "spark.sql.legacy.literal.pickMinimumPrecision": "false",
    "spark.sql.legacy.typeCoercion.datetimeToString.enabled": "true",
    "spark.sql.legacy.followThreeValuedLogicInArrayExists": "false",
    "spark.sql.legacy.fromDayTimeString.enabled": "true",
    "spark.sql.legacy.parquet.nanosAsLong": "true",
    "spark.sql.legacy.json.allowEmptyString.enabled": "true",
    "spark.sql.legacy.dataset.nameNonStructGroupingKeyAsValue": "true",
    "spark.sql.legacy.allowUntypedScalaUDF": "true",
    "spark.sql.optimizer.excludedRules": (
        "org.apache.spark.sql.catalyst.optimizer.SimplifyConditionals,"
        "org.apache.spark.sql.catalyst.optimizer.UpdateNullabilityInAttributeReferences"
    ),
    "spark.sql.constraintPropagation.enabled": "false",
    "spark.sql.pivotMaxValues": "1",
    "spark.sql.groupByOrdinal": "false",
    "spark.sql.orderByOrdinal": "false",
    "spark.sql.groupByAliases": "false",
}  # fmt: skip
SPEC: Final = """
[table]
path = "table"
key = ["k"]
partition_by = ["p"]
buckets = 1

[locks]
url = "locks"

[services]
compaction = { every_commits = 1 }

[streams.c]
source = "in/c/*"
format = "csv"
ordering = "at"
checkpoint = "checkpoints/c"
on_bad_row = "quarantine"
columns = { at = "timestamp", d = "date", t = "timestamp", f = "float", m = "decimal(20,6)", s = "string" }

[streams.q]
source = "in/q/*"
format = "parquet"
ordering = "at"
checkpoint = "checkpoints/q"
on_bad_row = "quarantine"
columns = { at = "timestamp", d = "date", t = "timestamp", old = "timestamp", b = "boolean", n = "bigint" }
"""
CSV: Final = (
    "k,p,at,d,t,f,m,s\n"
    "N1,007,2024-03-31 02:30:00,0001-01-01,0001-01-01 00:00:00,0.1,12345678901234.567891,a\\nb\n"
    "N2,01,1883-11-18 12:03:57.999999,1582-10-10,1582-10-10 23:59:59,nan,-1,\n"
    "N3,01,soon,,,,,\n"
    "N4,,2024-01-01,,,,,\n"
)


def odd_session(spark: SparkSession) -> SparkSession:
    """A session with all of them."""
    odd = spark.newSession()
    for name, value in ODD.items():
        odd.conf.set(name, value)
    return odd


def deliver(folder: Path, spark: SparkSession) -> Spec:
    """A spec over a file of text and one of parquet, with INT96 as Spark writes it."""
    (folder / "in/c").mkdir(parents=True)
    (folder / "in/c/0.csv").write_text(CSV)
    rows = "VALUES ('N1', '007', '2024-03-31 02:30:00'), ('N2', '01', '1500-01-01 00:00:00') AS t(k, p, at)"
    frame = spark.sql(
        "SELECT k, p, CAST(at AS timestamp_ltz) AS at, CAST('1582-10-10' AS date) AS d,"
        " CAST(at AS timestamp_ltz) AS t, CAST(at AS timestamp_ltz) AS old, true AS b, 1 AS n FROM " + rows
    )
    frame.coalesce(1).write.option("outputTimestampType", "INT96").parquet(str(folder / "in/q"))
    (folder / "spec.toml").write_text(SPEC)
    return load_spec(folder / "spec.toml")


def work(spec: Spec, spark: SparkSession) -> None:
    """Everything that writes: streams, a frame, a delete and the services."""
    run(spec, once=True, spark=spark)
    splice = Splice(spec, spark)
    moment = "timestamp_micros(1711852200000000L)"
    frame = spark.sql(
        f"SELECT 'N5' AS k, '01' AS p, {moment} AS at, DATE'1582-10-10' AS d, {moment} AS t,"
        " CAST(0.1 AS float) AS f, CAST(1.5 AS decimal(20,6)) AS m, 's' AS s"
    )
    splice.write(frame, "c", batch_id=1, query_id="mine")
    splice.delete([{"k": "N2", "p": "01"}], stream="c", up_to=dt.datetime(2025, 1, 1, tzinfo=dt.UTC))
    run_services(spec, once=True, spark=spark)


def stored(spec: Spec, spark: SparkSession) -> list[tuple[Any, ...]]:
    """The cells of the table, times as numbers."""
    frame = read_table(spec, spark)
    number = {"timestamp": "unix_micros(`{}`)", "date": "unix_date(`{}`)"}
    columns = [(name, kind) for name, kind in frame.dtypes if not name.startswith("_")]
    cells = [number.get(kind, "`{}`").format(name) for name, kind in columns]
    return sorted(tuple(map(repr, row)) for row in frame.selectExpr(*cells).collect())


def schemas(folder: Path) -> set[str]:
    """The columns of the table's base files."""
    files = [path for path in (folder / "table").rglob("*.parquet") if ".hoodie" not in path.parts]
    return {str(pq.read_schema(path).remove_metadata()) for path in files}


def entries(folder: Path) -> list[str]:
    """The lines of the quarantine, without the names of files."""
    files = (folder / "checkpoints").rglob("*.json")
    lines = [line for path in files for line in path.read_text().splitlines() if '"reason"' in line]
    return sorted(line[line.index('"line"') :] for line in lines)


def test_settings_change_nothing_of_what_is_stored(tmp_path: Path, spark: SparkSession) -> None:
    """All odd settings at once: every cell, every type and every entry is that of a default session."""
    plain, other = tmp_path / "plain", tmp_path / "odd"
    specs = {folder: deliver(folder, spark) for folder in (plain, other)}
    odd = odd_session(spark)

    work(specs[plain], spark)
    work(specs[other], odd)

    assert stored(specs[other], spark) == stored(specs[plain], spark)
    assert len(schemas(plain)) == 1
    assert schemas(other) == schemas(plain)
    assert len(entries(plain)) == 2
    assert entries(other) == entries(plain)
    assert validate(specs[other], spark).ok == validate(specs[other], odd).ok
    assert {name: odd.conf.get(name) for name in ODD} == ODD


def test_types_are_those_of_the_spec_in_any_session(tmp_path: Path, spark: SparkSession) -> None:
    """A timestamp of the view is an instant, although the session calls another type so."""
    spec = deliver(tmp_path, spark)
    odd = odd_session(spark)

    run(spec, once=True, spark=odd)

    assert dict(read_table(spec, odd).dtypes) == dict(read_table(spec, spark).dtypes)
    assert {kind for _, kind in read_table(spec, odd).dtypes} >= {"timestamp", "date", "decimal(20,6)"}


def test_an_own_session_keeps_what_is_not_about_values(spark: SparkSession) -> None:
    """Stores, catalogs, options of Hudi and the number of tasks are the user's; it is made once."""
    user = odd_session(spark)
    kept = {
        "spark.sql.shuffle.partitions": "3",
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "7",
        "spark.sql.catalog.other": "x.Y",
        "fs.s3a.endpoint": "http://127.0.0.1:1",
        "hoodie.some.option": "1",
    }
    for name, value in kept.items():
        user.conf.set(name, value)

    # As a builder notes it of a Spark that runs already.
    user._jsparkSession.sessionState().conf().setConfString("spark.executor.memory", "3g")
    user._jsparkSession.sessionState().conf().setConfString("spark.sql.warehouse.dir", "elsewhere")
    own = own_session(user)

    assert {name: own.conf.get(name) for name in kept} == kept
    assert own.conf.get("spark.sql.timestampType") == "TIMESTAMP_LTZ"
    assert own.conf.get("spark.sql.session.timeZone") == "UTC"
    assert own.conf.get("spark.sql.ansi.enabled") == "false"
    again = own_session(own)
    again.conf.set("hoodie.some.option", "2")
    assert own.conf.get("hoodie.some.option") == "2"
    assert user.conf.get("hoodie.some.option") == "1"


def test_an_own_session_looks_at_many_files_with_a_task_per_core(spark: SparkSession, tmp_path: Path) -> None:
    """Spark's default is a task for each file, whose start takes longer than the look."""
    for number in range(40):  # Spark starts a job from 33 files on
        (tmp_path / f"{number}.txt").write_text("x\n")
    own, group = own_session(spark.newSession()), str(tmp_path)

    spark.sparkContext.setLocalProperty("spark.jobGroup.id", group)
    try:
        own.read.text([str(path) for path in tmp_path.iterdir()])
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()

    status = spark.sparkContext.statusTracker()
    (job,) = map(status.getJobInfo, status.getJobIdsForGroup(group))
    assert job is not None
    stages = map(status.getStageInfo, job.stageIds)
    assert [stage.numTasks for stage in stages if stage] == [spark.sparkContext.defaultParallelism]
