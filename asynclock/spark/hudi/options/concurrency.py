"""The layer of the concurrency: what writers that run at the same time do about each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from asynclock.hudi import hoodie
from asynclock.spark.hudi.instants import METADATA_PREFIX
from asynclock.spark.hudi.options.option import Option

if TYPE_CHECKING:
    from collections.abc import Iterator

    from asynclock.spark.hudi.options.option import Use

_HEARTBEAT_INTERVAL_MS: Final = 2_000
_HEARTBEAT_MISSES: Final = 5
SILENCE_MS: Final = _HEARTBEAT_INTERVAL_MS * _HEARTBEAT_MISSES
"""After this time without a heartbeat a writer counts as dead."""


def concurrency(use: Use) -> Iterator[Option]:
    """Yield the options that concern several writers."""
    if use == "read":
        return
    yield _option(
        hoodie.WRITE_CONCURRENCY_MODE,
        "NON_BLOCKING_CONCURRENCY_CONTROL",
        "Streams write the same rows at the same time, and every commit succeeds.",
    )
    yield _option(
        hoodie.CLEAN_FAILED_WRITES_POLICY,
        "LAZY",
        "A write that looks unfinished may be running: only its silence proves that its writer is dead.",
    )
    yield _option(hoodie.EMBED_TIMELINE_SERVER, "false", "No HTTP server in the driver: nothing needs one.")
    if use == "cleaning":
        yield from _heartbeats()
        return
    yield _option(
        hoodie.WRITE_MARKERS_TYPE, "DIRECT", "One marker file for each data file that a write creates."
    )
    if use in {"write", "sql"}:
        yield from _heartbeats()
    if use == "write":
        yield _option(
            hoodie.DATASOURCE_WRITE_COMMITMETA_KEY_PREFIX,
            METADATA_PREFIX,
            "A commit names its stream, batch and lease, so that no batch is written twice.",
        )


def _heartbeats() -> Iterator[Option]:
    yield _option(
        hoodie.CLIENT_HEARTBEAT_INTERVAL_IN_MS,
        str(_HEARTBEAT_INTERVAL_MS),
        "A running write shows this often that it is alive.",
    )
    yield _option(
        hoodie.CLIENT_HEARTBEAT_TOLERABLE_MISSES,
        str(_HEARTBEAT_MISSES),
        f"After {SILENCE_MS // 1000} s of silence cleaning rolls a write back; a paused writer then fails.",
    )


def _option(key: str, value: str, why: str) -> Option:
    return Option(key, value, "concurrency", why)
