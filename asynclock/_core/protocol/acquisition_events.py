"""What is reported of one acquisition."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asynclock._core.names import by_name
from asynclock.errors import BackendError, BackendUnavailableError

if TYPE_CHECKING:
    from asynclock._core.protocol.decisions import Verdict
    from asynclock._core.protocol.held import HeldLock
    from asynclock._core.protocol.retries import Retries
    from asynclock._core.record import LockRecord
    from asynclock.events import Events, Kind


class AcquisitionEvents:
    """Reports the rounds of one acquisition and its success, and keeps why the last round failed.

    Args:
        events: Of the client.
        key: Of the lock's object.
        retries: Knows for how long it tries.
        asked_at: Monotonic time of the call; it may have waited for its turn since.

    Attributes:
        kind: How the lock was acquired.
        reason: Over what.
        error: Why the last round failed, if not because of others.
        undated: No Date was usable in the last round.
    """

    def __init__(self, events: Events, key: str, retries: Retries, asked_at: float) -> None:
        self.kind: Kind = "acquired"
        self.reason: str = ""
        self.error: BackendError | None = None
        self.undated: bool = False
        self._events = events
        self._key = key
        self._retries = retries
        self._asked_at = asked_at

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
            limit=self._retries.limit(),
        )

    def failed(self, error: BackendError, owner: str) -> None:
        """Report the failure of a round, and keep it as the cause of a timeout."""
        self.error = error
        detail, reason = by_name(str(error), self._key), type(error).__name__
        limit = self._retries.limit()
        self._events.emit("acquire_failed", self._key, owner, None, detail, reason=reason, limit=limit)

    def no_date(self, owner: str) -> None:
        """Report the second round in a row without a usable Date, or the only one."""
        error = self._unavailable(
            "no answer had a Date that this machine's clock, or three others, agree with; "
            "check the clocks of both, and what may strip the Date header off"
        )
        if self.undated or self._retries.once:
            self.failed(error, owner)
        else:
            self.error = error  # one such answer means little: a busy machine may read a good one too late
        self.undated = True

    def too_late(self) -> None:
        """Note that the answers came too late."""
        self.error = self._unavailable("its answers came so late that nothing was left of the lease")

    def acquired(self, held: HeldLock) -> None:
        """Report that the caller now has the lock."""
        held.tenure.hand_out(self.kind, reason=self.reason, asked_at=self._asked_at)

    def _unavailable(self, detail: str) -> BackendError:
        return BackendUnavailableError(backend="store", operation="acquire", key=self._key, detail=detail)
