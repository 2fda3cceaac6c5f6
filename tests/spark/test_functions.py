"""Merge functions through a real table: files in batches, late and tied, compacted in between."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING, Any

import pytest

from asynclock.errors import ConfigError, SpecError
from asynclock.spark.check.validation import validate
from asynclock.spark.hudi.table import Table
from asynclock.spark.reader.snapshot import read
from asynclock.spark.reader.sql import register
from asynclock.spark.runs.run import run
from asynclock.spark.services.work import Compaction
from asynclock.spark.spec.load import load_spec
from asynclock.spark.writer.splice import Splice
from tests.spark.functions_oracle import TYPES, random_rows, spec_of, view
from tests.spark.pipeline_kit import Background, wait_for, waiting

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from asynclock.spark.spec.model import Spec

KEYS = ("k1", "k2", "k3")
ORDERING = ("share", "at", "part")


def loaded(folder: Path, text: str) -> Spec:
    """A spec of the one stream ``a``, whose files are in the folder ``in``."""
    (folder / "in").mkdir()
    path = folder / "spec.toml"
    head = 'table.path = "functions"\ntable.key = ["k"]\ntable.buckets = 1\n'
    head += "services.compaction = { every_commits = 1 }\n"
    path.write_text(head + text + 'source = "in/*.csv"\n')
    return load_spec(path)


def deliver(folder: Path, number: int, rows: list[tuple[str, dict[str, Any]]], names: list[str]) -> None:
    """One more file; a null is an empty field, and a text is quoted."""

    def field(value: object) -> str:
        if value is None:
            return ""
        return f'"{value}"' if isinstance(value, str) else str(value)

    lines = [",".join([key, *(field(row[name]) for name in names)]) for key, row in rows]
    (folder / "in" / f"{number:03}.csv").write_text("\n".join([",".join(["k", *names]), *lines, ""]))


def compact(spec: Spec, spark: SparkSession) -> None:
    """Merge the logs into base files."""
    compaction = Compaction(Table(spec, spark))
    compaction.step()
    assert compaction.done


def test_every_function_gives_what_its_definition_says(tmp_path: Path, spark: SparkSession) -> None:
    """Three batches of two files with a compaction in between; NaN and minus zero among the doubles."""
    rng = random.Random(11)
    spec = loaded(tmp_path, spec_of("a", ORDERING))
    arrived: list[tuple[str, dict[str, Any]]] = []
    for batch in range(3):
        for file in range(2):
            rows = [(rng.choice(KEYS), row) for row in random_rows(rng, 9)]
            for _, row in rows:
                row |= {name: math.nan for name in ("peak", "part") if rng.random() < 0.1}
            deliver(tmp_path, 2 * batch + file, rows, list(TYPES))
            arrived += rows
        run(spec, once=True, spark=spark)
        if batch == 1:
            compact(spec, spark)
        shown = {row.k: {name: row[name] for name in TYPES} for row in read(spec, spark).collect()}
        wanted = {
            key: view([row for of, row in arrived if of == key], ORDERING)
            for key in {of for of, _ in arrived}
        }
        assert repr(sorted(shown.items())) == repr(sorted(wanted.items()))
    report = validate(spec, spark)
    assert (report.sample, report.ok) == ((), True)

    register(spec, spark, name="functions_view")
    spark.sql("UPDATE functions_view_stored SET _min_a__low = -9, _max_a__top = '' WHERE k = 'k1'")

    (row,) = spark.sql("SELECT low, top FROM functions_view WHERE k = 'k1'").collect()
    assert (float(row.low), row.top) == (-9.0, wanted["k1"]["top"])
    assert validate(spec, spark).sample == ()


def test_the_last_ordering_column_decides_between_two_rows_of_a_batch(
    tmp_path: Path, spark: SparkSession
) -> None:
    """The newer row stands first in its file, and the columns before the last are equal."""
    text = '[streams.a]\nordering = ["share", "at", "part"]\n'
    text += 'columns = { share = "decimal(12,3)", at = "bigint", part = "double", state = "string" }\n'
    spec = loaded(tmp_path, text)
    both = {"share": 1, "at": 2}
    rows = [{**both, "part": 0.5, "state": "newer"}, {**both, "part": -0.5, "state": "older"}]
    deliver(tmp_path, 0, [("k1", row) for row in rows], ["share", "at", "part", "state"])

    run(spec, once=True, spark=spark)

    assert [row.state for row in read(spec, spark).collect()] == ["newer"]


class Sums:
    """A table in which two streams add up a column n, each by a driver of its own."""

    def __init__(self, folder: Path, spark: SparkSession) -> None:
        self.path = folder / "spec.toml"
        self.spark = spark
        (folder / "in").mkdir()
        text = 'table.path = "sums"\ntable.key = ["k"]\ntable.buckets = 1\n'
        for stream in ("a", "b"):
            text += f'[streams.{stream}]\nsource = "in/*.csv"\nordering = "at"\nmerge = {{ n = "sum" }}\n'
            text += 'columns = { at = "bigint", n = "int" }\n'
        self.path.write_text(text)
        self.spec = load_spec(self.path)
        self.drivers = {"a": Splice(self.spec, spark), "b": Splice(self.spec, spark)}

    def frame(self, *rows: tuple[object, ...], kind: str = "int") -> DataFrame:
        """Rows of k, at and n."""
        return self.spark.createDataFrame(rows, f"k string, at bigint, n {kind}")

    def write(self, stream: str, batch: int, *rows: tuple[object, ...]) -> bool:
        """Write a batch; return whether it was new."""
        driver = self.drivers[stream]
        return driver.write(self.frame(*rows), stream, batch_id=batch, query_id=f"of {stream}")

    def shown(self) -> dict[str, tuple[object, ...]]:
        """The sums of both streams by key."""
        return {row.k: (row.a__n, row.b__n) for row in read(self.spec, self.spark).collect()}

    def table(self) -> Table:
        """The table as of now."""
        return Table(self.spec, self.spark)


def test_a_sum_counts_each_batch_once(tmp_path: Path, spark: SparkSession) -> None:
    """Two drivers, a batch in flight during a compaction, batches that come again, and a delete."""
    sums = Sums(tmp_path, spark)
    assert sums.write("a", 0, ("k1", 1, 2), ("k1", 1, 3), ("k1", 0, None), ("k2", 1, None))
    assert sums.write("b", 0, ("k1", 1, 100))
    assert sums.shown() == {"k1": (5, 100), "k2": (None, None)}

    one_task = sums.frame(("k1", 1, 10), ("k2", 2, 7)).coalesce(1)  # another core is free
    slow = waiting(one_task, tmp_path / "gate")
    in_flight = Background(lambda: sums.drivers["a"].write(slow, "a", batch_id=1, query_id="of a"))
    wait_for(sums.table().timeline.pending)
    assert sums.write("b", 1, ("k1", 0, 200), ("k2", 0, -1))
    Compaction(sums.table()).step()
    assert sums.shown() == {"k1": (5, 300), "k2": (None, -1)}
    (tmp_path / "gate").touch()
    assert in_flight.result()

    assert not sums.write("a", 1, ("k1", 1, 10), ("k2", 2, 7))
    again = Splice(sums.spec, spark).write(sums.frame(("k1", 1, 100)), "b", batch_id=0, query_id="of b")
    assert not again
    assert sums.shown() == {"k1": (15, 300), "k2": (7, -1)}
    sums.drivers["b"].delete([{"k": "k1"}])
    assert sums.write("a", 2, ("k1", 0, 4))
    assert sums.shown() == {"k1": (4, None), "k2": (7, -1)}
    Compaction(sums.table()).step()
    assert sums.shown() == {"k1": (4, None), "k2": (7, -1)}
    assert validate(sums.spec, spark).ok


def test_events_that_may_count_twice_are_refused(tmp_path: Path, spark: SparkSession) -> None:
    """Another query, a batch without a number, a statement and a tombstone: nothing is committed."""
    sums = Sums(tmp_path, spark)
    sums.write("a", 0, ("k1", 1, 5))
    register(sums.spec, spark, name="sums_view")
    before = sums.table().timeline.newest_completion()
    one, driver = sums.frame(("k1", 2, 1)), sums.drivers["a"]
    refused: list[tuple[type[Exception], str, Callable[[], object]]] = [
        (
            ConfigError,
            "adds up n, and a write without a number would count twice",
            lambda: driver.write(one, "a"),
        ),
        (
            SpecError,
            "has the batches of query of a, and this is query r,",
            lambda: driver.write(one, "a", batch_id=0, query_id="r"),
        ),
        (
            ConfigError,
            "n of stream 'a' keeps a value that no tombstone takes back",
            lambda: driver.delete([{"k": "k1"}], stream="a"),
        ),
        (
            Exception,
            "would count twice. Nothing was written. Leave the column out",
            lambda: spark.sql("INSERT INTO sums_view_stored (k, a__ts, _sum_a__n) VALUES ('k1', 3, 1)"),
        ),
        (
            Exception,
            "Only the batches of its stream count in the sum _sum_a__n",
            lambda: spark.sql("UPDATE sums_view_stored SET _sum_a__n = 0"),
        ),
    ]
    for kind, said, call in refused:
        with pytest.raises(kind, match=said):
            call()
    assert sums.table().timeline.newest_completion() == before

    spark.sql("UPDATE sums_view_stored SET a__ts = 4 WHERE k = 'k1'")
    spark.sql("INSERT INTO sums_view_stored (k, a__ts) VALUES ('k1', 5)")
    assert sums.shown() == {"k1": (5, None)}


@pytest.mark.parametrize(("name", "ordering"), [("by_one", '"at"'), ("by_two", '["at", "part"]')])
def test_an_insert_by_the_names_of_the_view_is_an_event_of_the_functions(
    tmp_path: Path, spark: SparkSession, name: str, ordering: str
) -> None:
    """Each kept value is ordered as the event is; a null is kept by a first_value alone."""
    text = (
        f"[streams.a]\nordering = {ordering}\n"
        'columns = { at = "int", part = "int", note = "string", born = "string", named = "string", '
        'best = "int" }\n'
        'merge = { note = "last_non_null_value", born = "first_value", named = "first_non_null_value", '
        'best = "max" }\n'
    )
    spec = loaded(tmp_path, text)
    names = ["at", "part", "note", "born", "named", "best"]
    first = dict(zip(names, (5, 1, "five", "b5", None, 5), strict=True))
    deliver(tmp_path, 1, [("k1", first)], names)
    run(spec, once=True, spark=spark)
    register(spec, spark, name=name)

    spark.sql(
        f"INSERT INTO {name} (k, at, part, note, named) "
        "VALUES ('k1', 6, 1, 'six', 'n6'), ('k2', 1, 1, 'one', null)"
    )
    spark.sql(f"INSERT INTO {name} (k, at, part, note, best) VALUES ('k1', 4, 1, 'four', 9)")
    spark.sql(f"INSERT INTO {name} (k, at, part) VALUES ('k1', 7, 1)")

    expected = {"k1": (7, 1, "six", None, "n6", 9), "k2": (1, 1, "one", None, None, None)}
    assert {row["k"]: tuple(row[1:]) for row in read(spec, spark).select("k", *names).collect()} == expected
    compact(spec, spark)
    assert {row["k"]: tuple(row[1:]) for row in read(spec, spark).select("k", *names).collect()} == expected


def test_a_sum_that_does_not_fit_is_an_error_until_its_type_grows(
    tmp_path: Path, spark: SparkSession
) -> None:
    """In a batch nothing is written; in the merge nothing is shown, and the wider type makes it right."""
    sums = Sums(tmp_path, spark)
    sums.write("a", 0, ("k1", 0, (1 << 31) - 1))
    with pytest.raises(Exception, match="a batch cannot be written: the sum of its n does not fit into int"):
        sums.write("a", 1, ("k1", 0, 1 << 30), ("k1", 0, 1 << 30))
    assert sums.write("a", 1, ("k1", 0, 1))
    with pytest.raises(Exception, match="the sum of column _sum_a__n does not fit into int"):
        sums.shown()

    sums.path.write_text(sums.path.read_text().replace('n = "int"', 'n = "bigint"', 1))
    sums.spec = load_spec(sums.path)
    wide = sums.frame(("k1", 0, 1), kind="bigint")
    Splice(sums.spec, spark).write(wide, "a", batch_id=2, query_id="of a")

    for _ in range(2):
        assert sums.shown() == {"k1": ((1 << 31) + 1, None)}
        Compaction(sums.table()).step()


def test_a_tombstone_erases_the_values_that_nulls_have_kept(tmp_path: Path, spark: SparkSession) -> None:
    """An event of before stays out, whichever columns it has; one of later makes the row again."""
    spec = loaded(
        tmp_path,
        '[streams.a]\nordering = ["day", "at"]\nnulls = "keep"\n'
        'columns = { day = "date", at = "decimal(9,1)", x = "int", note = "string", deleted = "boolean" }\n',
    )
    names = ["day", "at", "x", "note", "deleted"]

    def shown(
        number: int, *rows: tuple[int, int | None, str | None, bool | None]
    ) -> list[tuple[object, ...]]:
        """The view after one more file, the first of each row spread over the two ordering columns."""
        events = [(f"2026-01-0{1 + place // 3}", place % 3 + 0.5, *rest) for place, *rest in rows]
        deliver(tmp_path, number, [("k1", dict(zip(names, one, strict=True))) for one in events], names)
        run(spec, once=True, spark=spark)
        report = validate(spec, spark)
        assert (report.sample, report.ok) == ((), True)
        found = read(spec, spark).select("day", "at", "x", "note").collect()
        return [(3 * (row.day.day - 1) + int(row.at), row.x, row.note) for row in found]

    assert shown(0, (1, 1, "a", None), (5, None, "b", None), (3, 3, "c", None)) == [(5, 3, "b")]
    assert shown(1, (6, None, None, True)) == []
    assert shown(2, (4, 4, "d", None), (7, 7, None, None)) == [(7, 7, None)]
    Splice(spec, spark).delete([{"k": "k1"}], stream="a")
    assert shown(3, (6, 6, "e", None)) == []
    compact(spec, spark)
    assert shown(4, (8, None, "f", None)) == [(8, None, "f")]
