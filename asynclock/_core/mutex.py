"""A mutex for coroutines on different event loops."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType


class Mutex:
    """A first-come, first-served mutex for coroutines of any event loop. An async context manager.

    ``asyncio.Lock`` serves only one loop. Leaving does not wait, so the mutex is passed on even if a
    coroutine is dropped in its body because its loop was closed. No thread lock guards this: each step is one
    list operation, so a signal handler may interrupt it anywhere.
    """

    def __init__(self) -> None:
        self._places: list[Future[None]] = []  # each lease has one, and a deque takes 760 bytes
        """In order of arrival; the first one owns the mutex."""

    async def __aenter__(self) -> None:
        place: Future[None] = Future()
        self._places.append(place)
        if self._places[0] is place:
            return
        try:
            await asyncio.wrap_future(place)
        except BaseException:
            self._leave(place)
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave(self._places[0])

    def _leave(self, place: Future[None]) -> None:
        self._places.remove(place)
        # A leaving thread wakes the first one, even if it was woken before: another may have left since.
        with suppress(IndexError):
            _wake(self._places[0])


def _wake(place: Future[None]) -> None:
    # A cancelled waiter passes the mutex on itself.
    with suppress(InvalidStateError):
        place.set_result(None)
