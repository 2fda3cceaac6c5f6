"""The end of one held lock: released, handed over or lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asynclock._core.protocol.belief import End
from asynclock._core.protocol.body import nothing
from asynclock.errors import LeaseExpiredError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from asynclock._core.protocol.belief import Belief
    from asynclock._core.protocol.body import Body
    from asynclock._core.protocol.decisions import Displaced
    from asynclock._kinds import Kind
    from asynclock.errors import LeaseLostError


class Ending:
    """Ends one held lock, once, on the client's loop, and reports how.

    Attributes:
        loop: The client's.
        future: Done when the lock is released or lost; the result is the loss, or None.
        confirmed: The store has confirmed its release.
        on_expiry: Called when the deadline has ended it, before that is reported.
    """

    def __init__(self, belief: Belief, body: Body, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.future: asyncio.Future[LeaseLostError | None] = loop.create_future()
        self.confirmed: bool = False
        self.on_expiry: Callable[[], object] = nothing
        self._belief = belief
        self._body = body
        self._then: Callable[[], object] = nothing
        body.report = self.report_loss

    def then(self, call: Callable[[], object]) -> None:
        """Call ``call`` in the step that ends the lock, on the client's loop; at once if it has ended."""
        if self.future.done():
            call()
        else:
            self._then = call

    def report_loss(self) -> None:
        """End the lock and report its loss once; on the client's loop, or anywhere if that loop is closed."""
        if (error := self._body.take()) is None:
            return
        if isinstance(error, LeaseExpiredError) and not self.loop.is_closed():
            self.on_expiry()
        self.end("lost", error.reason, reason=type(error).__name__)

    def found_gone(self, by: Displaced) -> None:
        """Another record is there instead: a loss, if that is proven (rules 2 and 6)."""
        if not by.proven:
            self.end("released", f"{by.reason} since")
            return
        if self._belief.end(End.TAKEN_OVER, by.reason, new_owner=by.owner, new_token=by.token):
            self.report_loss()

    def written_over(self) -> None:
        """The receiver of a hand-over has acquired the lock: this lease lasted until then."""
        self.end("released", "handed over", reason="handover")

    def end(self, kind: Kind, detail: str = "", reason: str = "") -> None:
        """End the lock, unless it has ended, and report ``kind``."""
        if kind == "released":
            self.confirmed = True
        lost = self._belief.close()
        # End it first: a report runs callbacks of the user.
        if not self.future.done() and not self.loop.is_closed():
            self.future.set_result(lost)
            self._then()
        self._body.tell(lost)
        self._belief.tenure.report_end(kind, detail, reason, self._belief.since_end())
        # Nothing is left to do, and a circle of references would wait for the collector.
        self._then = self.on_expiry = self._body.report = nothing
