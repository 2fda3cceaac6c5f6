"""A session in which the settings of a user's session do not change the stored values."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import SparkSession

from asynclock.spark.hudi.session import RUNTIME
from asynclock.spark.jvm import classes, keep_names

if TYPE_CHECKING:
    from collections.abc import Iterator

_LISTING_TASKS: Final = "spark.sql.sources.parallelPartitionDiscovery.parallelism"


def own_session(spark: SparkSession) -> SparkSession:
    """Return a session for plans of the pipeline itself, whose values and types no setting changes.

    It shares Spark's context with the user's session. It has the same catalogs, settings of other systems and
    settings of parallelism. For everything else it has Spark's defaults, and ``RUNTIME``: a type such as
    ``timestamp``, the case of names, arithmetic, calendars and null have one meaning in every session.

    On a ``local`` master it looks at many files with one task per core, unless the user's session has a
    number for this. Spark's default is a task for each file, whose start takes longer than the look.

    Args:
        spark: The user's session, which stays as it is.
    """
    jvm: Any = classes(spark)
    settings = dict(RUNTIME)
    if spark.conf.get(_LISTING_TASKS, None) is None and spark.sparkContext.master.startswith("local"):
        settings[_LISTING_TASKS] = str(spark.sparkContext.defaultParallelism)
    session = jvm.io.asynclock.session.OwnSession.of(spark._jsparkSession, settings)  # noqa: SLF001
    own = SparkSession(spark.sparkContext, session)
    keep_names(own)
    return own


@contextlib.contextmanager
def active_session_kept(spark: SparkSession) -> Iterator[None]:
    """Give this thread its active session back, which ``createDataFrame`` in the body replaces.

    The user's code, other libraries and Spark's catalogs ask for the active session. In a session of the
    pipeline they would find neither the user's settings nor the temporary views.

    Args:
        spark: Any session of the running Spark.
    """
    sessions = classes(spark).org.apache.spark.sql.SparkSession
    before, of_python = sessions.getActiveSession(), SparkSession._activeSession  # noqa: SLF001  no public way
    try:
        yield
    finally:
        SparkSession._activeSession = of_python  # noqa: SLF001
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()
