"""The splice table as it is stored, and as it is read under its plain names."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812  the name everybody uses

from asynclock.spark.options import read_options
from asynclock.spark.spec import ORDERING, TOMBSTONE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from asynclock.spark.spec import Spec, StreamSpec


def read(spec: Spec, spark: SparkSession) -> DataFrame:
    """The rows of the table under the plain names of the spec.

    A stream's columns are null where it has no event for the key or its newest event is a tombstone; a row
    without any live stream is left out. Ordering columns have the names the spec declares.

    Args:
        spec: The table and its streams.
        spark: A session with Hudi and the merger, as ``asynclock.spark.session`` makes it.

    Returns:
        Lazy: the table is read as of its newest commit when an action runs.
    """
    table = snapshot(spec, spark)
    alive = reduce(or_, (_alive(stream) for stream in spec.streams))
    plain = [F.col(name) for name in spec.table.shared_columns]
    for stream in spec.streams:
        plain += [
            F.when(_alive(stream), F.col(stream.physical(column))).alias(column.name)
            for column in stream.owned(spec.table)
            if column.name != TOMBSTONE
        ]
    return table.where(alive).select(*plain)


def snapshot(spec: Spec, spark: SparkSession) -> DataFrame:
    """Every row of the table with its physical columns, merged as of its newest commit."""
    stored = spark.read.format("hudi").options(**read_options()).load(spec.table.path)
    return stored.select(*physical_columns(spec))


def physical_columns(spec: Spec) -> list[str]:
    """The names of the stored columns: the shared ones, then group by group."""
    groups = [stream.physical(column) for stream in spec.streams for column in stream.owned(spec.table)]
    return [*spec.table.shared_columns, *groups]


def _alive(stream: StreamSpec) -> Column:
    present = F.col(f"{stream.name}__{ORDERING}").isNotNull()
    if all(column.name != TOMBSTONE for column in stream.columns):
        return present
    return present & ~F.coalesce(F.col(f"{stream.name}__{TOMBSTONE}"), F.lit(False))
