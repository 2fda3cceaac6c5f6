"""One held lock, from the write that acquired it to its end (rules 4 to 7 and 15)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from asynclock._core.protocol.belief import Belief
from asynclock._core.protocol.body import CLOSED, Body
from asynclock._core.protocol.ending import Ending
from asynclock._core.protocol.release import Release
from asynclock._core.protocol.renewer import Renewer
from asynclock._core.protocol.tenure import Tenure
from asynclock.errors import LeaseLostError

if TYPE_CHECKING:
    from collections.abc import Callable

    from asynclock._core.protocol.claim import Claim
    from asynclock._core.protocol.objects import LockObjects
    from asynclock._core.protocol.outcomes import Attempt


class HeldLock:
    """The holder's side of one acquisition, made of the write that ``landed``.

    You may use ``belief`` from any thread and from a signal handler, at any point. Everything else runs on
    the client's loop, if it does not say otherwise.

    Attributes:
        tenure: Which lock, whose, under which token.
        claim: Its writes.
        belief: How long it is believed to be held.
        renewer: Renews it.
        release: Frees it.
        ending: Its end.
        body: The code that works under it.
        loop: The client's.
    """

    def __init__(
        self, *, objects: LockObjects, key: str, landed: Attempt, at_most: float | None = None
    ) -> None:
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self.tenure: Tenure = Tenure(objects, key, landed)
        self.claim: Claim = self.tenure.claim
        self.body: Body = Body(self.loop)
        self.belief: Belief = Belief(self.tenure, self.body, at_most)
        self.ending: Ending = Ending(self.belief, self.body, self.loop)
        self.renewer: Renewer = Renewer(self.belief, self.ending)
        self.release: Release = Release(self.belief, self.ending, self.renewer)

    def enter(self) -> None:
        """Note that a body works under the lease from now on.

        Raises:
            LeaseLostError: The client was closed meanwhile.
        """
        self.body.in_use = True
        closed = self.tenure.objects.in_flight.closed is not None
        if closed and self.belief.end_if_due() <= 0 and self.belief.lost is None:
            raise self.tenure.error(LeaseLostError, CLOSED)

    def may_hand_over(self) -> bool:
        """Whether a receiver may write over the record (rule 15): before the deadline, with a settled token.

        Not while it is kept: that also excludes other callers of this client.
        """
        settled = self.belief.left() > 0 and self.claim.note_settled(self.tenure.head) <= 0
        return settled and self.release.left_to_keep() <= 0

    def hand_over(self) -> None:
        """Leave record and claim to a receiver, which calls ``written_over``, ``found_gone`` or ``free``."""
        self.belief.hand_over()
        self.tenure.objects.in_flight.add(self.ending.future)

    def on_lost(self, tell: Callable[[LeaseLostError], object]) -> None:
        """Call ``tell`` once at a loss, in the thread that finds it; at once if it is lost. From any thread.

        It must neither block nor raise. It needs no event loop: that of the client may be blocked or closed.
        """
        self.belief.end_if_due()  # the first look after the deadline makes the loss final
        self.body.in_use = True
        self.body.on_lost(tell)
        self.body.tell(self.belief.lost)
