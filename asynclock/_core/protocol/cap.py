"""The end of belief that no renewal moves: ``at_most`` (rule 27)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from asynclock.clock import ClockReading


class Cap(NamedTuple):
    """Belief ends ``seconds`` after ``since``, by the clock that counts the most.

    Attributes:
        at_most: What the holder asked for, in seconds.
    """

    seconds: float
    since: ClockReading
    at_most: float

    def left(self, now: ClockReading) -> float:
        """Return seconds until belief ends; 0.0 or less once it has."""
        return self.seconds - now.elapsed(self.since)

    def at(self, now: ClockReading) -> Cap:
        """Return the same end, counted from ``now``: a clock that is set back later does not move it."""
        return Cap(self.left(now), now, self.at_most)
