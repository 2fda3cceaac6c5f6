"""What column groups must give, said without merging: per group the greatest (ordering values, arrival).

Uses nothing of asynclock and nothing of Spark.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable, Mapping, Sequence

Row = dict[str, Any]

Groups = dict[tuple[str, ...], tuple[str, ...]]

GROUPS: Final[Groups] = {("at",): ("x",), ("priced_at", "turn"): ("price", "currency")}
"""The columns of each group, by its ordering columns."""
COLUMNS: Final = ("at", "x", "priced_at", "turn", "price", "currency")
KEYS: Final = ("k1", "k2", "k3")


def newest(
    arrivals: Iterable[Row], groups: Iterable[tuple[str, ...]] = GROUPS
) -> dict[tuple[str, tuple[str, ...]], Row]:
    """The winning event of each key and group, the group named by its ordering columns."""
    found: dict[tuple[str, tuple[str, ...]], tuple[Any, int]] = {}
    rows = list(arrivals)
    for arrival, row in enumerate(rows):
        for ordering in groups:
            values = [_place(row[name]) for name in ordering if row[name] is not None]
            if len(values) == len(ordering):
                place = (values, arrival)
                found[row["k"], ordering] = max(found.get((row["k"], ordering), place), place)
    return {of: rows[arrival] for of, (_, arrival) in found.items()}


def _place(value: Any) -> Any:  # noqa: ANN401  a value of any type
    """Java's order of doubles: minus zero below zero, NaN above all."""
    if isinstance(value, float):
        return (math.isnan(value), 0.0 if math.isnan(value) else value, math.copysign(1, value))
    return value


def view(arrivals: Iterable[Row]) -> dict[str, Row]:
    """The rows of the view by key, of a stream with the groups above, after the arrivals in this order."""
    shown: dict[str, Row] = {}
    for (key, ordering), row in newest(arrivals).items():
        if not row["deleted"]:
            values = {name: row[name] for name in (*ordering, *GROUPS[ordering])}
            shown.setdefault(key, dict.fromkeys(COLUMNS)).update(values)
    return shown


STORED_TYPES: Final[dict[str, str]] = {
    "b__ts": "bigint",
    "b__x": "int",
    "b__deleted": "boolean",
    "_in_price_b__ts": "bigint",
    "_in_price_b__price": "double",
    "_in_price_b__currency": "string",
    "_in_price_b__deleted": "boolean",
    "_lastts_b__note": "bigint",
    "_last_b__note": "string",
    "_lastdeleted_b__note": "boolean",
}
"""The columns of a stream ``b`` with a group, and with the currency once more as the last note."""


def stored(arrivals: Iterable[Row]) -> Row:
    """The columns of one key under their stored names; one row gives what its batch writes."""
    rows = list(arrivals)
    found: Row = dict.fromkeys(STORED_TYPES)
    groups = {("at",): ("b", "x"), ("priced_at",): ("_in_price_b", "price", "currency")}
    for (_, of), row in newest([{**row, "k": ""} for row in rows], groups).items():
        prefix, *names = groups[of]
        found |= {f"{prefix}__{name}": row[name] for name in (*names, "deleted")}
        found[f"{prefix}__ts"] = row[of[0]]
    notes = [row for row in rows if row["currency"] is not None or row["deleted"]]
    if notes:
        row = max(enumerate(notes), key=lambda one: (one[1]["at"], one[0]))[1]
        found |= {"_lastts_b__note": row["at"], "_last_b__note": row["currency"]}
        found["_lastdeleted_b__note"] = row["deleted"]
    return found


def random_rows(rng: random.Random, count: int) -> list[Row]:
    """Late, early and tied events, a third of them without an event for the second group."""
    return [
        {
            "k": rng.choice(KEYS),
            "at": rng.randrange(8),
            "x": rng.choice([None, rng.randrange(100)]),
            "priced_at": rng.choice([None, rng.randrange(3), rng.randrange(3)]),
            "turn": rng.choice([None, -0.0, 0.0, 0.5, -1.5, math.nan]),
            "price": rng.choice([None, rng.randrange(1000) / 8]),
            "currency": rng.choice([None, "EUR", "CHF"]),
            "deleted": rng.choice([None, False, False, True]),
        }
        for _ in range(count)
    ]


def csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """The rows as a CSV file."""
    names = ["k", *COLUMNS, "deleted"]
    lines = [",".join("" if row[name] is None else str(row[name]) for name in names) for row in rows]
    return "\n".join([",".join(names), *lines, ""])
