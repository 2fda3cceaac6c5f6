"""The metrics of a pipeline, and the measurements that the reports of a run add to them.

Names and units follow the semantic conventions of OpenTelemetry, as those of the locks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from asynclock._shared.internals import SECONDS, Instrument, Measurement
from asynclock.spark.runs.totals import ACQUIRED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from asynclock.events import Event
    from asynclock.spark.results import Backlog, BatchReport, ServiceReport

TABLE_NAME: Final = "asynclock.table.name"
STREAM_NAME: Final = "asynclock.stream.name"
SERVICE_NAME: Final = "asynclock.service.name"
LOCK_KIND: Final = "asynclock.lock.kind"


def _of_stream(
    name: str, kind: Literal["counter", "gauge", "histogram"], unit: str, meaning: str, *more: str
) -> Instrument:
    return Instrument(
        name=name,
        kind=kind,
        unit=unit,
        meaning=meaning,
        attributes=dict.fromkeys((TABLE_NAME, STREAM_NAME, *more), ()),
        buckets=SECONDS if kind == "histogram" else (),
    )


LAG: Final = _of_stream(
    "asynclock.stream.lag",
    "gauge",
    "s",
    "Age of the file that waits longest for its commit; 0 if none waits. Not for topics.",
)
BACKLOG_FILES: Final = _of_stream(
    "asynclock.stream.backlog.files", "gauge", "{file}", "Files of the source that are not committed yet."
)
BACKLOG_OFFSETS: Final = _of_stream(
    "asynclock.stream.backlog.offsets",
    "gauge",
    "{offset}",
    "Offsets of the topic behind the committed ones, over all partitions.",
)
BATCH: Final = _of_stream(
    "asynclock.stream.batch.duration", "histogram", "s", "Time from the start of a batch to its commit."
)
ROWS: Final = _of_stream(
    "asynclock.stream.rows", "counter", "{row}", "Rows of committed batches, bad ones included."
)
QUARANTINED: Final = _of_stream(
    "asynclock.stream.quarantined", "counter", "{row}", "Bad rows that were moved to the quarantine."
)
RETRIES: Final = _of_stream(
    "asynclock.stream.retries",
    "counter",
    "{attempt}",
    "Attempts at batches that failed with a temporary error, counted when the batch is committed.",
)
CONFLICTS: Final = _of_stream(
    "asynclock.stream.conflicts",
    "counter",
    "{write}",
    "Writes that failed because of another writer's commit, counted when the batch is committed.",
)
LOCK_WAIT: Final = _of_stream(
    "asynclock.stream.lock.wait.duration",
    "histogram",
    "s",
    "Time for which a stream waited for its lease, for the end of a reservation, or for the commit lock.",
    LOCK_KIND,
)
SERVICE: Final = Instrument(
    name="asynclock.service.duration",
    kind="histogram",
    unit="s",
    meaning="Time of a piece of work of a table service.",
    attributes={TABLE_NAME: (), SERVICE_NAME: ()},
    buckets=SECONDS,
)
COMPACTION_BACKLOG: Final = Instrument(
    name="asynclock.compaction.backlog",
    kind="gauge",
    unit="{commit}",
    meaning="Commits since the last compaction, in the process that leads the compaction; 0 in others.",
    attributes={TABLE_NAME: ()},
)
INSTRUMENTS: Final = (
    LAG, BACKLOG_FILES, BACKLOG_OFFSETS, BATCH, ROWS, QUARANTINED, RETRIES, CONFLICTS, LOCK_WAIT, SERVICE,
    COMPACTION_BACKLOG,
)  # fmt: skip


class PipelineSignals:
    """Turns the reports of a run into measurements.

    Args:
        table: Name of the table.
        leases: The stream of each lease, by the name of its lock.
    """

    def __init__(self, table: str, leases: Mapping[str, str]) -> None:
        self._table = {TABLE_NAME: table}
        self._leases = leases

    def of_start(self) -> Iterable[Measurement]:
        """Start the counters of each stream at 0: ``increase()`` misses a first value that is not 0."""
        for stream in self._leases.values():
            for counter in (ROWS, QUARANTINED, RETRIES, CONFLICTS):
                yield self._one(counter, 0, stream)

    def of_event(self, event: Event) -> Iterable[Measurement]:
        """Return the measurements of an event of a lock."""
        if event.kind in ACQUIRED and event.name in self._leases:
            yield self._wait("lease", event.duration or 0.0, self._leases[event.name])

    def of_batch(self, done: BatchReport, commit_lock_seconds: float | None) -> Iterable[Measurement]:
        """Return the measurements of a batch, and of its wait for the commit lock, if that is known."""
        if not done.skipped:
            yield self._one(BATCH, done.seconds, done.stream)
        yield self._one(ROWS, done.rows, done.stream)
        yield self._one(QUARANTINED, done.quarantined, done.stream)
        yield self._one(RETRIES, done.retries, done.stream)
        yield self._one(CONFLICTS, done.wasted.conflicts, done.stream)
        yield self._wait("reservation", done.reservation_seconds, done.stream)
        if commit_lock_seconds is not None:
            yield self._wait("commit", commit_lock_seconds, done.stream)

    def of_backlog(self, found: Backlog) -> Iterable[Measurement]:
        """Return the measurements of a look at a source."""
        for gauge, value in (
            (LAG, found.lag_seconds),
            (BACKLOG_FILES, found.files),
            (BACKLOG_OFFSETS, found.offsets),
        ):
            if value is not None:
                yield self._one(gauge, value, found.stream)

    def of_service(self, done: ServiceReport) -> Iterable[Measurement]:
        """Return the measurements of a piece of work of a service."""
        yield Measurement(SERVICE, done.seconds, self._table | {SERVICE_NAME: done.service})

    def of_compaction_backlog(self, commits: int) -> Iterable[Measurement]:
        """Return the measurement of the commits since the last compaction."""
        yield Measurement(COMPACTION_BACKLOG, commits, self._table)

    def _one(self, instrument: Instrument, value: float, stream: str) -> Measurement:
        return Measurement(instrument, value, self._table | {STREAM_NAME: stream})

    def _wait(self, kind: str, seconds: float, stream: str) -> Measurement:
        return Measurement(LOCK_WAIT, seconds, self._table | {STREAM_NAME: stream, LOCK_KIND: kind})
