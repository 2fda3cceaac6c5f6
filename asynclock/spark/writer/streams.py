"""Write streams of files into the splice table, batch by batch, each stream under its own lease."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

from asynclock.spark.hudi.own import own_session
from asynclock.spark.hudi.running import session_for
from asynclock.spark.results import RunReport
from asynclock.spark.work.threads import side_by_side, stopped_by_signals
from asynclock.spark.writer.stream_writer import StreamWriter

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from pyspark.sql import SparkSession

    from asynclock.spark.results import BatchReport, StreamProgress
    from asynclock.spark.spec.model import Spec


def write_streams(
    spec: Spec,
    chosen: Sequence[str],
    *,
    once: bool,
    fail_fast: bool,
    spark: SparkSession | None,
    listener: Callable[[SparkSession], AbstractContextManager[Callable[[BatchReport], object] | None]],
    on_report: Callable[[RunReport], object] | None,
    stop: threading.Event,
    timeout: float | None,
    on_progress: Callable[[StreamProgress], object] | None,
) -> RunReport:
    """Write the ``chosen`` streams until the run is stopped.

    Works as ``asynclock.spark.run``, except for ``listener``: it is called with the writing session, and
    returns a context manager that gives the callback for each batch and ends before the session does.
    """
    started = time.monotonic()
    with contextlib.ExitStack() as resources:
        client = resources.enter_context(spec.locks.connect())
        app = f"asynclock {' '.join(chosen)}"
        spark = own_session(resources.enter_context(session_for(spec, app, spark=spark)))
        resources.enter_context(stopped_by_signals(stop))
        on_batch = resources.enter_context(listener(spark))
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
