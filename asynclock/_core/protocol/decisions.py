"""Pure decisions: is the lock free, until when is it promised, which token comes next (rules 4, 8, 11)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

from asynclock._core.protocol.refusals import Refusals
from asynclock._core.protocol.timing import Timing, longest_request

if TYPE_CHECKING:
    from collections.abc import Callable

    from asynclock._core.protocol.outcomes import Attempt
    from asynclock._core.record import LockRecord
    from asynclock.clock import ClockReading, Date

HUDI_DRIFT: Final = 0.5
"""Seconds past ``validUntil`` that Hudi's own readers allow for drift."""
LEAST_FREE_TO_PRUNE: Final = 86_400.0
"""A lock must be free for this many seconds before its object may be deleted."""
_MICRO: Final = 1_000_000


class Seen(NamedTuple):
    """A lock object as one answer showed it; record and version are None if there is no object."""

    record: LockRecord | None
    version: str | None
    last_modified: float | None  # epoch seconds by the store
    date: Date | None  # of this same answer
    arrived: ClockReading


class Observation:
    """One client's view of a lock's object, and how long it saw the same version, by the monotonic clock.

    It belongs to the engine, not to one acquisition, so that several short ones finish it too.
    """

    def __init__(self) -> None:
        # Our own last release, if nothing newer was seen: it lets us acquire in one request.
        self.freed: Attempt | None = None
        # What was judged last, and as what, for the status in a timeout.
        self.last: tuple[Seen, Verdict] | None = None
        self.needed: bool = False  # only observing will tell when the record seen last is free
        self.dated: bool = False  # an answer with this version had a usable Date
        self.first_date: float | None = None  # that came with this version and agrees with the wall clock
        self.refusals: Refusals = Refusals()  # of writes over what it shows, in all acquisitions
        self.watchers: list[Callable[[Seen, Verdict], object]] = []  # told what each look shows
        self._version: str | None = None
        self._since = math.inf

    def note(self, seen: Seen) -> None:
        """Record an answer; time counts from when the *first* one with this version arrived."""
        if seen.version != self._version:
            self._version = seen.version
            self._since = seen.arrived.monotonic
            self.dated = False
            self.first_date = None
        if self.first_date is None and seen.date is not None and seen.date.by_wall:
            self.first_date = seen.date.value
        self.dated = self.dated or (seen.date is not None and seen.date.usable)

    def note_judged(self, seen: Seen, verdict: Verdict) -> None:
        """Note whether the record that was judged needs what is remembered of it, and tell the watchers."""
        self.needed = not verdict.free and (verdict.remaining is None or seen.last_modified is None)
        self.tell(seen, verdict)

    def tell(self, seen: Seen, verdict: Verdict) -> None:
        """Give the watchers the result of a look, or of an acquisition of this client."""
        for watcher in tuple(self.watchers):
            watcher(seen, verdict)

    def is_of(self, seen: Seen) -> bool:
        """Whether ``seen`` is the version that is being observed."""
        return seen.version == self._version

    def left(self, seen: Seen, lasting: float) -> float:
        """Return seconds until ``seen`` has been observed for ``lasting``; inf if it is another version."""
        if not self.is_of(seen):
            return math.inf
        return lasting - (seen.arrived.monotonic - self._since)


class Verdict(NamedTuple):
    """Whether the lock may be taken over, by a conditional write on the version seen.

    Attributes:
        wait: Seconds from the answer until it may be free if nobody renews it; inf if unknown.
        remaining: Seconds until that by the store's clock, negative after; None if no Date tells.
    """

    free: bool
    wait: float
    remaining: float | None = None


def judge(seen: Seen, observation: Observation, timing: Timing) -> Verdict:
    """Apply rule 8 to one answer."""
    record = seen.record
    if record is None or record.expired:
        return Verdict(free=True, wait=0.0)
    since = seen.last_modified
    if since is None and not record.is_ours and observation.is_of(seen):
        # It was written before it was first seen. Our own records are observed instead.
        since = observation.first_date
    expiry = _expiry(record, since, timing)
    remaining = None
    if expiry is not None and seen.date is not None and seen.date.by_wall:
        remaining = expiry - seen.date.value
    observed = _observed(record, seen, observation, timing)
    # Strictly later than the expiry, by a Date that may be cut short.
    by_date = math.inf if remaining is None else remaining + timing.resolution
    free = observed <= 0 or (remaining is not None and remaining < 0)
    return Verdict(free=free, wait=0.0 if free else min(by_date, observed), remaining=remaining)


def _expiry(record: LockRecord, last_modified: float | None, timing: Timing) -> float | None:
    """Return the store time past which the record is free (rule 8); None: by observation only."""
    if last_modified is None:
        return None
    valid_until = record.valid_until_ms / 1000
    if record.lease_ms is None:
        return max(valid_until + HUDI_DRIFT, last_modified + timing.validity) + timing.slack
    lease = record.lease_ms / 1000
    # A write that the store dates before it can have been sent: its last_modified is wrong.
    earliest = valid_until - lease - 2 * timing.slack - _under_way(lease, timing)
    if last_modified < earliest:
        return None
    return last_modified + lease + timing.slack


def _observed(record: LockRecord, seen: Seen, observation: Observation, timing: Timing) -> float:
    if record.lease_ms is None:
        if observation.dated:
            return math.inf
        # Its writer may hold for longer than we do: as long as the record says, counted from its write.
        promised = 0.0
        if seen.last_modified is not None:
            promised = record.valid_until_ms / 1000 + HUDI_DRIFT - seen.last_modified + timing.slack
        return observation.left(seen, max(promised, timing.validity))
    return observation.left(seen, max(record.lease_ms / 1000, timing.validity))


def may_prune(seen: Seen, older_than: float, timing: Timing) -> bool:
    """Apply rule 22: whether what an answer shows may be deleted, by a delete of just that version.

    Args:
        seen: The answer.
        older_than: For how many seconds the lock must be free; never less than a day, nor less than a lease
            and what a late write may take.
        timing: Of the client.
    """
    record, date = seen.record, seen.date
    if record is None or record.lease_ms is None or record.epoch is None or seen.last_modified is None:
        return False  # nothing is there, or it was written by a Hudi writer, whose tokens are unknown
    if date is None or not date.by_wall:
        return False
    lease = record.lease_ms / 1000
    since = (
        seen.last_modified + timing.slack if record.expired else _expiry(record, seen.last_modified, timing)
    )
    # A lock created later starts at the store's time, which must be above every token of this one.
    if since is None or record.epoch >= (date.value - timing.slack) * _MICRO:
        return False
    least = max(older_than, LEAST_FREE_TO_PRUNE, lease + longest_request(lease), timing.clean_up_for)
    return date.value - since > least


class Displaced(NamedTuple):
    """The record found instead of a lease's own, and why it is there."""

    reason: str
    owner: str | None = None
    token: int | None = None
    proven: bool = True  # that the lease was lost; else its own release may have landed before


def displaced(seen: Seen, owner: str, *, proven: bool = True) -> Displaced:
    """Return the meaning, for a lease of ``owner``, of an answer without any record of it."""
    record = seen.record
    if record is None:
        return Displaced("its object was deleted", proven=proven)
    broken = record.expired and record.owner == owner
    reason = "it was broken by an operator" if broken else "another owner has taken over"
    return Displaced(reason, record.owner, record.epoch, proven)


def next_token(predecessor: LockRecord | None, bounds: tuple[float, float], timing: Timing) -> int | None:
    """Apply rule 11 by store time; None: its bounds are too far apart after a Hudi writer, read again.

    A token is a store time in microseconds. After a Hudi writer it is one from the future.
    """
    earliest, latest = bounds
    if predecessor is None:
        return _micros(earliest + timing.resolution)
    if predecessor.epoch is None:
        if latest - earliest - timing.resolution > timing.longest_trip_for_future:
            return None  # a holder that died while it settled could be followed by a lower token
        # Unknown how high the dropped token was: not higher than store time can have been.
        return _micros(latest + timing.slack)
    return max(predecessor.epoch + 1, _micros(earliest))


def next_token_without_dates(predecessor: LockRecord | None, wall: float) -> int | None:
    """Apply rule 11 to a store whose answers have no Date; None: fields were dropped, refuse."""
    if predecessor is None:
        return _micros(wall)
    return None if predecessor.epoch is None else predecessor.epoch + 1


def promise(latest: float, timing: Timing, *, by_wall: bool = True, lease: float | None = None) -> int:
    """Return the ``validUntil`` to publish, epoch ms, if store time is at most ``latest`` (rule 4).

    Args:
        latest: Epoch seconds.
        timing: Of the client.
        by_wall: Whether this machine's wall clock is the witness.
        lease: Seconds that the record promises; None: L.
    """
    lease = timing.validity if lease is None else lease
    if not by_wall:
        # Other Dates are the witnesses. They may all come from one node that is wrong, as may the record's
        # last_modified: publish so late that no reader takes last_modified for possible (rule 8).
        latest += 2 * timing.slack + 2 * _under_way(lease, timing)
    return math.ceil((latest + timing.skew + lease) * 1000)


def _under_way(lease: float, timing: Timing) -> float:
    """Return the largest difference in seconds between the time of a write and our knowledge of it."""
    return max(longest_request(lease), 1.0, timing.slack)


def _micros(seconds: float) -> int:
    return math.ceil(seconds * _MICRO)
