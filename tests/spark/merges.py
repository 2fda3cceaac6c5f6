"""Random histories of one key through the compiled merger: every merge function, against its definition.

A history is events of two streams that arrive late, tied, repeated and in any order: one stream has a column
for each function, the other has groups and tombstones. Each is cut into batches, of which the driver keeps
one row. Between them whole rows are deleted, and a restore takes the newest batches off and reads their
events again, cut in another way. The batches are merged with any parentheses, as logs and compactions do.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from tests.spark import functions_oracle, groups_oracle
from tests.spark.merger_kit import META, any_grouping, plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tests.spark.merger_kit import Merger, Record

Batch = tuple[str, list[dict[str, Any]]]
"""The name of a stream and rows of it; no name: a delete of the whole row."""
DELETE: Batch = ("", [])


def differences(merger: Merger, seeds: Iterable[int]) -> list[tuple[int, Any, Any]]:
    """The histories that the merger merges otherwise: seed, expected and found columns."""
    found = []
    for seed in seeds:
        rng = random.Random(seed)
        batches = history(rng, ties=seed % 2 == 0)
        if seed % 5 == 0:
            batches += [batch for batch in batches if batch[0]]
        if seed % 3 == 0:
            batches = _restored(batches, rng)
        ordering = functions_oracle.ORDERINGS[seed % 3 if seed % 7 else seed // 7 % 3]
        columns = {**functions_oracle.stored_types(ordering), **groups_oracle.STORED_TYPES}
        wanted = _row(batches, ordering)
        records = [_record(merger, batch, ordering) for batch in batches]
        programs = [any_grouping(range(len(batches)), rng) for _ in range(2)]
        for result in merger.run(records, programs):
            row = None if "deleted" in result else result.get("row", result)
            if row is not None:
                row = {name: row.get(name, row) for name in columns}
            if row != wanted or _signs(row, columns) != _signs(wanted, columns):
                found.append((seed, wanted, row))
    return found


def history(rng: random.Random, *, ties: bool) -> list[Batch]:
    """The batches of both streams in their order; without ties the order of arrival says nothing."""
    rows = functions_oracle.random_rows(rng, rng.randint(1, 10), ties=ties)
    if not ties:
        rng.shuffle(rows)
    batches = [("a", rows) for rows in _cut(rows, rng)]
    others = [("b", rows) for rows in _cut(groups_oracle.random_rows(rng, rng.randrange(6)), rng)]
    for batch in others:
        batches.insert(rng.randrange(len(batches) + 1), batch)
    if rng.random() < 0.4:
        batches.insert(rng.randrange(len(batches) + 1), DELETE)
    return batches


def _restored(batches: list[Batch], rng: random.Random) -> list[Batch]:
    """The batches after a restore: those before it, then the same events again, without the deletes."""
    kept = rng.randrange(len(batches) + 1)
    again = []
    for name in ("a", "b"):
        rows = [row for stream, rows in batches[kept:] if stream == name for row in rows]
        again += [(name, part) for part in _cut(rows, rng)]
    return [*batches[:kept], *again] or [DELETE]


def _cut(rows: list[dict[str, Any]], rng: random.Random) -> list[list[dict[str, Any]]]:
    """The rows in their order, as batches of one or more."""
    batches: list[list[dict[str, Any]]] = []
    while rows:
        size = rng.randint(1, len(rows))
        batches.append(rows[:size])
        rows = rows[size:]
    return batches


def _row(batches: list[Batch], ordering: Sequence[str]) -> dict[str, Any] | None:
    """The row that the batches must give; None: no event has come since the delete."""
    alive = batches[max((at + 1 for at, (name, _) in enumerate(batches) if not name), default=0) :]
    if not alive:
        return None
    rows = {name: [row for stream, rows in alive if stream == name for row in rows] for name in ("a", "b")}
    found = functions_oracle.stored(rows["a"], ordering) | groups_oracle.stored(rows["b"])
    return {name: plain(value) for name, value in found.items()}


def _record(merger: Merger, batch: Batch, ordering: Sequence[str]) -> Record:
    """The record that the driver writes of a batch."""
    if not batch[0]:
        return {"delete": True}
    columns = {**functions_oracle.stored_types(ordering), **groups_oracle.STORED_TYPES}
    return {"schema": merger.schema({**META, **columns}), "row": _row([batch], ordering)}


def _signs(row: dict[str, Any] | None, columns: Mapping[str, str]) -> list[str]:
    """Minus zero equals zero, but not as text."""
    return [repr((row or {}).get(name)) for name, kind in columns.items() if kind == "double"]
