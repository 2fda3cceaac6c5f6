"""Columns that have another name in the files: what a spec may say of them, and how mistakes are told."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from asynclock.errors import SpecError
from asynclock.spark.spec.column import plain_name
from asynclock.spark.spec.load import load_spec
from asynclock.spark.writer.batch_columns import read_with

if TYPE_CHECKING:
    from pathlib import Path

    from asynclock.spark.spec.model import Spec

SPEC = """
[table]
path = "table"
key = ["id"]

[streams.a]
source = "in/*.csv"
ordering = "{ordering}"
columns = {{ {columns} }}
"""
X = 'x = { type = "int", from = "%s" }'


def loaded(folder: Path, columns: str, *, ordering: str = "at") -> Spec:
    """The spec with these columns."""
    (folder / "in").mkdir(exist_ok=True)
    path = folder / "spec.toml"
    path.write_text(SPEC.format(columns=columns, ordering=ordering))
    return load_spec(path)


def test_a_column_may_be_a_table_with_its_name_in_the_files(tmp_path: Path) -> None:
    """Without a name there it has its own, as a plain column has."""
    key = 'id = { type = "string", from = "Order ID" }'
    spec = loaded(tmp_path, f'{key}, at = {{ type = "bigint" }}, x = {{ type = "int", from = "x" }}')
    (stream,) = spec.streams

    assert stream.sources(spec.table) == {"id": "Order ID", "at": "at", "x": "x"}
    assert [stream.physical(column) for column in stream.owned(spec.table)] == ["a__ts", "a__x"]


def test_names_may_be_swapped(tmp_path: Path) -> None:
    """A name of a file may be the name of another column, if that has another one there."""
    spec = loaded(tmp_path, 'at = "int", x = { type = "int", from = "y" }, y = { type = "int", from = "x" }')

    assert spec.streams[0].sources(spec.table) == {"id": "id", "at": "at", "x": "y", "y": "x"}


def test_a_commit_says_by_which_names_its_batch_was_read(tmp_path: Path) -> None:
    """Own columns with their types, and keys that are called otherwise."""
    spec = loaded(
        tmp_path,
        'x = { type = "int", from = "a from b" }, at = "int", id = { type = "string", from = "Order ID" }',
    )

    assert read_with(spec.streams[0], spec) == (
        ("at", "int"),
        ("x", "int from a from b"),
        ("id", " from Order ID"),
    )


@pytest.mark.parametrize(
    ("columns", "key", "reason"),
    [
        ('at = "int", "Order ID" = "int"', "columns.Order ID", '= { type = "...", from = "Order ID" }'),
        (f'at = "int", {X % "A"}, y = {{ type = "int", from = "A" }}', "columns.y.from", "'x' is from 'A'"),
        (f'at = "int", {X % "at"}', "columns.x.from", "'at' is from 'at' too"),
        (f'{X % "at"}, at = "int"', "columns.x.from", "'at'"),
        (f'at = "int", {X % "id"}', "columns.x.from", "the key or partition column 'id'"),
        (f'at = "int", {X % ""}', "columns.x.from", "without a name"),
        ('at = "int", x = { type = "int", from = 5 }', "columns.x.from", "expected a string"),
        ('at = "int", x = { type = "int", form = "A" }', "columns.x.form", "did you mean 'from'"),
        ('at = "int", x = { from = "A" }', "columns.x.type", "missing"),
        ('at = "int", x = { type = "number", from = "A" }', "columns.x", "unknown type"),
        ('at = "int", x = ["int"]', "columns.x", "expected a string"),
    ],
)  # fmt: skip
def test_a_mistake_is_named(tmp_path: Path, columns: str, key: str, reason: str) -> None:
    """The error has the line, the column and what to do."""
    with pytest.raises(SpecError) as caught:
        loaded(tmp_path, columns)

    assert caught.value.key == f"streams.a.{key}"
    assert caught.value.line == 9
    assert reason in str(caught.value)


def test_an_ordering_by_its_name_in_the_files_is_told(tmp_path: Path) -> None:
    """The spec speaks of columns by their own names."""
    with pytest.raises(SpecError, match="write the name of the column, 'at'"):
        loaded(tmp_path, 'at = { type = "int", from = "Ordered at" }', ordering="Ordered at")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Order ID", "order_id"),
        ("_id", "id"),
        ("AÑO", "ano"),
        ("2016", "c_2016"),
        ("日本", "c"),
        ("a.b  (€)", "a_b"),
        ("x__y", "x_y"),
    ],
)
def test_a_plain_name_is_made_of_any_text(text: str, name: str) -> None:
    """Letters lose their marks, and all else becomes one line."""
    assert plain_name(text) == name
