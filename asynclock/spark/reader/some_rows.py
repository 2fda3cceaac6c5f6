"""Some rows of the view as plain values, for people and JSON."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812  the name everybody uses

from asynclock.spark.reader.snapshot import read

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

    from asynclock.spark.spec.model import Spec

Plain = str | int | float | bool | None


def some_rows(
    spec: Spec, spark: SparkSession, *, limit: int, as_of: str | None = None
) -> tuple[list[str], list[tuple[Plain, ...]]]:
    """Return the names of the view and up to ``limit`` of its rows, in the order of their keys.

    Dates and times are text, times in UTC; decimals and numbers that JSON cannot have are text as well.

    Raises:
        SpecError: As ``read`` does.
        ConfigError: As ``read`` does.
    """
    frame = read(spec, spark, as_of=as_of)
    # By place, because a column may have any name.
    cells = [_plain(frame[place], kind).alias(f"_{place}") for place, (_, kind) in enumerate(frame.dtypes)]
    key = [f"_{place}" for place, name in enumerate(frame.columns) if name in spec.table.key]
    rows = frame.limit(limit).select(*cells).orderBy(*key).collect()
    return frame.columns, [tuple(map(_finite, row)) for row in rows]


def _plain(column: Column, kind: str) -> Column:
    if kind == "timestamp":  # the session's zone is UTC
        return F.concat(F.date_format(column, "yyyy-MM-dd HH:mm:ss.SSSSSS"), F.lit("Z"))
    if kind in {"string", "boolean", "tinyint", "smallint", "int", "bigint", "float", "double"}:
        return column
    return column.cast("string")


def _finite(value: Any) -> Plain:  # noqa: ANN401  a cell
    return json.dumps(value) if isinstance(value, float) and not math.isfinite(value) else value
