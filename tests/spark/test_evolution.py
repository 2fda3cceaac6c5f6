"""Columns, streams and wider types join a live table; what was written before, beside and after stays."""

from __future__ import annotations

import json
import logging
import os
import random
import struct
import time
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F  # noqa: N812  the name everybody uses

from asynclock.errors import SpecError
from asynclock.spark.check.validation import validate
from asynclock.spark.hudi.table import Table
from asynclock.spark.reader.snapshot import read, snapshot
from asynclock.spark.services import work
from asynclock.spark.services.work import Compaction
from asynclock.spark.spec.load import load_spec
from asynclock.spark.writer import splice as splice_module
from asynclock.spark.writer.splice import Splice
from tests.spark.oracle import Event, splice
from tests.spark.pipeline_kit import Background, Pipeline, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from asynclock.spark.spec.model import Spec

STORED = '{ at = "bigint", x = "int", note = "string" }'
OLD = '{ at = "int", x = "int", f = "float", d = "decimal(5,2)" }'
NEW = '{ at = "bigint", x = "bigint", f = "double", d = "decimal(20,2)", z = "string" }'
OLD_FRAME = "k string, at int, x int, f float, d decimal(5,2)"
NEW_FRAME = "k string, at bigint, x bigint, f double, d decimal(20,2), z string"
B_FRAME = "k string, seen timestamp, y double, deleted boolean"
C_FRAME = "k string, c_at bigint, w string"
STREAM_C = """
[streams.c]
source = "in/a/*"
format = "csv"
ordering = "c_at"
checkpoint = "checkpoints/c"
columns = { c_at = "bigint", w = "string" }
"""
WITHOUT_NOTE = STORED.replace(', note = "string"', "")


@pytest.fixture
def pipeline(tmp_path: Path, spark: SparkSession) -> Pipeline:
    """An empty pipeline."""
    return Pipeline(tmp_path, spark)


@pytest.fixture
def old(pipeline: Pipeline) -> Spec:
    """Two streams, with types that can grow."""
    return pipeline.spec({STORED: OLD}, name="old.toml")


@pytest.fixture
def new(pipeline: Pipeline) -> Spec:
    """The same with wider types, one more column and one more stream."""
    return pipeline.spec({STORED: NEW, "\n[streams.b]": STREAM_C + "\n[streams.b]"}, name="new.toml")


def single(value: float) -> float:
    """The nearest number that four bytes can hold."""
    rounded: float = struct.unpack("f", struct.pack("f", value))[0]
    return rounded


def stored(spec: Spec, spark: SparkSession) -> dict[str, dict[str, Any]]:
    """The rows of the table by key, without what is null, times as seconds."""
    frame = snapshot(Table(spec, spark)).withColumn("b__ts", F.unix_seconds("b__ts"))
    rows = [row.asDict() for row in frame.collect()]
    assert len(rows) == len({row["k"] for row in rows})
    return {
        row["k"]: {name: value for name, value in row.items() if name != "k" and value is not None}
        for row in rows
    }


def event_of_b(pipeline: Pipeline) -> DataFrame:
    """One event."""
    frame = pipeline.spark.createDataFrame([("N1", 1, 0.5, None)], B_FRAME.replace("timestamp", "bigint"))
    return frame.withColumn("seen", F.timestamp_seconds("seen"))


class History:
    """Random events of three streams, what two specs make of them, and what must be in the table."""

    def __init__(self, pipeline: Pipeline, old: Spec, new: Spec) -> None:
        self._spark = pipeline.spark
        self._random = random.Random(20)
        self._arrivals: dict[str, list[Event]] = {}
        self._writers = {
            name: Splice(spec, pipeline.spark)
            for name, spec in {"old a": old, "old b": old, "new a": new, "new b": new, "new c": new}.items()
        }

    def write(self, writer: str) -> None:
        """A batch of four events of keys that all streams share, in any order of time."""
        stream = writer[-1]
        schema = {"old a": OLD_FRAME, "new a": NEW_FRAME, "new c": C_FRAME}.get(writer, B_FRAME)
        events = [self._event(writer, key) for key in self._random.sample("pqrstu", 4)]
        for key, ts, values in events:
            told = {name: value for name, value in values.items() if value is not None}
            self._arrivals.setdefault(key, []).append(Event(stream, ts, told))
        names = [one.split()[0] for one in schema.split(", ")]
        rows = [(key, ts, *(values[name] for name in names[2:])) for key, ts, values in events]
        frame = self._spark.createDataFrame(rows, schema.replace("seen timestamp", "seen bigint"))
        if stream == "b":
            frame = frame.withColumn("seen", F.timestamp_seconds("seen"))
        assert self._writers[writer].write(frame, stream)

    def expected(self) -> dict[str, dict[str, Any]]:
        """The table as the oracle has it."""
        return {key: row for key, events in self._arrivals.items() if (row := splice(events)) is not None}

    def _event(self, writer: str, key: str) -> tuple[str, int, dict[str, Any]]:
        chance = self._random
        ts = chance.randrange(1000)
        real = chance.choice([0.1, 3.3, 1e-3, None])
        cents = chance.randrange(99_999)
        if writer == "old a":
            values = {"x": chance.randrange(2**31), "f": real and single(real), "d": Decimal(cents) / 100}
        elif writer == "new a":
            ts = chance.choice([ts, ts + 2**40])
            values = {"x": chance.choice([2**40, None]), "f": real, "d": Decimal(cents * 10**9) / 100}
            values["z"] = chance.choice(["new", None])
        elif writer == "new c":
            values = {"w": chance.choice(["w", None])}
        else:
            values = {"y": real, "deleted": chance.choice([None, False])}
        return key, ts, values


def test_drivers_with_an_old_and_a_new_spec_lose_nothing(pipeline: Pipeline, old: Spec, new: Spec) -> None:
    """A wider stream, a new stream and drivers that know of neither write one table; every cell is right."""
    history = History(pipeline, old, new)
    for writer in ("old a", "old b"):
        history.write(writer)
    Compaction(Table(old, pipeline.spark)).step()
    assert stored(old, pipeline.spark) == history.expected()

    for writer in ("old a", "new a", "old b", "new c", "old b", "new a", "new b"):
        history.write(writer)
        assert stored(new, pipeline.spark) == history.expected(), writer
    services = Compaction(Table(old, pipeline.spark))  # a driver with the old spec compacts, too
    services.step()

    assert len(services.done) == 1
    assert stored(new, pipeline.spark) == history.expected()
    for writer in ("old b", "new a", "new c"):
        history.write(writer)
    assert stored(new, pipeline.spark) == history.expected()
    assert dict(read(old, pipeline.spark).dtypes) == {
        "k": "string", "at": "bigint", "x": "bigint", "f": "double", "d": "decimal(20,2)",
        "seen": "timestamp", "y": "double",
    }  # fmt: skip


def test_float_stays_the_same_number_as_a_double(pipeline: Pipeline, old: Spec, new: Spec) -> None:
    """The float 0.1 is no double 0.1, before the type grew and after, in logs and base files."""
    frame = pipeline.spark.createDataFrame([("N1", 1, 1, 0.1, None), ("N2", 1, 1, -0.0, None)], OLD_FRAME)
    Splice(old, pipeline.spark).write(frame, "a")
    Splice(old, pipeline.spark).write(frame.where("k = 'N2'"), "a")
    assert dict(read(old, pipeline.spark).dtypes)["f"] == "float"
    Compaction(Table(old, pipeline.spark)).step()
    wide = pipeline.spark.createDataFrame([("N3", 1, 1, 0.1, None, None)], NEW_FRAME)

    Splice(new, pipeline.spark).write(wide, "a")

    found = [tuple(row) for row in read(new, pipeline.spark).select("k", "f").orderBy("k").collect()]
    assert repr(found) == f"[('N1', {single(0.1)!r}), ('N2', -0.0), ('N3', 0.1)]"
    assert single(0.1) != 0.1
    with pytest.raises(SpecError, match="a__f as double, this spec as float"):
        Splice(pipeline.spec({STORED: NEW.replace('f = "double"', 'f = "float"')}), pipeline.spark)


def test_writer_with_narrower_types_goes_on(pipeline: Pipeline, old: Spec) -> None:
    """A type that grows stops no driver of its stream: its values are written as the wider type."""
    wide = pipeline.spec({STORED: OLD.replace('"int"', '"bigint"').replace("5,2", "9,2")}, name="wide.toml")
    narrow_frame = pipeline.spark.createDataFrame([("N1", 2, 2, 0.1, Decimal("1.25"))], OLD_FRAME)
    before = Splice(old, pipeline.spark)
    before.write(narrow_frame, "a")
    wide_frame = narrow_frame.select(
        "k",
        *(F.col(name).cast("bigint") + 2**40 for name in ("at", "x")),
        "f",
        F.col("d").cast("decimal(9,2)"),
    ).toDF("k", "at", "x", "f", "d")
    Splice(wide, pipeline.spark).write(wide_frame.withColumn("k", F.lit("N2")), "a")

    before.write(
        narrow_frame.withColumn("at", F.lit(3)).union(narrow_frame.withColumn("k", F.lit("N3"))), "a"
    )

    rows = read(wide, pipeline.spark).select("k", "at", "x", "d").orderBy("k").collect()
    assert [tuple(row) for row in rows] == [
        ("N1", 3, 2, Decimal("1.25")),
        ("N2", 2**40 + 2, 2**40 + 2, Decimal("1.25")),
        ("N3", 2, 2, Decimal("1.25")),
    ]
    with pytest.raises(SpecError, match="this spec as int: a type may only grow"):
        Splice(old, pipeline.spark)


def test_writer_of_a_stream_that_got_a_column_is_refused(pipeline: Pipeline) -> None:
    """A driver whose newer events would erase a column that it does not read stops; other streams go on."""
    less, more = pipeline.spec({STORED: WITHOUT_NOTE}, name="less.toml"), pipeline.spec()
    frame = pipeline.spark.createDataFrame([("N1", 2, 1, "kept")], "k string, at bigint, x int, note string")
    standby = Splice(less, pipeline.spark)
    standby.write(frame.drop("note").withColumn("at", F.lit(1).cast("bigint")), "a")
    Splice(more, pipeline.spark).write(frame, "a")
    newer = frame.drop("note").withColumn("at", F.lit(3).cast("bigint"))

    with pytest.raises(SpecError, match=r"'a' the column a__note .*start this driver again") as caught:
        standby.write(newer, "a")

    assert (caught.value.key, caught.value.path) == ("streams.a.columns", str(less.path))
    rows = [tuple(row) for row in read(more, pipeline.spark).select("k", "at", "note").collect()]
    assert rows == [("N1", 2, "kept")]
    assert standby.write(event_of_b(pipeline), "b")


def test_removed_column_and_stream_stay_in_the_table(
    pipeline: Pipeline, caplog: pytest.LogCaptureFixture
) -> None:
    """Without them in the spec the values stay; a newer event makes null, which is announced."""
    whole = pipeline.spec()
    path = pipeline.folder / "less.toml"
    text = whole.path.read_text().replace(STORED, WITHOUT_NOTE).partition("[streams.b]")[0]
    path.write_text(text)
    pipeline.deliver("a", *({"k": key, "at": 1, "x": 1, "note": "kept"} for key in ("N1", "N2")))
    pipeline.deliver("b", {"k": "N1", "seen": "2024-05-01T12:00:00Z", "y": 0.5})
    pipeline.run(whole)
    less = load_spec(path)
    pipeline.deliver("a", {"k": "N2", "at": 2, "x": 2, "note": "left out"})

    with caplog.at_level(logging.WARNING, logger="asynclock.spark"):
        pipeline.run(less)
    Compaction(Table(less, pipeline.spark)).step()

    rows = read(whole, pipeline.spark).select("k", "x", "note", "y").orderBy("k").collect()
    assert [tuple(row) for row in rows] == [("N1", 1, "kept", 0.5), ("N2", 2, None, None)]
    assert read(less, pipeline.spark).columns == ["k", "at", "x"]
    assert sum("does not name a__note" in record.getMessage() for record in caplog.records) == 1


@pytest.fixture
def held(tmp_path: Path) -> Iterator[Callable[[DataFrame], DataFrame]]:
    """Makes a frame whose rows come only after the file ``go`` was made."""
    go = str(tmp_path / "go")

    def wait(value: str) -> str:
        while not os.path.exists(go):  # noqa: PTH110  runs in a worker
            time.sleep(0.05)
        return value

    waiting = F.udf(wait, "string")
    yield lambda frame: frame.coalesce(1).withColumn("k", waiting("k"))
    (tmp_path / "go").touch()


def race(pipeline: Pipeline, old: Spec, new: Spec, held: Callable[[DataFrame], DataFrame]) -> None:
    """Columns change in a commit; one of the old spec is requested after it and completed before."""
    first = pipeline.spark.createDataFrame([("N0", 1, 1, 0.1, None)], OLD_FRAME)
    b = event_of_b(pipeline)
    late = Splice(old, pipeline.spark)
    late.write(first, "a")
    wide = pipeline.spark.createDataFrame([("N1", 2**40, 2**41, 0.1, Decimal("1.25"), "z")], NEW_FRAME)
    change = Background(lambda: Splice(new, pipeline.spark).write(held(wide), "a"))
    try:
        wait_for(lambda: pipeline.timeline(old).pending())
        late.write(b, "b")
    finally:
        (pipeline.folder / "go").touch()
    assert change.result()
    commits = pipeline.timeline(old).commits
    assert [commit.stream for commit in commits] == ["a", "b", "a"]
    assert commits[1].requested > commits[2].requested


RACED = [("N0", 1, 1, single(0.1), None, None), ("N1", 2**40, 2**41, 0.1, "z", 0.5)]


def raced(new: Spec, pipeline: Pipeline) -> list[tuple[Any, ...]]:
    """What the view shows of the race."""
    rows = read(new, pipeline.spark).select("k", "at", "x", "f", "z", "y").orderBy("k").collect()
    return [tuple(row) for row in rows]


def test_late_commit_of_an_old_spec_takes_no_column_away(
    pipeline: Pipeline, old: Spec, new: Spec, held: Callable[[DataFrame], DataFrame]
) -> None:
    """Hudi takes the columns of the last requested commit; the writer that changed them corrects that."""
    race(pipeline, old, new, held)

    assert "a__z" in pipeline.timeline(new).present_columns()
    assert raced(new, pipeline) == RACED


@pytest.mark.parametrize("work", ["write", "delete"])
def test_column_that_joins_while_another_writes_costs_it_an_attempt(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, work: str
) -> None:
    """Hudi refuses what lacks a column of the table; the next attempt has it."""
    spark = pipeline.spark
    old = pipeline.spec({STORED: '{ at = "int", x = "int" }'})
    new = pipeline.spec({STORED: '{ at = "int", x = "int", z = "int" }'})
    writer, other = Splice(old, spark), Splice(new, spark)
    writer.write(spark.createDataFrame([("N1", 1, 1)], "k string, at int, x int"), "a")
    append, others = writer._append, iter(["first"])

    def beaten(*arguments: Any) -> None:  # noqa: ANN401  as the original
        for _ in others:
            other.write(spark.createDataFrame([("N2", 1, 2, 3)], "k string, at int, x int, z int"), "a")
        append(*arguments)

    monkeypatch.setattr(writer, "_append", beaten)
    if work == "write":
        assert writer.write(event_of_b(pipeline), "b")
    else:
        writer.delete([{"k": "N1"}], stream="a", up_to=5)

    first = {"a__ts": 1, "a__x": 1, "b__ts": 1, "b__y": 0.5}
    assert stored(new, spark) == {
        "N1": first if work == "write" else {"a__ts": 5, "a__deleted": True},
        "N2": {"a__ts": 1, "a__x": 2, "a__z": 3},
    }


def test_change_that_was_killed_before_its_end_is_whole_for_readers_and_services(
    pipeline: Pipeline,
    old: Spec,
    new: Spec,
    held: Callable[[DataFrame], DataFrame],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without that correction a read has every column all the same, and compaction makes it up."""
    with monkeypatch.context() as patched:
        patched.setattr(splice_module, "declare_columns", lambda *_: None)
        race(pipeline, old, new, held)
    assert "a__z" not in pipeline.timeline(new).present_columns()
    assert raced(new, pipeline) == RACED
    events: list[str] = []
    services = Compaction(Table(old, pipeline.spark), events.append)
    with monkeypatch.context() as patched:
        patched.setattr(work, "declare_columns", lambda *_: None)  # as if the race came just after it

        services.step()

    assert (services.done, len(events)) == ([], 1)
    assert "once more" in events[0]
    assert raced(new, pipeline) == RACED
    services.step()
    assert len(services.done) == 1
    assert raced(new, pipeline) == RACED


def test_a_delete_sees_the_columns_of_a_change_that_was_killed_before_its_end(
    pipeline: Pipeline,
    old: Spec,
    new: Spec,
    held: Callable[[DataFrame], DataFrame],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Hudi still has the old columns and types; the row is no absent one."""
    with monkeypatch.context() as patched:
        patched.setattr(splice_module, "declare_columns", lambda *_: None)
        race(pipeline, old, new, held)
    assert "a__z" not in pipeline.timeline(new).present_columns()

    report = Splice(new, pipeline.spark).delete([{"k": "N1"}], stream="a")

    assert (report.absent, report.written) == (0, 1)
    assert raced(new, pipeline) == [RACED[0], ("N1", None, None, None, None, 0.5)]


def test_validation_reads_each_file_with_the_columns_of_its_batch(pipeline: Pipeline) -> None:
    """Values that a driver left out or could not read by its spec are not expected, by any spec."""
    less = '{ at = "int", x = "int", f = "float", d = "decimal(5,2)" }'
    more = '{ at = "bigint", x = "double", f = "double", d = "decimal(20,2)", note = "string" }'
    failing = 'checkpoint = "checkpoints/a"\n'
    aside = {failing: failing + 'on_bad_row = "quarantine"\n'}
    before = pipeline.spec({STORED: less, **aside}, name="before.toml")
    after = pipeline.spec({STORED: more, **aside}, name="after.toml")
    header = "k,at,x,f,d,note\n"
    pipeline.place("a", "csv", header + "N1,1,1,0.1,1.25,left out\nN2,5000000000,1,0.1,1,too late\n")
    pipeline.run(before, streams=["a"])
    pipeline.place("a", "csv", header + "N3,5000000000,0.5,0.1,123456.25,read\nN4,1,2,0.3,1,\n")
    pipeline.run(after, streams=["a"])
    pipeline.deliver("b", {"k": "N1", "seen": "2024-05-01T12:00:00Z", "y": 0.5})

    reports = [validate(after, pipeline.spark), validate(before, pipeline.spark)]

    for report in reports:
        assert (report.ok, report.differences, report.sample) == (True, 0, ())
        assert [(told.events, told.bad_rows) for told in report.streams] == [(3, 1), (0, 0)]
    rows = read(after, pipeline.spark).select("k", "x", "f", "note").orderBy("k").collect()
    assert [tuple(row) for row in rows] == [
        ("N1", 1.0, single(0.1), None), ("N3", 0.5, 0.1, "read"), ("N4", 2.0, 0.3, None),
    ]  # fmt: skip


def test_column_that_only_new_files_have_may_join_the_spec(pipeline: Pipeline) -> None:
    """Old files without it may stay in the source, however many."""
    for number in range(21):
        pipeline.place("a", "csv", f"k,at,x\nN{number},1,1\n")
    many = {"max_files_per_trigger = 1": "max_files_per_trigger = 30"}
    pipeline.run(pipeline.spec({STORED: WITHOUT_NOTE, **many}), streams=["a"])
    pipeline.place("a", "csv", "k,at,x,note\nN1,2,2,new\n")

    pipeline.run(pipeline.spec(), streams=["a"])

    assert [row.note for row in read(pipeline.spec(), pipeline.spark).where("x = 2").collect()] == ["new"]
    assert validate(pipeline.spec(), pipeline.spark).ok


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_old_files_may_lack_an_optional_column(pipeline: Pipeline, suffix: str) -> None:
    """A file from before the column has null there; without ``optional`` it is a bad file and stays one."""
    column = {'source = "in/a/*"\nformat = "csv"': f'source = "in/a/*"\nformat = "{suffix}"'}
    column |= {'checkpoint = "checkpoints/a"\n': 'checkpoint = "checkpoints/a"\non_bad_row = "quarantine"\n'}
    strict = pipeline.spec(column, name="strict.toml")
    lenient = pipeline.spec(column | {STORED: f'{STORED}\noptional = ["note"]'}, name="lenient.toml")

    def deliver(row: dict[str, Any]) -> None:
        path = pipeline.place("a", suffix, f"{','.join(row)}\n{','.join(map(str, row.values()))}\n")
        if suffix == "parquet":
            pq.write_table(pa.Table.from_pylist([row]).cast(_narrow(row)), path)

    deliver({"k": "N1", "at": 1, "x": 1, "note": "n"})
    deliver({"k": "N2", "at": 1, "x": 1})
    pipeline.run(strict, streams=["a"])
    deliver({"k": "N3", "at": 1, "x": 1})
    deliver({"k": "N1", "at": 0, "x": 2})
    report = pipeline.run(lenient, streams=["a"])

    rows = read(lenient, pipeline.spark).select("k", "x", "note").orderBy("k").collect()
    assert [tuple(row) for row in rows] == [("N1", 1, "n"), ("N3", 1, None)]
    assert (report.streams[0].rows, report.streams[0].quarantined) == (2, 0)
    assert "it has no column 'note'" in pipeline.quarantined("a")[0]["reason"]
    assert validate(lenient, pipeline.spark).ok
    assert validate(lenient, pipeline.spark).streams[0].bad_rows == 1


@pytest.mark.parametrize("suffix", ["csv", "json", "parquet"])
def test_column_that_the_spec_does_not_name_is_announced_once(
    pipeline: Pipeline, suffix: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The log and the report name the first file that has it; its values are left out."""
    spec = pipeline.spec({'source = "in/a/*"\nformat = "csv"': f'source = "in/a/*"\nformat = "{suffix}"'})
    plain = {"k": "N1", "at": 1, "x": 1, "note": "n"}
    for row in (plain, {**plain, "new": 1}, {**plain, "new": 2, "newer": {"y": 1}}):
        path = pipeline.place("a", suffix, json.dumps(row) + "\n")
        if suffix == "csv":
            cells = [str(value).replace('"', "") for value in row.values()]
            path.write_text(",".join(row) + "\n" + ",".join(cells) + "\n")
        if suffix == "parquet":
            pq.write_table(pa.Table.from_pylist([row]).cast(_narrow(row)), path)

    with caplog.at_level(logging.WARNING, logger="asynclock.spark"):
        report = pipeline.run(spec, streams=["a"])

    told = [one.getMessage() for one in caplog.records if "does not name" in one.getMessage()]
    assert told == [
        "stream a: the spec does not name new of its files: left out",
        "stream a: the spec does not name newer of its files: left out",
    ]
    assert report.streams[0].unnamed_columns == ("new", "newer")
    assert report.streams[0].quarantined == 0
    assert "new" not in read(spec, pipeline.spark).columns


def _narrow(row: dict[str, Any]) -> pa.Schema:
    """The types of parquet files that the spec's types take."""
    types = {"k": pa.string(), "note": pa.string(), "x": pa.int32(), "newer": pa.struct([("y", pa.int64())])}
    return pa.schema([(name, types.get(name, pa.int64())) for name in row])
