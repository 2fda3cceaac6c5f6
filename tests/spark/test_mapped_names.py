"""Columns by any name that a file has: ``order_id = { type = "string", from = "Order ID" }``."""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from asynclock.errors import SpecError
from asynclock.spark.check.strict.rows import BadFileError, Good
from asynclock.spark.check.strict.source_file import layout_of, rows
from asynclock.spark.check.validation import validate
from asynclock.spark.draft.draft import draft_spec
from asynclock.spark.reader.snapshot import read as read_table
from asynclock.spark.runs.run import run
from asynclock.spark.source.reading import REASON, Source
from asynclock.spark.spec.load import load_spec

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from asynclock.spark.spec.model import Spec

FORMS = ("csv", "json", "parquet")
HEAD = """
[table]
path = "table"
key = {key}
partition_by = {parts}
buckets = 1

[locks]
url = "locks"
"""
STREAM = """
[streams.{name}]
source = "in/{name}/*"
format = "{form}"
ordering = "{ordering}"
checkpoint = "checkpoints/{name}"
on_bad_row = "quarantine"
{more}
[streams.{name}.columns]
"""
NAMES = (
    "Order ID", "_id", "AÑO", "2016", "Name", "name", "NAME", "a.b", "a`b", 'say "hi"', "it's", "a=b", "a\nb",
    " blank ", "\ttab", "a,b;c", "$#%&*(){}[]", "日本", "😀", "_metadata", "select", "x__y",
    "_hoodie_commit_time", "_asynclock_file", "null", "\ufeffmark", "k", "\\", "a/b", "deleted", "ts",
)  # fmt: skip


def write(path: Path, form: str, some: list[dict[str, Any]]) -> None:
    """Write rows whose columns have any names."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if form == "parquet":
        pq.write_table(pa.Table.from_pylist(some), path)
        return
    text = io.StringIO()
    if form == "csv":
        writer = csv.DictWriter(text, list(some[0]), quoting=csv.QUOTE_ALL)
        writer.writeheader()
        writer.writerows(some)
    else:
        text.writelines(json.dumps(row) + "\n" for row in some)
    path.write_text(text.getvalue(), newline="")


def spec_of(folder: Path, text: str) -> Spec:
    """A spec in a folder."""
    (folder / "spec.toml").write_text(text)
    return load_spec(folder / "spec.toml")


def column(name: str, kind: str, source: str) -> str:
    """The line of a mapped column."""
    return f"{name} = {{ type = {json.dumps(kind)}, from = {json.dumps(source, ensure_ascii=False)} }}\n"


@pytest.mark.parametrize("form", FORMS)
def test_any_name_can_be_mapped(tmp_path: Path, spark: SparkSession, form: str) -> None:
    """Whatever the characters, and beside names that differ in case; the second reader finds the same."""
    values = {source: f"value {place}" for place, source in enumerate(NAMES)}
    write(tmp_path / f"in/a/0.{form}", form, [{"Key": "N1", "At": 5, **values}])
    spec = spec_of(
        tmp_path,
        HEAD.format(key='["id"]', parts="[]")
        + STREAM.format(name="a", form=form, ordering="moment", more="")
        + column("id", "string", "Key")
        + column("moment", "bigint", "At")
        + "".join(column(f"c{place}", "string", source) for place, source in enumerate(NAMES)),
    )

    report = run(spec, once=True, spark=spark)

    assert report.streams[0].quarantined == 0
    assert report.streams[0].unnamed_columns == ()
    (row,) = read_table(spec, spark).collect()
    assert [row[f"c{place}"] for place in range(len(NAMES))] == list(values.values())
    assert (row["id"], row["moment"]) == ("N1", 5)
    assert validate(spec, spark).ok


def test_keys_partitions_and_orderings_are_mapped_stream_by_stream(
    tmp_path: Path, spark: SparkSession
) -> None:
    """Each stream has its own names in its own format, and all of them meet in one row."""
    write(tmp_path / "in/a/0.csv", "csv", [{"Order ID": 1, "Land": "de", "When?": 3, "Total €": 9.5}])
    write(tmp_path / "in/b/0.json", "json", [{"_id": 1, "cc": "de", "at": 2, "2016": "x"}])
    write(tmp_path / "in/c/0.parquet", "parquet", [{"id": 1, "land": "de", "a.at": 4, "v": 1.25}])
    spec = spec_of(
        tmp_path,
        HEAD.format(key='["id"]', parts='["land"]')
        + STREAM.format(name="a", form="csv", ordering="at", more="")
        + column("id", "bigint", "Order ID")
        + column("land", "string", "Land")
        + column("at", "int", "When?")
        + column("total", "double", "Total €")
        + STREAM.format(name="b", form="json", ordering="at", more='optional = ["year"]')
        + column("id", "bigint", "_id")
        + column("land", "string", "cc")
        + 'at = "int"\n'
        + column("year", "string", "2016")
        + STREAM.format(name="c", form="parquet", ordering="at", more="")
        + 'id = "bigint"\nv = "double"\n'
        + column("at", "bigint", "a.at"),
    )

    run(spec, once=True, spark=spark)

    (row,) = read_table(spec, spark).collect()
    found = row.asDict()
    assert (found["id"], found["land"], found["total"], found["year"], found["v"]) == (
        1,
        "de",
        9.5,
        "x",
        1.25,
    )
    assert validate(spec, spark).ok


def test_a_mapping_may_change_while_the_column_stays(tmp_path: Path, spark: SparkSession) -> None:
    """The physical column keeps its name, and each file is validated by the names that it was read with."""
    head = HEAD.format(key='["id"]', parts="[]") + STREAM.format(name="a", form="csv", ordering="at", more="")
    write(tmp_path / "in/a/0.csv", "csv", [{"Old Key": "N1", "at": 1, "Old X": 1}])
    old = column("id", "string", "Old Key") + 'at = "int"\n' + column("x", "int", "Old X")
    first = spec_of(tmp_path, head + old)
    run(first, once=True, spark=spark)
    write(tmp_path / "in/a/1.csv", "csv", [{"id": "N2", "at": 1, "X!": 2}])
    second = spec_of(tmp_path, head + 'id = "string"\nat = "int"\n' + column("x", "int", "X!"))

    run(second, once=True, spark=spark)

    found = {row["id"]: row["x"] for row in read_table(second, spark).collect()}
    assert found == {"N1": 1, "N2": 2}
    assert validate(second, spark).ok


@pytest.mark.parametrize("form", FORMS)
def test_a_file_with_a_mapped_name_in_another_case_alone_is_bad(
    tmp_path: Path, spark: SparkSession, form: str
) -> None:
    """A name is meant exactly as it is written; both readers say so."""
    write(tmp_path / f"in/a/0.{form}", form, [{"k": "N1", "at": 1, "Order ID": 1}])
    spec = spec_of(
        tmp_path,
        HEAD.format(key='["k"]', parts="[]")
        + STREAM.format(name="a", form=form, ordering="at", more="")
        + 'at = "bigint"\n'
        + column("x", "bigint", "order id"),
    )
    (stream,) = spec.streams
    path = tmp_path / f"in/a/0.{form}"

    if form == "json":  # where a field may lack
        source = Source(spec, stream, spark)
        with source.settled(source.all()) as settled:
            assert [(row["x"], row[REASON]) for row in settled.frame.collect()] == [(None, None)]
        assert [
            one.values for one in rows(path, stream, layout_of(spec, stream)) if isinstance(one, Good)
        ] == [("N1", 1, None)]
        return
    with pytest.raises(SpecError, match="has no column 'order id'"):
        Source(spec, stream, spark)
    with pytest.raises(BadFileError, match="'order id'"):
        list(rows(path, stream, layout_of(spec, stream)))


@pytest.mark.parametrize("form", FORMS)
def test_a_draft_of_such_files_runs_as_it_is(tmp_path: Path, spark: SparkSession, form: str) -> None:
    """``init`` gives each column a name, and says which it has in the files."""
    write(
        tmp_path / f"in/orders/0.{form}",
        form,
        [{"Order ID": f"N{number}", "Ordered at": number, "AÑO": 2016, "2016": 1.5} for number in range(3)],
    )
    file = tmp_path / "spec.toml"
    file.write_text(draft_spec([tmp_path / "in/orders"], file=file))
    spec = load_spec(file)

    run(spec, once=True, spark=spark)

    assert {"order_id", "ordered_at", "ano", "c_2016"} <= set(read_table(spec, spark).columns)
    assert validate(spec, spark).ok
