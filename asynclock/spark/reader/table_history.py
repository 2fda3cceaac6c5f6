"""The timeline of a table as data: once, or as it grows."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from asynclock.spark.hudi.history import History, in_order
from asynclock.spark.hudi.table import Table
from asynclock.spark.reader.presence import NO_TABLE, refuse_missing, unread

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from asynclock.spark.hudi.instants import Instant
    from asynclock.spark.spec.model import Spec

log = logging.getLogger(__name__)

_INTERVAL: Final = 2.0


def timeline(spec: Spec, spark: SparkSession, *, archived: bool = False) -> list[Instant]:
    """Return the instants of the table: commits, compactions, cleans, rollbacks, savepoints and others.

    Args:
        spec: The table and its streams.
        spark: A session with Hudi and asynclock's jar, as ``asynclock.spark.session`` makes it.
        archived: Return the instants of the archived timeline as well.

    Returns:
        The instants in the order of completion; pending ones last, in the order of their requests. ``read``
        and ``validate`` take their ``completed`` as ``as_of``.

    Raises:
        SpecError: There is no such table.
    """
    return _first(_history(Table(spec, spark)), archived=archived)


def follow(
    spec: Spec, spark: SparkSession, *, archived: bool = False, interval: float = _INTERVAL
) -> Iterator[list[Instant]]:
    """Yield the instants of ``timeline``, and then, without an end, each instant that is new or has changed.

    If the timeline cannot be read for a while, the log has a warning.

    Args:
        spec: The table and its streams.
        spark: A session.
        archived: Begin with the archived timeline.
        interval: Seconds between two looks.

    Raises:
        SpecError: There is no such table.
    """
    history = _history(Table(spec, spark))
    yield _first(history, archived=archived)
    failing = False
    while True:
        time.sleep(interval)
        try:
            if news := history.news():
                yield news
            failing = False
        except (Py4JError, PySparkException) as error:
            if not failing:
                log.warning("the timeline cannot be read, trying again: %s", error)
            failing = True


def _history(table: Table) -> History:
    refuse_missing(table)
    history = History(table.timeline)
    if not history.exists:
        raise unread(table.spec, NO_TABLE)
    return history


def _first(history: History, *, archived: bool) -> list[Instant]:
    active = history.news()
    if not archived:
        return active
    # The archived ones last: an instant that is archived meanwhile is then seen twice instead of never.
    listed = {(one.requested, one.action): one for one in (*history.archived(), *active)}
    return in_order(listed.values())
