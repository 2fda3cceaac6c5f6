"""A mutex for coroutines on different event loops."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType


class Mutex:
    """A first-come, first-served mutex for coroutines of any event loop. An async context manager.

    ``asyncio.Lock`` serves one loop only. Leaving does not wait, so a coroutine that is dropped in
    its body because its loop was closed still passes the mutex on.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._places: list[Future[None]] = []  # each lease has one, and a deque takes 760 bytes
        """In order of arrival; the first one owns the mutex."""

    async def __aenter__(self) -> None:
        place: Future[None] = Future()
        with self._guard:
            self._places.append(place)
            first = len(self._places) == 1
        if first:
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
        with self._guard:
            owned = self._places[0] is place
            self._places.remove(place)
            following = self._places[0] if owned and self._places else None
        # A cancelled waiter passes the mutex on itself.
        if following is not None and following.set_running_or_notify_cancel():
            following.set_result(None)
