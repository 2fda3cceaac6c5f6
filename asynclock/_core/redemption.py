"""Redeeming a ticket: an acquisition over the one record that offers the lock, or none (rule 29)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asynclock._core.protocol.acquire import Acquisition
from asynclock._core.protocol.decisions import Verdict
from asynclock.errors import TicketSpentError

if TYPE_CHECKING:
    from asynclock._core.protocol.decisions import Seen


class Redemption(Acquisition):
    """An acquisition that replaces an offer, and waits for nobody.

    Args:
        arguments: Those of ``Acquisition``.
        offer: The owner in the offer's record.
    """

    def __init__(self, *arguments: Any, offer: str, **named: Any) -> None:  # noqa: ANN401  those of another
        super().__init__(*arguments, **named)
        self._offer = offer

    def _remembered(self) -> Seen | None:
        return None  # the offer must be read first

    def _judge(self, seen: Seen) -> Verdict:
        record = seen.record
        # Nobody believes in an offer, so it need not have run out. It is spent once another record stands.
        offered = record is not None and record.owner == self._offer and not record.expired
        if offered or self._stake.claim.settle(seen) is not None:
            return Verdict(free=True, wait=0.0)
        holder = None if record is None or record.expired or record.is_kept else record.holder or record.owner
        raise TicketSpentError(key=self._key, holder=holder)

    def _reason_on(self, seen: Seen) -> str:
        del seen
        return "transfer"
