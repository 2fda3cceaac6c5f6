"""Visits of the same orders, made from a seed: a column group, each merge function, and the oracle.

Their schema never changes. Values are null, orderings tie and events come late. Nothing of asynclock or Spark
is used.
"""

from __future__ import annotations

import csv
import os
import random
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from tests.laboratory.restarts.orders import EPOCH, NULLS, ORDERS_OF_A_SHOP, ROWS_OF_A_FILE, SHOPS, SPAN

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.laboratory.restarts.orders import Key, Row

STREAM: Final = "visits"
SPEC: Final = """
[streams.visits]
source = "in/visits/*.csv"
ordering = "at"
max_files_per_trigger = 1
columns = { at = "bigint", page = "string", priced_at = "bigint", price = "double", remark = "string", \
origin = "string", mark = "string", best = "double", least = "decimal(10,2)", paid = "boolean", \
valid = "boolean" }
merge = { remark = "last_non_null_value", origin = "first_value", mark = "first_non_null_value", \
best = "max", least = "min", paid = "bool_or", valid = "bool_and" }

[streams.visits.groups.price]
ordering = "priced_at"
columns = ["price"]
"""


def _by(ordering: str, needed: str) -> Callable[[Row], Any]:
    return lambda event: event[ordering] if event[needed] is not None else None


# For each column the place of an event among all of its key: None, and it has no say; the greatest or the
# least place wins, and of equal ones the event that came last or first.
_GREATEST: Final[dict[str, Callable[[Row], Any]]] = {
    "at": _by("at", "at"),
    "page": _by("at", "at"),
    "priced_at": _by("priced_at", "priced_at"),
    "price": _by("priced_at", "priced_at"),
    "remark": _by("at", "remark"),
    "best": _by("best", "best"),
    "paid": _by("paid", "paid"),
}
_LEAST: Final[dict[str, Callable[[Row], Any]]] = {
    "origin": _by("at", "at"),
    "mark": _by("at", "mark"),
    "least": _by("least", "least"),
    "valid": _by("valid", "valid"),
}
VIEW: Final = (*_GREATEST, *_LEAST)
"""The names of the columns in the view."""


class Visits:
    """Delivers files and knows what the table must say once all of them are read.

    Args:
        folder: Where the source folders are.
        seed: Of every value.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self._folder = folder / "in" / STREAM
        self._folder.mkdir(parents=True)
        self._random = random.Random(f"visits of {seed}")
        self._files = 0
        self._events: dict[Key, list[Row]] = {}

    def deliver(self) -> None:
        """Write one more file, younger than those before it."""
        self._files += 1
        hidden = self._folder / f".{self._files}"
        with hidden.open("w", newline="") as lines:
            writer = csv.writer(lines)
            writer.writerow(["shop", "number", *VIEW])
            for _ in range(ROWS_OF_A_FILE):
                key, event = self._event()
                self._events.setdefault(key, []).append(event)
                writer.writerow([*key, *(_text(event[name]) for name in VIEW)])
        os.utime(hidden, (EPOCH + self._files, EPOCH + self._files))
        hidden.rename(hidden.with_name(f"{self._files:05}.csv"))

    def expected(self) -> dict[Key, Row]:
        """Return the columns of the view by key: for each the event that its rule chooses among all."""
        return {key: {name: _chosen(events, name) for name in VIEW} for key, events in self._events.items()}

    def _event(self) -> tuple[Key, Row]:
        dice = self._random
        values: Row = {
            "page": dice.choice(["home", "cart, full", 'said "no"']),
            "priced_at": EPOCH + dice.randrange(SPAN),
            "price": dice.uniform(-1e6, 1e6),
            "remark": f"remark {dice.randrange(100)}",
            "origin": dice.choice(["mail", "search", "ü"]),
            "mark": f"mark {dice.randrange(100)}",
            "best": dice.uniform(-1e6, 1e6),
            "least": Decimal(dice.randrange(-(10**7), 10**7)).scaleb(-2),
            "paid": dice.random() < NULLS,
            "valid": dice.random() > NULLS,
        }
        event = {name: None if dice.random() < NULLS else value for name, value in values.items()}
        event["at"] = EPOCH + dice.randrange(SPAN)
        return (dice.choice(SHOPS), dice.randrange(ORDERS_OF_A_SHOP)), event


def _chosen(events: list[Row], name: str) -> Any:  # noqa: ANN401  of the column's type
    place = (_GREATEST | _LEAST)[name]
    placed = [(place(event), arrival) for arrival, event in enumerate(events) if place(event) is not None]
    if not placed:
        return None
    best = max(placed) if name in _GREATEST else min(placed)
    return events[best[1]][name]


def _text(value: object) -> object:
    return str(value).lower() if isinstance(value, bool) else value
