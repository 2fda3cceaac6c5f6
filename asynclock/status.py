"""The status of a lock, as one read shows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from asynclock.protocol.decisions import Seen, Verdict
    from asynclock.record import LockRecord

State = Literal["absent", "free", "held", "expired", "corrupt"]


@dataclass(frozen=True, slots=True)
class LockStatus:
    """A lock as one read showed it.

    Attributes:
        name: Name of the lock.
        url: URL of the lock, as the command ``asynclock`` takes it: that of its object without ``.json``.
        state: ``absent`` (no object: perhaps the URL or the name is not the one that was meant), ``free``
            (released), ``held``, ``expired`` (not released, but others may take it over) or ``corrupt``.
        owner: Id of the acquisition; None without a record.
        holder: Who holds it, in the holder's own words; None in a Hudi record.
        fencing_token: Its token; None in a Hudi record.
        valid_until_ms: Epoch ms by the store's clock, as published.
        remaining: Seconds until others may take it over, by the store's clock; negative when
            expired; None without a usable Date.
        age: Seconds since the last write, by the store's clock; None if unknown.
        version: Version of the object; None if there is no object.
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


def seen_status(name: str, url: str, seen: Seen, verdict: Verdict) -> LockStatus:
    """Return the status of a lock from what was read and how it was judged."""
    record = seen.record
    age = None
    if seen.last_modified is not None and seen.date is not None and seen.date.usable:
        age = max(0.0, seen.date.value - seen.last_modified)
    return LockStatus(
        name=name,
        url=url,
        state=_state(record, verdict),
        owner=record.owner if record else None,
        holder=record.holder if record else None,
        fencing_token=record.epoch if record else None,
        valid_until_ms=record.valid_until_ms if record else None,
        remaining=verdict.remaining,
        age=age,
        version=seen.version,
    )


def _state(record: LockRecord | None, verdict: Verdict) -> State:
    if record is None:
        return "absent"
    if record.expired:
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
    )


def corrupt_status(name: str, url: str, version: str | None) -> LockStatus:
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
    )
