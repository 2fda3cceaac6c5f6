"""Writing the audit trail of one holder, beside its lease."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from asynclock.errors import BackendError
from asynclock.events import logger
from asynclock.hudi.audit import encode, file_name, is_enabled

if TYPE_CHECKING:
    from asynclock.backend import Backend
    from asynclock.hudi.audit import State
    from asynclock.protocol.tenure import Tenure


class Trail:
    """The audit file of one lease, written whole for each record. Runs on the lease's loop.

    A failure is logged and costs a record, never the lock.

    Args:
        backend: The store of the table.
        tenure: The lease.
        timeout: Seconds that one request may take.
    """

    def __init__(self, backend: Backend, tenure: Tenure, *, timeout: float) -> None:
        self._backend = backend
        self._tenure = tenure
        self._timeout = timeout
        # Hudi's own holders tell the time by their machine's clock; so must the files side by side.
        self._start = wall_ms()
        self._lines = b""
        self._writing: asyncio.Task[None] | None = None

    async def begin(self) -> bool:
        """Write START if the table's switch is on; False: it is off, or could not be read."""
        try:
            async with asyncio.timeout(self._timeout):
                if not await is_enabled(self._backend):
                    return False
        except (BackendError, TimeoutError) as error:
            logger.warning("%s: the audit switch could not be read: %s", self._tenure.key, error)
            return False
        self._add("START", self._start)
        await self._written()
        return True

    def renewed(self) -> None:
        """Write RENEW, in the background."""
        self._add("RENEW", wall_ms())

    async def end(self, ended_ms: int) -> None:
        """Write END, as of before the release was sent, so that no successor seems to overlap."""
        self._add("END", ended_ms)
        await self._written()

    async def stop(self) -> None:
        """Wait for what is being written: the lease was lost, which has no record of its own."""
        await self._written()

    def _add(self, state: State, timestamp_ms: int) -> None:
        expiration = self._tenure.head[0].valid_until_ms
        self._lines += encode(self._tenure.owner, self._start, state, timestamp_ms, expiration)
        if self._writing is None or self._writing.done():
            self._writing = asyncio.ensure_future(self._write())

    async def _write(self) -> None:
        written = b""
        while written != self._lines:
            written = self._lines
            try:
                async with asyncio.timeout(self._timeout):
                    await self._backend.put(file_name(self._tenure.owner, self._start), written)
            except (BackendError, TimeoutError) as error:
                logger.warning("%s: an audit record was not written: %s", self._tenure.key, error)

    async def _written(self) -> None:
        if self._writing is not None:
            await asyncio.wait([self._writing])


def wall_ms() -> int:
    """Return this machine's time as Hudi writes it, in epoch ms."""
    return round(time.time() * 1000)
