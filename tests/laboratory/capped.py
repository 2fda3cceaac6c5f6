"""Leases that are to end after a time, however well they are renewed (rule 27)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tests.laboratory.watched import Believer, Holding

_ROUNDED: Final = 0.002
"""Seconds: a record promises whole milliseconds."""


@dataclass(frozen=True, slots=True)
class Cap:
    """When belief in a lease has to end, by true time, and how much more its records may promise."""

    until: float
    margin: float


class Capped:
    """All leases of one history that are to end by themselves."""

    def __init__(self) -> None:
        self._by_owner: dict[str, Cap] = {}

    def add(self, lease: Believer, cap: Cap, head: dict[str, Any] | None, now: float) -> str | None:
        """Expect a lease to end; returns what is wrong with the record in the store, if it is its own."""
        self._by_owner[lease.owner] = cap
        if head is None or head.get("owner") != lease.owner or head.get("expired"):
            return None
        return self.promised(lease.owner, head, now)

    def promised(self, owner: str, record: dict[str, Any], now: float) -> str | None:
        """Return what is wrong with a record that is sent now for ``owner``, or None."""
        cap = self._by_owner.get(owner)
        if cap is None or record.get("expired"):
            return None
        over = now + record["leaseMs"] / 1000 - cap.until - cap.margin
        return f"a record of {owner[:8]} promises {over:.3f} s too much" if over > _ROUNDED else None

    def outlived(self, holding: Holding, now: float) -> str | None:
        """Return what is wrong with a lease that is believed now, or None."""
        cap = self._by_owner.get(holding.lease.owner)
        if cap is None or now <= cap.until + _ROUNDED:
            return None
        return f"{holding.who} believes {now - cap.until:.3f} s longer than it may"
