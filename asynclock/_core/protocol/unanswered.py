"""What one client has asked of the store and has no answer to yet."""

from __future__ import annotations

import asyncio
import math
from contextlib import contextmanager
from contextvars import Context
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary, WeakSet

from asynclock.events import SILENCE, UnderWay

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from asynclock.backend import Backend
    from asynclock.events import Events

_LONGEST_OPENING: Final = 8.0
"""A backend that takes longer than this many seconds to open counts as a silent store."""


class Listing:
    """A listing under way.

    Attributes:
        asked: At what loop time its next object was asked for; infinite: it is not.
    """

    def __init__(self, asked: float) -> None:
        self.asked: float = asked


class Unanswered:
    """The requests and listings of one client under way: has a silent store reported, and ends them all.

    Attributes:
        requests: For each running request: the way to end it, its key, and the loop time at which it began.
        context: Of timers: else each would keep a copy of its caller's, long after the request.
    """

    def __init__(self, backend: Backend, events: Events) -> None:
        # Weak: a request whose loop was closed by force is collected, and the lease in its frame with it.
        self.requests: WeakKeyDictionary[Callable[[], object], tuple[str, float]] = WeakKeyDictionary()
        self.context: Context = Context()  # one for each: no two threads can be in the same at once
        self._backend = backend
        self._events = events
        self._opening_at = -math.inf
        self._listings: WeakSet[Listing] = WeakSet()

    def end_all(self) -> None:
        """End the running requests. Their outcome is unknown."""
        for expire in list(self.requests):
            expire()

    def watch(self, due: float) -> None:
        """Note that a request got no answer for ``SILENCE``, at loop time ``due``."""
        self._events.watch(self._under_way, due)

    @contextmanager
    def listing(self) -> Iterator[Listing]:
        """Count a listing as under way until the end of the body."""
        loop = asyncio.get_running_loop()
        listing = Listing(loop.time())
        self._listings.add(listing)
        due = listing.asked + SILENCE
        timer = loop.call_at(due, self.watch, due, context=self.context)
        try:
            yield listing
        finally:
            timer.cancel()
            self._listings.discard(listing)

    def _under_way(self) -> list[UnderWay]:
        """Return the requests under way; nothing can be answered before the backend is open."""
        now = asyncio.get_running_loop().time()
        if getattr(self._backend, "opening", False):
            self._opening_at = now
        asked = [*self.requests.values(), *(("", each.asked) for each in self._listings)]
        return [
            UnderWay(key, began, max(began, min(self._opening_at, began + _LONGEST_OPENING)))
            for key, began in asked
        ]
