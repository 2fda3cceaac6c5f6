"""One call of ``acquire``: how long it may take, and what is reported of it (rules 8 and 13)."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Final

from asynclock._core.names import by_name
from asynclock.errors import BackendError, BackendUnavailableError

if TYPE_CHECKING:
    from asynclock._core.protocol.decisions import Verdict
    from asynclock._core.protocol.held import HeldLock
    from asynclock._core.protocol.objects import LockObjects
    from asynclock._core.record import LockRecord
    from asynclock._kinds import Kind

_LEAST: Final = 1.0
"""Least seconds for a request or a round: a shorter limit would only leave a write in doubt."""


class AcquireCall:
    """One call of ``acquire`` as its caller sees it: until when it waits, and what its rounds report.

    Args:
        objects: Whose requests it limits, and whose events it reports.
        key: Of the lock's object.
        timeout: Seconds; None: without an end, 0: one round.
        waits: Whether the call waits for its turn, and ends with an error; else it is one try.

    Attributes:
        timeout: As given.
        waits: As given.
        once: One round only.
        loop: The running one.
        until: Loop time at which to give up.
        asked_at: Monotonic time of the call.
        kind: How the lock was acquired.
        reason: Over what.
        error: Why the last round failed, if not because of others.
        undated: No Date was usable in the last round.
    """

    def __init__(self, objects: LockObjects, key: str, timeout: float | None, *, waits: bool = True) -> None:
        self.timeout: float | None = timeout
        self.waits: bool = waits
        self.once: bool = not waits or timeout == 0
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self.until: float = math.inf if timeout is None else self.loop.time() + timeout
        self.asked_at: float = objects.clock.monotonic()
        self.kind: Kind = "acquired"
        self.reason: str = ""
        self.error: BackendError | None = None
        self.undated: bool = False
        self._objects = objects
        self._key = key

    # Its time.

    def left(self) -> float:
        """Return seconds until it gives up; infinite: it never does."""
        return self.until - self.loop.time()

    def limit(self) -> float | None:
        """Return the seconds until it gives up; 0: it tries only once; None: it never gives up."""
        left = self.left()
        return 0.0 if self.once else None if left == math.inf else max(0.0, left)

    def request_limit(self) -> float:
        """Return for how many seconds to wait for the answer to a request."""
        left = math.inf if self.once else self.until - self.loop.time()
        return min(max(left, _LEAST), self._objects.timing.request_timeout)

    def round_end(self) -> float:
        """Return the loop time at which a round is cut off; infinite: it is not."""
        return math.inf if self.once else max(self.until, self.loop.time() + _LEAST)

    # Its events.

    def waiting(self, record: LockRecord, verdict: Verdict) -> None:
        """Report that another holds the lock."""
        self.error = None
        self._objects.events.emit(
            "waiting",
            self._key,
            record.owner,
            record.epoch,
            record.holder or "",
            reason="kept" if record.is_kept else "",
            remaining=verdict.remaining,
            limit=self.limit(),
        )

    def failed(self, error: BackendError, owner: str = "") -> None:
        """Report the failure of a round by ``owner``, and keep it as the cause of a timeout."""
        self.error = error
        detail, reason = by_name(str(error), self._key), type(error).__name__
        self._objects.events.emit(
            "acquire_failed", self._key, owner, None, detail, reason=reason, limit=self.limit()
        )

    def no_date(self, owner: str) -> None:
        """Report the second round in a row without a usable Date, or the only one."""
        error = self._unavailable(
            "no answer had a Date that this machine's clock or three earlier answers confirm; check the "
            "clocks of this machine and of the store, and any proxy that may remove the Date header"
        )
        if self.undated or self.once:
            self.failed(error, owner)
        else:
            self.error = error  # one such answer means little: a busy machine may read a good one too late
        self.undated = True

    def too_late(self) -> None:
        """Note that the answers came too late."""
        self.error = self._unavailable("it answered so late that the lease would have expired by then")

    def acquired(self, held: HeldLock) -> None:
        """Report that the caller now has the lock."""
        held.tenure.hand_out(self.kind, reason=self.reason, asked_at=self.asked_at)

    def ended(self, reason: str, detail: str) -> None:
        """Report that the call ends without the lock."""
        duration = self._objects.clock.monotonic() - self.asked_at
        self._objects.events.emit(
            "not_acquired", self._key, "", None, detail, reason=reason, duration=duration
        )

    def _unavailable(self, detail: str) -> BackendError:
        return BackendUnavailableError(backend="store", operation="acquire", key=self._key, detail=detail)
