"""A copy-on-write splice table: each write merges, and readers do not need asynclock's jar."""

from __future__ import annotations

import logging
import random
from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import functions as F  # noqa: N812  the name everybody uses

from asynclock.errors import SpecError
from asynclock.spark import changes, register
from asynclock.spark.check.validation import validate
from asynclock.spark.hudi.table import Table
from asynclock.spark.reader.snapshot import read, snapshot
from asynclock.spark.runs.run import run_services
from asynclock.spark.services.repair import repair
from asynclock.spark.services.savepoints import restore, savepoint
from asynclock.spark.spec.load import load_spec
from asynclock.spark.spec.model import RECORD_KEY
from asynclock.spark.writer.splice import Splice
from tests.spark.oracle import Event, splice
from tests.spark.pipeline_kit import SUMMED, Pipeline, two_streams
from tests.spark.test_foreign_sessions import foreign, sql
from tests.spark.test_plain import together

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession

    from asynclock.spark.spec.model import Spec

pytestmark = pytest.mark.timeout(600)

COW = {'key = ["k"]': 'key = ["k"]\ntype = "cow"', "compaction = { every_commits = 2 }\n": ""}
KEPT = {
    "cleaning = { retain_commits = 1 }": "",
    "archiving = { keep_min_commits = 2, keep_max_commits = 3 }": "",
}
NOON = "2024-05-01T12:00:00Z"
LATER = "2024-05-01T13:00:00Z"


MERGED = """
MERGE INTO fleet_stored t USING (SELECT 'N3' AS k, 8 AS x) s ON t.k = s.k
WHEN MATCHED THEN UPDATE SET a__x = s.x
"""


def spec_of(pipeline: Pipeline, more: Mapping[str, str] | None = None) -> Spec:
    """The spec of a copy-on-write table, whose files are not cleaned by default."""
    return pipeline.spec(COW | KEPT | dict(more or {}))


def rows(spec: Spec, spark: SparkSession) -> list[tuple[Any, ...]]:
    """Key, at, x, note and y of each row of the view."""
    return sorted(map(tuple, read(spec, spark).select("k", "at", "x", "note", "y").collect()))


def is_valid(spec: Spec, spark: SparkSession) -> bool:
    """Whether the table is what its sources and deletes make it."""
    report = validate(spec, spark)
    assert report.sample == ()
    assert report.stray_files == ()
    return report.ok


def test_streams_that_write_at_the_same_time_conflict_and_lose_nothing(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Late events, nulls, ties, tombstones and a sum in one bucket: the table is what the oracle says."""
    pipeline = Pipeline(tmp_path, spark)
    spec = spec_of(pipeline, SUMMED)
    rng = random.Random(3)
    arrivals: dict[str, list[Event]] = {}
    for number in range(4):
        for stream in ("a", "b"):
            batch = []
            for key in rng.sample("KLMNO", 3):
                at = rng.randrange(1, 9)
                value = rng.choice([None, number])
                gone = rng.choice([None, None, True]) if stream == "b" else None
                seen = f"2024-05-01T0{at}:00:00Z"
                batch.append(
                    {"k": key, "at": at, "x": value}
                    if stream == "a"
                    else {"k": key, "seen": seen, "y": value, "deleted": gone and "true"}
                )
                values = {"x": value} if stream == "a" else {"y": value, "deleted": gone}
                arrivals.setdefault(key, []).append(Event(stream, at, values))
            pipeline.deliver(stream, *batch)
            if number == 0:
                pipeline.run(spec, streams=[stream])
    caplog.set_level(logging.INFO, "asynclock.spark.writer.conflicts")

    with together():
        pipeline.run(spec)

    assert any("HoodieWriteConflictException" in message for message in caplog.messages)
    # Only the order of a stream's own events counts, so it does not matter which stream committed first.
    expected = {key: splice(events) or {} for key, events in arrivals.items()}
    for key, events in arrivals.items():
        added = [event.values["x"] for event in events if event.values.get("x") is not None]
        expected[key]["_sum_a__x"] = sum(added) if added else None
    names = ("a__ts", "_sum_a__x", "b__y", "b__deleted")
    found = {row["k"]: tuple(row[name] for name in names) for row in snapshot(Table(spec, spark)).collect()}
    assert found == {key: tuple(row.get(name) for name in names) for key, row in expected.items()}
    run_services(spec, once=True, spark=spark)
    assert is_valid(spec, spark)
    assert pipeline.timeline(spec).pending() == []


def test_deletes_hold_as_in_any_splice_table(spark: SparkSession, tmp_path: Path) -> None:
    """A tombstone erases up to its ordering value; a later commit makes a deleted row again."""
    pipeline = two_streams(tmp_path / "ab", spark)
    spec = spec_of(pipeline)
    pipeline.run(spec)

    Splice(spec, spark).delete([{"k": "N0"}], stream="a")
    Splice(spec, spark).delete([{"k": "N1"}, {"k": "new"}], up_to={"a": 20, "b": LATER})
    Splice(spec, spark).delete([{"k": "N2"}])
    assert rows(spec, spark) == [("N0", None, None, None, 0.5), ("N3", 10, 3, "streamed", None)]
    pipeline.deliver("a", *({"k": key, "at": 9, "x": 9, "note": "late"} for key in ("N0", "N1", "N2", "new")))
    pipeline.run(spec)
    assert rows(spec, spark) == [
        ("N0", None, None, None, 0.5),
        ("N2", 9, 9, "late", None),
        ("N3", 10, 3, "streamed", None),
    ]
    assert is_valid(spec, spark)


def test_columns_and_types_grow(spark: SparkSession, tmp_path: Path) -> None:
    """Rows that a later write only copies have a new column as null, and a wider type with their values."""
    pipeline = two_streams(tmp_path / "ab", spark)
    pipeline.run(spec_of(pipeline))

    spec = spec_of(
        pipeline, {'x = "int"': 'x = "bigint"', 'note = "string"': 'note = "string", z = "int"',
                   'ordering = "at"': 'ordering = "at"\noptional = ["z"]'}
    )  # fmt: skip
    pipeline.place("a", "csv", f"k,at,x,note,z\nN0,11,{2**40},wide,5\n")
    pipeline.run(spec)

    assert sorted(map(tuple, read(spec, spark).select("k", "x", "z", "y").collect())) == [
        ("N0", 2**40, 5, 0.5),
        ("N1", 1, None, None),
        ("N2", 2, None, None),
        ("N3", 3, None, None),
    ]
    assert is_valid(spec, spark)


def test_readers_without_our_jar_see_merged_rows_and_cannot_write(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Hudi's reader needs no class of ours, in a session that has never heard of it."""
    pipeline = two_streams(tmp_path / "ab", spark)
    spec = spec_of(pipeline)
    pipeline.run(spec)
    load = f"spark.read.format('hudi').load({spec.table.path!r})"

    shown, ordered, refused = foreign(
        pipeline.folder,
        f"[tuple(row) for row in {load}.orderBy('k').select('k', 'a__x', 'b__y').collect()]",
        f"{load}.where('a__x > 1').count()",
        f"spark.range(1).write.format('hudi').mode('append').save({spec.table.path!r})",
        jar=False,
    )

    assert shown == "[['N0', 0, 0.5], ['N1', 1, None], ['N2', 2, None], ['N3', 3, None]]"
    assert ordered == "2"
    assert "ClassNotFoundException: io.asynclock.hudi.SpliceKeyGenerator" in refused


def test_a_session_with_the_jar_alone_merges_or_does_not_write(spark: SparkSession, tmp_path: Path) -> None:
    """Hudi's inserts would store a key twice; its updates and deletes meet the row of their key."""
    pipeline = two_streams(tmp_path / "ab", spark)
    spec = spec_of(pipeline)
    pipeline.run(spec)
    insert = "INSERT INTO t (_asynclock_key, k, a__ts, a__x) VALUES ('N0', 'N0', 11, 9)"

    _, inserted, updated, deleted = foreign(
        pipeline.folder,
        sql(f"CREATE TABLE t USING hudi LOCATION '{spec.table.path}'"),
        sql(insert),
        sql("UPDATE t SET a__x = 100 WHERE k = 'N1'"),
        sql("DELETE FROM t WHERE k = 'N2'"),
        jar=True,
    )

    assert "would store a key twice. Nothing was written" in inserted
    assert (updated, deleted) == ("[]", "[]")
    assert rows(spec, spark) == [
        ("N0", 10, 0, "streamed", 0.5),
        ("N1", 10, 100, "streamed", None),
        ("N3", 10, 3, "streamed", None),
    ]
    assert pipeline.table(spec).strays() == []


def test_statements_read_and_delete_and_others_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    """An INSERT, UPDATE or MERGE is written as an insert of Hudi's, which does not merge on copy-on-write."""
    pipeline = two_streams(tmp_path / "ab", spark)
    spec = spec_of(pipeline)
    pipeline.run(spec)
    register(spec, spark, name="fleet")
    try:
        for statement in (
            "INSERT INTO fleet_stored (k, a__ts, a__x) VALUES ('N0', 11, 9)",
            "UPDATE fleet_stored SET a__x = 20 WHERE k = 'N2'",
            MERGED,
        ):
            with pytest.raises(Py4JJavaError, match="Nothing was written"):
                spark.sql(statement)
        spark.sql("DELETE FROM fleet_stored WHERE k = 'N1'")
        shown = sorted(map(tuple, spark.sql("SELECT k, at, x, note, y FROM fleet").collect()))
    finally:
        spark.sql("DROP VIEW IF EXISTS fleet")
        spark.sql("DROP TABLE IF EXISTS fleet_stored")

    assert shown == [
        ("N0", 10, 0, "streamed", 0.5),
        ("N2", 10, 2, "streamed", None),
        ("N3", 10, 3, "streamed", None),
    ]
    assert rows(spec, spark) == shown


def test_changes_and_earlier_states_are_shown(spark: SparkSession, tmp_path: Path) -> None:
    """Changes are the rows that commits wrote, not those that a rewrite of their file copied."""
    pipeline = two_streams(tmp_path / "ab", spark)
    spec = spec_of(pipeline)
    pipeline.run(spec)
    before = rows(spec, spark)
    since = pipeline.timeline(spec).newest_completion()

    pipeline.deliver("a", {"k": "N1", "at": 11, "x": 11, "note": "newer"}, {"k": "N2", "at": 1, "x": 0})
    pipeline.run(spec)
    Splice(spec, spark).delete([{"k": "N3"}])

    changed = changes(spec, spark, since=since).frame
    assert sorted((row["k"], row["x"], row["_deleted"]) for row in changed.collect()) == [
        ("N1", 11, False),
        ("N3", None, True),
    ]
    earlier = read(spec, spark, as_of=since).select("k", "at", "x", "note", "y")
    assert sorted(map(tuple, earlier.collect())) == before
    assert validate(spec, spark, as_of=since).ok


def test_a_savepoint_is_restored(spark: SparkSession, tmp_path: Path) -> None:
    """What was committed since is dropped and read again."""
    pipeline = two_streams(tmp_path / "ab", spark)
    spec = spec_of(pipeline)
    pipeline.run(spec)
    before = rows(spec, spark)
    kept = savepoint(spec, spark=spark)
    pipeline.deliver("a", {"k": "N1", "at": 11, "x": 11, "note": "newer"})
    pipeline.run(spec)
    after = rows(spec, spark)

    restore(spec, kept, spark=spark)

    assert rows(spec, spark) == before
    pipeline.run(spec)
    assert rows(spec, spark) == after
    assert is_valid(spec, spark)


def test_files_outside_of_the_buckets_are_found_and_repaired(spark: SparkSession, tmp_path: Path) -> None:
    """A table that lost its guard is written by a session without the options; the repair moves its rows."""
    pipeline = two_streams(tmp_path / "ab", spark)
    spec = spec_of(pipeline)
    pipeline.run(spec)
    pipeline.unguard(spec)
    frame = snapshot(Table(spec, spark)).where("k = 'N1'").withColumn(RECORD_KEY, F.col("k"))
    row = {**frame.collect()[0].asDict(), "a__ts": 12, "a__x": 12}
    spark.createDataFrame([row], frame.schema).write.format("hudi").options(
        **{
            "hoodie.table.name": "table_splice",
            "hoodie.datasource.write.operation": "bulk_insert",
            "hoodie.datasource.write.recordkey.field": "_asynclock_key",
            "hoodie.metadata.enable": "false",
        }
    ).mode("append").save(spec.table.path)

    report = validate(spec, spark)
    assert not report.ok
    assert [(one.key, one.found) for one in report.sample] == [({"k": "N1"}, "2 rows")]
    assert len(report.stray_files) == 1
    repair(spec, spark=spark)

    assert rows(spec, spark)[1] == ("N1", 12, 12, "streamed", None)
    assert pipeline.table(spec).strays() == []


@pytest.mark.parametrize(
    ("changes_of_spec", "key", "reason"),
    [
        ({'type = "cow"': 'type = "cow"\nconcurrency = "nbcc"'}, "table.concurrency", "needs merge-on-read"),
        ({'type = "cow"': 'type = "cow"\nmerge = "event_time"'}, "table.merge", "ordering of its own"),
        ({'type = "cow"': 'type = "cow"\nbuckets = 0', "buckets = 1\n": ""}, "table.buckets", "1 or more"),
        ({"[services]": '[services]\nmode = "inline"'}, "services.mode", "splice table"),
        ({"[services]": "[services]\ncompaction = { every_commits = 2 }"}, "services.compaction", "no logs"),
    ],
)
def test_what_does_not_go_with_copy_on_write_is_refused(
    tmp_path: Path, spark: SparkSession, changes_of_spec: dict[str, str], key: str, reason: str
) -> None:
    """A spec says so when it is read, with the setting that has to change."""
    pipeline = Pipeline(tmp_path, spark)
    text = spec_of(pipeline).path.read_text()
    for old, new in changes_of_spec.items():
        assert old in text
        text = text.replace(old, new)

    written = tmp_path / "changed.toml"
    written.write_text(text)

    with pytest.raises(SpecError, match=reason) as caught:
        load_spec(written)

    assert caught.value.key == key
