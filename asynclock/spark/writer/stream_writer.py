"""One stream: its lease, and its queries, one after the other, until it is done or has failed."""

from __future__ import annotations

import logging
import time
from functools import partial
from typing import TYPE_CHECKING

from asynclock._shared.words import coded
from asynclock.errors import AsyncLockError
from asynclock.spark.errors import StreamFailedError
from asynclock.spark.faults import is_passing, sentence
from asynclock.spark.hudi.table import Table
from asynclock.spark.work.worker import leading
from asynclock.spark.writer.account import Account
from asynclock.spark.writer.batch import Batches
from asynclock.spark.writer.query import Query
from asynclock.spark.writer.splice import stream_lock
from asynclock.spark.writer.unread import UnreadChanges

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from asynclock import sync
    from asynclock.errors import LeaseLostError
    from asynclock.spark.results import BatchReport, StreamProgress, StreamReport
    from asynclock.spark.spec.model import Spec, StreamSpec
    from asynclock.spark.work.worker import Worker

log = logging.getLogger(__name__)


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
        self.error: BaseException | None = None
        self._stream = stream
        self._client = client
        self._stop = stop
        self._fail_fast = fail_fast
        self._once = once
        self._timeout = timeout
        self._account = Account(stream.name, on_batch=on_batch, on_progress=on_progress)
        self._batches = Batches(spec, stream, spark, self._account, stop=stop)
        self._unread = UnreadChanges(stream.name, self._batches.checkpoint)
        self._table = Table(spec, spark)
        self._query: Query | None = None

    @property
    def name(self) -> str:
        """Name of the stream."""
        return self._stream.name

    @property
    def report(self) -> StreamReport:
        """The work done so far."""
        return self._account.counts.report()

    def work(self) -> None:
        """Wait for the lease, write the stream, release; ``error`` then has the outcome."""
        try:
            self._lead()
        except BaseException as error:  # noqa: BLE001  handed to the thread that waits for this one
            self.error = error  # the next calls ask the JVM, which may have ended
            self.error = self._named(error)
            self._account.counts.error = said = sentence(error)
            log.error("stream %s has failed and ended: %s", self.name, said)  # noqa: TRY400  raised by the run
            if self._fail_fast:
                self._stop.set()

    def _lead(self) -> None:
        started, counts = time.monotonic(), self._account.counts
        lock, name, stop = stream_lock(self.name), f"stream {self.name}", self._stop
        with leading(self._table, self._client, lock, name, stop=stop, timeout=self._timeout) as worker:
            if worker is None:
                return
            counts.lock_wait_seconds = waited = time.monotonic() - started
            counts.fencing_token = token = worker.lease.fencing_token
            log.info("stream %s: lease %d held after %.1f s", self.name, token, waited)
            self._write(worker)
        if self._once and not stop.is_set():
            self._unread.tell()

    def _named(self, error: BaseException) -> BaseException:
        """Return the error with the name of the stream, and without the JVM's long stack trace."""
        if isinstance(error, AsyncLockError) or not isinstance(error, Exception):
            return error
        named = StreamFailedError(stream=self.name, reason=sentence(error), passing=is_passing(error))
        named.__cause__ = error
        return named

    def _write(self, worker: Worker) -> None:
        files = self._batches.checkpoint.unread if self._once and self._stream.kafka is None else None
        self._account.begin(files)
        worker.lease.on_lost(partial(self._abandon, worker))
        try:
            worker.repeat(partial(self._attempt, worker), partial(self._tell_retry, worker))
        finally:
            # A stopped query counts as ended while its batch is still running.
            worker.settle()
            self._account.end(self._batches.wasted)
        if worker.lease.lost is not None:
            raise worker.lease.lost

    def _attempt(self, worker: Worker) -> float | None:
        """Run a query to its end; return 0.0 to run another, after a reservation; None: the stream is done.

        The next query goes on as after a crash: with the first batch that its checkpoint does not have. If
        that batch is on the timeline, it is skipped, because an attempt may fail after its commit.
        """
        if not self._pass(worker):
            return None
        self._query = query = Query(
            self._stream,
            self._batches,
            worker,
            self._account,
            self._unread,
            once=self._once,
            look_seconds=self._table.spec.locks.settings.poll_interval,
        )
        try:
            return 0.0 if query.run() else None
        finally:
            if query.has_worked:
                worker.retry.reset()  # it has worked since the last failure

    def _tell_retry(self, worker: Worker, error: Exception, seconds: float) -> None:
        self._account.note_retry()
        again = f"retry {worker.retry.count} of {worker.retry.most} in {seconds:.1f} s"
        log.warning(coded(f"stream {self.name}: {sentence(error)}; {again}", None))

    def _pass(self, worker: Worker) -> bool:
        """Wait while the table is reserved, then look at the table again; return whether to go on."""
        self._query = None
        waited = worker.admit()
        self._batches.waited += waited
        self._account.counts.reservation_wait_seconds += waited
        if self._stop.is_set():
            return False
        self._batches.begin_query()
        return True

    def _abandon(self, worker: Worker, loss: LeaseLostError) -> None:
        """Stop at once, because another writer may have started."""
        log.error("stream %s: %s", self.name, loss)
        # The jobs first: query.stop() only interrupts the driver, which Hudi may ignore.
        worker.cancel()
        if self._query is not None:
            self._query.stop()
