"""The deletes on the timeline, as events among those of the sources."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812  the name everybody uses

from asynclock.spark.hudi.instants import COMPACTED, COMPACTION, DELETES, BatchCommit
from asynclock.spark.spec.keys import as_stored
from asynclock.spark.spec.model import ORDERING, TOMBSTONE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from asynclock.spark.hudi.timeline import Timeline
    from asynclock.spark.reader.second_reader.expected import Cells, Expected, Key
    from asynclock.spark.spec.model import Spec


class Deletes:
    """The deletes of a table.

    Args:
        spec: The table.
        spark: A session.
        timeline: Its timeline.
        commits: The commits that count.
    """

    def __init__(
        self, spec: Spec, spark: SparkSession, timeline: Timeline, commits: Sequence[BatchCommit]
    ) -> None:
        self._spec = spec
        self._spark = spark
        deletes = [commit for commit in commits if commit.stream == DELETES]
        self._deletes = sorted(deletes, key=lambda commit: commit.requested)
        self._batches = {commit.batch: commit for commit in commits}
        self._plans = sorted(
            instant.requested for instant in timeline.instants() if instant.action in {COMPACTION, COMPACTED}
        )

    def of(self, number: int, query_id: str | None) -> StreamDeletes:
        """Return the deletes as one stream, by its place in the spec and its query, meets them."""
        name = self._spec.streams[number].name
        batches = [
            commit
            for (stream, query, _), commit in self._batches.items()
            if stream == name and query == query_id
        ]
        return StreamDeletes(self, number, sorted(batches, key=lambda commit: commit.batch_id))

    def due(self, batches: list[BatchCommit]) -> list[tuple[int | None, BatchCommit]]:
        """Return each delete with the first batch that the merge takes for later; None: none is."""
        return [
            (next((batch.batch_id for batch in batches if self._is_first(delete, batch)), None), delete)
            for delete in self._deletes
        ]

    def _is_first(self, one: BatchCommit, other: BatchCommit) -> bool:
        """Return whether the merge takes ``one`` for earlier.

        Of commits to the logs of one base file the one that was requested earlier is, even if both ran at
        once. But a commit that was complete when a compaction was planned is in the new base file or below
        it, and one that was not is above.
        """
        for plan in self._plans:
            if (one.completed < plan) != (other.completed < plan):
                return one.completed < plan
        return one.requested < other.requested

    def apply(self, delete: BatchCommit, number: int, expected: Expected) -> None:
        """Take a delete into account for one stream."""
        kept = self._spark.read.parquet(f"{self._spec.table.kept}/deletes/{delete.query_id}")
        stream = self._spec.streams[number]
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


class StreamDeletes:
    """The deletes that one stream has yet to meet; see ``Deletes.of``."""

    def __init__(self, deletes: Deletes, number: int, batches: list[BatchCommit]) -> None:
        self._deletes = deletes
        self._number = number
        self._newest = batches[-1].batch_id if batches else -1
        due = deletes.due(batches)
        # Each once, in the merge's order; those after every batch come last.
        self._due = [one for one in due if one[0] is not None]
        self._last = [one for one in due if one[0] is None]
        self._due.sort(key=lambda one: (one[0] or 0, one[1].requested))

    def before(self, batch: int | None, expected: Expected) -> None:
        """Take into account the deletes that come before a batch; None: those that are left."""
        if batch is None or batch > self._newest:  # not committed, so later than every delete
            for _, delete in chain(self._due, self._last):
                self._deletes.apply(delete, self._number, expected)
            self._due, self._last = [], []
        while self._due and (self._due[0][0] or 0) <= (batch or 0):
            self._deletes.apply(self._due.pop(0)[1], self._number, expected)
