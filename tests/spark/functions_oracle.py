"""What each merge function must give, said without merging: one event of a key, or the sum of all.

Uses nothing of asynclock and nothing of Spark.
"""

from __future__ import annotations

import math
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator, Sequence

Row = dict[str, Any]

TYPES: Final[dict[str, str]] = {
    "at": "bigint",
    "part": "double",
    "share": "decimal(12,3)",
    "state": "string",
    "note": "string",
    "seen": "int",
    "begun": "string",
    "peak": "double",
    "low": "decimal(12,3)",
    "top": "string",
    "any": "boolean",
    "every": "boolean",
    "visits": "int",
    "paid": "decimal(12,3)",
}
FUNCTIONS: Final[dict[str, str]] = {
    "note": "last_non_null_value",
    "seen": "first_value",
    "begun": "first_non_null_value",
    "peak": "max",
    "low": "min",
    "top": "max",
    "any": "bool_or",
    "every": "bool_and",
    "visits": "sum",
    "paid": "sum",
}
"""The functions of the columns; that of the others is ``last_value``."""
ORDERINGS: Final = (("at",), ("at", "part"), ("share", "at", "part"))
"""The columns that may order the events; they are never null."""
_LEAST: Final = frozenset({"first_value", "first_non_null_value", "min", "bool_and"})
_OF_VALUES: Final = frozenset({"max", "min", "bool_or", "bool_and"})
_NULLS_COUNT: Final = frozenset({"last_value", "first_value"})
_WORDS: Final = {
    "last_non_null_value": "last",
    "first_value": "firstany",
    "first_non_null_value": "first",
    "max": "max",
    "min": "min",
    "bool_or": "max",
    "bool_and": "min",
    "sum": "sum",
}


def chosen(rows: Sequence[Row], column: str, ordering: Sequence[str] = ("at",)) -> Row | None:
    """The event whose value a column has after the arrivals in this order; None: no event sets it."""
    function = FUNCTIONS.get(column, "last_value")
    by = (column,) if function in _OF_VALUES else ordering
    candidates = [
        (row, [_place(row[name]) for name in by], arrival)
        for arrival, row in enumerate(rows)
        if row[column] is not None or function in _NULLS_COUNT
    ]
    if not candidates:
        return None
    if function in _LEAST:
        return min(candidates, key=lambda one: one[1:])[0]
    return max(candidates, key=lambda one: one[1:])[0]


def value(rows: Sequence[Row], column: str, ordering: Sequence[str] = ("at",)) -> Any:  # noqa: ANN401  a value of any type
    """The value that a column has after the arrivals in this order."""
    if FUNCTIONS.get(column) == "sum":
        values = [row[column] for row in rows if row[column] is not None]
        return sum(values, start=type(values[0])(0)) if values else None
    found = chosen(rows, column, ordering)
    return found[column] if found else None


def _place(value: Any) -> Any:  # noqa: ANN401  a value of any type
    """Java's order of doubles: minus zero below zero, NaN above all."""
    if isinstance(value, float):
        return (math.isnan(value), 0.0 if math.isnan(value) else value, math.copysign(1, value))
    return value.encode() if isinstance(value, str) else value


def view(rows: Sequence[Row], ordering: Sequence[str] = ("at",)) -> Row:
    """The columns of the key under their plain names, after the arrivals in this order."""
    return {column: value(rows, column, ordering) for column in TYPES}


def _stored_names(column: str, ordering: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The stored names of a column, each with the column whose value it holds."""
    function = FUNCTIONS.get(column, "last_value")
    turns = {name: str(turn or "") for turn, name in enumerate(ordering, 1)} | {ordering[0]: ""}
    if function == "last_value":
        if column == ordering[0]:
            yield "a__ts", column
        else:
            yield f"_ts{turns[column]}_a__{column}" if column in turns else f"a__{column}", column
        return
    word = _WORDS[function]
    yield f"_{word}_a__{column}", column
    if function not in _OF_VALUES | {"sum"}:
        yield from ((f"_{word}ts{turn}_a__{column}", name) for name, turn in turns.items())


def stored(rows: Sequence[Row], ordering: Sequence[str] = ("at",)) -> Row:
    """The columns of the key under their stored names; one row gives what its batch writes."""
    columns: Row = {}
    for column in TYPES:
        for physical, name in _stored_names(column, ordering):
            row = chosen(rows, column, ordering) or {}
            columns[physical] = value(rows, column, ordering) if name == column else row.get(name)
    return columns


def stored_types(ordering: Sequence[str] = ("at",)) -> dict[str, str]:
    """The types of the stored columns."""
    return {physical: TYPES[name] for column in TYPES for physical, name in _stored_names(column, ordering)}


def random_rows(rng: random.Random, count: int, *, ties: bool = True) -> list[Row]:
    """Late, early and tied events; a third of their values are null."""
    instants = [rng.randrange(6) for _ in range(count)] if ties else rng.sample(range(count), count)
    values = {
        "string": lambda: rng.choice(["", "a", "ä€", "b", "Z"]),
        "int": lambda: rng.randrange(-3, 3),
        "double": lambda: rng.choice([-0.0, 0.0, 0.1, -1.5, 1e300, 5e-324]),
        "decimal(12,3)": lambda: Decimal(rng.randrange(-3000, 3000, 1000)).scaleb(-3),
        "boolean": lambda: rng.random() < 0.5,
    }
    return [
        {
            "at": instant,
            **{
                name: None if name not in ORDERINGS[-1] and rng.random() < 1 / 3 else values[kind]()
                for name, kind in TYPES.items()
                if name != "at"
            },
        }
        for instant in instants
    ]


def spec_of(stream: str, ordering: Sequence[str] = ("at",)) -> str:
    """The columns and functions as a spec says them."""
    by = ", ".join(f'"{name}"' for name in ordering)
    columns = ", ".join(f'{name} = "{kind}"' for name, kind in TYPES.items())
    functions = ", ".join(f'{name} = "{function}"' for name, function in FUNCTIONS.items())
    return f"[streams.{stream}]\nordering = [{by}]\ncolumns = {{ {columns} }}\nmerge = {{ {functions} }}\n"
