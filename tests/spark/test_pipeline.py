"""Streams of files into one table: what is in it afterwards, and how often."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import threading
import time
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from asynclock import sync
from asynclock.errors import ConfigError, LeaseLostError, SpecError
from asynclock.spark.check.validation import validate
from asynclock.spark.errors import BadRowsError
from asynclock.spark.hudi.options import write_options
from asynclock.spark.hudi.table import Table
from asynclock.spark.hudi.timeline import Timeline
from asynclock.spark.reader.snapshot import read
from asynclock.spark.runs.run import run
from asynclock.spark.services.work import Cleaning, Compaction
from asynclock.spark.spec.load import load_spec
from asynclock.spark.spec.model import RECORD_KEY
from asynclock.spark.work import cancel
from asynclock.spark.writer import query
from asynclock.spark.writer.splice import Splice
from tests.spark.pipeline_kit import SUMMED, Background, Pipeline, break_whatever_is_renewed, wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from asynclock.spark.results import BatchReport
    from asynclock.spark.spec.model import Spec


@pytest.fixture
def pipeline(tmp_path: Path, spark: SparkSession) -> Pipeline:
    """An empty pipeline."""
    return Pipeline(tmp_path, spark)


def rows(pipeline: Pipeline, spec: Spec, *columns: str) -> list[tuple[object, ...]]:
    """Some columns of the view, ordered by the first."""
    return sorted(tuple(row) for row in read(spec, pipeline.spark).select(*columns).collect())


def test_streams_meet_in_one_row(pipeline: Pipeline) -> None:
    """Each stream fills its own columns of the key's row, whichever comes first."""
    pipeline.deliver("a", {"k": "N1", "at": 1, "x": 10}, {"k": "N2", "at": 1, "x": 20})
    pipeline.deliver("a", {"k": "N1", "at": 3, "x": 11}, {"k": "N2", "at": 0, "x": 21})
    pipeline.deliver("b", {"k": "N1", "seen": "2024-05-01T12:00:00Z", "y": 0.5})
    spec = pipeline.spec()

    report = pipeline.run(spec)

    assert rows(pipeline, spec, "k", "at", "x", "y") == [("N1", 3, 11, 0.5), ("N2", 1, 20, None)]
    assert [(s.stream, s.batches, s.rows, s.skipped) for s in report.streams] == [
        ("a", 2, 4, 0),
        ("b", 1, 1, 0),
    ]


def test_newer_null_erases_and_tombstone_hides(pipeline: Pipeline) -> None:
    """A newer event wins with its nulls; a tombstone empties its group, and a row of tombstones is gone."""
    pipeline.deliver("a", {"k": "N1", "at": 1, "x": 10, "note": "old"})
    pipeline.deliver("a", {"k": "N1", "at": 2, "x": None, "note": None})
    pipeline.deliver("b", *({"k": k, "seen": "2024-05-01T12:00:00Z", "y": 1.5} for k in ("N1", "N2")))
    pipeline.deliver(
        "b", *({"k": k, "seen": "2024-05-02T12:00:00Z", "deleted": "true"} for k in ("N1", "N2"))
    )
    pipeline.deliver("b", {"k": "N2", "seen": "2024-05-01T18:00:00Z", "y": 9.0})
    spec = pipeline.spec()

    pipeline.run(spec)

    assert rows(pipeline, spec, "k", "at", "x", "note", "seen", "y") == [("N1", 2, None, None, None, None)]


def test_equal_ordering_values_keep_arrival_order(pipeline: Pipeline, spark: SparkSession) -> None:
    """Of events with one ordering value the last to arrive wins: later file, later line, in any batch."""
    keys = [f"N{number}" for number in range(200)]
    for file in range(6):
        pipeline.deliver("a", *({"k": k, "at": 1, "x": 10 * file + line} for line in range(5) for k in keys))
    spec = pipeline.spec(
        {"max_files_per_trigger = 1\ncolumns = { at": "max_files_per_trigger = 5\ncolumns = { at"}
    )
    # Small splits, dealt to tasks by their size: order must come from the rows, not from the tasks.
    spark.conf.set("spark.sql.files.maxPartitionBytes", "3000")
    try:
        report = pipeline.run(spec, streams=["a"])
    finally:
        spark.conf.unset("spark.sql.files.maxPartitionBytes")

    assert report.streams[0].batches == 2
    assert {row[1] for row in rows(pipeline, spec, "k", "x")} == {54}


def test_of_a_frame_the_later_by_its_arrival_wins_a_tie(pipeline: Pipeline) -> None:
    """Where a frame says how its rows arrived, their order in it counts for nothing."""
    spec = pipeline.spec()
    columns = "k string, at bigint, x int, note string, _asynclock_arrival int"
    frame = pipeline.spark.createDataFrame([("N1", 1, 30 - at, "n", 30 - at) for at in range(30)], columns)

    Splice(spec, pipeline.spark).write(frame, "a")

    assert rows(pipeline, spec, "k", "x") == [("N1", 30)]


def test_batch_killed_before_its_checkpoint_is_skipped(pipeline: Pipeline) -> None:
    """A batch that is on the timeline, but not in the checkpoint, is not committed twice."""
    for at in range(3):
        pipeline.deliver("a", {"k": "N1", "at": at, "x": at})
    spec = pipeline.spec(SUMMED)
    pipeline.run(spec, streams=["a"])
    before = pipeline.timeline(spec).commits
    last = pipeline.forget_last_batch("a")

    report = pipeline.run(spec, streams=["a"])

    assert (report.streams[0].batches, report.streams[0].skipped, report.streams[0].rows) == (1, 1, 0)
    assert pipeline.timeline(spec).commits == before
    assert [commit.batch_id for commit in before] == [0, 1, last]
    assert rows(pipeline, spec, "x") == [(0 + 1 + 2,)]


def test_archived_batch_is_skipped(pipeline: Pipeline) -> None:
    """The look-up of a committed batch reaches into the archived timeline."""
    pipeline.deliver("a", {"k": "N1", "at": 1, "x": 1})
    spec = pipeline.spec()
    pipeline.run(spec, streams=["a"])
    (commit,) = pipeline.timeline(spec).commits
    for day in range(1, 6):
        pipeline.deliver("b", {"k": "N1", "seen": f"2024-05-0{day}T12:00:00Z", "y": day})
    pipeline.run(spec, streams=["b"])
    Cleaning(Table(spec, pipeline.spark)).step()
    active = [instant.requested for instant in pipeline.timeline(spec).instants()]
    assert commit.requested not in active
    pipeline.forget_last_batch("a")

    report = pipeline.run(spec, streams=["a"])

    assert report.streams[0].skipped == 1
    assert [found for found in pipeline.timeline(spec).commits if found.stream == "a"] == [commit]


def test_writer_sees_a_batch_archived_behind_its_back(pipeline: Pipeline) -> None:
    """A writer that was idle while others committed and archived still finds every batch."""
    spec = pipeline.spec()
    frame = pipeline.spark.createDataFrame([("N1", 1, 1, "n")], "k string, at bigint, x int, note string")
    idle, busy = Splice(spec, pipeline.spark), Splice(spec, pipeline.spark)
    assert busy.write(frame, "a", batch_id=0, query_id="q")
    assert idle.committed("a", 0, query_id="q")

    for batch in range(1, 6):
        busy.write(frame, "a", batch_id=batch, query_id="q")
    Cleaning(Table(spec, pipeline.spark)).step()

    assert [idle.committed("a", batch, query_id="q") for batch in range(7)] == [True] * 6 + [False]


def test_only_the_same_stream_query_and_batch_is_skipped(
    pipeline: Pipeline, caplog: pytest.LogCaptureFixture
) -> None:
    """A repetition is the same batch of the same query; a new query on the stream is announced."""
    spec = pipeline.spec()
    frame = pipeline.spark.createDataFrame([("N1", 1, 1, "n")], "k string, at bigint, x int, note string")
    splice = Splice(spec, pipeline.spark)

    written = [
        splice.write(frame, "a", batch_id=batch, query_id=query)
        for batch, query in [(0, "q"), (0, "q"), (1, "q"), (0, "r"), (0, "r")]
    ]

    assert written == [True, False, True, True, False]
    announced = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert len(announced) == 1
    assert "query q" in announced[0]
    assert "query r" in announced[0]


def test_commits_name_stream_query_batch_token_and_owner(pipeline: Pipeline) -> None:
    """The commit metadata say whose batch it is, and under which lease it was written."""
    pipeline.deliver("a", {"k": "N1", "at": 1, "x": 1})
    spec = pipeline.spec()

    report = pipeline.run(spec, streams=["a"])

    (commit,) = pipeline.timeline(spec).commits
    with sync.connect(spec.locks.url, settings=spec.locks.settings) as client:
        status = client.lock("stream/a").status()
    assert (commit.stream, commit.batch_id) == ("a", 0)
    assert commit.fencing_token == report.streams[0].fencing_token == status.fencing_token
    assert commit.owner == status.owner
    assert re.fullmatch(r"[0-9a-f-]{36}", commit.query_id)


def test_standby_takes_over_when_the_leader_stops(pipeline: Pipeline) -> None:
    """A second run waits for the lease and goes on where the first one stopped."""
    pipeline.deliver("a", {"k": "N1", "at": 1, "x": 1})
    spec = pipeline.spec()
    stops = [threading.Event(), threading.Event()]
    seen: list[list[BatchReport]] = [[], []]
    leader = Background(
        lambda: run(spec, streams=["a"], spark=pipeline.spark, stop=stops[0], on_batch=seen[0].append)
    )
    wait_for(lambda: seen[0])
    standby = Background(
        lambda: run(spec, streams=["a"], spark=pipeline.spark, stop=stops[1], on_batch=seen[1].append)
    )
    pipeline.deliver("a", {"k": "N1", "at": 2, "x": 2})
    wait_for(lambda: len(seen[0]) > 1)

    stops[0].set()
    first = leader.result().streams[0]
    pipeline.deliver("a", {"k": "N1", "at": 3, "x": 3})
    wait_for(lambda: seen[1])
    stops[1].set()
    second = standby.result().streams[0]

    assert [batch.batch_id for batch in seen[0] + seen[1]] == [0, 1, 2]
    assert first.fencing_token < second.fencing_token
    assert second.lock_wait_seconds > 0
    assert rows(pipeline, spec, "k", "x") == [("N1", 3)]


def test_a_table_that_is_being_created_is_not_there_yet(pipeline: Pipeline) -> None:
    """Who looks while the first writer creates the table sees none, instead of failing."""
    spec = pipeline.spec()
    folder = Path(spec.table.path.removeprefix("file:")) / ".hoodie"
    folder.mkdir(parents=True)
    (folder / "hoodie.properties").touch()

    assert not Timeline(pipeline.spark, spec.table.path).exists()


def test_lost_lease_cancels_the_batch_and_ends_the_run(pipeline: Pipeline) -> None:
    """When another takes the lease in the middle of a batch, its jobs are cancelled and nothing commits."""
    keys = (f"N{number}" for number in range(300_000))
    pipeline.deliver("a", *({"k": key, "at": 1, "x": 1, "note": "x" * 40} for key in keys))
    spec = pipeline.spec({"validity = 5.0": "validity = 2.0"})
    running = Background(lambda: pipeline.run(spec, streams=["a"]))
    wait_for(lambda: pipeline.timeline(spec).pending())

    with sync.connect(spec.locks.url, settings=spec.locks.settings) as client:
        break_whatever_is_renewed(client.lock("stream/a"))
        with pytest.raises(LeaseLostError, match="stream/a"):
            running.result()

    timeline = pipeline.timeline(spec)
    assert timeline.commits == []
    assert [(instant.action, instant.completed) for instant in timeline.pending()] == [("deltacommit", None)]
    tracker = pipeline.spark.sparkContext.statusTracker()
    assert tracker.getActiveJobsIds() == []


def test_stop_cancels_a_batch_that_does_not_end(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A stop waits for the batch no longer than its patience; then the jobs end and the lease is free."""
    monkeypatch.setattr(query, "PATIENCE_SECONDS", 0.2)
    keys = (f"N{number}" for number in range(300_000))
    pipeline.deliver("a", *({"k": key, "at": 1, "x": 1, "note": "x" * 40} for key in keys))
    spec = pipeline.spec()
    stop = threading.Event()
    running = Background(lambda: pipeline.run(spec, streams=["a"], stop=stop))
    wait_for(lambda: pipeline.timeline(spec).pending())

    stop.set()
    report = running.result()

    assert report.streams[0].batches == 0
    assert pipeline.timeline(spec).commits == []
    assert pipeline.spark.sparkContext.statusTracker().getActiveJobsIds() == []
    assert "the next run writes it" in caplog.text
    with sync.connect(spec.locks.url, settings=spec.locks.settings) as client:
        assert client.lock("stream/a").status().state == "free"


def java_stacks(spark: SparkSession) -> str:
    """What every thread of the driver's JVM is doing."""
    return "\n".join(map(str, spark._jvm.org.apache.spark.util.Utils.getThreadDump()))


@pytest.mark.parametrize("how", ["stop", "loss"])
def test_batch_that_waits_without_a_job_is_ended(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """A batch that hangs in the driver, here for Hudi's lock, ends on a stop and when its lease is lost."""
    monkeypatch.setattr(query, "PATIENCE_SECONDS", 0.2)
    monkeypatch.setattr(cancel, "_INTERRUPT_AFTER", 0.2)
    pipeline.deliver("a", {"k": "N1", "at": 1, "x": 1})
    spec = pipeline.spec({"validity = 5.0": "validity = 2.0"})
    pipeline.run(spec, streams=["a"])
    pipeline.deliver("a", {"k": "N1", "at": 2, "x": 2})
    locked = pipeline.folder / "table" / ".hoodie" / ".locks" / "asynclock.lock"
    stop = threading.Event()
    with locked.open("r+b") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        running = Background(lambda: pipeline.run(spec, streams=["a"], stop=stop))
        wait_for(lambda: "TableLockFile.tryLock" in java_stacks(pipeline.spark))
        started = time.monotonic()
        if how == "stop":
            stop.set()
            running.result()
        else:
            with sync.connect(spec.locks.url, settings=spec.locks.settings) as client:
                break_whatever_is_renewed(client.lock("stream/a"))
            with pytest.raises(LeaseLostError):
                running.result()
        assert time.monotonic() - started < 30

    assert len(pipeline.timeline(spec).commits) == 1
    Cleaning(Table(spec, pipeline.spark)).step()
    pipeline.run(spec, streams=["a"])
    assert rows(pipeline, spec, "k", "x") == [("N1", 2)]


def test_reservation_holds_the_streams_at_the_batch_boundary(
    pipeline: Pipeline, caplog: pytest.LogCaptureFixture
) -> None:
    """While somebody has reserved the table no batch begins; afterwards all go on."""
    caplog.set_level("INFO", logger="asynclock")
    pipeline.deliver("a", {"k": "N1", "at": 1, "x": 1})
    spec = pipeline.spec()
    with sync.connect(spec.locks.url, settings=spec.locks.settings) as client:
        with client.lock("reservation/table").hold():
            running = Background(lambda: pipeline.run(spec, streams=["a"]))
            wait_for(lambda: "stream a waits: the table is reserved, held by" in caplog.text)
            assert not pipeline.timeline(spec).exists()
        report = running.result().streams[0]

    assert report.reservation_wait_seconds > 0
    assert rows(pipeline, spec, "k", "x") == [("N1", 1)]


def test_sigterm_lets_the_batch_commit_and_frees_the_lease(pipeline: Pipeline) -> None:
    """On SIGTERM a run finishes its batch, releases its leases and returns."""
    for at in range(3):
        pipeline.deliver("a", {"k": "N1", "at": at, "x": at})
    spec = pipeline.spec()
    before = signal.getsignal(signal.SIGTERM)

    report = run(
        spec,
        streams=["a"],
        spark=pipeline.spark,
        on_batch=lambda _: os.kill(os.getpid(), signal.SIGTERM),
    )

    assert 1 <= report.streams[0].batches < 3
    assert len(pipeline.timeline(spec).commits) == report.streams[0].batches
    assert pipeline.timeline(spec).pending() == []
    with sync.connect(spec.locks.url, settings=spec.locks.settings) as client:
        assert client.lock("stream/a").status().state == "free"
    assert signal.getsignal(signal.SIGTERM) == before


BAD_ROWS = [
    {"k": "N1", "at": "noon", "x": 1},
    {"k": None, "at": 2, "x": 2},
    {"k": "N3", "at": None, "x": 3},
    {"k": "N4", "at": 4, "x": "4,5,6,7"},
    {"k": "N5", "at": 5, "x": 3_000_000_000},
]
REASONS = [
    "at is no bigint: noon",
    "k is missing",
    "at is missing",
    "the record has 7 fields, the header 4",
    "x is no int: 3000000000",
]


def test_bad_rows_are_put_aside_and_counted(pipeline: Pipeline) -> None:
    """Rows that cannot be read land in the quarantine with file, reason and record; the rest is written."""
    file = pipeline.deliver("a", *BAD_ROWS, {"k": "N6", "at": 6, "x": 6})
    spec = pipeline.spec({"columns = { at": 'on_bad_row = "quarantine"\ncolumns = { at'})

    report = pipeline.run(spec, streams=["a"])

    found = pipeline.quarantined("a")
    assert [row["reason"] for row in found] == REASONS
    assert {row["file"] for row in found} == {file.as_uri()}
    assert [row["line"] for row in found] == [2, 3, 4, 5, 6]
    assert found[0]["record"] == "N1,noon,1,"
    assert found[3]["record"] == "N4,4,4,5,6,7,"
    assert (report.streams[0].rows, report.streams[0].quarantined) == (6, 5)
    assert rows(pipeline, spec, "k", "x") == [("N6", 6)]


@pytest.mark.parametrize(("row", "reason"), list(zip(BAD_ROWS, REASONS, strict=True)))
def test_bad_row_fails_the_batch_before_anything_is_written(
    pipeline: Pipeline, row: dict[str, object], reason: str
) -> None:
    """Where bad rows are to fail, the batch fails with file and reason, and there is no table yet."""
    file = pipeline.deliver("a", {"k": "N0", "at": 1, "x": 1}, row)
    spec = pipeline.spec()

    with pytest.raises(BadRowsError, match=r"Correct the source, or set on_bad_row") as caught:
        pipeline.run(spec, streams=["a"])

    assert (caught.value.stream, caught.value.batch_id, caught.value.rows) == ("a", 0, 1)
    assert reason in str(caught.value)
    assert file.name in str(caught.value)
    assert not pipeline.timeline(spec).exists()


@pytest.mark.parametrize("suffix", ["json", "parquet"])
def test_columns_are_matched_by_name_in_every_format(pipeline: Pipeline, suffix: str) -> None:
    """JSON and parquet files give the same rows as CSV, with columns in any order and more than needed."""
    spec = pipeline.spec({'format = "csv"\nordering = "at"': f'format = "{suffix}"\nordering = "at"'})
    frame = pipeline.spark.createDataFrame(
        [(True, 1, "N1", 7), (False, 2, "N2", None)], "surplus boolean, at int, k string, x int"
    ).selectExpr("*", "cast(null as string) note")
    folder = pipeline.folder / "made"
    frame.coalesce(1).write.format(suffix).save(str(folder))
    (made,) = folder.glob(f"part-*.{suffix}")
    made.rename(pipeline.folder / "in" / "a" / f"0.{suffix}")

    pipeline.run(
        pipeline.spec({'format = "csv"\nordering = "at"': f'format = "{suffix}"\nordering = "at"'}),
        streams=["a"],
    )

    assert rows(pipeline, spec, "k", "at", "x") == [("N1", 1, 7), ("N2", 2, None)]


def test_keys_of_two_columns_and_partitions(pipeline: Pipeline) -> None:
    """A row is named by all its key columns, typed as declared, within its partition."""
    changes = {
        'key = ["k"]': 'key = ["k", "note"]\npartition_by = ["x"]',
        'x = "int", note = "string" }': 'x = "int", v = "int" }',
        '"csv"\nordering = "at"': '"json"\nordering = "at"',
    }
    spec = pipeline.spec(changes)
    pipeline.place("a", "json", "".join(
        f'{{"k": "N1", "note": "{note}", "x": {x}, "at": {at}, "v": {v}}}\n'
        for note, x, at, v in [("l", 1, 1, 1), ("r", 1, 1, 2), ("l", 1, 2, 3), ("l", 2, 1, 4)]
    ))  # fmt: skip

    pipeline.run(spec, streams=["a"])
    pipeline.run(spec, streams=["a"])

    assert rows(pipeline, spec, "k", "note", "x", "v") == [
        ("N1", "l", 1, 3),
        ("N1", "l", 2, 4),
        ("N1", "r", 1, 2),
    ]


def test_empty_folder_waits_for_its_first_delivery(pipeline: Pipeline) -> None:
    """A stream whose folder is empty has nothing to do, and reads what comes later."""
    spec = pipeline.spec({'format = "csv"\nordering = "seen"': 'format = "parquet"\nordering = "seen"'})

    before = pipeline.run(spec, streams=["b"])
    pipeline.deliver("a", {"k": "N1", "at": 1, "x": 1})
    after = pipeline.run(spec)

    assert [stream.rows for stream in before.streams] == [0]
    assert [stream.rows for stream in after.streams] == [1, 0]


def test_bad_file_is_put_aside_whole(pipeline: Pipeline) -> None:
    """A file whose quoting is broken gives one entry with its reason and none of its rows."""
    pipeline.deliver("a", {"k": "N1", "at": 1, "x": 1})
    file = pipeline.place("a", "csv", 'k,at,x,note\nN2,1,1,\nN3,1,1,"a"b\n')
    spec = pipeline.spec({"columns = { at": 'on_bad_row = "quarantine"\ncolumns = { at'})

    report = pipeline.run(spec, streams=["a"])

    (entry,) = pipeline.quarantined("a")
    assert entry.keys() == {"file", "reason"}
    assert entry["file"] == file.as_uri()
    assert "broken quoting in the record at line 3" in entry["reason"]
    assert (report.streams[0].rows, report.streams[0].quarantined) == (2, 1)
    assert rows(pipeline, spec, "k", "x") == [("N1", 1)]


def test_bad_file_fails_the_batch_where_bad_rows_do(pipeline: Pipeline) -> None:
    """The error names the file and what to do, and the batches before stay."""
    pipeline.deliver("a", {"k": "N1", "at": 1, "x": 1})
    file = pipeline.place("a", "csv", "k,at,X,note\nN2,1,1,\n")
    spec = pipeline.spec()

    with pytest.raises(BadRowsError, match="its column 'X' differs from 'x' in case alone") as caught:
        pipeline.run(spec, streams=["a"])

    assert file.as_uri() in str(caught.value)
    assert [commit.batch_id for commit in pipeline.timeline(spec).commits] == [0]


@pytest.mark.parametrize(
    ("changes", "key", "texts"),
    [
        pytest.param(
            {'key = ["k"]': 'key = ["k", "note"]', ', note = "string"': ""},
            "table.key",
            ["has the key k,", "has k, note", "Correct the spec"],
            id="key",
        ),
        pytest.param(
            {"buckets = 1": 'buckets = 1\npartition_by = ["note"]', ', note = "string"': ""},
            "table.partition_by",
            ["partition.fields=''", "'note'", "Correct the spec"],
            id="partition",
        ),
        pytest.param(
            {"buckets = 1": "buckets = 2"},
            "table.buckets",
            ["has 1 buckets", "correct the spec"],
            id="buckets",
        ),
    ],
)
def test_table_made_for_another_spec_is_refused(
    pipeline: Pipeline, changes: dict[str, str], key: str, texts: list[str]
) -> None:
    """An existing table with another key, partitioning or bucket count is left as it is."""
    pipeline.deliver("a", {"k": "N1", "at": 1, "x": 1, "note": "n"})
    pipeline.run(pipeline.spec(), streams=["a"])
    spec = pipeline.spec({**changes, "checkpoints/a": "checkpoints/new"})
    before = pipeline.everything()

    with pytest.raises(SpecError, match="othing was written") as caught:
        pipeline.run(spec, streams=["a"])

    assert (caught.value.path, caught.value.key) == (str(spec.path), key)
    assert caught.value.line in {2, 3, 4, 5}
    for text in texts:
        assert text in str(caught.value)
    assert pipeline.everything() == before


def test_table_with_another_record_key_is_refused(pipeline: Pipeline) -> None:
    """A table whose record key is made of the user's columns, which Hudi could confuse, is left as it is."""
    pipeline.deliver("a", {"k": "N1", "at": 1, "x": 1})
    spec = pipeline.spec()
    options = write_options(spec) | {"hoodie.datasource.write.recordkey.field": "k"}
    frame = pipeline.spark.createDataFrame([("N1", 1, 1)], "k string, a__ts bigint, a__x int")
    frame.write.format("hudi").options(**options).mode("append").save(spec.table.path)
    before = pipeline.everything()

    with pytest.raises(SpecError, match=r"recordkey.fields='k'.*splice into a new table") as caught:
        pipeline.run(spec, streams=["a"])
    with pytest.raises(SpecError, match="not a splice table"):
        read(spec, pipeline.spark)

    assert (caught.value.key, caught.value.line) == ("table.path", 2)
    assert pipeline.everything() == before


STORED = '{ at = "bigint", x = "int", note = "string" }'


@pytest.mark.parametrize(
    ("columns", "key", "text"),
    [
        (STORED.replace("bigint", "string"), "streams.a.columns.at", "a__ts as bigint, this spec as string"),
        (STORED.replace("bigint", "int"), "streams.a.columns.at", "declare bigint"),
        (STORED.replace('"int"', '"float"'), "streams.a.columns.x", "a__x as int, this spec as float"),
        (STORED.replace('"int"', '"string"'), "streams.a.columns.x", "a__x as int, this spec as string"),
        (STORED.replace(" }", ', k = "int" }'), "streams.a.columns.k", "k as string, this spec as int"),
    ],
    ids=["ordering-to-text", "ordering-to-less", "value-to-less", "value-to-text", "key"],
)
def test_stored_column_keeps_its_type(pipeline: Pipeline, columns: str, key: str, text: str) -> None:
    """No column is ordered or read otherwise than it was written."""
    pipeline.deliver("a", {"k": "1", "at": 9, "x": 1})
    pipeline.run(pipeline.spec(), streams=["a"])
    pipeline.deliver("a", {"k": "1", "at": 10, "x": 2})
    changed = pipeline.spec({STORED: columns})
    before = pipeline.everything()

    with pytest.raises(SpecError, match="othing was written") as caught:
        pipeline.run(changed, streams=["a"])

    assert caught.value.key == key
    assert text in str(caught.value)
    assert pipeline.everything() == before


def test_types_grow_without_loss_and_not_back(pipeline: Pipeline) -> None:
    """Wider types keep every value and their order in logs and base files; then there is no way back."""
    types = {
        "at": ("int", "bigint"),
        "x": ("int", "bigint"),
        "n": ("int", "double"),
    }
    types["d"] = ("decimal(5,2)", "decimal(20,2)")
    specs = []
    for side in (0, 1):
        columns = ", ".join(f'{name} = "{pair[side]}"' for name, pair in types.items())
        changes = {STORED: f"{{ {columns} }}", '"csv"\nordering = "at"': '"json"\nordering = "at"'}
        specs.append(pipeline.spec(changes, name=f"{side}.toml"))
    narrow, wide = specs
    first = (
        '{"k": "old", "at": 7, "x": 1, "n": 3, "d": 1.25}\n{"k": "new", "at": 7, "x": 1}\n'
        '{"k": "kept", "at": 2147483647, "x": 1, "n": 2147483647, "d": 999.99}\n'
    )
    second = (
        '{"k": "new", "at": 5000000000, "x": 6000000000, "n": 0.1, "d": 12345678.25}\n'
        '{"k": "kept", "at": 100, "x": 0}\n'
    )
    pipeline.place("a", "json", first)
    pipeline.run(narrow, streams=["a"])
    pipeline.run(narrow, streams=["a"])
    pipeline.place("a", "json", first)
    pipeline.run(narrow, streams=["a"])
    Compaction(Table(narrow, pipeline.spark)).step()
    pipeline.place("a", "json", second)

    pipeline.run(wide, streams=["a"])
    before = read(wide, pipeline.spark).select("k", "at", "x", "n", "d").collect()
    pipeline.place("a", "json", second)
    pipeline.run(wide, streams=["a"])
    Compaction(Table(wide, pipeline.spark)).step()

    found = rows(pipeline, wide, "k", "at", "x", "n", "d")
    assert sorted(map(tuple, before)) == found
    assert found == [
        ("kept", 2147483647, 1, 2147483647.0, Decimal("999.99")),
        ("new", 5000000000, 6000000000, 0.1, Decimal("12345678.25")),
        ("old", 7, 1, 3.0, Decimal("1.25")),
    ]  # fmt: skip
    with pytest.raises(SpecError, match="this spec as int"):
        pipeline.run(narrow, streams=["a"])


def test_reading_before_the_first_commit_says_so(pipeline: Pipeline) -> None:
    """Without a table, and without a commit in it, a read is one sentence, a validation expects nothing."""
    spec = pipeline.spec()
    pipeline.deliver("a", {"k": "N1", "at": 1, "x": 1})
    pipeline.deliver("b", {"k": "N1", "seen": "2024-05-01T12:00:00Z"})
    with pytest.raises(SpecError, match="there is no table yet; feed it first") as caught:
        read(spec, pipeline.spark)
    assert (caught.value.key, caught.value.line) == ("table.path", 2)
    bad = pipeline.spark.createDataFrame([(None, 1, 1, "n")], "k string, at bigint, x int, note string")
    with pytest.raises(Exception, match="k is missing"):
        Splice(spec, pipeline.spark).write(bad, "a")

    with pytest.raises(SpecError, match="nothing is committed yet"):
        read(spec, pipeline.spark)
    report = validate(spec, pipeline.spark)
    assert (report.as_of, report.keys, len(report.streams[0].unread_files)) == (None, 0, 1)


def test_new_stream_is_read_as_null_before_its_first_commit(pipeline: Pipeline) -> None:
    """Columns of a stream that has not written yet are null instead of unknown."""
    pipeline.deliver("a", {"k": "N1", "at": 1, "x": 1})
    path = pipeline.folder / "less.toml"
    spec = pipeline.spec()
    path.write_text(spec.path.read_text().partition("[streams.b]")[0])
    pipeline.run(load_spec(path))

    assert rows(pipeline, spec, "k", "x", "y") == [("N1", 1, None)]


def test_table_with_another_merger_is_refused(pipeline: Pipeline) -> None:
    """A plain Hudi table, which would merge by commit time, is left as it is."""
    pipeline.deliver("a", {"k": "N1", "at": 1, "x": 1})
    spec = pipeline.spec()
    pipeline.spark.createDataFrame([("N1", 1)], f"{RECORD_KEY} string, v int").write.format("hudi").options(
        **{
            "hoodie.table.name": "plain",
            "hoodie.datasource.write.recordkey.field": RECORD_KEY,
            "hoodie.datasource.write.partitionpath.field": "",
            "hoodie.datasource.write.table.type": "MERGE_ON_READ",
            "hoodie.metadata.enable": "false",
        }
    ).mode("append").save(spec.table.path)
    before = pipeline.everything()

    with pytest.raises(SpecError, match="splice into a new table") as caught:
        pipeline.run(spec, streams=["a"])

    assert (caught.value.key, caught.value.line) == ("table.path", 2)
    assert "merge.mode" in str(caught.value)
    assert pipeline.everything() == before


@pytest.mark.parametrize(
    ("changes", "streams", "error", "texts"),
    [
        pytest.param(
            {'x = "int"': 'z = "int"'},
            ["a"],
            SpecError,
            ["streams.a.columns.z", "has no column 'z'", "it has: k, at, x"],
            id="column",
        ),
        pytest.param({}, ["c"], ConfigError, ["unknown name 'c'", "a, b"], id="stream"),
    ],
)
def test_wrong_request_creates_nothing(
    pipeline: Pipeline, changes: dict[str, str], streams: list[str], error: type[Exception], texts: list[str]
) -> None:
    """A column that the files lack and a stream that the spec lacks are named before anything is made."""
    pipeline.deliver("a", {"k": "N1", "at": 1, "x": 1})
    spec = pipeline.spec(changes)
    before = pipeline.everything()

    with pytest.raises(error) as caught:
        pipeline.run(spec, streams=streams)

    for text in texts:
        assert text in str(caught.value)
    assert pipeline.everything() == before


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ("k string, at bigint, x int", "needs note as string, but the frame lacks it"),
        ("k string, at bigint, x bigint, note string", "needs x as int, but the frame has it as bigint"),
        ("k string, at bigint, x int, note string, z int", "has no such column, but the frame has it as int"),
    ],
    ids=["missing", "other-type", "surplus"],
)
def test_frame_that_does_not_fit_the_stream_is_refused(pipeline: Pipeline, schema: str, text: str) -> None:
    """A frame must have the stream's columns with their types, no more and no less."""
    spec = pipeline.spec()
    splice = Splice(spec, pipeline.spark)
    before = pipeline.everything()

    with pytest.raises(ConfigError, match=re.escape(text)):
        splice.write(pipeline.spark.createDataFrame([], schema), "a")

    assert pipeline.everything() == before


@pytest.mark.parametrize("row", [(None, 1, 1, "n"), ("N1", None, 1, "n")])
def test_frame_without_key_or_ordering_value_is_not_committed(
    pipeline: Pipeline, row: tuple[object, ...]
) -> None:
    """A row without key or ordering value fails the write, and nothing of it can be read."""
    spec = pipeline.spec()
    schema = "k string, at bigint, x int, note string"
    splice = Splice(spec, pipeline.spark)

    with pytest.raises(Exception, match="is missing"):
        splice.write(pipeline.spark.createDataFrame([("N0", 1, 1, "n"), row], schema), "a")

    assert pipeline.timeline(spec).commits == []
