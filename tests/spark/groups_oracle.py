"""What column groups must give, said without merging: per group the greatest (ordering value, arrival).

Uses nothing of asynclock and nothing of Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable, Mapping, Sequence

Row = dict[str, Any]

GROUPS: Final[dict[str, tuple[str, ...]]] = {"at": ("x",), "priced_at": ("price", "currency")}
"""The columns of each group, by its ordering column."""
COLUMNS: Final = ("at", "x", "priced_at", "price", "currency")
KEYS: Final = ("k1", "k2", "k3")


def newest(arrivals: Iterable[Row]) -> dict[tuple[str, str], Row]:
    """The winning event of each key and group, the group named by its ordering column."""
    found: dict[tuple[str, str], tuple[Any, int]] = {}
    rows = list(arrivals)
    for arrival, row in enumerate(rows):
        for ordering in GROUPS:
            if row[ordering] is not None:
                place = (row[ordering], arrival)
                found[row["k"], ordering] = max(found.get((row["k"], ordering), place), place)
    return {of: rows[arrival] for of, (_, arrival) in found.items()}


def view(arrivals: Iterable[Row]) -> dict[str, Row]:
    """The rows of the view by key, of a stream with the groups above, after the arrivals in this order."""
    shown: dict[str, Row] = {}
    for (key, ordering), row in newest(arrivals).items():
        if not row["deleted"]:
            values = {name: row[name] for name in (ordering, *GROUPS[ordering])}
            shown.setdefault(key, dict.fromkeys(COLUMNS)).update(values)
    return shown


def random_rows(rng: random.Random, count: int) -> list[Row]:
    """Late, early and tied events, a third of them without an event for the second group."""
    return [
        {
            "k": rng.choice(KEYS),
            "at": rng.randrange(8),
            "x": rng.choice([None, rng.randrange(100)]),
            "priced_at": rng.choice([None, rng.randrange(8), rng.randrange(8)]),
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
