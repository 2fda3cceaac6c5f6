"""Run the streams or the services of a table, recorded and measured if that is wanted."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from typing import TYPE_CHECKING

from asynclock.spark.runs.batches import BatchRecorder
from asynclock.spark.runs.observing import observed
from asynclock.spark.runs.recording import recorded
from asynclock.spark.services.leaders import lead_services
from asynclock.spark.writer.streams import write_streams

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql import SparkSession

    from asynclock.spark.results import BatchReport, RunReport, ServiceReport, ServicesReport, StreamProgress
    from asynclock.spark.spec.model import Spec
    from asynclock.telemetry.otel import OpenTelemetry
    from asynclock.telemetry.prometheus import PrometheusMetrics


def run(
    spec: Spec,
    *,
    streams: Iterable[str] | None = None,
    once: bool = False,
    fail_fast: bool = False,
    spark: SparkSession | None = None,
    on_batch: Callable[[BatchReport], object] | None = None,
    on_report: Callable[[RunReport], object] | None = None,
    stop: threading.Event | None = None,
    run_dir: str | os.PathLike[str] | None = None,
    timeout: float | None = None,
    on_progress: Callable[[StreamProgress], object] | None = None,
    metrics: OpenTelemetry | PrometheusMetrics | None = None,
) -> RunReport:
    """Write streams into the table until the run is stopped.

    Each stream waits for its lease ``stream/<name>`` and holds it across its batches, so a second run of
    the same spec is a warm standby. On SIGINT and SIGTERM (in the main thread) and when ``stop`` is set,
    every stream finishes its batch and releases its lease; a batch that takes longer than a minute is
    cancelled, and the next run writes it.

    After a temporary error of the store, of Spark or of Hudi's commit lock, the stream tries the batch again,
    up to eight times in a row and later each time. A stream that fails for good ends alone and releases its
    lease. The others go on, and its error is raised when they have ended.

    Args:
        spec: The table, its locks and streams.
        streams: Names of the streams to write; None: all.
        once: End once every file that exists now is committed.
        fail_fast: Stop all streams as soon as one fails.
        spark: A session with Hudi and the merger; None: as ``session_for`` gives it.
        on_batch: Called after each batch, in the thread of its stream; must be quick.
        on_report: Called with the report at the end, even if a stream has failed.
        stop: Set it to end the run.
        run_dir: A folder in which this process records the run, as lines of JSON in a file of its own: events
            of the locks, batches, resources. Other processes may use the folder too. None: no record.
        timeout: Longest wait for the lease of a stream, in seconds; None: stand by without a limit.
        on_progress: Called when a stream begins, and at the start and end of each batch, in the thread of its
            stream; must be quick. It makes each batch count its files.
        metrics: Gets the metrics of the streams and of the locks, live. A thread of its own looks at the
            sources every 15 s. If it fails, a warning says so once, and the run goes on. None: no metrics.

    Raises:
        AcquireTimeoutError: Another process held the lease of a stream for longer than ``timeout``. The other
            streams were written.
        ConfigError: There is no such stream, the table was made for another spec, or nothing can be written
            into ``run_dir``. Nothing was written.
        SpecError: A source does not exist or lacks a column, or a checkpoint belongs to another table.
            Nothing was written.
        LeaseLostError: A stream's lease was lost; its jobs were cancelled, its unfinished batch is not
            committed and will be rolled back by the cleaning service.
        BadRowsError: A batch has bad rows and ``on_bad_row`` is ``fail``; nothing of it was written.
        StreamFailedError: A stream met a permanent error, or too many temporary ones in a row. If several
            streams failed, the error of the first one by the order of ``streams`` has notes on the others.
    """
    chosen = [stream.name for stream in spec.streams] if streams is None else list(dict.fromkeys(streams))
    for name in chosen:
        spec.stream(name)
    with (
        recorded(spec, run_dir, "writer", streams=chosen) as (recording, run_log),
        observed(recording, metrics, chosen) as (listening, observer),
    ):

        @contextlib.contextmanager
        def listener(spark: SparkSession) -> Iterator[Callable[[BatchReport], object] | None]:
            if run_log is None and observer is None:
                yield on_batch
                return
            with contextlib.nullcontext() if observer is None else observer.watching(spark):
                yield _both(BatchRecorder(spec, spark, run_log, observer), on_batch)

        return write_streams(
            listening,
            chosen,
            once=once,
            fail_fast=fail_fast,
            spark=spark,
            listener=listener,
            on_report=on_report,
            stop=stop or threading.Event(),
            timeout=timeout,
            on_progress=on_progress,
        )


def run_services(
    spec: Spec,
    *,
    once: bool = False,
    spark: SparkSession | None = None,
    on_event: Callable[[str], object] | None = None,
    stop: threading.Event | None = None,
    run_dir: str | os.PathLike[str] | None = None,
    timeout: float | None = None,
    metrics: OpenTelemetry | PrometheusMetrics | None = None,
) -> ServicesReport:
    """Compact, cluster and clean the table, roll back dead writers and archive, until the run is stopped.

    The services run in parallel, each while this process leads it (leases ``service/compaction``,
    ``service/clustering``, ``service/cleaning`` and, if the spec's ``[hudi]`` has a meta sync,
    ``service/sync``); services in other processes stand by. A leader that loses its lease has its Spark jobs
    cancelled; the next leader finishes its plan. A meta sync that fails is tried again later, and all other
    work goes on; its error is raised at the end, unless a later attempt has worked.

    Args:
        spec: The table, its locks and services.
        once: Do the work that is due now, and end.
        spark: A session with Hudi and the merger; None: as ``session_for`` gives it.
        on_event: Called with a sentence after each piece of work, in the thread that did it.
        stop: Set it to end the run; SIGINT and SIGTERM also set it, in the main thread.
        run_dir: A folder in which the run is recorded, as for ``run``; None: it is not.
        timeout: Longest wait for the lease of a service, in seconds; None: stand by without a limit.
        metrics: Gets the metrics of the services and of the locks, as for ``run``; None: no metrics.

    Raises:
        AcquireTimeoutError: Another process led one of the services for longer than ``timeout``.
        ConfigError: Nothing can be written into ``run_dir``. Nothing was written.
        SpecError: The services of the table run inside its writes, the table was written under other locks,
            they belong to another table, or the table of the checkpoints does not exist. Nothing was written.
        ClusteringPlanError: A table with buckets has a clustering plan, with which every write fails.
        StrayFilesError: The table has files outside its buckets, with which every write fails.
    """
    with (
        recorded(spec, run_dir, "services") as (recording, run_log),
        observed(recording, metrics) as (listening, observer),
    ):

        def work_done(done: ServiceReport) -> None:
            if run_log is not None:
                run_log.add("service", **dataclasses.asdict(done))
            if observer is not None:
                observer.take_service(done)

        return lead_services(
            listening,
            once=once,
            spark=spark,
            on_event=on_event,
            on_work=work_done,
            on_backlog=None if observer is None else observer.take_compaction_backlog,
            stop=stop or threading.Event(),
            timeout=timeout,
        )


def _both(
    first: Callable[[BatchReport], object], second: Callable[[BatchReport], object] | None
) -> Callable[[BatchReport], object]:
    def call(done: BatchReport) -> None:
        first(done)
        if second is not None:
            second(done)

    return call
