"""A mutex for coroutines on different event loops."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from concurrent.futures import Future
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType


class Mutex:
    """First come, first served, whichever event loop a coroutine runs on. An async context manager.

    ``asyncio.Lock`` serves one loop only. Leaving does not wait, so that a coroutine that is
    dropped in the middle, because its loop was closed, passes the mutex on as well.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._places: deque[Future[None]] = deque()
        """In the order of arrival; the first one has the mutex."""

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
            had_it = self._places[0] is place
            self._places.remove(place)
            heir = self._places[0] if had_it and self._places else None
        # One that has been cancelled passes the mutex on itself.
        if heir is not None and heir.set_running_or_notify_cancel():
            heir.set_result(None)
