"""Locks that are to stay held for a time, however early they are released (rule 21)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from asynclock.testing._virtual import Process
    from tests.laboratory.watched import Believer


@dataclass(frozen=True, slots=True)
class Keeping:
    """A lease whose lock is to stay held until true time ``until``."""

    lease: Believer
    process: Process
    until: float

    @property
    def was_lost(self) -> bool:
        """Whether it was lost, so that it keeps the lock no longer than its validity."""
        held: Any = vars(self.lease)["_held"]  # without asking, which makes a loss final
        return held.belief.lost is not None


class Kept:
    """All locks that are kept in one history, and who got one too early."""

    def __init__(self) -> None:
        self._by_owner: dict[str, Keeping] = {}
        self._early: list[tuple[Keeping, str]] = []

    def add(self, owner: str, keeping: Keeping) -> None:
        """Expect a lock to be kept."""
        self._by_owner[owner] = keeping

    def __contains__(self, owner: str) -> bool:
        """Whether a lease keeps its lock."""
        return owner in self._by_owner

    def acquired(self, who: str, owner: str, now: float) -> None:
        """Note that somebody has got the lock, perhaps too early."""
        for keeper, keeping in self._by_owner.items():
            # A process that has died keeps the lock no longer than its validity, either.
            if keeper != owner and now < keeping.until and keeping.process.alive:
                left = keeping.until - now
                self._early.append((keeping, f"{who} got what {keeper[:8]} keeps for another {left:.3f} s"))

    def violations(self) -> list[str]:
        """Return at the end who got a lock too early that was neither lost nor left by the dead."""
        return [detail for keeping, detail in self._early if not keeping.was_lost]
