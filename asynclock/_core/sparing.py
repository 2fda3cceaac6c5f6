"""Limits how often a log repeats a message, and how many similar ones it prints."""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Final

from asynclock._codes import Code, coded

if TYPE_CHECKING:
    from collections.abc import Iterator

FIRST_PAUSE: Final = 5.0
"""Seconds from the first sentence about a fault or a wait to the second; each later pause doubles."""
LONGEST_PAUSE: Final = 300.0
BURST: Final = 8
"""Sentences about single locks (waits, losses, releases) that one client logs at once. Others are counted."""
_MOST_NAMED: Final = 3
COUNTED: Final = {
    "waits": (logging.INFO, Code.WAITING, "waiting as well for {}"),
    "losses": (logging.WARNING, Code.LOSS, "leases lost as well: {}; stop the work that they protect"),
    "releases": (logging.WARNING, Code.RELEASE_UNCONFIRMED, "releases not confirmed either: {}"),
}
"""Sentences for locks that were only counted."""


class Pace:
    """The pace of a message: at once, then after 5, 10, 20 s and so on."""

    def __init__(self) -> None:
        self._due, self._pause = -math.inf, FIRST_PAUSE

    def is_due(self, now: float) -> bool:
        """Whether to say it now; if so, it is."""
        if now < self._due:
            return False
        self._due, self._pause = now + self._pause, min(2 * self._pause, LONGEST_PAUSE)
        return True


class _Budget:
    """Lets some sentences pass at once, and after these one in each first pause."""

    def __init__(self) -> None:
        self._left, self._at = float(BURST), -math.inf

    def take(self, now: float) -> bool:
        """Whether a sentence may pass."""
        self._left = min(BURST, self._left + (now - self._at) / FIRST_PAUSE)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


class Counted:
    """Lets a few sentences about single locks pass, and counts the others by their group."""

    def __init__(self) -> None:
        self._budgets = {group: _Budget() for group in COUNTED}
        self._counts: dict[str, tuple[int, list[str]]] = {}

    def __bool__(self) -> bool:
        """Whether anything was only counted."""
        return bool(self._counts)

    def may_say(self, group: str, now: float) -> bool:
        """Whether a sentence may pass; else ``add`` it."""
        return group not in self._counts and self._budgets[group].take(now)

    def add(self, group: str, url: str) -> None:
        """Count a lock."""
        count, named = self._counts.get(group, (0, []))
        self._counts[group] = count + 1, [*named, url][:_MOST_NAMED]

    def sentences(self, now: float | None = None) -> Iterator[tuple[int, str]]:
        """Yield level and sentence of the groups whose turn it is, and forget them; None: of all."""
        for group in list(self._counts):
            if now is None or self._budgets[group].take(now):
                count, named = self._counts.pop(group)
                level, code, what = COUNTED[group]
                rest = f" and {count - len(named):,} more" if count > len(named) else ""
                yield level, coded(what.format(f"{', '.join(named)}{rest}"), code)
