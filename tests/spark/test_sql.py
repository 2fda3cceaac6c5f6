"""SQL beside streams: what statements write is merged like events, what would break a table is refused."""

from __future__ import annotations

import random
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import functions as F  # noqa: N812  the name everybody uses

from asynclock.errors import ConfigError, SpecError
from asynclock.spark import register
from asynclock.spark.hudi.guard import is_guarded
from asynclock.spark.hudi.session import SQL_EXTENSION
from asynclock.spark.hudi.timeline import Timeline
from asynclock.spark.reader.snapshot import read
from asynclock.spark.reader.sql import ddl
from asynclock.spark.runs.run import run_services
from asynclock.spark.spec.load import load_spec
from asynclock.spark.writer.splice import Splice
from tests.cli.command import COMMAND
from tests.spark.pipeline_kit import Kept, Pipeline, two_streams

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from asynclock.spark.spec.model import Spec

A_SCHEMA = "k string, at bigint, x int, note string"
TWO_BUCKETS = {"buckets = 1": "buckets = 2"}
NASTY = "a b/ü:1,2%|+"
MERGE = "MERGE INTO fleet_stored t USING (SELECT 'N0' AS k) s ON t.k = s.k"
NO_MATCH = f"{MERGE} AND t.a__x < 0 WHEN NOT MATCHED THEN"


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Kept:
    """A table of two streams, which has its first events."""
    made = two_streams(tmp_path_factory.mktemp("kept") / "ab", spark)
    made.run(made.spec(TWO_BUCKETS))
    return Kept(made)


@pytest.fixture
def pipeline(kept: Kept, spark: SparkSession) -> Iterator[Pipeline]:
    """That table, which is in the catalog as ``fleet`` and ``fleet_stored``."""
    yield kept.as_it_was()
    spark.sql("DROP VIEW IF EXISTS fleet")
    spark.sql("DROP TABLE IF EXISTS fleet_stored")


@pytest.fixture
def spec(pipeline: Pipeline) -> Spec:
    """The spec of that table."""
    loaded = pipeline.spec(TWO_BUCKETS)
    register(loaded, pipeline.spark, name="fleet")
    return loaded


def shown(spec: Spec, spark: SparkSession) -> dict[str, tuple[Any, ...]]:
    """The rows of the view by key: at, x, note and y."""
    rows = spark.sql("SELECT k, at, x, note, y FROM fleet").collect()
    assert sorted(map(tuple, rows)) == sorted(
        map(tuple, read(spec, spark).select(*rows[0].__fields__).collect())
    )
    return {row.k: tuple(row)[1:] for row in rows}


def write_a(spec: Spec, spark: SparkSession, *rows: tuple[Any, ...]) -> None:
    """One batch of stream a."""
    Splice(spec, spark).write(spark.createDataFrame(list(rows), A_SCHEMA), "a")


def record_keys(spark: SparkSession) -> set[str]:
    """The record keys in the table, each of which is there once."""
    keys = [row[0] for row in spark.sql("SELECT _hoodie_record_key FROM fleet_stored").collect()]
    assert len(keys) == len(set(keys))
    return set(keys)


def test_the_view_shows_what_a_read_shows_also_after_the_next_batch(spec: Spec, spark: SparkSession) -> None:
    """The view has the plain names and follows running streams without a refresh."""
    before = shown(spec, spark)
    write_a(spec, spark, ("N9", 1, 9, "new"))

    assert before["N0"] == (10, 0, "streamed", 0.5)
    assert shown(spec, spark)["N9"] == (1, 9, "new", None)


def test_an_insert_is_merged_like_an_event(spec: Spec, spark: SparkSession) -> None:
    """A newer one replaces its stream's columns, an older one nothing; other streams' columns stay."""
    spark.sql("INSERT INTO fleet_stored (k, a__ts, a__x) VALUES ('N0', 11, 9), ('N1', 9, 101), ('new', 1, 7)")
    spark.sql("INSERT INTO fleet_stored (k, b__ts, b__y) VALUES ('b', timestamp'2024-01-01 00:00:00', 2)")
    # By the names of the view, in any case and order, and by their places there.
    spark.sql("INSERT INTO fleet (X, at, k) SELECT 21 AS any, 11, 'N2'")
    spark.sql(
        "WITH one AS (SELECT 'N3') INSERT INTO default.fleet SELECT *, 11, 31, 'all', null, null FROM one"
    )

    rows = shown(spec, spark)
    assert {key: rows[key] for key in ("N0", "N1", "N2", "N3", "new", "b")} == {
        "N0": (11, 9, None, 0.5),
        "N1": (10, 1, "streamed", None),
        "N2": (11, 21, None, None),
        "N3": (11, 31, "all", None),
        "new": (1, 7, None, None),
        "b": (None, None, None, 2.0),
    }


def test_an_insert_has_the_record_key_that_a_stream_would_give(spec: Spec, spark: SparkSession) -> None:
    """The encoded key is worked out, whatever the statement says: the stream then meets the same row."""
    spark.sql("INSERT INTO fleet_stored (k, a__ts, a__x) VALUES (:key, 1, 1)", args={"key": NASTY})
    spark.sql(
        "INSERT INTO fleet_stored (_asynclock_key, k, a__ts, a__x) VALUES ('no', :key, 2, 2)",
        args={"key": NASTY},
    )
    write_a(spec, spark, (NASTY, 3, 3, "streamed"))

    assert record_keys(spark) == {"N0", "N1", "N2", "N3", "a+b%2F%C3%BC%3A1%2C2%25%7C%2B"}
    assert shown(spec, spark)[NASTY] == (3, 3, "streamed", None)


@pytest.mark.parametrize(
    ("columns", "values", "reason"),
    [
        ("k, a__x", "'N7', 1", "a__x but no a__ts"),
        ("k", "'N7'", "no ordering value of any stream"),
        ("k, a__ts", "NULL, 1", "key column k is null"),
        ("k, a__ts", "'', 1", "key columns is empty"),
    ],
)
def test_a_row_that_the_merge_would_lose_is_refused(
    spec: Spec, spark: SparkSession, columns: str, values: str, reason: str
) -> None:
    """Nothing of the statement is written, and the error says what is missing."""
    before = shown(spec, spark)

    with pytest.raises(Py4JJavaError, match=reason):
        spark.sql(f"INSERT INTO fleet_stored ({columns}) VALUES ({values})")

    assert shown(spec, spark) == before


def test_an_update_wins_over_what_it_read_and_leaves_the_other_streams_alone(
    spec: Spec, spark: SparkSession
) -> None:
    """With an unmoved ordering value it is the later arrival; a newer event still replaces it."""
    spark.sql("UPDATE fleet_stored SET a__x = a__x + 100 WHERE k IN ('N0', 'N1')")
    updated = shown(spec, spark)
    write_a(spec, spark, ("N0", 11, 1, "newer"), ("N1", 9, 1, "older"))
    later = shown(spec, spark)

    assert (updated["N0"], updated["N2"]) == ((10, 100, "streamed", 0.5), (10, 2, "streamed", None))
    assert (later["N0"], later["N1"]) == ((11, 1, "newer", 0.5), (10, 101, "streamed", None))


def test_an_update_writes_only_the_streams_whose_columns_it_sets(spec: Spec, spark: SparkSession) -> None:
    """Hudi's own update would append the row as it was read, over ties that other streams write meanwhile."""
    newest = Timeline(spark, spec.table.path).newest_completion()
    assert newest is not None

    spark.sql("UPDATE fleet_stored SET a__note = 'updated' WHERE k = 'N0'")

    appended = (
        spark.read.format("hudi")
        .option("hoodie.datasource.query.type", "incremental")
        .option("hoodie.datasource.read.begin.instanttime", newest)
        .option("hoodie.write.record.merge.custom.implementation.classes", "io.asynclock.hudi.SpliceMerger")
        .load(spec.table.path)
        .where("k = 'N0' AND a__note = 'updated'")
        .collect()
    )
    assert [(row.a__ts, row.b__ts, row.b__y) for row in appended] == [(10, None, None)]


def test_an_update_of_a_stream_that_the_row_lacks_is_refused(spec: Spec, spark: SparkSession) -> None:
    """Without an ordering value the merge would drop what was set."""
    with pytest.raises(Py4JJavaError, match="b__y but no b__ts"):
        spark.sql("UPDATE fleet_stored SET b__y = 1 WHERE k = 'N1'")

    spark.sql("UPDATE fleet_stored SET b__y = 1, b__ts = timestamp'2024-01-01 00:00:00' WHERE k = 'N1'")
    assert shown(spec, spark)["N1"] == (10, 1, "streamed", 1.0)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE fleet_stored SET A__Note = 'x' WHERE K = 'N0'",
        f"{MERGE} WHEN MATCHED THEN UPDATE SET t.A__Note = 'x'",
        f"{NO_MATCH} INSERT (K, A__TS, a__X, A__Note) VALUES (s.k, 10, 0, 'x')",
    ],
)
def test_names_of_columns_are_found_in_any_case(spec: Spec, spark: SparkSession, statement: str) -> None:
    """As everywhere in Spark: what is set is written, however its name is spelled."""
    spark.sql(statement)

    assert shown(spec, spark)["N0"] == (10, 0, "x", 0.5)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE fleet_stored SET a__x = 1, A__X = 2 WHERE k = 'N0'",
        f"{MERGE} WHEN MATCHED THEN UPDATE SET a__x = 1, A__X = 2",
    ],
)
def test_a_column_that_is_set_twice_is_refused(spec: Spec, spark: SparkSession, statement: str) -> None:
    """Which of the values counts would be a guess."""
    with pytest.raises(AnalysisException, match=r"sets a__x twice\. Nothing was changed\."):
        spark.sql(statement)

    assert shown(spec, spark)["N0"] == (10, 0, "streamed", 0.5)


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("UPDATE fleet_stored SET a__x = 3000000000 WHERE k = 'N0'", "overflow"),
        ("UPDATE fleet_stored SET a__x = IF(k = 'N0', 'abc', NULL)", "malformed"),
        (f"{MERGE} WHEN MATCHED THEN UPDATE SET a__x = 3000000000", "overflow"),
        (
            f"{NO_MATCH} INSERT (k, a__ts, a__x) VALUES (s.k, 11, 'abc')",
            "malformed",
        ),
    ],
)
def test_a_value_that_does_not_fit_its_column_is_refused(
    spec: Spec, spark: SparkSession, statement: str, reason: str
) -> None:
    """As in an INSERT: a plain cast would write another number, or null."""
    before = shown(spec, spark)

    with pytest.raises((PySparkException, Py4JJavaError), match=reason):
        spark.sql(statement)

    assert shown(spec, spark) == before


def test_a_value_of_another_type_that_fits_is_written(spec: Spec, spark: SparkSession) -> None:
    """Text of a number or a time is understood, and no clause refuses what another one stores."""
    spark.sql("UPDATE fleet_stored SET a__x = '7', a__note = 8 WHERE k = 'N0'")
    spark.sql(
        "MERGE INTO fleet_stored t USING (SELECT 'N1' AS k) s ON t.k = s.k "
        "WHEN MATCHED AND t.a__ts < 0 THEN UPDATE SET a__x = 'abc' "
        "WHEN MATCHED THEN UPDATE SET a__x = 9L, b__ts = '2024-01-01 00:00:00', b__y = 1"
    )

    rows = shown(spec, spark)
    assert (rows["N0"], rows["N1"]) == ((10, 7, "8", 0.5), (10, 9, "streamed", 1.0))


@pytest.mark.parametrize("column", ["k", "_asynclock_key"])
def test_an_update_of_the_key_is_refused(spec: Spec, spark: SparkSession, column: str) -> None:
    """Hudi would change the column and not the record key, by which nobody would find the row."""
    with pytest.raises(AnalysisException, match=f"{column} of the splice table .* cannot be set"):
        spark.sql(f"UPDATE fleet_stored SET {column} = 'other' WHERE k = 'N1'")

    assert set(shown(spec, spark)) == {"N0", "N1", "N2", "N3"}


def test_a_delete_removes_what_came_before_it(spec: Spec, spark: SparkSession) -> None:
    """The row is gone with the columns of all streams; an event after it begins the row again."""
    spark.sql("DELETE FROM fleet_stored WHERE k IN ('N0', 'N1')")
    deleted = shown(spec, spark)
    write_a(spec, spark, ("N0", 1, 1, "again"))

    assert set(deleted) == {"N2", "N3"}
    assert shown(spec, spark)["N0"] == (1, 1, "again", None)


def test_a_merge_updates_what_matches_and_inserts_the_rest(spec: Spec, spark: SparkSession) -> None:
    """Conditions see the stored row, and the first clause that applies is taken."""
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW news AS SELECT * FROM VALUES ('N0', 20, 7), ('N1', 20, -1), "
        "('N2', 5, 8), ('N8', 1, 9), ('N9', 1, -1) AS rows (k, at, x)"
    )

    spark.sql(
        "MERGE INTO fleet_stored t USING news s ON t.k = s.k "
        "WHEN MATCHED AND s.x < 0 THEN UPDATE SET a__note = 'negative' "
        "WHEN MATCHED AND t.a__ts < s.at THEN UPDATE SET a__ts = s.at, a__x = s.x "
        "WHEN NOT MATCHED AND s.x > 0 THEN INSERT (k, a__ts, a__x) VALUES (s.k, s.at, s.x)"
    )

    assert shown(spec, spark) == {
        "N0": (20, 7, "streamed", 0.5),
        "N1": (10, 1, "negative", None),
        "N2": (10, 2, "streamed", None),
        "N3": (10, 3, "streamed", None),
        "N8": (1, 9, None, None),
    }


def test_a_merge_of_two_rows_into_one_is_refused(spec: Spec, spark: SparkSession) -> None:
    """Which of them wins would be chance."""
    with pytest.raises(Py4JJavaError, match="two rows of the source have the same key"):
        spark.sql(
            "MERGE INTO fleet_stored t USING (SELECT * FROM VALUES ('N0', 1), ('N0', 2) AS v (k, x)) s "
            "ON t.k = s.k WHEN MATCHED THEN UPDATE SET a__x = s.x"
        )

    assert shown(spec, spark)["N0"] == (10, 0, "streamed", 0.5)


def test_an_insert_into_the_view_that_cannot_be_is_refused(spec: Spec, spark: SparkSession) -> None:
    """It names the columns as the view does; nothing is written."""
    for statement, reason in (
        ("INSERT INTO fleet (k, a__ts) VALUES ('N0', 11)", "no column a__ts to insert"),
        ("INSERT INTO fleet (k, nothing) VALUES ('N0', 11)", "It has k, at, x, note, seen, y"),
        ("INSERT INTO fleet BY NAME SELECT 'N0' AS k, 11 AS at", "takes no BY NAME"),
    ):
        with pytest.raises(AnalysisException, match=reason) as caught:
            spark.sql(statement)

        assert "the view spark_catalog.default.fleet" in str(caught.value).replace("The", "the")
        assert "Nothing was changed." in str(caught.value)
    assert shown(spec, spark)["N0"] == (10, 0, "streamed", 0.5)


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT OVERWRITE fleet_stored SELECT * FROM fleet_stored",
        "INSERT OVERWRITE fleet SELECT * FROM fleet",
        "TRUNCATE TABLE fleet_stored",
        "DROP TABLE fleet_stored PURGE",
        "ALTER TABLE fleet_stored ADD COLUMNS (z int)",
        "ALTER TABLE fleet_stored CHANGE COLUMN a__x a__x int COMMENT 'changed'",
        "ALTER TABLE fleet_stored RENAME TO fleet_renamed",
        "MERGE INTO fleet_stored t USING (SELECT 'N0' AS k) s ON t.k = s.k WHEN MATCHED THEN DELETE",
    ],
)
def test_what_would_break_the_table_is_refused(
    pipeline: Pipeline, spec: Spec, spark: SparkSession, statement: str
) -> None:
    """The statement fails in a sentence before anything is written; streams go on."""
    before = pipeline.everything()

    with pytest.raises(AnalysisException, match=r"splice table .*fleet_stored.*Nothing was changed\."):
        spark.sql(statement)

    assert pipeline.everything() == before
    write_a(spec, spark, ("N9", 1, 9, "new"))
    assert len(shown(spec, spark)) == 5


def test_a_change_of_columns_is_refused_also_with_schemas_on_read(
    pipeline: Pipeline, spec: Spec, spark: SparkSession
) -> None:
    """With this setting Hudi makes a command of its own of each ALTER TABLE."""
    before = pipeline.everything()
    spark.conf.set("hoodie.schema.on.read.enable", "true")
    try:
        for change in ("ADD COLUMNS (z int)", "DROP COLUMN a__note", "RENAME COLUMN a__note TO a__text"):
            with pytest.raises(
                AnalysisException, match=r"splice table .*fleet_stored.*Nothing was changed\."
            ):
                spark.sql(f"ALTER TABLE fleet_stored {change}")
    finally:
        spark.conf.unset("hoodie.schema.on.read.enable")

    assert pipeline.everything() == before
    assert len(shown(spec, spark)) == 4


def test_statements_beside_streams_and_services_agree_with_an_oracle(spec: Spec, spark: SparkSession) -> None:
    """After a seeded mixture of statements, batches and compactions each key is what a dict says."""
    chance = random.Random(5)
    rows = {f"N{i}": (10, i, "streamed") for i in range(4)}
    for step in range(14):
        key, at = f"N{chance.randrange(6)}", chance.randrange(8, 14)
        action = chance.choice(["insert", "update", "delete", "batch", "batch"])
        if action in {"insert", "batch"}:
            event = (at, step, f"{action} {step}")
            if action == "batch":
                write_a(spec, spark, (key, *event))
            else:
                spark.sql(
                    "INSERT INTO fleet_stored (k, a__ts, a__x, a__note) VALUES (:key, :at, :x, :note)",
                    args={"key": key, "at": at, "x": step, "note": event[2]},
                )
            if key not in rows or rows[key][0] <= at:
                rows[key] = event
        elif action == "update":
            spark.sql("UPDATE fleet_stored SET a__x = :x WHERE k = :key", args={"x": step, "key": key})
            if key in rows:
                rows[key] = (rows[key][0], step, rows[key][2])
        else:
            spark.sql("DELETE FROM fleet_stored WHERE k = :key", args={"key": key})
            rows.pop(key, None)
        if step == 7:
            run_services(spec, once=True, spark=spark)

    assert {key: row[:3] for key, row in shown(spec, spark).items()} == rows
    assert len(record_keys(spark)) == len(rows)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"hoodie.index.type": "SIMPLE"}, "hoodie.index.type:\tSIMPLE\tBUCKET"),
        ({"hoodie.bucket.index.num.buckets": "7"}, "hoodie.bucket.index.num.buckets:\t7\t2"),
        ({"hoodie.write.concurrency.mode": "SINGLE_WRITER"}, "hoodie.write.concurrency.mode"),
        (
            {
                "hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.InProcessLockProvider",
            },
            "hoodie.write.lock.provider",
        ),
        ({"hoodie.datasource.write.operation": "bulk_insert"}, "takes upsert, insert and delete"),
        ({"hoodie.datasource.write.operation": "insert_overwrite_table"}, "takes upsert, insert and delete"),
    ],
)
def test_a_write_with_other_options_is_refused(
    pipeline: Pipeline, spec: Spec, spark: SparkSession, options: dict[str, str], reason: str
) -> None:
    """Hudi compares with the table's properties, and the key generator there looks at the operation."""
    rows = spark.sql("SELECT * FROM fleet_stored")
    before = shown(spec, spark)

    with pytest.raises(Py4JJavaError, match=reason):
        rows.drop(*(name for name in rows.columns if name.startswith("_hoodie_"))).write.format(
            "hudi"
        ).options(**options).mode("append").save(spec.table.path)

    write_a(spec, spark, ("N9", 1, 9, "new"))
    assert shown(spec, spark) == before | {"N9": (1, 9, "new", None)}
    assert pipeline.table(spec).strays() == []


def test_a_wrong_record_key_is_refused(spec: Spec, spark: SparkSession) -> None:
    """The row would be stored beside that of its key."""
    stored = spark.sql("SELECT * FROM fleet_stored WHERE k = 'N0'")
    row = stored.drop(*(name for name in stored.columns if name.startswith("_hoodie_")))
    wrong = row.withColumn("_asynclock_key", F.expr("CASE WHEN true THEN 'other' END"))

    with pytest.raises(
        Py4JJavaError, match="its _asynclock_key is 'other', and its key columns make it 'N0'"
    ):
        wrong.write.format("hudi").mode("append").save(spec.table.path)


def test_the_first_batch_guards_the_table_and_the_next_one_puts_a_lost_guard_back(
    pipeline: Pipeline, spec: Spec, spark: SparkSession
) -> None:
    """So a table that has lost its guard gets it back with its next batch."""
    guarded = pipeline.timeline(spec).properties()
    pipeline.unguard(spec)
    lost = pipeline.timeline(spec).properties()
    write_a(spec, spark, ("N9", 1, 9, "new"))

    assert is_guarded(spec, guarded)
    assert not is_guarded(spec, lost)
    assert is_guarded(spec, pipeline.timeline(spec).properties())
    assert shown(spec, spark)["N9"] == (1, 9, "new", None)


def test_a_table_of_several_key_and_partition_columns_is_written_by_sql(
    tmp_path: Path, spark: SparkSession
) -> None:
    """The record key and the folders are those of a stream, so stream and statement meet in one row."""
    spark.sql("DROP TABLE IF EXISTS parts_stored")
    pipeline = Pipeline(tmp_path, spark)
    spec = pipeline.spec(
        {
            'key = ["k"]': 'key = ["k", "n"]\npartition_by = ["day"]',
            'columns = { at = "bigint"': 'columns = { n = "int", day = "date", at = "bigint"',
        }
    )
    frame = "k string, n int, day date, at bigint, x int, note string"
    rows = spark.sql("SELECT 'k/1' k, 1 n, date'2024-01-02' day, 1L at, 1 x, 'streamed' note")
    assert rows.schema.fieldNames() == [one.split()[0] for one in frame.split(", ")]
    Splice(spec, spark).write(rows, "a")
    register(spec, spark, name="parts")
    spark.sql(
        "INSERT INTO parts_stored (k, n, day, a__ts, a__x) VALUES ('k/1', 1, date'2024-01-02', 2, 2), "
        "('k/1', 2, date'2024-01-02', 2, 3)"
    )
    spark.sql("UPDATE parts_stored SET a__note = 'updated' WHERE n = 2")

    found = spark.sql("SELECT k, n, CAST(day AS string), at, x, note FROM parts ORDER BY n").collect()
    assert [tuple(row) for row in found] == [
        ("k/1", 1, "2024-01-02", 2, 2, None),
        ("k/1", 2, "2024-01-02", 2, 3, "updated"),
    ]
    folders = {path.name for path in (tmp_path / "table").iterdir() if not path.name.startswith(".")}
    assert folders == {"day=2024-01-02"}


def test_registering_twice_and_after_a_new_stream_is_no_error(
    pipeline: Pipeline, spec: Spec, spark: SparkSession
) -> None:
    """Columns that the table does not have yet are null in the view."""
    grown = pipeline.spec(TWO_BUCKETS | {'note = "string" }': 'note = "string", more = "date" }'})

    register(spec, spark, name="fleet")
    register(grown, spark, name="fleet")

    assert [row.more for row in spark.sql("SELECT more FROM fleet").collect()] == [None] * 4


def test_a_column_that_a_stream_added_is_there_after_the_next_registration(
    pipeline: Pipeline, spec: Spec, spark: SparkSession
) -> None:
    """Until then a statement that would write null over it is refused; registering again moves no file."""
    grown = pipeline.spec(TWO_BUCKETS | {'note = "string" }': 'note = "string", more = "int" }'})
    rows = spark.createDataFrame([("N0", 11, 1, "grown", 7)], f"{A_SCHEMA}, more int")
    Splice(grown, spark).write(rows, "a")

    for statement in ("UPDATE fleet_stored SET a__x = 2", f"{MERGE} WHEN MATCHED THEN UPDATE SET a__x = 2"):
        with pytest.raises(
            AnalysisException, match=r"lacks a__more.*Nothing was changed\..*register the table again"
        ):
            spark.sql(statement)
    spark.sql("UPDATE fleet_stored SET b__y = 2 WHERE k = 'N0'")
    assert shown(spec, spark)["N0"] == (11, 1, "grown", 2.0)
    files = pipeline.everything()
    register(grown, spark, name="fleet")
    assert pipeline.everything() == files
    spark.sql("UPDATE fleet_stored SET a__x = 3 WHERE k = 'N0'")

    found = spark.sql("SELECT x, note, more, y FROM fleet WHERE k = 'N0'").first()
    assert found is not None
    assert tuple(found) == (3, "grown", 7, 2.0)


def test_a_registration_drops_no_table_whose_data_the_catalog_would_delete(
    tmp_path: Path, spark: SparkSession
) -> None:
    """A managed table owns its folder, and DROP TABLE deletes it."""
    spark.sql("DROP TABLE IF EXISTS owned_stored")
    warehouse = spark.sql("DESCRIBE DATABASE default").where("info_name = 'Location'").collect()[0][1]
    spec = Pipeline(tmp_path / "ab", spark).spec({'path = "table"': f'path = "{warehouse}/owned_stored"'})
    create_table, _ = ddl(spec, name="owned")
    columns = "_asynclock_key string, k string, a__ts bigint, a__x int, a__note string"
    managed = create_table.replace(" USING", f" ({columns}) USING").partition("\nLOCATION")[0]
    spark.sql(managed)
    write_a(spec, spark, ("N0", 1, 1, "owned"))

    with pytest.raises(ConfigError, match="managed table"):
        register(spec, spark, name="owned")

    assert [tuple(row) for row in read(spec, spark).select("k", "x").collect()] == [("N0", 1)]


def test_a_registration_that_cannot_be_right_is_refused(
    tmp_path: Path, spec: Spec, spark: SparkSession
) -> None:
    """No table yet, a name that is no identifier, and a name that another table or view has."""
    other = Pipeline(tmp_path / "other", spark).spec()

    with pytest.raises(SpecError, match="there is no table yet"):
        register(other, spark)
    with pytest.raises(ConfigError, match="letters, digits and _"):
        register(spec, spark, name="fleet; DROP")
    other_pipeline = Pipeline(tmp_path / "third", spark)
    other_pipeline.deliver("a", {"k": "N0", "at": 1, "x": 1})
    other_pipeline.run(other_pipeline.spec())
    with pytest.raises(ConfigError, match=r"the catalog has fleet_stored at .*choose another name"):
        register(other_pipeline.spec(), spark, name="fleet")
    spark.sql("CREATE OR REPLACE VIEW third AS SELECT 1 AS k")
    with pytest.raises(ConfigError, match="the catalog has something else of this name"):
        register(spec, spark, name="third")


def test_a_table_is_registered_under_the_name_of_its_folder(tmp_path: Path, spark: SparkSession) -> None:
    """Under its default name, too, a registered table is read, written by its streams and changed by SQL."""
    made = two_streams(tmp_path / "wagons", spark)
    spec = made.spec({'path = "table"': 'path = "wagons"'})
    made.run(spec)
    try:
        register(spec, spark)
        made.deliver("a", {"k": "N9", "at": 11, "x": 9, "note": "streamed"})
        made.run(spec)
        spark.sql("UPDATE wagons_stored SET a__note = 'changed' WHERE k = 'N1'")
        register(spec, spark)

        rows = spark.sql("SELECT k, note FROM wagons").collect()
        assert {row.k: row.note for row in rows} == {
            **{f"N{i}": "streamed" for i in (0, 2, 3, 9)},
            "N1": "changed",
        }
        assert set(read(spec, spark).select("k", "note").collect()) == set(rows)
    finally:
        spark.sql("DROP VIEW IF EXISTS wagons")
        spark.sql("DROP TABLE IF EXISTS wagons_stored")


def test_a_view_is_not_named_like_the_table_itself(tmp_path: Path, spark: SparkSession) -> None:
    """Hudi looks its own name of a table up in the catalog, and every read would fail if that were a view."""
    made = two_streams(tmp_path / "wagons", spark)
    spec = made.spec()
    made.run(spec)

    with pytest.raises(ConfigError, match="the table itself has this name"):
        register(spec, spark, name="table_splice")

    assert read(spec, spark).count() == 4


VIEWS = """
[views.both]
join = "inner"
[views.of_a]
join = "left"
[views.of_b]
join = "right"
[views.any]
[views.first]
top = { n = 2, by = "x", per = ["note"] }
[views.least]
streams = ["a"]
top = { n = 1, by = "at", ascending = true }
"""


def test_the_views_of_a_spec_are_joins_of_its_streams(tmp_path: Path, spark: SparkSession) -> None:
    """They show what Spark's own joins of the streams by the key show, and the first rows of each group."""
    made = two_streams(tmp_path / "ab", spark)
    made.deliver("b", {"k": "N1", "deleted": True, "seen": "2024-05-01T12:00:00Z"})
    made.deliver("b", {"k": "N8", "seen": "2024-05-01T12:00:00Z", "y": 8.0})
    spec = made.spec({'note = "string" }': 'note = "string" }\ndefault = { note = "none" }'})
    spec.path.write_text(spec.path.read_text() + VIEWS)
    spec = load_spec(spec.path)
    made.run(spec)
    try:
        register(spec, spark, name="trips")
        rows = {name: spark.table(f"trips_{name}").orderBy("k") for name in ("both", "of_a", "of_b", "any")}
        a = spark.createDataFrame([(f"N{i}", i) for i in range(4)], "k string, x int")
        b = spark.createDataFrame([("N0", 0.5), ("N8", 8.0)], "k string, y double")
        for name, how in (("both", "inner"), ("of_a", "left"), ("of_b", "right"), ("any", "full")):
            joined = a.join(b, "k", how).orderBy("k").collect()
            assert rows[name].select("k", "x", "y").collect() == joined, name

        assert rows["any"].columns == spark.table("trips").columns
        first = spark.table("trips_first").collect()
        assert read(spec, spark).where("note = 'none'").select("k").collect() == [("N8",)]
        assert sorted((row.note, row.k) for row in first) == [
            ("none", "N8"),
            ("streamed", "N2"),
            ("streamed", "N3"),
        ]
        assert [(row.k, row.at) for row in spark.table("trips_least").collect()] == [("N0", 10)]
        assert spark.table("trips_least").columns == ["k", "at", "x", "note"]
    finally:
        for view in ("", *(f"_{view.name}" for view in spec.views)):
            spark.sql(f"DROP VIEW IF EXISTS trips{view}")
        spark.sql("DROP TABLE IF EXISTS trips_stored")


def test_the_command_prints_the_statements(pipeline: Pipeline, spec: Spec) -> None:
    """They are those that a registration runs, with every option of a write, and need no session."""
    command = [*COMMAND, "pipeline", "sql", str(pipeline.folder / "spec.toml"), "--name", "fleet"]

    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    create_table, create_view = ddl(spec, name="fleet")
    assert done.stdout.endswith(f"{create_table};\n{create_view};\n")
    assert SQL_EXTENSION in done.stdout
    assert "CREATE TABLE IF NOT EXISTS `fleet_stored` USING hudi TBLPROPERTIES (" in done.stdout
    assert "'hoodie.write.concurrency.mode' = 'NON_BLOCKING_CONCURRENCY_CONTROL'" in done.stdout
    assert "CREATE OR REPLACE VIEW `fleet` TBLPROPERTIES (" in done.stdout
