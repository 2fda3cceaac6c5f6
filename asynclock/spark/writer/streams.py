"""Write streams of files into the splice table, batch by batch, each stream under its own lease."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING

from asynclock.spark.hudi.own import own_session
from asynclock.spark.hudi.running import session_for
from asynclock.spark.report import RunReport
from asynclock.spark.run_log.recording import recorded
from asynclock.spark.work.threads import side_by_side, stopped_by_signals
from asynclock.spark.writer.recorder import BatchRecorder
from asynclock.spark.writer.stream_writer import StreamWriter

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable

    from pyspark.sql import SparkSession

    from asynclock.spark.report import BatchReport, StreamProgress
    from asynclock.spark.run_log.lines import RunLog
    from asynclock.spark.spec.model import Spec


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
) -> RunReport:
    """Write streams into the table until the run is stopped.

    Each stream waits for its lease ``stream/<name>`` and holds it across its batches, so a second run of
    the same spec is a warm standby. On SIGINT and SIGTERM (in the main thread) and when ``stop`` is set,
    every stream finishes its batch and releases its lease; a batch that takes longer than a minute is
    cancelled, and the next run writes it.

    An error of the store, of Spark or of Hudi's commit lock that passes by itself is met with another
    attempt at the batch, up to eight times in a row and later each time. A stream that fails for good ends
    alone and releases its lease; the others go on, and its error is raised when they have ended.

    Args:
        spec: The table, its locks and streams.
        streams: Names of the streams to write; None: all.
        once: End once every file that exists now is committed.
        fail_fast: Stop all streams as soon as one fails.
        spark: A session with Hudi and the merger; None: as ``session_for`` gives it.
        on_batch: Called after each batch, in the thread of its stream; must be quick.
        on_report: Called with the report at the end, also where a stream has failed.
        stop: Set it to end the run.
        run_dir: A folder in which this process records the run, as lines of JSON in a file of its own:
            events of the locks, batches, resources. Other processes may use the folder too. None: it is
            not recorded.
        timeout: Longest wait for the lease of a stream, in seconds; None: stand by without a limit.
        on_progress: Called when a stream begins, and at the start and end of each batch, in the thread of its
            stream; must be quick. It makes each batch count its files.

    Raises:
        AcquireTimeoutError: Another process held the lease of a stream for longer than ``timeout``. The other
            streams were written.
        ConfigError: There is no such stream, the table was made for another spec, or nothing can be written
            into ``run_dir``. Nothing was written.
        SpecError: A source does not exist or lacks a column, or a checkpoint belongs to another table.
            Nothing was written.
        LeaseLostError: A stream's lease was lost; its jobs were cancelled, its unfinished batch is not
            committed and will be rolled back by the cleaning service.
        BadRowsError: A batch has bad rows where ``on_bad_row`` is ``fail``; nothing of it was written.
        StreamFailedError: A stream met an error that does not pass, or too many in a row. If several
            streams failed, the error of the first one by the order of ``streams`` has notes on the others.
    """
    chosen = [stream.name for stream in spec.streams] if streams is None else list(dict.fromkeys(streams))
    for name in chosen:
        spec.stream(name)
    with recorded(spec, run_dir, "writer", streams=chosen) as (listening, run_log):
        return _run(
            listening,
            chosen,
            run_log,
            once=once,
            fail_fast=fail_fast,
            spark=spark,
            on_batch=on_batch,
            on_report=on_report,
            stop=stop or threading.Event(),
            timeout=timeout,
            on_progress=on_progress,
        )


def _run(
    spec: Spec,
    chosen: list[str],
    run_log: RunLog | None,
    *,
    once: bool,
    fail_fast: bool,
    spark: SparkSession | None,
    on_batch: Callable[[BatchReport], object] | None,
    on_report: Callable[[RunReport], object] | None,
    stop: threading.Event,
    timeout: float | None,
    on_progress: Callable[[StreamProgress], object] | None,
) -> RunReport:
    started = time.monotonic()
    with contextlib.ExitStack() as resources:
        client = resources.enter_context(spec.locks.connect())
        app = f"asynclock {' '.join(chosen)}"
        spark = own_session(resources.enter_context(session_for(spec, app, spark=spark)))
        resources.enter_context(stopped_by_signals(stop))
        if run_log is not None:
            on_batch = _both(BatchRecorder(spec, spark, run_log), on_batch)
        writers = [
            StreamWriter(
                spec,
                spec.stream(name),
                spark,
                client,
                stop=stop,
                fail_fast=fail_fast,
                once=once,
                on_batch=on_batch,
                timeout=timeout,
                on_progress=on_progress,
            )
            for name in chosen
        ]
        side_by_side({f"stream-{writer.name}": writer.work for writer in writers})
    report = RunReport(streams=tuple(writer.report for writer in writers), seconds=time.monotonic() - started)
    if on_report is not None:
        on_report(report)
    errors = [writer.error for writer in writers if writer.error is not None]
    for error in errors[1:]:
        errors[0].add_note(f"another stream of this run failed as well: {error}")
    if errors:
        raise errors[0]
    return report


def _both(
    first: Callable[[BatchReport], object], second: Callable[[BatchReport], object] | None
) -> Callable[[BatchReport], object]:
    def call(done: BatchReport) -> None:
        first(done)
        if second is not None:
            second(done)

    return call
