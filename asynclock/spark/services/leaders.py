"""Run the table services, each by an elected leader."""

from __future__ import annotations

import contextlib
import logging
import time
from functools import partial
from typing import TYPE_CHECKING, Final

from asynclock._shared.words import coded
from asynclock.errors import LeaseLostError
from asynclock.spark.faults import sentence
from asynclock.spark.hudi.own import own_session
from asynclock.spark.hudi.running import session_for
from asynclock.spark.hudi.table import Table
from asynclock.spark.reader.presence import NO_TABLE, refuse_missing
from asynclock.spark.results import ServicesReport
from asynclock.spark.services.meta_sync import MetaSync
from asynclock.spark.services.work import Cleaning, Clustering, Compaction
from asynclock.spark.spec.load import misplaced
from asynclock.spark.work.threads import side_by_side, stopped_by_signals
from asynclock.spark.work.worker import leading

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from asynclock import sync
    from asynclock.spark.results import ServiceReport
    from asynclock.spark.spec.model import Spec
    from asynclock.spark.work.worker import Worker

log = logging.getLogger(__name__)

COMPACTION_LOCK: Final = "service/compaction"
CLUSTERING_LOCK: Final = "service/clustering"
CLEANING_LOCK: Final = "service/cleaning"
SYNC_LOCK: Final = "service/sync"
_LOOK_SECONDS: Final = 1.0


def lead_services(
    spec: Spec,
    *,
    once: bool,
    spark: SparkSession | None,
    on_event: Callable[[str], object] | None,
    on_work: Callable[[ServiceReport], object] | None,
    on_backlog: Callable[[int], object] | None,
    stop: threading.Event,
    timeout: float | None,
) -> ServicesReport:
    """Run the services until the run is stopped.

    Works as ``asynclock.spark.run_services``, except for two callbacks. ``on_work`` is called after each
    piece of work, in the thread that did it. ``on_backlog`` is called with the number of commits since the
    last compaction at each step of the compaction, and with 0 when another process may lead it.
    """
    started = time.monotonic()
    if spec.services.mode == "inline":
        reason = "the services of this table run inside its writes, so there is nothing to run next to them"
        raise misplaced(spec, ("services", "mode"), spec.services.mode, reason)
    with contextlib.ExitStack() as resources:
        client = resources.enter_context(spec.locks.connect())
        spark = own_session(resources.enter_context(session_for(spec, "asynclock services", spark=spark)))
        table = Table(spec, spark)
        table.refuse_other_locks()
        _refuse_missing(table, on_event)
        resources.enter_context(stopped_by_signals(stop))
        compaction = Compaction(Table(spec, spark), on_event, on_work, on_backlog)
        cleaning = Cleaning(Table(spec, spark), on_event, on_work)
        clustering = Clustering(Table(spec, spark), on_event, on_work)
        meta_sync = MetaSync(Table(spec, spark), on_event, on_work)
        services: dict[str, Compaction | Clustering | Cleaning | MetaSync] = {}
        if spec.table.type == "mor":
            services[COMPACTION_LOCK] = compaction
        if spec.services.cluster_every_commits is not None:
            services[CLUSTERING_LOCK] = clustering
        services[CLEANING_LOCK] = cleaning
        if spec.hudi.syncs:
            services[SYNC_LOCK] = meta_sync
        leaders = [
            _Leader(
                Table(spec, spark),
                client,
                service,
                lock=lock,
                stop=stop,
                once=once,
                timeout=timeout,
                on_loss=partial(on_backlog, 0) if service is compaction and on_backlog is not None else None,
            )
            for lock, service in services.items()
        ]
        side_by_side({f"service-{leader.name}": leader.work for leader in leaders})
    for leader in leaders:
        if leader.error is not None:
            raise leader.error
    if meta_sync.error is not None:  # all other work is done
        raise meta_sync.error
    return ServicesReport(
        compactions=tuple(compaction.done),
        clusterings=tuple(clustering.done),
        cleanings=cleaning.rounds,
        rolled_back=tuple(cleaning.rolled_back),
        syncs=meta_sync.rounds,
        seconds=time.monotonic() - started,
    )


def _refuse_missing(table: Table, on_event: Callable[[str], object] | None) -> None:
    """Refuse a table that no longer exists; log if there is none yet."""
    refuse_missing(table)
    if not table.timeline.exists():
        log.info(NO_TABLE)
        if on_event is not None:
            on_event(NO_TABLE)


class _Leader:
    """Leads one service while it holds its lease; run ``work`` in a thread of its own."""

    def __init__(
        self,
        table: Table,
        client: sync.LockClient,
        service: Compaction | Clustering | Cleaning | MetaSync,
        *,
        lock: str,
        stop: threading.Event,
        once: bool,
        timeout: float | None,
        on_loss: Callable[[], object] | None = None,
    ) -> None:
        self.name = service.name
        self.error: BaseException | None = None
        self._service = service
        self._stop = stop
        self._once = once
        self._on_loss = on_loss
        self._leading = partial(
            leading, table, client, lock, f"service {service.name}", stop=stop, timeout=timeout
        )

    def work(self) -> None:
        try:
            while not self._stop.is_set() and not self._lead():
                pass
        except BaseException as error:  # noqa: BLE001  handed to the thread that waits for this one
            self.error = error
            self._stop.set()

    def _lead(self) -> bool:
        """Wait for the lease and serve under it; False if it was lost, after which another may lead."""
        worker = None
        try:
            with self._leading() as worker:
                if worker is not None:
                    log.info("leading %s, lease %d", self.name, worker.lease.fencing_token)
                    worker.repeat(partial(self._step, worker), self._tell_retry)
        except LeaseLostError:
            if worker is None or worker.lease.lost is None:
                raise
            if self._on_loss is not None:
                self._on_loss()
            return False
        return True

    def _step(self, worker: Worker) -> float | None:
        """Do the work that is due; return the seconds until the next step, or None for the end."""
        worker.admit()
        if worker.stop.is_set():
            return None
        with worker.piece():
            self._service.step(worker.lease.check)
        worker.retry.reset()
        return None if self._once else _LOOK_SECONDS

    def _tell_retry(self, error: Exception, seconds: float) -> None:
        log.warning(coded(f"{self.name}: {sentence(error)}; tries again in {seconds:.1f} s", None))
