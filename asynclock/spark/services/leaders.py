"""The table services, each run by an elected leader: compaction, and cleaning with rollback and archiving.

They use Hudi's write client, as the SQL procedures do, because the lease cannot be checked between the steps
of a ``CALL``.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from typing import TYPE_CHECKING, Any, Final

from asynclock._text import escaped
from asynclock.errors import AcquireTimeoutError
from asynclock.spark.cancel import Cancellable
from asynclock.spark.faults import Backoff, is_passing, sentence
from asynclock.spark.hudi.columns import is_behind, stored_columns
from asynclock.spark.hudi.instants import CLEAN, COMPACTED, COMPACTION, DELTA_COMMIT
from asynclock.spark.hudi.locks import check_url, refuse_other_locks
from asynclock.spark.hudi.options import SILENCE_MS, cleaning_options, compaction_options
from asynclock.spark.hudi.running import session_for
from asynclock.spark.hudi.session import exact_times
from asynclock.spark.hudi.timeline import Timeline
from asynclock.spark.report import ServicesReport
from asynclock.spark.writer.splice import declare_columns
from asynclock.spark.writer.streams import stopped_by_signals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

    from asynclock import sync
    from asynclock.spark.hudi.instants import Instant
    from asynclock.spark.spec.model import Spec

log = logging.getLogger(__name__)

COMPACTION_LOCK: Final = "service/compaction"
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
    """Compact and clean the table, roll back dead writers and archive, until the run is stopped.

    Compaction and cleaning run side by side, each while this process leads it (leases
    ``service/compaction`` and ``service/cleaning``); services in other processes stand by. A leader that
    loses its lease has its Spark jobs cancelled; the next leader finishes its plan.

    Args:
        spec: The table, its locks and services.
        once: Do what is due now, and end.
        spark: A session with Hudi and the merger; None: as ``session_for`` gives it.
        on_event: Called with a sentence after each piece of work, in the thread that did it.
        stop: Set it to end the run; SIGINT and SIGTERM also set it, in the main thread.

    Raises:
        SpecError: The table was written under other locks, or they belong to another table. Nothing was
            written.
        ClusteringPlanError: The table has a clustering plan, with which every write fails.
    """
    started = time.monotonic()
    stop = stop or threading.Event()
    with contextlib.ExitStack() as resources:
        client = resources.enter_context(spec.locks.connect())
        spark = resources.enter_context(session_for(spec, "asynclock services", spark=spark))
        refuse_other_locks(spec, spark)
        resources.enter_context(stopped_by_signals(stop))
        compaction = Compaction(spec, spark, on_event)
        cleaning = Cleaning(spec, spark, on_event)
        leaders = [
            _Leader(client.lock(lock), service, spark, stop, once=once)
            for lock, service in ((COMPACTION_LOCK, compaction), (CLEANING_LOCK, cleaning))
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
        """
        self._timeline.refuse_clustering()
        instants = self._timeline.instants()
        planned = _planned(instants)
        since = _count_since(instants, DELTA_COMMIT, COMPACTED)
        newest = _newest(instants)
        if not planned and (since < self._spec.services.compact_every_commits or newest == self._planned_at):
            return
        options = compaction_options(self._spec, tasks=self._spark.sparkContext.defaultParallelism)
        declare_columns(self._spec, self._spark, self._timeline)
        with _write_client(self._spec, self._spark, options) as client:
            empty = self._spark._jvm.org.apache.hudi.common.util.Option.empty  # noqa: SLF001  no public way
            if not planned:
                client.scheduleCompaction(empty())
                self._planned_at = newest
                planned = _planned(self._timeline.instants())
            for instant in planned:
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
        self._timeline.refuse_clustering()
        dead = [instant.requested for instant in self._timeline.silent(SILENCE_MS)]
        instants = self._timeline.instants()
        services = self._spec.services
        newest = _newest(instants)
        clean = _is_cleaning_due(instants, services.retain_commits) and newest != self._cleaned_at
        archive = _completed(instants) > services.archive_max_commits
        if not (dead or clean or archive):
            return
        with _write_client(self._spec, self._spark, self._options) as client:
            if dead or clean:
                client.clean()  # starts with the rollback of dead writers
                self._cleaned_at = newest
            if archive:
                client.archive()
        self.rounds += 1
        self._tell_rolled_back(dead)
        if archive:
            left = _completed(self._timeline.instants())
            _tell(self._on_event, f"archived {_completed(instants) - left} commits, {left} are left active")

    def _tell_rolled_back(self, dead: list[str]) -> None:
        left = {instant.requested for instant in self._timeline.instants() if instant.action == DELTA_COMMIT}
        for instant in dead:
            if instant not in left:
                self.rolled_back.append(instant)
                _tell(self._on_event, f"rolled back instant {instant} of a dead writer")


class _Leader:
    """Leads one service while it holds its lease; run ``work`` in a thread of its own."""

    def __init__(
        self,
        lock: sync.Lock,
        service: Compaction | Cleaning,
        spark: SparkSession,
        stop: threading.Event,
        *,
        once: bool,
    ) -> None:
        self.name = service.name
        self.error: BaseException | None = None
        self._lock = lock
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
        wait = _LOOK_SECONDS
        while wait:
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
def _write_client(spec: Spec, spark: SparkSession, options: dict[str, str]) -> Iterator[Any]:
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


def _planned(instants: list[Instant]) -> list[str]:
    return [
        instant.requested
        for instant in instants
        if instant.action == COMPACTION and instant.completed is None
    ]


def _count_since(instants: list[Instant], action: str, mark: str) -> int:
    """Return the number of completed instants of ``action`` since the last completed one of ``mark``."""
    last = max((instant.requested for instant in instants if _is_done(instant, mark)), default="")
    return sum(_is_done(instant, action) and (instant.completed or "") > last for instant in instants)


def _is_cleaning_due(instants: list[Instant], retain_commits: int) -> bool:
    """Return whether a compaction has become older than the commits to retain since the last cleaning.

    What a compaction has merged is still needed by the readers of the commits that are retained. Hudi leaves
    no instant of a cleaning that removes nothing, so a cleaning before that would be repeated for ever.
    """
    commits = sorted(_commits(instants), key=lambda instant: instant.requested)
    cleaned = max((instant.requested for instant in instants if _is_done(instant, CLEAN)), default="")
    return any(
        commit.action == COMPACTED and (settled_by.completed or "") > cleaned
        for commit, settled_by in zip(commits, commits[retain_commits:], strict=False)
    )


def _newest(instants: list[Instant]) -> str:
    """Return the time of the newest completed commit."""
    return max((instant.completed or "" for instant in _commits(instants)), default="")


def _completed(instants: list[Instant]) -> int:
    return len(_commits(instants))


def _commits(instants: list[Instant]) -> list[Instant]:
    return [one for one in instants if _is_done(one, DELTA_COMMIT) or _is_done(one, COMPACTED)]


def _is_done(instant: Instant, action: str) -> bool:
    return instant.action == action and instant.completed is not None


def _tell(on_event: Callable[[str], object] | None, sentence: str) -> None:
    sentence = escaped(sentence)
    log.info(sentence)
    if on_event is not None:
        on_event(sentence)
