"""Spark work that another thread can cancel."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING, Any, Final

from asynclock.spark.jvm import classes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

_AGAIN_SECONDS: Final = 0.1
# Cancelled jobs end within moments. Other work, such as a wait for Hudi's lock, needs an interrupt. An
# interrupt leaves a running job behind, so it comes second.
_INTERRUPT_AFTER: Final = 2.0


class Cancellable:
    """Work done one piece at a time, which can be cancelled while a piece runs.

    Jobs are found by a tag, not by their group, because Hudi puts each of its jobs into a new group.

    Args:
        spark: The session that runs the jobs.
        tag: Tag of the jobs; unique in the session, and without a comma.
    """

    def __init__(self, spark: SparkSession, tag: str) -> None:
        self._context = spark.sparkContext
        self._tag = tag
        self._piece = threading.Lock()
        self._thread: Any = None
        self._interrupting = threading.Lock()

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Run the body as a piece of the work: its jobs can be cancelled, and ``settle`` waits for it."""
        threads = classes(self._context).java.lang.Thread
        with self._piece:
            # Each Python thread has its own Java thread.
            self._thread = threads.currentThread()
            self._context.addJobTag(self._tag)
            try:
                yield
            finally:
                with self._interrupting:
                    self._thread = None
                threads.interrupted()  # clears the flag, because the thread goes on to other work
                self._context.removeJobTag(self._tag)

    def cancel(self) -> None:
        """Cancel the running piece and wait for its end; the caller makes sure that no other follows."""
        started = time.monotonic()
        # One write of Hudi runs many jobs; between two of them there is nothing to cancel, so repeat.
        while not self._piece.acquire(timeout=_AGAIN_SECONDS):
            self._context.cancelJobsWithTag(self._tag)
            if time.monotonic() - started > _INTERRUPT_AFTER:
                self._interrupt()
        self._context.cancelJobsWithTag(self._tag)
        self._piece.release()

    def _interrupt(self) -> None:
        # Never after the piece has ended: the interrupt would hit later work in the same thread.
        with self._interrupting:
            if self._thread is not None:
                self._thread.interrupt()

    def settle(self, seconds: float | None = None) -> bool:
        """Wait until the running piece has ended.

        Args:
            seconds: Longest wait; None: no limit.

        Returns:
            Whether no piece is running any more.
        """
        ended = self._piece.acquire(timeout=-1 if seconds is None else seconds)
        if ended:
            self._piece.release()
        return ended
