"""The table services, each run by an elected leader: compaction, and cleaning with rollback and archiving.

They use Hudi's write client, as the SQL procedures do, because the lease cannot be checked between the steps
of a ``CALL``.
"""

from __future__ import annotations

import contextlib
import logging
import re
import threading
import time
from typing import TYPE_CHECKING, Any, Final

from asynclock._text import escaped
from asynclock.errors import AcquireTimeoutError
from asynclock.spark.cancel import Cancellable
from asynclock.spark.faults import Backoff, is_passing, sentence
from asynclock.spark.hadoop import HadoopFiles
from asynclock.spark.hudi.columns import is_behind, stored_columns
from asynclock.spark.hudi.guard import check_writable
from asynclock.spark.hudi.instants import (
    CLUSTERED,
    CLUSTERING,
    COMPACTED,
    COMPACTION,
    DELTA_COMMIT,
    WRITES,
)
from asynclock.spark.hudi.locks import check_url, refuse_other_locks
from asynclock.spark.hudi.options import SILENCE_MS, cleaning_options, clustering_options, compaction_options
from asynclock.spark.hudi.restores import RestoreMark
from asynclock.spark.hudi.running import session_for
from asynclock.spark.hudi.session import exact_times
from asynclock.spark.hudi.timeline import Timeline
from asynclock.spark.report import ServicesReport
from asynclock.spark.services.due import (
    count_commits,
    count_since,
    is_cleaning_due,
    newest_commit,
    planned,
    unkept,
)
from asynclock.spark.spec.load import misplaced
from asynclock.spark.writer.columns import declare_columns
from asynclock.spark.writer.reservation import Gate
from asynclock.spark.writer.streams import stopped_by_signals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

    from asynclock import sync
    from asynclock.spark.spec.model import Spec

log = logging.getLogger(__name__)

COMPACTION_LOCK: Final = "service/compaction"
CLUSTERING_LOCK: Final = "service/clustering"
CLEANING_LOCK: Final = "service/cleaning"
_SCHEMA: Final = "schema"  # in the metadata of Hudi's commits
_LOOK_SECONDS: Final = 1.0
_STOP_SECONDS: Final = 0.5


def run_services(
    spec: Spec,
    *,
    once: bool = False,
    spark: SparkSession | None = None,
    on_event: Callable[[str], object] | None = None,
    stop: threading.Event | None = None,
) -> ServicesReport:
    """Compact, cluster and clean the table, roll back dead writers and archive, until the run is stopped.

    The services run side by side, each while this process leads it (leases ``service/compaction``,
    ``service/clustering`` and ``service/cleaning``); services in other processes stand by. A leader that
    loses its lease has its Spark jobs cancelled; the next leader finishes its plan.

    Args:
        spec: The table, its locks and services.
        once: Do what is due now, and end.
        spark: A session with Hudi and the merger; None: as ``session_for`` gives it.
        on_event: Called with a sentence after each piece of work, in the thread that did it.
        stop: Set it to end the run; SIGINT and SIGTERM also set it, in the main thread.

    Raises:
        SpecError: The services of the table run inside of its writes, the table was written under other
            locks, or they belong to another table. Nothing was written.
        ClusteringPlanError: A table with buckets has a clustering plan, with which every write fails.
        StrayFilesError: The table has files outside of its buckets, with which every write fails.
    """
    started = time.monotonic()
    stop = stop or threading.Event()
    if spec.services.mode == "inline":
        reason = "the services of this table run inside of its writes, so there is nothing to run beside them"
        raise misplaced(spec, ("services", "mode"), spec.services.mode, reason)
    with contextlib.ExitStack() as resources:
        client = resources.enter_context(spec.locks.connect())
        spark = resources.enter_context(session_for(spec, "asynclock services", spark=spark))
        refuse_other_locks(spec, spark)
        resources.enter_context(stopped_by_signals(stop))
        compaction = Compaction(spec, spark, on_event)
        cleaning = Cleaning(spec, spark, on_event)
        clustering = Clustering(spec, spark, on_event)
        services: dict[str, Compaction | Clustering | Cleaning] = {}
        if spec.table.type == "mor":
            services[COMPACTION_LOCK] = compaction
        if spec.services.cluster_every_commits is not None:
            services[CLUSTERING_LOCK] = clustering
        services[CLEANING_LOCK] = cleaning
        leaders = [
            _Leader(spec, client, service, spark, lock=lock, stop=stop, once=once)
            for lock, service in services.items()
        ]
        threads = [threading.Thread(target=leader.work, name=f"service-{leader.name}") for leader in leaders]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            for thread in threads:
                thread.join(_STOP_SECONDS)
    for leader in leaders:
        if leader.error is not None:
            raise leader.error
    return ServicesReport(
        compactions=tuple(compaction.done),
        clusterings=tuple(clustering.done),
        cleanings=cleaning.rounds,
        rolled_back=tuple(cleaning.rolled_back),
        seconds=time.monotonic() - started,
    )


class Compaction:
    """Merges logs into base files after a number of commits.

    Attributes:
        done: The compacted instants.
    """

    name = "compaction"

    def __init__(
        self, spec: Spec, spark: SparkSession, on_event: Callable[[str], object] | None = None
    ) -> None:
        self.done: list[str] = []
        self._planned_at = ""  # the newest commit at the last plan; Hudi makes none where no log has rows
        self._spec = spec
        self._spark = spark
        self._on_event = on_event
        self._timeline = Timeline(spark, spec.table.path)

    def step(self) -> None:
        """Plan a compaction if one is due, and carry out what is planned.

        Raises:
            ClusteringPlanError: The table has a clustering plan.
            StrayFilesError: The table has files outside of its buckets.
        """
        check_writable(self._spec, self._timeline)
        instants = self._timeline.instants()
        plans = planned(instants, COMPACTION)
        since = count_since(instants, DELTA_COMMIT, COMPACTED)
        newest = newest_commit(instants)
        if not plans and (since < self._spec.services.compact_every_commits or newest == self._planned_at):
            return
        options = compaction_options(self._spec, tasks=self._spark.sparkContext.defaultParallelism)
        declare_columns(self._spec, self._spark, self._timeline)
        with write_client(self._spec, self._spark, options) as client:
            empty = self._spark._jvm.org.apache.hudi.common.util.Option.empty  # noqa: SLF001  no public way
            if not plans:
                client.scheduleCompaction(empty())
                self._planned_at = newest
                plans = planned(self._timeline.instants(), COMPACTION)
            for instant in plans:
                # Hudi rolls back and repeats a plan that a dead leader left half done.
                result = client.compact(instant)
                if self._lacks_columns(result):
                    # Else Hudi would take this process for one that is still at work on the plan.
                    client.getTableServiceClient().getHeartbeatClient().stop(instant)
                    _tell(self._on_event, f"compaction {instant} began before a change of columns: once more")
                    return
                client.commitCompaction(instant, result, empty())
                self.done.append(instant)
                _tell(self._on_event, f"compacted {since} commits at instant {instant}")

    def _lacks_columns(self, result: Any) -> bool:  # noqa: ANN401  py4j
        """Return whether Hudi has compacted without some columns of the table, whose values would be lost."""
        self._timeline.refresh()
        schema = result.getCommitMetadata().get().getMetadata(_SCHEMA)
        return is_behind(stored_columns(schema), self._timeline.columns())


class Clustering:
    """Joins small files of a plain table, and sorts the rows, after a number of commits.

    Attributes:
        done: The clustered instants.
    """

    name = "clustering"

    def __init__(
        self, spec: Spec, spark: SparkSession, on_event: Callable[[str], object] | None = None
    ) -> None:
        self.done: list[str] = []
        self._spec = spec
        self._spark = spark
        self._on_event = on_event
        self._timeline = Timeline(spark, spec.table.path)

    def step(self) -> None:
        """Plan a clustering if one is due, and carry out what is planned.

        Until a plan is carried out, writes of its files fail and are tried again.
        """
        instants = self._timeline.instants()
        plans = planned(instants, CLUSTERING)
        every = self._spec.services.cluster_every_commits
        since = sum(count_since(instants, action, CLUSTERED) for action in WRITES)
        if not plans and (every is None or since < every):
            return
        options = clustering_options(self._spec, tasks=self._spark.sparkContext.defaultParallelism)
        with write_client(self._spec, self._spark, options) as client:
            if not plans:
                client.scheduleClustering(self._spark._jvm.org.apache.hudi.common.util.Option.empty())  # noqa: SLF001
                plans = planned(self._timeline.instants(), CLUSTERING)
            for instant in plans:
                # Hudi rolls back and repeats a plan that a dead leader left half done.
                client.cluster(instant, True)
                self.done.append(instant)
                _tell(self._on_event, f"clustered {since} commits at instant {instant}")


class Cleaning:
    """Rolls back dead writers, removes files that no reader needs, and archives old instants.

    Attributes:
        rounds: Number of times that there was work to do.
        rolled_back: Instants of dead writers that were rolled back.
    """

    name = "cleaning"

    def __init__(
        self, spec: Spec, spark: SparkSession, on_event: Callable[[str], object] | None = None
    ) -> None:
        self.rounds = 0
        self.rolled_back: list[str] = []
        self._cleaned_at = ""  # the newest commit at the last cleaning
        self._spec = spec
        self._spark = spark
        self._on_event = on_event
        self._timeline = Timeline(spark, spec.table.path)
        self._options = cleaning_options(spec, tasks=spark.sparkContext.defaultParallelism)

    def step(self) -> None:
        """Do what is due.

        Raises:
            ClusteringPlanError: The table has a clustering plan.
        """
        if self._spec.table.buckets:
            self._timeline.refuse_clustering()
        dead = [instant.requested for instant in self._timeline.silent(SILENCE_MS)]
        instants = self._timeline.instants()
        services = self._spec.services
        newest = newest_commit(instants)
        if not newest:
            return  # without the schema of a commit Hudi makes no write client
        clean = is_cleaning_due(instants, services.retain_commits) and newest != self._cleaned_at
        before = count_commits(instants)
        archive = before > services.archive_max_commits and count_commits(unkept(instants)) > 0
        if not (dead or clean or archive):
            return
        with write_client(self._spec, self._spark, self._options) as client:
            if dead or clean:
                client.clean()  # starts with the rollback of dead writers
                self._cleaned_at = newest
            if archive:
                self._remove_torn_manifests()
                client.archive()
        self.rounds += 1
        self._tell_rolled_back(dead)
        if archive:
            left = count_commits(self._timeline.instants())
            _tell(self._on_event, f"archived {before - left} commits, {left} are left active")

    def _remove_torn_manifests(self) -> None:
        """Remove the temporary file of an archiver that died: Hudi takes it for a manifest and fails."""
        folder = f"{self._spec.table.path}/.hoodie/timeline/history"
        files = HadoopFiles(self._spark)
        for name in files.names(folder):
            if re.fullmatch(r"manifest_\d+\..+", name):
                files.delete(f"{folder}/{name}")

    def _tell_rolled_back(self, dead: list[str]) -> None:
        left = {instant.requested for instant in self._timeline.instants() if instant.action in WRITES}
        for instant in dead:
            if instant not in left:
                self.rolled_back.append(instant)
                _tell(self._on_event, f"rolled back instant {instant} of a dead writer")


class _Leader:
    """Leads one service while it holds its lease; run ``work`` in a thread of its own."""

    def __init__(
        self,
        spec: Spec,
        client: sync.LockClient,
        service: Compaction | Clustering | Cleaning,
        spark: SparkSession,
        *,
        lock: str,
        stop: threading.Event,
        once: bool,
    ) -> None:
        self.name = service.name
        self.error: BaseException | None = None
        self._spec = spec
        self._client = client
        self._lock = client.lock(lock)
        self._service = service
        self._spark = spark
        self._stop = stop
        self._once = once
        self._backoff = Backoff()

    def work(self) -> None:
        try:
            while not self._stop.is_set():
                with contextlib.suppress(AcquireTimeoutError):
                    self._lock.lead(self._serve, timeout=_STOP_SECONDS)
                    return
        except BaseException as error:  # noqa: BLE001  handed to the thread that waits for this one
            self.error = error
            self._stop.set()

    def _serve(self, lease: sync.Lease) -> None:
        log.info("leading %s, lease %d", self.name, lease.fencing_token)
        steps = Cancellable(self._spark, f"asynclock {self.name} {lease.owner}")
        lease.on_lost(lambda _: steps.cancel())
        gate = Gate(self._spec, self._client, lease, f"service {self.name}")
        looked = False
        wait = _LOOK_SECONDS
        while wait:
            if gate.wait(self._stop) or not looked:
                looked = True
                RestoreMark(self._spec, self._spark).refuse()
            if self._stop.is_set():
                return
            with steps.running():
                lease.check()
                wait = self._step(lease)
            if self._stop.wait(wait):
                return

    def _step(self, lease: sync.Lease) -> float:
        """Do what is due; return the seconds until the next step, which may repeat this one."""
        try:
            self._service.step()
        except Exception as error:
            lease.check()  # the job may have failed because the lease was lost
            seconds = self._backoff.next() if is_passing(error) else None
            if seconds is None:
                raise
            log.warning("%s: %s; tries again in %.1f s", self.name, sentence(error), seconds)
            return seconds
        self._backoff.reset()
        return 0.0 if self._once else _LOOK_SECONDS


@contextlib.contextmanager
def write_client(spec: Spec, spark: SparkSession, options: dict[str, str]) -> Iterator[Any]:
    """Yield Hudi's write client of the table, closed afterwards."""
    check_url(spec, Timeline(spark, spec.table.path).newest())  # it may have moved since the start
    jvm: Any = spark._jvm  # noqa: SLF001  no public way
    client = jvm.org.apache.hudi.HoodieCLIUtils.createHoodieWriteClient(
        spark._jsparkSession,  # noqa: SLF001
        spec.table.path,
        jvm.org.apache.spark.api.python.PythonUtils.toScalaMap(options),
        jvm.scala.Option.empty(),
    )
    try:
        with exact_times(spark):
            yield client
    finally:
        client.close()


def _tell(on_event: Callable[[str], object] | None, sentence: str) -> None:
    sentence = escaped(sentence)
    log.info(sentence)
    if on_event is not None:
        on_event(sentence)
