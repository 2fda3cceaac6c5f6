"""Column groups in a spec, and the rows that the second reader expects of them."""

from __future__ import annotations

import itertools
import math
import re
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asynclock.errors import ConfigError, SpecError
from asynclock.spark.check.strict.expected import Expected
from asynclock.spark.check.strict.stored_rows import Reading
from asynclock.spark.cli.verbs import _limit
from asynclock.spark.hudi.layout import layout_of
from asynclock.spark.hudi.view_names import carried_names, check_names
from asynclock.spark.spec.column_groups import group_prefix, owner, physical_name
from asynclock.spark.spec.load import load_spec
from asynclock.spark.spec.ordering import merged_as, orderings_among
from asynclock.spark.writer.batch_columns import read_with
from asynclock.spark.writer.deletion import Deletion
from tests.spark.groups_oracle import KEYS, newest
from tests.unit.specs import TEN_LINES

if TYPE_CHECKING:
    from collections.abc import Callable

    from asynclock.spark.spec.model import Spec

TEXT = """\
table.path = "orders"
table.key = ["k"]
[streams.a]
source = "in/departures/*.csv"
ordering = "at"
columns = { at = "bigint", x = "int", priced_at = "bigint", price = "double", currency = "string", \
deleted = "boolean" }
[streams.a.groups.price]
ordering = "priced_at"
columns = ["price", "currency"]
"""
SEVERAL = TEXT.replace('at = "bigint", price', 'at = "bigint", turn = "double", price').replace(
    '"priced_at"\n', '["priced_at", "turn"]\n'
)


@pytest.fixture
def spec(write_spec: Callable[[str], Path]) -> Spec:
    """A table of one stream with two groups."""
    return load_spec(write_spec(TEXT))


def test_the_stored_names_tell_the_group(spec: Spec) -> None:
    """The merger finds the columns of a group by what is before the first double underscore."""
    assert spec.physical_types() == {
        "k": "string",
        "a__ts": "bigint",
        "a__x": "int",
        "a__deleted": "boolean",
        "_in_price_a__ts": "bigint",
        "_in_price_a__price": "double",
        "_in_price_a__currency": "string",
        "_in_price_a__deleted": "boolean",
    }
    assert list(spec.view_names().values()) == ["at", "x", "priced_at", "price", "currency"]


@given(
    st.from_regex(r"[a-z][a-z0-9]*(_[a-z0-9]+){0,2}", fullmatch=True),
    st.from_regex(r"([a-z][a-z0-9]*)?", fullmatch=True),
    st.from_regex(r"[A-Za-z][A-Za-z0-9_]*", fullmatch=True),
)
def test_stream_and_group_follow_from_a_stored_name(stream: str, group: str, column: str) -> None:
    """However they are called, and whichever column orders the group second."""
    for ordering in ((), ("at",), ("at", column), (column, "at")):
        physical = physical_name(stream, group, column, ordering)
        assert owner(physical) == (stream, group)
        assert merged_as(physical.partition("__")[0]) == group_prefix(stream, group)
        stored = [physical_name(stream, group, name, ordering) for name in reversed(ordering)]
        among = orderings_among([*stored, f"{stream}__other", "k", "_hoodie_record_key"])
        assert among == ({group_prefix(stream, group): stored[::-1]} if ordering else {})


@pytest.mark.parametrize("name", ["k", "_hoodie_record_key", "_asynclock_key", "__x"])
def test_columns_without_a_stream_have_no_owner(name: str) -> None:
    """Those of keys, of Hudi, and of nobody."""
    assert owner(name) is None


def test_the_stored_names_tell_the_turn_of_an_ordering_column(write_spec: Callable[[str], Path]) -> None:
    """The first has the name of all first ones; the others keep their own behind their turn."""
    text = SEVERAL.replace("x = ", 'on = "date", x = ')
    text = text.replace('ordering = "at"', 'ordering = ["at", "x", "on"]')
    spec = load_spec(write_spec(text))

    assert spec.physical_types() == {
        "k": "string",
        "a__ts": "bigint",
        "_ts3_a__on": "date",
        "_ts2_a__x": "int",
        "a__deleted": "boolean",
        "_in_price_a__ts": "bigint",
        "_ts2in_price_a__turn": "double",
        "_in_price_a__price": "double",
        "_in_price_a__currency": "string",
        "_in_price_a__deleted": "boolean",
    }
    shown = ["at", "on", "x", "priced_at", "turn", "price", "currency"]
    assert list(spec.view_names().values()) == shown
    assert carried_names(spec, {}) == {"a__ts": "at", "_in_price_a__ts": "priced_at"}
    assert {owner(name) for name in spec.physical_types() if name != "k"} == {("a", ""), ("a", "price")}


def test_a_spec_without_groups_is_stored_as_ever(write_spec: Callable[[str], Path]) -> None:
    """Names, types and what a commit says of its columns are those of tables that have no groups."""
    spec = load_spec(write_spec(TEN_LINES))

    assert list(spec.physical_types()) == [
        "tailnum",
        "departures__ts",
        "departures__origin",
        "departures__delay",
        "departures__deleted",
        "arrivals__ts",
        "arrivals__dest",
        "arrivals__delay",
        "arrivals__deleted",
    ]
    assert read_with(spec.stream("arrivals"), spec) == (
        ("arrived_at", "timestamp"),
        ("dest", "string"),
        ("delay", "int"),
    )


BAD = [
    ("ordering =", "order =", "groups.price.ordering", "missing; add ordering = a string"),
    ('["price", "currency"]', '"price"', "groups.price.columns", "expected a list of strings"),
    ('columns = ["price", "currency"]', "", "groups.price.columns", "add columns = a list of columns"),
    ('"priced_at"\n', '"prised_at"\n', "groups.price.ordering", "did you mean 'priced_at'?"),
    ('["price", "currency"]', '["prize"]', "groups.price.columns", "did you mean 'price'?"),
    ('"priced_at"\n', '"currency"\n', "groups.price.columns", "it is in the group 'price' already"),
    ('["price", "currency"]', '["price", "price"]', "groups.price.columns", "in the group 'price' already"),
    ('["price", "currency"]', '["at"]', "groups.price.columns", "and it orders the stream"),
    ('["price", "currency"]', '["deleted"]', "groups.price.columns", "take the tombstone out"),
    ('["price", "currency"]', '["k"]', "groups.price.columns", "unknown name 'k'"),
    ('priced_at = "bigint"', 'priced_at = "boolean"', "groups.price.ordering", "cannot order by boolean"),
    ('"priced_at"\n', '["priced_at", "x", "at"]\n', "groups.price.ordering", "and it orders the stream"),
    ('"priced_at"\n', '["priced_at", "prize"]\n', "groups.price.ordering", "did you mean 'price'?"),
    ('"priced_at"\n', '["priced_at", "price"]\n', "groups.price.columns", "in the group 'price' already"),
    ('"priced_at"\n', '["priced_at", "priced_at"]\n', "groups.price.ordering", "a column is named twice"),
    ('"priced_at"\n', "[]\n", "groups.price.ordering", "expected a column, or a list of columns"),
    ('"priced_at"\n', "7\n", "groups.price.ordering", "expected a column, or a list of columns, found 7"),
    ("groups.price", "groups.list_price", "groups.list_price", "group names are a-z and 0-9"),
    ("groups.price", "groups.Price", "groups.Price", "group names are a-z and 0-9"),
    ('table.key = ["k"]', 'table.kind = "plain"\ntable.key = ["k"]', "groups", "merges whole rows"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "key", "sentence"), BAD)
def test_a_wrong_group_is_refused(
    write_spec: Callable[[str], Path], old: str, new: str, key: str, sentence: str
) -> None:
    """One sentence, with the key; nothing is created."""
    end = TEXT.index("[streams.a.groups")
    text = TEXT.replace(old, new) if old in TEXT[:end] else TEXT[:end] + TEXT[end:].replace(old, new, 1)
    assert text != TEXT
    path = write_spec(text)
    before = set(path.parent.rglob("*"))

    with pytest.raises(SpecError) as refused:
        load_spec(path)

    said = [str(refused.value), *refused.value.others]
    assert any(f"streams.a.{key}" in one and sentence in one for one in said), said
    assert set(path.parent.rglob("*")) == before


def test_a_key_column_and_two_groups_share_nothing(write_spec: Callable[[str], Path]) -> None:
    """A key column is in no group, and a column is in one."""
    second = '[streams.a.groups.other]\nordering = "x"\ncolumns = ["price"]\n'
    with pytest.raises(SpecError, match="in one group only, and it is in the group 'price' already"):
        load_spec(write_spec(TEXT + second))
    with pytest.raises(SpecError, match="a key or partition column is in no group"):
        load_spec(
            write_spec(TEXT.replace("columns = { ", 'columns = { k = "string", ').replace('["price"', '["k"'))
        )


@pytest.mark.parametrize(
    ("changes", "column", "place"),
    [
        ({'["price", "currency"]': '["price"]'}, "currency", "columns.currency"),
        ({"groups.price": "groups.cost"}, "priced_at", "groups.cost"),
        ({'["price", "currency"]': '["price", "currency", "x"]'}, "x", "groups.price"),
        ({'"priced_at"\n': '"x"\n', '["price"': '["priced_at", "price"'}, "x", "groups.price"),
    ],
)
def test_a_column_of_the_table_cannot_change_its_group(
    spec: Spec, write_spec: Callable[[str], Path], changes: dict[str, str], column: str, place: str
) -> None:
    """Its values would stay where they are, and newer ones be merged elsewhere."""
    stored, carried = list(spec.physical_types()), carried_names(spec, {})
    check_names(spec, stored, carried)
    text = TEXT
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)

    with pytest.raises(SpecError) as refused:
        check_names(load_spec(write_spec(text)), stored, carried)

    assert (refused.value.key, refused.value.value) == (f"streams.a.{place}", column)
    assert "Nothing was written" in str(refused.value)


@pytest.mark.parametrize(
    ("before", "after", "place", "sentence"),
    [
        ('"at"', '["at", "x"]', "ordering", "orders a by at, and this spec by at, x"),
        ('["at", "x"]', '"at"', "ordering", "orders a by at, x, and this spec by at"),
        ('["at", "x"]', '["x", "at"]', "ordering", "orders a by at, x, and this spec by x, at"),
        (
            '["priced_at", "turn"]',
            '["turn", "priced_at"]',
            "groups.price.ordering",
            "orders a.price by priced_at, turn, and this spec by turn, priced_at",
        ),
    ],
)
def test_a_group_of_the_table_keeps_its_ordering(
    write_spec: Callable[[str], Path], before: str, after: str, place: str, sentence: str
) -> None:
    """Events that were compared by other columns cannot be merged again; a new group has no order yet."""
    old = '["priced_at", "turn"]' if "priced" in before else '"at"'
    spec, changed = (
        load_spec(write_spec(SEVERAL.replace(f"{old}\n", f"{ordering}\n", 1))) for ordering in (before, after)
    )
    stored, carried = list(spec.physical_types()), carried_names(spec, {})
    check_names(spec, stored, carried)

    with pytest.raises(SpecError) as refused:
        check_names(changed, stored, carried)

    assert refused.value.key == f"streams.a.{place}"
    assert sentence in str(refused.value)
    check_names(changed, ["k", "b__ts", "_ts2_b__x"], carried)


@pytest.mark.parametrize(
    ("kind", "value", "sql"),
    [
        ("double", 1, "CAST('1.0' AS double)"),
        ("double", "-0.0", "CAST('-0.0' AS double)"),
        ("float", math.nan, "CAST('nan' AS float)"),
        ("decimal(9,2)", Decimal("1.50"), "CAST('1.50' AS decimal(9,2))"),
        ("decimal(9,2)", "7", "CAST('7' AS decimal(9,2))"),
        ("decimal(9,2)", "1.505", None),
        ("decimal(9,2)", 1.5, None),
        ("double", "soon", None),
        ("double", True, None),
        ("date", "2026-01-31", "date_from_unix_date(20484)"),
    ],
)
def test_a_delete_takes_a_value_for_each_ordering_column(
    write_spec: Callable[[str], Path], kind: str, value: float | str | Decimal, sql: str | None
) -> None:
    """Of the type of the column; more or fewer values are refused, and nothing is written."""
    text = TEXT.replace('x = "int"', f'x = "{kind}"').replace('ordering = "at"', 'ordering = ["at", "x"]')
    spec = load_spec(write_spec(text[: text.index("[streams.a.groups")]))
    for wrong in (5, [5], [5, value, value]):
        with pytest.raises(
            ConfigError, match=re.escape(f"at (bigint), x ({kind}); give a list of their values")
        ):
            Deletion.of(spec, "a", wrong)
    if sql is None:
        with pytest.raises(ConfigError, match=re.escape(f"and this is no {kind}; nothing was written")):
            Deletion.of(spec, "a", [5, value])
        return

    deletion = Deletion.of(spec, "a", (5, value))

    assert deletion.up_to == {"a": ("CAST('5' AS bigint)", sql)}
    assert list(deletion.values()) == ["a__ts", "_ts2_a__x", "a__deleted"]


def test_the_command_gives_the_values_of_several_columns_with_commas() -> None:
    """Of one stream, of each, and of a group; a comma in the value of a single column is its own."""
    assert _limit(("2,3",), {"a": 2}, of_one=True) == ["2", "3"]
    assert _limit(("a,b",), {"a": 1}, of_one=True) == "a,b"
    assert _limit(("a=2,3", "b=x,y"), {"a": 2, "b": 1}, of_one=False) == {"a": ["2", "3"], "b": "x,y"}
    assert _limit(("a=2,3", "a.price=4"), {"a": 2, "a.price": 1}, of_one=False) == {
        "a": ["2", "3"],
        "a.price": "4",
    }
    assert _limit((), {"a": 2}, of_one=True) is None


def test_an_ordering_column_keeps_its_place(spec: Spec, write_spec: Callable[[str], Path]) -> None:
    """The stored name of an ordering column is the same for all, so the names of the view tell them apart."""
    stored, carried = list(spec.physical_types()), carried_names(spec, {})
    dropped = TEXT[: TEXT.index("[streams.a.groups")].replace(', price = "double", currency = "string"', "")

    with pytest.raises(SpecError, match="the table merges this column in the group 'price'"):
        check_names(load_spec(write_spec(dropped)), stored, carried)


def test_columns_may_join_in_a_new_group(spec: Spec, write_spec: Callable[[str], Path]) -> None:
    """Columns that the table lacks change no history; a group that the spec drops keeps its values."""
    stored, carried = list(spec.physical_types()), carried_names(spec, {})
    more = TEXT.replace("deleted =", 'seen = "date", gate = "string", deleted =')
    more += '[streams.a.groups.gate]\nordering = "seen"\ncolumns = ["gate"]\n'
    joined = load_spec(write_spec(more))

    check_names(joined, stored, carried)

    check_names(spec, list(joined.physical_types()), carried_names(joined, {}))
    assert layout_of(spec).removed_columns(spec.stream("a"), joined.physical_types()) == []
    assert layout_of(spec).removed_columns(spec.stream("a"), ["_in_price_a__tax", "b__x"]) == [
        "_in_price_a__tax"
    ]


EVENTS = st.lists(
    st.fixed_dictionaries(
        {
            "k": st.sampled_from(KEYS),
            "at": st.integers(0, 4),
            "x": st.none() | st.integers(0, 9),
            "priced_at": st.none() | st.integers(0, 2),
            "turn": st.none() | st.sampled_from([math.nan, -0.0, 0.0, -1.5, math.inf]),
            "price": st.none() | st.floats(0, 9, width=16),
            "currency": st.none() | st.sampled_from(["EUR", "CHF"]),
            "deleted": st.none() | st.booleans(),
        }
    ),
    max_size=12,
)


@pytest.fixture(scope="module", params=[TEXT, SEVERAL], ids=["one column", "several"])
def loaded(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Spec:
    """The spec, once for all examples; a group is ordered by one column, or by two."""
    folder = tmp_path_factory.mktemp("spec")
    (folder / "in" / "departures").mkdir(parents=True)
    (folder / "spec.toml").write_text(request.param)
    return load_spec(folder / "spec.toml")


@settings(database=None, deadline=None, max_examples=100)
@given(events=EVENTS, cut=st.integers(0, 12), spoilt=st.booleans())
def test_the_second_reader_expects_the_oracle_s_rows(
    loaded: Spec,
    events: list[dict[str, Any]],
    cut: int,
    spoilt: bool,  # noqa: FBT001
) -> None:
    """In whatever order and batches they arrive: for each group the newest event, and of equals the last."""
    groups = [list(group.items()) for group in layout_of(loaded).groups()]
    ranks = [
        [list(dict(group)).index(name) for name in of.stored_orderings]
        for group, of in zip(groups, loaded.column_groups(), strict=True)
    ]
    stream = loaded.stream("a")
    orderings = [stream.ordering, stream.groups["price"].ordering]
    reading = Reading(loaded, stream, read_with(stream, loaded), dict(enumerate(groups)))
    rows: dict[str, list[tuple[Any, ...]]] = {}
    for (key, ordering), row in newest(events, orderings).items():
        cells = rows.setdefault(key, [(None,) * len(group) for group in groups])
        place = orderings.index(ordering)
        values = {"ts": row[ordering[0]], **row}
        cells[place] = tuple(values[name.partition("__")[2]] for name, _ in groups[place])
    if spoilt and rows:
        key, cells = next(iter(rows.items()))
        cells[0] = (-1, *cells[0][1:])
    with tempfile.TemporaryDirectory() as folder:
        expected = Expected(Path(folder), groups, ranks=ranks)
        for batch in (events[:cut], events[cut:]):
            values = [tuple(event[name] for name in reading.layout.names) for event in batch]
            expected.add_each(itertools.chain.from_iterable(map(reading.events, values)))
        expected.compare([((key,), cells) for key, cells in rows.items()])
        found = expected.count()
        expected.close()

    assert found == (1 if spoilt and rows else 0)
