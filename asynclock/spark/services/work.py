"""The table services: compaction, clustering, and cleaning with rollback and archiving, one step at a time.

They use Hudi's write client, as the SQL procedures do, because the lease cannot be checked between the steps
of a ``CALL``.
"""

from __future__ import annotations

import contextlib
import logging
import math
import re
import time
from typing import TYPE_CHECKING, Any, Final

from asynclock._shared.words import escaped
from asynclock.spark.hudi.columns import is_behind, stored_columns
from asynclock.spark.hudi.instants import (
    CLUSTERED,
    CLUSTERING,
    COMPACTED,
    COMPACTION,
    DELTA_COMMIT,
    ROLLBACK,
    WRITES,
)
from asynclock.spark.hudi.options import SILENCE_MS, cleaning_options, clustering_options, compaction_options
from asynclock.spark.hudi.order import in_order_at
from asynclock.spark.hudi.session import exact_times
from asynclock.spark.jvm import classes
from asynclock.spark.results import ServiceReport
from asynclock.spark.services.due import (
    count_commits,
    count_since,
    is_cleaning_due,
    newest_commit,
    planned,
    unkept,
)
from asynclock.spark.services.plans import remove_empty_plans, remove_late_files, reopen_empty_clusterings
from asynclock.spark.writer.batch_columns import declare_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from asynclock.spark.hudi.table import Table

log = logging.getLogger(__name__)

_SCHEMA: Final = "schema"  # in the metadata of Hudi's commits
_UNNAMED: Final = ".unnamed-"  # an instant that LocalFiles.java has not named yet
_UNNAMED_FOR: Final = 3600.0  # seconds, after which nobody writes it any more


def _unchecked() -> None:
    """Allow every commit: nobody else is at work."""


class Compaction:
    """Merges logs into base files after a number of commits.

    Attributes:
        done: The compacted instants.
    """

    name = "compaction"

    def __init__(
        self,
        table: Table,
        on_event: Callable[[str], object] | None = None,
        on_work: Callable[[ServiceReport], object] | None = None,
        on_backlog: Callable[[int], object] | None = None,
    ) -> None:
        self.done: list[str] = []
        self._planned_at = ""  # the newest commit at the last plan; Hudi makes no plan if no log has rows
        self._table = table
        self._spec = table.spec
        self._on_event = on_event
        self._on_work = on_work
        self._on_backlog = on_backlog
        self._timeline = table.timeline

    def step(self, check: Callable[[], object] = _unchecked) -> None:
        """Plan a compaction if one is due, and carry out what is planned.

        Args:
            check: Called before each commit; raises if this process must not commit any more.

        Raises:
            ClusteringPlanError: The table has a clustering plan.
            StrayFilesError: The table has files outside of its buckets.
            CutFilesError: A file of the table is shorter than its commit says.
        """
        self._table.check_writable()
        instants = self._timeline.instants()
        remove_empty_plans(self._table, instants, COMPACTION)
        plans = planned(instants, COMPACTION)
        since = count_since(instants, DELTA_COMMIT, COMPACTED)
        if self._on_backlog is not None:
            self._on_backlog(since)
        newest = newest_commit(instants)
        if not plans and (since < self._spec.services.compact_every_commits or newest == self._planned_at):
            return
        self._table.refuse_cut_files()
        options = compaction_options(self._spec, tasks=self._table.tasks)
        declare_columns(self._table)
        with write_client(self._table, options) as client:
            empty = classes(self._table.spark).org.apache.hudi.common.util.Option.empty
            if not plans:
                client.scheduleCompaction(empty())
                self._planned_at = newest
                plans = planned(self._timeline.instants(), COMPACTION)
            for instant in plans:
                started = time.monotonic()
                # Hudi rolls back and repeats a plan that a dead leader left unfinished.
                result = client.compact(instant)
                if self._lacks_columns(result):
                    # Otherwise Hudi would assume that this process is still at work on the plan.
                    client.getTableServiceClient().getHeartbeatClient().stop(instant)
                    _tell(self._on_event, f"compaction {instant} began before a change of columns: once more")
                    return
                # Another leader may be at work on the plan by now. Hudi would then commit the files that the
                # other one has removed.
                check()
                client.commitCompaction(instant, result, empty())
                self.done.append(instant)
                _tell(self._on_event, f"compacted {since} commits at instant {instant}")
                _report(self._on_work, self.name, instant, started)
        if self._on_backlog is not None:
            self._on_backlog(count_since(self._timeline.instants(), DELTA_COMMIT, COMPACTED))

    def _lacks_columns(self, result: Any) -> bool:  # noqa: ANN401  py4j
        """Return whether Hudi has compacted without some columns of the table, whose values would be lost."""
        self._table.commits.refresh()
        schema = result.getCommitMetadata().get().getMetadata(_SCHEMA)
        return is_behind(stored_columns(schema), self._table.commits.columns())


class Clustering:
    """Joins small files of a plain table, and sorts the rows, after a number of commits.

    Attributes:
        done: The clustered instants.
    """

    name = "clustering"

    def __init__(
        self,
        table: Table,
        on_event: Callable[[str], object] | None = None,
        on_work: Callable[[ServiceReport], object] | None = None,
    ) -> None:
        self.done: list[str] = []
        self._seen: set[str] = set()  # completed instants that were looked at
        self._table = table
        self._spec = table.spec
        self._on_event = on_event
        self._on_work = on_work
        self._timeline = table.timeline

    def step(self, check: Callable[[], object] = _unchecked) -> None:
        """Plan a clustering if one is due, and carry out what is planned.

        Until a plan is carried out, writes of its files fail and are tried again.

        Args:
            check: Called before each plan; raises if this process must not carry it out any more.

        Raises:
            CutFilesError: A file of the table is shorter than its commit says.
        """
        instants = self._timeline.instants()
        remove_empty_plans(self._table, instants, CLUSTERING)
        if reopen_empty_clusterings(self._table, instants, self._seen):
            instants = self._timeline.instants()
        self._seen = {one.requested for one in instants if one.completed}
        cut_off = [one.requested for one in instants if (one.action, one.state) == (CLUSTERING, "INFLIGHT")]
        plans = [plan for plan in planned(instants, CLUSTERING) if plan not in cut_off]
        every = self._spec.services.cluster_every_commits
        since = sum(count_since(instants, action, CLUSTERED) for action in WRITES)
        if not (plans or cut_off) and (every is None or since < every):
            return
        self._table.refuse_cut_files()
        options = clustering_options(self._spec, tasks=self._table.tasks)
        with write_client(self._table, options) as client:
            for instant in cut_off:
                check()
                # Hudi would continue it under its instant. But a task of the previous leader may still write
                # a file, and its rows would exist twice.
                client.purgePendingClustering(instant)
                _tell(self._on_event, f"withdrew the clustering {instant}, which was cut off")
            if not plans:
                client.scheduleClustering(
                    classes(self._table.spark).org.apache.hudi.common.util.Option.empty()
                )
                plans = planned(self._timeline.instants(), CLUSTERING)
            for instant in plans:
                check()
                started = time.monotonic()
                client.cluster(instant, True)
                self.done.append(instant)
                _tell(self._on_event, f"clustered {since} commits at instant {instant}")
                _report(self._on_work, self.name, instant, started)


class Cleaning:
    """Rolls back dead writers, removes files that no reader needs, and archives old instants.

    Attributes:
        rounds: Number of times that there was work to do.
        rolled_back: Instants of dead writers that were rolled back.
    """

    name = "cleaning"

    def __init__(
        self,
        table: Table,
        on_event: Callable[[str], object] | None = None,
        on_work: Callable[[ServiceReport], object] | None = None,
    ) -> None:
        self.rounds = 0
        self.rolled_back: list[str] = []
        self._asked = -math.inf  # when Hudi was last asked to resume a rollback
        self._cleaned_at = ""  # the newest commit at the last cleaning
        self._seen = ""  # the newest commit at the last look at the archive
        self._kept_at = ""  # the newest commit when Hudi archived none
        self._table = table
        self._spec = table.spec
        self._on_event = on_event
        self._on_work = on_work
        self._timeline = table.timeline
        self._options = cleaning_options(table.spec, tasks=table.tasks)

    def step(self, check: Callable[[], object] = _unchecked) -> None:
        """Roll back, clean and archive as far as it is due.

        Args:
            check: Called before each piece of work; raises if this process must not do it any more.

        Raises:
            ClusteringPlanError: The table has a clustering plan.
        """
        self._table.refuse_clustering()
        instants = self._timeline.instants()
        remove_empty_plans(self._table, instants, ROLLBACK)
        # Resume an interrupted rollback. Hudi leaves some to another service; then this call does nothing.
        cut_off = bool(planned(instants, ROLLBACK)) and time.monotonic() >= self._asked + SILENCE_MS / 1000
        dead = cut_off or bool(self._timeline.silent(SILENCE_MS))
        services = self._spec.services
        newest = newest_commit(instants)
        if not newest:
            return  # without the schema of a commit Hudi makes no write client
        clean = is_cleaning_due(instants, services.retain_commits) and newest != self._cleaned_at
        before = count_commits(instants)
        archivable = newest != self._kept_at and count_commits(unkept(instants)) > 0
        archive = before > services.archive_max_commits and archivable
        if archive or newest != self._seen:
            self._remove_torn_files()
            self._seen = newest
        if not (dead or clean or archive):
            return
        with write_client(self._table, self._options) as client:
            if dead or clean:
                check()
                self._clean(client)
                self._cleaned_at = newest
            if archive:
                check()
                started = time.monotonic()
                remove_late_files(self._table)
                client.archive()
                _report(self._on_work, "archiving", None, started)
        self.rounds += 1
        if archive:
            left = count_commits(self._timeline.instants())
            if left >= before:
                self._kept_at = newest
            _tell(self._on_event, f"archived {max(0, before - left)} commits, {left} are left active")

    def _clean(self, client: Any) -> None:  # noqa: ANN401  py4j
        writes = classes(self._table.spark).io.asynclock.timeline.DeadWrites
        dead = writes.withdraw(client, SILENCE_MS)
        started = self._asked = time.monotonic()
        cleaned = client.clean()  # starts with the rollbacks that are planned
        if cleaned is not None:
            _report(self._on_work, self.name, cleaned.getStartCleanTime(), started)
        for instant in dead:
            if instant not in writes.planned(client):
                self.rolled_back.append(instant)
                _tell(self._on_event, f"rolled back instant {instant} of a dead writer")
                _report(self._on_work, "rollback", instant)

    def _remove_torn_files(self) -> None:
        """Remove the temporary files of writers that died.

        Hudi mistakes an archiver's file for a manifest and fails. One process at a time leads the archiving,
        so no other is writing such a file.
        """
        files = self._table.files
        meta = f"{self._table.path}/.hoodie"
        folder = f"{meta}/timeline/history"
        for name in files.names(folder):
            if re.fullmatch(r"manifest_\d+\..+", name):
                files.delete(f"{folder}/{name}")
        for name, written in files.written(meta).items():
            if name.startswith(_UNNAMED) and written < time.time() - _UNNAMED_FOR:
                files.delete(f"{meta}/{name}")


@contextlib.contextmanager
def write_client(table: Table, options: dict[str, str]) -> Iterator[Any]:
    """Yield Hudi's write client of the table, closed afterwards."""
    table.refuse_moved()  # since the start
    table.refuse_disorder()
    jvm: Any = classes(table.spark)
    client = jvm.org.apache.hudi.HoodieCLIUtils.createHoodieWriteClient(
        table.spark._jsparkSession,  # noqa: SLF001
        table.path,
        jvm.org.apache.spark.api.python.PythonUtils.toScalaMap(options),
        jvm.scala.Option.empty(),
    )
    try:
        with exact_times(table.spark), in_order_at(table.path):
            yield client
    finally:
        client.close()


def _report(
    on_work: Callable[[ServiceReport], object] | None,
    service: str,
    instant: str | None,
    started: float | None = None,
) -> None:
    if on_work is not None:
        seconds = 0.0 if started is None else time.monotonic() - started
        on_work(ServiceReport(service=service, instant=instant, seconds=seconds))


def _tell(on_event: Callable[[str], object] | None, sentence: str) -> None:
    sentence = escaped(sentence)
    log.info(sentence)
    if on_event is not None:
        on_event(sentence)
