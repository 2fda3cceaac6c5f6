"""Reports of runs, as plain numbers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Wasted:
    """The cost of conflicts: writes that failed because another writer had committed, or was about to.

    Attributes:
        conflicts: Number of these writes.
        seconds: Their duration, without the pauses between them.
    """

    conflicts: int = 0
    seconds: float = 0.0

    def __add__(self, other: Wasted) -> Wasted:
        return Wasted(conflicts=self.conflicts + other.conflicts, seconds=self.seconds + other.seconds)

    def __sub__(self, other: Wasted) -> Wasted:
        return Wasted(conflicts=self.conflicts - other.conflicts, seconds=self.seconds - other.seconds)


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchReport:
    """One micro-batch.

    Attributes:
        stream: Name of the stream.
        batch_id: Its number in the query.
        rows: Rows read, bad ones included; 0 if the batch was skipped.
        quarantined: Bad rows moved to the quarantine.
        skipped: Whether the batch had been committed before, so that nothing was read or written.
        seconds: From the start of the batch to its commit.
        reservation_seconds: Time spent waiting for a reservation of the table; not part of ``seconds``.
        retries: Earlier attempts that failed with a temporary error; ``seconds`` is the last attempt's.
        wasted: The cost of conflicts for the batch, earlier failed attempts included.
        look_seconds: The part of ``seconds`` in which the batch checked whether the table is reserved.
    """

    stream: str
    batch_id: int
    rows: int = 0
    quarantined: int = 0
    skipped: bool
    seconds: float = 0.0
    reservation_seconds: float
    retries: int = 0
    wasted: Wasted = Wasted()
    look_seconds: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class StreamProgress:
    """The progress of a stream in a run.

    Attributes:
        stream: Its name.
        files: Files that it has to read, counted at its start; None: unknown, as for a topic and for a run
            without an end.
        files_done: Files of committed batches.
        rows: Rows of committed batches, bad ones included.
        seconds: Since the stream began.
        batch_id: The batch in work; None between two.
    """

    stream: str
    files: int | None
    files_done: int
    rows: int
    seconds: float
    batch_id: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Backlog:
    """The part of a source that is not committed yet.

    Attributes:
        stream: Name of the stream.
        files: Files that wait; None for a topic.
        offsets: Offsets of the topic that are not committed, the marks of transactions included; None for
            files.
        lag_seconds: Age of the file that waits longest, by its modification time; 0.0 if none waits; None for
            a topic.
    """

    stream: str
    files: int | None = None
    offsets: int | None = None
    lag_seconds: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class StreamReport:
    """One stream of a run.

    Attributes:
        stream: Its name.
        batches: Batches seen, skipped ones included.
        rows: Rows read, bad ones included.
        skipped: Batches that had been committed before.
        quarantined: Bad rows moved to the quarantine.
        lock_wait_seconds: Time until the stream's lease was held.
        reservation_wait_seconds: Time spent between batches waiting for reservations of the table.
        seconds: From holding the lease to the end of the stream.
        fencing_token: Token of the lease; None if it was never held.
        unnamed_columns: Columns of its files that the spec does not name, at most 100; they are left out.
        retries: Attempts that failed with a temporary error, and were repeated.
        wasted: The cost of conflicts.
        error: The reason why the stream ended before the others, in one sentence; None if it has not failed.
    """

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
    wasted: Wasted = Wasted()
    error: str | None = None

    @property
    def rows_per_second(self) -> float:
        """Rows read per second while the lease was held."""
        return self.rows / self.seconds if self.seconds else 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class RunReport:
    """A run of several streams in one driver.

    Attributes:
        streams: One report per stream, in the order of the spec.
        seconds: From start to end.
    """

    streams: tuple[StreamReport, ...]
    seconds: float

    @property
    def failed(self) -> tuple[str, ...]:
        """Names of the streams that failed."""
        return tuple(stream.stream for stream in self.streams if stream.error is not None)

    @property
    def rows(self) -> int:
        """Rows read by all streams."""
        return sum(stream.rows for stream in self.streams)

    @property
    def wasted(self) -> Wasted:
        """The cost of conflicts for all streams."""
        return sum((stream.wasted for stream in self.streams), Wasted())

    @property
    def rows_per_second(self) -> float:
        """Rows read a second, over the whole run."""
        return self.rows / self.seconds if self.seconds else 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class DeleteReport:
    """A delete.

    Attributes:
        keys: Given keys, each counted once.
        absent: Keys of which the table had nothing to delete.
        written: Tombstones, or Hudi's deletes, that were appended.
        delete_id: Id of the delete in its commit; None if nothing was appended.
    """

    keys: int
    absent: int
    written: int
    delete_id: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class RestoreReport:
    """A restore.

    Attributes:
        savepoint: The savepoint that the table is now at.
        dropped: Commits of streams and deletes that were dropped.
        undone_deletes: Ids of the deletes among them: the erased rows come back, unless you delete them
        again.
    """

    savepoint: str
    dropped: int
    undone_deletes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class RebucketReport:
    """A rebucket.

    Attributes:
        keys: Rows of the table, all of them equal in both tables; None: an interrupted rebucket was finished,
            which had compared them.
        before: The old number of buckets.
        buckets: The new one.
        caught_up: Rows that changed while the first copy was made, and were copied again.
        old: URL of the old table, which stays until you remove it.
        seconds: From start to end.
        reserved_seconds: The part of it for which streams and services had to wait.
    """

    keys: int | None
    before: int
    buckets: int
    caught_up: int
    old: str
    seconds: float
    reserved_seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class ServiceReport:
    """One piece of work of a table service.

    Attributes:
        service: ``compaction``, ``clustering``, ``cleaning``, ``rollback``, ``archiving`` or ``sync``.
        instant: The instant of the work on the timeline, for a rollback the rolled back one; None if there is
            none.
        seconds: Its duration; the time of a rollback is part of a cleaning.
    """

    service: str
    instant: str | None = None
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class ServicesReport:
    """The work of the table services in a run.

    Attributes:
        compactions: Instants compacted.
        clusterings: Instants clustered.
        cleanings: Rounds of cleaning.
        rolled_back: Instants of dead writers that were rolled back.
        seconds: From start to end.
        syncs: Number of times that catalogs outside were told about commits.
    """

    compactions: tuple[str, ...]
    clusterings: tuple[str, ...]
    cleanings: int
    rolled_back: tuple[str, ...]
    seconds: float
    syncs: int = 0
