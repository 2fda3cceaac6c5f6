"""Read the splice table: as stored, or under its plain names."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812  the name everybody uses

from asynclock.spark.hudi.options import read_options
from asynclock.spark.hudi.timeline import Timeline
from asynclock.spark.spec.load import misplaced
from asynclock.spark.spec.model import ORDERING, RECORD_KEY, TOMBSTONE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from asynclock.errors import SpecError
    from asynclock.spark.spec.model import Spec, StreamSpec


def read(spec: Spec, spark: SparkSession) -> DataFrame:
    """Return the rows of the table under the names of the view.

    A name that one stream has stays plain, one of several streams is ``<stream>__<name>``, and the ``as`` of
    a stream gives any of its columns another name. A stream's columns are null if it has no event for the key
    or if its newest event is a tombstone. A row in which no stream is alive is left out.

    Args:
        spec: The table and its streams.
        spark: A session with Hudi and the merger, as ``asynclock.spark.hudi.session`` makes it.

    Returns:
        A lazy frame: each action reads the table as of its newest commit.

    Raises:
        SpecError: There is no splice table, or nothing is committed to it yet.
    """
    table = snapshot(spec, spark)
    alive = reduce(or_, (_alive(stream) for stream in spec.streams))
    plain = [F.col(name) for name in spec.table.shared_columns]
    names = spec.view_names()
    for stream in spec.streams:
        plain += [
            F.when(_alive(stream), F.col(physical)).alias(names[physical])
            for physical in map(stream.physical, stream.owned(spec.table))
            if physical in names
        ]
    return table.where(alive).select(*plain)


def snapshot(spec: Spec, spark: SparkSession) -> DataFrame:
    """Return every row of the table with its physical columns, merged as of its newest commit.

    Columns of a stream that has not committed yet are null.
    """
    timeline = Timeline(spark, spec.table.path)
    if not timeline.exists():
        raise _unread(spec, "there is no table yet")
    stored = spark.read.format("hudi").options(**read_options(spec)).load(spec.table.path)
    present = set(stored.columns)
    if RECORD_KEY not in present:
        committed = any(instant.completed for instant in timeline.instants())
        raise _unread(spec, "the table is not a splice table" if committed else "nothing is committed yet")
    return stored.select(
        *(
            F.col(name) if name in present else F.lit(None).cast(kind).alias(name)
            for name, kind in physical_types(spec).items()
        )
    )


def physical_columns(spec: Spec) -> list[str]:
    """Return the names of the stored columns: the shared ones, then stream by stream."""
    return list(physical_types(spec))


def physical_types(spec: Spec) -> dict[str, str]:
    """Return the stored columns and their types, the shared ones first."""
    shared = {name: spec.shared_type(name) for name in spec.table.shared_columns}
    groups = {
        stream.physical(column): column.type for stream in spec.streams for column in stream.owned(spec.table)
    }
    return shared | groups


def _unread(spec: Spec, what: str) -> SpecError:
    reason = f"{what}; feed it first (asynclock pipeline run {spec.path}), or correct the path"
    return misplaced(spec, ("table", "path"), spec.table.path, reason)


def _alive(stream: StreamSpec) -> Column:
    present = F.col(f"{stream.name}__{ORDERING}").isNotNull()
    if all(column.name != TOMBSTONE for column in stream.columns):
        return present
    return present & ~F.coalesce(F.col(f"{stream.name}__{TOMBSTONE}"), F.lit(False))
