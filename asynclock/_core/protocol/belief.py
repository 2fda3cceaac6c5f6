"""Whether a lock is believed to be held, and what ended that belief (rules 4, 5 and 27)."""

from __future__ import annotations

import math
from enum import Enum, unique
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from asynclock.clock import ClockReading
from asynclock.errors import LeaseExpiredError, LeaseLostError, LeaseTakenOverError

if TYPE_CHECKING:
    from asynclock._core.protocol.body import Body
    from asynclock._core.protocol.tenure import Tenure


class Phase(Enum):
    """How far a held lock has come. Only in ``HELD`` is the lock believed to be held."""

    HELD = "held"
    RELEASING = "releasing"  # its record is being freed
    HANDED_OVER = "handed over"  # another acquisition of this client writes over its record, or frees it
    RELEASED = "released"
    LOST = "lost"  # ``Belief.lost`` says why


Freed: TypeAlias = Literal["at once", "once its body has left", "if a renewal may stand", "never"]
"""When the record of a lock is freed after its belief has ended."""


@unique
class End(Enum):
    """What ends belief. The first end counts, and ``Belief.end`` is the only way to one.

    Attributes:
        reports: The event that tells of it, before any of its release; None: none does.
        error: What its holder gets; None: it is not a loss.
        freed: When the record is freed. A renewal may stand if it may still land, or landed too late.
        is_decided: Somebody decides it, so after the deadline it comes too late. Else it is found out.
    """

    RELEASE = "released", None, "at once", True
    """Its holder leaves, releases, drops or hands it over; or its acquisition gives up."""
    LET_GO = "lost", LeaseLostError, "at once", True
    """A signal; ``aclose`` while it is used; the loop of its body was closed."""
    WITH_ANOTHER = "lost", LeaseLostError, "once its body has left", True
    """A lock that was acquired with it is lost."""
    LOOP_DIED = "lost", LeaseLostError, "never", True
    """Nobody runs the client's loop any more."""
    DEADLINE = "lost", LeaseExpiredError, "if a renewal may stand", False
    """The first look at the lease after its deadline, on any thread."""
    AT_MOST = "lost", LeaseExpiredError, "once its body has left", False
    """The first look after the end that no renewal moves (rule 27). If a renewal may stand: freed at once."""
    TAKEN_OVER = "lost", LeaseTakenOverError, "never", False
    """A renewal, a release or a receiver has found another's record. An unfinished release becomes a loss."""
    FORK = None, LeaseLostError, "never", False
    """The process is a forked child; the lock is its parent's."""

    def __init__(
        self,
        reports: Literal["released", "lost"] | None,
        error: type[LeaseLostError] | None,
        freed: Freed,
        is_decided: bool,  # noqa: FBT001  a column of the table
    ) -> None:
        self.reports = reports
        self.error = error
        self.freed: Freed = freed
        self.is_decided: bool = is_decided


_HELD: Final = Phase.HELD  # to look it up in an enum costs a tenth of a look at a lease
_ENDED: Final = frozenset({Phase.RELEASED, Phase.LOST})


class Belief:
    """Whether one lock is believed to be held: from any thread and from a signal handler, at any point.

    The first caller after the deadline makes the loss final, so that no answer can revive the lock: its entry
    is the first one of a list, without a mutex. Only here the phase changes.

    Args:
        tenure: Which lock, and whose clocks count.
        body: Hears of its loss.
        at_most: Seconds after which belief ends for good (rule 27), or None.

    Attributes:
        tenure: As given.
        phase: How far the lock has come.
        lost: Why it was lost, or None.
        sent: Belief counts from here: when the last write that extends it was sent.
        stands: It was lost, though its record still promises a time: free it once the body has left.
    """

    def __init__(self, tenure: Tenure, body: Body, at_most: float | None) -> None:
        self.tenure: Tenure = tenure
        self.phase: Phase = Phase.HELD
        self.lost: LeaseLostError | None = None
        self.sent: ClockReading = tenure.head.sent
        self.stands: bool = False
        self._objects = tenure.objects
        self._span = tenure.objects.timing.belief
        self._at_most = at_most
        # Seconds from a reading to the end that no renewal moves.
        self._cap: tuple[float, ClockReading] | None = None if at_most is None else (at_most, self.sent)
        self._body = body
        # The first entry ended belief: the clocks then, what did it, and the loss; None: a release.
        self._ends: list[tuple[ClockReading, End, LeaseLostError | None]] = []

    def end_if_due(self) -> float:
        """End belief if its deadline has passed; return the seconds that are left, 0.0 once it has ended."""
        # A renewal that lands in between only makes the answer too small.
        if self.phase is _HELD and (left := self.left()) > 0:
            return left
        left = self._believed()
        if self.lost is not None:
            self._body.tell(self.lost)
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
        raise self.tenure.error(LeaseLostError, "it was released")

    def _believed(self) -> float:
        """Like ``end_if_due``, but without reporting a loss."""
        if self.phase is not Phase.HELD:
            return 0.0
        sent = self.sent
        if (left := self.left()) > 0:
            return left
        by, reason = End.DEADLINE, "its deadline passed before a renewal was confirmed"
        if self._cap is not None and self._until_cap(self._objects.now()) <= 0:
            by, reason = End.AT_MOST, f"it was held for as long as it may be, at_most={self._at_most:g} s"
        elif self.tenure.refusals.final:
            reason += ": the store refuses them over the version that it shows; run asynclock doctor"
        self.end(by, reason)
        if isinstance(self.lost, LeaseExpiredError):
            self.sent = sent  # even if a renewal landed in this very instant: its record must be freed
        return 0.0

    def left(self) -> float:
        """Return seconds until the deadline, by the clock that counts the most; whatever has ended belief."""
        clock, sent = self._objects.clock, self.sent
        left = self._span - max(
            clock.monotonic() - sent.monotonic, clock.boot() - sent.boot, clock.wall() - sent.wall
        )
        return left if self._cap is None else min(left, self._until_cap(self._objects.now()))

    def since_end(self) -> float:
        """Return for how many seconds belief has ended; 0.0 if it has not."""
        if not self._ends:
            return 0.0
        at, _, loss = self._ends[0]
        if isinstance(loss, LeaseExpiredError):
            return max(0.0, -self.left())  # since the deadline, however late that was noticed
        return ClockReading.now(self._objects.clock).elapsed(at)

    @property
    def capped(self) -> bool:
        """Whether belief has an end that no renewal moves."""
        return self._cap is not None

    def count_cap_from(self, now: ClockReading) -> float | None:
        """Count the end that no renewal moves from ``now``; return the seconds until it, None without one.

        Call it before the write is sent. Belief then ends no later than the record promises, even if the
        answer is lost or a clock is set back.
        """
        if self._cap is None:
            return None
        left = self._until_cap(now)
        self._cap = left, now
        return left

    def _until_cap(self, now: ClockReading) -> float:
        if self._cap is None:
            return math.inf
        seconds, since = self._cap
        return seconds - now.elapsed(since)

    def extend(self, sent: ClockReading) -> bool:
        """Count belief from a renewal that landed; return False if it has ended."""
        before = self.sent
        self.sent = sent
        if self._ends:  # another thread has found the deadline passed just now
            self.sent = before
            return False
        return True

    def end(self, by: End, reason: str = "", **fields: Any) -> bool:  # noqa: ANN401  those of the error
        """End belief; return False if the lock was no longer held, so that this ends nothing.

        Args:
            by: What ends it.
            reason: Of a loss, for its error.
            fields: More of that error.
        """
        if by.is_decided and self.end_if_due() <= 0:
            return False
        loss = None if by.error is None else self.tenure.error(by.error, reason, **fields)
        if loss is not None and by.reports is None:
            return self._abandon(loss)
        if loss is not None and by is End.TAKEN_OVER and self.phase is not Phase.HELD:
            return self._turn_into_loss(loss)
        self._ends.append(end := (ClockReading.now(self._objects.clock), by, loss))
        _, first_by, first_loss = first = self._ends[0]
        if first_loss is not None:
            # Also for another thread that has not come this far.
            self.stands = self.stands or first_by.freed == "once its body has left"
            self.lost, self.phase = first_loss, Phase.LOST
        elif first is end:
            self.phase = Phase.RELEASING
        if first is end and loss is not None:
            self._body.note(loss)
            self._body.report_soon()
        if by.is_decided and self.lost is not None:
            self._body.tell(self.lost)
        return first is end

    def _abandon(self, loss: LeaseLostError) -> bool:
        """Lose it without an event or a callback, also if a thread of the parent was about to report one."""
        self._body.forget()  # they belong to the parent
        if held := self.phase is Phase.HELD:
            self.lost, self.phase = loss, Phase.LOST
        return held

    def _turn_into_loss(self, loss: LeaseLostError) -> bool:
        """Make a loss of a release or hand-over that found another's record; False if it has ended."""
        if self.phase in _ENDED:
            return False
        self.lost, self.phase = loss, Phase.LOST
        self._body.note(loss)
        return True

    def hand_over(self) -> None:
        """Note, after a ``RELEASE``, that a receiver writes over the record, or frees it (rule 15)."""
        self.phase = Phase.HANDED_OVER

    def close(self) -> LeaseLostError | None:
        """Note that nothing of the lock is left to do; return why it was lost, or None."""
        if self.phase is not Phase.LOST:
            self.phase = Phase.RELEASED
        return self.lost
