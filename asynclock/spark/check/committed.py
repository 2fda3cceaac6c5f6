"""The account of a table's commits: the batches in it, and those that came too late or twice."""

from __future__ import annotations

import json
from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from asynclock.spark.hudi.instants import BatchCommit

NamedTypes = tuple[tuple[str, str], ...]
_ENTRY: Final = "logOffset"  # in the offsets of Spark's file source


@dataclass(frozen=True, kw_only=True, slots=True)
class Committed:
    """The batches of one stream that were committed by an instant.

    Attributes:
        last: Number of the last batch of the checkpoint's query; -1 if there is none. The batches of a query
            are committed in their order.
        columns: The columns that batches of that query were read with, by batch; empty if the commit does not
            name them. A batch of bad rows only may have left no commit.
        commits: Those commits, by batch.
        offsets: The ends of the batches in the source, from those commits, by batch.
        ends: For a source of files: the last entry of the source's log that a batch read, and the batch, in
            order, for each of those commits that says so.
        other: The last batch of any other query that read the source; None if there is none. Its files are
            not known, since a checkpoint knows only its own.
        other_offsets: The ends of the batches of other queries.
    """

    last: int
    columns: dict[int, NamedTypes]
    commits: dict[int, BatchCommit]
    offsets: dict[int, str]
    ends: list[tuple[int, int]]
    other: BatchCommit | None
    other_offsets: list[str]

    @classmethod
    def of(cls, commits: Iterable[BatchCommit], stream: str, query_id: str | None) -> Committed:
        """Return the commits' account of a stream.

        Args:
            commits: The commits up to the instant.
            stream: Its name.
            query_id: The query of its checkpoint; None if that has none yet.
        """
        batches = [commit for commit in commits if commit.stream == stream and commit.batch_id >= 0]
        mine = {commit.batch_id: commit for commit in batches if commit.query_id == query_id}
        # A commit without its end in a source was written by the API, and its rows are events.
        others = [commit for commit in batches if commit.query_id != query_id and commit.offset]
        offsets = {batch: commit.offset for batch, commit in mine.items() if commit.offset}
        entries = ((json.loads(offset).get(_ENTRY), batch) for batch, offset in offsets.items())
        return cls(
            last=max(mine, default=-1),
            columns={batch: commit.columns for batch, commit in mine.items()},
            commits=mine,
            offsets=offsets,
            ends=sorted((entry, batch) for entry, batch in entries if entry is not None),
            other=max(others, key=lambda commit: commit.completed, default=None),
            other_offsets=[commit.offset for commit in others],
        )

    def batch_of(self, entry: int) -> int:
        """Return the batch that read an entry of the source's log; a number above ``last`` if none did.

        Without the end of a batch, its number is the number of its entry.
        """
        at = bisect_left(self.ends, (entry, -1))
        if at == len(self.ends):
            return max(entry, self.last + 1) if self.ends else entry
        is_first = self.ends[at][1] == min(self.columns)
        return self.ends[at][1] if at or is_first else entry


def stale_commits(commits: Sequence[BatchCommit]) -> list[BatchCommit]:
    """Return the commits whose token is lower than that of an earlier commit of their stream."""
    highest: dict[str, int] = {}
    stale = []
    for commit in commits:
        known = highest.get(commit.stream, commit.fencing_token)
        if commit.fencing_token < known:
            stale.append(commit)
        highest[commit.stream] = max(known, commit.fencing_token)
    return stale


def repeated_batches(commits: Sequence[BatchCommit]) -> list[BatchCommit]:
    """Return the commits that repeat a batch; a write without a batch number never does."""
    seen: set[tuple[str, str, int]] = set()
    repeated = []
    for commit in commits:
        if commit.batch_id >= 0 and commit.batch in seen:
            repeated.append(commit)
        seen.add(commit.batch)
    return repeated
