"""Reads what clients logged as JSON lines, and judges it: believers, tokens, fenced writes."""

from __future__ import annotations

import codecs
import math
import re
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import orjson

from asynclock._kinds import BEGINS, ENDS_BELIEF, OF_LEASES
from asynclock._text import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_NAME: Final = "asynclock.event"
_NAMED: Final = re.compile(rb'"asynclock\.event"\s*:')
_TIME: Final = "asynclock.time"
_NEVER: Final = (math.inf, -math.inf)
_LEAST_STEP: Final = 1.0
"""Seconds by which wall clock and duration of a hold may differ without a clock that was set."""
_MOST_SHOWN: Final = 100
"""Violations that are kept; the others are counted."""

_Place = tuple[str, ...]
"""Which lock: its URL; of a folder also the machine, of a memory also the process."""


@dataclass(frozen=True, slots=True)
class _Entry:
    """An event of a log."""

    kind: str
    place: _Place
    owner: str
    token: int | None
    time: float
    duration: float | None
    since_end: float
    age: float | None


@dataclass(slots=True)
class _Hold:
    """What the logs say of one lease. Times are epoch seconds by the wall clock of its machine.

    Attributes:
        place: Which lock.
        owner: Its owner id.
        token: Its fencing token, or None.
        acquired: When its user got it, or None.
        renewed: When it was renewed first and last; infinite if never.
        ended: When its holder stopped believing, or None.
        written: When the write that acquired it was sent, as the events say that do so at the earliest and at
            the latest: by their time, and their distance from it on the monotonic clock.
    """

    place: _Place
    owner: str
    token: int | None = None
    acquired: float | None = None
    renewed: tuple[float, float] = _NEVER
    ended: float | None = None
    written: tuple[float, float] = _NEVER

    def add(self, entry: _Entry) -> None:
        """Add an event; the same one may come twice, and in any order."""
        self.token = entry.token if self.token is None else self.token
        if (age := entry.duration if entry.kind in ENDS_BELIEF else entry.age) is not None:
            self.written = _with(self.written, entry.time - age)
        if entry.kind in BEGINS:
            self.acquired = entry.time
        elif entry.kind not in ENDS_BELIEF:
            self.renewed = _with(self.renewed, entry.time)
        elif self.ended is None or entry.time - entry.since_end < self.ended:
            self.ended = entry.time - entry.since_end

    @property
    def begin(self) -> float:
        """From when on it was certainly believed in."""
        if self.acquired is not None:
            return self.acquired
        return self.renewed[0] if self.ended is None else min(self.renewed[0], self.ended)

    @property
    def end(self) -> float:
        """Until when it was certainly believed in."""
        return max(self.begin, self.renewed[1]) if self.ended is None else self.ended

    def clock_was_set(self, tolerance: float) -> bool:
        """Whether the wall clock of its machine was set, or the machine slept, while it was held."""
        earliest, latest = self.written
        return latest - earliest > tolerance

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
        unplaced: Leases and fenced writes that are not judged: their lock is one of a machine or process, and
            the logs do not say of which.
        per_machine: Locks in a folder that are judged for each machine apart, with leases on several.
        unended: Leases whose end is in no log: their holder died, or the log ends before.
        clock_was_set: Leases that are not judged: a clock was set, or stood still, while they were held.
        unclear: Overlaps of two leases that are shorter than the clocks may differ.
        updates: Updates of fenced objects.
        cut: Lines at the end of a log that are cut off.
        damaged: Other lines that are an event, but cannot be read.
        foreign: Lines that are no events of asynclock.
        violations: How often something was not as promised.
        details: A sentence for each of the first violations.
    """

    logs: int = 0
    events: int = 0
    locks: int = 0
    leases: int = 0
    unplaced: int = 0
    per_machine: int = 0
    unended: int = 0
    clock_was_set: int = 0
    unclear: int = 0
    updates: int = 0
    cut: int = 0
    damaged: int = 0
    foreign: int = 0
    violations: int = 0
    details: list[str] = field(default_factory=list)

    def violated(self, detail: str) -> None:
        """Note a violation."""
        self.violations += 1
        if len(self.details) < _MOST_SHOWN:
            self.details.append(detail)


def verdict_on(logs: Iterable[Iterable[bytes]], *, skew: float, shared_files: bool = False) -> Verdict:
    """Judge logs of any number of machines together.

    Args:
        logs: The lines of each; one is read to its end before the next is begun.
        skew: Seconds by which the wall clocks of two of the machines differ at most.
        shared_files: All machines share the folders of locks.
    """
    verdict = Verdict()
    holds: dict[tuple[_Place, str], _Hold] = {}
    updates: set[_Entry] = set()
    unplaced: set[tuple[_Place, str, float]] = set()
    for log in logs:
        verdict.logs += 1
        for entry in _entries(log, verdict, shared_files=shared_files):
            verdict.events += 1
            if "" in entry.place:
                unplaced.add((entry.place, entry.owner, entry.time if entry.kind == "updated" else 0.0))
            elif entry.kind == "updated":
                updates.add(entry)
            else:
                hold = holds.setdefault((entry.place, entry.owner), _Hold(entry.place, entry.owner))
                hold.add(entry)
    verdict.unplaced = len(unplaced)
    tolerance = max(skew, _LEAST_STEP)
    judged = [hold for hold in holds.values() if not hold.clock_was_set(tolerance)]
    verdict.leases, verdict.clock_was_set = len(holds), len(holds) - len(judged)
    verdict.unended = sum(hold.ended is None for hold in holds.values())
    by_lock: dict[_Place, list[_Hold]] = {}
    for hold in sorted(judged, key=lambda each: each.begin):
        by_lock.setdefault(hold.place, []).append(hold)
    places = {hold.place for hold in holds.values()}
    folders = Counter(url for url, *apart in places if len(apart) == 1)
    verdict.locks, verdict.per_machine = len(places), sum(times > 1 for times in folders.values())
    for leases in by_lock.values():
        _judge_believers(leases, skew, verdict)
        _judge_tokens(leases, skew, verdict)
    verdict.updates = len(updates)
    _judge_updates(updates, skew, verdict)
    return verdict


def _entries(log: Iterable[bytes], verdict: Verdict, *, shared_files: bool) -> Iterator[_Entry]:
    for number, raw in enumerate(log):
        line = raw.removeprefix(codecs.BOM_UTF8) if number == 0 else raw
        try:
            fields = orjson.loads(line)
        except orjson.JSONDecodeError:
            if _NAMED.search(line) is None:
                verdict.foreign += not line.isspace()
            else:
                verdict.cut += not line.endswith(b"\n")
                verdict.damaged += line.endswith(b"\n")
            continue
        if not isinstance(fields, dict) or not {_NAME, _TIME} <= fields.keys():
            verdict.foreign += 1
            continue
        if isinstance(fields[_NAME], str) and fields[_NAME] not in OF_LEASES:
            continue
        if (entry := _entry(fields, shared_files=shared_files)) is None:
            verdict.damaged += 1
        else:
            yield entry


def _entry(fields: dict[str, Any], *, shared_files: bool) -> _Entry | None:
    """Return an event, or None if a field is missing or of another type."""
    kind, url, owner = (fields.get(name) for name in (_NAME, "asynclock.lock.url", "asynclock.owner"))
    token, at = fields.get("asynclock.fencing_token"), _number(fields.get(_TIME))
    if not (isinstance(kind, str) and isinstance(url, str) and isinstance(owner, str)) or at is None:
        return None
    if token is not None and (not isinstance(token, int) or isinstance(token, bool)):
        return None
    duration, since_end = fields.get("asynclock.duration"), fields.get("asynclock.since_end", 0.0)
    lasted, over, age = _number(duration), _number(since_end), _number(fields.get("asynclock.age", 0.0))
    if over is None or over < 0 or (duration is not None and (lasted is None or lasted < 0)) or age is None:
        return None
    if kind == "updated" and (token is None or lasted is None):
        return None
    known = age if "asynclock.age" in fields else None
    return _Entry(kind, _place(url, fields, shared_files), owner, token, at, lasted, over, known)


def _place(url: str, fields: dict[str, Any], shared_files: bool) -> _Place:  # noqa: FBT001  private
    """Return which lock it is; an empty part is one that must be known, but is not."""
    scheme = url.partition(":")[0].lower()
    if scheme not in {"file", "memory"} or (scheme == "file" and shared_files):
        return (url,)
    host, process = fields.get("host.name"), fields.get("process.pid")
    machine = host if isinstance(host, str) else ""
    return (url, machine) if scheme == "file" else (url, machine, "" if process is None else f"{process}")


def _with(span: tuple[float, float], at: float) -> tuple[float, float]:
    return min(span[0], at), max(span[1], at)


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
                f"{printable(lease.place[0])}: two believers for {until - lease.begin:.3f} s from "
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
            verdict.violated(f"{printable(lease.place[0])}: {shared} and {lease} have the same token")
        elif highest is not None and (highest.token or 0) > lease.token:
            verdict.violated(
                f"{printable(lease.place[0])}: the token of {lease}, which began at {_clock(lease.begin)}, "
                f"is not above that of {highest}, which began at {_clock(highest.begin)}"
            )


def _judge_updates(updates: Iterable[_Entry], skew: float, verdict: Verdict) -> None:
    """Look for a fenced write that was sent after one under a newer token was confirmed."""
    newest: dict[_Place, _Entry] = {}
    confirmed = sorted(updates, key=lambda each: each.time)
    sent = sorted(confirmed, key=lambda each: each.time - (each.duration or 0.0))
    done = 0
    for update in sent:
        began = update.time - (update.duration or 0.0)
        while confirmed[done].time < began - skew:
            entry, done = confirmed[done], done + 1
            if (entry.token or 0) > (newest.get(entry.place, entry).token or 0) or entry.place not in newest:
                newest[entry.place] = entry
        before = newest.get(update.place)
        if before is not None and (before.token or 0) > (update.token or 0):
            verdict.violated(
                f"{printable(update.place[0])}: a write under token {update.token} was sent at "
                f"{_clock(began)}, {began - before.time:.3f} s after one under token {before.token} was "
                "confirmed"
            )


def _clock(seconds: float) -> str:
    try:
        shown = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))
    except (OverflowError, ValueError, OSError):  # a log may hold any number
        return f"{seconds}"
    return f"{shown}.{int(seconds % 1 * 1000):03}"
