"""Column groups of a stream: each merges by an ordering of its own, whenever the table is compacted."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import Py4JJavaError

from asynclock.errors import ConfigError, SpecError
from asynclock.spark.check.validation import validate
from asynclock.spark.hudi.table import Table
from asynclock.spark.reader.snapshot import read
from asynclock.spark.reader.sql import register
from asynclock.spark.services.work import Compaction
from asynclock.spark.writer.splice import Splice
from tests.spark.groups_oracle import COLUMNS, csv, random_rows, view
from tests.spark.pipeline_kit import Kept, Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from asynclock.spark.spec.model import Spec

WITHOUT = 'columns = { at = "bigint", x = "int", note = "string" }'
COLUMNS_OF_A = """\
columns = { at = "bigint", x = "int", priced_at = "bigint", turn = "double", price = "double", \
currency = "string", deleted = "boolean" }
"""
GROUP = """
[streams.a.groups.price]
ordering = ["priced_at", "turn"]
columns = ["price", "currency"]
"""
GROUPED = {WITHOUT: COLUMNS_OF_A + GROUP}


def shown(pipeline: Pipeline, spec: Spec) -> dict[str, dict[str, Any]]:
    """The view of the stream, by key."""
    found = read(spec, pipeline.spark).select("k", *COLUMNS).collect()
    return {row.k: {name: row[name] for name in COLUMNS} for row in found}


def _sorted(rows: dict[str, dict[str, Any]]) -> str:
    """As text, in which minus zero is not zero and NaN is itself."""
    return repr(sorted(rows.items()))


def is_valid(pipeline: Pipeline, spec: Spec) -> bool:
    """Whether the second reader expects this table."""
    report = validate(spec, pipeline.spark)
    assert report.sample == ()
    return report.ok and report.keys > 0


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Kept:
    """A table of two keys, each with an event in both groups."""
    made = Pipeline(tmp_path_factory.mktemp("kept") / "groups", spark)
    row = {"x": 1, "turn": 0.0, "price": 2.5, "currency": "EUR", "deleted": None}
    made.place("a", "csv", csv([{"k": key, "at": 5, "priced_at": 50, **row} for key in ("k1", "k2")]))
    made.run(made.spec(GROUPED), streams=["a"])
    return Kept(made)


@pytest.fixture
def pipeline(kept: Kept) -> Pipeline:
    """The pipeline of that table."""
    return kept.as_it_was()


def test_groups_are_the_oracle_s_whatever_arrives_when_and_is_compacted(pipeline: Pipeline) -> None:
    """Late, tied, repeated and deleted events, batches of several files, compactions in between."""
    rng = random.Random(7)
    spec = pipeline.spec(GROUPED)
    row = {"x": 1, "turn": 0.0, "price": 2.5, "currency": "EUR", "deleted": None}
    arrived = [{"k": key, "at": 5, "priced_at": 50, **row} for key in ("k1", "k2")]
    for number in range(3):
        for _ in range(2):
            rows = random_rows(rng, 12)
            arrived += rows
            pipeline.place("a", "csv", csv(rows))
        pipeline.run(spec, streams=["a"])
        if number == 1:
            Compaction(Table(spec, pipeline.spark)).step()
        assert _sorted(shown(pipeline, spec)) == _sorted(view(arrived))
    assert is_valid(pipeline, spec)


def test_the_view_in_sql_shows_a_group_that_is_alive(pipeline: Pipeline) -> None:
    """A tombstone takes the groups that its row has an event for, in the view of the catalog too."""
    spec = pipeline.spec(GROUPED)
    nothing = dict.fromkeys(COLUMNS)
    pipeline.place("a", "csv", csv([{**nothing, "k": "k1", "at": 9, "deleted": True}]))
    pipeline.run(spec, streams=["a"])
    register(spec, pipeline.spark, name="grouped")

    wanted = {**nothing, "priced_at": 50, "turn": 0.0, "price": 2.5, "currency": "EUR"}
    assert shown(pipeline, spec)["k1"] == wanted
    (row,) = pipeline.spark.sql(f"SELECT {', '.join(COLUMNS)} FROM grouped WHERE k = 'k1'").collect()
    assert row.asDict() == wanted
    assert is_valid(pipeline, spec)
    without = "it has _in_price_a__ts but no _ts2in_price_a__turn, without which the merge would drop it"
    with pytest.raises(Py4JJavaError, match=without):
        pipeline.spark.sql("INSERT INTO grouped (k, priced_at, price) VALUES ('k1', 60, 3.5)")
    assert shown(pipeline, spec)["k1"] == wanted


def test_a_delete_of_the_stream_takes_all_its_groups(pipeline: Pipeline) -> None:
    """Up to the newest event of each group, or up to a value for each; a later event of one group lives."""
    spec = pipeline.spec(GROUPED)
    splice = Splice(spec, pipeline.spark)
    with pytest.raises(ConfigError, match="no one value is right for all column groups"):
        splice.delete([{"k": "k1"}], stream="a", up_to=7)
    with pytest.raises(ConfigError, match=r"give the ordering value of a\.price as well"):
        splice.delete([{"k": "k1"}], stream="a", up_to={"a": 7})

    with pytest.raises(
        ConfigError, match=r"by priced_at \(bigint\), turn \(double\); give a list of their val"
    ):
        splice.delete([{"k": "k1"}], stream="a", up_to={"a": 7, "a.price": 60})

    splice.delete([{"k": "k1"}], stream="a")
    splice.delete([{"k": "k2"}], stream="a", up_to={"a": 7, "a.price": [60, 0.5]})
    assert shown(pipeline, spec) == {}
    newer = {"at": 6, "priced_at": 60, "turn": 0.0, "x": 3, "price": 3.5, "currency": "CHF"}
    pipeline.place("a", "csv", csv([{"k": key, **newer, "deleted": None} for key in ("k1", "k2")]))
    pipeline.run(spec, streams=["a"])

    assert shown(pipeline, spec) == {
        "k1": {"at": 6, "priced_at": 60, "turn": 0.0, "x": 3, "price": 3.5, "currency": "CHF"}
    }
    assert is_valid(pipeline, spec)


def test_a_column_stays_in_its_group(pipeline: Pipeline) -> None:
    """A spec that would merge a column of the table in another group is refused; nothing is written."""
    grouped = pipeline.spec(GROUPED)
    before = pipeline.everything()
    moved = [
        {WITHOUT: COLUMNS_OF_A},
        {WITHOUT: COLUMNS_OF_A + GROUP.replace("[streams.a.groups.price]", "[streams.a.groups.cost]")},
        {WITHOUT: COLUMNS_OF_A + GROUP.replace('"price", ', "")},
    ]
    for number, changes in enumerate(moved):
        spec = pipeline.spec(changes, name=f"moved-{number}.toml")
        for use in (lambda one: pipeline.run(one, streams=["a"]), lambda one: read(one, pipeline.spark)):
            with pytest.raises(SpecError, match="the table merges this column in the group 'price'"):
                use(spec)

    written = pipeline.everything() - before
    assert {name for name in written if not name.startswith("moved-")} == set()
    assert is_valid(pipeline, grouped)


def test_a_group_joins_a_table_and_a_driver_without_it_goes_on(pipeline: Pipeline) -> None:
    """New columns in a new group; the events of a driver with the spec from before say nothing of it."""
    old = pipeline.spec(GROUPED)
    columns = COLUMNS_OF_A.replace(" }", ', gated_at = "bigint", gate = "string" }').rstrip() + "\n"
    optional = columns + 'optional = ["gated_at", "gate"]\n'
    joined = optional + GROUP + '\n[streams.a.groups.gate]\nordering = "gated_at"\ncolumns = ["gate"]\n'
    new = pipeline.spec({WITHOUT: joined}, name="joined.toml")
    writer = Splice(old, pipeline.spark)
    frame = "k string, at bigint, x int, priced_at bigint, turn double, price double, currency string"
    values = [("k1", 8, 8, None, 9.0, None, None, None)]
    one = pipeline.spark.createDataFrame(values, f"{frame}, deleted boolean")
    writer.write(one, "a", batch_id=0, query_id="old")
    pipeline.place(
        "a", "csv", "k,at,x,priced_at,turn,price,currency,deleted,gated_at,gate\nk1,9,9,,,,,,4,B7\n"
    )
    pipeline.run(new, streams=["a"])

    writer.write(one.withColumn("at", one.at + 2), "a", batch_id=1, query_id="old")

    (row,) = read(new, pipeline.spark).where("k = 'k1'").select("at", "price", "gated_at", "gate").collect()
    assert tuple(row) == (10, 2.5, 4, "B7")
    assert is_valid(pipeline, new)
