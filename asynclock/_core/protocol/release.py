"""Frees one held lock whose holder has left or lost it (rules 3, 6, 21 and 24)."""

from __future__ import annotations

import asyncio
import math
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from asynclock._core.protocol.belief import End, Phase
from asynclock._core.protocol.decisions import Displaced
from asynclock._core.protocol.outcomes import Landed
from asynclock.errors import BackendError, ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from asynclock._core.protocol.belief import Belief
    from asynclock._core.protocol.ending import Ending
    from asynclock._core.protocol.objects import LockObjects
    from asynclock._core.protocol.outcomes import Attempt, Outcome
    from asynclock._core.protocol.renewer import Renewer

_LONGER: Final = 1.01


class Release:
    """Frees the record of one held lock, after its belief has ended. On the client's loop.

    Attributes:
        freed: The write that released the lock, and left it free, or kept (rule 21) or offered (rule 29).
    """

    def __init__(self, belief: Belief, ending: Ending, renewer: Renewer) -> None:
        self.freed: Attempt | None = None
        self._tenure = belief.tenure
        self._objects = belief.tenure.objects
        self._in_flight = belief.tenure.objects.in_flight
        self._claim = belief.tenure.claim
        self._belief = belief
        self._renewer = renewer
        self._ending = ending
        self._kept_until = -math.inf
        self._left_unfreed = False
        self._cleans = False
        ending.on_expiry = self._free_expired

    def keep(self, seconds: float) -> None:
        """Make a release keep the lock held until ``seconds`` from now (rule 21). From any thread."""
        self._kept_until = self._objects.clock.boot() + seconds

    def left_to_keep(self) -> float:
        """Return for how many seconds a release keeps the lock; 0.0 or less: not at all."""
        return self._kept_until - self._objects.clock.boot()

    def let_go(self, loss: str | None = None) -> None:
        """End belief and release in the background.

        ``loss`` is why the holder loses the lock; None: the holder asked for it, or nobody uses the lock.
        """
        if self._stop(loss):
            self._in_flight.spawn(self._free_in_background())

    def _stop(self, loss: str | None) -> bool:
        """End belief; False if the lock was no longer held."""
        return self._belief.end(End.RELEASE) if loss is None else self._belief.end(End.LET_GO, loss)

    async def free(self, until: float | None = None, *, hand_over: Callable[[], bool] | None = None) -> None:
        """Free the lock whose belief has ended; ``Belief.lost`` then says whether it was found to be gone.

        Args:
            until: Loop time to wait until, default the exit bound; after that it continues in the background.
            hand_over: Called once no renewal is in flight; returns True if a receiver gets the lock instead.
        """
        with self._in_flight.protect():
            bound = self._objects.timing.exit_bound
            tried, freeing = None, None
            at_once, until = until is None, self._ending.loop.time() + bound if until is None else until
            if self._renewer.running is None:
                if hand_over is not None and hand_over():
                    freeing = self._ending.future
                elif at_once and not (self._objects.limits_writes or self.left_to_keep() > 0):
                    # Nearly always enough, and then it needs no task of its own.
                    with suppress(BackendError, ConfigError):
                        tried = await self._claim.free_once(self._tenure.head, timeout=bound)
                if isinstance(tried, Landed):
                    self._note_freed(tried)
                    return
            await self._outlast(
                freeing or self._in_flight.spawn(self._free_in_background(tried, hand_over)), until
            )
            if self._belief.phase is Phase.HANDED_OVER:
                await self._outlast(self._ending.future, until)

    async def _outlast(self, end: asyncio.Future[Any], until: float) -> None:
        """Wait until that loop time for a release or hand-over; if it still runs then, report that."""
        await asyncio.wait([end], timeout=max(0.0, until - self._ending.loop.time()))
        if not end.done():
            self.note_pending()

    def note_pending(self) -> None:
        """Report once that no caller waits any more for a running release."""
        if not self._left_unfreed:
            self._left_unfreed = True
            error = self._claim.error
            reason = "" if error is None else type(error).__name__
            self._tenure.report_end("release_pending", self._why_unfreed(), reason, self._belief.since_end())

    @property
    def pending(self) -> str | None:
        """Why it still runs after its holder left; None if it ended, or the holder has not left."""
        running = self._left_unfreed and self._belief.phase is Phase.RELEASING
        return self._why_unfreed() if running else None

    def _why_unfreed(self) -> str:
        return "no answer so far" if self._claim.error is None else str(self._claim.error)

    async def _free_in_background(
        self,
        tried: Outcome | None = None,
        hand_over: Callable[[], bool] | None = None,
    ) -> None:
        self._in_flight.note_unfreed(self)
        freed = None
        try:
            if (renewal := self._renewer.running) is not None:
                # One write of a lease at a time (rule 6); if it was sent just now, its own timeout is first.
                await asyncio.wait([renewal], timeout=_LONGER * self._objects.timing.request_timeout)
                if renewal.done() and hand_over is not None and hand_over():
                    self._in_flight.note_freed(self)
                    return
            freed = await self._free_record(tried=tried)
        except asyncio.CancelledError:
            if self._objects.closed is None:
                raise  # its loop ends: it is freed at the exit, through another
        self._in_flight.note_freed(self)
        self._note_freed(freed)

    async def _free_record(
        self, *, through: LockObjects | None = None, tried: Outcome | None = None
    ) -> Landed | Displaced | None:
        kept_until = self._kept_until
        return await self._claim.free(self._tenure.head, kept_until=kept_until, through=through, tried=tried)

    async def free_through(self, objects: LockObjects, loss: str | None = None) -> None:
        """Free the lock by requests on another loop, because this one is closed; within the exit bound.

        ``loss`` as for ``let_go``.
        """
        if self._stop(loss) or self in self._in_flight.unfreed:
            try:
                async with asyncio.timeout(objects.timing.exit_bound):
                    freed = await self._free_record(through=objects)
                self._in_flight.note_freed(self)
                self._note_freed(freed)
            except TimeoutError:
                self.give_up("the store did not answer in time")

    def give_up(self, reason: str) -> None:
        """Report that the release ends here without an answer of the store."""
        self._in_flight.note_freed(self)
        if self._claim.refusal is not None:
            reason = str(self._claim.refusal)
        elif self._claim.error is not None:
            reason = f"{reason}: {self._claim.error}"
        self._ending.end("release_unconfirmed", reason)

    def _note_freed(self, freed: Landed | Displaced | None) -> None:
        """Report how a release ended, as ``Claim.free`` tells it."""
        if isinstance(freed, Displaced):
            self._ending.found_gone(freed)
        elif freed is None:
            self.give_up("the store did not answer")
        elif freed.attempt.record.expired:
            self.freed = freed.attempt
            self._ending.end("released", reason="read_back" if freed.read_back else "")
        else:
            self.freed, reason = freed.attempt, "" if self._claim.offer is None else "transfer"
            kept = f"kept for another {max(0.0, self.left_to_keep()):.0f} s"
            self._ending.end("released", kept, reason=reason)

    # After a loss.

    def note_left(self) -> None:
        """Note that no body works under the lease any more; free it if lost only here. From any thread."""
        if self._belief.stands:
            with suppress(RuntimeError):  # the loop is closed: it frees itself
                self._ending.loop.call_soon_threadsafe(self._free_standing)

    def _free_standing(self) -> None:
        if self._belief.stands:
            self._belief.stands = False
            self._in_flight.spawn(self._clean_up(stands=True))

    def _free_expired(self) -> None:
        if self._renewer.last is not None:
            self._in_flight.spawn(self._clean_up())

    async def _clean_up(self, *, stands: bool = False) -> None:
        """After a loss, free the lock if it stands, or if a renewal may still land or came late (rule 3)."""
        if self._renewer.last is not None:
            await asyncio.wait([self._renewer.last])
        head = self._tenure.head
        late = head.sent is not self._belief.sent or self._claim.open_on(head.version)
        if self._cleans or not (late or stands):
            return
        self._cleans = True
        if isinstance(await self._free_record(), Landed):
            self._tenure.report("reaped")  # any other outcome changes nothing for a lost lease (rule 6)
