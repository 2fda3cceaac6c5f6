"""``python -m benchmarks.model_scale``: what grows with writers and tables, computed.

The constants are measured (``make bench ONLY=scale``, ``make mechanisms ONLY=9``); the page
``docs/concepts/scale.md`` has what this prints.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from asynclock import LeaseSettings
from asynclock.cli.cost import cost_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

DAY: Final = 86_400.0
FIXED_REQUESTS: Final = 101
REQUESTS_OF_A_FILE: Final = 26
"""Requests to S3 of a write: ``make mechanisms ONLY=9``, direct markers, 1 and 10 files."""
REQUESTS_UNDER_LOCK: Final = 12
"""Requests one after the other while a commit holds the commit lock: ``make bench ONLY=scale``."""
COMMIT_LOCK_WRITES: Final = 2
_MILLION: Final = 1e6


@dataclass(frozen=True, kw_only=True)
class Load:
    """What a table is asked to do.

    Attributes:
        writers: Streams, each written by a driver that holds its lease all day.
        standbys: Drivers that wait for such a lease.
        batch_seconds: From one batch of a stream to its next.
        files: Buckets that a batch touches.
        compact_every: Commits from one compaction to the next.
        archive_above: Commits that the active timeline has at most.
    """

    writers: int
    standbys: int = 0
    batch_seconds: float = 60.0
    files: int = 16
    compact_every: int = 10
    archive_above: int = 40

    @property
    def commits_a_day(self) -> float:
        """Batches that all writers commit."""
        return self.writers * DAY / self.batch_seconds


@dataclass(frozen=True, kw_only=True)
class Growth:
    """What a day of a table brings.

    Attributes:
        lease_requests: Reads and writes of lock objects for the leases of writers, standbys and services.
        commit_lock_requests: Writes of the commit lock's object.
        data_requests: All others of the writes.
        commits: Of batches.
        log_files: Written a day.
        open_log_files: At most, between two compactions.
        active_instants: At most, on the active timeline.
        dollars: Price of the requests on S3 Standard, all at the price of a write.
    """

    lease_requests: float
    commit_lock_requests: float
    data_requests: float
    commits: float
    log_files: float
    open_log_files: int
    active_instants: int
    dollars: float


@dataclass(frozen=True, kw_only=True)
class CommitLock:
    """How a number of writers share the commit lock of a table.

    Attributes:
        commits_a_second: Of all writers.
        wait: Seconds from the end of a batch's work to the lock, on average.
        busy: Share of the time in which the lock is held.
    """

    commits_a_second: float
    wait: float
    busy: float


def growth(load: Load, settings: LeaseSettings | None = None) -> Growth:
    """Return what a day brings; leases of writers are renewed, those who wait look."""
    services = 2
    leases = cost_of(
        "s3", settings or LeaseSettings(validity=20.0), locks=load.writers + services, waiting=load.standbys
    )
    commits = load.commits_a_day
    lease_requests = leases.writes + leases.reads
    commit_lock_requests = commits * COMMIT_LOCK_WRITES
    data_requests = commits * (FIXED_REQUESTS + REQUESTS_OF_A_FILE * load.files)
    return Growth(
        lease_requests=lease_requests,
        commit_lock_requests=commit_lock_requests,
        data_requests=data_requests,
        commits=commits,
        log_files=commits * load.files,
        open_log_files=load.compact_every * load.files,
        active_instants=load.archive_above,
        dollars=leases.dollars
        + (commit_lock_requests + data_requests) * leases.dollars_per_million_writes / _MILLION,
    )


def commit_lock(writers: int, *, apart: float, hold: float) -> CommitLock:
    """Return how ``writers`` share a commit lock, each of which comes back after each commit.

    This is a closed queue with one server: mean value analysis by Reiser and Lavenberg, Journal of the ACM
    27 (1980). Holding times that vary less than exponential ones wait less.

    Args:
        writers: How many, at least 1.
        apart: Seconds from a commit of a writer to when it asks for the lock again.
        hold: Seconds of a commit under the lock.
    """
    queued = rate = waited = 0.0
    for number in range(1, writers + 1):
        waited = hold * queued
        rate = number / (apart + waited + hold)
        queued = rate * (waited + hold)
    return CommitLock(commits_a_second=rate, wait=waited, busy=min(1.0, rate * hold))


def most_writers(*, every: float, hold: float, busy: float = 0.5) -> int:
    """Return how many writers keep the commit lock busy for a share of the time.

    Args:
        every: Seconds from one batch of a writer to its next.
        hold: Seconds of a commit under the lock.
        busy: The share.
    """
    return int(busy * every / hold)


def sentences() -> Iterator[str]:
    """Yield the lines of the page."""
    yield from _table(
        ("writers", "lease requests", "commit lock", "other requests", "commits", "log files", "dollars"),
        [_row(Load(writers=writers)) for writers in (1, 8, 100, 1_000)],
    )
    yield ""
    yield from _table(
        ("round trip", "commit holds", "most commits a second", "writers of 10 s", "of 60 s", "of 600 s"),
        [_limits(trip) for trip in (0.0145, 0.065, 0.173)],
    )


def _row(load: Load) -> tuple[str, ...]:
    day = growth(load)
    numbers = (day.lease_requests, day.commit_lock_requests, day.data_requests, day.commits, day.log_files)
    return f"{load.writers:,}", *(f"{number:,.0f}" for number in numbers), f"{day.dollars:,.2f}"


def _limits(trip: float) -> tuple[str, ...]:
    hold = REQUESTS_UNDER_LOCK * trip
    writers = (most_writers(every=every, hold=hold) for every in (10.0, 60.0, 600.0))
    return f"{trip * 1e3:g} ms", f"{hold:.2f} s", f"{1 / hold:.1f}", *(f"{number:,}" for number in writers)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(heads)} |"
    yield f"|{'---:|' * len(heads)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"


if __name__ == "__main__":
    print("\n".join(sentences()))
