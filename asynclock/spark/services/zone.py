"""Move a table whose times are local times of its drivers to UTC."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from asynclock.errors import ConfigError
from asynclock.spark.errors import TimelineAheadError
from asynclock.spark.hudi import order
from asynclock.spark.hudi.meta import update_properties
from asynclock.spark.hudi.running import session_for
from asynclock.spark.hudi.table import Table
from asynclock.spark.reader.presence import NO_TABLE, refuse_missing, unread
from asynclock.spark.work.worker import reserved

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from asynclock.spark.spec.model import Spec

log = logging.getLogger(__name__)


def to_utc(spec: Spec, *, timeout: float | None = None, spark: SparkSession | None = None) -> bool:
    """Move the timeline of the table to UTC, while its streams and services wait.

    The move changes one property. Earlier instants stay as they are: local times of the drivers that made
    them. So the move is allowed only if nothing is pending, and if every later instant will also be a later
    text.

    Args:
        spec: The table and its locks.
        timeout: Longest wait for work in flight, in seconds; None: no limit.
        spark: A session whose JVM is in UTC; None: the one of ``session_for``.

    Returns:
        Whether the table was moved; False: it is in UTC already.

    Raises:
        TimelineAheadError: The table has instants that are later than now in UTC. Nothing was changed.
        ConfigError: Something is pending on the table, or the JVM is in another zone. Nothing was changed.
        SpecError: There is no such table. Nothing was changed.
        AcquireTimeoutError: Work in flight has not ended in time. Nothing was changed.
    """
    path = spec.table.path
    with session_for(spec, "asynclock to-utc", spark=spark) as found:
        table = Table(spec, found)
        timeline = table.timeline
        refuse_missing(table)
        if not timeline.exists():
            raise unread(spec, NO_TABLE)
        if timeline.is_utc():
            return False
        order.refuse_other_zone(found)
        with reserved(table, "to-utc", timeout=timeout) as worker:
            try:
                table.check_writable()
            except TimelineAheadError as error:
                raise _too_early(path, order.newest_instant(found, path), error.seconds) from error
            if pending := timeline.pending():
                raise _pending(path, [f"{one.action} {one.requested}" for one in pending])
            worker.lease.check()
            update_properties(found, path, {order.PROPERTY: order.UTC})
    log.info("the timeline of the table %s is in UTC from now on", path)
    return True


def _too_early(path: str, newest: str, seconds: float) -> TimelineAheadError:
    minutes = int(seconds) // 60 + 1
    wait = f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min"  # noqa: PLR2004  an hour
    reason = (
        f"the table {path} cannot be moved to UTC yet: its newest instant is {newest}, which is later than "
        "now in UTC, so new commits would have earlier times. Nothing was changed. Stop all its drivers and "
        f"services, and run this again in {wait}"
    )
    return TimelineAheadError(path=path, seconds=seconds, reason=reason)


def _pending(path: str, pending: list[str]) -> ConfigError:
    reason = (
        f"the table has pending instants, {', '.join(pending)}, with times of the old zone; nothing was "
        "changed. asynclock pipeline services SPEC --once ends plans, and writes of drivers that died; then "
        "run this again"
    )
    return ConfigError(setting="path", value=path, reason=reason)
