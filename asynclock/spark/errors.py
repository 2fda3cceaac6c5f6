"""Errors of a running pipeline, beside those of ``asynclock.errors``."""

from __future__ import annotations

from asynclock.errors import AsyncLockError


class BadRowsError(AsyncLockError):
    """A batch has rows that cannot be read and its stream fails on them; nothing of it was written.

    Attributes:
        stream: Name of the stream.
        batch_id: Number of the batch.
        rows: How many rows are bad.
        sample: What is wrong with one of them: file, reason and record.
    """

    _fields = ("stream", "batch_id", "rows", "sample")

    def __init__(self, *, stream: str, batch_id: int, rows: int, sample: str) -> None:
        super().__init__(
            f"stream {stream!r}: {rows} bad rows in batch {batch_id}, nothing of it was written; for example "
            f'{sample}. Correct the source, or set on_bad_row = "quarantine"'
        )
        self.stream, self.batch_id, self.rows, self.sample = stream, batch_id, rows, sample


class ClusteringPlanError(AsyncLockError):
    """The table has a clustering plan, with which every write fails; nothing was written.

    Attributes:
        path: The table.
        instant: Instant time of the plan.
    """

    _fields = ("path", "instant")

    def __init__(self, *, path: str, instant: str) -> None:
        super().__init__(
            f"the splice table {path} has the pending clustering plan {instant}; nothing was written. Remove "
            f"it with CALL rollback_to_instant(path => '{path}', instant_time => '{instant}'), and cluster a "
            "second table under optimistic concurrency control instead"
        )
        self.path, self.instant = path, instant
