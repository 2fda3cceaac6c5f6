"""The stored rows of a table, with all columns that its commits have given it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from asynclock.spark.hudi.columns import is_behind
from asynclock.spark.hudi.options import read_options
from asynclock.spark.spec.column import sql_type
from asynclock.spark.spec.model import RECORD_KEY

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from asynclock.spark.hudi.table import Table

_AS_OF: Final = "as.of.instant"
_HUDI_COLUMNS: Final = (
    "_hoodie_commit_time", "_hoodie_commit_seqno", "_hoodie_record_key", "_hoodie_partition_path",
    "_hoodie_file_name",
)  # fmt: skip


def stored_rows(table: Table, *, as_of: str | None = None, spark: SparkSession | None = None) -> DataFrame:
    """Return every row of the table with all columns that it has, Hudi's own included.

    Args:
        table: The table, whose commits are refreshed.
        as_of: Merge only what was requested up to this instant time.
        spark: The session that reads; None: that of the table.
    """
    reader = (spark or table.spark).read.format("hudi").options(**read_options(table.spec))
    columns = table.commits.columns()
    if as_of is not None:
        reader = reader.option(_AS_OF, as_of)
    if columns and (as_of is not None or is_behind(table.timeline.present_columns(), columns)):
        # Without these, Hudi would miss columns that were just added. It would read an earlier state with the
        # columns of one of its commits, which may lack some.
        types = dict.fromkeys((*_HUDI_COLUMNS, RECORD_KEY), "string")
        types |= {name: stored.kind for name, stored in columns.items()}
        reader = reader.schema(", ".join(f"`{name}` {sql_type(kind)}" for name, kind in types.items()))
    return reader.load(table.path)
