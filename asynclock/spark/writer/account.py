"""What one stream has done so far: its report, its progress, and the calls that tell of them."""

from __future__ import annotations

import dataclasses
import logging
import time
from typing import TYPE_CHECKING

from asynclock.spark.results import StreamProgress, StreamReport, Wasted

if TYPE_CHECKING:
    from collections.abc import Callable

    from asynclock.spark.results import BatchReport

log = logging.getLogger(__name__)


@dataclasses.dataclass(kw_only=True)
class Counts:
    """The counters behind the report of a stream; see ``StreamReport``."""

    stream: str
    batches: int = 0
    rows: int = 0
    skipped: int = 0
    quarantined: int = 0
    lock_wait_seconds: float = 0.0
    reservation_wait_seconds: float = 0.0
    seconds: float = 0.0
    fencing_token: int | None = None
    unnamed_columns: tuple[str, ...] = ()
    retries: int = 0
    wasted: Wasted = dataclasses.field(default_factory=Wasted)
    error: str | None = None

    def report(self) -> StreamReport:
        """Return the report with these numbers."""
        return StreamReport(**vars(self))


class Account:
    """Counts what a stream does, and tells of it.

    Args:
        stream: Name of the stream.
        on_batch: Called after each batch.
        on_progress: Called when the stream begins, and at the start and end of each batch.

    Attributes:
        counts: The numbers of the report.
        retries: Failed attempts since the last batch.
    """

    def __init__(
        self,
        stream: str,
        *,
        on_batch: Callable[[BatchReport], object] | None,
        on_progress: Callable[[StreamProgress], object] | None,
    ) -> None:
        self.counts = Counts(stream=stream)
        self.retries = 0
        self._on_batch = on_batch
        self._on_progress = on_progress
        self._files: int | None = None
        self._files_done = 0
        self._began = time.monotonic()
        self._counted = -1

    def begin(self, files: Callable[[], int] | None) -> None:
        """Begin the time of the progress.

        Args:
            files: Returns the number of files that exist now, for a bar; None: there is no such number.
        """
        self._began = time.monotonic()
        if self._on_progress is not None and files is not None:
            self._files = files()
        self.tell_progress(None)

    def end(self, wasted: Wasted) -> None:
        """Note how long the stream has worked, and what its conflicts have wasted."""
        self.counts.wasted = wasted
        self.counts.seconds = time.monotonic() - self._began

    def note_retry(self) -> None:
        """Count a failed attempt that is repeated."""
        self.retries += 1
        self.counts.retries += 1

    def note_files(self, files: Callable[[], int]) -> None:
        """Add the files of a batch to the progress, if somebody follows it."""
        if self._on_progress is not None:
            self._files_done += files()

    def count(self, done: BatchReport) -> bool:
        """Count a batch and tell of it; return False if that was done before."""
        if done.skipped is False and done.batch_id == self._counted:
            return False  # it is on the timeline, but Spark failed to note that; so this is not progress
        self._counted = done.batch_id
        self.retries = 0
        self.counts.batches += 1
        self.counts.rows += done.rows
        self.counts.skipped += done.skipped
        self.counts.quarantined += done.quarantined
        log.info(
            "stream %s: batch %d, %d rows in %.1f s%s",
            self.counts.stream,
            done.batch_id,
            done.rows,
            done.seconds,
            ", committed before" if done.skipped else "",
        )
        if self._on_batch is not None:
            self._on_batch(done)
        return True

    def tell_progress(self, batch_id: int | None) -> None:
        """Tell how far the stream is, and which batch it writes; None: none."""
        if self._on_progress is not None:
            self._on_progress(
                StreamProgress(
                    stream=self.counts.stream,
                    files=self._files,
                    files_done=self._files_done,
                    rows=self.counts.rows,
                    seconds=time.monotonic() - self._began,
                    batch_id=batch_id,
                )
            )
