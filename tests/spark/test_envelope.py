"""Changes of a database in Debezium's envelope, and deletes that take the whole row."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import pytest

from asynclock.spark.check.strict.rows import Bad, Good
from asynclock.spark.check.strict.source_file import layout_of, rows
from asynclock.spark.check.validation import validate
from asynclock.spark.reader.changes import changes
from asynclock.spark.reader.snapshot import read
from asynclock.spark.reader.sql import register
from asynclock.spark.source.reading import REASON, Source
from tests.spark.pipeline_kit import Pipeline

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from asynclock.spark.spec.model import Spec

pytestmark = pytest.mark.timeout(300)

SOURCE_OF_A: Final = 'source = "in/a/*"\nformat = "csv"'
COLUMNS_OF_A: Final = 'columns = { at = "bigint", x = "int", note = "string" }'
ONE_FILE: Final = "max_files_per_trigger = 1\n"
ENVELOPED: Final = (
    'envelope = "debezium"\ndeletes = "row"\n'
    'columns = { at = { type = "bigint", from = "__source_lsn" }, op = { type = "string", from = "__op" }, '
    'x = "int", note = "string", deleted = "boolean" }'
)
ORDERING: Final = 'ordering = "at"'


def change(op: str, lsn: int, key: str | None, x: int = 0, note: str | None = None) -> dict[str, object]:
    """A change as Debezium's connector for PostgreSQL writes it, without its schema."""
    row = {"k": key, "x": x, "note": note}
    sides = {"before": {"k": key}, "after": None} if op == "d" else {"before": None, "after": row}
    return {**sides, "source": {"connector": "postgresql", "lsn": lsn}, "op": op, "ts_ms": 1_700_000_000_000}


def text_of(*lines: object) -> str:
    """JSON lines; a text stands as it is."""
    return "".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines)


def spec_of(pipeline: Pipeline, source: str) -> Spec:
    """The spec of the pipeline, with changes as stream ``a``."""
    return pipeline.spec({SOURCE_OF_A: source, ONE_FILE + COLUMNS_OF_A: ENVELOPED})


@pytest.fixture
def pipeline(tmp_path: Path, spark: SparkSession) -> Pipeline:
    """An empty pipeline."""
    return Pipeline(tmp_path, spark)


def shown(spec: Spec, spark: SparkSession) -> dict[str, tuple[object, ...]]:
    """The rows of the view."""
    columns = ("k", "at", "op", "x", "note", "y")
    return {row["k"]: tuple(row)[1:] for row in read(spec, spark).select(*columns).collect()}


def test_both_readers_take_the_same_rows_out_of_the_envelope(pipeline: Pipeline, spark: SparkSession) -> None:
    """With a schema around it, rows in strings, several changes on a line, and all that is no change."""
    good = change("c", 7, "N1", 1, "ä")
    lines = (
        good,
        change("u", 8, "N2", 2),
        change("r", 9, "N3", 3),
        change("d", 10, "N4"),
        {"schema": {"type": "struct"}, "payload": change("c", 11, "N5")},
        {**good, "after": json.dumps({"k": "N6", "x": 6})},
        {
            **good,
            "after": {"k": "N7", "x": 7, "deleted": True, "DELETED": 1, "__op": "z", "op": "y", "other": 1},
        },
        f"{json.dumps(change('c', 12, 'N8'))} {json.dumps(change('d', 13, 'N8'))}",
        {**good, "OP": "d", "Before": {}, "extra": [{}]},
        {**good, "source": None},
        {**good, "source": "no object"},
        {**good, "op": "t"},
        {**good, "op": "m"},
        {**good, "op": None},
        {**good, "op": 1},
        {**good, "op": "d"},
        {**good, "after": None},
        {**good, "after": [1]},
        {**good, "after": "text"},
        {**good, "after": "{"},
        {**good, "after": "{} {}"},
        {**good, "after": '{"k": 1, "k": 2}'},
        {**good, "after": {}},
        {**good, "after": {"k": "N9", "X": 1}},
        {**good, "after": {"k": "N9", "x": "no number"}},
        {**good, "after": {"k": "N9", "note": "__debezium_unavailable_value"}},
        {**good, "after": {"k": "N9", "note": ["__debezium_unavailable_value"]}},
        {**good, "source": {"lsn": "x"}},
        {**good, "source": '{"lsn": 1'},
        {**good, "payload": {}},
        {**good, "payload": "{"},
        {"k": "N1", "at": 1},
        "{}",
        "[]",
        "nonsense",
        f"{json.dumps(good)} {json.dumps({**good, 'op': 't'})}",
    )
    path = pipeline.place("a", "json", text_of(*lines))
    spec = spec_of(pipeline, 'source = "in/a/*"\nformat = "json"\non_bad_row = "quarantine"')
    stream = spec.streams[0]
    columns = ["k", "at", "op", "x", "note", "deleted"]

    source = Source(spec, stream, spark)
    with source.settled(source.all()) as settled:
        found = settled.frame.sort("_asynclock_arrival").collect()
    first = [None if row[REASON] is not None else tuple(row[name] for name in columns) for row in found]
    second = [
        row.values if isinstance(row, Good) else None for row in rows(path, stream, layout_of(spec, stream))
    ]

    assert first == second
    assert first[:9] == [
        ("N1", 7, "c", 1, "ä", False),
        ("N2", 8, "u", 2, None, False),
        ("N3", 9, "r", 3, None, False),
        ("N4", 10, "d", None, None, True),
        ("N5", 11, "c", 0, None, False),
        ("N6", 7, "c", 6, None, False),
        ("N7", 7, "c", 7, None, False),
        ("N8", 12, "c", 0, None, False),
        ("N8", 13, "d", None, None, True),
    ]
    assert first[9] == ("N1", 7, "c", 1, "ä", False)
    assert not any(first[10:])  # without an lsn there is no order
    assert source.unnamed_columns() == ["DELETED", "__op", "deleted", "op", "other"]
    reasons = [row[REASON] for row in found if row[REASON] is not None]
    assert reasons[2] == "its op is 't', which is no change of a row"
    assert reasons[6] == "its op is 'd', and it has no row in before"
    second_reasons = [
        row.reason for row in rows(path, stream, layout_of(spec, stream)) if isinstance(row, Bad)
    ]
    assert [reason for reason in second_reasons if "op" in reason] == [one for one in reasons if "op" in one]


def test_a_delete_takes_the_row_until_a_newer_change(pipeline: Pipeline, spark: SparkSession) -> None:
    """Later events of other streams do not bring the row back, in the view, in SQL and in the changes."""
    spec = spec_of(pipeline, 'source = "in/a/*"\nformat = "json"')
    pipeline.place(
        "a", "json", text_of(change("c", 1, "N1", 1), change("c", 2, "N2", 2), change("u", 5, "N2", 5))
    )
    pipeline.deliver("b", {"k": "N1", "seen": "2024-05-01T12:00:00Z", "y": 0.5})
    pipeline.run(spec)
    assert shown(spec, spark) == {"N1": (1, "c", 1, None, 0.5), "N2": (5, "u", 5, None, None)}
    before = changes(spec, spark).until

    pipeline.place("a", "json", text_of(change("d", 3, "N1"), change("d", 4, "N2")))
    pipeline.deliver("b", {"k": "N1", "seen": "2024-05-02T12:00:00Z", "y": 1.5})
    pipeline.run(spec)

    assert shown(spec, spark) == {"N2": (5, "u", 5, None, None)}  # its delete is older
    changed = changes(spec, spark, since=before).frame.select("k", "_deleted").collect()
    assert ("N1", True) in [tuple(row) for row in changed]
    register(spec, spark, name="enveloped")
    assert [row.k for row in spark.sql("SELECT k FROM enveloped").collect()] == ["N2"]
    spark.sql("DROP VIEW enveloped")
    spark.sql("DROP TABLE enveloped_stored")
    report = validate(spec, spark)
    assert (report.ok, report.streams[0].events, report.streams[0].bad_rows) == (True, 5, 0)
    pipeline.place("a", "json", text_of(change("c", 6, "N1", 6)))
    pipeline.run(spec)
    assert shown(spec, spark)["N1"] == (6, "c", 6, None, 1.5)
    assert validate(spec, spark).ok
