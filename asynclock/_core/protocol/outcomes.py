"""One write of a lock object, and the store's answer to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from asynclock._core.record import LockRecord
    from asynclock.clock import ClockReading
    from asynclock.errors import BackendError, PreconditionFailedError


class Attempt(NamedTuple):
    """One conditional write of a record with its own nonce. ``Claim`` knows what has become of it.

    Attributes:
        base: The version this write replaces; None to create the object.
        sent: Read before it was sent; belief counts from here, however late the answer.
        settled_at: Store time before which its token must not be handed out; None: at once.
        version: What it became, if it is known to have landed; else None.
    """

    record: LockRecord
    base: str | None
    sent: ClockReading
    settled_at: float | None = None
    version: str | None = None

    @property
    def frees(self) -> bool:
        """Whether it frees the lock, or keeps it for nobody that believes in it."""
        return self.record.expired or self.record.is_kept

    def at(self, version: str | None) -> Attempt:
        """Return this attempt as one that became ``version``."""
        return Attempt(self.record, self.base, self.sent, self.settled_at, version)


class Landed(NamedTuple):
    """The write is in the store.

    Attributes:
        attempt: The write, with the version that it became.
        read_back: Its answer was lost; a read has shown that it landed.
    """

    attempt: Attempt
    read_back: bool = False


class Refused(NamedTuple):
    """The store refused the condition. A copy sent by a layer below may have landed: read back."""

    attempt: Attempt
    error: PreconditionFailedError


class Open(NamedTuple):
    """Nobody knows whether the write landed, or still may: read back."""

    attempt: Attempt
    error: BackendError


Outcome: TypeAlias = Landed | Refused | Open
"""The store's answer to one write, from ``LockObjects.write`` and from ``Claim.write``."""
