"""Values that the view shows in place of null."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import pytest

from asynclock.errors import SpecError
from asynclock.spark.reader.sql import ddl
from asynclock.spark.spec.defaults import sql_literal
from asynclock.spark.spec.load import load_spec
from tests.unit.specs import SPEC

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

COLUMNS = 'columns = { departed_at = "timestamp", origin = "string", dep_delay = "double" }'
EVERY = (
    'columns = { departed_at = "timestamp", origin = "string", on_time = "boolean", seats = "int", '
    'miles = "bigint", dep_delay = "double", day = "date", seen = "timestamp", price = "decimal(5,2)" }'
)


@pytest.mark.parametrize(
    ("value", "kind", "literal"),
    [
        ("unknown", "string", "'unknown'"),
        ("", "string", "''"),
        ("it's \\ \n", "string", "CAST(X'69742773205c200a' AS STRING)"),
        (False, "boolean", "CAST('false' AS boolean)"),
        (-(2**31), "int", "CAST('-2147483648' AS int)"),
        (2**63 - 1, "bigint", "CAST('9223372036854775807' AS bigint)"),
        (1, "double", "CAST('1.0' AS double)"),
        (float("inf"), "float", "CAST('inf' AS float)"),
        (dt.date(1500, 1, 31), "date", "CAST('1500-01-31' AS date)"),
        (
            dt.datetime(2026, 1, 31, 12, tzinfo=dt.timezone(dt.timedelta(hours=2))),
            "timestamp",
            "CAST('2026-01-31 10:00:00.000000+00:00' AS timestamp_ltz)",
        ),
        ("1.50", "decimal(5,2)", "CAST('1.50' AS decimal(5,2))"),
        (-999, "decimal(5,2)", "CAST('-999' AS decimal(5,2))"),
    ],
)
def test_a_default_is_of_the_type_of_its_column(value: object, kind: str, literal: str) -> None:
    """As SQL that no setting of a session reads otherwise."""
    assert sql_literal(value, kind) == literal


@pytest.mark.parametrize(
    ("default", "key", "sentence"),
    [
        ("origin = 1", "origin", "the column is of type string; give a string"),
        ('on_time = "no"', "on_time", "of type boolean; give true or false"),
        ("seats = true", "seats", "of type int; give a whole number of 32 bits"),
        ("seats = 2147483648", "seats", "of type int; give a whole number of 32 bits"),
        ("miles = 1.0", "miles", "of type bigint; give a whole number of 64 bits"),
        ('dep_delay = "0"', "dep_delay", "of type double; give a number"),
        ('day = "2026-01-31"', "day", "of type date; give a date such as 2026-01-31, without quotes"),
        ("day = 2026-01-31T00:00:00Z", "day", "of type date; give a date"),
        ("seen = 2026-01-31T00:00:00", "seen", "of type timestamp; give a time with its offset"),
        ("price = 0.1", "price", "of type decimal(5,2); give a number that decimal(5,2) holds, in quotes"),
        ('price = "1000"', "price", "of type decimal(5,2)"),
        ('price = "0.001"', "price", "of type decimal(5,2)"),
        ('price = "NaN"', "price", "of type decimal(5,2)"),
        ('price = "much"', "price", "of type decimal(5,2)"),
        ('orign = "x"', "orign", "unknown name 'orign'; did you mean 'origin'?"),
        (
            "departed_at = 2026-01-31T00:00:00Z",
            "departed_at",
            "the ordering column of an event is never null",
        ),
        ("deleted = false", "deleted", "the tombstone is not in the view"),
        ('tailnum = "x"', "tailnum", "unknown name 'tailnum'"),
    ],
)
def test_a_default_that_cannot_be_is_refused(
    write_spec: Callable[[str], Path], default: str, key: str, sentence: str
) -> None:
    """One sentence, with the key and its line."""
    with pytest.raises(SpecError) as caught:
        load_spec(write_spec(SPEC.replace(COLUMNS, f"{EVERY}\ndefault = {{ {default} }}")))

    assert caught.value.key == f"streams.departures.default.{key}"
    assert caught.value.line > 0
    assert sentence in caught.value.reason


def test_a_key_has_no_default(write_spec: Callable[[str], Path]) -> None:
    """It is never null."""
    text = SPEC.replace(COLUMNS, COLUMNS.replace("{ ", '{ tailnum = "string", '))

    with pytest.raises(SpecError, match="a key or partition column is never null"):
        load_spec(write_spec(text.replace('on_bad_row = "q', 'default = { tailnum = "x" }\non_bad_row = "q')))


def test_the_views_of_the_catalog_have_the_defaults(write_spec: Callable[[str], Path]) -> None:
    """Whether the stream has no event, its newest one is a tombstone, or says null."""
    spec = load_spec(write_spec(SPEC.replace(COLUMNS, f'{COLUMNS}\ndefault = {{ origin = "unknown" }}')))

    _, view = ddl(spec)

    case = "CASE WHEN (`departures__ts` IS NOT NULL AND NOT coalesce(`departures__deleted`, false))"
    assert f"coalesce({case} THEN `departures__origin` END, 'unknown') AS `origin`" in view
    assert f"  {case} THEN `departures__dep_delay` END AS `dep_delay`" in view


def test_two_streams_of_a_plain_table_agree_on_a_default(write_spec: Callable[[str], Path]) -> None:
    """A column that both write has one default."""
    arrivals = 'arrived_at = "timestamp"\nlanded_in = "string"'
    text = SPEC.replace('key = ["tailnum"]', 'key = ["tailnum"]\nkind = "plain"\ntype = "mor"').replace(
        COLUMNS, f'{COLUMNS}\ndefault = {{ origin = "a" }}'
    )
    text = text.replace(
        f'{arrivals}\ndeleted = "boolean"',
        'departed_at = "timestamp"\norigin = "string"\ndep_delay = "double"',
    )
    text = text.replace('ordering = "arrived_at"', 'ordering = "departed_at"\ndefault = { origin = "b" }')

    with pytest.raises(SpecError, match="another stream gives this column another default"):
        load_spec(write_spec(text))
    assert load_spec(write_spec(text.replace('"b"', '"a"'))).view_defaults() == {"origin": "'a'"}
