"""Merge functions in a spec, and the rows that the second reader expects of them."""

from __future__ import annotations

import itertools
import math
import random
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asynclock.errors import ConfigError, SpecError
from asynclock.spark.check.strict.expected import Expected, _bytes, sortable
from asynclock.spark.check.strict.stored_rows import Reading
from asynclock.spark.check.validation import _reversed, _sums
from asynclock.spark.hudi.columns import columns_to_delete
from asynclock.spark.hudi.layout import layout_of
from asynclock.spark.hudi.view_names import carried_names, check_names
from asynclock.spark.spec.column_groups import owner
from asynclock.spark.spec.load import load_spec
from asynclock.spark.writer.batch_columns import read_with
from asynclock.spark.writer.deletion import Deletion
from tests.spark.functions_oracle import ORDERINGS, TYPES, random_rows, spec_of, stored, stored_types

if TYPE_CHECKING:
    from collections.abc import Callable
    from decimal import Decimal

    from asynclock.spark.spec.model import Spec

TEXT = f"""\
table.path = "t"
table.key = ["k"]
{spec_of("a")}source = "in/departures/*.csv"
"""
SMALL = """\
table.path = "t"
table.key = ["k"]
[streams.a]
source = "in/departures/*.csv"
ordering = "at"
columns = { at = "bigint", x = "int", note = "string", on = "boolean", part = "double" }
"""


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> Spec:
    """A stream with a column for each function."""
    folder = tmp_path_factory.mktemp("spec")
    (folder / "in" / "departures").mkdir(parents=True)
    (folder / "spec.toml").write_text(TEXT)
    return load_spec(folder / "spec.toml")


def test_the_stored_names_tell_the_function(spec: Spec) -> None:
    """They are those of the oracle and the view keeps the plain ones; only kept values have a tombstone."""
    types = spec.physical_types()

    assert {name: types[name] for name in stored_types()} == stored_types()
    assert types.keys() - stored_types().keys() == {"k", "a__deleted", "_lastdeleted_a__note"}
    assert list(spec.view_names().values()) == list(TYPES)
    assert {owner(name)[0] for name in types if name != "k" and owner(name)} == {"a"}  # type: ignore[index]
    assert columns_to_delete(spec, {}).keys() == {"a__deleted", "_lastdeleted_a__note"}


GROUP = '[streams.a.groups.g]\nordering = "x"\ncolumns = []\n'
BAD = [
    (
        'merge = { note = "sum" }',
        "merge.note",
        "adds int, bigint and decimal only, and this is a column of string",
    ),
    (
        'merge = { on = "sum" }',
        "merge.on",
        "adds int, bigint and decimal only, and this is a column of boolean",
    ),
    (
        'merge = { part = "sum" }',
        "merge.part",
        "in another order give another value; make the column a decimal",
    ),
    ('merge = { at = "sum" }', "merge.at", "the newest event sets it"),
    ('merge = { x = "average" }', "merge.x", "unknown name 'average'"),
    ('merge = { y = "max" }', "merge.y", "unknown name 'y'"),
    ('merge = { at = "max" }', "merge.at", "the newest event sets it"),
    ('merge = { x = "bool_or" }', "merge.x", "merges booleans only, and this is a column of int"),
    ('merge = { on = "max" }', "merge.on", "merges no booleans; use bool_or or bool_and"),
    ('nulls = "drop"', "nulls", "unknown name 'drop'"),
    ('merge = "max"', "merge", "expected a table"),
    (
        '[streams.a.groups.g]\nordering = "x"\ncolumns = []\n[streams.a.merge]\nx = "max"',
        "merge.x",
        "in a group",
    ),
    (
        'nulls = "keep"\n[streams.a.groups.g]\nordering = "x"\ncolumns = []',
        "nulls",
        "no function is the default",
    ),
]


@pytest.mark.parametrize(("more", "key", "sentence"), BAD)
def test_a_wrong_function_is_refused(
    write_spec: Callable[[str], Path], more: str, key: str, sentence: str
) -> None:
    """One sentence, with the key; nothing is created."""
    path = write_spec(SMALL + more + "\n")
    before = set(path.parent.rglob("*"))

    with pytest.raises(SpecError) as refused:
        load_spec(path)

    assert refused.value.key == f"streams.a.{key}"
    assert refused.value.others == ()
    assert sentence in str(refused.value)
    assert set(path.parent.rglob("*")) == before


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        (
            'on = "boolean"',
            'on = "boolean", deleted = "boolean"',
            "no tombstone takes back what this has kept",
        ),
        ('at = "bigint"', 'at = "bigint", k = "int"', "a key or partition column has one value"),
        ('table.key = ["k"]', 'table.kind = "plain"\ntable.key = ["k"]', "a plain table has one rule"),
    ],
)
@pytest.mark.parametrize("function", ["min", "sum"])
def test_a_function_must_fit_the_rest(
    write_spec: Callable[[str], Path], old: str, new: str, sentence: str, function: str
) -> None:
    """A tombstone, a key column and a plain table have no use for one."""
    column = "k" if "k = " in new else "x"

    with pytest.raises(SpecError, match=sentence):
        load_spec(write_spec(SMALL.replace(old, new) + f'merge = {{ {column} = "{function}" }}\n'))


def test_a_plain_table_takes_no_rule_for_nulls(write_spec: Callable[[str], Path]) -> None:
    """The sentence names the key that the user wrote."""
    plain = SMALL.replace('table.key = ["k"]', 'table.kind = "plain"\ntable.key = ["k"]')

    with pytest.raises(SpecError, match=r"nulls='keep': a plain table merges whole rows") as refused:
        load_spec(write_spec(plain + 'nulls = "keep"\n'))

    assert refused.value.key == "streams.a.nulls"


def test_nulls_are_kept_by_all_columns_but_the_ordering(write_spec: Callable[[str], Path]) -> None:
    """``nulls = "keep"`` is the function of each column that names none."""
    text = (
        SMALL.replace('on = "', 'deleted = "boolean", on = "')
        + 'nulls = "keep"\nmerge = { x = "last_value" }\n'
    )
    spec = load_spec(write_spec(text))

    assert [group.alias for group in spec.column_groups()] == ["", "last_note", "last_on", "last_part"]
    assert list(spec.column_groups()[0].stored()) == ["a__ts", "a__x", "a__deleted"]


@pytest.mark.parametrize(
    "function", ["min", "last_non_null_value", "first_value", "first_non_null_value", "sum"]
)
def test_a_column_of_the_table_keeps_its_function(write_spec: Callable[[str], Path], function: str) -> None:
    """Events that another function has left out cannot be merged again."""
    before = load_spec(write_spec(SMALL + 'merge = { x = "max" }\n'))
    stored, carried = list(before.physical_types()), carried_names(before, {})
    check_names(before, stored, carried)

    with pytest.raises(
        SpecError, match=f"the table merges this column by max or bool_or, and this spec by {function}"
    ):
        check_names(load_spec(write_spec(SMALL + f'merge = {{ x = "{function}" }}\n')), stored, carried)
    with pytest.raises(SpecError, match="and this spec with the stream's own columns"):
        check_names(load_spec(write_spec(SMALL)), stored, carried)


def test_tombstones_of_kept_values_are_refused(spec: Spec, write_spec: Callable[[str], Path]) -> None:
    """They could not take back a maximum; a delete of the whole row can, and a last value has an order."""
    with pytest.raises(ConfigError, match="of stream 'a' keeps a value that no tombstone takes back"):
        Deletion.of(spec, "a", None)
    with pytest.raises(ConfigError, match="of stream 'a' keeps a value that no tombstone takes back"):
        Deletion.of(spec, None, 5)
    assert Deletion.of(spec, None, None).of_whole_rows

    kept = Deletion.of(load_spec(write_spec(SMALL + 'nulls = "keep"\n')), "a", 7)

    assert kept.up_to == {"a": ("CAST('7' AS bigint)",)}
    assert list(kept.values()) == [
        "a__ts", "a__deleted", "_lastts_a__x", "_lastdeleted_a__x", "_lastts_a__note", "_lastdeleted_a__note",
        "_lastts_a__on", "_lastdeleted_a__on", "_lastts_a__part", "_lastdeleted_a__part",
    ]  # fmt: skip


def test_a_sum_in_doubt_is_not_compared(tmp_path: Path) -> None:
    """After a delete whose keys are gone no later event makes it known again; of a maximum one does."""
    expected = Expected(tmp_path, [[("_sum_a__x", "int")]], ranks=[0], sums=[0])
    expected.add(0, [(("k",), 3, (3,)), (("lost",), 1, (1,))])
    expected.doubt()
    expected.add(0, [(("k",), 4, (4,))])

    expected.compare([(("k",), [(4,)])])

    assert (expected.count(), expected.incomparable()) == (0, 2)
    expected.close()


DOUBLES = st.floats(allow_nan=True, allow_infinity=True)
DECIMALS = st.decimals(-(10**17), 10**17, places=3, allow_nan=False)


@given(DOUBLES, DOUBLES)
def test_doubles_are_sorted_as_java_does(one: float, other: float) -> None:
    """Minus zero is below zero, and NaN is the greatest."""

    def place(value: float) -> tuple[bool, float, float]:
        return math.isnan(value), 0.0 if math.isnan(value) else value, math.copysign(1, value)

    if math.isnan(one) and math.isnan(other):
        assert sortable(one, "double") == sortable(other, "double")
    else:
        assert (sortable(one, "double") < sortable(other, "double")) == (place(one) < place(other))
    assert -(1 << 63) <= sortable(one, "double") < 1 << 63


@given(DECIMALS, DECIMALS)
def test_decimals_are_sorted_by_value(one: Decimal, other: Decimal) -> None:
    """Of any number of digits."""
    kind = "decimal(38,3)"
    assert (sortable(one, kind) < sortable(other, kind)) == (one < other)
    assert (sortable(one, kind) == sortable(other, kind)) == (one == other)


PARTS = st.tuples(st.text(max_size=3), DOUBLES.filter(lambda one: not math.isnan(one)), st.integers(-9, 9))


@settings(deadline=None)
@given(PARTS, PARTS)
def test_ordering_values_of_several_columns_are_sorted_in_turn(
    one: tuple[str, float, int], other: tuple[str, float, int]
) -> None:
    """A text that begins another one is less, whatever the next column has."""

    def place(values: tuple[str, float, int]) -> tuple[Any, ...]:
        return values[0].encode(), values[1], math.copysign(1, values[1]), values[2]

    stored, others = (
        b"".join(
            _bytes(sortable(value, kind))
            for value, kind in zip(row, ("string", "double", "int"), strict=True)
        )
        for row in (one, other)
    )
    assert (stored < others) == (place(one) < place(other))
    assert (stored == others) == (place(one) == place(other))


def compared(spec: Spec, batches: list[list[dict[str, Any]]], row: dict[str, Any]) -> int:
    """The differences between a row of the table and the one that the second reader expects of the events."""
    groups = [list(group.items()) for group in layout_of(spec).groups()]
    stream = spec.stream("a")
    reading = Reading(spec, stream, read_with(stream, spec), dict(enumerate(groups)))
    with tempfile.TemporaryDirectory() as folder:
        ranks = [
            [list(dict(group)).index(name) for name in of.stored_orderings]
            for group, of in zip(groups, spec.column_groups(), strict=True)
        ]
        expected = Expected(Path(folder), groups, ranks=ranks, reversed_=_reversed(spec), sums=_sums(spec))
        for batch in batches:
            values = [tuple({"k": "k", **event}[name] for name in reading.layout.names) for event in batch]
            expected.add_each(itertools.chain.from_iterable(map(reading.events, values)))
        expected.compare([(("k",), [tuple(row.get(name) for name, _ in group) for group in groups])])
        found = expected.count()
        expected.close()
    return found


@pytest.fixture(scope="module", params=ORDERINGS, ids=map("-".join, ORDERINGS))
def ordered(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Spec:
    """The same stream, ordered by one column or by several."""
    folder = tmp_path_factory.mktemp("spec")
    (folder / "in" / "departures").mkdir(parents=True)
    (folder / "spec.toml").write_text(TEXT.replace(spec_of("a"), spec_of("a", request.param)))
    return load_spec(folder / "spec.toml")


@settings(database=None, deadline=None, max_examples=60)
@given(seed=st.integers(0, 1 << 32), cut=st.integers(0, 8), count=st.integers(1, 8))
def test_the_second_reader_expects_what_the_definitions_say(
    ordered: Spec, seed: int, cut: int, count: int
) -> None:
    """For each function, whatever arrives in whatever order; and one changed cell is a difference."""
    spec, ordering = ordered, ordered.stream("a").ordering
    rng = random.Random(seed)
    rows = random_rows(rng, count)
    wanted = stored(rows, ordering)

    assert compared(spec, [rows[:cut], rows[cut:]], wanted) == 0

    name = rng.choice([name for name, kind in stored_types(ordering).items() if kind == "string"])
    assert compared(spec, [rows], {**wanted, name: f"{wanted[name]}!"}) == 1
    assert compared(spec, [rows], {**wanted, "_sum_a__visits": (wanted["_sum_a__visits"] or 0) + 1}) == 1


def test_an_int_that_grew_to_a_double_is_compared_as_one(write_spec: Callable[[str], Path]) -> None:
    """The maximum of batches that were read with both types."""
    spec = load_spec(write_spec(SMALL.replace('x = "int"', 'x = "double"') + 'merge = { x = "max" }\n'))
    stream, groups = spec.stream("a"), [list(group.items()) for group in layout_of(spec).groups()]
    was = tuple((name, kind.replace("double", "int")) for name, kind in read_with(stream, spec))
    older = Reading(spec, stream, was, dict(enumerate(groups)))
    newer = Reading(spec, stream, read_with(stream, spec), dict(enumerate(groups)))
    with tempfile.TemporaryDirectory() as folder:
        expected = Expected(Path(folder), groups, ranks=[[0], [0]])
        expected.add_each(older.events(("k", 1, 3, None, None, None)))
        expected.add_each(newer.events(("k", 2, 2.5, None, None, None)))
        expected.compare([(("k",), [(2, None, None, None, None), (3.0,)])])
        assert list(expected.differences()) == []
        expected.close()
