"""A set of whole numbers that takes little memory if they follow one another."""

from __future__ import annotations

from bisect import bisect_right


class Ranges:
    """Numbers, kept as ranges: the size grows with the gaps between them, not with their count."""

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self._firsts, number) - 1
        return at >= 0 and number <= self._lasts[at]

    def __len__(self) -> int:
        """Return the number of ranges."""
        return len(self._firsts)

    def add(self, number: int) -> None:
        """Add a number."""
        if number in self:
            return
        at = bisect_right(self._firsts, number)
        follows = at > 0 and self._lasts[at - 1] == number - 1
        precedes = at < len(self._firsts) and self._firsts[at] == number + 1
        if follows and precedes:
            self._lasts[at - 1] = self._lasts[at]
            del self._firsts[at], self._lasts[at]
        elif follows:
            self._lasts[at - 1] = number
        elif precedes:
            self._firsts[at] = number
        else:
            self._firsts.insert(at, number)
            self._lasts.insert(at, number)
