"""The timeline of a table as a listing of its present instants, read at each call.

It is read through Hudi's own classes in the driver's JVM, so every store and table version that Hudi reads
can be read here.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError

from asynclock.spark.hadoop import HadoopFiles
from asynclock.spark.hudi.carried import carried_commits
from asynclock.spark.hudi.columns import Stored, stored_columns
from asynclock.spark.hudi.instants import METADATA_PREFIX, WRITES, BatchCommit, Instant
from asynclock.spark.hudi.meta import active_timeline, dumped, meta_client
from asynclock.spark.hudi.order import is_utc
from asynclock.spark.jvm import classes, items
from asynclock.spark.retry import READ, retry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark.sql import SparkSession


class Timeline:
    """Lists the timeline of one table, read at each call unless that says otherwise.

    Not thread-safe.

    Args:
        spark: A session with Hudi and asynclock's jar.
        path: The place of the table.

    Attributes:
        path: The place of the table.
        spark: The session.
    """

    def __init__(self, spark: SparkSession, path: str) -> None:
        self.spark = spark
        self.path = path
        self._meta: Any = None

    def exists(self) -> bool:
        """Return whether there is a Hudi table at the path."""
        return self.meta() is not None

    def properties(self) -> dict[str, str]:
        """Return the table's ``hoodie.properties``; empty if there is no table."""
        meta = self.meta()
        if meta is None:
            return {}
        # As one text: a call into the JVM for each property would take a tenth of a second.
        mapper = classes(self.spark).com.fasterxml.jackson.databind.ObjectMapper()
        properties: dict[str, str] = json.loads(mapper.writeValueAsString(meta.getTableConfig().getProps()))
        return properties

    def is_utc(self) -> bool:
        """Return whether the timeline is in UTC, as in new tables, and not in local times of its drivers."""
        return not self.exists() or is_utc(self.meta())

    def instants(self) -> list[Instant]:
        """Return the current active timeline, in the order of the requests."""
        meta = self.meta()
        if meta is None:
            return []
        utc = is_utc(meta)
        return [_instant(found, utc=utc) for found in items(active_timeline(meta).getInstants())]

    def pending(self, *, refreshed: bool = False) -> list[Instant]:
        """Return the instants that are requested or in flight now.

        Args:
            refreshed: The timeline was just read, by ``Commits.refresh``, so nothing is read.
        """
        meta = self.meta()
        if meta is None:
            return []
        active = meta.getActiveTimeline() if refreshed else active_timeline(meta)
        pending = active.filterInflightsAndRequested()
        utc = is_utc(meta)
        return [_instant(found, utc=utc) for found in items(pending.getInstants())]

    def savepoints(self) -> list[str]:
        """Return the instants that have a savepoint now, oldest first."""
        meta = self.meta()
        if meta is None:
            return []
        found = active_timeline(meta).getSavePointTimeline().filterCompletedInstants()
        return [instant.requestedTime() for instant in items(found.getInstants())]

    def newest_completion(self) -> str | None:
        """Return the latest completion time of an instant now; None if nothing is completed."""
        return max((instant.completed for instant in self.instants() if instant.completed), default=None)

    def restores(self) -> list[tuple[str, str | None]]:
        """Return the oldest instant that each restore has dropped, and its completion time; None: pending."""
        meta = self.meta()
        if meta is None:
            return []
        active = active_timeline(meta)
        found: list[tuple[str, str | None]] = []
        for instant in items(active.getRestoreTimeline().getInstants()):
            completed = instant.getCompletionTime()
            dropped = active.readRestoreMetadata(instant).getRestoreInstantInfo() if completed else ()
            found.append((min((one.getCommitTime() for one in dropped), default=completed or ""), completed))
        return found

    @property
    def commits(self) -> list[BatchCommit]:
        """All batch commits, archived ones included, in the order of completion; read at each call."""
        meta = self.meta()
        if meta is None:
            return []
        return sorted(retry(lambda: self._all(meta), READ), key=lambda commit: commit.completed)

    def _all(self, meta: Any) -> list[BatchCommit]:  # noqa: ANN401  py4j objects have no types
        # The archived ones last: an instant that is archived meanwhile is then seen twice instead of never.
        active = active_timeline(meta).getCommitsTimeline().filterCompletedInstants()
        found = {
            requested: BatchCommit.parse(requested, completed, metadata)
            for source in (self.committed(active), self.archived())
            for requested, completed, metadata in source
            if METADATA_PREFIX + "stream" in metadata
        }
        return list(found.values())

    def newest(self) -> BatchCommit | None:
        """Return the newest batch commit of the active timeline, read now, and no other; None if none."""
        meta = self.meta()
        if meta is None:
            return None
        active = active_timeline(meta)
        # A batch is a deltacommit, or a commit if the table is copy-on-write.
        completed = active.getCommitsTimeline().filterCompletedInstants().getInstants()
        writes = (one for one in items(completed) if str(one.getAction()) in WRITES)
        for instant in sorted(writes, key=lambda one: str(one.getCompletionTime()), reverse=True):
            metadata = dict(active.readCommitMetadata(instant).getExtraMetadata())
            if METADATA_PREFIX + "stream" in metadata:
                return BatchCommit.parse(instant.requestedTime(), instant.getCompletionTime(), metadata)
        return None

    def present_columns(self) -> Mapping[str, Stored]:
        """Return the columns that the table has for Hudi now, with which it compacts and reads."""
        meta = self.meta()
        if meta is None:
            return {}
        active_timeline(meta)
        resolver = classes(self.spark).org.apache.hudi.common.table.TableSchemaResolver(meta)
        return stored_columns(resolver.getTableSchema(False).toString())

    def silent(self, timeout_ms: int) -> list[Instant]:
        """Return the writes in flight whose writer has sent no heartbeat for ``timeout_ms`` milliseconds."""
        meta = self.meta()
        if meta is None:
            return []
        heartbeats = classes(self.spark).org.apache.hudi.common.heartbeat.HoodieHeartbeatUtils
        storage = meta.getStorage()
        return [
            instant
            for instant in self.pending()
            if instant.action in WRITES
            and heartbeats.isHeartbeatExpired(instant.requested, timeout_ms, storage, self.path)
        ]

    def beating(self, timeout_ms: int) -> list[Instant]:
        """Return the actions in flight that have had a heartbeat within ``timeout_ms`` milliseconds."""
        meta = self.meta()
        if meta is None:
            return []
        heartbeats = classes(self.spark).org.apache.hudi.common.heartbeat.HoodieHeartbeatUtils
        storage = meta.getStorage()
        return [
            instant
            for instant in self.pending()
            if not heartbeats.isHeartbeatExpired(instant.requested, timeout_ms, storage, self.path)
        ]

    def committed(self, commits: Any) -> Iterator[tuple[str, str, Mapping[str, str]]]:  # noqa: ANN401  py4j
        """Yield request, completion and metadata of the completed commits of an active timeline."""
        if commits.countInstants():
            yield from self._dump(lambda file: self._java().active(self.meta(), commits, file))

    def archived(self) -> Iterator[tuple[str, str, Mapping[str, str]]]:
        """Yield the same of the archived commits, in no order, and of those from before a rebucket."""
        yield from self._dump(lambda file: self._java().archived(self.meta(), file))
        yield from carried_commits(HadoopFiles(self.spark), self.path)

    def meta(self) -> Any:  # noqa: ANN401  py4j
        """Return Hudi's ``HoodieTableMetaClient``; None while there is no table."""
        if self._meta is None:
            self._meta = meta_client(self.spark, self.path)
        return self._meta

    def _java(self) -> Any:  # noqa: ANN401
        return classes(self.spark).io.asynclock.timeline.Commits

    def _dump(self, write: Callable[[str], object]) -> Iterator[tuple[str, str, Mapping[str, str]]]:
        schemas: list[str] = []
        for commit in dumped(write):
            metadata = commit["metadata"]
            schema = metadata.get("schema")
            if isinstance(schema, str):
                schemas.append(schema)
            elif schema is not None:
                metadata["schema"] = schemas[schema]
            yield commit["requested"], commit["completed"], metadata


def is_table(spark: SparkSession, path: str) -> bool:
    """Return whether a path has a Hudi table, or may have: a path that cannot be read counts as one."""
    try:
        return Timeline(spark, path).exists()
    except Py4JJavaError:
        return True


def _instant(found: Any, *, utc: bool) -> Instant:  # noqa: ANN401  py4j
    return Instant(
        requested=found.requestedTime(),
        completed=found.getCompletionTime(),
        action=found.getAction(),
        state=found.getState().toString(),
        utc=utc,
    )
