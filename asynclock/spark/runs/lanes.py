"""The holders and waiters of each lease, from the events of the locks."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal

from asynclock.spark.runs.totals import ACQUIRED, ENDED, number

if TYPE_CHECKING:
    from collections.abc import Mapping

    from asynclock.spark.runs.lines import Line

_GAP: Final = 1.5
"""Waits with at most this gap, in seconds, count as one: a waiting stream tries again and again."""
_SHORTEST: Final = 0.1
"""A shorter wait, in seconds, does not count: the lock was free."""


@dataclass(frozen=True, kw_only=True)
class Span:
    """A time in which a process held a lease or waited for it; in epoch seconds.

    Attributes:
        slot: 0 for a holder; waiters at one time have different slots, from 1 on.
        end_reason: ``released``, ``lost``, ``release_unconfirmed``, or ``open`` if no line says.
    """

    lock: str
    process: str
    state: Literal["held", "waited"]
    start: float
    end: float
    token: int | None = None
    slot: int = 0
    end_reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Mark:
    """A moment in the life of a lease: ``takeover``, ``loss`` or ``failed renewal``."""

    time: float
    lock: str
    process: str
    what: str
    detail: str


@dataclass(frozen=True, kw_only=True)
class Lane:
    """The sums of one lock."""

    lock: str
    holders: int
    held_seconds: float
    waited_seconds: float
    renewals: int
    takeovers: int
    losses: int


class Lanes:
    """Collects spans and sums."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, str], Span] = {}
        self._done: list[Span] = []
        self._waits: dict[tuple[str, str], Span] = {}
        self._counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self.marks: list[Mark] = []

    def add(self, lock: str, process: str, start: float, end: float) -> None:
        """Add a time for which a lease was held."""
        self._done.append(Span(lock=lock, process=process, state="held", start=start, end=end))

    def take(self, line: Line) -> None:
        """Take an event of a lock."""
        lock, event = str(line.fields.get("lock")), line.fields.get("event")
        key, said = (line.name, str(line.fields.get("owner"))), line.fields
        if event in ACQUIRED or event == "not_acquired":
            self._wait(line, lock, number(said, "waited_seconds"))
        if event in ACQUIRED:
            token = said.get("token")
            token = token if isinstance(token, int) else None
            self._open[key] = Span(
                lock=lock, process=line.name, state="held", start=line.time, end=line.time, token=token
            )
            if said.get("reason") == "takeover":
                self._mark(line, lock, "takeover")
        elif event in ENDED and (held := self._open.pop(key, None)) is not None:
            self._done.append(replace(held, end=max(held.start, line.time), end_reason=str(event)))
        if event == "lost":
            self._mark(line, lock, "loss")
        elif event == "renewal_failed":
            self._mark(line, lock, "failed renewal")
        elif event == "renewed":
            self._counts[lock]["renewals"] += 1

    def _mark(self, line: Line, lock: str, what: str) -> None:
        self._counts[lock][what] += 1
        detail = str(line.fields.get("detail") or line.fields.get("reason") or "")
        self.marks.append(Mark(time=line.time, lock=lock, process=line.name, what=what, detail=detail))

    def _wait(self, line: Line, lock: str, seconds: float) -> None:
        if seconds < _SHORTEST:
            return
        key = lock, line.name
        start, before = line.time - seconds, self._waits.get(key)
        if before is not None:
            if start - before.end <= _GAP:
                self._waits[key] = replace(before, end=line.time)
                return
            self._done.append(before)
        self._waits[key] = Span(lock=lock, process=line.name, state="waited", start=start, end=line.time)

    def spans(self, ends: Mapping[str, float]) -> list[Span]:
        """Return all spans, in the order of their starts; those still open end with their process's lines."""
        still = [
            replace(held, end=max(held.start, ends.get(held.process, held.end)), end_reason="open")
            for held in self._open.values()
        ]
        found = sorted([*self._done, *still, *self._waits.values()], key=lambda span: span.start)
        taken: defaultdict[str, list[float]] = defaultdict(list)
        placed = []
        for span in found:
            if span.state == "held":
                placed.append(span)
                continue
            slots = taken[span.lock]
            slot = next((number for number, end in enumerate(slots) if end <= span.start), len(slots))
            slots[slot : slot + 1] = [span.end]
            placed.append(replace(span, slot=slot + 1))
        return placed

    def lanes(self, ends: Mapping[str, float]) -> list[Lane]:
        """Return the sums of each lock, streams first, then by name."""
        spans: defaultdict[str, list[Span]] = defaultdict(list)
        for span in self.spans(ends):
            spans[span.lock].append(span)
        return [
            Lane(
                lock=lock,
                holders=len({span.process for span in spans[lock] if span.state == "held"}),
                held_seconds=_sum(spans[lock], "held"),
                waited_seconds=_sum(spans[lock], "waited"),
                renewals=self._counts[lock]["renewals"],
                takeovers=self._counts[lock]["takeover"],
                losses=self._counts[lock]["loss"],
            )
            for lock in sorted(spans, key=lambda name: (not name.startswith("stream/"), name))
        ]


def _sum(spans: list[Span], state: str) -> float:
    return sum(span.end - span.start for span in spans if span.state == state)
