"""How often a waiter looks at a lock that goes from hand to hand (rule 14)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from asynclock.protocol.terms import longest_run
from asynclock.settings import default_poll_interval

if TYPE_CHECKING:
    from asynclock.record import LockRecord


class Turnover:
    """Whether a lock goes from hand to hand, so that its holders may make way any moment (rule 14).

    A holder makes way for two of the poll intervals that are the default for its validity. A
    waiter that polls more slowly would hardly ever look just then.
    """

    def __init__(self) -> None:
        self._owner: str | None = None
        self._quick_until = -math.inf

    def note(self, record: LockRecord | None, now: float) -> None:
        """Take in a record that stands in the way, seen at loop time ``now``."""
        if record is None or record.lease_ms is None:
            return
        if self._owner not in {None, record.owner}:
            self._quick_until = now + 2 * longest_run(record.lease_ms / 1000)
        self._owner = record.owner

    def poll_interval(self, record: LockRecord | None, usual: float, now: float) -> float:
        """Return the poll interval to wait behind ``record`` with; ``usual`` where nothing changes hands."""
        if record is None or record.lease_ms is None or now >= self._quick_until:
            return usual
        return min(usual, default_poll_interval(record.lease_ms / 1000))
