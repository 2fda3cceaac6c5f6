"""The view of orders, payments and shipments beside what an oracle says of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asynclock.spark import read

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

    from asynclock.spark import Spec
    from tests.laboratory.restarts.orders import Key, Row


def as_texts(frame: DataFrame) -> DataFrame:
    """Return the frame with timestamps as texts, which depend on no time zone of Python."""
    times = [name for name, kind in frame.dtypes if kind == "timestamp"]
    return frame.withColumns({name: frame[name].cast("string") for name in times})


def rows_of_view(spec: Spec, spark: SparkSession) -> dict[Key, Row]:
    """Return the rows of the view by key, without the key columns."""
    rows = [row.asDict() for row in as_texts(read(spec, spark)).collect()]
    return {(row.pop("shop"), row.pop("number")): row for row in rows}


def unequal(expected: Mapping[Key, Row], found: Mapping[Key, Row]) -> list[str]:
    """Return a sentence for each row that only one side has and each cell that differs."""
    differences = []
    for key in sorted(expected.keys() | found.keys()):
        if key not in expected or key not in found:
            where = "the table" if key in found else "the oracle"
            differences.append(f"{key}: only in {where}")
            continue
        differences += [
            f"{key}: {name}: expected {value!r}, found {found[key].get(name)!r}"
            for name, value in expected[key].items()
            if found[key].get(name) != value
        ]
    return differences
