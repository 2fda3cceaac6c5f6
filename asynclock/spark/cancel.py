"""Spark work that another thread can end for good."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

_AGAIN_SECONDS: Final = 0.1


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

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """The body is a piece of the work: its jobs can be cancelled, and ``settle`` waits for it."""
        with self._piece:
            self._context.addJobTag(self._tag)
            try:
                yield
            finally:
                self._context.removeJobTag(self._tag)

    def cancel(self) -> None:
        """Cancel the running piece until it has ended; the caller sees to it that none follows."""
        # Between two jobs there is nothing to cancel, and Hudi's write is a row of them.
        while not self._piece.acquire(timeout=_AGAIN_SECONDS):
            self._context.cancelJobsWithTag(self._tag)
        self._piece.release()

    def settle(self) -> None:
        """Wait until the running piece has ended."""
        with self._piece:
            pass
