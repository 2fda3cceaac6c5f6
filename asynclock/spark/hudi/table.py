"""The table of a spec, as one session sees it: its content, and whether it may be written."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from asynclock.errors import ConfigError
from asynclock.spark import hoodie
from asynclock.spark.errors import ClusteringPlanError, CutFilesError, StrayFilesError
from asynclock.spark.hadoop import HadoopFiles
from asynclock.spark.hudi.commits import Commits
from asynclock.spark.hudi.fit import check_commit, check_derived, check_properties
from asynclock.spark.hudi.guard import guard_properties, is_guarded
from asynclock.spark.hudi.health import cut_files
from asynclock.spark.hudi.instants import CLUSTERING
from asynclock.spark.hudi.layout import layout_of
from asynclock.spark.hudi.locks import check_locks, check_url, claim_locks
from asynclock.spark.hudi.meta import clear_unfinished, update_properties
from asynclock.spark.hudi.order import newest_instant, refuse_disorder
from asynclock.spark.hudi.rebuckets import RebucketMark
from asynclock.spark.hudi.restores import RestoreMark
from asynclock.spark.hudi.timeline import Timeline, is_table
from asynclock.spark.hudi.view_names import check_names

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from asynclock import sync
    from asynclock.spark.spec.model import Spec

REPAIR_COPY: Final = ".hoodie/asynclock-repair"
"""Folder below the table in which a repair keeps rows while it moves them; it exists until then."""


class Table:
    """The table of a spec: its files, timeline and commits, and the checks before work on it.

    Nothing is read before a method asks. Not thread-safe: each stream, service and thread needs its own.

    Args:
        spec: The spec.
        spark: A session with Hudi and asynclock's jar.

    Attributes:
        spec: The spec.
        spark: The session.
        path: The place of the table.
        files: The files in any store that the session reaches.
        timeline: The present timeline.
        commits: The facts in the commits, as of the last refresh.
        layout: How rows are stored.
        restore_mark: The mark of a restore that has begun.
        rebucket_mark: The mark of the last rebucket.
    """

    def __init__(self, spec: Spec, spark: SparkSession) -> None:
        self.spec = spec
        self.spark = spark
        self.path = spec.table.path
        self.files = HadoopFiles(spark)
        self.timeline = Timeline(spark, self.path)
        self.commits = Commits(self.timeline)
        self.restore_mark = RestoreMark(spec, self.files)
        self.rebucket_mark = RebucketMark(spec, self.files)
        self.layout = layout_of(spec)
        self._name: str | None = None
        self._fits = False

    @property
    def tasks(self) -> int:
        """Number of tasks that the session runs at once."""
        return int(self.spark.sparkContext.defaultParallelism)

    def name(self) -> str | None:
        """Return Hudi's name of the table, which never changes; None if there is no table."""
        if self._name is None:
            self._name = self.timeline.properties().get(hoodie.TABLE_NAME)
        return self._name

    def check_writable(self) -> None:
        """Refuse a table whose next write would fail, and read the commits since the last look.

        Raises:
            ClusteringPlanError: A table with buckets has a clustering plan.
            StrayFilesError: A splice table has files outside its buckets.
            TimelineAheadError: A commit now would not be later than all existing ones.
            ConfigError: The table is in UTC and the JVM is in another zone; or the table has commits, but
                its properties are gone.
        """
        self.refuse_lost_properties()
        self.commits.refresh()
        self.refuse_clustering(refreshed=True)
        if self.layout.in_buckets:
            self.refuse_strays()
        self.refuse_disorder()

    def check_fit(self) -> None:
        """Refuse a table other than the spec's, by its properties and by the commits known so far.

        Raises:
            SpecError: The table has another key, partitioning, merger or number of buckets, was written under
                other locks, calls a column of the view by another name, or derives a column in another way;
                nothing was written.
            UnfinishedRebucketError: The number of buckets is about to change; nothing was written.
        """
        check_url(self.spec, self.commits.newest())
        if not self._fits:  # properties, key and buckets never change
            check_properties(self.spec, self.timeline.properties())
            if commit := self.commits.newest():
                if commit.buckets != self.spec.table.buckets:
                    self.rebucket_mark.refuse_moving()
                check_commit(self.spec, commit)
                self._fits = True
        check_derived(self.spec, self.commits.columns(), self.commits.derived())
        self.check_names()

    def check_names(self) -> None:
        """Refuse a spec that would rename a column of the view.

        Raises:
            SpecError: A column of the table would get another name; nothing was written.
        """
        check_names(self.spec, self.commits.columns(), self.commits.view_names())

    def check_locks(self) -> bool:
        """Return whether the locks name this table as theirs; if not, a writer calls ``claim_locks``.

        Raises:
            SpecError: The table was written under other locks, or the locks belong to another table.
        """
        return check_locks(self.spec, self.commits.newest(), partial(is_table, self.spark))

    def claim_locks(self, *, client: sync.LockClient, lease: sync.Lease) -> str:
        """Record that the locks belong to the table, and return the table's id.

        Args:
            client: A client of the locks.
            lease: A lease on ``CREATION_LOCK``.

        Raises:
            SpecError: As for ``check_locks``; nothing was written.
        """
        exists = partial(is_table, self.spark)
        return claim_locks(self.spec, self.commits.newest(), exists, client=client, lease=lease)

    def refuse_other_locks(self) -> None:
        """Make sure that the locks of the spec are those of the table; call it before a lock is taken.

        Raises:
            SpecError: As for ``check_locks``; nothing was written.
        """
        check_locks(self.spec, self.timeline.newest(), partial(is_table, self.spark))

    def refuse_moved(self) -> None:
        """Make sure that the table is now written under the locks of the spec; one read of the timeline.

        Raises:
            SpecError: It was written under other locks; nothing was written.
        """
        check_url(self.spec, self.timeline.newest())

    def is_guarded(self) -> bool:
        """Return whether the properties guard the table; those of a plain table need not."""
        return is_guarded(self.spec, self.timeline.properties())

    def guard(self) -> bool:
        """Put the guard into the properties of the table; return whether there is a table that lacked it.

        The caller holds ``CREATION_LOCK`` or has reserved the table, so that nobody else writes the
        properties.

        Raises:
            SpecError: The table is not the one of the spec, so this guard would misdirect its writes; nothing
                was written.
        """
        fresh = Table(self.spec, self.spark)  # the properties may just have been written
        fresh.commits.refresh()
        properties = fresh.timeline.properties()
        if not properties or is_guarded(self.spec, properties):
            return False
        check_properties(self.spec, properties)
        if (commit := fresh.commits.newest()) is not None:
            check_commit(self.spec, commit)
        update_properties(self.spark, self.path, guard_properties(self.spec))
        return True

    def clear_unfinished(self) -> None:
        """Remove the leftovers of an interrupted creation; not while another process may create the table."""
        clear_unfinished(self.spark, self.path)

    def strays(self) -> list[str]:
        """Return the files outside the buckets that known commits wrote and that still exist."""
        written = self.commits.strays()
        self.commits.forget_strays(file for file in written if not self.files.exists(f"{self.path}/{file}"))
        return sorted(self.commits.strays())

    def half_repaired(self) -> bool:
        """Return whether a repair was interrupted: rows of files that it removed are in its copies only."""
        return self.files.exists(f"{self.path}/{REPAIR_COPY}")

    def refuse_strays(self) -> None:
        """Make sure that known commits left no file outside the buckets, with which every write fails.

        Raises: StrayFilesError: There are such files.
        """
        strays = self.strays()
        if self.half_repaired():
            strays.append(REPAIR_COPY)
        if strays:
            raise StrayFilesError(path=self.path, files=tuple(strays))

    def refuse_clustering(self, *, refreshed: bool = False) -> None:
        """Make sure that a table with buckets has no clustering plan, with which every write of it fails.

        Args:
            refreshed: As for ``Timeline.pending``.

        Raises:
            ClusteringPlanError: There is a clustering plan.
        """
        if not self.spec.table.buckets:
            return
        for instant in self.timeline.pending(refreshed=refreshed):
            if instant.action == CLUSTERING:
                raise ClusteringPlanError(path=self.path, instant=instant.requested, state=instant.state)

    def refuse_cut_files(self) -> None:
        """Make sure that no file of the table is cut: a service would make the loss permanent.

        Raises:
            CutFilesError: A file is shorter than its commit says. Nothing was written.
        """
        if cut := cut_files(self.timeline):
            raise CutFilesError(path=self.path, files=tuple(cut))

    def refuse_lost_properties(self) -> None:
        """Make sure that a table with instants has its properties, without which Hudi sees no table.

        Raises:
            ConfigError: They are empty or gone. Nothing was written.
            UnfinishedRebucketError: The table is between two places. Nothing was written.
        """
        if self.timeline.exists():
            return
        self.rebucket_mark.refuse_moving()
        # The instants first: a writer that creates a table writes its properties before its first instant.
        if not newest_instant(self.spark, self.path):
            return
        if not self.timeline.exists():
            file = f"{self.path}/.hoodie/hoodie.properties"
            reason = (
                "the table has commits, but this file of it is empty or gone, so Hudi sees no table. Nothing "
                "was written; bring the file back from a copy of the table, or remove the table with its "
                "checkpoints and locks, and splice into a new one"
            )
            raise ConfigError(setting="path", value=file, reason=reason)

    def refuse_disorder(self) -> None:
        """Make sure that a commit now would be later than all existing ones, the archived ones included.

        Raises:
            TimelineAheadError: It would not.
            ConfigError: The table is in UTC and the JVM is in another zone.
        """
        refuse_disorder(self.spark, self.path, self.commits.archived_until())
