"""The layer of the concurrency: what writers that run at the same time do about each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from asynclock.spark import hoodie
from asynclock.spark.hudi.instants import METADATA_PREFIX
from asynclock.spark.hudi.options.option import Option

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from asynclock.spark.hudi.options.option import Use
    from asynclock.spark.spec.model import TableSpec

_MODES: Final[Mapping[str, tuple[str, str]]] = {
    "nbcc": (
        "NON_BLOCKING_CONCURRENCY_CONTROL",
        "Writers append to the same files at the same time, and every commit succeeds.",
    ),
    "occ": (
        "OPTIMISTIC_CONCURRENCY_CONTROL",
        "Of two writes that overlap in a file the one that commits second fails, and is tried again.",
    ),
}
_HEARTBEAT_INTERVAL_MS: Final = 2_000
_HEARTBEAT_MISSES: Final = 5
SILENCE_MS: Final = _HEARTBEAT_INTERVAL_MS * _HEARTBEAT_MISSES
"""After this time without a heartbeat a writer counts as dead."""
_WHY_SILENT: Final = (
    f"After {SILENCE_MS // 1000} s of silence cleaning rolls a write back; a paused writer then fails."
)
_CLEANING: Final = (
    3 * _HEARTBEAT_MISSES,
    "Dead writes are withdrawn under the commit lock first; Hudi looks for them without it.",
)


def concurrency(table: TableSpec, use: Use) -> Iterator[Option]:
    """Yield the options that concern several writers."""
    if use in {"read", "sync"}:
        return
    mode, why = _MODES["nbcc" if table.concurrency == "nbcc" else "occ"]
    yield _option(hoodie.WRITE_CONCURRENCY_MODE, mode, why)
    yield _option(
        hoodie.CLEAN_FAILED_WRITES_POLICY,
        "LAZY",
        "A write that looks unfinished may be running: only its silence proves that its writer is dead.",
    )
    writes = use in {"write", "sql"}
    served = table.markers == "timeline-server" and writes
    yield _option(
        hoodie.EMBED_TIMELINE_SERVER,
        str(served).lower(),
        "The driver collects the markers of its tasks." if served else "No HTTP server: nothing needs it.",
    )
    if use == "cleaning":
        yield from _heartbeats(*_CLEANING)
        return
    if served:
        yield _option(
            hoodie.WRITE_MARKERS_TYPE,
            "TIMELINE_SERVER_BASED",
            "The driver keeps the markers of a write in a few files, which object stores list quickly.",
        )
        yield _option(
            hoodie.MARKERS_TIMELINE_SERVER_BASED_BATCH_INTERVAL_MS,
            "20",
            "It writes the markers that tasks ask for within this time at once; a task waits for them.",
        )
    else:
        why = "One marker file for each data file that a write creates."
        yield _option(hoodie.WRITE_MARKERS_TYPE, "DIRECT", why)
    if not writes:
        return
    yield from _heartbeats(_HEARTBEAT_MISSES, _WHY_SILENT)
    if table.concurrency == "occ-early":
        yield from _early(served=served)
    if use == "write":
        yield _option(
            hoodie.DATASOURCE_WRITE_COMMITMETA_KEY_PREFIX,
            METADATA_PREFIX,
            "A commit names its stream, batch and lease, so that no batch is written twice.",
        )


def _early(*, served: bool) -> Iterator[Option]:
    yield _option(
        hoodie.WRITE_CONCURRENCY_EARLY_CONFLICT_DETECTION_ENABLE,
        "true",
        "A write that meets the marker of another one ends at once, and not at its commit.",
    )
    if not served:
        yield _option(
            hoodie.WRITE_CONCURRENCY_EARLY_CONFLICT_DETECTION_STRATEGY,
            "org.apache.hudi.table.marker.SimpleDirectMarkerBasedDetectionStrategy",
            "Each task looks for markers of others when it creates its own.",
        )
        return
    yield _option(
        hoodie.WRITE_CONCURRENCY_EARLY_CONFLICT_DETECTION_STRATEGY,
        "org.apache.hudi.timeline.service.handlers.marker.AsyncTimelineServerBasedDetectionStrategy",
        "The driver compares its markers with those of other writers while the write runs.",
    )
    yield _option(
        hoodie.WRITE_CONCURRENCY_ASYNC_CONFLICT_DETECTOR_INITIAL_DELAY_MS, "0", "From the first marker on."
    )
    yield _option(
        hoodie.WRITE_CONCURRENCY_ASYNC_CONFLICT_DETECTOR_PERIOD_MS,
        "100",
        "Ten times a second; by Hudi's default most batches end before the second look.",
    )


def _heartbeats(misses: int, why: str) -> Iterator[Option]:
    yield _option(
        hoodie.CLIENT_HEARTBEAT_INTERVAL_IN_MS,
        str(_HEARTBEAT_INTERVAL_MS),
        "A running write shows this often that it is alive.",
    )
    yield _option(hoodie.CLIENT_HEARTBEAT_TOLERABLE_MISSES, str(misses), why)


def _option(key: str, value: str, why: str) -> Option:
    return Option(key, value, "concurrency", why)
