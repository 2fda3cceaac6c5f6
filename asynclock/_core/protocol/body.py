"""The code that works under a lease, and how it hears of the loss."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from asynclock._core.mutex import Mutex

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from asynclock.errors import LeaseLostError

CLOSED: Final = "the client was closed"
"""The reason of a loss if code works under the lease while its client is closed (rule 25)."""


def nothing() -> None:
    """Do nothing: in place of a callback that is not set yet, or needed no more."""


class Body:
    """The code that works under one lease, as far as the protocol has to know it. From any thread.

    Each callback hears of a loss once: from the thread that takes it out of its list, which is one step.

    Attributes:
        loop: The event loop that runs the body of ``hold()`` or ``async with``, or None.
        in_use: A body runs under the lease, or an ``on_lost`` waits for its end.
        updating: Held by one update of a ``FencedObject`` under it at a time.
        acquired: Who has acquired it, and where; for people.
        ceded: Its holder was asked to release it (rule 26).
        report: Ends the lock and reports a loss that ``take`` gives, on the client's loop; or anywhere if
            that loop is closed.
    """

    def __init__(self, home: asyncio.AbstractEventLoop) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None
        self.in_use: bool = False
        self.updating: Mutex = Mutex()
        self.acquired: tuple[object, str] = (None, "")
        self.ceded: bool = False
        self.report: Callable[[], object] = nothing
        self._home = home
        self._unreported: list[LeaseLostError] = []  # one at most
        self._callbacks: list[Callable[[LeaseLostError], object]] = []

    @property
    def is_gone(self) -> bool:
        """Whether the body will never go on, and never release: its event loop was closed."""
        return self.loop is not None and self.loop.is_closed()

    def on_lost(self, tell: Callable[[LeaseLostError], object]) -> None:
        """Call ``tell`` once at a loss."""
        self._callbacks.append(tell)

    def forget(self) -> None:
        """Drop the callbacks."""
        self._callbacks = []

    def note(self, error: LeaseLostError) -> None:
        """Note a loss that must be reported."""
        self._unreported.append(error)

    def report_soon(self) -> None:
        """Have the loss reported on the client's loop."""
        with suppress(RuntimeError):  # the loop is closed
            self._home.call_soon_threadsafe(self.report)

    def take(self) -> LeaseLostError | None:
        """Return the loss that must be reported; only once."""
        try:
            return self._unreported.pop()
        except IndexError:
            return None

    def tell(self, lost: LeaseLostError | None) -> None:
        """Call the callbacks if it was lost. Report it here if the loop that would do so is closed."""
        if lost is None:
            return
        with suppress(IndexError):  # another thread took the last one
            while self._callbacks:
                self._callbacks.pop(0)(lost)
        if self._unreported and self._home.is_closed():
            self.report()
