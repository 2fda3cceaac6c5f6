"""The timeline of a table: the batches that are committed, by whom, and what is still pending.

It is read through Hudi's own classes in the driver's JVM, so every store and table version that Hudi reads
can be read here. The first read goes through all commits, later ones only through new ones. What is kept of
them does not grow with their number: the last batch of each stream and query, and ranges of batch numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JJavaError

from asynclock.errors import ConfigError
from asynclock.spark.errors import ClusteringPlanError, CutFilesError, StrayFilesError
from asynclock.spark.hadoop import HadoopFiles
from asynclock.spark.hudi.columns import Stored, stored_columns, union
from asynclock.spark.hudi.instants import CLUSTERING, DELETES, METADATA_PREFIX, WRITES, BatchCommit, Instant
from asynclock.spark.hudi.order import is_utc, newest_instant, refuse_disorder
from asynclock.spark.hudi.ranges import Ranges
from asynclock.spark.hudi.table import active_timeline, dumped, meta_client
from asynclock.spark.jvm import classes, items
from asynclock.spark.retry import READ, retry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark.sql import SparkSession

REPAIR_COPY: Final = ".hoodie/asynclock-repair"
"""Where a repair keeps rows while it moves them, below the table; there until it is done."""


@dataclass(slots=True)
class _Query:
    """What is known of a query's commits: the last to complete, and the numbers of all batches."""

    last: BatchCommit | None = None
    batches: Ranges = field(default_factory=Ranges)


class Timeline:
    """The timeline of one table, as of the last ``refresh``.

    Not thread-safe: each writer needs its own.
    """

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._spark = spark
        self._path = path
        self._meta: Any = None
        self._any: BatchCommit | None = None
        self._queries: dict[str, dict[str, _Query]] = {}
        self._columns: dict[str, Stored] = {}
        self._strays: set[str] = set()
        self._schemas: set[tuple[str, frozenset[str] | None]] = set()
        self._view: dict[str, tuple[str, str]] = {}
        self._locked: BatchCommit | None = None
        self._newest: tuple[str, str] = ("", "")
        self._pending: frozenset[str] = frozenset()
        self._restored = ("", "")
        self._archived_until = ""

    @property
    def commits(self) -> list[BatchCommit]:
        """All batch commits, archived ones included, in the order of completion; read at each call."""
        meta = self._meta_client()
        if meta is None:
            return []
        return sorted(retry(lambda: self._all(meta), READ), key=lambda commit: commit.completed)

    def _all(self, meta: Any) -> list[BatchCommit]:  # noqa: ANN401  py4j objects have no types
        # The archived ones last: what is archived meanwhile is then seen twice instead of never.
        active = active_timeline(meta).getCommitsTimeline().filterCompletedInstants()
        found = {
            requested: BatchCommit.parse(requested, completed, metadata)
            for source in (self._active(meta, active), self._archived(meta))
            for requested, completed, metadata in source
            if METADATA_PREFIX + "stream" in metadata
        }
        return list(found.values())

    def archived_until(self) -> str:
        """Return the latest completion time of a known commit that is archived; empty if none is."""
        return self._archived_until

    def any_commit(self) -> BatchCommit | None:
        """Return one of the commits, or None if there is none."""
        return self._any

    def locked(self) -> BatchCommit | None:
        """Return the newest known commit that carries the URL of its locks, else any, or None."""
        return self._locked or self.any_commit()

    def view_names(self) -> Mapping[str, str]:
        """Return the names of the view that commits carry; see ``BatchCommit.view``."""
        return {column: name for column, (_, name) in self._view.items()}

    def newest(self) -> BatchCommit | None:
        """Return the newest batch commit of the active timeline, read now, and no other; None if none.

        One that carries the URL of its locks goes before one that does not.
        """
        meta = self._meta_client()
        if meta is None:
            return None
        active = active_timeline(meta)
        completed = active.getDeltaCommitTimeline().filterCompletedInstants().getInstants()
        newest = None
        for instant in sorted(items(completed), key=lambda one: str(one.getCompletionTime()), reverse=True):
            metadata = dict(active.readCommitMetadata(instant).getExtraMetadata())
            if METADATA_PREFIX + "stream" not in metadata:
                continue
            commit = BatchCommit.parse(instant.requestedTime(), instant.getCompletionTime(), metadata)
            if commit.locks:
                return commit
            newest = newest or commit
        return newest

    def columns(self) -> Mapping[str, Stored]:
        """Return the union of the columns of all known commits; empty before the first."""
        return MappingProxyType(self._columns)

    def present_columns(self) -> Mapping[str, Stored]:
        """Return the columns that Hudi takes for those of the table now, with which it compacts and reads."""
        meta = self._meta_client()
        if meta is None:
            return {}
        active_timeline(meta)
        resolver = classes(self._spark).org.apache.hudi.common.table.TableSchemaResolver(meta)
        return stored_columns(resolver.getTableSchema(False).toString())

    def has(self, stream: str, query_id: str, batch_id: int) -> bool:
        """Return whether that batch is committed, on the active or on the archived timeline."""
        query = self._queries.get(stream, {}).get(query_id)
        return query is not None and batch_id in query.batches

    def query_ids(self, stream: str) -> list[str]:
        """Return the queries that have committed to ``stream``, the one with the newest commit last."""
        newest = {name: one.last.completed for name, one in self._queries.get(stream, {}).items() if one.last}
        return sorted(newest, key=lambda query_id: newest[query_id])

    def exists(self) -> bool:
        """Return whether there is a Hudi table at the path."""
        return self._meta_client() is not None

    def properties(self) -> dict[str, str]:
        """Return the table's ``hoodie.properties``; empty if there is no table."""
        meta = self._meta_client()
        if meta is None:
            return {}
        properties = meta.getTableConfig().getProps()
        return {name: properties.getProperty(name) for name in properties.stringPropertyNames()}

    def instants(self) -> list[Instant]:
        """Return the current active timeline, in the order of the requests."""
        meta = self._meta_client()
        if meta is None:
            return []
        utc = is_utc(meta)
        return [_instant(found, utc=utc) for found in items(active_timeline(meta).getInstants())]

    def pending(self, *, refreshed: bool = False) -> list[Instant]:
        """Return the instants that are requested or in flight now.

        Args:
            refreshed: ``refresh`` was just called, so nothing is read.
        """
        meta = self._meta_client()
        if meta is None:
            return []
        active = meta.getActiveTimeline() if refreshed else active_timeline(meta)
        pending = active.filterInflightsAndRequested()
        utc = is_utc(meta)
        return [_instant(found, utc=utc) for found in items(pending.getInstants())]

    def savepoints(self) -> list[str]:
        """Return the instants that have a savepoint now, oldest first."""
        meta = self._meta_client()
        if meta is None:
            return []
        found = active_timeline(meta).getSavePointTimeline().filterCompletedInstants()
        return [instant.requestedTime() for instant in items(found.getInstants())]

    def newest_completion(self) -> str | None:
        """Return the latest completion time of an instant now; None if nothing is completed."""
        return max((instant.completed for instant in self.instants() if instant.completed), default=None)

    def restores(self) -> list[tuple[str, str | None]]:
        """Return the oldest instant that each restore has dropped, and its completion time; None: pending."""
        meta = self._meta_client()
        if meta is None:
            return []
        active = active_timeline(meta)
        found: list[tuple[str, str | None]] = []
        for instant in items(active.getRestoreTimeline().getInstants()):
            completed = instant.getCompletionTime()
            dropped = active.readRestoreMetadata(instant).getRestoreInstantInfo() if completed else ()
            found.append((min((one.getCommitTime() for one in dropped), default=completed or ""), completed))
        return found

    def cleaned_by_versions(self) -> list[str]:
        """Return the cleans that removed files without regard to commits, as another session may run them."""
        meta = self._meta_client()
        if meta is None:
            return []
        cleaner = classes(self._spark).org.apache.hudi.common.util.CleanerUtils
        cleans = active_timeline(meta).getCleanerTimeline().filterCompletedInstants().getInstants()
        done = ((clean.requestedTime(), cleaner.getCleanerMetadata(meta, clean)) for clean in items(cleans))
        return [
            requested
            for requested, metadata in done
            if metadata.getTotalFilesDeleted() and not metadata.getEarliestCommitToRetain()
        ]

    def refuse_clustering(self, *, refreshed: bool = False) -> None:
        """Make sure that there is no clustering plan, with which every write of a bucket table fails.

        Args:
            refreshed: As for ``pending``.

        Raises:
            ClusteringPlanError: There is a clustering plan.
        """
        for instant in self.pending(refreshed=refreshed):
            if instant.action == CLUSTERING:
                raise ClusteringPlanError(path=self._path, instant=instant.requested, state=instant.state)

    def strays(self) -> list[str]:
        """Return the files outside of a splice table's buckets that known commits wrote and that still exist.

        A repair, a rollback and a cleaning remove files, but not the commits that wrote them.
        """
        files = HadoopFiles(self._spark)
        self._strays = {file for file in self._strays if files.exists(f"{self._path}/{file}")}
        return sorted(self._strays)

    def cut_files(self) -> list[str]:
        """Return the files that are shorter than their commits say: path below the table and both sizes."""
        meta = self._meta_client()
        return [] if meta is None else list(classes(self._spark).io.asynclock.timeline.CutFiles.of(meta))

    def refuse_cut_files(self) -> None:
        """Make sure that no file of the table is cut: a service would make the loss permanent.

        Raises:
            CutFilesError: A file is shorter than its commit says. Nothing was written.
        """
        if cut := self.cut_files():
            raise CutFilesError(path=self._path, files=tuple(cut))

    def half_repaired(self) -> bool:
        """Return whether a repair was interrupted: rows of files that it removed are in its copies only."""
        return HadoopFiles(self._spark).exists(f"{self._path}/{REPAIR_COPY}")

    def refuse_strays(self) -> None:
        """Make sure that known commits left no file outside of the buckets, with which every write fails.

        Raises:
            StrayFilesError: There are such files.
        """
        strays = self.strays()
        if self.half_repaired():
            strays.append(REPAIR_COPY)
        if strays:
            raise StrayFilesError(path=self._path, files=tuple(strays))

    def unseen(self) -> list[dict[str, Any]]:
        """Return the commits of the active timeline that no read shows; see the Java class ``Unseen``."""
        meta = self._meta_client()
        if meta is None:
            return []
        java = classes(self._spark).io.asynclock.timeline.Unseen
        return retry(lambda: list(dumped(lambda file: java.dump(meta, file))), READ)

    def refuse_lost_properties(self) -> None:
        """Make sure that a table with instants has its properties, without which Hudi sees no table.

        Raises:
            ConfigError: They are empty or gone. Nothing was written.
        """
        # The instants first: whoever creates a table writes its properties before its first instant.
        if self.exists() or not newest_instant(self._spark, self._path):
            return
        if not self.exists():
            file = f"{self._path}/.hoodie/hoodie.properties"
            reason = (
                "the table has commits, but this file of it is empty or gone, so Hudi sees no table. Nothing "
                "was written; bring the file back from a copy of the table, or remove the table with its "
                "checkpoints and locks, and splice into a new one"
            )
            raise ConfigError(setting="path", value=file, reason=reason)

    def refuse_disorder(self) -> None:
        """Make sure that a commit now would be later than all that the table has, also what is archived.

        Raises:
            TimelineAheadError: It would not.
            ConfigError: The table is in UTC and the JVM is in another zone.
        """
        refuse_disorder(self._spark, self._path, self._archived_until)

    def is_utc(self) -> bool:
        """Return whether the timeline is in UTC, as a new one is, and not in local times of its drivers."""
        return not self.exists() or is_utc(self._meta_client())

    def silent(self, timeout_ms: int) -> list[Instant]:
        """Return the writes in flight whose writer has sent no heartbeat for ``timeout_ms`` milliseconds."""
        meta = self._meta_client()
        if meta is None:
            return []
        heartbeats = classes(self._spark).org.apache.hudi.common.heartbeat.HoodieHeartbeatUtils
        storage = meta.getStorage()
        return [
            instant
            for instant in self.pending()
            if instant.action in WRITES
            and heartbeats.isHeartbeatExpired(instant.requested, timeout_ms, storage, self._path)
        ]

    def beating(self, timeout_ms: int) -> list[Instant]:
        """Return the actions in flight that have had a heartbeat within ``timeout_ms`` milliseconds."""
        meta = self._meta_client()
        if meta is None:
            return []
        heartbeats = classes(self._spark).org.apache.hudi.common.heartbeat.HoodieHeartbeatUtils
        storage = meta.getStorage()
        return [
            instant
            for instant in self.pending()
            if not heartbeats.isHeartbeatExpired(instant.requested, timeout_ms, storage, self._path)
        ]

    def leftovers(self) -> list[str]:
        """Return the paths of markers and heartbeats, of running and of dead writes."""
        jvm = classes(self._spark)
        configuration = self._spark._jsc.hadoopConfiguration()  # noqa: SLF001
        found: list[str] = []
        for folder in (".temp", ".heartbeat"):
            path = jvm.org.apache.hadoop.fs.Path(f"{self._path}/.hoodie/{folder}")
            system = path.getFileSystem(configuration)
            if system.exists(path):
                found += [status.getPath().toString() for status in system.listStatus(path)]
        return found

    def refresh(self) -> None:
        """Read what was committed since the last refresh, from the archived timeline too if needed.

        Raises:
            Py4JJavaError, CapturedException: Hudi could not read the timeline.
        """
        meta = self._meta_client()
        if meta is not None:
            retry(lambda: self._read(meta), READ)

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
            for requested, done, metadata in self._archived(meta):
                self._archived_until = max(self._archived_until, done)
                self._add(requested, done, metadata)
        if newest_completed:
            completed = completed.findInstantsModifiedAfterByCompletionTime(newest_completed)
        newest = self._newest
        for requested, done, metadata in self._active(meta, completed):
            newest = max(newest, (requested, done), key=lambda times: times[1])
            self._add(requested, done, metadata)
        self._newest, self._pending = newest, pending

    def _forget_what_was_restored(self, active: Any) -> None:  # noqa: ANN401  py4j
        """Start anew after a restore, which takes commits off the timeline."""
        # One that is under way counts, and counts anew when it is done: meanwhile commits are still there.
        restores = [
            (instant.requestedTime(), instant.getCompletionTime() or "")
            for instant in items(active.getRestoreTimeline().getInstants())
        ]
        if (newest := max(restores, default=("", ""))) != self._restored:
            self._restored = newest
            for known in (self._queries, self._columns, self._schemas, self._view, self._strays):
                known.clear()
            self._any, self._locked = None, None
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
        self._any = self._any or commit
        for column, name in commit.view.items():  # the first commit that has a column names it
            self._view[column] = min(self._view.get(column, (completed, name)), (completed, name))
        if commit.locks and (self._locked is None or completed > self._locked.completed):
            self._locked = commit
        if commit.stream != DELETES:  # each of those has a query of its own, which nothing asks for
            query = self._queries.setdefault(commit.stream, {}).setdefault(commit.query_id, _Query())
            query.batches.add(commit.batch_id)
            if query.last is None or completed > query.last.completed:
                query.last = commit

    def _active(self, meta: Any, commits: Any) -> Iterator[tuple[str, str, Mapping[str, str]]]:  # noqa: ANN401
        """Yield request, completion and metadata of the completed commits of an active timeline."""
        if commits.countInstants():
            yield from self._dump(lambda file: self._java().active(meta, commits, file))

    def _archived(self, meta: Any) -> Iterator[tuple[str, str, Mapping[str, str]]]:  # noqa: ANN401
        """Yield the same of the archived ones, in no order."""
        yield from self._dump(lambda file: self._java().archived(meta, file))

    def _java(self) -> Any:  # noqa: ANN401
        return classes(self._spark).io.asynclock.timeline.Commits

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

    def _meta_client(self) -> Any:  # noqa: ANN401  py4j
        if self._meta is None:
            self._meta = meta_client(self._spark, self._path)
        return self._meta


def is_table(spark: SparkSession, path: str) -> bool:
    """Return whether there is a Hudi table at a path, or may be: a path that cannot be read counts as one."""
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
