"""Lease: the handle on a held lock."""

from __future__ import annotations

import asyncio
import inspect
import sys
from typing import TYPE_CHECKING

from asynclock._core.handles import LeaseHandle, checked_within
from asynclock._core.portal import run_on
from asynclock.errors import LeaseLostError

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self


class Lease(LeaseHandle):
    """A held lock. Also an async context manager that releases it.

    ``held``, ``remaining`` and ``check`` are local and may be called from any thread. A lease
    bounds mutual exclusion by time and clocks; only ``fencing_token``, checked by the resource,
    closes the rest (see ``FencedObject``).

    Attributes:
        name: Of the lock.
        key: The lock's object under the client's URL.
        owner: The id of this acquisition.
    """

    async def confirm(self) -> None:
        """Check with one conditional write that the store agrees; joins a running renewal.

        Raises:
            LeaseLostError: The lease is lost, or was released.
            BackendError: The store did not answer; the lease lasts until its deadline.
        """
        self.check()
        error = await run_on(self._held.loop, self._held.renewer.renew)
        self.check()
        if error is not None:
            raise error

    async def release(self) -> None:
        """Free the lock: one conditional write that keeps the token; twice is a no-op.

        If another coroutine or thread of this client waits, the lock is handed over to it instead:
        its acquisition is that one write, under a new token. If the store does not confirm it within
        ``min(2 s, validity / 5)`` (Cloud Storage: 1.5 s at least), this returns, and the release goes on in
        the background. The event ``release_pending`` reports that. The lock frees itself after its validity
        at the latest. A cancellation does not extend this time.

        Raises:
            LeaseLostError: It was lost before; nothing was written.
            LeaseTakenOverError: The lock had been taken over, broken or deleted; nothing was written.
        """
        if not self._has_ended():
            await run_on(self._held.loop, lambda: self._engine.finish_lease(self._held))

    async def transfer(self, *, within: float | None = None) -> str:
        """Return a ticket by which another process takes the lock over: ``lock.acquire(ticket=...)``.

        This lease ends before the lock is offered, so finish the work first. Nobody else gets the lock until
        the ticket is used, which works once, or runs out. The ticket is a name, not a secret: it is
        useless without the permission to write the lock. It has only letters, digits, ``-`` and ``_``.

        Args:
            within: Seconds for which the lock is kept for the ticket, 0.1 to 7 days; None: the validity.
                After that anyone may take the lock, and the ticket works until someone does.

        Raises:
            LeaseLostError: The lease is lost, or was released; there is no ticket.
            OutcomeUnknownError: The store did not confirm the offer; there is no ticket, and the lock is
                freed in the background, after ``within`` at the latest.
            ConfigError: ``within`` is out of range, or the lock is that of a Hudi table; nothing was written.
        """
        seconds = checked_within(within)
        self.check()
        held, engine = self._held, self._engine
        ticket = await run_on(
            held.loop, lambda: engine.transfer(held, seconds), undo=lambda _: engine.withdraw(held)
        )
        return ticket.encode()

    async def __aenter__(self) -> Self:
        self._held.enter()
        self._held.body.loop = asyncio.get_running_loop()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if was_dropped(error):
            self._engine.finish_later(self._held)
            return
        try:
            await self.release()
        except LeaseLostError as lost:
            if error is None:
                raise
            error.add_note(str(lost))


def was_dropped(error: BaseException | None) -> bool:
    """Whether a body ends because its coroutine is closed and cannot await. An async generator still can."""
    if not isinstance(error, GeneratorExit):
        return False
    frame = sys._getframe()  # noqa: SLF001  the documented way
    while (caller := frame.f_back) is not None and _is_ours(frame.f_globals["__name__"]):
        frame = caller
    return not frame.f_code.co_flags & inspect.CO_ASYNC_GENERATOR


def _is_ours(module: str) -> bool:
    """Whether a frame is one of the library, between the body and here."""
    return module.partition(".")[0] == __name__.partition(".")[0]
