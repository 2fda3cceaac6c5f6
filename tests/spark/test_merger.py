"""The merge rule, on thousands of random histories through the compiled class, against the oracle."""

from __future__ import annotations

import random
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from asynclock.spark.hudi.options import MERGER_STRATEGY_ID
from tests.spark.histories import COLUMNS, TieCount, random_history
from tests.spark.merger_kit import FULL, KEY, META, any_grouping, plain
from tests.spark.merges import differences
from tests.spark.oracle import Delete, Event, splice

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.spark.merger_kit import Merger, Program, Record
    from tests.spark.oracle import Arrival


def _row(result: Mapping[str, Any], columns: Mapping[str, str] = COLUMNS) -> dict[str, Any] | None:
    """The streams' columns of a result, nulls included; None for a deleted row."""
    assert "error" not in result, result
    if "deleted" in result:
        return None
    assert result["row"].get("key", "key") == "key"
    return {name: result["row"].get(name) for name in columns}


def _expected(history: Sequence[Arrival], columns: Mapping[str, str] = COLUMNS) -> dict[str, Any] | None:
    row = splice(history)
    return None if row is None else {name: plain(row.get(name)) for name in columns}


def _left_to_right(order: Sequence[int]) -> Program:
    return [order[0], *(step for index in order[1:] for step in (index, "+"))]


def _shuffled_but_ties(history: Sequence[Event], rng: random.Random) -> list[int]:
    """A random order in which events of a stream with equal ordering values keep theirs."""
    order = rng.sample(range(len(history)), k=len(history))
    places: dict[tuple[str, Any], list[int]] = {}
    for place, index in enumerate(order):
        places.setdefault((history[index].stream, history[index].ts), []).append(place)
    for held in places.values():
        for place, index in zip(held, sorted(order[place] for place in held), strict=True):
            order[place] = index
    return order


def test_any_grouping_of_the_merges_gives_the_same_row(merger: Merger) -> None:
    """Batch, log, base file and compaction may cut a history anywhere: the row is the oracle's."""
    rng = random.Random(1)
    ties = TieCount()
    for number in range(1000):
        history = random_history(rng, length=rng.randint(1, 14), deletes=number % 2 == 0)
        ties.add(history)
        order = range(len(history))
        programs = [_left_to_right(order), *(any_grouping(order, rng) for _ in range(4))]

        results = merger.run(merger.records(history), programs)

        assert [_row(result) for result in results] == [_expected(history)] * len(programs), history
    assert ties.ties >= ties.events / 10


def test_any_order_gives_the_same_row_when_ordering_values_differ(merger: Merger) -> None:
    """Late and early events and any interleaving of the streams end in one row."""
    rng = random.Random(2)
    for _ in range(500):
        history = random_history(rng, length=rng.randint(2, 14), ties=False)
        orders = [rng.sample(range(len(history)), k=len(history)) for _ in range(4)]

        results = merger.run(merger.records(history), [any_grouping(order, rng) for order in orders])

        assert [_row(result) for result in results] == [_expected(history)] * len(orders), history


def test_equal_ordering_values_keep_arrival_order(merger: Merger) -> None:
    """Of two events of a stream with one ordering value the later arrival wins, whatever lies between."""
    rng = random.Random(3)
    ties = TieCount()
    for _ in range(500):
        history = [e for e in random_history(rng, length=rng.randint(2, 14)) if isinstance(e, Event)]
        ties.add(history)
        orders = [_shuffled_but_ties(history, rng) for _ in range(4)]

        results = merger.run(merger.records(history), [any_grouping(order, rng) for order in orders])

        assert [_row(result) for result in results] == [_expected(history)] * len(orders), history
    assert ties.ties >= ties.events / 10


def test_replaying_a_batch_changes_nothing(merger: Merger) -> None:
    """The last batch again, once or twice, whole, leaves the row as it was."""
    rng = random.Random(4)
    for number in range(400):
        history = random_history(rng, length=rng.randint(1, 12), deletes=number % 4 == 0)
        last = list(range(rng.randrange(len(history)), len(history)))
        orders = [[*range(len(history)), *last * times] for times in (1, 2)]

        results = merger.run(merger.records(history), [any_grouping(order, rng) for order in orders])

        assert [_row(result) for result in results] == [_expected(history)] * len(orders), history


def test_each_merge_function_gives_what_its_definition_says(merger: Merger) -> None:
    """In any order, cut anywhere into batches and compactions, with repeated events."""
    assert differences(merger, range(400)) == []


def test_a_column_of_a_later_version_is_refused(merger: Merger) -> None:
    """A rule that this class does not know would merge it wrongly."""
    columns = {**META, **KEY, "_set_gate__visits": "int"}
    row = {"_set_gate__visits": 1}
    records: list[Record] = [{"schema": merger.schema(columns), "row": row}] * 2

    (result,) = merger.run(records, [[0, 1, "+"]])

    assert "does not know the rule of column _set_gate__visits" in result["error"]


@pytest.mark.parametrize(
    ("kind", "most"),
    [("int", 2**31 - 1), ("bigint", 2**63 - 1), ("decimal(12,3)", Decimal("999999999.999"))],
    ids=["int", "bigint", "decimal"],
)
def test_a_sum_that_does_not_fit_is_refused(merger: Merger, kind: str, most: Any) -> None:  # noqa: ANN401
    """One less is exact; neither wraps, and no digit is lost."""
    name = f"_sum_gate__{kind[:3]}"  # the harness knows a schema by its names
    columns = {**META, **KEY, name: kind}
    least = type(most)(1) if kind != "decimal(12,3)" else Decimal("0.001")
    records: list[Record] = [
        {"schema": merger.schema(columns), "row": {name: plain(value)}}
        for value in (most - least, least, least)
    ]

    exact, refused = merger.run(records, [[0, 1, "+"], [0, 1, "+", 2, "+"]])

    assert exact["row"][name] == plain(most)
    assert f"the sum of column {name} does not fit into {kind}" in refused.get("error", "")


def test_a_sum_of_doubles_is_refused(merger: Merger) -> None:
    """Its value would depend on the order of the additions, so of the compactions."""
    columns = {**META, **KEY, "_sum_gate__half": "double"}
    records: list[Record] = [{"schema": merger.schema(columns), "row": {"_sum_gate__half": 0.5}}] * 2

    (result,) = merger.run(records, [[0, 1, "+"]])

    assert "column _sum_gate__half is a sum, and additions of double are not exact" in result["error"]


def test_a_projection_merges_like_the_whole_row(merger: Merger) -> None:
    """Reading any columns, with what the merger asks for beside them, gives those columns of the row."""
    rng = random.Random(5)
    mandatory = merger.ask({"mandatory": merger.schema(FULL)})
    for number in range(400):
        history = random_history(rng, length=rng.randint(2, 12), deletes=number % 2 == 0)
        asked = rng.sample(sorted(COLUMNS), k=rng.choice([1, 1, 2, 5]))
        columns = {name: kind for name, kind in FULL.items() if name in {*mandatory, *asked}}
        wanted = {name: COLUMNS[name] for name in asked}

        results = merger.run(
            merger.records(history, columns), [any_grouping(range(len(history)), rng) for _ in range(3)]
        )

        assert [_row(result, wanted) for result in results] == [_expected(history, wanted)] * 3, history


def test_records_of_different_schemas_merge(merger: Merger) -> None:
    """Columns and streams that one record's schema lacks are kept from the other and null in its own."""
    rng = random.Random(6)
    shuffled = dict(rng.sample(list(FULL.items()), k=len(FULL)))
    schemas = [
        FULL,
        {
            name: kind
            for name, kind in shuffled.items()
            if not name.startswith("crew__") and name != "gate__note"
        },
        {
            name: kind
            for name, kind in FULL.items()
            if not name.startswith("fuel_2__") and name != "radar__tags"
        },
    ]
    for _ in range(400):
        history: list[Arrival] = []
        records: list[Record] = []
        for arrival in random_history(rng, length=rng.randint(2, 10), deletes=True):
            if isinstance(arrival, Delete):
                history.append(arrival)
                records.append(merger.record(arrival, 0))
                continue
            columns = rng.choice([schema for schema in schemas if f"{arrival.stream}__ts" in schema])
            known = {k: v for k, v in arrival.values.items() if f"{arrival.stream}__{k}" in columns}
            history.append(Event(arrival.stream, arrival.ts, known))
            records.append(merger.record(arrival, 0, columns))
        programs = [any_grouping(range(len(history)), rng) for _ in range(3)]

        results = merger.run(records, programs)

        assert [_row(result) for result in results] == [_expected(history)] * len(programs), history


@pytest.mark.parametrize("wide", [0, 1])
@pytest.mark.parametrize("order", [[0, 1], [1, 0]])
def test_a_merged_row_has_every_column_of_both_schemas(merger: Merger, wide: int, order: list[int]) -> None:
    """Even when one record says it all: a reader of the result knows one schema only."""
    narrow = {**META, **KEY, "gate__ts": "timestamp", "gate__x": "int"}
    records = [
        merger.record(event, index, FULL if index == wide else narrow)
        for index, event in enumerate([_OLD, _NEW])
    ]

    (result,) = merger.run(records, [[*order, "+"]])

    assert set(result["row"]) == set(FULL)


_OLD = Event("gate", 1, {"x": 1, "note": "old"})
_NEW = Event("gate", 2, {"x": None, "note": None})
_OTHER = Event("crew", 5, {"note": "c"})


def test_a_newer_null_erases(merger: Merger) -> None:
    """The newer event wins the whole group, its nulls included, in either order of arrival."""
    results = merger.run(merger.records([_OLD, _NEW]), [[0, 1, "+"], [1, 0, "+"]])

    assert [(_row(result) or {})["gate__note"] for result in results] == [None, None]


def test_a_tombstone_holds_against_a_late_event(merger: Merger) -> None:
    """A deleted group keeps its ordering value, so that an older event does not bring it back."""
    tombstone = Event("gate", 2, {"x": None, "note": None, "deleted": True})

    (result,) = merger.run(merger.records([tombstone, _OLD]), [[0, 1, "+"]])

    assert {k: v for k, v in (_row(result) or {}).items() if v is not None} == {
        "gate__ts": 2,
        "gate__deleted": True,
    }


def test_an_event_after_a_delete_does_not_bring_the_old_row_back(merger: Merger) -> None:
    """Delete and event may meet in the log before they meet the base file: the base stays deleted."""
    history = [_OLD, Delete(), _OTHER]

    results = merger.run(merger.records(history), [[0, 1, "+", 2, "+"], [0, 1, 2, "+", "b", "+"]])

    assert [_row(result) for result in results] == [_expected(history)] * 2


@pytest.mark.parametrize(
    ("history", "returned"),
    [
        pytest.param([_NEW, _OLD], 0, id="a late event"),
        pytest.param([_OLD, _NEW], 1, id="an event that replaces everything"),
        pytest.param([_OLD, Delete()], 1, id="a delete"),
        pytest.param([_OLD, _OLD], 1, id="the same event again"),
    ],
)
def test_an_input_that_is_the_answer_is_returned_itself(
    merger: Merger, history: list[Arrival], returned: int
) -> None:
    """Nothing is copied when one of the two records already is the merged one."""
    (result,) = merger.run(merger.records(history), [[0, 1, "+"]])

    assert result["is"] == returned


@pytest.mark.parametrize("missing", [0, 1])
def test_a_missing_record_leaves_the_other(merger: Merger, missing: int) -> None:
    """Merging with nothing gives the record itself."""
    records = merger.records([_OLD, _NEW])
    records[missing] = None

    (result,) = merger.run(records, [[0, 1, "+"]])

    assert result["is"] == 1 - missing


def test_hudis_own_columns_come_from_the_newer_record(merger: Merger) -> None:
    """A merged row carries the commit time of the record that changed it last."""
    (result,) = merger.run(merger.records([_OLD, _OTHER]), [[0, 1, "+"]])

    assert result["row"]["_hoodie_commit_time"] == "001"


def test_a_merge_in_a_write_has_the_columns_of_the_incoming_record(merger: Merger) -> None:
    """On copy-on-write Hudi adds its own columns to what a merge has changed, and keeps those of the rest."""
    incoming = {**KEY, **COLUMNS}
    records = [
        merger.record(_NEW, 0),
        merger.record(_OTHER, 1, incoming),
        merger.record(_OLD, 1, incoming),
    ]

    merged, unchanged = merger.run(records, [[0, 1, "+"], [0, 2, "+"]])

    assert set(merged["row"]) == set(incoming)
    assert _row(merged) == _expected([_NEW, _OTHER])
    assert unchanged["is"] == 0


def test_a_read_fetches_every_ordering_column_and_what_marks_deletes(merger: Merger) -> None:
    """A projection cannot leave out what decides the merge."""
    columns = {**FULL, "_hoodie_is_deleted": "boolean", "_hoodie_operation": "string"}

    asked = merger.ask({"mandatory": merger.schema(columns)})

    assert set(asked) == {
        *(name for name in COLUMNS if name.endswith("__ts")),
        *META,
        "_hoodie_is_deleted",
        "_hoodie_operation",
    }


def test_a_column_without_an_ordering_column_is_refused(merger: Merger) -> None:
    """Nothing could tell which of two values is newer, so the merge fails and names both columns."""
    columns = {**META, **KEY, "lone__x": "int"}
    record = merger.record(Event("lone", None, {"x": 1}), 0, columns)

    (result,) = merger.run([record, record], [[0, 1, "+"]])

    assert "lone__x" in result["error"]
    assert "lone__ts" in result["error"]


def test_ordering_values_of_two_types_are_refused(merger: Merger) -> None:
    """A stream that changed the type of its ordering column fails to merge instead of guessing."""
    columns = {**META, **KEY, "gate__ts": "string"}
    records = [merger.record(_OLD, 0), merger.record(Event("gate", "1"), 1, columns)]

    (result,) = merger.run(records, [[0, 1, "+"]])

    assert "gate__ts" in result["error"]


def test_the_strategy_id_never_changes(merger: Merger) -> None:
    """The id in every table's properties is the one the compiled class answers to."""
    assert merger.ask({"strategy": True}) == MERGER_STRATEGY_ID == "3158b597-87e4-4016-bcb2-5fe63391c0b1"
