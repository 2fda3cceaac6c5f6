"""The write attempts of one acquisition or lease, and which of them a record shows (rule 2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from asynclock.errors import PreconditionFailedError

if TYPE_CHECKING:
    from asynclock.clock import ClockReading
    from asynclock.errors import BackendError
    from asynclock.protocol.decisions import Seen
    from asynclock.record import LockRecord


@dataclass(slots=True, eq=False)
class Attempt:
    """One conditional write of a record with its own nonce.

    Attributes:
        record: What is written.
        base: The version it is conditional on; None: on there being no object.
        sent: Read before it was sent; belief counts from here, however late the answer.
        version: What it became; None while that is unknown, or if it was refused.
        spent: It has made a lease. However that ended, the attempt makes no second one.
        settled_at: Store time before which its token must not be handed out; None: at once.
        unseen: It may have landed without an answer that said so.
    """

    record: LockRecord
    base: str | None
    sent: ClockReading
    version: str | None = None
    spent: bool = False
    settled_at: float | None = None
    unseen: bool = False


def may_have_landed(error: BackendError) -> bool:
    """Whether a write that ended with ``error`` may have landed without an answer; a refusal is believed."""
    return error.written == "unknown" and not isinstance(error, PreconditionFailedError)


class Attempts:
    """The attempts that may still land. An equal nonce is proof of that; an equal owner is not."""

    def __init__(self, *known: Attempt) -> None:
        self._by_nonce: dict[str | None, Attempt] = {each.record.nonce: each for each in known}
        self._freeing: set[str | None] = set()
        self.doubtful = False
        """A write may have freed or taken over the lock unseen: another's record proves no loss."""

    def add(self, attempt: Attempt) -> None:
        """Remember an attempt before it is sent."""
        self._by_nonce[attempt.record.nonce] = attempt

    def add_release(self, record: LockRecord) -> None:
        """Remember the record of a release before it is sent."""
        self._freeing.add(record.nonce)

    def has_released(self, seen: Seen, owner: str) -> bool:
        """Whether ``seen`` is the record of a release sent from here for ``owner``, not an operator's."""
        record = seen.record
        if record is None or record.owner != owner or record.nonce not in self._freeing:
            return False
        return record.expired or record.nonce is not None  # without a nonce, only a free one is a release

    def settle_on(self, attempt: Attempt) -> None:
        """Keep only ``attempt``, which has landed, and those based on it: the others cannot land any more."""
        kept = {nonce: each for nonce, each in self._by_nonce.items() if each.base == attempt.version}
        self._by_nonce = {attempt.record.nonce: attempt, **kept}

    def drop(self, attempt: Attempt) -> None:
        """Forget an attempt if the store says that nothing was written."""
        self._by_nonce.pop(attempt.record.nonce, None)

    def last(self) -> Attempt | None:
        """Return the latest attempt, or None."""
        return next(reversed(self._by_nonce.values()), None)

    def settled_at(self) -> float | None:
        """Return the store time at which no token of these is from the future any more; None: none is."""
        return max((each.settled_at for each in self._by_nonce.values() if each.settled_at), default=None)

    def note_settled(self) -> None:
        """Note that store time has reached every token of these."""
        for each in self._by_nonce.values():
            each.settled_at = None

    def forget(self) -> None:
        """Forget all: their base is gone."""
        self._by_nonce.clear()

    def open_on(self, base: str | None) -> bool:
        """Whether an attempt on ``base`` may still land."""
        return any(each.version is None and each.base == base for each in self._by_nonce.values())

    def recognise(self, seen: Seen) -> Attempt | None:
        """Return the attempt that ``seen`` shows to have landed, and note its version; else None."""
        if seen.record is None or seen.record.expired or seen.record.nonce is None:
            return None
        attempt = self._by_nonce.get(seen.record.nonce)
        if attempt is not None:
            attempt.version = seen.version
        return attempt
