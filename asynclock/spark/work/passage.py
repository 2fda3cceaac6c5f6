"""How work waits for the end of a reservation: it announces itself, parks, and unparks.

The coroutines run on any loop of the caller. docs/concepts/reservation.md says why this is safe.
"""

from __future__ import annotations

import asyncio
import math
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeVar

from asynclock._shared.internals import Pace, core_of, logger, of_all, run_on, span
from asynclock.errors import AcquireTimeoutError, BackendError, LeaseLostError
from asynclock.spark.work.leases import STEP_SECONDS, StoppedError, heeding
from asynclock.spark.work.register import PARKED, RESERVATION_KEY, Register, said_of

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Coroutine

    from asynclock import LockClient, LockStatus
    from asynclock._shared.internals import LeaseHandle

T = TypeVar("T")
_LEAST_REQUEST: Final = 1.0
"""Least seconds for each answer of the store, as of an acquisition."""


class Passage:
    """The way of one lease's work past every reservation of its table.

    Args:
        client: The worker's client of the locks.
        lease: The lease of the work, held by the caller; taken before the first look.
        parking: Returns another client, with the holder that it is called with.
        worker: Name of the waiting worker, for the log.
    """

    def __init__(
        self, client: LockClient, lease: LeaseHandle, parking: Callable[[str], LockClient], worker: str
    ) -> None:
        self._client = client
        self._lease = lease
        self._parking = parking
        self._worker = worker
        self._register = Register(core_of(client))
        self._announced = False
        self._may_look_parked = False

    async def reserved(self) -> LockStatus | None:
        """Return the holder of the reservation, or None. Costs one read of the store.

        Raises:
            BackendError: The store did not answer.
        """
        return await run_on(core_of(self._client).home(), self._register.reserved)

    async def passed(self, stop: threading.Event, *, timeout: float | None = None) -> float:
        """Wait until the table is not reserved, or ``stop`` is set; return the seconds that this took.

        The first call also announces the name of the lease: one read of the store, and one write if the name
        is new. A store that does not answer is asked again, and the log says so.

        Args:
            stop: Ends the wait.
            timeout: Longest wait, in seconds; None: no limit.

        Raises:
            AcquireTimeoutError: The table was reserved, or the store did not answer, for too long.
            LeaseLostError: The lease of the work was lost meanwhile.
            BackendError: The store refuses, and waiting does not help.
            RecordCorruptError: The stored object is not a register.
            ConfigError: The register has no room for another name.
        """
        loop, poll = asyncio.get_running_loop(), self._client.settings.poll_interval
        wait = _Wait(self._lease, self._worker, stop, timeout=timeout, poll_interval=poll)
        began = loop.time() if self._may_look_parked else None
        try:
            while True:
                if self._may_look_parked:
                    await self._unpark(wait)  # announces the work again, so look once more
                if (status := await wait.answer(self._look)) is None:
                    break
                began = loop.time() if began is None else began
                await self._park(wait, status)
        except StoppedError:
            return 0.0 if began is None else loop.time() - began
        if began is None:
            return 0.0
        waited = loop.time() - began
        logger.info("%s goes on after %s: the table is not reserved any more", self._worker, span(waited))
        return waited

    async def _look(self) -> LockStatus | None:
        if self._announced:
            return await self.reserved()
        name = self._lease.name
        status = await run_on(core_of(self._client).home(), lambda: self._register.announce(name))
        self._announced = True
        return status

    async def _park(self, wait: _Wait, status: LockStatus | None) -> None:
        """Hold the second lease until the table is not reserved."""
        parked = None
        # The holder names the parked lease, so the leftover of a dead worker does not count for its
        # successor.
        async with self._parking(self._lease.owner) as client:
            lock = client.lock(PARKED + self._lease.name)
            while status is not None:
                wait.say_reserved(status)
                if parked is None or not parked.held:
                    self._may_look_parked = True
                    with suppress(BackendError):  # its client says so
                        parked = await wait.heed(lock.try_acquire())
                await wait.pause()
                status = await wait.answer(self._look)
            if parked is not None:
                with suppress(LeaseLostError):
                    await parked.release()
            # Before the client is closed, which goes on releasing what the store has not confirmed.
            await self._unpark(wait)

    async def _unpark(self, wait: _Wait) -> None:
        """Write over the second lease under the worker's own holder, which no job counts as parked.

        Once that is confirmed, no write of the second lease can land any more: each is conditional on an
        older version.
        """
        lock = self._client.lock(PARKED + self._lease.name)
        try:
            lease = await wait.answer(lambda: lock.acquire(timeout=wait.left()))
        except AcquireTimeoutError as error:
            raise of_all(error, wait.timeout) from error.__cause__
        self._may_look_parked = False
        with suppress(LeaseLostError):
            await lease.release()


class _Wait:
    """One wait of a worker: what ends it, and what the log says of it.

    Attributes:
        timeout: Longest wait, in seconds; None: no limit.
    """

    def __init__(
        self,
        lease: LeaseHandle,
        worker: str,
        stop: threading.Event,
        *,
        timeout: float | None,
        poll_interval: float,
    ) -> None:
        self.timeout = timeout
        self._lease = lease
        self._worker = worker
        self._stop = stop
        self._loop = asyncio.get_running_loop()
        self._until = math.inf if timeout is None else self._loop.time() + timeout
        self._poll_interval = poll_interval
        self._reservations, self._failures = Pace(), Pace()
        self._reserved: LockStatus | None = None
        self._failed: BackendError | None = None

    def left(self) -> float | None:
        """Return the seconds until it gives up; None: it never does."""
        return None if self.timeout is None else max(0.0, self._until - self._loop.time())

    def say_reserved(self, status: LockStatus) -> None:
        """Log who has reserved the table, the first time and then less and less often."""
        self._reserved, self._failed = status, None
        if self._reservations.is_due(self._loop.time()):
            logger.info("%s waits: the table is reserved, %s", self._worker, said_of(status))

    def say_failed(self, error: BackendError) -> None:
        """Log an error of the store, the first time and then less and less often."""
        self._failed = error
        if self._failures.is_due(self._loop.time()):
            # The text: a handler may keep the record, and the error has the frames with our leases.
            logger.warning("%s waits: %s", self._worker, str(error))

    async def answer(self, ask: Callable[[], Coroutine[object, object, T]]) -> T:
        """Return the result of ``ask()``, repeated while the store does not answer."""
        while True:
            self._check()
            try:
                return await self.heed(ask())
            except BackendError as error:
                if not error.transient and self._reserved is None:
                    raise
                self.say_failed(error)
            await self.pause()

    async def heed(self, call: Coroutine[object, object, T]) -> T:
        """Return the result of ``call``, unless the wait ends before."""
        until = max(self._until, self._loop.time() + _LEAST_REQUEST)
        try:
            return await heeding(call, self._check, until=until)
        except AcquireTimeoutError:
            raise
        except TimeoutError:
            raise self._timed_out() from None

    async def pause(self) -> None:
        """Wait for a poll interval, but not past the time to give up."""
        if self._loop.time() >= self._until:
            raise self._timed_out() from self._failed
        until = min(self._loop.time() + self._poll_interval, self._until)
        while (left := until - self._loop.time()) > 0:
            self._check()
            await asyncio.sleep(min(STEP_SECONDS, left))

    def _check(self) -> None:
        self._lease.check()
        if self._stop.is_set():
            raise StoppedError

    def _timed_out(self) -> AcquireTimeoutError:
        assert self.timeout is not None  # noqa: S101  else it does not run out
        reason = None if self._failed is None else str(self._failed)
        return AcquireTimeoutError(
            key=RESERVATION_KEY, timeout=self.timeout, status=self._reserved, reason=reason
        )
