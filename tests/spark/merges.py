"""Random histories of one key through the compiled merger: every merge function, against its definition.

A history is events that arrive late, tied, repeated and in any order. It is cut into batches, of which the
driver keeps one row, and merged with any parentheses, as logs and compactions do.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from tests.spark.functions_oracle import ORDERINGS, random_rows, stored, stored_types
from tests.spark.merger_kit import META, any_grouping, plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tests.spark.functions_oracle import Row
    from tests.spark.merger_kit import Merger, Record


def differences(merger: Merger, seeds: Iterable[int]) -> list[tuple[int, Any, Any]]:
    """The histories that the merger merges otherwise: seed, expected and found columns."""
    found = []
    for seed in seeds:
        rng = random.Random(seed)
        ordering = ORDERINGS[seed % 3]
        rows = random_rows(rng, rng.randint(1, 10), ties=seed % 2 == 0)
        if seed % 2:
            rng.shuffle(rows)  # without ties the order of arrival says nothing
        batches = [*_cut(rows, rng), *([rows] if seed % 5 == 0 else [])]
        arrived = [row for batch in batches for row in batch]
        wanted = {name: plain(value) for name, value in stored(arrived, ordering).items()}
        records = [_record(merger, batch, ordering) for batch in batches]
        programs = [any_grouping(range(len(batches)), rng) for _ in range(2)]
        for result in merger.run(records, programs):
            row = result.get("row", result)
            is_equal = {name: row.get(name) for name in wanted} == wanted
            if not is_equal or _signs(row, ordering) != _signs(wanted, ordering):
                found.append((seed, wanted, row))
    return found


def _cut(rows: list[Row], rng: random.Random) -> list[list[Row]]:
    """The rows in their order, as batches of one or more."""
    batches: list[list[Row]] = []
    while rows:
        size = rng.randint(1, len(rows))
        batches.append(rows[:size])
        rows = rows[size:]
    return batches


def _record(merger: Merger, batch: list[Row], ordering: Sequence[str]) -> Record:
    """The record that the driver writes of a batch."""
    columns = {**META, **stored_types(ordering)}
    return {
        "schema": merger.schema(columns),
        "row": {name: plain(value) for name, value in stored(batch, ordering).items()},
    }


def _signs(row: Row, ordering: Sequence[str]) -> list[str]:
    """Minus zero equals zero, but not as text."""
    return [repr(row.get(name)) for name, kind in stored_types(ordering).items() if kind == "double"]
