"""The deletes on the timeline, as events among those of the sources."""

from __future__ import annotations

from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812  the name everybody uses

from asynclock.spark.hudi.instants import DELETES
from asynclock.spark.spec.keys import as_stored
from asynclock.spark.spec.model import ORDERING, TOMBSTONE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession

    from asynclock.spark.check.state import Order, State
    from asynclock.spark.check.strict.expected import Cells, Expected, Key
    from asynclock.spark.hudi.instants import BatchCommit
    from asynclock.spark.spec.model import Spec


class Deletes:
    """The deletes of a table.

    Args:
        spec: The table.
        spark: A session.
        table: The table as of an instant.
    """

    def __init__(self, spec: Spec, spark: SparkSession, table: State) -> None:
        self._spec = spec
        self._spark = spark
        self._deletes = sorted(
            ((table.order(commit), commit) for commit in table.commits if commit.stream == DELETES),
            key=itemgetter(0),
        )

    def steps(self, expected: Expected) -> Iterator[tuple[Order, Callable[[], None]]]:
        """Yield for each delete its place in the merge, and the function that takes it into account."""
        for order, delete in self._deletes:
            yield order, partial(self._apply, delete, expected)

    def _apply(self, delete: BatchCommit, expected: Expected) -> None:
        kept = self._spark.read.parquet(f"{self._spec.table.kept}/deletes/{delete.query_id}")
        for number, stream in enumerate(self._spec.streams):
            if "digest" in kept.columns:
                expected.forget(number, (row[0] for row in kept.toLocalIterator()))
            elif f"{stream.name}__{ORDERING}" in kept.columns:
                expected.add(number, self._tombstones(kept, number))

    def _tombstones(self, kept: DataFrame, number: int) -> Iterator[tuple[Key, object, Cells]]:
        stream, table = self._spec.streams[number], self._spec.table
        shared = [F.expr(as_stored(name, self._spec.shared_type(name))) for name in table.shared_columns]
        name = f"{stream.name}__{ORDERING}"
        kind = next(column.type for column in stream.columns if column.name == stream.ordering)
        rows = kept.where(F.col(name).isNotNull()).select(*shared, F.expr(as_stored(name, kind)))
        for row in rows.toLocalIterator():
            *key, rank = row
            known = {stream.ordering: rank, TOMBSTONE: True}
            yield tuple(key), rank, tuple(known.get(column.name) for column in stream.stored(table))
