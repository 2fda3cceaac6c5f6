"""SQL text, because building each column by hand costs several calls to the JVM."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asynclock.spark.spec.column import sql_type
from asynclock.spark.spec.column_groups import TOMBSTONE
from asynclock.spark.spec.keys import record_key
from asynclock.spark.spec.model import RECORD_KEY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pyspark.sql import DataFrame

    from asynclock.spark.hudi.columns import Stored
    from asynclock.spark.spec.column import Column
    from asynclock.spark.spec.column_groups import ColumnGroup
    from asynclock.spark.spec.model import Spec


def quoted(name: str) -> str:
    """Return a column's name for SQL."""
    return f"`{name}`"  # column names have no backticks


def event_of(group: ColumnGroup) -> str:
    """Return SQL that says whether a row has an event for a column group other than the stream's own."""
    texts = {column.name for column in group.orderings if group.name and column.type == "string"}
    values = [
        f"{quoted(name)} IS NOT NULL" + (f" AND {quoted(name)} <> ''" if name in texts else "")
        for name in group.needed
    ]
    if not values:
        return "true"
    needed = " AND ".join(values)
    return f"(({needed}) OR {quoted(TOMBSTONE)})" if group.says_deleted else needed


def values_of(group: ColumnGroup, row: str) -> str:
    """Return SQL of the columns that an event of a group sets, out of the struct ``row``."""
    names = (quoted(column.name) for column in group.values().values())
    return ", ".join(f"{row}.{name} AS {name}" for name in names)


def reduced(group: ColumnGroup, row: str, rank: str) -> str:
    """Return SQL of the values that the rows of a batch set together, as a struct.

    Args:
        group: The group.
        row: The struct of a row.
        rank: The place of the row, null without an event for the group.
    """
    if group.is_sum:
        return f"struct({_total(group.orderings[0], row)})"
    return f"{'min' if group.is_reversed else 'max'}_by(struct({values_of(group, row)}), {rank})"


def _total(column: Column, row: str) -> str:
    """Return SQL of the sum of a column, which fails if the sum does not fit into its type."""
    name = f"{row}.{quoted(column.name)}"
    scale = column.type.rstrip(")").rpartition(",")[2] if column.type.startswith("decimal") else "0"
    total = f"try_cast(try_sum(CAST({name} AS DECIMAL(38,{scale}))) AS {column.type})"
    said = (
        f"a batch cannot be written: the sum of its {column.name} does not fit into {column.type}; nothing "
        "was. Declare a wider type"
    )
    return (
        f"CASE WHEN count({name}) > 0 AND {total} IS NULL THEN raise_error('{said}') ELSE {total} END"
        f" AS {quoted(column.name)}"
    )


def rank_of(orderings: Iterable[Column], arrival: str, value: Callable[[str], str] = quoted) -> str:
    """Return SQL of the place of a row among those of a batch.

    For Spark minus zero is zero, and for the merge it is less.

    Args:
        orderings: The columns that order it, compared in turn.
        arrival: SQL of the order in which rows with equal values arrived.
        value: Gives SQL for the value of a column, by its name.
    """
    parts = []
    for column in orderings:
        parts.append(value(column.name))
        if column.type in {"float", "double"}:
            parts.append(f"coalesce(CAST({quoted(column.name)} AS STRING) <> '-0.0', false)")
    return f"struct({', '.join([*parts, arrival])})"


def required(name: str, empty: str = "false", complaints: Iterable[tuple[str, str]] = ()) -> str:
    """Return SQL for the value of a required column, which fails if the value is missing or unfit."""
    column = quoted(name)
    cases = [(f"{column} IS NULL OR {empty}", f"'{name} is missing'"), *complaints]
    return _failing(cases, column)


def _failing(cases: Iterable[tuple[str, str]], value: str) -> str:
    """Return SQL for a value that fails under one of the conditions, each with its reason as SQL."""
    whens = " ".join(
        f"WHEN {wrong} THEN raise_error(concat('a row cannot be written: ', {reason}, '; nothing was'))"
        for wrong, reason in cases
    )
    return f"CASE {whens} ELSE {value} END"


def with_derived(spec: Spec, frame: DataFrame) -> DataFrame:
    """Return the frame with the columns that are functions of others; a write fails on an unfit time."""
    derived = []
    for one in spec.table.derived:
        kind = one.time_type(spec.streams[0].columns)
        cases = [(f"{quoted(one.source)} IS NULL", f"'{one.source} is missing'"), one.unfit(kind)]
        derived.append(f"{_failing(cases, one.sql(kind))} AS {quoted(one.name)}")
    return frame.selectExpr("*", *derived) if derived else frame


def nullable(value: str, name: str) -> str:
    """Return SQL for a column that may be null."""
    # Without an ELSE Spark treats the value as nullable, and so does the commit's schema, which becomes the
    # table's. It has to: a column that one stream always fills is null in the other streams' records.
    return f"CASE WHEN true THEN {value} END AS {quoted(name)}"


def wide_frame(
    spec: Spec, frame: DataFrame, values: Mapping[str, str], columns: Mapping[str, Stored]
) -> DataFrame:
    """Return the table's columns: keys from the frame, others from the SQL of ``values``, else null."""
    wide = [nullable(record_key(spec.table), RECORD_KEY)]
    for name, stored in columns.items():
        shared = name in spec.table.shared_columns
        value = quoted(name) if shared else f"CAST({values.get(name, 'NULL')} AS {sql_type(stored.kind)})"
        wide.append(nullable(value, name))
    return frame.selectExpr(*wide)
