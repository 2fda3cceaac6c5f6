"""Tells of the loss of a held lock, in whatever thread that is found."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from asynclock.errors import LeaseLostError


def nothing() -> None:
    """Do nothing: in place of a callback that is not set yet, or needed no more."""


class Losses:
    """Tells of the loss of one held lock: the callbacks where it is found, the end on the client's loop.

    Each is called once: by the thread that takes it out of its list, which is one step.

    Attributes:
        report: Ends the lock and reports a loss that ``take`` gives, on the client's loop; or anywhere if
            that loop is closed.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.report: Callable[[], object] = nothing
        self._loop = loop
        self._unreported: list[LeaseLostError] = []  # one at most
        self._callbacks: list[Callable[[LeaseLostError], object]] = []

    def call(self, tell: Callable[[LeaseLostError], object]) -> None:
        """Call ``tell`` once at a loss."""
        self._callbacks.append(tell)

    def forget(self) -> None:
        """Call nobody any more."""
        self._callbacks = []

    def note(self, error: LeaseLostError) -> None:
        """Note a loss that is to be reported."""
        self._unreported.append(error)

    def report_soon(self) -> None:
        """Have the loss reported on the client's loop."""
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self.report)

    def take(self) -> LeaseLostError | None:
        """Return the loss that is to be reported, once."""
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
        if self._unreported and self._loop.is_closed():
            self.report()
