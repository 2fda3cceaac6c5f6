"""The parts of the lock, of Hudi's lock and of the telemetry that the pipeline uses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asynclock._core.client import Core
from asynclock._core.handles import LeaseHandle
from asynclock._core.names import is_name
from asynclock._core.narration import held_by, span
from asynclock._core.portal import block_on, run_on
from asynclock._core.sparing import Pace
from asynclock._core.together import of_all
from asynclock.backend import MAX_BODY
from asynclock.client import client_over
from asynclock.events import logger
from asynclock.hudi._core.held_tables import refuse_if_held
from asynclock.hudi._core.hoodie import WRITE_CONCURRENCY_MODE, WRITE_LOCK_PROVIDER, WRITE_LOCK_WAIT_TIME_MS
from asynclock.hudi._core.lock_options import STORE_LOCK_PROVIDER
from asynclock.hudi._core.paths import STORAGE_LOCK_SCHEMES, TablePath
from asynclock.telemetry._outlets import open_metrics
from asynclock.telemetry._signals import SECONDS, Instrument, Measurement

if TYPE_CHECKING:
    from asynclock import sync
    from asynclock._core.engine import LockEngine
    from asynclock.client import LockClient

__all__ = [
    "MAX_BODY",
    "SECONDS",
    "STORAGE_LOCK_SCHEMES",
    "STORE_LOCK_PROVIDER",
    "WRITE_CONCURRENCY_MODE",
    "WRITE_LOCK_PROVIDER",
    "WRITE_LOCK_WAIT_TIME_MS",
    "Core",
    "Instrument",
    "LeaseHandle",
    "Measurement",
    "Pace",
    "TablePath",
    "block_on",
    "client_over",
    "core_of",
    "engine_of",
    "held_by",
    "is_name",
    "logger",
    "of_all",
    "open_metrics",
    "refuse_if_held",
    "run_on",
    "span",
]


def core_of(client: LockClient | sync.LockClient) -> Core:
    """Return what the handle of a client wraps."""
    return client._core


def engine_of(lock: sync.Lock) -> LockEngine:
    """Return what the handle of a lock wraps."""
    return lock._engine
