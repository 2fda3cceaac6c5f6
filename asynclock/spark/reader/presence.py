"""Checks that the table exists, and that the spec's streams have written it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from asynclock.spark.source.checkpoint import Checkpoint
from asynclock.spark.spec.load import misplaced

if TYPE_CHECKING:
    from asynclock.errors import SpecError
    from asynclock.spark.hudi.table import Table
    from asynclock.spark.spec.model import Spec

NO_TABLE: Final = "there is no table yet"


def refuse_missing(table: Table) -> None:
    """Make sure that the table exists, unless no stream of the spec has ever written to it.

    Args:
        table: The table, whose commits are refreshed.

    Raises:
        SpecError: A checkpoint of the spec belongs to another table, or to one that no longer exists; or the
            table has lost its properties.
        UnfinishedRebucketError: It is between two places.
    """
    table.refuse_lost_properties()
    table.commits.refresh()
    commit = table.commits.newest()
    for stream in table.spec.streams:
        Checkpoint(table.spec, stream, table.spark).refuse_another_table(
            lambda: None if commit is None else commit.table_id, is_there=table.timeline.exists
        )


def unread(spec: Spec, what: str) -> SpecError:
    """Return the error of a table that cannot be read."""
    reason = f"{what}; feed it first (asynclock pipeline run {spec.path}), or correct the path"
    return misplaced(spec, ("table", "path"), spec.table.path, reason)
