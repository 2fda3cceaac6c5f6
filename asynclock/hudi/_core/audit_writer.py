"""Writes the audit trail of a table's lock while its leases are held."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from asynclock._core.protocol.timing import LEAVE_WITHIN
from asynclock._log import log
from asynclock.errors import BackendError
from asynclock.hudi._core import held_tables
from asynclock.hudi._core.audit import is_enabled
from asynclock.hudi._core.audit_records import encode, file_name

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from asynclock._core.protocol.held import HeldLock
    from asynclock.backend import Backend
    from asynclock.hudi._core.audit_records import State
    from asynclock.hudi._core.paths import TablePath


class TableHooks:
    """Lease hooks of a table's lock: they note the table as held and, if auditing is on, write the trail.

    Args:
        table: The table.
        backend: The store of the table.
        timeout: Seconds that one request of the audit trail may take.
    """

    def __init__(self, table: TablePath, backend: Backend, *, timeout: float) -> None:
        self._table = table
        self._backend = backend
        self._timeout = timeout
        self._writer: AuditWriter | None = None

    async def begin(self, held: HeldLock) -> None:
        """Note the table as held here, and begin an audit file if auditing is switched on."""
        held_tables.add(self._table, held)
        writer = AuditWriter(self._backend, held, timeout=self._timeout)
        self._writer = writer if await writer.begin() else None

    def renewed(self) -> None:
        """Record that the lease was renewed."""
        if self._writer is not None:
            self._writer.renewed()

    async def end(self, release: Callable[[], Awaitable[bool]]) -> bool:
        """Release the lock and record that the lease has ended.

        The wait for the record is part of the time that leaving may take. After that the write continues in
        the background.
        """
        writer = self.take_writer()
        ended_ms, began = wall_ms(), time.monotonic()
        released = await release()
        if writer is not None:
            left = max(0.0, min(LEAVE_WITHIN, self._timeout) + began - time.monotonic())
            await (writer.end(ended_ms, left) if released else writer.stop(left))
        return released

    def take_writer(self) -> AuditWriter | None:
        """Return the audit writer of the current lease, if any. It gets no more records from here."""
        writer, self._writer = self._writer, None
        return writer


class AuditWriter:
    """Writes the audit file of one lease, the whole file for each record. Runs on the lease's loop.

    A failed write is logged and may lose a record; it never affects the lock.

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
        """Write START and return True if auditing is on; False if it is off or the switch cannot be read."""
        try:
            async with asyncio.timeout(self._timeout):
                if not await is_enabled(self._backend):
                    return False
        except (BackendError, TimeoutError) as error:
            log.warning("%s: the audit switch could not be read: %s", self._held.tenure.key, error)
            return False
        self._add("START", self._start)
        await self._written()
        return True

    def renewed(self) -> None:
        """Write RENEW, in the background."""
        self._add("RENEW", wall_ms())

    async def end(self, ended_ms: int, within: float) -> None:
        """Write END and wait until it is written.

        Args:
            ended_ms: A time before the release was sent, so that the next holder's START is not earlier.
            within: Longest wait, in seconds.
        """
        self._add("END", ended_ms)
        await self._written(within)

    async def stop(self, within: float = LEAVE_WITHIN) -> None:
        """Wait up to ``within`` seconds for the record being written. A lost lease gets no END."""
        await self._written(within)

    def _add(self, state: State, timestamp_ms: int) -> None:
        expiration = self._held.tenure.head.record.valid_until_ms
        self._lines += encode(self._held.tenure.owner, self._start, state, timestamp_ms, expiration)
        if self._writing is None or self._writing.done():
            self._writing = asyncio.ensure_future(self._write())

    async def _write(self) -> None:
        written = b""
        while written != self._lines:
            written = self._lines
            try:
                async with asyncio.timeout(self._timeout):
                    await self._backend.put(file_name(self._held.tenure.owner, self._start), written)
            except (BackendError, TimeoutError) as error:
                log.warning("%s: an audit record was not written: %s", self._held.tenure.key, error)

    async def _written(self, within: float | None = None) -> None:
        if self._writing is not None:
            await asyncio.wait([self._writing], timeout=within)


def wall_ms() -> int:
    """Return this machine's time as Hudi writes it, in epoch ms."""
    return round(time.time() * 1000)
