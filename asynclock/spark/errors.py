"""Errors of a running pipeline, in addition to those of ``asynclock.errors``."""

from __future__ import annotations

from typing import Any, Final

from asynclock._shared.words import Code
from asynclock.errors import AcquireTimeoutError, AsyncLockError

_SHOWN: Final = 1000
"""Most characters of a bad row that an error shows."""


class BadRowsError(AsyncLockError):
    """A batch has bad rows and its stream is set to fail on them; nothing of the batch was written.

    Attributes:
        stream: Name of the stream.
        batch_id: Number of the batch.
        rows: Number of bad rows.
        sample: File, line, reason and record of the first bad row; as read, not escaped.
    """

    code = Code.BAD_ROWS
    _fields = ("stream", "batch_id", "rows", "sample")

    def __init__(self, *, stream: str, batch_id: int, rows: int, sample: str) -> None:
        shown = sample if len(sample) <= _SHOWN else f"{sample[:_SHOWN]}..."
        super().__init__(
            f"stream {stream!r}: {rows} bad rows in batch {batch_id}, nothing of it was written; for example "
            f'{shown}. Correct the source, or set on_bad_row = "quarantine"'
        )
        self.stream, self.batch_id, self.rows, self.sample = stream, batch_id, rows, sample


class StreamFailedError(AsyncLockError):
    """A stream ended with an error of Spark, Hudi or a file system, which is the cause of this one.

    Earlier commits of the stream stay. Its unfinished batch is not committed, or was committed unnoticed;
    either way the next run goes on behind the last commit.

    Attributes:
        stream: Name of the stream.
        reason: The error in one sentence.
        passing: Whether it is a temporary error, of which there were too many in a row.
    """

    code = Code.STREAM_FAILED
    _fields = ("stream", "reason", "passing")
    stream: str
    reason: str
    passing: bool

    def __init__(self, *, stream: str, reason: str, passing: bool) -> None:
        remedy = (
            "too many attempts in a row failed; run it again"
            if passing
            else "remove the cause, and run it again"
        )
        super().__init__(
            f"stream {stream!r} has ended: {reason}; {remedy}: it goes on behind its last commit",
            stream=stream, reason=reason, passing=passing,
        )  # fmt: skip


class UnfinishedRestoreError(AsyncLockError):
    """A restore of the table is unfinished; nothing was written.

    Attributes:
        path: The table.
        savepoint: The savepoint of the restore.
        spec: The spec's file.
    """

    code = Code.UNFINISHED_RESTORE
    _fields = ("path", "savepoint", "spec")

    def __init__(self, *, path: str, savepoint: str, spec: str) -> None:
        super().__init__(
            f"the restore of the table {path} to the savepoint {savepoint} has not been finished, so table "
            "and checkpoints may not fit each other; nothing was written. Run it again: asynclock pipeline "
            f"restore {spec} {savepoint}",
            path=path, savepoint=savepoint, spec=spec,
        )  # fmt: skip


class UnfinishedRebucketError(AsyncLockError):
    """A rebucket of the table is unfinished; ``reason`` says what was written.

    Attributes:
        path: The table.
        buckets: Its new number of buckets.
        reason: The cause, or the state of the table.
        spec: The spec's file.
    """

    code = Code.UNFINISHED_REBUCKET
    _fields = ("path", "buckets", "reason", "spec")

    def __init__(self, *, path: str, buckets: int, reason: str, spec: str) -> None:
        super().__init__(
            f"the rebucket of the table {path} into {buckets} buckets has not been finished: {reason}. Run "
            f"it again: asynclock pipeline rebucket {spec} --buckets {buckets}",
            path=path, buckets=buckets, reason=reason, spec=spec,
        )  # fmt: skip


class TimelineAheadError(AsyncLockError):
    """A new commit would not be later than all those of the table, so it might never be seen.

    Nothing was written. A driver in another time zone has written to the table, or the clocks differ.

    Attributes:
        path: The table.
        seconds: Distance of this process's clock behind the newest instant of the table.
        reason: The difference, and the remedy.
    """

    code = Code.TIMELINE_AHEAD
    _fields = ("path", "seconds", "reason")
    seconds: float

    def __init__(self, *, path: str, seconds: float, reason: str) -> None:
        super().__init__(reason, path=path, seconds=seconds, reason=reason)


class ChangesLostError(AsyncLockError):
    """The changes of a table since an instant can no longer be known; nothing was returned.

    A consumer starts again: it replaces its copy with all rows of ``changes`` without ``since``.

    Attributes:
        path: The table.
        since: The instant.
        reason: Why not.
    """

    code = Code.CHANGES_LOST
    _fields = ("path", "since", "reason")

    def __init__(self, *, path: str, since: str, reason: str) -> None:
        super().__init__(
            f"what changed in the table {path} since {since} cannot be known any more: {reason}. Start again "
            "with since=None, and put its rows in place of those of earlier calls",
            path=path, since=since, reason=reason,
        )  # fmt: skip


class ClusteringPlanError(AsyncLockError):
    """The table has a clustering plan, with which every write fails; nothing was written.

    Attributes:
        path: The table.
        instant: Instant time of the plan.
        state: ``REQUESTED`` before the plan is carried out, ``INFLIGHT`` from then on.
    """

    code = Code.CLUSTERING_PLAN
    _fields = ("path", "instant", "state")

    def __init__(self, *, path: str, instant: str, state: str) -> None:
        if state == "REQUESTED":
            remedy = f"delete {path}/.hoodie/timeline/{instant}.clustering.requested"
        else:
            remedy = (
                f"CALL run_rollback_inflight_tableservice(path => '{path}', pending_instant => '{instant}', "
                "delete_request_instant_file => true)"
            )
        super().__init__(
            f"the splice table {path} has the pending clustering plan {instant}, with which every write "
            f"fails; nothing was written. Remove it with asynclock pipeline repair, or: {remedy}; and "
            "cluster a second table under optimistic concurrency control instead"
        )
        self.path, self.instant, self.state = path, instant, state


class CutFilesError(AsyncLockError):
    """Files of the table are shorter than their commits say; nothing was written.

    Readers see the remaining part, without an error of Hudi's. A compaction or clustering would make the loss
    permanent, so services refuse to run.

    Attributes:
        path: The table.
        files: Paths of the files, below the table, each with its present size and the one in its commit.
    """

    code = Code.CUT_FILES
    _fields = ("path", "files")

    def __init__(self, *, path: str, files: tuple[str, ...]) -> None:
        super().__init__(
            f"{len(files)} files of the table {path} are cut, such as {files[0]}: the rest of their rows "
            "cannot be read; nothing was written. Put the files back from a backup, or restore a savepoint "
            "from before, with which the streams read their sources again"
        )
        self.path, self.files = path, files


class StrayFilesError(AsyncLockError):
    """The table has files outside its buckets, with which every write fails; nothing was written.

    Attributes:
        path: The table.
        files: Paths of the files, below the table; after an interrupted repair also its folder.
    """

    code = Code.STRAY_FILES
    _fields = ("path", "files")

    def __init__(self, *, path: str, files: tuple[str, ...]) -> None:
        super().__init__(
            f"the splice table {path} has files outside of its buckets, {len(files)} in all, such as "
            f"{files[0]}: every write fails with them; nothing was written. Something wrote them without the "
            "table's options. Stop it, and run asynclock pipeline repair, which moves their rows into buckets"
        )
        self.path, self.files = path, files


class TableBusyError(AcquireTimeoutError):
    """A reservation gave up, because work on the table did not end in time.

    Attributes:
        path: The table.
        busy: The work that was still in flight.
    """

    code = Code.TABLE_BUSY
    _fields = ("key", "timeout", "status", "path", "busy")

    def __init__(
        self,
        *,
        key: str,
        timeout: float,
        path: str,
        busy: tuple[str, ...],
        status: Any = None,  # noqa: ANN401  as in AcquireTimeoutError
    ) -> None:
        AsyncLockError.__init__(
            self,
            f"the table {path} was not reserved within {timeout:g} s, because work on it has not ended: "
            f"{'; '.join(busy)}. The reservation was given up; allow more time, or stop that work",
            key=key, timeout=timeout, status=status, path=path, busy=busy,
        )  # fmt: skip
