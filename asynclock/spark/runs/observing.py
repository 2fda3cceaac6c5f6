"""Passes the measurements of a run on to metrics. Their failure is logged once and never stops the run."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import threading
from typing import TYPE_CHECKING, Final

from asynclock._shared.words import Code, coded
from asynclock.spark.faults import sentence
from asynclock.spark.hudi.options.table_layer import folder_name
from asynclock.spark.runs.instruments import PipelineSignals
from asynclock.spark.source.backlog import BacklogLook
from asynclock.spark.spec.lock_settings import heard_by
from asynclock.spark.writer.splice import stream_lock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pyspark.sql import SparkSession

    from asynclock._shared.internals import Measurement
    from asynclock.events import Event
    from asynclock.spark.results import Backlog, BatchReport, ServiceReport
    from asynclock.spark.spec.model import Spec
    from asynclock.telemetry.otel import OpenTelemetry
    from asynclock.telemetry.prometheus import PrometheusMetrics

    Metrics = OpenTelemetry | PrometheusMetrics

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 15.0
# How long the end of a run waits for a look at a source.
_PATIENCE_SECONDS: Final = 10.0
_FAILED: Final = "the metrics of the run have failed: they lack what follows; the run goes on; said once"


class Observer:
    """Adds the reports of a run to metrics, from any thread. It raises nothing.

    Args:
        metrics: The metrics.
        spec: The table.
        streams: The streams that this process writes.
    """

    def __init__(self, metrics: Metrics, spec: Spec, streams: Sequence[str] = ()) -> None:
        self._metrics = metrics
        self._spec = spec
        self._streams = streams
        self._signals = PipelineSignals(
            folder_name(spec.table.path), {stream_lock(name): name for name in streams}
        )
        self._said: set[str] = set()
        self._add(self._signals.of_start)

    def hear(self, event: Event) -> None:
        """Add an event of a lock."""
        with self._kept_from_the_run():
            self._metrics(event)
        self._add(lambda: self._signals.of_event(event))

    def take_batch(self, done: BatchReport, commit_lock_seconds: float | None) -> None:
        """Add a batch, and its wait for the commit lock, if that is known."""
        self._add(lambda: self._signals.of_batch(done, commit_lock_seconds))

    def take_service(self, done: ServiceReport) -> None:
        """Add a piece of work of a service."""
        self._add(lambda: self._signals.of_service(done))

    def take_compaction_backlog(self, commits: int) -> None:
        """Add the number of commits since the last compaction."""
        self._add(lambda: self._signals.of_compaction_backlog(commits))

    @contextlib.contextmanager
    def watching(self, spark: SparkSession) -> Iterator[None]:
        """Look at the sources in a thread of its own: at once, during the body, and at its end.

        Args:
            spark: The session that writes.
        """
        ended = threading.Event()
        looks = {name: BacklogLook(self._spec, self._spec.stream(name), spark) for name in self._streams}

        def look_at_all() -> None:
            for name, look in looks.items():
                self._look(name, look)

        def watch() -> None:
            look_at_all()
            while not ended.wait(LOOK_SECONDS):
                look_at_all()
            look_at_all()

        thread = threading.Thread(target=watch, name="pipeline-backlog", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join(_PATIENCE_SECONDS)

    def _look(self, stream: str, look: Callable[[], Backlog]) -> None:
        try:
            found = look()
        except Exception as error:  # noqa: BLE001  said once; the next look may work
            what = f"stream {stream}: a look at its backlog failed"
            if self._is_new(what):
                log.warning("%s: %s; the metrics lack it until a look works", what, sentence(error))
        else:
            self._add(lambda: self._signals.of_backlog(found))

    def _add(self, measure: Callable[[], Iterable[Measurement]]) -> None:
        with self._kept_from_the_run():
            self._metrics.add(measure())

    @contextlib.contextmanager
    def _kept_from_the_run(self) -> Iterator[None]:
        try:
            yield
        except Exception:  # said once, and no reason to stop a commit
            if self._is_new(_FAILED):
                log.warning(coded(_FAILED, Code.CALLBACK_FAILED), exc_info=True)

    def _is_new(self, what: str) -> bool:
        known = what in self._said
        self._said.add(what)
        return not known


@contextlib.contextmanager
def observed(
    spec: Spec, metrics: Metrics | None, streams: Sequence[str] = ()
) -> Iterator[tuple[Spec, Observer | None]]:
    """Yield the observer of a run, and the spec to use in the body: the observer hears its locks."""
    if metrics is None:
        yield spec, None
        return
    observer = Observer(metrics, spec, streams)
    yield dataclasses.replace(spec, locks=heard_by(spec.locks, observer.hear)), observer
