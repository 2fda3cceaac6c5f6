"""Rows of files merged by the compiled class without Spark, and shown as the view shows them.

A row becomes a record by the rules of the second reader, and a record a row of the view by those of the
reader without Spark. So nothing here says a second time what a group or a function is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from asynclock.spark.arrow import _shown, _type
from asynclock.spark.check.strict.rows import Good
from asynclock.spark.check.strict.stored_rows import Reading
from asynclock.spark.hudi.layout import layout_of
from asynclock.spark.spec.column_groups import owner
from asynclock.spark.writer.batch_columns import read_with
from tests.spark.merger_kit import META, plain

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from asynclock.spark.spec.model import Spec
    from tests.spark.merger_kit import Merger, Program, Record

Row = dict[str, Any]


def record(merger: Merger, spec: Spec, stream: str, texts: Mapping[str, str]) -> Record:
    """The record that a batch of this one row of a CSV file writes; an empty or missing field is null."""
    types = spec.physical_types()
    groups = {
        number: list(group.items())
        for number, group in enumerate(layout_of(spec).groups())
        if (owner(next(iter(group))) or ("",))[0] == stream
    }
    reading = Reading(spec, spec.stream(stream), read_with(spec.stream(stream), spec), groups)
    event = reading.layout.good(1, [texts.get(name) or None for name in reading.layout.names])
    assert isinstance(event, Good), event
    stored = dict.fromkeys(types) | dict(zip(spec.table.shared_columns, event.values, strict=False))
    for number, _, _, cells in reading.events(event.values):
        stored.update(zip((name for name, _ in groups[number]), cells, strict=True))
    return {
        "schema": merger.schema({**META, **types}),
        "row": {name: plain(value) for name, value in stored.items()},
    }


def views(
    merger: Merger, spec: Spec, records: Sequence[Record], programs: Sequence[Program]
) -> list[Row | None]:
    """The different rows of the view that the programs give; None: the view shows none."""
    results = merger.run(records, programs)
    assert all("row" in result for result in results), results
    types = spec.physical_types()
    merged = {tuple(result["row"].get(name) for name in types) for result in results}
    shown = []
    for row in merged:
        cells = zip(types.items(), row, strict=True)
        table = pa.table({name: pa.array([value], _type(kind)) for (name, kind), value in cells})
        shown.append(next(iter(_shown(spec, table).to_pylist()), None))
    return shown


def text_of(value: object) -> str:
    """A value of the view as a CSV file has it."""
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)
