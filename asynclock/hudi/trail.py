"""Writing the audit trail of a table's lock, beside its leases."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from asynclock.errors import BackendError
from asynclock.events import logger
from asynclock.hudi import register
from asynclock.hudi.audit import encode, file_name, is_enabled

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from asynclock.backend import Backend
    from asynclock.hudi.audit import State
    from asynclock.hudi.paths import TablePath
    from asynclock.protocol.held import HeldLock


class TableHooks:
    """``LeaseHooks`` of a table's lock: each lease is registered and, if audited, has a trail.

    Args:
        table: The table.
        backend: The store of the table.
        timeout: Seconds that one request of a trail may take.
    """

    def __init__(self, table: TablePath, backend: Backend, *, timeout: float) -> None:
        self._table = table
        self._backend = backend
        self._timeout = timeout
        self._trail: Trail | None = None

    async def begin(self, held: HeldLock) -> None:
        """Register the table as held and begin a trail if auditing is switched on."""
        register.note(self._table, held)
        trail = Trail(self._backend, held, timeout=self._timeout)
        self._trail = trail if await trail.begin() else None

    def renewed(self) -> None:
        """Note in the trail that the lease was renewed."""
        if self._trail is not None:
            self._trail.renewed()

    async def end(self, release: Callable[[], Awaitable[bool]]) -> bool:
        """Release the lock and note in the trail that the lease has ended."""
        trail = self.take_trail()
        ended_ms = wall_ms()
        released = await release()
        if trail is not None:
            await (trail.end(ended_ms) if released else trail.stop())
        return released

    def take_trail(self) -> Trail | None:
        """Return the trail of the present lease, to which nothing is added from now on."""
        trail, self._trail = self._trail, None
        return trail


class Trail:
    """The audit file of one lease, written whole for each record. Runs on the lease's loop.

    A failure is logged and costs a record, never the lock.

    Args:
        backend: The store of the table.
        held: The lease.
        timeout: Seconds that one request may take.
    """

    def __init__(self, backend: Backend, held: HeldLock, *, timeout: float) -> None:
        self._backend = backend
        self._held = held
        self._timeout = timeout
        # Hudi's own holders write their machine's time; files in one folder must be comparable.
        self._start = wall_ms()
        self._lines = b""
        self._writing: asyncio.Task[None] | None = None

    async def begin(self) -> bool:
        """Write START if auditing is switched on; False: it is off, or the switch was not readable."""
        try:
            async with asyncio.timeout(self._timeout):
                if not await is_enabled(self._backend):
                    return False
        except (BackendError, TimeoutError) as error:
            logger.warning("%s: the audit switch could not be read: %s", self._held.key, error)
            return False
        self._add("START", self._start)
        await self._written()
        return True

    def renewed(self) -> None:
        """Write RENEW, in the background."""
        self._add("RENEW", wall_ms())

    async def end(self, ended_ms: int) -> None:
        """Write END.

        Args:
            ended_ms: A time before the release was sent: the next holder's START is then never earlier.
        """
        self._add("END", ended_ms)
        await self._written()

    async def stop(self) -> None:
        """Wait for what is being written. A lease that was lost has no END."""
        await self._written()

    def _add(self, state: State, timestamp_ms: int) -> None:
        expiration = self._held.head[0].valid_until_ms
        self._lines += encode(self._held.owner, self._start, state, timestamp_ms, expiration)
        if self._writing is None or self._writing.done():
            self._writing = asyncio.ensure_future(self._write())

    async def _write(self) -> None:
        written = b""
        while written != self._lines:
            written = self._lines
            try:
                async with asyncio.timeout(self._timeout):
                    await self._backend.put(file_name(self._held.owner, self._start), written)
            except (BackendError, TimeoutError) as error:
                logger.warning("%s: an audit record was not written: %s", self._held.key, error)

    async def _written(self) -> None:
        if self._writing is not None:
            await asyncio.wait([self._writing])


def wall_ms() -> int:
    """Return this machine's time as Hudi writes it, in epoch ms."""
    return round(time.time() * 1000)
