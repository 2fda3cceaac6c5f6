"""Work on a table: under a lease, past the gate, cancellable, and repeated after a temporary error.

A ``Worker`` needs a lease that is already held. Streams and services get their worker from ``leading``, and
repeat their work under its lease. One write or delete is the body of ``working``. A job that needs the table
alone, such as a savepoint or a repair, is the body of ``reserved``.
"""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from typing import TYPE_CHECKING, Final

from asynclock.errors import AcquireTimeoutError
from asynclock.spark.retry import PASSING, Retry
from asynclock.spark.work.cancel import Cancellable
from asynclock.spark.work.leases import acquire_until
from asynclock.spark.work.reservation import Gate, Reservation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from asynclock import sync
    from asynclock.spark.hudi.table import Table

# How often a pause checks for a stop and for the loss of the lease.
_STEP_SECONDS: Final = 0.5


class Worker:
    """Works on a table under a lease. Its jobs are cancelled when the lease is lost.

    Args:
        table: The table; its session runs the jobs.
        lease: A lease that allows the work, held by the caller.
        name: Name of the worker, for the names of its jobs.
        gate: Lets the work begin; None: the caller has reserved the table.
        stop: Ends the waits of this worker when set.

    Attributes:
        lease: The lease.
        stop: The event that ends the waits.
        retry: Counts the failed attempts in a row.
    """

    def __init__(
        self,
        table: Table,
        lease: sync.Lease,
        name: str,
        *,
        gate: Gate | None = None,
        stop: threading.Event | None = None,
    ) -> None:
        self.lease = lease
        self.stop = stop or threading.Event()
        self.retry = Retry(PASSING)
        self._table = table
        self._gate = gate
        self._jobs = Cancellable(table.spark, f"asynclock {name} {uuid.uuid4()}")
        # Nothing is half restored or moved; that can change only while the table is reserved.
        self._is_whole = False
        lease.on_lost(lambda _: self.cancel())

    def admit(self, *, timeout: float | None = None) -> float:
        """Wait until the table is not reserved; return the seconds that this took.

        The work may begin unless ``stop`` was set meanwhile.

        Args:
            timeout: Longest wait, in seconds; None: no limit.

        Raises:
            AcquireTimeoutError: The table was reserved for too long.
            LeaseLostError: The lease was lost.
            UnfinishedRestoreError: A restore has been left half done.
            UnfinishedRebucketError: A rebucket has been left half done.
            SpecError: A rebucket has given the table other buckets than the spec has.
            ConfigError: This thread has reserved the table itself.
        """
        self.lease.check()
        waited = 0.0 if self._gate is None else self._gate.wait(self.stop, timeout=timeout)
        # After a stop the table may still be reserved, perhaps by a restore or a rebucket.
        if (waited or not self._is_whole) and not self.stop.is_set():
            self._table.restore_mark.refuse()
            self._table.rebucket_mark.refuse()
            self._is_whole = True
        return waited

    def must_make_way(self) -> bool:
        """Return whether the table is reserved. One read of the store."""
        return self._gate is not None and self._gate.reserved() is not None

    @contextlib.contextmanager
    def piece(self) -> Iterator[None]:
        """Run the body as a piece of the work: its jobs are cancelled when the lease is lost.

        Raises:
            LeaseLostError: The lease was lost, before the body or in it.
        """
        with self._jobs.running():
            self.lease.check()
            try:
                yield
            except Exception:
                self.lease.check()  # it may have failed because the lease was lost
                raise

    def cancel(self) -> None:
        """Cancel the running piece and wait for its end; the caller makes sure that no other follows."""
        self._jobs.cancel()

    def settle(self, seconds: float | None = None) -> bool:
        """Wait until the running piece has ended; return whether it ended in time.

        Args:
            seconds: Longest wait; None: no limit.
        """
        return self._jobs.settle(seconds)

    def repeat(
        self, attempt: Callable[[], float | None], on_retry: Callable[[Exception, float], object]
    ) -> None:
        """Call ``attempt`` until it says that the work is done, and again after a temporary error.

        Args:
            attempt: Returns the seconds until its next call; None: the work is done. It resets ``retry``
                when it has worked.
            on_retry: Called with a temporary error and the seconds until the next attempt.

        Raises:
            LeaseLostError: The lease was lost.
            Exception: The error of ``attempt``, if it is permanent or came too often in a row.
        """
        pause: float | None = 0.0
        while pause is not None and not self._rest(pause):
            try:
                pause = attempt()
            except Exception as error:
                # A job of the failed attempt must not go on while the next attempt runs.
                self.settle()
                self.lease.check()
                if (pause := self.retry.after(error)) is None:
                    raise
                on_retry(error, pause)

    def _rest(self, seconds: float) -> bool:
        """Wait that many seconds while the lease is held; return whether ``stop`` was set."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0 and not self.stop.wait(min(left, _STEP_SECONDS)):
            self.lease.check()
        return self.stop.is_set()


@contextlib.contextmanager
def leading(
    table: Table,
    client: sync.LockClient,
    lock: str,
    name: str,
    *,
    stop: threading.Event,
    timeout: float | None = None,
) -> Iterator[Worker | None]:
    """Yield a worker whose lease is held for the body; None if ``stop`` was set before.

    Args:
        table: The table; its session runs the jobs.
        client: The locks.
        lock: Name of the lock.
        name: Name of the worker, for the log.
        stop: Ends the wait for the lease, and the waits of the worker.
        timeout: Longest wait for the lease, in seconds; None: no limit.

    Raises:
        AcquireTimeoutError: Another process held the lease for too long.
        LeaseLostError: The lease was lost.
    """
    lease = None
    try:
        lease = acquire_until(client.lock(lock), stop, timeout=timeout)
    except AcquireTimeoutError:
        if not stop.is_set():
            raise
    if lease is None:
        yield None
        return
    with lease:
        gate = Gate(table.spec, client, lease, name)
        worker = Worker(table, lease, name, gate=gate, stop=stop)
        try:
            yield worker
        finally:
            worker.settle()  # the next one must not begin before


@contextlib.contextmanager
def working(table: Table, lock: str, name: str, *, timeout: float | None = None) -> Iterator[sync.Lease]:
    """Hold a lease for the body, which begins once the table is not reserved; a loss cancels the body.

    Args:
        table: The table; its session runs the body's jobs.
        lock: Name of the lock.
        name: Name of the worker, for the log.
        timeout: Longest wait for the lease, and then for the end of a reservation; None: no limit.

    Raises:
        AcquireTimeoutError: Another process held the lease, or the reservation, for too long.
        LeaseLostError: The lease was lost; the body's jobs were cancelled.
        UnfinishedRestoreError: A restore has been left half done.
    """
    spec = table.spec
    with spec.locks.connect() as client, client.lock(lock).hold(timeout=timeout) as lease:
        worker = Worker(table, lease, name, gate=Gate(spec, client, lease, name))
        worker.admit(timeout=timeout)
        with worker.piece():
            yield lease


@contextlib.contextmanager
def reserved(
    table: Table, name: str, *, timeout: float | None = None, finishes: bool = False
) -> Iterator[Worker]:
    """Reserve the table for the body, and cancel the body's jobs if the reservation is lost.

    Args:
        table: The table; its session runs the body's jobs.
        name: Name of the worker, for the names of the jobs.
        timeout: Longest wait for the reservation, in seconds; None: no limit.
        finishes: Whether the job may begin on a table that a restore or a rebucket has left half done, since
            it finishes that.

    Raises:
        AcquireTimeoutError: Another job has reserved the table.
        UnfinishedRestoreError: A restore has been left half done.
        UnfinishedRebucketError: A rebucket has been left half done.
        TableBusyError: Work in flight did not end in time.
        LeaseLostError: The reservation was lost.
        SpecError: The table was written under other locks.
    """
    with Reservation(table) as reservation, reservation.held(timeout) as lease:
        worker = Worker(table, lease, name)
        with worker.piece():
            if not finishes:
                worker.admit()
            yield worker
