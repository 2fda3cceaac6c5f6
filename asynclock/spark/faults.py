"""Which errors are temporary, and the one sentence of an error.

Hudi and Spark wrap an error in several others, so look at all its causes.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors.exceptions.captured import CapturedException

from asynclock._shared.words import escaped
from asynclock.errors import AsyncLockError, BackendUnavailableError, OutcomeUnknownError
from asynclock.spark.errors import TimelineAheadError

if TYPE_CHECKING:
    from collections.abc import Iterator

_SECONDS: Final = 60.0
"""How far a clock may be behind for a write to wait for it."""

_HUDI: Final = "org.apache.hudi.exception."
# Java's classes, subclasses included.
_PASSING: Final = frozenset({
    "java.io.IOException",  # Hadoop's error for a store that is slow, throttling (429) or down (5xx)
    "java.util.concurrent.TimeoutException",
    "org.apache.kafka.common.errors.RetriableException",  # no broker answers, or a partition has no leader
    f"{_HUDI}HoodieLockException",  # the commit lock was not acquired in time
    f"{_HUDI}HoodieHeartbeatException",  # the driver was paused for so long that the write counts as dead
})  # fmt: skip
# These are IOExceptions too, but the next attempt would meet them again.
_LASTING: Final = frozenset({
    "java.io.ObjectStreamException",
    "java.nio.file.AccessDeniedException",
    "org.apache.hadoop.security.AccessControlException",
    "org.apache.hadoop.fs.UnsupportedFileSystemException",
    "org.apache.hadoop.fs.s3a.AWSBadRequestException",
    "org.apache.hadoop.fs.s3a.UnknownStoreException",
})  # fmt: skip
# If a task failed because its executor, or the executor's data, was lost, Spark says so only in words.
_LOST: Final = ("ExecutorLostFailure", "FetchFailed(", "MetadataFetchFailedException")
# Each says that another writer has committed, or is about to, and that nobody can read any of this write. The
# last one says that the other writer has added a column, which a further attempt has too.
_CONFLICTS: Final = (
    "HoodieWriteConflictException",
    "HoodieEarlyConflictDetectionException",
    "HoodieClusteringUpdateException",
    "MissingSchemaFieldException",
)
# Only these words of Hudi say that a write counts as dead, or was rolled back for that.
_COUNTED_AS_DEAD: Final = re.compile(
    r"Heartbeat for instant .+ has expired|File .+\.inflight does not exist!"
)
_DEAD: Final = (
    "the driver was silent for too long, so this write counts as dead and nothing of it is committed"
)
_SHOWN: Final = 500
_DEPTH: Final = 50  # causes may form a circle


def is_passing(error: BaseException) -> bool:
    """Return whether the work that ended with ``error`` may succeed if it is simply repeated."""
    if isinstance(error, TimelineAheadError):
        return error.seconds <= _SECONDS
    if isinstance(error, AsyncLockError):
        return isinstance(error, (BackendUnavailableError, OutcomeUnknownError)) and error.transient
    try:
        passing = conflict_of(error) is not None
        for cause in causes(error):
            kinds = set(_kinds(cause))
            if kinds & _LASTING:
                return False
            message = cause.getMessage() or ""
            passing = passing or bool(kinds & _PASSING) or any(word in message for word in _LOST)
            passing = passing or _COUNTED_AS_DEAD.search(message) is not None
    except Py4JError:  # the JVM has ended
        return False
    return passing


def conflict_of(error: BaseException) -> str | None:
    """Return the name of the exception with which Hudi reported a conflict; None for another error."""
    for cause in causes(error):
        # An exception of a task reaches the driver as text.
        text = f"{cause.getClass().getName()} {cause.getMessage()}"
        for name in _CONFLICTS:
            if name in text:
                return name
    return None


def sentence(error: BaseException) -> str:
    """Return an error's message in one line: for an error of the JVM, its innermost cause."""
    text = type(error).__name__
    with suppress(Py4JError):  # the JVM may have ended
        text = str(error) if isinstance(error, AsyncLockError) else f"{text}: {error}"
        for cause in causes(error):
            text = f"{cause.getClass().getSimpleName()}: {cause.getMessage()}"
    if _COUNTED_AS_DEAD.search(text):
        text = f"{_DEAD}: {text}"
    line = " ".join(text.split())
    return escaped(line if len(line) <= _SHOWN else f"{line[:_SHOWN]}...")


def causes(error: BaseException) -> Iterator[Any]:
    """Yield the Java exception behind ``error`` and its causes, the outermost first."""
    if isinstance(error, Py4JJavaError):
        found: Any = error.java_exception
    elif isinstance(error, CapturedException):
        found = error._origin  # noqa: SLF001  no public way to the exception itself
        if isinstance(found, Py4JJavaError):
            found = found.java_exception
    else:
        return
    for _ in range(_DEPTH):
        if found is None:
            return
        yield found
        found = found.getCause()


def _kinds(cause: Any) -> Iterator[str]:  # noqa: ANN401  py4j
    kind = cause.getClass()
    while kind is not None:
        yield kind.getName()
        kind = kind.getSuperclass()
