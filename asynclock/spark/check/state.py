"""The table as of an instant, for its validation: the commits up to then and their merged rows."""

from __future__ import annotations

import re
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Final

from pyspark import StorageLevel
from pyspark.sql import functions as F  # noqa: N812  the name everybody uses

from asynclock.errors import ConfigError
from asynclock.spark.hudi.instants import COMPACTED, COMPACTION
from asynclock.spark.hudi.table import Table
from asynclock.spark.hudi.time_travel import in_digits
from asynclock.spark.reader.presence import refuse_missing
from asynclock.spark.reader.snapshot import pinned_snapshot, snapshot
from asynclock.spark.spec.keys import as_stored

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

    from asynclock.spark.check.strict.expected import Cells, Key
    from asynclock.spark.hudi.changed import Statement
    from asynclock.spark.hudi.instants import BatchCommit
    from asynclock.spark.spec.model import Spec

Order = tuple[int, str]
"""Place of a commit in the order of the merge."""
FIRST: Final[Order] = (0, "")
_INSTANT: Final = re.compile(r"\d{14}(\d{3})?")


@contextmanager
def on_disk(frame: DataFrame) -> Iterator[None]:
    """Keep the rows of a frame on the disks of Spark while the context lasts."""
    frame.persist(StorageLevel.DISK_ONLY)
    try:
        # DataFrame.count aggregates, of which adaptive execution makes further jobs.
        frame._jdf.queryExecution().toRdd().count()  # noqa: SLF001
        yield
    finally:
        frame.unpersist()


class State:
    """The table as of an instant: its commits and its rows.

    Attributes:
        table: The table.
        spec: Its spec.
        spark: Its session.
        timeline: Its timeline.
        as_of: Completion time of the newest instant that counts; None if there is none.
        commits: The commits of batches up to then, in the order of completion.
        groups: The stored columns that are merged as one, with the types in which the table shows them; in a
            plain table all.
    """

    def __init__(self, spec: Spec, spark: SparkSession, as_of: str | None) -> None:
        self.table = table = Table(spec, spark)
        self.spec, self.spark = spec, spark
        self.timeline = table.timeline
        refuse_missing(table)
        times = sorted(one.completed for one in self.timeline.instants() if one.completed)
        self._times = times
        self._frame: DataFrame | None = None
        as_of = as_of and in_digits(as_of, self.timeline)
        if as_of is not None and not (times and _INSTANT.fullmatch(as_of) and times[0] <= as_of):
            first = f"the active timeline begins at {times[0]}" if times else "there is no instant yet"
            reason = f"nothing was committed by then, or it is archived: {first}"
            raise ConfigError(setting="as_of", value=as_of, reason=reason)
        self.as_of: str | None = None
        if as_of is not None and as_of < times[-1]:
            self.as_of = max(time for time in times if time <= as_of)
            self._frame = snapshot(table, as_of=self.as_of)
        elif times:
            self._frame, self.as_of = pinned_snapshot(table)
        self._plans = sorted(
            instant.requested
            for instant in self.timeline.instants()
            if instant.action in {COMPACTION, COMPACTED}
        )
        self.commits = [one for one in self.timeline.commits if one.completed <= (self.as_of or "")]
        kinds = dict(self._frame.dtypes) if self._frame is not None else {}
        self.groups = [
            [(name, kinds.get(name, kind)) for name, kind in group.items()] for group in table.layout.groups()
        ]

    @contextmanager
    def rows(self, one_key_in: int) -> Iterator[Iterator[tuple[Key, list[Cells]]]]:
        """Yield the rows, with dates and timestamps as whole numbers.

        They are on the disks of Spark while the context lasts, so that no cleaning can take their files away.
        """
        if self._frame is None:
            yield iter(())
            return
        table = self.spec.table
        shared = [
            F.expr(as_stored(name, self.spec.shared_type(name))).alias(name) for name in table.shared_columns
        ]
        cells = [F.expr(as_stored(name, kind)) for columns in self.groups for name, kind in columns]
        # Read by position, because a column may have any name.
        frame = self._frame.select(*shared, *cells)
        if one_key_in > 1:
            key = F.concat_ws("\0", *(F.col(name).cast("string") for name in table.key))
            frame = frame.where(F.crc32(key.cast("binary")) % one_key_in == 0)
        with on_disk(frame):
            yield self._read(frame)

    def _read(self, frame: DataFrame) -> Iterator[tuple[Key, list[Cells]]]:
        shared = len(self.spec.table.shared_columns)
        for row in frame.toLocalIterator(prefetchPartitions=True):
            values = iter(row)
            yield tuple(islice(values, shared)), [tuple(islice(values, len(one))) for one in self.groups]

    def order(self, commit: BatchCommit | Statement) -> Order:
        """Return the place of a commit in the order of the merge."""
        return self.table.layout.place(self._plans, commit.requested, commit.completed)

    def was_changed_by(self, commit: BatchCommit) -> bool:
        """Return whether a commit changed a value of the table; False if that can no longer be known."""
        earlier = [time for time in self._times if time < commit.completed]
        if not earlier:  # archived, for the first commit of a table is neither stale nor repeated
            return False
        try:
            before, after = (snapshot(self.table, as_of=time) for time in (earlier[-1], commit.completed))
        except ConfigError:
            return False
        changed = after.exceptAll(before)
        return not changed.isEmpty()
