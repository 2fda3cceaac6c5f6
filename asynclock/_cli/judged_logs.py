"""Reads what clients logged as JSON lines, and judges it: believers, tokens, fenced writes."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import orjson

from asynclock._text import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_NAME: Final = "asynclock.event"
_BEGINS: Final = frozenset({"acquired", "adopted"})
_ENDS: Final = frozenset({"lost", "released", "release_pending", "release_unconfirmed"})
_KNOWN: Final = _BEGINS | _ENDS | {"renewed", "updated"}
_LEAST_STEP: Final = 1.0
"""Seconds by which wall clock and duration of a hold may differ without a clock that was set."""
_MOST_SHOWN: Final = 100
"""Violations that are kept; the others are counted."""


@dataclass(frozen=True, slots=True)
class _Entry:
    """An event of a log."""

    kind: str
    url: str
    owner: str
    token: int | None
    time: float
    duration: float | None
    since_end: float


@dataclass(slots=True)
class _Hold:
    """What the logs say of one lease. Times are epoch seconds by the wall clock of its machine.

    Attributes:
        url: URL of the lock.
        owner: Its owner id.
        token: Its fencing token, or None.
        acquired: When its user got it, or None.
        waited: Seconds that this took since the call.
        signs: When it was renewed.
        ended: When its holder stopped believing, or None.
        lasted: Seconds from the write that acquired it to the report of its end, by the monotonic clock.
        reported: When its end was reported.
    """

    url: str
    owner: str
    token: int | None = None
    acquired: float | None = None
    waited: float = 0.0
    signs: list[float] = field(default_factory=list)
    ended: float | None = None
    lasted: float | None = None
    reported: float = 0.0

    def add(self, entry: _Entry) -> None:
        """Add an event; the same one may come twice, and in any order."""
        self.token = entry.token if self.token is None else self.token
        if entry.kind in _BEGINS:
            self.acquired, self.waited = entry.time, entry.duration or 0.0
        elif entry.kind not in _ENDS:
            self.signs.append(entry.time)
        elif self.ended is None or entry.time - entry.since_end < self.ended:
            self.ended, self.lasted = entry.time - entry.since_end, entry.duration
            self.reported = entry.time

    @property
    def begin(self) -> float:
        """From when on it was certainly believed in."""
        known = self.signs if self.ended is None else [*self.signs, self.ended]
        return min(known) if self.acquired is None else self.acquired

    @property
    def end(self) -> float:
        """Until when it was certainly believed in."""
        return max([self.begin, *self.signs]) if self.ended is None else self.ended

    def clock_was_set(self, tolerance: float) -> bool:
        """Whether the wall clock of its machine was set, or the machine slept, while it was held."""
        if self.acquired is None:
            return False
        if self.ended is None or self.lasted is None:
            return any(sign < self.acquired - tolerance for sign in self.signs)
        unseen = self.lasted - (self.reported - self.acquired)  # before its user got it
        return not -tolerance <= unseen <= self.waited + tolerance

    def __str__(self) -> str:
        token = "" if self.token is None else f" (token {self.token})"
        return f"owner {printable(self.owner)}{token}"


@dataclass(slots=True)
class Verdict:
    """What logs prove.

    Attributes:
        logs: How many were read.
        events: Events in them that say something of believers, tokens or fenced writes.
        locks: Locks that were held.
        leases: Leases in the logs.
        unended: Leases whose end is in no log: their holder died, or the log ends before.
        clock_was_set: Leases that are not judged: a clock was set, or stood still, while they were held.
        unclear: Overlaps of two leases that are shorter than the clocks may differ.
        updates: Updates of fenced objects.
        cut: Lines at the end of a log that are cut off.
        damaged: Other lines that are an event, but cannot be read.
        violations: How often something was not as promised.
        details: A sentence for each of the first violations.
    """

    logs: int = 0
    events: int = 0
    locks: int = 0
    leases: int = 0
    unended: int = 0
    clock_was_set: int = 0
    unclear: int = 0
    updates: int = 0
    cut: int = 0
    damaged: int = 0
    violations: int = 0
    details: list[str] = field(default_factory=list)

    def violated(self, detail: str) -> None:
        """Note a violation."""
        self.violations += 1
        if len(self.details) < _MOST_SHOWN:
            self.details.append(detail)


def verdict_on(logs: Iterable[Iterable[bytes]], *, skew: float) -> Verdict:
    """Judge logs of any number of machines together.

    Args:
        logs: The lines of each.
        skew: Seconds by which the wall clocks of two of the machines differ at most.
    """
    verdict = Verdict()
    holds: dict[tuple[str, str], _Hold] = {}
    updates: set[_Entry] = set()
    for log in logs:
        verdict.logs += 1
        for entry in _entries(log, verdict):
            verdict.events += 1
            if entry.kind == "updated":
                updates.add(entry)
            else:
                hold = holds.setdefault((entry.url, entry.owner), _Hold(entry.url, entry.owner))
                hold.add(entry)
    tolerance = max(skew, _LEAST_STEP)
    judged = [hold for hold in holds.values() if not hold.clock_was_set(tolerance)]
    verdict.leases, verdict.clock_was_set = len(holds), len(holds) - len(judged)
    verdict.unended = sum(hold.ended is None for hold in holds.values())
    by_lock: dict[str, list[_Hold]] = {}
    for hold in sorted(judged, key=lambda each: each.begin):
        by_lock.setdefault(hold.url, []).append(hold)
    verdict.locks = len({hold.url for hold in holds.values()})
    for leases in by_lock.values():
        _judge_believers(leases, skew, verdict)
        _judge_tokens(leases, skew, verdict)
    verdict.updates = len(updates)
    _judge_updates(updates, skew, verdict)
    return verdict


def _entries(log: Iterable[bytes], verdict: Verdict) -> Iterator[_Entry]:
    for line in log:
        try:
            fields = orjson.loads(line)
        except orjson.JSONDecodeError:
            if _NAME.encode() in line:
                verdict.cut += not line.endswith(b"\n")
                verdict.damaged += line.endswith(b"\n")
            continue
        if not isinstance(fields, dict) or _NAME not in fields:
            continue  # a line of another program
        if isinstance(fields[_NAME], str) and fields[_NAME] not in _KNOWN:
            continue
        if (entry := _entry(fields)) is None:
            verdict.damaged += 1
        else:
            yield entry


def _entry(fields: dict[str, object]) -> _Entry | None:
    """Return an event, or None if a field is missing or of another type."""
    kind, url, owner = (fields.get(name) for name in (_NAME, "asynclock.lock.url", "asynclock.owner"))
    token, at = fields.get("asynclock.fencing_token"), _number(fields.get("asynclock.time"))
    if not (isinstance(kind, str) and isinstance(url, str) and isinstance(owner, str)) or at is None:
        return None
    if token is not None and (not isinstance(token, int) or isinstance(token, bool)):
        return None
    duration, since_end = fields.get("asynclock.duration"), fields.get("asynclock.since_end", 0.0)
    lasted, over = _number(duration), _number(since_end)
    if over is None or over < 0 or (duration is not None and (lasted is None or lasted < 0)):
        return None
    if kind == "updated" and (token is None or lasted is None):
        return None
    return _Entry(kind, url, owner, token, at, lasted, over)


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def _judge_believers(leases: list[_Hold], skew: float, verdict: Verdict) -> None:
    """Look for two leases of one lock at the same time; they come in the order of their begins."""
    open_leases: list[_Hold] = []
    for lease in leases:
        open_leases = [each for each in open_leases if each.end > lease.begin]
        for other in open_leases:
            until = min(other.end, lease.end)
            if until - lease.begin <= skew:
                verdict.unclear += 1
                continue
            verdict.violated(
                f"{printable(lease.url)}: two believers for {until - lease.begin:.3f} s from "
                f"{_clock(lease.begin)}: {other} and {lease}"
            )
        open_leases.append(lease)


def _judge_tokens(leases: list[_Hold], skew: float, verdict: Verdict) -> None:
    """Look for a token that is not above that of a lease that began before, or that two leases share."""
    owners: dict[int, _Hold] = {}
    highest: _Hold | None = None
    earlier = 0
    for lease in leases:
        if lease.token is None:
            continue
        while leases[earlier].begin < lease.begin - skew:
            before, earlier = leases[earlier], earlier + 1
            if before.token is not None and (highest is None or before.token > (highest.token or 0)):
                highest = before
        shared = owners.setdefault(lease.token, lease)
        if shared is not lease:
            verdict.violated(f"{printable(lease.url)}: {shared} and {lease} have the same token")
        elif highest is not None and (highest.token or 0) > lease.token:
            verdict.violated(
                f"{printable(lease.url)}: the token of {lease}, which began at {_clock(lease.begin)}, is not "
                f"above that of {highest}, which began at {_clock(highest.begin)}"
            )


def _judge_updates(updates: Iterable[_Entry], skew: float, verdict: Verdict) -> None:
    """Look for a fenced write that was sent after one under a newer token was confirmed."""
    newest: dict[str, _Entry] = {}
    confirmed = sorted(updates, key=lambda each: each.time)
    sent = sorted(confirmed, key=lambda each: each.time - (each.duration or 0.0))
    done = 0
    for update in sent:
        began = update.time - (update.duration or 0.0)
        while confirmed[done].time < began - skew:
            entry, done = confirmed[done], done + 1
            if (entry.token or 0) > (newest.get(entry.url, entry).token or 0) or entry.url not in newest:
                newest[entry.url] = entry
        before = newest.get(update.url)
        if before is not None and (before.token or 0) > (update.token or 0):
            verdict.violated(
                f"{printable(update.url)}: a write under token {update.token} was sent at {_clock(began)}, "
                f"{began - before.time:.3f} s after one under token {before.token} was confirmed"
            )


def _clock(seconds: float) -> str:
    try:
        shown = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))
    except (OverflowError, ValueError, OSError):  # a log may hold any number
        return f"{seconds}"
    return f"{shown}.{int(seconds % 1 * 1000):03}"
