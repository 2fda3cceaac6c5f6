"""The demo's comparison of the table with the oracle: every key, every column."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from asynclock import spark
from examples import fleet_oracle

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession

    from examples.fleet_oracle import Difference, Expected

SAMPLE_ROWS: Final = 3


@dataclass(frozen=True, kw_only=True)
class Validation:
    """What the comparison found."""

    keys: int
    """Keys of the oracle, the table or both."""
    columns: int
    """Columns compared of each, the key not counted."""
    differences: list[Difference]
    sample: list[Mapping[str, Any]]
    """Some rows of the table, of those that every stream has written."""


def validate(spec: Path, session: SparkSession, *, expected: Expected | None = None) -> Validation:
    """Compare the snapshot of a table with what its event files say.

    Args:
        spec: The spec of the table.
        session: A session with Hudi and the merger.
        expected: What the oracle has worked out from the same spec; None: it does so now.
    """
    expected = expected or fleet_oracle.expect(spec)
    rows = [row.asDict() for row in spark.read(spark.load_spec(spec), session).collect()]
    return Validation(
        keys=len(expected.rows.keys() | {row[expected.key] for row in rows}),
        columns=len(expected.columns),
        differences=fleet_oracle.compare(expected, rows),
        sample=_sample(rows),
    )


def _sample(rows: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    whole = [row for row in rows if None not in row.values()]
    step = max(1, len(whole) // SAMPLE_ROWS)
    return whole[step // 2 :: step][:SAMPLE_ROWS]
