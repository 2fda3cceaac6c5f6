"""Rule 2: the write attempts of one acquisition or lease, and what a read-back says of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from asynclock.errors import PreconditionFailedError

if TYPE_CHECKING:
    from asynclock.clock import Instant
    from asynclock.errors import BackendError
    from asynclock.protocol.judgement import Seen
    from asynclock.record import LockRecord


@dataclass(slots=True, eq=False)
class Attempt:
    """One conditional write of a record with a nonce of its own.

    Attributes:
        record: What is written.
        base: The version it is conditional on; None: on there being no object.
        sent: Before it was sent; belief counts from here, however late the answer.
        version: What it became; None while that is unknown or it was refused.
        settled_at: Store time before which its token must not be handed out; None: at once.
        spent: A lease was made of it. Whatever became of that lease, the attempt makes no second one.
        unseen: It may have landed, and the store did not say so.
    """

    record: LockRecord
    base: str | None
    sent: Instant
    version: str | None = None
    spent: bool = False
    settled_at: float | None = None
    unseen: bool = False


def may_have_landed(error: BackendError | None) -> bool:
    """Whether a write that ended so may have landed without an answer; a refusal is taken at its word."""
    return error is not None and error.written == "unknown" and not isinstance(error, PreconditionFailedError)


class Attempts:
    """The attempts that may still turn up in the store. Nonce equality is proof; owner equality is not.

    Args:
        known: Those that there are already.
    """

    def __init__(self, *known: Attempt) -> None:
        self._by_nonce: dict[str | None, Attempt] = {each.record.nonce: each for each in known}
        self._freeing: set[str | None] = set()
        self.doubtful = False
        """One of them may have freed or handed on the lock unseen: another's record proves no loss."""

    def add(self, attempt: Attempt) -> None:
        """Remember an attempt that is about to be sent."""
        self._by_nonce[attempt.record.nonce] = attempt

    def note_end(self, attempt: Attempt) -> None:
        """Take in the outcome of an attempt that frees the lock, or hands it on."""
        self.doubtful = self.doubtful or attempt.unseen

    def add_release(self, record: LockRecord) -> None:
        """Remember a free record that is about to be sent."""
        self._freeing.add(record.nonce)

    def has_released(self, seen: Seen, owner: str) -> bool:
        """Whether the object shows a free record that was sent for ``owner`` from here.

        A break by an operator keeps the owner too, but has a nonce of its own.
        """
        record = seen.record
        return (
            record is not None and record.expired and record.owner == owner and record.nonce in self._freeing
        )

    def settle_on(self, attempt: Attempt) -> None:
        """Forget all but ``attempt`` and those based on it: its success has spent the base of the others."""
        kept = {nonce: each for nonce, each in self._by_nonce.items() if each.base == attempt.version}
        self._by_nonce = {attempt.record.nonce: attempt, **kept}

    def drop(self, attempt: Attempt) -> None:
        """Forget an attempt of which the store says that nothing was written."""
        self._by_nonce.pop(attempt.record.nonce, None)

    def last(self) -> Attempt | None:
        """Return the latest attempt that is not forgotten, or None."""
        return next(reversed(self._by_nonce.values()), None)

    def settled_at(self) -> float | None:
        """Return the store time by which no token of these is from the future; None: none was."""
        return max((each.settled_at for each in self._by_nonce.values() if each.settled_at), default=None)

    def forget(self) -> None:
        """Forget all: their base is gone."""
        self._by_nonce.clear()

    def open_on(self, base: str | None) -> Attempt | None:
        """Return the latest attempt on ``base`` whose outcome is open, or None."""
        found = [each for each in self._by_nonce.values() if each.version is None and each.base == base]
        return found[-1] if found else None

    def find(self, seen: Seen) -> Attempt | None:
        """Return the attempt that the object shows to have landed and not been released, or None."""
        if seen.record is None or seen.record.expired or seen.record.nonce is None:
            return None
        attempt = self._by_nonce.get(seen.record.nonce)
        if attempt is not None:
            attempt.version = seen.version
        return attempt
