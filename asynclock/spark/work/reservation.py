"""Reserve a table: a reader-writer lock made of leases.

All work on a table first takes a lease: a stream's, a service's, a delete's. Its name is in the register of
the table. This announces the work. Only then it looks whether the table is reserved. If it is, the work
*parks*: it takes a second lease, ``parked/<its own lock>``, which names the first one, and waits. When the
reservation has ended, it frees the second lease and looks again.

A job that reserves the table takes ``reservation/table`` first and then waits until each lease of work is
free or parked. So at least one of a worker and a job sees the other. If nobody reserves the table, a worker
only looks. docs/concepts/reservation.md says why this is safe, also for workers that died.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from typing import TYPE_CHECKING, Final

from asynclock._core.names import SUFFIX
from asynclock._core.narration import held_by, span
from asynclock._core.portal import block_on
from asynclock._core.sparing import Pace
from asynclock.errors import AcquireTimeoutError, BackendError, ConfigError
from asynclock.events import logger
from asynclock.spark.errors import TableBusyError
from asynclock.spark.hudi.options import SILENCE_MS
from asynclock.spark.hudi.running import session_for
from asynclock.spark.hudi.table import Table
from asynclock.spark.work.register import PARKED, RESERVATION_LOCK, Register

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Self

    from pyspark.sql import SparkSession

    from asynclock import sync
    from asynclock._core.status import LockStatus
    from asynclock.lease import Lease
    from asynclock.spark.spec.model import Spec

_STEP_SECONDS: Final = 0.5


class _Reserving(threading.local):
    """The tables that the running thread has reserved."""

    def __init__(self) -> None:
        self.tables: list[str] = []


_reserving = _Reserving()


def _held(status: LockStatus) -> str:
    return held_by(
        holder=status.holder,
        owner=status.owner,
        token=status.fencing_token,
        remaining=status.remaining,
        now=time.time(),
    )


class Gate:
    """Lets the work of one lease begin only while the table is not reserved.

    Args:
        spec: The table and its locks.
        client: The locks.
        lease: The lease of the work, held by the caller; taken before the first look.
        worker: Name of the waiting worker, for the log.
    """

    def __init__(self, spec: Spec, client: sync.LockClient, lease: sync.Lease, worker: str) -> None:
        self._spec = spec
        self._lease = lease
        self._worker = worker
        self._core = client._core
        self._register = Register(client._core)
        self._announced = False
        self._pace = Pace()
        self._timeout: float | None = None
        self._until = math.inf

    def reserved(self) -> LockStatus | None:
        """Return the holder of the reservation, or None. Costs one read of the store."""
        return block_on(self._core.home(), self._register.reserved)

    def wait(self, stop: threading.Event | None = None, *, timeout: float | None = None) -> float:
        """Wait until the table is not reserved, or ``stop`` is set; return the seconds that this took.

        The first call also announces the name of the lease: one read of the store, and one write if the name
        is new.

        Args:
            stop: Ends the wait.
            timeout: Longest wait, in seconds; None: no limit.

        Raises:
            AcquireTimeoutError: The table was reserved for too long.
            LeaseLostError: The lease of the work was lost meanwhile.
            ConfigError: This thread has reserved the table itself and would wait forever.
        """
        if self._spec.table.path in _reserving.tables:
            reason = "this thread has reserved the table, so its write would wait forever; write afterwards"
            raise ConfigError(setting="path", value=self._spec.table.path, reason=reason)
        stop = stop or threading.Event()
        started = time.monotonic()
        look = self.reserved if self._announced else self._announce
        if look() is None:
            return 0.0
        self._pace, self._timeout = Pace(), timeout
        self._until = math.inf if timeout is None else started + timeout
        while self._may_be_reserved() and not stop.is_set():
            self._park(stop)
            # The worker is no longer parked, which announces it again; so look once more.
        waited = time.monotonic() - started
        logger.info("%s goes on after %s: the table is not reserved any more", self._worker, span(waited))
        return waited

    def _announce(self) -> LockStatus | None:
        status = block_on(self._core.home(), lambda: self._register.announce(self._lease.name))
        self._announced = True
        return status

    def _may_be_reserved(self) -> bool:
        """Return whether the table is reserved, or the store does not answer; the lease ends that wait."""
        self._lease.check()
        now, status = time.monotonic(), None
        try:
            if (status := self.reserved()) is None:
                return False
        except BackendError as error:
            if self._pace.is_due(now):
                logger.warning("%s waits: %s", self._worker, error)
        if status is not None and self._pace.is_due(now):
            logger.info("%s waits: the table is reserved, %s", self._worker, _held(status))
        if now >= self._until:
            raise AcquireTimeoutError(
                key=f"{RESERVATION_LOCK}{SUFFIX}", timeout=self._timeout or 0.0, status=status
            )
        return True

    def _park(self, stop: threading.Event) -> None:
        """Hold the second lease until the table is not reserved, or ``stop`` is set."""
        locks = self._spec.locks
        parked: sync.Lease | None = None
        # The holder names the parked lease, so the leftover of a dead worker does not count for its
        # successor.
        with locks.connect(holder=self._lease.owner) as client:
            lock = client.lock(PARKED + self._lease.name)
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

    Waits for work in flight. Running streams keep their leases; they go on when the body has ended.

    Args:
        spec: The table and its locks.
        timeout: Longest wait, in seconds; None: no limit.
        spark: A session with Hudi, which reads the timeline; None: the session of this process, or one that
            is started for the wait.

    Yields:
        The lease of the reservation. Call its ``check`` in the body, or stop the job in ``on_lost``: once
        it is lost, the streams go on.

    Raises:
        AcquireTimeoutError: Another job has reserved the table.
        TableBusyError: Work in flight did not end in time. The reservation was given up.
        LeaseLostError: The reservation was lost.
    """
    with (
        session_for(spec, "asynclock reserve", spark=spark) as found,
        Reservation(Table(spec, found)) as reservation,
        reservation.held(timeout) as lease,
    ):
        yield lease


class Reservation:
    """A job's way to reserve a table. A context manager.

    Args:
        table: The table, whose timeline and locks are read.

    Attributes:
        lock: The lock of the reservation.

    Raises:
        SpecError: The table was written under other locks.
    """

    def __init__(self, table: Table) -> None:
        table.refuse_other_locks()
        self._client = table.spec.locks.connect()
        self.lock = self._client.lock(RESERVATION_LOCK)
        self._spec = table.spec
        self._timeline = table.timeline
        self._expired: dict[str, float] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.aclose()

    @contextlib.contextmanager
    def held(self, timeout: float | None = None) -> Iterator[sync.Lease]:
        """Reserve the table for the body. In it, this thread must not write under another lease.

        Args:
            timeout: Longest wait, in seconds; None: no limit.

        Raises:
            AcquireTimeoutError: Another job has reserved the table.
            TableBusyError: Work in flight did not end in time.
            LeaseLostError: The reservation was lost.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        path = self._spec.table.path
        with self.lock.hold(timeout=timeout) as lease:
            self.await_quiet(lease, deadline=deadline, timeout=timeout)
            _reserving.tables.append(path)
            try:
                yield lease
            finally:
                _reserving.tables.remove(path)

    def await_quiet(
        self,
        lease: Lease | sync.Lease,
        *,
        deadline: float | None = None,
        timeout: float | None = None,
        stop: threading.Event | None = None,
    ) -> None:
        """Wait until all work from before the reservation has ended, or ``stop`` is set.

        Args:
            lease: The lease of the reservation.
            deadline: When to give up, by the monotonic clock; None: never.
            timeout: The allowed seconds, for the error.
            stop: Ends the wait.

        Raises:
            TableBusyError: Something was still in flight at the deadline.
            LeaseLostError: The reservation was lost.
        """
        stop = stop or threading.Event()
        told: dict[str, Pace] = {}
        while not stop.is_set() and (busy := self.in_flight()):
            lease.check()
            for one, said in busy.items():
                if told.setdefault(one, Pace()).is_due(time.monotonic()):
                    logger.info("the reservation waits for %s", said)
            if deadline is not None and time.monotonic() >= deadline:
                raise TableBusyError(
                    key=lease.key,
                    timeout=timeout or 0.0,
                    path=self._spec.table.path,
                    busy=tuple(busy.values()),
                )
            stop.wait(min(_STEP_SECONDS, self._spec.locks.settings.poll_interval))

    def in_flight(self) -> dict[str, str]:
        """Return descriptions of all work that may be writing to the table now; empty if there is none."""
        return self._working() or {
            instant.requested: f"the {instant.action} {instant.requested}, whose writer is alive"
            for instant in self._timeline.beating(SILENCE_MS)
        }

    def _working(self) -> dict[str, str]:
        core = self._client._core
        at_work = block_on(core.home(), Register(core).at_work)
        return {
            name: f"{name}, {_held(status)}"
            for name, status in at_work.items()
            if status.state == "held" or self._fades(status)
        }

    def _fades(self, status: LockStatus) -> bool:
        """Return whether a lease expired so recently that its write may not be on the timeline yet.

        A worker that lost its lease cancels its jobs. Their writes are on the timeline, except in the first
        moments. After this time Hudi refuses the commit of a silent writer.
        """
        since = self._expired.setdefault(status.owner or "", time.monotonic())
        # By the store's clock if the store gives the time, or else since this client saw the lease expire.
        gone = max(time.monotonic() - since, -(status.remaining or 0.0))
        return gone < SILENCE_MS / 1000
