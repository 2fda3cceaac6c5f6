"""What is reported of one acquisition."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asynclock._core.names import by_name
from asynclock.errors import BackendError, BackendUnavailableError

if TYPE_CHECKING:
    from asynclock._core.protocol.decisions import Verdict
    from asynclock._core.protocol.held import HeldLock
    from asynclock._core.protocol.time_left import TimeLeft
    from asynclock._core.record import LockRecord
    from asynclock.events import Events, Kind


def report_failed(events: Events, key: str, error: BackendError, time: TimeLeft, owner: str = "") -> None:
    """Report the failure of a round of an acquisition by ``owner``."""
    detail, reason = by_name(str(error), key), type(error).__name__
    events.emit("acquire_failed", key, owner, None, detail, reason=reason, limit=time.limit())


class AcquisitionEvents:
    """Reports the rounds of one acquisition and its success, and keeps why the last round failed.

    Args:
        events: Of the client.
        key: Of the lock's object.
        time: Of the call, which may have waited for its turn.

    Attributes:
        kind: How the lock was acquired.
        reason: Over what.
        error: Why the last round failed, if not because of others.
        undated: No Date was usable in the last round.
    """

    def __init__(self, events: Events, key: str, time: TimeLeft) -> None:
        self.kind: Kind = "acquired"
        self.reason: str = ""
        self.error: BackendError | None = None
        self.undated: bool = False
        self._events = events
        self._key = key
        self._time = time

    def waiting(self, record: LockRecord, verdict: Verdict) -> None:
        """Report that another holds the lock."""
        self.error = None
        self._events.emit(
            "waiting",
            self._key,
            record.owner,
            record.epoch,
            record.holder or "",
            reason="kept" if record.is_kept else "",
            remaining=verdict.remaining,
            limit=self._time.limit(),
        )

    def failed(self, error: BackendError, owner: str) -> None:
        """Report the failure of a round, and keep it as the cause of a timeout."""
        self.error = error
        report_failed(self._events, self._key, error, self._time, owner)

    def no_date(self, owner: str) -> None:
        """Report the second round in a row without a usable Date, or the only one."""
        error = self._unavailable(
            "no answer had a Date that this machine's clock, or three others, agree with; "
            "check the clocks of both, and what may strip the Date header off"
        )
        if self.undated or self._time.once:
            self.failed(error, owner)
        else:
            self.error = error  # one such answer means little: a busy machine may read a good one too late
        self.undated = True

    def too_late(self) -> None:
        """Note that the answers came too late."""
        self.error = self._unavailable("its answers came so late that nothing was left of the lease")

    def acquired(self, held: HeldLock) -> None:
        """Report that the caller now has the lock."""
        held.tenure.hand_out(self.kind, reason=self.reason, asked_at=self._time.asked_at)

    def _unavailable(self, detail: str) -> BackendError:
        return BackendUnavailableError(backend="store", operation="acquire", key=self._key, detail=detail)
