"""Whether a lock is believed to be held, and what ended that belief (rules 4, 5 and 27)."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

from asynclock._core.protocol.cap import Cap
from asynclock.clock import ClockReading
from asynclock.errors import LeaseExpiredError, LeaseLostError

if TYPE_CHECKING:
    from asynclock._core.protocol.losses import Losses
    from asynclock._core.protocol.objects import LockObjects
    from asynclock._core.protocol.refusals import Refusals
    from asynclock._core.protocol.tenure import Tenure


class Phase(Enum):
    """How far a held lock has come. Only in ``HELD`` is the lock believed to be held."""

    HELD = "held"
    RELEASING = "releasing"  # its record is being freed
    HANDED_OVER = "handed over"  # another acquisition of this client writes over its record, or frees it
    RELEASED = "released"
    LOST = "lost"  # ``Belief.lost`` says why


_HELD: Final = Phase.HELD  # to look it up in an enum costs a tenth of a look at a lease


class Belief:
    """Whether one lock is believed to be held: from any thread and from a signal handler, at any point.

    The first caller after the deadline makes the loss final, so that no answer can revive the lock: its entry
    is the first one of a list, without a mutex.

    Args:
        tenure: Which lock.
        objects: Whose clocks count.
        at_most: Seconds after which belief ends for good (rule 27), or None.
        refusals: Of its renewals.
        losses: Tells of its loss.

    Attributes:
        phase: How far the lock has come.
        lost: Why it was lost, or None.
        sent: Belief counts from here: when the last write that extends it was sent.
        stands: It was lost, though its record still promises a time: free it once the body has left.
    """

    def __init__(
        self,
        tenure: Tenure,
        objects: LockObjects,
        *,
        at_most: float | None,
        refusals: Refusals,
        losses: Losses,
    ) -> None:
        self.phase: Phase = Phase.HELD
        self.lost: LeaseLostError | None = None
        self.sent: ClockReading = tenure.head.sent
        self.stands: bool = False
        self._tenure = tenure
        self._objects = objects
        self._span = objects.timing.belief
        self._cap: Cap | None = None if at_most is None else Cap(at_most, self.sent, at_most)
        self._refusals = refusals
        self._losses = losses
        # The first entry ended belief: a loss, or the clocks at a release.
        self._ends: list[object] = []

    def end_if_due(self) -> float:
        """End belief if its deadline has passed; return the seconds that are left, 0.0 once it has ended."""
        # A renewal that lands in between only makes the answer too small.
        if self.phase is _HELD and (left := self.left()) > 0:
            return left
        left = self._believed()
        if self.lost is not None:
            self._losses.tell(self.lost)
        return left

    def check(self) -> None:
        """Return if the lock is believed to be held.

        Raises:
            LeaseLostError: It was lost, or released.
        """
        if self.end_if_due() > 0:
            return
        if (lost := self.lost) is not None:
            raise lost.with_traceback(None)
        raise self._tenure.error(LeaseLostError, "it was released")

    def _believed(self) -> float:
        """Like ``end_if_due``, but without reporting a loss."""
        if self.phase is not Phase.HELD:
            return 0.0
        sent = self.sent
        if (left := self.left()) > 0:
            return left
        capped = self._cap is not None and self._cap.left(self._objects.now()) <= 0
        reason = "its deadline passed before a renewal was confirmed"
        if self._cap is not None and capped:
            reason = f"it was held for as long as it may be, at_most={self._cap.at_most:g} s"
        elif self._refusals.final:
            reason += ": the store refuses them over the version that it shows; run asynclock doctor"
        self.end(self._tenure.error(LeaseExpiredError, reason))
        if isinstance(self.lost, LeaseExpiredError):
            self.stands = capped
            self.sent = sent  # even if a renewal landed in this very instant: its record is to be freed
        return 0.0

    def left(self) -> float:
        """Return seconds until the deadline, by the clock that counts the most; whatever has ended belief."""
        clock, sent = self._objects.clock, self.sent
        left = self._span - max(
            clock.monotonic() - sent.monotonic, clock.boot() - sent.boot, clock.wall() - sent.wall
        )
        return left if self._cap is None else min(left, self._cap.left(self._objects.now()))

    def since_end(self) -> float:
        """Return for how many seconds belief has ended; 0.0 if it has not."""
        end = self._ends[0] if self._ends else None
        if isinstance(end, ClockReading):
            return ClockReading.now(self._objects.clock).elapsed(end)
        return max(0.0, -self.left()) if isinstance(end, LeaseExpiredError) else 0.0

    @property
    def capped(self) -> bool:
        """Whether belief has an end that no renewal moves."""
        return self._cap is not None

    def count_cap_from(self, now: ClockReading) -> float | None:
        """Count the end that no renewal moves from ``now``; return the seconds until it, None without one.

        Belief comes first: the write may land and its answer be lost, or a clock be set back.
        """
        if self._cap is None:
            return None
        self._cap = self._cap.at(now)
        return self._cap.seconds

    def extend(self, sent: ClockReading) -> bool:
        """Count belief from a renewal that landed; return False if it has ended."""
        before = self.sent
        self.sent = sent
        if self._ends:  # another thread has found the deadline passed just now
            self.sent = before
            return False
        return True

    def stop(self, loss: str | None = None) -> bool:
        """Stop believing before a release is sent; return False if the lock was no longer held.

        ``loss`` is the reason of a release that the holder did not ask for: for the holder it is a loss.
        """
        if self.end_if_due() <= 0:
            return False
        if loss is not None:
            held = self.end(self._tenure.error(LeaseLostError, loss))
            self._losses.tell(self.lost)
            return held
        self._ends.append(end := ClockReading.now(self._objects.clock))
        if held := self._ends[0] is end:
            self.phase = Phase.RELEASING
        return held

    def lose(self, reason: str) -> None:
        """Lose it for a reason of its holder. Its record stays until the body has left."""
        if self.end_if_due() > 0 and self.end(self._tenure.error(LeaseLostError, reason)):
            self.stands = True
            self._losses.tell(self.lost)

    def abandon(self, reason: str) -> None:
        """End belief without a write and without reporting it: in a forked child."""
        self._losses.forget()  # they belong to the parent
        if self.phase is Phase.HELD:
            self.lost, self.phase = self._tenure.error(LeaseLostError, reason), Phase.LOST

    def end(self, loss: LeaseLostError) -> bool:
        """Make a loss final; False if belief has ended by something else."""
        self._ends.append(loss)
        first = self._ends[0]
        if isinstance(first, LeaseLostError):
            self.lost, self.phase = first, Phase.LOST  # also for another thread that has not come this far
        if first is not loss:
            return False
        self._losses.note(loss)
        self._losses.report_soon()
        return True
