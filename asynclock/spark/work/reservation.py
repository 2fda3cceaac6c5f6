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

import asyncio
import contextlib
import math
import threading
import time
from typing import TYPE_CHECKING, Final

from asynclock._shared.internals import Pace, block_on, client_over, core_of, logger, run_on
from asynclock.errors import BackendError, ConfigError
from asynclock.spark.errors import TableBusyError
from asynclock.spark.hudi.options import SILENCE_MS
from asynclock.spark.hudi.running import session_for
from asynclock.spark.hudi.table import Table
from asynclock.spark.work.leases import StoppedError, heeding
from asynclock.spark.work.passage import Passage
from asynclock.spark.work.register import REGISTER, RESERVATION_LOCK, Register, said_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Self

    from pyspark.sql import SparkSession

    from asynclock import LockClient, LockStatus, sync
    from asynclock._shared.internals import LeaseHandle
    from asynclock.spark.spec.model import Spec

_STEP_SECONDS: Final = 0.5
_LEAST_SECONDS: Final = 1.0
"""Least time for the answers of the store: a shorter one would say nothing of it."""


class _Reserving(threading.local):
    """The tables that the running thread has reserved."""

    def __init__(self) -> None:
        self.tables: list[str] = []


_reserving = _Reserving()


class Gate:
    """Lets the work of one lease begin only while the table is not reserved.

    Args:
        spec: The table and its locks.
        client: The locks.
        lease: The lease of the work, held by the caller; taken before the first look.
        worker: Name of the waiting worker, for the log.
    """

    def __init__(self, spec: Spec, client: sync.LockClient, lease: sync.Lease, worker: str) -> None:
        locks = spec.locks

        def parking(holder: str) -> LockClient:
            return client_over(core_of(locks.connect(holder=holder)))

        self._path = spec.table.path
        core = core_of(client)
        self._home = core.home
        self._passage = Passage(client_over(core), lease, parking, worker)

    def reserved(self) -> LockStatus | None:
        """Return the holder of the reservation, or None. Costs one read of the store."""
        return block_on(self._home(), self._passage.reserved)

    def wait(self, stop: threading.Event | None = None, *, timeout: float | None = None) -> float:
        """As of ``Passage.passed``.

        Raises:
            ConfigError: This thread has reserved the table itself and would wait forever; and as of
                ``Passage.passed``.
        """
        if self._path in _reserving.tables:
            reason = "this thread has reserved the table, so its write would wait forever; write afterwards"
            raise ConfigError(setting="path", value=self._path, reason=reason)
        return asyncio.run(self._passage.passed(stop or threading.Event(), timeout=timeout))


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
        lease: LeaseHandle,
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
        while not stop.is_set():
            busy = self._seen_in_flight(lease, stop, deadline)
            lease.check()
            if not busy:
                return
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

    def _seen_in_flight(
        self, lease: LeaseHandle, stop: threading.Event, deadline: float | None
    ) -> dict[str, str]:
        """Return what ``in_flight`` does, and what fails in place of it; empty also once ``stop`` is set."""

        def check() -> None:
            lease.check()
            if stop.is_set():
                raise StoppedError

        until = math.inf if deadline is None else max(deadline, time.monotonic() + _LEAST_SECONDS)
        try:
            return self.in_flight(check, until=until)
        except StoppedError:
            return {}
        except TimeoutError:
            return {REGISTER: "an answer of the store of the locks"}
        except BackendError as error:
            if not error.transient:
                raise
            return {REGISTER: f"an answer of the store of the locks: {error}"}

    def in_flight(
        self, check: Callable[[], object] = lambda: None, *, until: float = math.inf
    ) -> dict[str, str]:
        """Return descriptions of all work that may be writing to the table now; empty if there is none.

        Args:
            check: Raises what is to end a long wait for the store.
            until: Monotonic time at which that wait ends.

        Raises:
            TimeoutError: There was no answer by then.
            BackendError: The store did not answer.
        """
        return self._working(check, until) or {
            instant.requested: f"the {instant.action} {instant.requested}, whose writer is alive"
            for instant in self._timeline.beating(SILENCE_MS)
        }

    def _working(self, check: Callable[[], object], until: float) -> dict[str, str]:
        core = core_of(self._client)
        at_work = asyncio.run(heeding(run_on(core.home(), Register(core).at_work), check, until=until))
        return {
            name: f"{name}, {said_of(status)}"
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
