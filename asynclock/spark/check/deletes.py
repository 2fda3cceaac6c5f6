"""The deletes on the timeline, as events among those of the sources."""

from __future__ import annotations

from functools import partial
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812  the name everybody uses

from asynclock.spark.check.strict.expected import rank_among
from asynclock.spark.hudi.instants import DELETES
from asynclock.spark.spec.keys import as_stored

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame

    from asynclock.spark.check.state import Order, State
    from asynclock.spark.check.strict.expected import Cells, Expected, Key
    from asynclock.spark.hudi.instants import BatchCommit
    from asynclock.spark.spec.column_groups import ColumnGroup


class Deletes:
    """The deletes of a table.

    Args:
        table: The table as of an instant.
    """

    def __init__(self, table: State) -> None:
        self._spec = table.spec
        self._spark = table.spark
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
        for number, group in enumerate(self._spec.column_groups()):
            if "digest" in kept.columns:
                expected.forget(number, (row[0] for row in kept.toLocalIterator()))
            elif group.has_tombstone and set(group.stored_orderings) <= set(kept.columns):
                expected.add(number, self._tombstones(kept, group))

    def _tombstones(self, kept: DataFrame, group: ColumnGroup) -> Iterator[tuple[Key, object, Cells]]:
        shared_columns = self._spec.table.shared_columns
        shared = [F.expr(as_stored(name, self._spec.shared_type(name))) for name in shared_columns]
        names = group.stored_orderings
        ordering = [
            F.expr(as_stored(name, column.type)) for name, column in zip(names, group.orderings, strict=True)
        ]
        rows = kept.where(F.col(names[0]).isNotNull()).select(*shared, *ordering)
        for row in rows.toLocalIterator():
            values = iter(row)
            key = tuple(islice(values, len(shared)))
            known = {**dict(zip(names, values, strict=True)), group.stored_tombstone: True}
            cells = tuple(map(known.get, group.stored()))
            yield key, rank_among(cells, map(list(group.stored()).index, names)), cells
