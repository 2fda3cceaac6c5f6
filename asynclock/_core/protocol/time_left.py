"""The time that a call of ``acquire`` has (rules 8 and 13)."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from asynclock._core.protocol.objects import LockObjects

_LEAST: Final = 1.0
"""Least seconds for a request or a round: a shorter limit would only leave a write in doubt."""


class TimeLeft:
    """The time that is left of one call of ``acquire``.

    Args:
        objects: Whose requests it limits.
        timeout: Seconds; None: without an end, 0: one round.
        waits: Whether the call waits for its turn, and ends with an error; else it is one try.

    Attributes:
        timeout: As given.
        waits: As given.
        once: One round only.
        loop: The running one.
        until: Loop time at which to give up.
        asked_at: Monotonic time of the call.
    """

    def __init__(self, objects: LockObjects, timeout: float | None, *, waits: bool = True) -> None:
        self.timeout: float | None = timeout
        self.waits: bool = waits
        self.once: bool = not waits or timeout == 0
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self.until: float = math.inf if timeout is None else self.loop.time() + timeout
        self.asked_at: float = objects.clock.monotonic()
        self._request_timeout = objects.timing.request_timeout

    def left(self) -> float:
        """Return seconds until it gives up; infinite: it never does."""
        return self.until - self.loop.time()

    def limit(self) -> float | None:
        """Return the seconds until it gives up; 0: it tries only once; None: it never gives up."""
        left = self.left()
        return 0.0 if self.once else None if left == math.inf else max(0.0, left)

    def request_limit(self) -> float:
        """Return for how many seconds to wait for the answer to a request."""
        left = math.inf if self.once else self.until - self.loop.time()
        return min(max(left, _LEAST), self._request_timeout)

    def round_end(self) -> float:
        """Return the loop time at which a round is cut off; infinite: it is not."""
        return math.inf if self.once else max(self.until, self.loop.time() + _LEAST)
