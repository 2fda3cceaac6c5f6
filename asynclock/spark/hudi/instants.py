"""Instants of a table's timeline, and the metadata that a batch writes into its commit."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from asynclock.spark.spec.derive import derived_by

if TYPE_CHECKING:
    from collections.abc import Mapping

_DIGITS: Final = "%Y%m%d%H%M%S%f"
_LENGTH: Final = 17
METADATA_PREFIX: Final = "asynclock."
DELTA_COMMIT: Final = "deltacommit"
DELETES: Final = "__deletes"
"""The stream in a delete's commit; no stream can have this name. Its query is the delete's id."""
REBUCKET: Final = "__rebucket"
"""The stream in a commit of a rebucket, whose rows are copies. Its query is the rebucket's id."""
COMPACTION: Final = "compaction"
COMPACTED: Final = "commit"
CLUSTERING: Final = "clustering"
CLUSTERED: Final = "replacecommit"
CLEAN: Final = "clean"
RESTORE: Final = "restore"
ROLLBACK: Final = "rollback"
SAVEPOINT: Final = "savepoint"
WRITES: Final = frozenset({DELTA_COMMIT, COMPACTED})
"""Actions of a batch: a compaction, which completes as ``commit``, has no batch in its metadata."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Instant:
    """One action on the timeline.

    The fields of a commit are None if only the timeline's listing was read, for other actions, and while the
    action is pending.

    Attributes:
        requested: Hudi's instant time of the request, which identifies the action; a savepoint has the time
            of the commit that it keeps.
        completed: Instant time of the completion; None while pending.
        action: For example ``deltacommit``, ``compaction``, ``clean``, ``rollback``. A compaction completes
            as ``commit``, a clustering as ``replacecommit``.
        state: ``REQUESTED``, ``INFLIGHT`` or ``COMPLETED``.
        stream: The stream that committed; ``__deletes`` for a delete of the pipeline, ``__rebucket`` for the
            copy of a rebucket. None: a table service,
            SQL, or a session without asynclock.
        batch: Number of the batch in the stream's query; None for a write without one.
        token: Fencing token of the lease under which it was written.
        rows: Inserts, updates and deletes that the commit wrote, by Hudi's write statistics. A row that is
            only copied into a new base file does not count. In a batch, only the newest event of a key
            counts. Rows that a compaction merges count as inserts or updates.
        bytes: Size of the files, or of the blocks appended to logs, that the commit wrote.
        latency: Seconds from request to completion; None while pending, and for a savepoint.
        archived: Whether it was read from the archived timeline.
        utc: Whether its times are in UTC; False: in the local time of the driver that made it.
    """

    requested: str
    completed: str | None
    action: str
    state: str
    stream: str | None = None
    batch: int | None = None
    token: int | None = None
    rows: int | None = None
    bytes: int | None = None
    latency: float | None = None
    archived: bool = False
    utc: bool = False

    def in_local_time(self) -> Instant:
        """Return it with its times in the local time of this process, for people; unchanged if not in UTC."""
        if not self.utc:
            return self
        completed = self.completed and _local(self.completed)
        return dataclasses.replace(self, requested=_local(self.requested), completed=completed, utc=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchCommit:
    """A committed batch of a stream, from the metadata of its delta commit.

    Attributes:
        requested: Hudi's instant time of the request.
        completed: Instant time of the completion, by which commits are ordered.
        stream: Name of the stream.
        query_id: Id of the streaming query, which its checkpoint keeps.
        batch_id: Number of the batch in that query.
        fencing_token: Token of the lease under which the batch was written.
        owner: Owner id of that lease.
        buckets: Number of buckets that the writer assumed.
        key: The key columns of the table.
        table_id: Id of the table, chosen by its first writer and kept by all others.
        locks: URL of the locks that the writer held.
        view: The names of columns in the view by their physical names, unless they follow from those.
        columns: The columns of the stream that the batch was read with, by their names in the spec, in the
            form of ``writer.batch_columns.read_with``. Empty in commits without it.
        floats: The stored columns that hold floats as doubles.
        offset: The end of the batch in its source, in the form of the checkpoint; empty if it is not known.
    """

    requested: str
    completed: str
    stream: str
    query_id: str
    batch_id: int
    fencing_token: int
    owner: str
    buckets: int
    key: tuple[str, ...]
    table_id: str
    columns: tuple[tuple[str, str], ...] = ()
    floats: tuple[str, ...] = ()
    locks: str = ""
    view: Mapping[str, str] = field(default_factory=dict)
    offset: str = ""

    @property
    def derived(self) -> dict[str, str]:
        """How its derived columns are computed, by their names."""
        return {name: rule for name, how in self.columns if (rule := derived_by(how))}

    @property
    def batch(self) -> tuple[str, str, int]:
        """Identity of the batch: a commit with the same stream, query and number repeats it."""
        return self.stream, self.query_id, self.batch_id

    def metadata(self) -> dict[str, str]:
        """Return the entries for the commit's metadata; ``parse`` reads them."""
        names = ("stream", "query_id", "batch_id", "fencing_token", "owner", "buckets", "table_id", "locks")
        said = {name: str(getattr(self, name)) for name in (*names, "offset")}
        said |= {
            "key": ",".join(self.key),
            "columns": json.dumps(dict(self.columns), separators=(",", ":")),
            "floats": ",".join(self.floats),
            "view": json.dumps(self.view, separators=(",", ":")),
        }
        return {METADATA_PREFIX + name: text for name, text in said.items()}

    @classmethod
    def parse(cls, requested: str, completed: str, metadata: Mapping[str, str]) -> BatchCommit:
        """Read the entries that ``metadata`` made."""
        return cls(
            requested=requested,
            completed=completed,
            stream=metadata[METADATA_PREFIX + "stream"],
            query_id=metadata[METADATA_PREFIX + "query_id"],
            batch_id=int(metadata[METADATA_PREFIX + "batch_id"]),
            fencing_token=int(metadata[METADATA_PREFIX + "fencing_token"]),
            owner=metadata[METADATA_PREFIX + "owner"],
            buckets=int(metadata[METADATA_PREFIX + "buckets"]),
            key=tuple(metadata[METADATA_PREFIX + "key"].split(",")),
            table_id=metadata[METADATA_PREFIX + "table_id"],
            locks=metadata[METADATA_PREFIX + "locks"],
            view=json.loads(metadata[METADATA_PREFIX + "view"]),
            columns=tuple(json.loads(metadata[METADATA_PREFIX + "columns"]).items()),
            floats=tuple(filter(None, metadata[METADATA_PREFIX + "floats"].split(","))),
            offset=metadata[METADATA_PREFIX + "offset"],
        )


def _local(time: str) -> str:
    """Return a time of a timeline in UTC as local time, in digits."""
    then = dt.datetime.strptime(f"{time:0<{_LENGTH}}"[:_LENGTH], _DIGITS).replace(tzinfo=dt.UTC)
    return then.astimezone().strftime(_DIGITS)[:_LENGTH]
