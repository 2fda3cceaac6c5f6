"""What each merge function must give, said without merging: one choice among all events of a key.

Uses nothing of asynclock and nothing of Spark.
"""

from __future__ import annotations

import math
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

Row = dict[str, Any]

TYPES: Final[dict[str, str]] = {
    "at": "bigint",
    "state": "string",
    "note": "string",
    "seen": "int",
    "begun": "string",
    "peak": "double",
    "low": "decimal(12,3)",
    "top": "string",
    "any": "boolean",
    "every": "boolean",
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
}
"""The functions of the columns; that of the others is ``last_value``."""
_LEAST: Final = frozenset({"first_value", "first_non_null_value", "min", "bool_and"})
_OF_VALUES: Final = frozenset({"max", "min", "bool_or", "bool_and"})
_NULLS_COUNT: Final = frozenset({"last_value", "first_value"})
_WORDS: Final = {
    "last_non_null_value": ("_last_{}__{}", "_lastts_{}__{}"),
    "first_value": ("_firstany_{}__{}", "_firstanyts_{}__{}"),
    "first_non_null_value": ("_first_{}__{}", "_firstts_{}__{}"),
    "max": ("_max_{}__{}", ""),
    "min": ("_min_{}__{}", ""),
    "bool_or": ("_max_{}__{}", ""),
    "bool_and": ("_min_{}__{}", ""),
}


def chosen(rows: Sequence[Row], column: str) -> Row | None:
    """The event whose value a column has after the arrivals in this order; None: no event sets it."""
    function = FUNCTIONS.get(column, "last_value")
    candidates = [
        (row, _place(row[column]) if function in _OF_VALUES else row["at"], arrival)
        for arrival, row in enumerate(rows)
        if row[column] is not None or function in _NULLS_COUNT
    ]
    if not candidates:
        return None
    if function in _LEAST:
        return min(candidates, key=lambda one: one[1:])[0]
    return max(candidates, key=lambda one: one[1:])[0]


def _place(value: Any) -> Any:  # noqa: ANN401  a value of any type
    """Java's order of doubles: minus zero below zero, NaN above all."""
    if isinstance(value, float):
        return (math.isnan(value), 0.0 if math.isnan(value) else value, math.copysign(1, value))
    return value.encode() if isinstance(value, str) else value


def view(rows: Sequence[Row]) -> Row:
    """The columns of the key under their plain names, after the arrivals in this order."""
    return {column: found[column] if (found := chosen(rows, column)) else None for column in TYPES}


def stored(rows: Sequence[Row], stream: str = "a") -> Row:
    """The columns of the key under their stored names; one row gives what its batch writes."""
    columns: Row = {}
    for column in TYPES:
        row = chosen(rows, column) or {}
        value, ordering = _WORDS.get(FUNCTIONS.get(column, ""), ("{}__{}", ""))
        columns[value.format(stream, "ts" if column == "at" else column)] = row.get(column)
        if ordering:
            columns[ordering.format(stream, column)] = row.get("at")
    return columns


def stored_types(stream: str = "a") -> dict[str, str]:
    """The types of the stored columns."""
    types = {}
    for column, kind in TYPES.items():
        value, ordering = _WORDS.get(FUNCTIONS.get(column, ""), ("{}__{}", ""))
        types[value.format(stream, "ts" if column == "at" else column)] = kind
        if ordering:
            types[ordering.format(stream, column)] = TYPES["at"]
    return types


def random_rows(rng: random.Random, count: int, *, ties: bool = True) -> list[Row]:
    """Late, early and tied events; a third of their values are null."""
    instants = [rng.randrange(6) for _ in range(count)] if ties else rng.sample(range(count), count)
    values = {
        "string": lambda: rng.choice(["", "a", "ä€", "b", "Z"]),
        "int": lambda: rng.randrange(-3, 3),
        "double": lambda: rng.choice([-0.0, 0.0, 0.1, -1.5, 1e300, 5e-324]),
        "decimal(12,3)": lambda: Decimal(rng.randrange(-3000, 3000)).scaleb(-3),
        "boolean": lambda: rng.random() < 0.5,
    }
    return [
        {
            "at": instant,
            **{
                name: None if rng.random() < 1 / 3 else values[kind]()
                for name, kind in TYPES.items()
                if name != "at"
            },
        }
        for instant in instants
    ]


def spec_of(stream: str) -> str:
    """The columns and functions as a spec says them."""
    columns = ", ".join(f'{name} = "{kind}"' for name, kind in TYPES.items())
    functions = ", ".join(f'{name} = "{function}"' for name, function in FUNCTIONS.items())
    return f'[streams.{stream}]\nordering = "at"\ncolumns = {{ {columns} }}\nmerge = {{ {functions} }}\n'
