"""Keys and partitions of any text: the rows they name, and where those are stored."""

from __future__ import annotations

import contextlib
import datetime as dt
import itertools
import json
import random
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F  # noqa: N812  the name everybody uses

from asynclock.errors import ConfigError, SpecError
from asynclock.spark.check.strict.derived import derivation
from asynclock.spark.check.strict.values import FIRST_INSTANT, LAST_INSTANT, timestamp
from asynclock.spark.check.validation import validate
from asynclock.spark.hudi.options import sql_options
from asynclock.spark.hudi.table import Table
from asynclock.spark.reader.changes import changes
from asynclock.spark.reader.snapshot import read
from asynclock.spark.services.work import Compaction
from asynclock.spark.spec.derive import FUNCTIONS, Derived
from asynclock.spark.spec.keys import record_key
from asynclock.spark.spec.load import load_spec
from asynclock.spark.writer.splice import Splice
from tests.spark.pipeline_kit import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from asynclock.spark.spec.model import Spec

JSON = {'"csv"\nordering = "at"': '"json"\nordering = "at"'}
QUARANTINE = {"columns = { at": 'on_bad_row = "quarantine"\ncolumns = { at'}
# Hudi looks for ':' and ',' in a key, percent-decodes, and has texts of its own for null and empty.
KEYS = [
    "urn:a:b,c", "::,", ":", ",", "k:v", "k:a,note:b", "%3A", "%", "|", "a|b", "a b", "a+b", " ", "/", "\\",
    "'", '"', "\n", "ü", "u\u0308", "日本", "😀", "null", "__null__", "__empty__", "a", "A",
]  # fmt: skip
PARTITIONS = [
    "..", ".", "../../esc", "/abs", "a", "a/b", "a//b", "a=b", "p=1", "a%2Fb", "%", "a:b", "a\\b", ".hoodie",
    "_x", "null", "default", "1", "01", "1.0", "2024-01-01", "a b", "a+b", "ü", "日本", "*", "{a,b}", "\n",
]  # fmt: skip


@pytest.fixture
def pipeline(tmp_path: Path, spark: SparkSession) -> Pipeline:
    """An empty pipeline."""
    return Pipeline(tmp_path / "inside", spark)


def deliver(pipeline: Pipeline, *events: dict[str, object]) -> None:
    """One more JSON file of stream a."""
    pipeline.place("a", "json", "".join(json.dumps(event) + "\n" for event in events))


def rows(pipeline: Pipeline, spec: Spec, *columns: str) -> set[tuple[object, ...]]:
    """Some columns of the view, each row at most once."""
    found = [tuple(row) for row in read(spec, pipeline.spark).select(*columns).collect()]
    assert len(found) == len(set(found))
    return set(found)


def test_any_text_is_a_key(pipeline: Pipeline) -> None:
    """Every key names one row, through two batches and a compaction, and comes back as it was given."""
    for at in (1, 2):
        deliver(pipeline, *({"k": key, "at": at, "x": 100 * at + n} for n, key in enumerate(KEYS)))
    pipeline.place("b", "csv", "k,seen,y,deleted\n")
    spec = pipeline.spec(JSON)

    pipeline.run(spec, streams=["a"])
    Compaction(Table(spec, pipeline.spark)).step()

    assert rows(pipeline, spec, "k", "x") == {(key, 200 + n) for n, key in enumerate(KEYS)}
    assert read(spec, pipeline.spark).where("k = '::,'").count() == 1
    assert validate(spec, pipeline.spark).ok


def test_plain_sql_meets_the_rows_of_the_streams(pipeline: Pipeline) -> None:
    """INSERT, UPDATE and DELETE on the stored table find rows by key, and the streams go on after them."""
    keys = ["urn:a:b,c", "::,", "plain"]
    deliver(pipeline, *({"k": key, "at": 1, "x": 1} for key in keys))
    spec = pipeline.spec(JSON)
    pipeline.run(spec, streams=["a"])
    options = sql_options(spec)
    given = ", ".join(f"'{name}' = '{value}'" for name, value in options.items())
    sql = pipeline.spark.sql
    sql(f"CREATE TABLE stored USING hudi TBLPROPERTIES ({given}) LOCATION '{spec.table.path}'")
    try:
        sql("DELETE FROM stored WHERE k = 'urn:a:b,c'")
        sql("UPDATE stored SET a__ts = 2, a__x = 20 WHERE k = '::,'")
        values = "k, 3L, 30, NULL, false, NULL, NULL, false"
        sql(f"INSERT INTO stored SELECT {record_key(spec.table)}, {values} FROM VALUES ('plain') AS t(k)")
    finally:
        sql("DROP TABLE stored")
    found = rows(pipeline, spec, "k", "x")
    deliver(pipeline, *({"k": key, "at": 2, "x": 2} for key in keys))
    pipeline.run(spec, streams=["a"])

    assert found == {("::,", 20), ("plain", 30)}
    assert rows(pipeline, spec, "k", "x") == {("urn:a:b,c", 2), ("::,", 2), ("plain", 30)}


def test_keys_of_two_columns_do_not_collide(pipeline: Pipeline) -> None:
    """Keys whose columns would read the same when written one after the other are different rows."""
    keys = [
        ("x,note:y", "z"), ("x", "y,note:z"), ("a|b", "c"), ("a", "b|c"), ("a%7Cb", "c"), ("::,", "::,"),
        ("ab", "c"), ("a", "bc"),
    ]  # fmt: skip
    spec = pipeline.spec(JSON | {'key = ["k"]': 'key = ["k", "note"]'})
    for at in (1, 2):
        deliver(
            pipeline,
            *({"k": k, "note": note, "at": at, "x": 10 * at + n} for n, (k, note) in enumerate(keys)),
        )

    pipeline.run(spec, streams=["a"])

    assert rows(pipeline, spec, "k", "note", "x") == {(*key, 20 + n) for n, key in enumerate(keys)}


def test_any_text_is_a_partition(pipeline: Pipeline, tmp_path: Path) -> None:
    """Partition values come back as they were given, are found by a filter, and stay in the table."""
    partitioned = {
        'key = ["k"]': 'key = ["k"]\npartition_by = ["note", "x"]',
        'x = "int"': 'x = "int", v = "int"',
    }
    spec = pipeline.spec(JSON | partitioned)
    for at in (1, 2):
        deliver(
            pipeline,
            *({"k": f"N{n}", "note": v, "x": 7, "at": at, "v": at} for n, v in enumerate(PARTITIONS)),
        )

    pipeline.run(spec, streams=["a"])
    Compaction(Table(spec, pipeline.spark)).step()

    assert rows(pipeline, spec, "k", "note", "x", "v") == {
        (f"N{n}", value, 7, 2) for n, value in enumerate(PARTITIONS)
    }
    found = read(spec, pipeline.spark).where("note IN ('..', 'a/b')").select("note").collect()
    assert sorted(row["note"] for row in found) == ["..", "a/b"]
    assert {path.name for path in tmp_path.iterdir()} == {"inside"}
    inside = {path.name for path in (tmp_path / "inside").iterdir()}
    assert inside == {"in", "spec.toml", "locks", "table", "checkpoints"}


UNFIT = [
    (None, "note is missing"),
    ("", "note is missing"),
    ("__HIVE_DEFAULT_PARTITION__", "note is __HIVE_DEFAULT_PARTITION__, which a partition has for null"),
    ("/" * 84, "note is too long for the name of a folder: 257 bytes, 255 are allowed"),
    ("a\0b", "note has the character NUL"),
]


def test_partition_that_cannot_be_stored_is_put_aside(pipeline: Pipeline) -> None:
    """What no folder can be called is quarantined with its reason; the longest name that fits is stored."""
    spec = pipeline.spec(JSON | QUARANTINE | {'key = ["k"]': 'key = ["k"]\npartition_by = ["note"]'})
    longest = "/" * 83
    deliver(
        pipeline,
        *({"k": f"N{n}", "note": value, "at": 1} for n, (value, _) in enumerate(UNFIT)),
        {"k": "good", "note": longest, "at": 1},
    )

    pipeline.run(spec, streams=["a"])

    assert [row["reason"] for row in pipeline.quarantined("a")] == [reason for _, reason in UNFIT]
    assert rows(pipeline, spec, "k", "note") == {("good", longest)}


@pytest.mark.parametrize(("value", "reason"), UNFIT[:3])
def test_frame_with_an_unfit_partition_is_not_committed(
    pipeline: Pipeline, value: str | None, reason: str
) -> None:
    """A frame that is written directly fails with the same reasons, and nothing of it can be read."""
    spec = pipeline.spec({'key = ["k"]': 'key = ["k"]\npartition_by = ["note"]'})
    frame = pipeline.spark.createDataFrame([("N0", 1, 1, value)], "k string, at bigint, x int, note string")

    with pytest.raises(Exception, match=reason):
        Splice(spec, pipeline.spark).write(frame, "a")

    assert pipeline.timeline(spec).commits == []


def test_key_that_is_not_unicode_is_not_committed(pipeline: Pipeline) -> None:
    """Two keys of other bytes, which would both read as the same replacement character, are refused."""
    spec = pipeline.spec()
    frame = pipeline.spark.sql(
        "SELECT CAST(unhex(h) AS STRING) k, 1L at, 1 x, 'n' note FROM VALUES ('4DFC'), ('4DF6') AS t(h)"
    )

    with pytest.raises(Exception, match="k is not UTF-8"):
        Splice(spec, pipeline.spark).write(frame, "a")


@pytest.mark.parametrize("name", ["group", "rank", "newest", "row", "file", "ts", "order"])
def test_key_may_have_the_name_of_something_internal(pipeline: Pipeline, name: str) -> None:
    """No name that a spec may give to a key stands in the way of the batch or of the validation."""
    spec = pipeline.spec(JSON | {'key = ["k"]': f'key = ["{name}"]'})
    deliver(pipeline, {name: "N1", "at": 1, "x": 1}, {name: "N1", "at": 2, "x": 2})
    pipeline.place("b", "csv", f"{name},seen,y,deleted\nN1,2024-05-01T12:00:00Z,1.5,\n")

    pipeline.run(spec)

    assert rows(pipeline, spec, name, "x", "y") == {("N1", 2, 1.5)}
    assert validate(spec, pipeline.spark).ok


DERIVED = """\
[table]
path = "table"
kind = "plain"
key = ["k"]
buckets = 1
partition_by = ["day"]
derive = { day = "date(at)", hour = "hour(at)" }
derive_zone = "Europe/Berlin"

[locks]
url = "locks"
validity = 5.0

[streams.a]
source = "in/a/*"
format = "json"
ordering = "seen"
on_bad_row = "quarantine"
columns = { seen = "bigint", at = "timestamp", x = "int", deleted = "boolean" }
"""


def derived_spec(pipeline: Pipeline, *changes: tuple[str, str]) -> Spec:
    """A plain table with the day of its events in Berlin as partition, and their hour."""
    text = DERIVED
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (pipeline.folder / "spec.toml").write_text(text)
    return load_spec(pipeline.folder / "spec.toml")


def test_derived_columns_are_those_of_pythons_time_zones(spark: SparkSession) -> None:
    """Spark and the second reader agree on each function at any instant, and on the instants without one."""
    lots = random.Random(36)
    edges = [FIRST_INSTANT, LAST_INSTANT, 0, -1, 1_711_846_800_000_000, 1_729_990_800_000_000]
    instants = [one + step for one in edges for step in (-(2**61), -86_400_000_000, -1, 0, 1, 2**61)]
    instants += [lots.randint(FIRST_INSTANT, LAST_INSTANT) for _ in range(300)]
    instants += [lots.randint(-(10**15), 4 * 10**15) for _ in range(700)]
    spark.createDataFrame([(one,) for one in instants], "at bigint").createOrReplaceTempView("instants")
    columns = [
        Derived(name=f"c{n}", function=function, source="at", zone=zone)
        for n, (function, zone) in enumerate(
            itertools.product(
                FUNCTIONS, ("UTC", "Europe/Berlin", "America/St_Johns", "Asia/Kathmandu", "Pacific/Apia")
            )
        )
    ]
    values = (f"CASE WHEN NOT {one.unfit('timestamp')[0]} THEN {one.sql('timestamp')} END" for one in columns)
    texts = (
        f"CAST({f'unix_date({value})' if one.function == 'date' else value} AS INT)"
        for one, value in zip(columns, values, strict=True)
    )
    found = spark.sql(
        f"SELECT unix_micros(at), {', '.join(texts)} FROM (SELECT timestamp_micros(at) AS at FROM instants)"
    ).collect()

    expected = [(at, *(strictly(one, at) for one in columns)) for at in instants]
    assert [tuple(row) for row in found] == expected


def strictly(derived: Derived, at: int) -> int | None:
    """The value by the second reader; None: there is none."""
    with contextlib.suppress(ValueError):
        return derivation(derived, "timestamp")(at)
    return None


def test_the_day_of_an_event_is_its_partition(pipeline: Pipeline) -> None:
    """The example of the page gives the view that it says, in its folders, and validation agrees."""
    page = (Path(__file__).parents[2] / "docs/concepts/pipeline/partitions.md").read_text()
    toml, events, view = re.findall(r"```(?:toml|text)\n(.*?)```", page, re.DOTALL)
    (pipeline.folder / "spec.toml").write_text(toml.replace("in/*", "in/a/*"))
    spec = load_spec(pipeline.folder / "spec.toml")
    header, *lines = events.splitlines()
    for some in (lines[:2], lines[2:]):  # in two batches, so that Hudi has to find the key again
        pipeline.place("a", "csv", "\n".join([header, *some, ""]))
        pipeline.run(spec)

    names, *expected = view.splitlines()
    shown = read(spec, pipeline.spark).withColumn("at", F.expr("unix_micros(at)"))
    assert shown.columns == names.split(",")
    found = [[timestamp(one) if "T" in one else one for one in line.split(",")] for line in expected]
    assert sorted([str(one) for one in row] for row in shown.collect()) == [
        [str(one) for one in row] for row in found
    ]
    table = pipeline.folder / "flights"
    assert {path.name for path in table.glob("day=*")} == {f"day={line.split(',')[1]}" for line in expected}
    kept = "".join(
        path.read_text() for path in Path(spec.streams[0].quarantine.removeprefix("file://")).rglob("*.json")
    )
    assert [json.loads(line)["reason"] for line in kept.splitlines()] == ["at is missing"]
    assert shown.where("day = DATE'2024-10-26'").select("flight").collect() == [("LH4",)]
    assert changes(spec, pipeline.spark).frame.select("day", "hour").distinct().count() == 4
    report = validate(spec, pipeline.spark)
    assert (report.ok, report.keys, report.streams[0].bad_rows) == (True, 4, 1)


def test_the_day_is_derived_from_the_instants_of_a_parquet_file(pipeline: Pipeline) -> None:
    """Whatever their unit and zone are in the file, the partition is the day in the zone of the spec."""
    instant = dt.datetime(2024, 10, 26, 22, 30, tzinfo=dt.UTC)  # half past midnight in Berlin
    for number, unit in enumerate((pa.timestamp("ms", "UTC"), pa.timestamp("us", "America/New_York"))):
        columns = {
            "k": pa.array([f"N{number}"]),
            "seen": pa.array([1]),
            "at": pa.array([instant], unit),
            "x": pa.array([1], pa.int32()),
            "deleted": pa.array([False]),
        }
        pq.write_table(pa.table(columns), pipeline.place("a", "parquet", ""))
    spec = derived_spec(pipeline, ('format = "json"', 'format = "parquet"'))

    pipeline.run(spec)

    day = dt.date(2024, 10, 27)
    assert rows(pipeline, spec, "k", "day", "hour") == {("N0", day, 0), ("N1", day, 0)}
    report = validate(spec, pipeline.spark)
    assert (report.ok, report.keys) == (True, 2)


def test_an_event_of_another_day_moves_no_row(pipeline: Pipeline) -> None:
    """It adds one there, and a tombstone deletes that of its own day; a frame and a spec keep to the rule."""
    pipeline.place("a", "json", "")
    spec = derived_spec(pipeline)
    splice = Splice(spec, pipeline.spark)
    sql = "SELECT k, seen, CAST(at AS TIMESTAMP) at, 1 x, deleted FROM VALUES {} AS t(k, seen, at, deleted)"
    first = "('N1', 1L, '2024-10-27 00:30:00Z', false), ('N2', 1L, '2024-10-27 00:30:00Z', false)"
    second = (
        "('N1', 2L, '2024-10-28 00:30:00Z', false), ('N1', 3L, '2024-10-27 01:30:00Z', true),"
        " ('N2', 2L, '2024-10-28 00:30:00Z', true)"
    )

    for number, values in enumerate((first, second)):
        splice.write(pipeline.spark.sql(sql.format(values)), "a", batch_id=number)

    days = dt.date(2024, 10, 27), dt.date(2024, 10, 28)
    assert rows(pipeline, spec, "k", "day", "hour") == {("N1", days[1], 1), ("N2", days[0], 2)}
    good = pipeline.spark.sql(sql.format(first))
    with pytest.raises(ConfigError, match=r"derives day as date\(at\) in Europe/Berlin"):
        splice.write(good.selectExpr("*", "DATE'2024-01-01' AS day"), "a", batch_id=2)
    for bad in ("NULL", "'10000-01-01 00:00:00Z'"):
        with pytest.raises(Exception, match=r"a row cannot be written: (at is missing|day is date)"):
            splice.write(pipeline.spark.sql(sql.format(f"('N1', 1L, {bad}, false)")), "a", batch_id=2)
    with pytest.raises(SpecError, match=r"derives day as date\(at\) in Europe/Berlin"):
        Splice(derived_spec(pipeline, ("Europe/Berlin", "UTC")), pipeline.spark)
    assert [commit.batch_id for commit in pipeline.timeline(spec).commits] == [0, 1]
