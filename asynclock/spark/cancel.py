"""Spark work that another thread can end for good."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

_AGAIN_SECONDS: Final = 0.1
# Jobs end within moments; what is no job, such as a wait for Hudi's lock, only ends by an interrupt, which
# would leave a running job behind.
_INTERRUPT_AFTER: Final = 2.0


class Cancellable:
    """A kind of work, done one piece at a time, that can be cancelled while it runs.

    Jobs are found by a tag, not by their group: Hudi puts every job it starts into a group of its own.

    Args:
        spark: The session that runs the jobs.
        tag: Names the work; unlike that of any other work in this session, and without a comma.
    """

    def __init__(self, spark: SparkSession, tag: str) -> None:
        self._context = spark.sparkContext
        self._tag = tag
        self._piece = threading.Lock()
        self._thread: Any = None
        self._interrupting = threading.Lock()

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """The body is a piece of the work: its jobs can be cancelled, and ``settle`` waits for it."""
        threads = self._context._jvm.java.lang.Thread  # noqa: SLF001  no public way
        with self._piece:
            # Spark gives each Python thread a Java thread of its own.
            self._thread = threads.currentThread()
            self._context.addJobTag(self._tag)
            try:
                yield
            finally:
                with self._interrupting:
                    self._thread = None
                threads.interrupted()  # clears it: the thread goes on to other work
                self._context.removeJobTag(self._tag)

    def cancel(self) -> None:
        """Cancel the running piece until it has ended; the caller sees to it that none follows."""
        started = time.monotonic()
        # Between two jobs there is nothing to cancel, and Hudi's write is a row of them.
        while not self._piece.acquire(timeout=_AGAIN_SECONDS):
            self._context.cancelJobsWithTag(self._tag)
            if time.monotonic() - started > _INTERRUPT_AFTER:
                self._interrupt()
        self._context.cancelJobsWithTag(self._tag)
        self._piece.release()

    def _interrupt(self) -> None:
        # Not a moment after the piece has ended: it would hit the work that follows in the same thread.
        with self._interrupting:
            if self._thread is not None:
                self._thread.interrupt()

    def settle(self, seconds: float | None = None) -> bool:
        """Wait until the running piece has ended.

        Args:
            seconds: How long; None: for as long as it takes.

        Returns:
            Whether it has.
        """
        ended = self._piece.acquire(timeout=-1 if seconds is None else seconds)
        if ended:
            self._piece.release()
        return ended
