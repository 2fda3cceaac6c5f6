"""One held lock, from the write that acquired it to its end (rules 4 to 7 and 15)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from asynclock._core.protocol.belief import Belief
from asynclock._core.protocol.body import Body
from asynclock._core.protocol.claim import Claim
from asynclock._core.protocol.ending import Ending
from asynclock._core.protocol.losses import Losses
from asynclock._core.protocol.refusals import Refusals
from asynclock._core.protocol.release import Release
from asynclock._core.protocol.renewer import Renewer
from asynclock._core.protocol.tenure import Tenure

if TYPE_CHECKING:
    from collections.abc import Callable

    from asynclock._core.protocol.objects import Attempt, LockObjects
    from asynclock.errors import LeaseLostError


class HeldLock:
    """The holder's side of one acquisition, made of the write that ``landed``.

    You may use ``belief`` from any thread and from a signal handler, at any point. Everything else runs on
    the client's loop, if it does not say otherwise.

    Attributes:
        tenure: Which lock, whose, under which token.
        claim: Its writes. Its own: the clean-up of a loss must not mistake a later write of the acquisition
            for its own.
        belief: How long it is believed to be held.
        renewer: Renews it.
        release: Frees it, or hands it over.
        ending: Its end.
        body: The code that works under it.
        loop: The client's.
    """

    def __init__(
        self, *, objects: LockObjects, key: str, landed: Attempt, at_most: float | None = None
    ) -> None:
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self._losses = losses = Losses(self.loop)
        refusals = Refusals()
        self.tenure: Tenure = Tenure(objects, key, landed)
        self.claim: Claim = Claim(objects, key, landed)
        self.belief: Belief = Belief(self.tenure, objects, at_most=at_most, refusals=refusals, losses=losses)
        self.ending: Ending = Ending(self.tenure, self.belief, losses, self.loop)
        self.renewer: Renewer = Renewer(
            objects,
            tenure=self.tenure,
            claim=self.claim,
            belief=self.belief,
            refusals=refusals,
            ending=self.ending,
        )
        self.release: Release = Release(
            objects,
            tenure=self.tenure,
            claim=self.claim,
            belief=self.belief,
            renewer=self.renewer,
            ending=self.ending,
        )
        self.body: Body = Body(self.tenure, self.belief, objects.in_flight)

    def on_lost(self, tell: Callable[[LeaseLostError], object]) -> None:
        """Call ``tell`` once at a loss, in the thread that finds it; at once if it is lost. From any thread.

        It must neither block nor raise. It needs no event loop: that of the client may be blocked or closed.
        """
        self.belief.end_if_due()  # the first look after the deadline makes the loss final
        self.body.in_use = True
        self._losses.call(tell)
        self._losses.tell(self.belief.lost)
