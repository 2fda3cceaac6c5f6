"""The columns of a table and how they may change, without Spark."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from asynclock.errors import SpecError
from asynclock.spark.hudi.columns import (
    check_change,
    check_columns,
    columns_to_write,
    floats_among,
    is_behind,
    is_wider,
    stored_as,
    stored_columns,
    union,
)
from asynclock.spark.hudi.layout import layout_of
from asynclock.spark.spec.load import load_spec
from tests.unit.specs import SPEC

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from asynclock.spark.spec.model import Spec

INT, BIGINT, DOUBLE, FLOAT = (stored_as(kind) for kind in ("int", "bigint", "double", "float"))


@pytest.fixture
def spec(write_spec: Callable[[str], Path]) -> Spec:
    """Departures with a double delay, and arrivals."""
    return load_spec(write_spec(SPEC))


def schema(**types: Any) -> str:  # noqa: ANN401  Avro
    """An Avro schema of nullable columns."""
    return json.dumps({"fields": [{"name": name, "type": ["null", kind]} for name, kind in types.items()]})


@pytest.mark.parametrize(
    ("stored", "wanted", "wider"),
    [
        ("int", "bigint", True),
        ("int", "double", True),
        ("float", "double", True),
        ("decimal(5,2)", "decimal(6,2)", True),
        ("decimal(5,2)", "decimal(6,3)", False),
        ("decimal(5,2)", "decimal(4,2)", False),
        ("int", "float", False),
        ("bigint", "double", False),
        ("bigint", "int", False),
        ("int", "string", False),
        ("date", "timestamp", False),
    ],
)
def test_type_grows_only_without_loss(stored: str, wanted: str, wider: bool) -> None:  # noqa: FBT001
    """A wider type holds every value, in the same order; no type is wider than itself."""
    assert is_wider(wanted, stored) is wider
    assert not is_wider(stored, wanted) or not wider
    assert not is_wider(wanted, wanted)


def test_columns_of_a_commit_are_those_of_its_schema() -> None:
    """Hudi's own columns are left out; a float in the file is one, and a double may hold floats."""
    decimal = {"type": "fixed", "size": 9, "logicalType": "decimal", "precision": 20, "scale": 2}
    text = schema(
        _hoodie_commit_time="string", _asynclock_key="string", k="string", a__ts="long", a__f="double",
        a__d=decimal, a__y="double", a__old="float",
    )  # fmt: skip

    columns = stored_columns(text, frozenset({"a__f"}))

    assert {name: (one.kind, one.declared) for name, one in columns.items()} == {
        "k": ("string", "string"), "a__ts": ("bigint", "bigint"), "a__f": ("double", "float"),
        "a__d": ("decimal(20,2)", "decimal(20,2)"), "a__y": ("double", "double"),
        "a__old": ("float", "float"),
    }  # fmt: skip
    assert floats_among(columns) == {"a__f"}
    assert floats_among(stored_columns(text)) == {"a__f", "a__y"}
    assert stored_columns("") == {}


def test_union_has_every_column_with_its_wider_type() -> None:
    """Whichever comes first; a commit that knows a double decides against one that does not."""
    narrow, wide = {"a": INT, "f": FLOAT, "x": INT}, {"f": DOUBLE, "a": BIGINT, "y": INT}

    assert union(narrow, wide) == union(wide, narrow) == {"a": BIGINT, "f": DOUBLE, "x": INT, "y": INT}
    assert is_behind(narrow, union(narrow, wide))
    assert is_behind(wide, union(narrow, wide))
    assert not is_behind(union(narrow, wide), narrow | {"a": BIGINT})
    assert not is_behind({"f": DOUBLE}, {"f": FLOAT})


def test_batch_writes_all_columns_of_the_table_and_its_own(spec: Spec) -> None:
    """The first commit has those of all streams; later ones add those of their own stream only."""
    departures, arrivals = spec.streams
    first = columns_to_write(spec, departures, {})
    table = {"tailnum": stored_as("string"), "x__ts": BIGINT, "departures__dep_delay": INT}

    later = columns_to_write(spec, departures, table)

    assert list(first) == [
        "tailnum", "departures__ts", "departures__origin", "departures__dep_delay", "departures__deleted",
        "arrivals__ts", "arrivals__landed_in", "arrivals__deleted",
    ]  # fmt: skip
    assert later == {
        "tailnum": stored_as("string"), "x__ts": BIGINT, "departures__dep_delay": DOUBLE,
        "departures__ts": stored_as("timestamp"), "departures__origin": stored_as("string"),
        "departures__deleted": stored_as("boolean"),
    }  # fmt: skip
    assert columns_to_write(spec, arrivals, first) == first


def test_spec_that_begins_must_hold_what_is_stored(spec: Spec) -> None:
    """A type may have grown in the spec; in the table it may not be wider, nor other than a key's."""
    check_columns(spec, {"departures__dep_delay": INT, "gone__x": INT, "departures__gone": INT})
    check_columns(spec, {"departures__dep_delay": FLOAT})

    with pytest.raises(SpecError, match="has departures__origin as int, this spec as string"):
        check_columns(spec, {"departures__origin": INT})
    with pytest.raises(SpecError, match="has tailnum as int, this spec as string"):
        check_columns(spec, {"tailnum": INT})


def test_writer_follows_wider_types_but_not_new_columns_of_its_stream(spec: Spec) -> None:
    """A column that the stream had at the start may be missing in the spec; one that came later may not."""
    departures, arrivals = spec.streams
    opened = frozenset({"departures__gone"})
    table = {"departures__gone": INT, "departures__ts": stored_as("timestamp")}

    check_change(spec, departures, opened, table)
    assert layout_of(spec).removed_columns(departures, table) == ["departures__gone"]
    check_change(spec, arrivals, frozenset(), table)
    with pytest.raises(SpecError, match=r"column departures__gone \(int\).*start this driver again"):
        check_change(spec, departures, frozenset(), table)
    with pytest.raises(SpecError, match="has departures__ts as date, this spec as timestamp"):
        check_change(spec, departures, opened, {"departures__ts": stored_as("date")})
    check_change(spec, arrivals, opened, {"departures__ts": stored_as("date")})
