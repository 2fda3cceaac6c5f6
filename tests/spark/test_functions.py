"""Merge functions through a real table: files in batches, late and tied, compacted in between."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING, Any

from asynclock.spark.check.validation import validate
from asynclock.spark.hudi.table import Table
from asynclock.spark.reader.snapshot import read
from asynclock.spark.reader.sql import register
from asynclock.spark.runs.run import run
from asynclock.spark.services.work import Compaction
from asynclock.spark.spec.load import load_spec
from asynclock.spark.writer.splice import Splice
from tests.spark.functions_oracle import TYPES, random_rows, spec_of, view

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

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
