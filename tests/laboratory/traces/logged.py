"""What real processes logged of one lock, as lines for ``Trace.tla``.

The log has no reads, no landings and no writes of those who got nothing. So a landing follows its sending at
once, a look comes just before the first write of a lease, and a lock that was found free was freed just
before that. A write whose sender was killed before it could log anything is not there.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from asynclock._kinds import ENDS_BELIEF
from tests.laboratory.traces.recorder import LONGEST, Line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

TOLERANCE: Final = 0.1
"""Seconds: a process may be interrupted between the readings of two clocks for one event."""

Entry = dict[str, Any]
"""An event of a log, by the names of its fields."""


@dataclass(slots=True)
class Held:
    """One lease.

    Attributes:
        owner: Its owner id.
        process: Where it was held.
        sent: When the write that acquired it was sent.
        acquired: When it was handed out.
        reason: Over what it was acquired.
        renewed: When each renewal was sent, and its answer taken.
        ended: When belief ended; None: nothing says so.
    """

    owner: str
    process: Any
    sent: float
    acquired: float
    reason: str
    renewed: list[tuple[float, float]] = field(default_factory=list)
    ended: float | None = None

    def last_sent(self) -> float:
        """Return when its last write was sent that is known to have landed."""
        return max([self.sent, *(sent for sent, _ in self.renewed)])


def read_entries(lines: Iterable[bytes]) -> Iterator[Entry]:
    """Yield the events of a log; a cut last line is left out."""
    for line in lines:
        if line.endswith(b"\n") and (entry := json.loads(line))["severity"] == "DEBUG":
            yield {name.removeprefix("asynclock."): value for name, value in entry.items()}


@dataclass(frozen=True, slots=True)
class Recording:
    """What processes logged of one lock.

    Attributes:
        url: Of the lock.
        entries: Its events, in the order of their times.
        heard: When each process logged last, also about other locks.
        validity: Of the leases, in seconds.
        patience: Seconds after a release within which a live process says how it ended: at the latest once
            the record that it was to free is no longer valid. The process may be stopped meanwhile.
    """

    url: str
    entries: list[Entry]
    heard: Mapping[Any, float]
    validity: float
    patience: float

    def lines(self) -> list[Line]:
        """Return what ``Trace.tla`` reads."""
        told = _Told(self.validity, self.patience)
        before: Held | None = None
        for lease in leases(self.entries):
            if before is None:
                told.began = lease.sent
            else:
                told.makes_way(before, lease, self.heard[before.process])
            told.holds(lease)
            if before is not None and before.ended is None and lease.reason == "takeover":
                told.add(lease.sent, "crash", before.owner)
            before = lease
        if before is not None and before.ended is not None:
            told.ends(before, before.ended)
        return sorted(told.lines, key=lambda line: line.place)


def recordings(entries: Iterable[Entry], validity: float, *, stop: float = 0.0) -> list[Recording]:
    """Return what processes logged, for each lock by itself; ``stop`` is the longest that one was stopped."""
    found: dict[str, list[Entry]] = {}
    heard: dict[Any, float] = {}
    for entry in sorted((each for each in entries if "event" in each), key=lambda each: each["time"]):
        if "owner" in entry:  # else an acquisition that had not written yet
            found.setdefault(entry["lock.url"], []).append(entry)
        heard[entry["process.pid"]] = entry["time"]
    patience = validity + stop + TOLERANCE
    return [Recording(url, found[url], heard, validity, patience) for url in sorted(found)]


def damaged(recording: Recording) -> dict[str, Recording]:
    """Return copies of a recording that no lock can make, by what is wrong with them."""
    copies: dict[str, Recording] = {}

    def put(kind: str, lease: Held, kinds: Iterable[str], **change: Any) -> None:  # noqa: ANN401  fields
        if kind in copies:
            return
        changed = [
            each | {name: value(each) for name, value in change.items()}
            if each["owner"] == lease.owner and each["event"] in kinds
            else each
            for each in recording.entries
            if change or each["owner"] != lease.owner or each["event"] not in kinds
        ]
        copies[kind] = replace(recording, entries=changed)

    def later(seconds: float) -> Callable[[Entry], float]:
        return lambda entry: float(entry["time"] + seconds)

    far = 2 * recording.validity
    for lease, following in pairwise(leases(recording.entries)):
        if lease.renewed:
            put("a renewal after the deadline", lease, ["renewed"], time=later(far))
        if lease.ended is None:
            continue
        put("belief after the deadline", lease, ENDS_BELIEF, time=later(far))
        if following.reason or following.sent - lease.last_sent() > recording.validity / 2:
            continue
        put("two believers", lease, ENDS_BELIEF, time=later(following.acquired - lease.ended + 2 * TOLERANCE))
        put("a takeover of a live lock", following, ["acquired", "adopted"], reason=lambda _: "takeover")
        if recording.heard[lease.process] > following.sent + recording.patience:
            put("a lock found free that is held", lease, ENDS_BELIEF)
    return copies


def leases(entries: Iterable[Entry]) -> list[Held]:
    """Return the leases of one lock in the order in which their first writes were sent."""
    held: dict[str, Held] = {}
    for entry in entries:
        kind, owner, at = entry["event"], entry["owner"], entry["time"]
        if kind in {"acquired", "adopted"}:
            process, reason = entry["process.pid"], entry.get("reason", "")
            held[owner] = Held(owner, process, at - entry["age"], at, reason)
        elif owner not in held:
            continue  # it was renewed before it was handed out, or never was
        elif kind == "renewed":
            held[owner].renewed.append((at - entry["duration"], at))
        elif kind in ENDS_BELIEF and held[owner].ended is None:
            held[owner].ended = at - entry["since_end"]
    return sorted(held.values(), key=lambda each: each.sent)


class _Told:
    """Collects the lines of one lock.

    Args:
        validity: Of the leases, in seconds.
        patience: See ``Recording``.

    Attributes:
        lines: Not yet in the order of their times.
        began: When the first of them was; times count from there.
    """

    def __init__(self, validity: float, patience: float) -> None:
        self.lines: list[Line] = []
        self.began: float = 0.0
        self._validity = validity
        self._patience = patience
        self._short = LONGEST - round(validity * 1000)
        self._attempts = 0

    def add(self, at: float, event: str, owner: str, **more: Any) -> None:  # noqa: ANN401  of Line
        """Add a line."""
        self.lines.append(Line((at - self.began, 0, len(self.lines)), event, owner, **more))

    def writes(self, at: float, event: str, owner: str) -> int:
        """Add a write that lands at once; return its number."""
        self._attempts += 1
        free = event == "free"
        about: dict[str, Any] = {"attempt": self._attempts, "short": 0 if free else self._short}
        about["kind"] = "free" if free else "live"
        self.add(at, event, owner, current=True, **about)
        self.add(at, "land", owner, **about)
        return self._attempts

    def makes_way(self, before: Held, lease: Held, heard: float) -> None:
        """Add how a lease came to its end before the next one began, and how that found the lock."""
        ended = before.ended
        if lease.reason != "takeover":
            if ended is None and heard <= lease.sent + self._patience:
                if before.last_sent() + self._validity <= lease.sent:
                    # It was killed. Another took the lock over, freed it, and was killed before it could log.
                    self.add(lease.sent, "crash", before.owner)
                    return
                ended = lease.sent  # it was killed before it could say that it had released the lock
            elif ended is not None and lease.sent < ended <= lease.sent + TOLERANCE:
                ended = lease.sent
        if ended is None:
            return
        at = self.ends(before, ended)
        if not lease.reason:
            self.writes(at, "free", before.owner)
        elif lease.reason == "handover":
            self.add(lease.sent, "hand", before.owner, to=lease.owner)

    def holds(self, lease: Held) -> None:
        """Add how a lease was acquired and renewed."""
        if lease.reason != "handover":
            self.add(lease.sent, "look", lease.owner)
        number = self.writes(lease.sent, "send", lease.owner)
        self.add(lease.acquired, "adopt", lease.owner, attempt=number)
        for sent, answered in lease.renewed:
            number = self.writes(sent, "send", lease.owner)
            self.add(answered, "extend", lease.owner, attempt=number)

    def ends(self, lease: Held, ended: float) -> float:
        """Add the end of a belief; return when it was."""
        at = max(ended, lease.acquired, *(answered for _, answered in lease.renewed))
        self.add(at, "believes", lease.owner)
        self.add(at, "end", lease.owner)
        return at
