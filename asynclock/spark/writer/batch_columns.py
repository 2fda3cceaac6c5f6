"""The columns that a batch was read with, and the columns that the table has for Hudi."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from asynclock.spark.hudi.columns import is_behind
from asynclock.spark.hudi.options import write_options
from asynclock.spark.spec.column import sql_type
from asynclock.spark.spec.model import RECORD_KEY

if TYPE_CHECKING:
    from asynclock.spark.hudi.table import Table
    from asynclock.spark.spec.model import Spec, StreamSpec

log = logging.getLogger(__name__)


def declare_columns(table: Table) -> None:
    """Make the union of all commits' columns those of the table for Hudi, by an empty commit if needed.

    Hudi uses the columns of the commit that was requested last. Its writer may have requested it before a
    change of the columns was committed. Call this after such a change: every writer that decides on its
    columns from now on sees the change.
    """
    table.commits.refresh()
    columns = table.commits.columns()
    if not columns or not is_behind(table.timeline.present_columns(), columns):
        return
    commit_nothing(table)
    log.info("the columns of the table at %s are declared again", table.path)


def commit_nothing(table: Table) -> None:
    """Make a commit without rows, with all columns of the table, whose commits are refreshed."""
    types = {RECORD_KEY: "string"} | {name: one.kind for name, one in table.commits.columns().items()}
    # Not createDataFrame, which needs Python on the executors.
    empty = table.spark.range(0).selectExpr(
        *(f"CAST(NULL AS {sql_type(kind)}) AS `{name}`" for name, kind in types.items())
    )
    options = write_options(table.spec, tasks=table.tasks, name=table.name())
    empty.write.format("hudi").options(**options).mode("append").save(table.path)


def read_with(stream: StreamSpec, spec: Spec) -> tuple[tuple[str, str], ...]:
    """Return the stream's columns with the types and names they are read with, the ordering column first.

    Returns:
        Each own column with its type, ``@`` and the name of a group if it orders that, ``?`` if it is
        optional, and `` from `` and its name in the files if that differs; then the key and partition columns
        whose name there differs, without a type; then the derived columns, each with its type, ``=`` and how.
    """
    sources = stream.sources(spec.table)
    others = {name: f" from {source}" for name, source in sources.items() if source != name}
    owned = [column for column in stream.owned(spec.table) if column.name not in spec.table.derive]
    owned.sort(key=lambda column: column.name != stream.ordering[0])
    marks = {group.ordering[0]: f"@{name}" for name, group in stream.groups.items()}
    marks |= {name: f"{marks.get(name, '')}?" for name in stream.optional}
    named = {
        column.name: f"{column.type}{marks.get(column.name, '')}{others.get(column.name, '')}"
        for column in owned
    }
    derived = {one.name: one.read_with for one in spec.table.derived}
    return tuple((named | {name: how for name, how in others.items() if name not in named} | derived).items())
