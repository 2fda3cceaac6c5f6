"""The way of a micro-batch: looked up on the timeline, read, checked, written, bound to the checkpoint."""

from __future__ import annotations

import dataclasses
import logging
import time
from typing import TYPE_CHECKING, Any, Final

from asynclock._shared.words import printable
from asynclock.spark.errors import BadRowsError
from asynclock.spark.results import BatchReport
from asynclock.spark.source.checkpoint import Checkpoint
from asynclock.spark.source.kafka import open_source
from asynclock.spark.writer.splice import Splice

if TYPE_CHECKING:
    import threading

    from pyspark.sql import DataFrame, SparkSession

    from asynclock import sync
    from asynclock.spark.results import Wasted
    from asynclock.spark.spec.model import Spec, StreamSpec
    from asynclock.spark.writer.account import Account

log = logging.getLogger(__name__)

_SAMPLE: Final = 500
_FEW_ROWS: Final = 1000
"""Up to this many rows, one task is faster than several with a shuffle."""


class Batches:
    """Commits the micro-batches of one stream, each once.

    Args:
        spec: The table.
        stream: The stream.
        spark: The session.
        account: Gets the columns that the spec does not name.
        stop: Ends the waits of a write when set.

    Attributes:
        source: The source of the stream.
        checkpoint: What was read of it.
        waited: Seconds that the next batch has waited for reservations.

    Raises:
        SpecError: The source, the table or the checkpoint does not fit the spec; nothing was written.
    """

    def __init__(
        self,
        spec: Spec,
        stream: StreamSpec,
        spark: SparkSession,
        account: Account,
        *,
        stop: threading.Event,
    ) -> None:
        self.source = open_source(spec, stream, spark)
        self._splice = Splice(spec, spark)
        self.checkpoint = Checkpoint(spec, stream, spark)
        self.checkpoint.refuse_damage()
        self.checkpoint.refuse_another_table(self._splice.table_id)
        self.checkpoint.refuse_another_source()
        self.waited = 0.0
        self._stream = stream
        self._spark = spark
        self._account = account
        self._stop = stop
        self._is_ahead = False
        self._tried: BatchReport | None = None
        self._wasted = self._splice.wasted  # before the next batch

    @property
    def wasted(self) -> Wasted:
        """What the conflicts of all batches have wasted."""
        return self._splice.wasted

    def begin_query(self) -> None:
        """Look up the first batches of the next query on the timeline again.

        Raises:
            SpecError: Another table is there.
        """
        self._is_ahead = False
        # A job that reserved the table, or another process that led meanwhile, may have replaced the table.
        self.checkpoint.refuse_another_table(self._splice.table_id)

    def commit(self, frame: DataFrame, batch_id: int, lease: sync.Lease, looked: float) -> BatchReport:
        """Commit a batch, unless it is on the timeline already; return what was done.

        Args:
            frame: The batch, as the source streams it.
            batch_id: Its number.
            lease: The lease of the stream.
            looked: Seconds that the looks before it have taken.
        """
        started = time.monotonic() - looked
        waited, self.waited = self.waited, 0.0
        name = self._stream.name
        done = BatchReport(stream=name, batch_id=batch_id, skipped=True, reservation_seconds=waited)
        # After the first uncommitted batch, all batches of a query are new: the write looks at the timeline.
        due = self.checkpoint.due(batch_id)
        end = self.checkpoint.end(batch_id, due)
        if self._is_ahead or not self._splice.committed(name, batch_id, offset=end):
            self._is_ahead = True
            with self.source.settled(frame, due) as batch:
                self._tell_unnamed_columns()
                done = dataclasses.replace(done, rows=batch.rows, quarantined=batch.bad, skipped=False)
                if batch.bad:
                    self._put_aside(batch.frame, batch_id, batch.bad)
                self._tried = done
                # Commit it even without a good row: otherwise the timeline would look as if the batch was
                # never read.
                events = self.source.good(batch.frame)
                if batch.rows <= _FEW_ROWS:
                    events = events.coalesce(1)
                self._splice.write(events, name, batch_id=batch_id, lease=lease, offset=end, stop=self._stop)
        elif self._tried is not None and self._tried.batch_id == batch_id:
            # An earlier attempt of this run committed the batch and failed afterwards.
            done = dataclasses.replace(self._tried, reservation_seconds=waited)
        self.checkpoint.bind(self._splice.table_id)
        wasted = self._splice.wasted - self._wasted
        seconds = time.monotonic() - started
        retries = self._account.retries
        return dataclasses.replace(done, retries=retries, wasted=wasted, seconds=seconds, look_seconds=looked)

    def note_counted(self) -> None:
        """Begin the waste of the next batch."""
        self._wasted = self._splice.wasted

    def _tell_unnamed_columns(self) -> None:
        """Warn once of each column that the files have and the spec does not name."""
        counts = self._account.counts
        known = counts.unnamed_columns
        found = tuple(name for name in self.source.unnamed_columns() if name not in known)
        if found:
            names = ", ".join(map(printable, found))
            log.warning("stream %s: the spec does not name %s of its files: left out", counts.stream, names)
            counts.unnamed_columns = known + found

    def _put_aside(self, parsed: DataFrame, batch_id: int, rows: int) -> None:
        bad, name = self.source.bad(parsed), self._stream.name
        if self._stream.on_bad_row == "fail":
            found: Any = bad.sort(*bad.columns[:-2]).first()  # by their places
            first = found.asDict()
            reason, record = first.pop("reason"), first.pop("record")
            place = ", ".join(
                str(value) if field == "file" else f"{field} {value}"
                for field, value in first.items()
                if value is not None
            )
            sample = f"{place}: {reason}" + ("" if record is None else f", in {record[:_SAMPLE]}")
            raise BadRowsError(stream=name, batch_id=batch_id, rows=rows, sample=sample)
        query_id = self._spark.sparkContext.getLocalProperty("sql.streaming.queryId")
        folder = f"{self._stream.quarantine}/query={query_id}/batch={batch_id}"
        bad.write.mode("overwrite").json(folder)  # a repeated batch overwrites it with the same rows
        log.warning("stream %s: %d bad rows of batch %d are in %s", name, rows, batch_id, folder)
