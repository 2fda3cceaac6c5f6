"""The status of a lock in one read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from asynclock._core.protocol.decisions import Seen, Verdict
    from asynclock._core.protocol.timing import Timing
    from asynclock._core.record import LockRecord

State = Literal["absent", "free", "held", "expired", "corrupt"]

RENEWALS_PER_VALIDITY: Final = 10
"""Least number of renewals within a validity: ``LeaseSettings`` and Hudi refuse fewer."""
_LATE_SHARE: Final = 0.5
"""A renewal counts as overdue once it is late by this share of the pause between two renewals."""
_HELD_SINCE: Final = frozenset({"held", "expired"})


@dataclass(frozen=True, slots=True)
class LockStatus:
    """A lock as one read showed it.

    Attributes:
        name: Name of the lock.
        url: URL of the lock, as the command ``asynclock`` takes it: that of its object without ``.json``.
        state: ``absent`` (no object: perhaps the URL or the name is not the one that was meant), ``free``
            (released, or kept by ``at_least`` until a time that is over), ``held`` (or kept),
            ``expired`` (not released, but others may take it over) or ``corrupt``.
        owner: Id of the acquisition; None without a record.
        holder: Who holds it, in the holder's own words; None in a Hudi record.
        fencing_token: Its token; None in a Hudi record.
        valid_until_ms: Epoch ms by the store's clock, as published.
        remaining: Seconds until others may take it over, by the store's clock; negative when
            expired; None without a usable Date.
        age: Seconds since the last write, by the store's clock; None if unknown.
        version: Version of the object; None if there is no object.
        reason: Why it is corrupt; else None.
        kept: Its holder has ended, and ``at_least`` or a ticket keeps it from others until its time is up.
        since_ms: When it was acquired, in epoch ms by the store's clock; None unless it is held or expired,
            and in a Hudi record.
        validity: Seconds that each write of the holder promises; of a kept lock, that its last write
            promised. None in a Hudi record.
        missed_renewals: Renewals that are overdue, at least: a holder renews after a tenth of its validity
            or earlier. None if nobody has to renew it, or if ``age`` is None.
        store_time: The store's clock at this look, in epoch seconds; None without a usable Date.
    """

    name: str
    url: str
    state: State
    owner: str | None
    holder: str | None
    fencing_token: int | None
    valid_until_ms: int | None
    remaining: float | None
    age: float | None
    version: str | None
    reason: str | None = field(default=None, kw_only=True)
    kept: bool = field(default=False, kw_only=True)
    since_ms: int | None = field(default=None, kw_only=True)
    validity: float | None = field(default=None, kw_only=True)
    missed_renewals: int | None = field(default=None, kw_only=True)
    store_time: float | None = field(default=None, kw_only=True, compare=False)


def seen_status(name: str, url: str, seen: Seen, verdict: Verdict, timing: Timing) -> LockStatus:
    """Return the status of a lock from a read and from the verdict of a client with ``timing``."""
    record, state = seen.record, _state(seen.record, verdict)
    store_time = seen.date.value if seen.date is not None and seen.date.usable else None
    age = None
    if seen.last_modified is not None and store_time is not None:
        age = max(0.0, store_time - seen.last_modified)
    return LockStatus(
        name=name,
        url=url,
        state=state,
        owner=record.owner if record else None,
        holder=record.holder if record else None,
        fencing_token=record.epoch if record else None,
        valid_until_ms=record.valid_until_ms if record else None,
        remaining=verdict.remaining,
        age=age,
        version=seen.version,
        kept=record is not None and record.is_kept and state == "held",
        since_ms=_since_ms(record, state),
        validity=record.lease_ms / 1000 if record and record.lease_ms else None,
        missed_renewals=None if age is None else _missed_renewals(seen, age, timing),
        store_time=store_time,
    )


def _since_ms(record: LockRecord | None, state: State) -> int | None:
    if record is None or record.epoch is None or state not in _HELD_SINCE:
        return None
    return record.epoch // 1000  # the token is made of the store's time at the acquisition (rule 11)


def _missed_renewals(seen: Seen, age: float, timing: Timing) -> int | None:
    record = seen.record
    if record is None or record.expired or record.is_kept:
        return None
    if record.lease_ms is not None:
        validity = record.lease_ms / 1000
    else:
        assert seen.last_modified is not None  # noqa: S101  else there is no age
        validity = record.valid_until_ms / 1000 - seen.last_modified + timing.slack
    if validity <= 0:
        return None  # the clock of that Hudi writer is wrong
    # Both kinds of writers refuse longer pauses than a tenth of the validity. A renewal may take a while.
    due_every = validity / RENEWALS_PER_VALIDITY
    return max(0, int((age - timing.slack) / due_every - _LATE_SHARE))


def _state(record: LockRecord | None, verdict: Verdict) -> State:
    if record is None:
        return "absent"
    if record.expired or (record.is_kept and verdict.free):
        return "free"
    return "expired" if verdict.free else "held"


def own_status(name: str, url: str, record: LockRecord, version: str | None) -> LockStatus:
    """Return the status of a lock that this client holds itself; no I/O."""
    return LockStatus(
        name=name,
        url=url,
        state="held",
        owner=record.owner,
        holder=record.holder,
        fencing_token=record.epoch,
        valid_until_ms=record.valid_until_ms,
        remaining=None,
        age=None,
        version=version,
        since_ms=_since_ms(record, "held"),
        validity=record.lease_ms / 1000 if record.lease_ms else None,
    )


def corrupt_status(name: str, url: str, version: str | None, reason: str) -> LockStatus:
    """Return the status of an object that is not a lock record."""
    return LockStatus(
        name=name,
        url=url,
        state="corrupt",
        owner=None,
        holder=None,
        fencing_token=None,
        valid_until_ms=None,
        remaining=None,
        age=None,
        version=version,
        reason=reason,
    )
