"""Reserve a table: a reader-writer lock made of leases.

All work on a table runs under a lease that it takes first: a stream's, a service's, a delete's. That is
its announcement. Only then does it look whether the table is reserved, and if it is, it *parks*: it takes a
second lease, ``parked/<its own lock>``, which names the first one, and waits. When the reservation has ended
it frees the second lease and looks again.

A job that reserves the table takes ``reservation/table`` first and then waits until each lease of work is
free or parked. So of a worker and a job at least one sees the other, and where nobody reserves, a worker
does nothing but look. docs/concepts/reservation.md says why this holds, also for workers that died.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import uuid
from typing import TYPE_CHECKING, Final

from asynclock._text import printable
from asynclock.errors import AcquireTimeoutError, BackendError, ConfigError
from asynclock.spark.cancel import Cancellable
from asynclock.spark.errors import TableBusyError
from asynclock.spark.hudi.locks import refuse_other_locks
from asynclock.spark.hudi.options import SILENCE_MS
from asynclock.spark.hudi.restores import RestoreMark
from asynclock.spark.hudi.running import session_for
from asynclock.spark.hudi.timeline import Timeline

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Self

    from pyspark.sql import SparkSession

    from asynclock import sync
    from asynclock.lease import Lease
    from asynclock.spark.spec.model import Spec
    from asynclock.status import LockStatus

log = logging.getLogger(__name__)

RESERVATION_LOCK: Final = "reservation/table"
WORK: Final = ("stream/", "service/", "delete/")
"""How the names of the locks begin under which the table is worked on."""
_PARKED: Final = "parked/"
_STEP_SECONDS: Final = 0.5

_reserving = threading.local()


class Gate:
    """Lets the work of one lease begin while the table is not reserved.

    Args:
        spec: The table and its locks.
        client: The locks.
        lease: The lease of the work, held by the caller; taken before the first look.
        worker: Who waits, for the log.
    """

    def __init__(self, spec: Spec, client: sync.LockClient, lease: sync.Lease, worker: str) -> None:
        self._spec = spec
        self._lease = lease
        self._worker = worker
        self._reservation = client.lock(RESERVATION_LOCK)

    def reserved(self) -> LockStatus | None:
        """Return who has reserved the table, or None. One read of the store."""
        status = self._reservation.status()
        return status if status.state == "held" else None

    def wait(self, stop: threading.Event | None = None) -> float:
        """Return when the table is not reserved, or once ``stop`` is set; how many seconds that took.

        Raises:
            LeaseLostError: The lease of the work was lost meanwhile.
            ConfigError: This thread has reserved the table itself and would wait for ever.
        """
        if self._spec.table.path in getattr(_reserving, "tables", ()):
            reason = "this thread has reserved the table, so its write would wait for ever; write afterwards"
            raise ConfigError(setting="path", value=self._spec.table.path, reason=reason)
        stop = stop or threading.Event()
        started = time.monotonic()
        status = self.reserved()
        if status is None:
            return 0.0
        log.info("%s waits: the table is reserved by %s", self._worker, printable(status.holder))
        while self._may_be_reserved() and not stop.is_set():
            self._park(stop)
            # Parked no longer, which is the announcement; so look once more.
        return time.monotonic() - started

    def _may_be_reserved(self) -> bool:
        """Return whether the table is reserved, or the store does not answer; the lease ends that wait."""
        self._lease.check()
        try:
            return self.reserved() is not None
        except BackendError as error:
            log.warning("%s waits: %s", self._worker, error)
            return True

    def _park(self, stop: threading.Event) -> None:
        """Hold the second lease until the table is not reserved, or ``stop`` is set."""
        locks = self._spec.locks
        parked: sync.Lease | None = None
        # The holder names the parked lease: what a dead worker left behind says nothing of its successor.
        with locks.connect(holder=self._lease.owner) as client:
            lock = client.lock(_PARKED + self._lease.name)
            while self._may_be_reserved() and not stop.is_set():
                if parked is None or not parked.held:
                    with contextlib.suppress(BackendError):
                        parked = lock.try_acquire()
                stop.wait(locks.settings.poll_interval)
        # Closing the client has released the lease.


@contextlib.contextmanager
def reserve(
    spec: Spec, *, timeout: float | None = None, spark: SparkSession | None = None
) -> Iterator[sync.Lease]:
    """Keep every stream, service and ``Splice.write`` off the table for the body of ``with``.

    Work in flight is waited for. Streams that run keep their leases; they go on when the body has ended.

    Args:
        spec: The table and its locks.
        timeout: Longest wait, in seconds; None: no limit.
        spark: A session with Hudi, which reads the timeline; None: the one that runs in this process, else
            one is started for the wait.

    Yields:
        The lease of the reservation. Call its ``check`` in the body, or stop the job in ``on_lost``: once
        it is lost, the streams go on.

    Raises:
        AcquireTimeoutError: Another job has reserved the table.
        TableBusyError: Work in flight did not end in time. The reservation was given up.
        LeaseLostError: The reservation was lost.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    with (
        session_for(spec, "asynclock reserve", spark=spark) as found,
        Reservation(spec, found) as reservation,
        reservation.lock.hold(timeout=timeout) as lease,
    ):
        reservation.await_quiet(lease, deadline=deadline, timeout=timeout)
        tables = _reserving.tables = [*getattr(_reserving, "tables", ()), spec.table.path]
        try:
            yield lease
        finally:
            tables.remove(spec.table.path)


class Reservation:
    """What a job needs to reserve a table. A context manager.

    Args:
        spec: The table and its locks.
        spark: A session with Hudi, which reads the timeline.

    Attributes:
        lock: The lock of the reservation.

    Raises:
        SpecError: The table was written under other locks.
    """

    def __init__(self, spec: Spec, spark: SparkSession) -> None:
        refuse_other_locks(spec, spark)
        self._client = spec.locks.connect()
        self.lock = self._client.lock(RESERVATION_LOCK)
        self._spec = spec
        self._timeline = Timeline(spark, spec.table.path)
        self._expired: dict[str, float] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.aclose()

    def await_quiet(
        self,
        lease: Lease | sync.Lease,
        *,
        deadline: float | None = None,
        timeout: float | None = None,
        stop: threading.Event | None = None,
    ) -> None:
        """Return when nothing that began before the reservation is in flight, or once ``stop`` is set.

        Args:
            lease: The lease of the reservation.
            deadline: When to give up, by the monotonic clock; None: never.
            timeout: The seconds that were allowed, for the error.
            stop: Ends the wait.

        Raises:
            TableBusyError: Something was still in flight at the deadline.
            LeaseLostError: The reservation was lost.
        """
        stop = stop or threading.Event()
        told: set[str] = set()
        while not stop.is_set() and (busy := self.in_flight()):
            lease.check()
            for one in busy:
                if one not in told:
                    log.info("the reservation waits for %s", one)
                    told.add(one)
            if deadline is not None and time.monotonic() >= deadline:
                raise TableBusyError(
                    key=lease.key, timeout=timeout or 0.0, path=self._spec.table.path, busy=tuple(busy)
                )
            stop.wait(min(_STEP_SECONDS, self._spec.locks.settings.poll_interval))

    def in_flight(self) -> list[str]:
        """Return what may be writing to the table now; empty if nothing is."""
        return self._working() or [
            f"the {instant.action} {instant.requested}, whose writer is alive"
            for instant in self._timeline.beating(SILENCE_MS)
        ]

    def _working(self) -> list[str]:
        locks = {status.name: status for status in self._client.list()}
        busy = []
        for name, status in sorted(locks.items()):
            if not name.startswith(WORK):
                continue
            parked = locks.get(_PARKED + name)
            waits = parked is not None and parked.state == "held" and parked.holder == status.owner
            if self._fades(status) or (status.state == "held" and not waits):
                busy.append(f"{name} (held by {printable(status.holder or status.owner)})")
        return busy

    def _fades(self, status: LockStatus) -> bool:
        """Return whether a lease has expired so lately that its write may not show on the timeline yet.

        A worker that lost its lease cancels its jobs, and what they have begun is on the timeline, but for
        the first moments of a write. After this time Hudi refuses the commit of a silent writer.
        """
        if status.state != "expired":
            return False
        since = self._expired.setdefault(status.owner or "", time.monotonic())
        # By the store's clock if it tells the time, else since this client has seen it expire.
        gone = max(time.monotonic() - since, -(status.remaining or 0.0))
        return gone < SILENCE_MS / 1000


def acquire_until(
    lock: sync.Lock, stop: threading.Event | None = None, *, own: sync.Lease | None = None
) -> sync.Lease:
    """Acquire a lock that another process may hold for hours.

    Args:
        lock: The lock.
        stop: Set it to end the wait.
        own: A lease of the caller, which must last.

    Raises:
        AcquireTimeoutError: ``stop`` was set.
        LeaseLostError: The caller's own lease was lost.
    """
    while True:
        if own is not None:
            own.check()
        try:
            return lock.acquire(timeout=_STEP_SECONDS)
        except AcquireTimeoutError:
            if stop is not None and stop.is_set():
                raise


@contextlib.contextmanager
def working(spec: Spec, spark: SparkSession, lock: str, worker: str) -> Iterator[sync.Lease]:
    """Hold a lease for the body, which begins when the table is not reserved, and cancel it on a loss.

    Args:
        spec: The table and its locks.
        spark: The session that runs the body's jobs.
        lock: Name of the lock.
        worker: Who works, for the log.

    Raises:
        LeaseLostError: The lease was lost; the body's jobs were cancelled.
        UnfinishedRestoreError: A restore has been left half done.
    """
    jobs = Cancellable(spark, f"asynclock {worker} {uuid.uuid4()}")
    with spec.locks.connect() as client, client.lock(lock).hold() as lease:
        lease.on_lost(lambda _: jobs.cancel())
        Gate(spec, client, lease, worker).wait()
        RestoreMark(spec, spark).refuse()
        with jobs.running():
            lease.check()
            try:
                yield lease
            except Exception:
                lease.check()  # it may have failed because the lease was lost
                raise
