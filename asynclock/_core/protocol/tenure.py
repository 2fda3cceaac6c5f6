"""One time of holding a lock: whose it is, under which token, and what is said of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asynclock._core.protocol.claim import Claim
from asynclock._core.protocol.refusals import Refusals

if TYPE_CHECKING:
    from collections.abc import Callable

    from asynclock._core.protocol.objects import LockObjects
    from asynclock._core.protocol.outcomes import Attempt
    from asynclock._kinds import Kind
    from asynclock.errors import LeaseLostError


class Tenure:
    """What a held lock is, made of the write that ``landed``; reports its events, and names it in errors.

    Attributes:
        objects: How the client reads and writes.
        key: Of the lock's object.
        owner: The id under which it is held.
        fencing_token: Its token.
        head: The last write that is known to have landed.
        told_token: The token that events name; None: resources must not check it (rule 11).
        refusals: Of its renewals.
        claim: Its writes. Its own: the clean-up of a loss must not mistake a later write of the acquisition
            for its own.
    """

    def __init__(self, objects: LockObjects, key: str, landed: Attempt) -> None:
        assert landed.record.epoch is not None  # noqa: S101  our own record
        self.objects: LockObjects = objects
        self.key: str = key
        self.owner: str = landed.record.owner
        self.fencing_token: int = landed.record.epoch
        self.head: Attempt = landed
        self.told_token: int | None = self.fencing_token
        self.claim: Claim = Claim(objects, key, landed)
        self.refusals: Refusals = Refusals()
        self._began = landed.sent.monotonic
        self._handed_out = False

    def error(self, kind: Callable[..., LeaseLostError], reason: str, **fields: Any) -> LeaseLostError:  # noqa: ANN401  those of ``kind``
        """Return an error of that kind about this tenure."""
        return kind(key=self.key, owner=self.owner, fencing_token=self.fencing_token, reason=reason, **fields)

    def hand_out(self, kind: Kind, *, reason: str, asked_at: float) -> None:
        """Report that the caller now has the lock.

        A lock lost before this point was never a lease, so no event says that it ended.
        """
        self._handed_out = True
        self.report(kind, reason=reason, since=asked_at, aged=True)

    def report_end(self, kind: Kind, detail: str, reason: str, since_end: float) -> None:
        """Report how the lease ended or is ending, if it ever was a lease; belief ended ``since_end`` ago."""
        if self._handed_out:
            self.report(kind, detail, reason=reason, since=self._began, since_end=since_end)

    def report_stall(self, seconds: float) -> None:
        """Report for how long this process did not run."""
        self.objects.events.emit("stalled", self.key, self.owner, self.told_token, duration=seconds)

    def report(
        self,
        kind: Kind,
        detail: str = "",
        *,
        reason: str = "",
        since: float | None = None,
        aged: bool = False,
        remaining: float | None = None,
        since_end: float | None = None,
    ) -> None:
        """Report an event.

        Args:
            kind: What happened.
            detail: For people.
            reason: For machines.
            since: Monotonic time from which its duration counts.
            aged: Whether to say how long ago the write that acquired the lock was sent.
            remaining: Seconds that are left of the lease.
            since_end: Seconds for which belief has ended.
        """
        now = self.objects.clock.monotonic()
        self.objects.events.emit(
            kind,
            self.key,
            self.owner,
            self.told_token,
            detail,
            reason=reason,
            duration=None if since is None else now - since,
            remaining=remaining,
            since_end=since_end,
            age=now - self._began if aged else None,
        )
