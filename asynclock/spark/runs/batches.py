"""Adds the batches of a run to its log and its metrics, with the facts in their commits."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from asynclock.spark.faults import sentence
from asynclock.spark.hudi.history import History
from asynclock.spark.hudi.options.place_layer import FILE_LOCK_PROVIDER, lock_provider
from asynclock.spark.hudi.table import Table
from asynclock.spark.jvm import classes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from asynclock.spark.hudi.instants import Instant
    from asynclock.spark.results import BatchReport
    from asynclock.spark.runs.lines import RunLog
    from asynclock.spark.runs.observing import Observer
    from asynclock.spark.spec.model import Spec


log = logging.getLogger(__name__)


class BatchRecorder:
    """Takes note of each batch; call it in the thread of the batch's stream.

    Args:
        spec: The table.
        spark: The session that writes.
        run_log: Gets a line for each batch; None: no record.
        observer: Gets each batch for the metrics; None: no metrics.
    """

    def __init__(
        self, spec: Spec, spark: SparkSession, run_log: RunLog | None, observer: Observer | None
    ) -> None:
        self._spec = spec
        self._spark = spark
        self._run_log = run_log
        self._observer = observer
        self._histories: dict[str, History] = {}  # each is used by the thread of its stream only

    def __call__(self, done: BatchReport) -> None:
        """Take note of a batch."""
        waited, held = None, None
        try:
            waited, held = self._lock_use()
        except Exception as error:  # noqa: BLE001  the batch is committed, whether or not its note is whole
            self._tell_gap(done, "times of the commit lock", error)
        if self._observer is not None:
            self._observer.take_batch(done, waited)
        if self._run_log is not None:
            self._record(self._run_log, done, waited, held)

    def _record(self, run_log: RunLog, done: BatchReport, waited: float | None, held: float | None) -> None:
        instant = None
        try:
            instant = None if done.skipped else self._instant(done)
        except Exception as error:  # noqa: BLE001  as above
            self._tell_gap(done, "instant", error)
        run_log.add(
            "batch",
            stream=done.stream,
            batch=done.batch_id,
            instant=instant and instant.requested,
            token=instant and instant.token,
            rows=done.rows,
            quarantined=done.quarantined,
            skipped=done.skipped,
            seconds=round(done.seconds, 6),
            write_seconds=instant and instant.latency,
            written_bytes=instant and instant.bytes,
            look_seconds=round(done.look_seconds, 6),
            commit_lock_wait_seconds=waited,
            commit_lock_hold_seconds=held,
            reservation_seconds=round(done.reservation_seconds, 6),
            retries=done.retries,
            conflicts=done.wasted.conflicts,
            wasted_seconds=round(done.wasted.seconds, 6),
        )

    def _tell_gap(self, done: BatchReport, what: str, error: Exception) -> None:
        log.warning(
            "stream %s: what is recorded of batch %d lacks its %s: %s",
            done.stream,
            done.batch_id,
            what,
            sentence(error),
        )

    def _instant(self, done: BatchReport) -> Instant | None:
        """Return the newest commit of the batch, if the active timeline has it."""
        history = self._histories.get(done.stream)
        if history is None:
            history = self._histories[done.stream] = History(Table(self._spec, self._spark).timeline)
        found = [
            each
            for each in history.news()
            if each.stream == done.stream and each.batch == done.batch_id and each.completed
        ]
        return found[-1] if found else None

    def _lock_use(self) -> tuple[float, float]:
        """Return the times that this thread waited for the commit lock and held it since the last call."""
        jvm: Any = classes(self._spark)
        path = self._spec.table.path
        if lock_provider(path) == FILE_LOCK_PROVIDER:
            _, waited, held = jvm.io.asynclock.hudi.FileLockProvider.takeOwnUse(urlsplit(path).path)
        else:
            _, waited, held = jvm.io.asynclock.hudi.StoreLockProvider.takeOwnUse(path)
        return waited / 1e9, held / 1e9
