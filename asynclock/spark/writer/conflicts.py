"""The cost of conflicts: under optimistic concurrency control the loser of two writes writes again."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from asynclock.spark.faults import conflict_of
from asynclock.spark.results import Wasted

if TYPE_CHECKING:
    from asynclock.spark.retry import Failed

log = logging.getLogger(__name__)


class Conflicts:
    """Counts and logs the attempts of a writer that conflicted. Not thread-safe.

    Attributes:
        wasted: The cost of the conflicts so far.
    """

    def __init__(self) -> None:
        self.wasted = Wasted()

    def note(self, what: str, failed: Failed) -> None:
        """Count and log a failed attempt at ``what``; an attempt without a conflict is not logged."""
        if (conflict := conflict_of(failed.error)) is None:
            return
        self.wasted += Wasted(conflicts=1, seconds=failed.seconds)
        if failed.pause is not None:
            log.info(
                "%s: %s at attempt %d after %.1f s; again in %.1f s",
                what,
                conflict,
                failed.attempt,
                failed.seconds,
                failed.pause,
            )
