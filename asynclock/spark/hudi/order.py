"""The rule that a new instant of a table is later than all existing ones.

``io.asynclock.timeline.InstantOrder`` implements it, because Hudi makes its instants in the JVM. Both commit
locks ask it for each instant. This module asks before a piece of work begins, and turns a refusal into an
error of ours.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors.exceptions.captured import CapturedException

from asynclock.errors import ConfigError
from asynclock.spark import hoodie
from asynclock.spark.errors import TimelineAheadError
from asynclock.spark.faults import causes
from asynclock.spark.hudi.meta import storage_configuration
from asynclock.spark.jvm import classes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

PROPERTY: Final = hoodie.TABLE_TIMELINE_TIMEZONE
UTC: Final = "UTC"
_REFUSED: Final = "io.asynclock.timeline.InstantOrder$Refused"


def refuse_disorder(spark: SparkSession, path: str, archived: str = "") -> None:
    """Make sure that an instant made now is in the zone of a table and later than all of its instants.

    Args:
        spark: The session whose JVM would make it.
        path: The table; a new one will be in UTC.
        archived: The newest instant known to be archived.

    Raises:
        TimelineAheadError: It would not be later. Nothing was written.
        ConfigError: The table is in UTC and the JVM is in another zone. Nothing was written.
    """
    with in_order_at(path):
        classes(spark).io.asynclock.timeline.InstantOrder.check(path, storage_configuration(spark), archived)


@contextlib.contextmanager
def in_order_at(path: str) -> Iterator[None]:
    """Turn a commit lock's refusal in the body into our error, even if it is the cause of other errors."""
    try:
        yield
    except (Py4JJavaError, CapturedException) as error:
        for cause in causes(error):
            if cause.getClass().getName() == _REFUSED:
                raise _refusal(path, cause) from error
        raise


def refuse_other_zone(spark: SparkSession) -> None:
    """Make sure that the driver's JVM is in UTC.

    Raises:
        ConfigError: It is in another zone. Nothing was written.
    """
    jvm = classes(spark)
    zone = jvm.java.util.TimeZone.getDefault().toZoneId()
    if not jvm.io.asynclock.timeline.InstantOrder.isUtc(zone):
        reason = (
            f"the JVM of this Spark is in {zone.getId()}; nothing was changed. Start Spark with "
            "-Duser.timezone=UTC, or let asynclock start it"
        )
        raise ConfigError(setting="spark.driver.extraJavaOptions", value=None, reason=reason)


def is_utc(meta: Any) -> bool:  # noqa: ANN401  py4j
    """Return whether the timeline of Hudi's ``HoodieTableMetaClient`` is in UTC, and not in local times."""
    return bool(meta.getTableConfig().getTimelineTimezone().toString() == UTC)


def newest_instant(spark: SparkSession, path: str) -> str:
    """Return the newest text on the timeline, of requests and completions; empty without an instant."""
    order = classes(spark).io.asynclock.timeline.InstantOrder
    found: str = order.newest(path, storage_configuration(spark))
    return found


def _refusal(path: str, cause: Any) -> TimelineAheadError | ConfigError:  # noqa: ANN401  py4j
    reason = str(cause.getMessage())
    if early := cause.early():
        return TimelineAheadError(path=path, seconds=early / 1000, reason=reason)
    return ConfigError(setting="spark.driver.extraJavaOptions", value=None, reason=reason)
