"""The code that works under a lease."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from asynclock._core.mutex import Mutex
from asynclock.errors import LeaseLostError

if TYPE_CHECKING:
    import asyncio

    from asynclock._core.inflight import InFlight
    from asynclock._core.protocol.belief import Belief
    from asynclock._core.protocol.tenure import Tenure

CLOSED: Final = "the client was closed"
"""The reason of a loss if code works under the lease while its client is closed (rule 25)."""


class Body:
    """The code that works under one lease, as far as the protocol has to know it. From any thread.

    Attributes:
        loop: The event loop that runs the body of ``hold()`` or ``async with``, or None.
        in_use: A body runs under the lease, or an ``on_lost`` waits for its end.
        updating: Held by one update of a ``FencedObject`` under it at a time.
        acquired: Who has acquired it, and where; for people.
        ceded: Its holder was asked to release it (rule 26).
    """

    def __init__(self, tenure: Tenure, belief: Belief, in_flight: InFlight) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None
        self.in_use: bool = False
        self.updating: Mutex = Mutex()
        self.acquired: tuple[object, str] = (None, "")
        self.ceded: bool = False
        self._tenure = tenure
        self._belief = belief
        self._in_flight = in_flight

    def enter(self) -> None:
        """Note that a body works under the lease from now on.

        Raises:
            LeaseLostError: The client was closed meanwhile.
        """
        self.in_use = True
        belief = self._belief
        if self._in_flight.closed is not None and belief.end_if_due() <= 0 and belief.lost is None:
            raise self._tenure.error(LeaseLostError, CLOSED)

    @property
    def is_gone(self) -> bool:
        """Whether the body will never go on, and never release: its event loop was closed."""
        return self.loop is not None and self.loop.is_closed()
