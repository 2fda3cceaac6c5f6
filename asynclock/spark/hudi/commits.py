"""The commits of a table as they grow: our batches, the columns, the names of the view and the locks.

The first read goes through all commits, later ones only through new ones. Memory does not grow with their
number: only the last batch of each stream and query, and ranges of batch numbers, are kept.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from asynclock.spark.hudi.columns import Stored, stored_columns, union
from asynclock.spark.hudi.instants import DELETES, METADATA_PREFIX, REBUCKET, BatchCommit
from asynclock.spark.hudi.meta import active_timeline
from asynclock.spark.hudi.ranges import Ranges
from asynclock.spark.jvm import items
from asynclock.spark.retry import READ, retry

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from asynclock.spark.hudi.timeline import Timeline


@dataclass(slots=True)
class _Query:
    """The known commits of a query: the last to complete, and the numbers of all batches."""

    last: BatchCommit | None = None
    batches: Ranges = field(default_factory=Ranges)


class Commits:
    """The commits of one table, archived ones included, as of the last ``refresh``.

    Not thread-safe: each writer needs its own.

    Args:
        timeline: The timeline that is read.
    """

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._last: BatchCommit | None = None
        self._queries: dict[str, dict[str, _Query]] = {}
        self._columns: dict[str, Stored] = {}
        self._strays: set[str] = set()
        self._schemas: set[tuple[str, frozenset[str] | None]] = set()
        self._view: dict[str, tuple[str, str]] = {}
        self._derived: dict[str, str] = {}
        self._newest: tuple[str, str] = ("", "")
        self._pending: frozenset[str] = frozenset()
        self._restored = ("", "")
        self._archived_until = ""

    def refresh(self) -> None:
        """Read the commits since the last refresh, from the archived timeline too if needed.

        Raises:
            Py4JJavaError, CapturedException: Hudi could not read the timeline.
        """
        meta = self._timeline.meta()
        if meta is not None:
            retry(lambda: self._read(meta), READ)

    def newest(self) -> BatchCommit | None:
        """Return the known commit of a batch that completed last, or None if there is none."""
        return self._last

    def has(self, stream: str, query_id: str, batch_id: int) -> bool:
        """Return whether that batch is committed, on the active or on the archived timeline."""
        query = self._queries.get(stream, {}).get(query_id)
        return query is not None and batch_id in query.batches

    def query_ids(self, stream: str) -> list[str]:
        """Return the queries that have committed to ``stream``, the one with the newest commit last."""
        newest = {name: one.last.completed for name, one in self._queries.get(stream, {}).items() if one.last}
        return sorted(newest, key=lambda query_id: newest[query_id])

    def columns(self) -> Mapping[str, Stored]:
        """Return the union of the columns of all known commits; empty before the first."""
        return MappingProxyType(self._columns)

    def view_names(self) -> Mapping[str, str]:
        """Return the names of the view that commits carry; see ``BatchCommit.view``."""
        return {column: name for column, (_, name) in self._view.items()}

    def derived(self) -> Mapping[str, str]:
        """Return how the derived columns are computed; see ``BatchCommit.derived``."""
        return MappingProxyType(self._derived)

    def strays(self) -> frozenset[str]:
        """Return the files outside the buckets that known commits to a splice table wrote."""
        return frozenset(self._strays)

    def forget_strays(self, files: Iterable[str]) -> None:
        """Take files off ``strays``: a repair, a rollback or a cleaning has removed them."""
        self._strays.difference_update(files)

    def archived_until(self) -> str:
        """Return the latest completion time of a known commit that is archived; empty if none is."""
        return self._archived_until

    def _read(self, meta: Any) -> None:  # noqa: ANN401  py4j objects have no types
        active = active_timeline(meta)
        self._forget_what_was_restored(active)
        writes = active.getCommitsTimeline()
        completed = writes.filterCompletedInstants()
        pending = frozenset(
            instant.requestedTime() for instant in items(writes.filterInflightsAndRequested().getInstants())
        )
        newest_requested, newest_completed = self._newest
        # Archiving takes the oldest requests first and stops before a pending one. So while the newest commit
        # seen is still active, no unseen instant can have been archived, except one that was pending then.
        unseen_archived = not completed.containsInstant(newest_requested) if newest_requested else True
        settled = self._pending - pending
        if unseen_archived or any(not active.containsInstant(instant) for instant in settled):
            for requested, done, metadata in self._timeline.archived():
                self._archived_until = max(self._archived_until, done)
                self._add(requested, done, metadata)
        if newest_completed:
            completed = completed.findInstantsModifiedAfterByCompletionTime(newest_completed)
        newest = self._newest
        for requested, done, metadata in self._timeline.committed(completed):
            newest = max(newest, (requested, done), key=lambda times: times[1])
            self._add(requested, done, metadata)
        self._newest, self._pending = newest, pending

    def _forget_what_was_restored(self, active: Any) -> None:  # noqa: ANN401  py4j
        """Start again after a restore, which takes commits off the timeline."""
        # A restore under way counts, and counts again when it is done: meanwhile commits still exist.
        restores = [
            (instant.requestedTime(), instant.getCompletionTime() or "")
            for instant in items(active.getRestoreTimeline().getInstants())
        ]
        if (newest := max(restores, default=("", ""))) != self._restored:
            self._restored = newest
            for known in (
                self._queries,
                self._columns,
                self._schemas,
                self._view,
                self._derived,
                self._strays,
            ):
                known.clear()
            self._last = None
            self._newest, self._pending = ("", ""), frozenset()

    def _add(self, requested: str, completed: str, metadata: Mapping[str, str]) -> None:
        """Take note of a commit; it may be known already."""
        is_batch = METADATA_PREFIX + "stream" in metadata
        commit = BatchCommit.parse(requested, completed, metadata) if is_batch else None
        # The schema is Hudi's own entry, so commits of plain SQL have one, too.
        schema = metadata.get("schema", ""), frozenset(commit.floats) if commit else None
        if schema not in self._schemas:
            self._schemas.add(schema)
            self._columns = union(self._columns, stored_columns(*schema))
        if commit is None:
            self._strays.update(filter(None, metadata.get("strays", "").split("\n")))
            return
        for column, name in commit.view.items():  # the first commit that has a column names it
            self._view[column] = min(self._view.get(column, (completed, name)), (completed, name))
        for column, how in commit.derived.items():
            self._derived.setdefault(column, how)
        if self._last is None or completed > self._last.completed:
            self._last = commit
        # Each of those has a query of its own, which nothing asks for.
        if commit.stream not in {DELETES, REBUCKET}:
            query = self._queries.setdefault(commit.stream, {}).setdefault(commit.query_id, _Query())
            query.batches.add(commit.batch_id)
            if query.last is None or completed > query.last.completed:
                query.last = commit
