"""What else happens when a lease begins and ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from asynclock._core.protocol.held import HeldLock


class LeaseHooks(Protocol):
    """Hooks for the beginning and the end of a lease. Both run on the client's loop."""

    async def begin(self, held: HeldLock) -> None:
        """Run once the lock is held, before the lease is handed out; an exception releases the lock."""
        ...

    async def end(self, release: Callable[[], Awaitable[bool]]) -> bool:
        """Release the lock by awaiting ``release()``, and return its result."""
        ...
