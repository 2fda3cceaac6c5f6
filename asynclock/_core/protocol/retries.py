"""When an acquisition looks again, and when it gives up (rules 8 and 13)."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from asynclock._core.protocol.decisions import Observation
    from asynclock._core.protocol.objects import LockObjects
    from asynclock._core.protocol.waiting import Fairness

_FINEST_LOOK: Final = 20
"""Looks at a predicted expiry are at least the poll interval divided by this apart."""
_LEAST_REQUEST: Final = 1.0
"""Least seconds for each request: a shorter limit would only leave a write in doubt."""


class Retries:
    """The time that one acquisition has, and its pauses between two looks.

    Args:
        objects: Whose requests it limits.
        observation: The client's view of the object.
        fairness: Sleeps, until the process may be ending.
        until: Loop time at which to give up.
        once: One round only.

    Attributes:
        loop: The running one.
        once: As given.
    """

    def __init__(
        self,
        objects: LockObjects,
        observation: Observation,
        fairness: Fairness,
        *,
        until: float,
        once: bool,
    ) -> None:
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self.once: bool = once
        self._objects = objects
        self._observation = observation
        self._fairness = fairness
        self._until = until

    def left(self) -> float:
        """Return seconds until it gives up; infinite: it never does."""
        return self._until - self.loop.time()

    def limit(self) -> float | None:
        """Return the seconds until it gives up; 0: it tries only once; None: it never gives up."""
        left = self.left()
        return 0.0 if self.once else None if left == math.inf else max(0.0, left)

    def request_limit(self) -> float:
        """Return for how many seconds to wait for the answer to a request."""
        left = math.inf if self.once else self._until - self.loop.time()
        return min(max(left, _LEAST_REQUEST), self._objects.timing.request_timeout)

    def verification_limit(self) -> float:
        """Return for how many seconds to wait until the store is tried out."""
        left = math.inf if self.once else self._until - self.loop.time()
        return max(left, _LEAST_REQUEST)

    def until_next_look(self, wait: float = math.inf) -> float:
        """Return seconds until the next look: ``wait``, at most a jittered poll interval (rule 13)."""
        last = self._observation.last
        poll = self._fairness.poll_interval(None if last is None else last[0].record, self.loop.time())
        return min(self._objects.jittered(poll), max(wait, poll / _FINEST_LOOK))

    async def pause(self, seconds: float) -> bool:
        """Wait, but not past the time to give up; return False if the time is up."""
        left = self.left()
        if left <= 0:
            return False
        await self._fairness.sleep(min(seconds, left))
        return self.loop.time() < self._until
