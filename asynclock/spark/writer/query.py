"""One streaming query of a stream, from its start to its end, and when it has to end."""

from __future__ import annotations

import contextlib
import logging
import time
from typing import TYPE_CHECKING, Final

from pyspark.errors import StreamingQueryException

from asynclock._shared.internals import Pace, logger
from asynclock._shared.words import printable
from asynclock.errors import AcquireTimeoutError, BackendError
from asynclock.spark.hudi.running import spread

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from asynclock.spark.spec.model import StreamSpec
    from asynclock.spark.work.worker import Worker
    from asynclock.spark.writer.account import Account
    from asynclock.spark.writer.batch import Batches
    from asynclock.spark.writer.unread import UnreadChanges

log = logging.getLogger(__name__)

# How often an idle query checks for a stop.
_STOP_SECONDS: Final = 0.5
# How often Spark looks for new files; after a batch that took longer it looks at once.
_TRIGGER: Final = "500 milliseconds"
# How long a stop waits for the running batch before cancelling it; the next run writes it again.
PATIENCE_SECONDS: Final = 60.0
# How often an endless run looks for files that changed after they were read, or that Spark skips.
_LOOK_SECONDS: Final = 600.0


class _Stopping(Exception):  # noqa: N818  ends the query, not an error
    """The batch is left to the next run."""


class _MakingWay(_Stopping):
    """The table is reserved; the batch is left to the next query."""


class Query:
    """A streaming query that passes each batch on, until it is done, stopped, or in the way of a reservation.

    Args:
        stream: The stream.
        batches: Commits its batches.
        worker: Its lease, its stop and the reservations of the table.
        account: Counts its batches.
        unread: Warns of files that are not read.
        once: End once every file or record that exists now is committed.
        look_seconds: How often to look whether the table is reserved.
    """

    def __init__(
        self,
        stream: StreamSpec,
        batches: Batches,
        worker: Worker,
        account: Account,
        unread: UnreadChanges,
        *,
        once: bool,
        look_seconds: float,
    ) -> None:
        self._stream = stream
        self._batches = batches
        self._worker = worker
        self._account = account
        self._unread = unread
        self._once = once
        self._look_seconds = look_seconds
        self._query: StreamingQuery | None = None
        self._failure: BaseException | None = None
        self._making_way = False
        self._made_way = False
        self._cut_off = False

    @property
    def has_worked(self) -> bool:
        """Whether it has finished a batch or found nothing to read."""
        return self._query is not None and self._query.lastProgress is not None

    def run(self) -> bool:
        """Run the query to its end; return whether it ended only because of a reservation."""
        writer = self._batches.source.stream().writeStream.queryName(f"asynclock {self._stream.name}")
        writer = writer.option("checkpointLocation", self._stream.checkpoint)
        writer = writer.trigger(availableNow=True) if self._once else writer.trigger(processingTime=_TRIGGER)
        self._query = query = writer.foreachBatch(self._batch).start()
        try:
            self._watch(query)
        except StreamingQueryException:
            # If a batch raises an exception in Python, Spark passes on only its text.
            if self._failure is None:
                raise
        if self._failure is not None and not isinstance(self._failure, _Stopping):
            raise self._failure
        return self._made_way or isinstance(self._failure, _MakingWay)

    def stop(self) -> None:
        """Stop it at once, if it has begun; its batch may go on in the driver."""
        if self._query is not None:
            self._query.stop()

    def _watch(self, query: StreamingQuery) -> None:
        """Wait for the end of the query, and end it when it is due."""
        worker = self._worker
        looked = reservation_looked = time.monotonic()
        idle = Pace()
        while not query.awaitTermination(_STOP_SECONDS):
            now = time.monotonic()
            if self._account.counts.batches == 0 and _is_idle(query) and idle.is_due(now):
                kafka = self._stream.kafka
                where = self._stream.source if kafka is None else kafka.name
                logger.info("stream %s: nothing to read in %s yet", self._stream.name, printable(where))
            if worker.stop.is_set() or worker.lease.lost is not None:
                self._end_batch()  # the next batch sees the stop and ends
                query.stop()
                continue
            if now - reservation_looked > self._look_seconds:
                # Also between batches: an idle stream has to park as well.
                with contextlib.suppress(BackendError):  # the next look may get an answer
                    self._making_way = self._making_way or worker.must_make_way()
                reservation_looked = now
            if self._making_way and worker.settle(0):
                query.stop()
                self._made_way = True
            if now - looked > _LOOK_SECONDS:
                self._unread.tell()
                looked = now

    def _end_batch(self) -> None:
        if self._worker.settle(PATIENCE_SECONDS):
            return
        log.warning(
            "stream %s: the batch has not ended %g s after the stop and is cancelled; the next run writes it",
            self._stream.name,
            PATIENCE_SECONDS,
        )
        self._cut_off = True
        self._worker.cancel()

    def _batch(self, frame: DataFrame, batch_id: int) -> None:
        worker = self._worker
        try:
            spread(frame.sparkSession)  # the batch's own
            with worker.piece():
                started = time.monotonic()
                self._proceed()
                self._account.tell_progress(batch_id)
                done = self._batches.commit(frame, batch_id, worker.lease, time.monotonic() - started)
        except BaseException as error:
            stopped = self._cut_off or (worker.stop.is_set() and isinstance(error, AcquireTimeoutError))
            self._failure = _Stopping() if stopped else error
            raise
        if self._stream.kafka is None and not done.skipped:
            self._account.note_files(lambda: self._batches.checkpoint.files_in(batch_id))
        if self._account.count(done):
            self._batches.note_counted()
            worker.retry.reset()
        self._account.tell_progress(None)

    def _proceed(self) -> None:
        if self._worker.stop.is_set():
            raise _Stopping
        if self._making_way or self._worker.must_make_way():
            self._making_way = True
            raise _MakingWay
        self._worker.lease.check()


def _is_idle(query: StreamingQuery) -> bool:
    """Return whether a query has looked for data and found none."""
    status = query.status
    return query.lastProgress is not None and not (status["isDataAvailable"] or status["isTriggerActive"])
