"""What one instant of a table's timeline says, and what a batch notes in the commit that it makes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

METADATA_PREFIX: Final = "asynclock."
DELTA_COMMIT: Final = "deltacommit"
COMPACTION: Final = "compaction"
COMPACTED: Final = "commit"
CLEAN: Final = "clean"


@dataclass(frozen=True, kw_only=True, slots=True)
class Instant:
    """One action on the timeline.

    Attributes:
        requested: Hudi's instant time of the request; names the instant.
        completed: Instant time of the completion, None while pending.
        action: For example ``deltacommit``, ``compaction``, ``clean``, ``rollback``.
        state: ``REQUESTED``, ``INFLIGHT`` or ``COMPLETED``.
    """

    requested: str
    completed: str | None
    action: str
    state: str


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchCommit:
    """A committed batch of a stream, from the metadata of its delta commit.

    Attributes:
        requested: Hudi's instant time of the request.
        completed: Instant time of the completion; commits count in this order.
        stream: Name of the stream.
        query_id: Id of the streaming query, which lives in its checkpoint.
        batch_id: Number of the batch in that query.
        fencing_token: Token of the lease under which the batch was written.
        owner: Owner id of that lease.
        buckets: Buckets that the writer assumed.
        key: The key columns of the table.
        table_id: Id of the table: made up by its first writer, kept by all others.
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

    @property
    def batch(self) -> tuple[str, str, int]:
        """What makes it a repetition: the same batch of the same query of the same stream."""
        return self.stream, self.query_id, self.batch_id

    def metadata(self) -> dict[str, str]:
        """The entries of the commit metadata that say this; ``parse`` reads them."""
        names = ("stream", "query_id", "batch_id", "fencing_token", "owner", "buckets", "table_id")
        said = {name: str(getattr(self, name)) for name in names}
        return {METADATA_PREFIX + name: text for name, text in (said | {"key": ",".join(self.key)}).items()}

    @classmethod
    def parse(cls, requested: str, completed: str, metadata: Mapping[str, str]) -> BatchCommit:
        """Read what ``metadata`` wrote into a commit."""
        return cls(
            requested=requested,
            completed=completed,
            stream=metadata[METADATA_PREFIX + "stream"],
            query_id=metadata[METADATA_PREFIX + "query_id"],
            batch_id=int(metadata[METADATA_PREFIX + "batch_id"]),
            fencing_token=int(metadata[METADATA_PREFIX + "fencing_token"]),
            owner=metadata[METADATA_PREFIX + "owner"],
            buckets=int(metadata[METADATA_PREFIX + "buckets"]),
            key=tuple(metadata.get(METADATA_PREFIX + "key", "").split(",")),
            table_id=metadata.get(METADATA_PREFIX + "table_id", ""),
        )
