"""Deletes: what they erase, what comes back, and what is left in the files."""

from __future__ import annotations

import datetime as dt
import threading
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from asynclock.errors import ConfigError
from asynclock.spark.check.state import State
from asynclock.spark.check.validation import validate
from asynclock.spark.hudi.instants import DELETES
from asynclock.spark.hudi.table import Table
from asynclock.spark.reader.snapshot import read, snapshot
from asynclock.spark.services.work import Cleaning, Compaction
from asynclock.spark.writer.splice import Splice
from tests.spark.pipeline_kit import Background, Kept, Pipeline, command_here, wait_for, waiting

if TYPE_CHECKING:
    from pathlib import Path

    from asynclock.spark.spec.model import Spec

NOON = "2024-05-01T12:00:00Z"
EARLIER = "2024-05-01T11:00:00Z"
LATER = "2024-05-01T13:00:00Z"


@pytest.fixture
def empty(tmp_path: Path, spark: SparkSession) -> Pipeline:
    """An empty pipeline."""
    return Pipeline(tmp_path, spark)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Kept:
    """A table of two rows."""
    made = Pipeline(tmp_path_factory.mktemp("kept") / "deletes", spark)
    made.deliver("a", {"k": "N1", "at": 5, "x": 1}, {"k": "N2", "at": 5, "x": 2})
    made.deliver("b", {"k": "N1", "seen": NOON, "y": 0.5}, {"k": "N2", "seen": NOON, "y": 1.5})
    made.run(made.spec())
    return Kept(made)


@pytest.fixture
def pipeline(kept: Kept) -> Pipeline:
    """The pipeline of that table."""
    return kept.as_it_was()


def delete(pipeline: Pipeline, spec: Spec, *keys: str, **options: Any) -> Any:  # noqa: ANN401  as delete has them
    """Delete some keys."""
    return Splice(spec, pipeline.spark).delete([{"k": key} for key in keys], **options)


def rows(pipeline: Pipeline, spec: Spec) -> list[tuple[object, ...]]:
    """The view."""
    return sorted(tuple(row) for row in read(spec, pipeline.spark).select("k", "at", "x", "y").collect())


def is_valid(pipeline: Pipeline, spec: Spec) -> bool:
    """Whether the table is what its sources and deletes make it."""
    report = validate(spec, pipeline.spark)
    assert report.sample == ()
    assert not report.stale_commits
    assert not report.repeated_batches
    return report.differences == 0


@pytest.fixture
def spec(pipeline: Pipeline) -> Spec:
    """The spec of that table."""
    return pipeline.spec()


def test_a_deleted_row_is_gone_until_a_later_commit(pipeline: Pipeline, spec: Spec) -> None:
    """Without ``up_to`` a row goes with its key; an event committed later makes it again."""
    report = delete(pipeline, spec, "N1", "N3", "N1")

    assert (report.keys, report.absent, report.written) == (2, 1, 2)
    assert rows(pipeline, spec) == [("N2", 5, 2, 1.5)]
    assert [row.k for row in snapshot(Table(spec, pipeline.spark)).collect()] == ["N2"]
    assert is_valid(pipeline, spec)
    pipeline.deliver("a", {"k": "N1", "at": 1, "x": 9})
    pipeline.run(spec)
    assert rows(pipeline, spec) == [("N1", 1, 9, None), ("N2", 5, 2, 1.5)]
    assert is_valid(pipeline, spec)


def test_a_tombstone_of_one_stream_leaves_the_others(pipeline: Pipeline, spec: Spec) -> None:
    """A stream that has no tombstone in the spec can be deleted alone, up to its newest event."""
    report = delete(pipeline, spec, "N1", "N3", stream="a")

    assert (report.keys, report.absent, report.written) == (2, 1, 1)
    assert rows(pipeline, spec) == [("N1", None, None, 0.5), ("N2", 5, 2, 1.5)]
    pipeline.deliver("a", {"k": "N1", "at": 4, "x": 9}, {"k": "N2", "at": 6, "x": 3})
    pipeline.run(spec)
    assert rows(pipeline, spec) == [("N1", None, None, 0.5), ("N2", 6, 3, 1.5)]
    assert is_valid(pipeline, spec)
    pipeline.deliver("a", {"k": "N1", "at": 6, "x": 9})
    pipeline.run(spec)
    assert rows(pipeline, spec) == [("N1", 6, 9, 0.5), ("N2", 6, 3, 1.5)]
    assert is_valid(pipeline, spec)


def test_up_to_erases_against_events_that_come_late(pipeline: Pipeline, spec: Spec) -> None:
    """Nothing below ``up_to`` comes back, of a key that the table did not have either."""
    report = delete(pipeline, spec, "N1", "N3", up_to={"a": 7, "b": LATER})
    assert (report.keys, report.absent, report.written) == (2, 1, 2)
    assert rows(pipeline, spec) == [("N2", 5, 2, 1.5)]

    pipeline.deliver("a", {"k": "N1", "at": 6, "x": 9}, {"k": "N3", "at": 6, "x": 9})
    pipeline.deliver("b", {"k": "N1", "seen": NOON, "y": 9.5})
    pipeline.run(spec)
    Compaction(Table(spec, pipeline.spark)).step()
    assert rows(pipeline, spec) == [("N2", 5, 2, 1.5)]
    assert is_valid(pipeline, spec)
    pipeline.deliver("a", {"k": "N3", "at": 8, "x": 9})
    pipeline.run(spec)
    assert rows(pipeline, spec) == [("N2", 5, 2, 1.5), ("N3", 8, 9, None)]
    assert is_valid(pipeline, spec)


@pytest.mark.parametrize(
    "value", [LATER, dt.datetime(2024, 5, 1, 15, tzinfo=dt.timezone(dt.timedelta(hours=2)))]
)
def test_a_time_is_read_in_its_zone(pipeline: Pipeline, spec: Spec, value: str | dt.datetime) -> None:
    """A tombstone stands at the given time, in the zone that it names, else in UTC."""
    delete(pipeline, spec, "N1", stream="b", up_to=value)

    found = (
        snapshot(Table(spec, pipeline.spark)).where("k = 'N1'").selectExpr("unix_micros(b__ts)", "b__deleted")
    )
    assert [tuple(row) for row in found.collect()] == [(1_714_568_400_000_000, True)]


def test_deletes_merge_beside_running_streams(pipeline: Pipeline, spec: Spec) -> None:
    """Streams go on while keys are deleted in every way, and the table is what all of them make it."""
    stop = threading.Event()
    running = Background(lambda: pipeline.endless(spec, stop=stop))
    for number in range(4):
        keys = [f"K{number}", f"K{number + 1}", f"K{number + 2}"]
        pipeline.deliver("a", *({"k": key, "at": number, "x": number} for key in keys))
        pipeline.deliver("b", *({"k": key, "seen": NOON, "y": number} for key in keys))
        delete(pipeline, spec, f"K{number}")
        delete(pipeline, spec, f"K{number + 1}", stream="a", up_to=number + 1)
        delete(pipeline, spec, f"K{number + 2}", stream="b")
    wait_for(lambda: sum(one.stream in "ab" for one in pipeline.timeline(spec).commits) == 10)
    stop.set()
    running.result()

    assert is_valid(pipeline, spec)
    assert sum(one.stream == DELETES for one in pipeline.timeline(spec).commits) >= 8
    for _ in range(2):
        Compaction(Table(spec, pipeline.spark)).step()
        Cleaning(Table(spec, pipeline.spark)).step()
    assert is_valid(pipeline, spec)


@pytest.mark.parametrize("is_compacted", [False, True])
def test_the_merge_orders_a_delete_and_a_batch_at_once(
    pipeline: Pipeline,
    spec: Spec,
    is_compacted: bool,  # noqa: FBT001
) -> None:
    """Of commits at once the one requested first is earlier, but for a compaction planned between them."""
    one = pipeline.spark.createDataFrame([("N1", 6, 6, "n")], "k string, at bigint, x int, note string")
    gate = pipeline.folder / "gate"
    slow = waiting(one, gate)
    writing = Background(lambda: Splice(spec, pipeline.spark).write(slow, "a", batch_id=7, query_id="q"))
    wait_for(lambda: pipeline.timeline(spec).pending())
    delete(pipeline, spec, "N1")
    if is_compacted:
        Compaction(Table(spec, pipeline.spark)).step()
    assert pipeline.timeline(spec).pending()
    gate.touch()
    assert writing.result()

    timeline = pipeline.timeline(spec)
    batch = next(one for one in timeline.commits if one.batch == ("a", "q", 7))
    erased = next(one for one in timeline.commits if one.stream == DELETES)
    assert batch.requested < erased.requested < erased.completed < batch.completed
    is_back = "N1" in [row.k for row in read(spec, pipeline.spark).collect()]
    assert is_back == is_compacted
    table = State(spec, pipeline.spark, None)
    assert (table.order(erased) < table.order(batch)) == is_compacted
    assert is_valid(pipeline, spec)


@pytest.mark.parametrize("options", [{}, {"stream": "a"}, {"stream": "a", "up_to": 9}])
def test_after_compaction_and_cleaning_the_values_are_in_no_file(
    empty: Pipeline, options: dict[str, Any]
) -> None:
    """What was deleted is in no file of the table, as plain bytes or packed."""
    secret, kept = "erase-me-7f3a9c", "keep-me-51b0d2"
    empty.deliver("a", {"k": "N1", "at": 1, "x": 1, "note": secret}, {"k": "N2", "at": 1, "note": kept})
    spec = empty.spec()
    empty.run(spec, streams=["a"])
    assert holders(empty, secret)

    delete(empty, spec, "N1", **options)
    for at in range(2, 6):
        empty.deliver("a", {"k": "N2", "at": at, "note": kept})
        empty.run(spec, streams=["a"])
        Compaction(Table(spec, empty.spark)).step()
        Cleaning(Table(spec, empty.spark)).step()

    assert holders(empty, kept)
    assert holders(empty, secret) == []
    assert is_valid(empty, spec)


def holders(empty: Pipeline, text: str) -> list[str]:
    """The files of the table, and of what is kept beside it, that have a text."""
    return [
        str(path.relative_to(empty.folder))
        for folder in (empty.folder / "table", empty.folder / ".asynclock")
        for path in folder.rglob("*")
        if path.is_file() and (text.encode() in path.read_bytes() or text in unpacked(path))
    ]


def unpacked(path: Path) -> str:
    """The values of a parquet file."""
    return str(pq.read_table(path).to_pydict()) if path.suffix == ".parquet" and path.stat().st_size else ""


BAD = [
    ({"stream": "c"}, "stream='c'"),
    ({"stream": "a", "up_to": "soon"}, "stream 'a' is ordered by at (bigint), and this is no bigint"),
    ({"stream": "a", "up_to": 1 << 63}, "no bigint"),
    ({"stream": "b", "up_to": 5}, "no timestamp"),
    ({"stream": "b", "up_to": {"b": NOON}}, "give its ordering value alone"),
    ({"up_to": {"a": 5}}, "give the ordering value of b as well"),
    ({"up_to": NOON}, "stream 'a' is ordered by at (bigint), so no one value is right for all streams"),
]


@pytest.mark.parametrize(("options", "sentence"), BAD)
def test_a_wrong_delete_is_refused(
    pipeline: Pipeline, spec: Spec, options: dict[str, Any], sentence: str
) -> None:
    """A delete that makes no sense is refused with a sentence, and nothing is written."""
    before = pipeline.everything()

    with pytest.raises(ConfigError) as refused:
        delete(pipeline, spec, "N1", **options)

    assert sentence in str(refused.value)
    assert pipeline.everything() == before


def test_keys_need_the_key_columns(pipeline: Pipeline, spec: Spec) -> None:
    """A frame without a key column, or with another type, is refused."""
    for schema, has in (("l string", "does not have it"), ("k int", "has it as int")):
        frame = pipeline.spark.createDataFrame([], schema)
        with pytest.raises(ConfigError, match=f"needs k as string, the frame {has}"):
            Splice(spec, pipeline.spark).delete(frame)


def test_there_is_nothing_to_delete_before_the_first_commit(empty: Pipeline) -> None:
    """A delete makes no table."""
    with pytest.raises(ConfigError, match="nothing is committed to the table yet"):
        delete(empty, empty.spec(), "N1")

    assert not (empty.folder / "table").exists()


def test_the_active_session_stays_the_users(pipeline: Pipeline, spec: Spec, spark: SparkSession) -> None:
    """User code, other libraries and catalogs find the active session as it was before a delete."""
    jvm: Any = spark._jvm
    mine = spark.newSession()
    for session in (mine, spark):
        session.createDataFrame([(1,)], "x int")  # makes it the active one

        delete(pipeline, spec, "N1")

        assert SparkSession.getActiveSession() is session
        assert jvm.SparkSession.getActiveSession().get().equals(session._jsparkSession)
    jvm.SparkSession.clearActiveSession()

    delete(pipeline, spec, "N2")

    assert SparkSession.getActiveSession() is None


def test_the_command_deletes_the_keys_of_a_file(pipeline: Pipeline, spec: Spec) -> None:
    """``asynclock pipeline delete`` takes CSV or JSON lines, refuses bad rows, and says what it did."""
    keys = pipeline.folder / "keys.csv"
    keys.write_text("reason,k\nasked,N1\nasked,\n")
    command = ("delete", str(spec.path), "--keys")

    refused = command_here(*command, str(keys))
    assert refused.returncode == 2
    assert "line 3: k is missing; nothing was written" in refused.stderr
    assert rows(pipeline, spec) == [("N1", 5, 1, 0.5), ("N2", 5, 2, 1.5)]

    lines = pipeline.folder / "keys.jsonl"
    lines.write_text('{"k": "N1"}\n{"k": "N9"}\n')
    done = command_here(*command, str(lines), "--up-to", "a=9", "--up-to", f"b={LATER}")
    assert done.stdout == "2 keys, 1 of them with nothing to delete, 2 deletes appended\n", done.stderr
    assert rows(pipeline, spec) == [("N2", 5, 2, 1.5)]
    assert is_valid(pipeline, spec)
