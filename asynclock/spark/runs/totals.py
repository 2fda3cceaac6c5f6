"""The sums over the lines of a run."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter, defaultdict, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

LATENCIES: Final = 10_000
"""Latencies come from at most this many commits, the newest ones: no sum grows with the run."""
ACQUIRED: Final = frozenset({"acquired", "adopted"})
ENDED: Final = frozenset({"released", "release_unconfirmed", "lost"})


@dataclass(frozen=True, kw_only=True)
class RunTotals:
    """The sums of one process, or of all processes of a run.

    Attributes:
        seconds: From the first line to the last.
        commits: Batches that were committed.
        skipped: Batches that had been committed before.
        rows: Rows read, bad ones included.
        rows_per_second: Rows per second of the run.
        quarantined: Bad rows that were moved to the quarantine.
        retries: Attempts at batches that failed with a temporary error.
        conflicts: Writes that failed because of another writer's commit.
        commit_p50: Median of the seconds from the start of a batch to its commit; None without a commit.
        commit_p99: The seconds within which 99 of 100 batches were committed.
        commit_seconds: Seconds of all commits together.
        lock_wait_seconds: Seconds spent in acquisitions of leases, also in those that ended without one.
        lock_hold_seconds: Seconds for which ended leases were held.
        commit_lock_wait_seconds: Seconds that commits spent on taking the table's commit lock and giving it
            back.
        commit_lock_hold_seconds: Seconds for which commits held it.
        lock_share: Share of the commits' time that went into locks: looks for a reservation, and waits for
            the commit lock. None if no commit says how long it waited.
        renewals: Renewals of leases that succeeded.
        failed_renewals: Renewals that failed; a lease has several attempts.
        losses: Leases that were lost.
        takeovers: Acquisitions after a holder that neither released the lock nor renewed it.
        services: Number of times that each table service did its work.
        chaos: Number of disturbances from outside: kills, faults.
    """

    seconds: float
    commits: int
    skipped: int
    rows: int
    rows_per_second: float
    quarantined: int
    retries: int
    conflicts: int
    commit_p50: float | None
    commit_p99: float | None
    commit_seconds: float
    lock_wait_seconds: float
    lock_hold_seconds: float
    commit_lock_wait_seconds: float | None
    commit_lock_hold_seconds: float | None
    lock_share: float | None
    renewals: int
    failed_renewals: int
    losses: int
    takeovers: int
    services: dict[str, int]
    chaos: dict[str, int]

    def fields(self) -> dict[str, Any]:
        """Return all of it for JSON, seconds to the microsecond."""
        found = dataclasses.asdict(self)
        return {name: round(value, 6) if isinstance(value, float) else value for name, value in found.items()}


class Totals:
    """Adds up lines, one by one."""

    def __init__(self) -> None:
        self._sums: defaultdict[str, float] = defaultdict(float)
        self._latencies: deque[float] = deque(maxlen=LATENCIES)
        self._services: Counter[str] = Counter()
        self._chaos: Counter[str] = Counter()
        self._first, self._last = math.inf, -math.inf
        self._measured = False

    def take(self, at: float, kind: str, line: Mapping[str, Any]) -> None:
        """Add a line of that time and kind; a field that is missing or of another type counts as 0."""
        self._first, self._last = min(self._first, at), max(self._last, at)
        if kind == "batch":
            self._take_batch(line)
        elif kind == "lock":
            self._take_lock(line)
        elif kind == "service":
            self._services[str(line.get("service"))] += 1
        elif kind == "chaos":
            self._chaos[str(line.get("what"))] += 1

    def _take_batch(self, line: Mapping[str, Any]) -> None:
        sums = self._sums
        for name in ("rows", "quarantined", "retries", "conflicts"):
            sums[name] += number(line, name)
        if line.get("skipped"):
            sums["skipped"] += 1
            return
        sums["commits"] += 1
        seconds = number(line, "seconds")
        self._latencies.append(seconds)
        sums["commit_seconds"] += seconds
        if line.get("commit_lock_wait_seconds") is not None:
            self._measured = True
            wait = number(line, "commit_lock_wait_seconds")
            sums["commit_lock_wait_seconds"] += wait
            sums["commit_lock_hold_seconds"] += number(line, "commit_lock_hold_seconds")
            sums["locking"] += wait + number(line, "look_seconds")
            sums["measured_seconds"] += seconds

    def _take_lock(self, line: Mapping[str, Any]) -> None:
        sums, event = self._sums, line.get("event")
        sums["lock_wait_seconds"] += number(line, "waited_seconds")
        sums["lock_hold_seconds"] += number(line, "held_seconds")
        sums["renewals"] += event == "renewed"
        sums["failed_renewals"] += event == "renewal_failed"
        sums["losses"] += event == "lost"
        sums["takeovers"] += event in ACQUIRED and line.get("reason") == "takeover"

    def summary(self) -> RunTotals:
        """Return the sums so far."""
        sums, measured = self._sums, self._measured
        seconds = max(0.0, self._last - self._first)
        counted = {
            name: int(sums[name])
            for name in (
                "commits", "skipped", "rows", "quarantined", "retries", "conflicts", "renewals",
                "failed_renewals", "losses", "takeovers",
            )
        }  # fmt: skip
        return RunTotals(
            **counted,
            seconds=seconds,
            rows_per_second=sums["rows"] / seconds if seconds else 0.0,
            commit_p50=quantile(self._latencies, 0.5),
            commit_p99=quantile(self._latencies, 0.99),
            commit_seconds=sums["commit_seconds"],
            lock_wait_seconds=sums["lock_wait_seconds"],
            lock_hold_seconds=sums["lock_hold_seconds"],
            commit_lock_wait_seconds=sums["commit_lock_wait_seconds"] if measured else None,
            commit_lock_hold_seconds=sums["commit_lock_hold_seconds"] if measured else None,
            lock_share=sums["locking"] / sums["measured_seconds"] if sums["measured_seconds"] else None,
            services=dict(sorted(self._services.items())),
            chaos=dict(sorted(self._chaos.items())),
        )


def quantile(values: Iterable[float], share: float) -> float | None:
    """Return the least value that at least this share of the values does not exceed; None for no values."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else None


def number(line: Mapping[str, Any], name: str) -> float:
    """Return a number of a line; 0 if it is missing, not a number or not finite."""
    value = line.get(name)
    if isinstance(value, int | float) and math.isfinite(value):
        return float(value)
    return 0.0
