"""One stream: its lease, its streaming query, and the way of each micro-batch."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pyspark.errors import StreamingQueryException

from asynclock._shared.internals import Pace, logger
from asynclock._shared.words import coded, printable
from asynclock.errors import AcquireTimeoutError, AsyncLockError, BackendError
from asynclock.spark.errors import BadRowsError, StreamFailedError
from asynclock.spark.faults import is_passing, sentence
from asynclock.spark.hudi.running import spread
from asynclock.spark.hudi.table import Table
from asynclock.spark.results import BatchReport, StreamProgress, StreamReport, Wasted
from asynclock.spark.source.checkpoint import Checkpoint
from asynclock.spark.source.kafka import open_source
from asynclock.spark.work.worker import leading
from asynclock.spark.writer.splice import Splice, stream_lock

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from asynclock import sync
    from asynclock.errors import LeaseLostError
    from asynclock.spark.spec.model import Spec, StreamSpec
    from asynclock.spark.work.worker import Worker

log = logging.getLogger(__name__)

# How often an idle query checks for a stop.
_STOP_SECONDS: Final = 0.5
_SAMPLE: Final = 500
# How often Spark looks for new files; after a batch that took longer it looks at once.
_TRIGGER: Final = "500 milliseconds"
# How long a stop waits for the running batch before cancelling it; the next run writes it again.
PATIENCE_SECONDS: Final = 60.0
# How often an endless run looks for files that changed after they were read, or that Spark skips.
_LOOK_SECONDS: Final = 600.0
_CHANGED: Final = "has changed after it was read, and a file is read once: deliver what is new as a new file"
_HIDDEN: Final = "is never read, because its name begins with _ or .: rename it"


class _Stopping(Exception):  # noqa: N818  ends the query, not an error
    """The batch is left to the next run."""


class _MakingWay(_Stopping):
    """The table is reserved; the batch is left to the next query."""


@dataclasses.dataclass(kw_only=True)
class _Counts:
    """The counters behind the report of a stream; see ``StreamReport``."""

    stream: str
    batches: int = 0
    rows: int = 0
    skipped: int = 0
    quarantined: int = 0
    lock_wait_seconds: float = 0.0
    reservation_wait_seconds: float = 0.0
    seconds: float = 0.0
    fencing_token: int | None = None
    unnamed_columns: tuple[str, ...] = ()
    retries: int = 0
    wasted: Wasted = dataclasses.field(default_factory=Wasted)
    error: str | None = None

    def report(self) -> StreamReport:
        return StreamReport(**vars(self))


class StreamWriter:
    """Writes one stream from its source to the table; run ``work`` in a thread of its own.

    Args:
        spec: The table and its locks.
        stream: The stream to write.
        spark: The session, shared by all stream writers of a run.
        client: The locks.
        stop: Ends this writer when set.
        fail_fast: Set ``stop`` when this writer fails, which ends the others too.
        once: End once every file or record that exists now is committed.
        on_batch: Called after each batch.
        timeout: Longest wait for the lease, in seconds; None: no limit.
        on_progress: Called when the stream begins, and at the start and end of each batch.

    Attributes:
        name: Name of the stream.
        error: The error that ended the writer; None if it ended well.

    Raises:
        SpecError: The source, the table or the checkpoint does not fit the spec; nothing was written.
    """

    def __init__(
        self,
        spec: Spec,
        stream: StreamSpec,
        spark: SparkSession,
        client: sync.LockClient,
        *,
        stop: threading.Event,
        fail_fast: bool,
        once: bool,
        on_batch: Callable[[BatchReport], object] | None,
        timeout: float | None = None,
        on_progress: Callable[[StreamProgress], object] | None = None,
    ) -> None:
        self.name = stream.name
        self._counts = _Counts(stream=stream.name)
        self.error: BaseException | None = None
        self._spec = spec
        self._stream = stream
        self._spark = spark
        self._client = client
        self._stop = stop
        self._fail_fast = fail_fast
        self._once = once
        self._on_batch = on_batch
        self._timeout = timeout
        self._on_progress = on_progress
        self._files: int | None = None
        self._files_done = 0
        self._began = time.monotonic()
        self._source = open_source(spec, stream, spark)
        self._splice = Splice(spec, spark)
        self._checkpoint = Checkpoint(spec, stream, spark)
        self._checkpoint.refuse_damage()
        self._checkpoint.refuse_another_table(self._splice.table_id)
        self._checkpoint.refuse_another_source()
        self._reported: set[str] = set()
        self._cut_off = False
        self._making_way = False
        self._is_ahead = False
        self._waited = 0.0
        self._query: StreamingQuery | None = None
        self._failure: BaseException | None = None
        self._retries = 0
        self._tried: BatchReport | None = None
        self._counted = -1
        self._wasted = self._splice.wasted  # before the next batch

    @property
    def report(self) -> StreamReport:
        """The work done so far."""
        return self._counts.report()

    def work(self) -> None:
        """Wait for the lease, write the stream, release; ``error`` then has the outcome."""
        try:
            self._lead()
        except BaseException as error:  # noqa: BLE001  handed to the thread that waits for this one
            self.error = error  # the next calls ask the JVM, which may have ended
            self.error = self._named(error)
            self._counts.error = sentence(error)
            log.error("stream %s has failed and ended: %s", self.name, self._counts.error)  # noqa: TRY400  raised by the run
            if self._fail_fast:
                self._stop.set()

    def _lead(self) -> None:
        started, name = time.monotonic(), f"stream {self.name}"
        lock, stop = stream_lock(self.name), self._stop
        with leading(
            Table(self._spec, self._spark), self._client, lock, name, stop=stop, timeout=self._timeout
        ) as worker:
            if worker is None:
                return
            self._counts.lock_wait_seconds = waited = time.monotonic() - started
            self._counts.fencing_token = token = worker.lease.fencing_token
            log.info("stream %s: lease %d held after %.1f s", self.name, token, waited)
            self._write(worker)
        if self._once and not stop.is_set():
            self._tell_unread_changes()

    def _named(self, error: BaseException) -> BaseException:
        """Return the error with the name of the stream, and without the JVM's long stack trace."""
        if isinstance(error, AsyncLockError) or not isinstance(error, Exception):
            return error
        named = StreamFailedError(stream=self.name, reason=sentence(error), passing=is_passing(error))
        named.__cause__ = error
        return named

    def _write(self, worker: Worker) -> None:
        self._began = started = time.monotonic()
        if self._on_progress is not None and self._once and self._stream.kafka is None:
            self._files = self._checkpoint.unread()
        self._tell_progress(None)
        worker.lease.on_lost(partial(self._abandon, worker))
        try:
            worker.repeat(partial(self._attempt, worker), partial(self._tell_retry, worker))
        finally:
            # A stopped query counts as ended while its batch is still running.
            worker.settle()
            self._counts.wasted = self._splice.wasted
            self._counts.seconds = time.monotonic() - started
        if worker.lease.lost is not None:
            raise worker.lease.lost

    def _attempt(self, worker: Worker) -> float | None:
        """Run a query to its end; return 0.0 to run another, after a reservation; None: the stream is done.

        The next query goes on as after a crash: with the first batch that its checkpoint does not have. If
        that batch is on the timeline, it is skipped, because an attempt may fail after its commit.
        """
        if not self._pass(worker):
            return None
        try:
            return 0.0 if self._run_query(worker) else None
        finally:
            if self._query is not None and self._query.lastProgress is not None:
                worker.retry.reset()  # it has worked since the last failure

    def _tell_retry(self, worker: Worker, error: Exception, seconds: float) -> None:
        self._retries += 1
        self._counts.retries += 1
        again = f"retry {worker.retry.count} of {worker.retry.most} in {seconds:.1f} s"
        log.warning(coded(f"stream {self.name}: {sentence(error)}; {again}", None))

    def _pass(self, worker: Worker) -> bool:
        """Wait while the table is reserved, then look at the table again; return whether to go on."""
        self._query = None
        waited = worker.admit()
        self._waited += waited
        self._counts.reservation_wait_seconds += waited
        if self._stop.is_set():
            return False
        self._making_way = self._is_ahead = False
        self._failure = None
        # The reserving job, or another process that led meanwhile, may have replaced the table.
        self._checkpoint.refuse_another_table(self._splice.table_id)
        return True

    def _run_query(self, worker: Worker) -> bool:
        """Run a query to its end; return whether it ended only because of a reservation."""
        writer = self._source.stream().writeStream.queryName(f"asynclock {self.name}")
        writer = writer.option("checkpointLocation", self._stream.checkpoint)
        writer = writer.trigger(availableNow=True) if self._once else writer.trigger(processingTime=_TRIGGER)
        batches = writer.foreachBatch(lambda frame, batch_id: self._batch(frame, batch_id, worker))
        self._query = query = batches.start()
        made_way = False
        looked = reservation_looked = time.monotonic()
        idle = Pace()
        try:
            while not query.awaitTermination(_STOP_SECONDS):
                now = time.monotonic()
                if self._counts.batches == 0 and _is_idle(query) and idle.is_due(now):
                    kafka = self._stream.kafka
                    where = self._stream.source if kafka is None else kafka.name
                    logger.info("stream %s: nothing to read in %s yet", self.name, printable(where))
                if self._stop.is_set() or worker.lease.lost is not None:
                    self._end_batch(worker)  # the next batch sees the stop and ends
                    query.stop()
                    continue
                if now - reservation_looked > self._spec.locks.settings.poll_interval:
                    # Also between batches: an idle stream has to park as well.
                    with contextlib.suppress(BackendError):  # the next look may get an answer
                        self._making_way = self._making_way or worker.must_make_way()
                    reservation_looked = now
                if self._making_way and worker.settle(0):
                    query.stop()
                    made_way = True
                if now - looked > _LOOK_SECONDS:
                    self._tell_unread_changes()
                    looked = now
        except StreamingQueryException:
            # If a batch raises an exception in Python, Spark passes on only its text.
            if self._failure is None:
                raise
        if self._failure is not None and not isinstance(self._failure, _Stopping):
            raise self._failure
        return made_way or isinstance(self._failure, _MakingWay)

    def _end_batch(self, worker: Worker) -> None:
        if worker.settle(PATIENCE_SECONDS):
            return
        log.warning(
            "stream %s: the batch has not ended %g s after the stop and is cancelled; the next run writes it",
            self.name,
            PATIENCE_SECONDS,
        )
        self._cut_off = True
        worker.cancel()

    def _tell_unread_changes(self) -> None:
        """Warn once of each file that Spark will not read, or not read again."""
        try:
            found = self._checkpoint.unread_changes()
        except Exception:  # a failed look is no reason to stop
            log.warning("stream %s: cannot look over the source", self.name, exc_info=True)
            return
        for files, what in ((found.changed, _CHANGED), (found.hidden, _HIDDEN)):
            for file in files:
                if file not in self._reported:
                    log.warning("stream %s: %s %s", self.name, file, what)
        self._reported.update(found.changed, found.hidden)

    def _tell_unnamed_columns(self) -> None:
        """Warn once of each column that the files have and the spec does not name."""
        known = self._counts.unnamed_columns
        found = tuple(name for name in self._source.unnamed_columns() if name not in known)
        if found:
            names = ", ".join(map(printable, found))
            log.warning("stream %s: the spec does not name %s of its files: left out", self.name, names)
            self._counts.unnamed_columns = known + found

    def _abandon(self, worker: Worker, loss: LeaseLostError) -> None:
        """Stop at once, because another writer may have started."""
        log.error("stream %s: %s", self.name, loss)
        # The jobs first: query.stop() only interrupts the driver, which Hudi may ignore.
        worker.cancel()
        if self._query is not None:
            self._query.stop()

    def _batch(self, frame: DataFrame, batch_id: int, worker: Worker) -> None:
        try:
            spread(frame.sparkSession)  # the batch's own
            with worker.piece():
                started = time.monotonic()
                self._proceed(worker)
                self._tell_progress(batch_id)
                done = self._commit(frame, batch_id, worker.lease, time.monotonic() - started)
        except BaseException as error:
            stopped = self._cut_off or (self._stop.is_set() and isinstance(error, AcquireTimeoutError))
            self._failure = _Stopping() if stopped else error
            raise
        if self._on_progress is not None and self._stream.kafka is None and not done.skipped:
            self._files_done += self._checkpoint.files_in(batch_id)
        self._count(done, worker)
        self._tell_progress(None)

    def _proceed(self, worker: Worker) -> None:
        if self._stop.is_set():
            raise _Stopping
        if self._making_way or worker.must_make_way():
            self._making_way = True
            raise _MakingWay
        worker.lease.check()

    def _commit(self, frame: DataFrame, batch_id: int, lease: sync.Lease, looked: float) -> BatchReport:
        started = time.monotonic() - looked
        waited, self._waited = self._waited, 0.0
        done = BatchReport(stream=self.name, batch_id=batch_id, skipped=True, reservation_seconds=waited)
        # After the first uncommitted batch, all batches of a query are new: the write looks at the timeline.
        end = self._checkpoint.end(batch_id)
        if self._is_ahead or not self._splice.committed(self.name, batch_id, offset=end):
            self._is_ahead = True
            with self._source.settled(frame, self._checkpoint.due(batch_id)) as batch:
                self._tell_unnamed_columns()
                done = dataclasses.replace(done, rows=batch.rows, quarantined=batch.bad, skipped=False)
                if batch.bad:
                    self._put_aside(batch.frame, batch_id, batch.bad)
                self._tried = done
                # Commit it even without a good row: otherwise the timeline would look as if the batch was
                # never read.
                events = self._source.good(batch.frame)
                self._splice.write(
                    events, self.name, batch_id=batch_id, lease=lease, offset=end, stop=self._stop
                )
        elif self._tried is not None and self._tried.batch_id == batch_id:
            # An earlier attempt of this run committed the batch and failed afterwards.
            done = dataclasses.replace(self._tried, reservation_seconds=waited)
        self._checkpoint.bind(self._splice.table_id)
        wasted = self._splice.wasted - self._wasted
        seconds = time.monotonic() - started
        return dataclasses.replace(
            done, retries=self._retries, wasted=wasted, seconds=seconds, look_seconds=looked
        )

    def _tell_progress(self, batch_id: int | None) -> None:
        if self._on_progress is not None:
            self._on_progress(
                StreamProgress(
                    stream=self.name,
                    files=self._files,
                    files_done=self._files_done,
                    rows=self._counts.rows,
                    seconds=time.monotonic() - self._began,
                    batch_id=batch_id,
                )
            )

    def _put_aside(self, parsed: DataFrame, batch_id: int, rows: int) -> None:
        bad = self._source.bad(parsed)
        if self._stream.on_bad_row == "fail":
            found: Any = bad.sort(*bad.columns[:-2]).first()  # by their places
            first = found.asDict()
            reason, record = first.pop("reason"), first.pop("record")
            place = ", ".join(
                str(value) if name == "file" else f"{name} {value}"
                for name, value in first.items()
                if value is not None
            )
            sample = f"{place}: {reason}" + ("" if record is None else f", in {record[:_SAMPLE]}")
            raise BadRowsError(stream=self.name, batch_id=batch_id, rows=rows, sample=sample)
        query_id = self._spark.sparkContext.getLocalProperty("sql.streaming.queryId")
        folder = f"{self._stream.quarantine}/query={query_id}/batch={batch_id}"
        bad.write.mode("overwrite").json(folder)  # a repeated batch overwrites it with the same rows
        log.warning("stream %s: %d bad rows of batch %d are in %s", self.name, rows, batch_id, folder)

    def _count(self, done: BatchReport, worker: Worker) -> None:
        if done.skipped is False and done.batch_id == self._counted:
            return  # it is on the timeline, but Spark failed to note that; so this is not progress
        self._counted = done.batch_id
        self._retries = 0
        self._wasted = self._splice.wasted
        worker.retry.reset()
        self._counts.batches += 1
        self._counts.rows += done.rows
        self._counts.skipped += done.skipped
        self._counts.quarantined += done.quarantined
        log.info(
            "stream %s: batch %d, %d rows in %.1f s%s",
            self.name,
            done.batch_id,
            done.rows,
            done.seconds,
            ", committed before" if done.skipped else "",
        )
        if self._on_batch is not None:
            self._on_batch(done)


def _is_idle(query: StreamingQuery) -> bool:
    """Return whether a query has looked for data and found none."""
    status = query.status
    return query.lastProgress is not None and not (status["isDataAvailable"] or status["isTriggerActive"])
