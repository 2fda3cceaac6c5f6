"""``python -m benchmarks.model_scale``: what grows with writers and tables, computed.

The constants are measured (``make bench ONLY=scale``, ``make mechanisms ONLY=9``); the page
``docs/concepts/scale.md`` has what this prints.
"""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from asynclock import LeaseSettings
from asynclock._cli.cost import cost_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

DAY: Final = 86_400.0
FIXED_REQUESTS: Final = 80
REQUESTS_OF_A_FILE: Final = 23
"""Requests to S3 of a write: ``make mechanisms ONLY=9``, direct markers, 1, 10 and 100 files."""
LOCK_REQUESTS: Final = 6
"""Those of a batch for the commit lock: it is taken to begin an instant and to complete it, read and written
each time, and written once more to give it back."""
LOCK_TAKEN: Final = 2
LOCK_WRITES: Final = 4
TRIPS_UNDER_LOCK: Final = 21
SECONDS_UNDER_LOCK: Final = 0.3
"""A batch holds the lock for that many requests one after the other, and for that long in addition."""
SECONDS_APART: Final = 6.1
MEASURED: Final = {1: 0.134, 4: 0.503, 8: 0.617}
MEASURED_TRIP: Final = 0.05
"""Commits a second by the number of writers, and the seconds of a batch without the lock, in one bucket of a
table whose store answers so late: ``make bench ONLY=scale``."""
PAUSE: Final = (0.1, 0.3)
"""Seconds from one look at a taken lock to the next: ``StoreLockProvider``."""
HUDIS_PAUSE: Final = (1.0, 1.0)
"""The same of Hudi's ``StorageBasedLockProvider``."""
STORES: Final = {
    "S3 Express One Zone": (0.0145, None),
    "S3 Standard": (0.065, None),
    "Azure Blob Storage": (0.095, None),
    "Google Cloud Storage": (0.173, 1.0),
}
"""Median seconds of a conditional write as published (``make bench ONLY=clouds`` has the sources), and the
writes a second of one object that the store allows."""
_MILLION: Final = 1e6
_COMMITS: Final = 2_000
_SPREAD: Final = (0.5, 1.5)
_HALF: Final = 0.5
_GIB_OF_A_TB: Final = 931
LEASES_OF_A_TABLE: Final = 3
"""One stream, compaction and cleaning."""


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
        commit_lock_requests: Reads and writes of the commit lock's object.
        data_requests: All others of the writes.
        commits: Of batches.
        log_files: Written a day.
        open_log_files: At most, between two compactions.
        active_instants: At most, on the active timeline.
        dollars: Price of the requests on S3 Standard, all of the writes' at the price of a write.
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
        wait: Seconds for which a batch waits for others.
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
    commit_lock_requests = commits * LOCK_REQUESTS
    data_requests = commits * (FIXED_REQUESTS + REQUESTS_OF_A_FILE * load.files - LOCK_REQUESTS)
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


def commit_lock(
    writers: int, *, apart: float, hold: float, trip: float = 0.0, pause: tuple[float, float] = PAUSE
) -> CommitLock:
    """Return how ``writers`` share a commit lock, each of which begins its next batch after each commit.

    A simulation, since nobody queues: who finds the lock taken looks again after a pause, and who looks first
    after a release has it. The work between varies by half.

    Args:
        writers: How many, at least 1.
        apart: Seconds of a batch in which its writer neither holds the lock nor waits for others.
        hold: Seconds of a batch under the lock, in equal parts.
        trip: Seconds of a look at the lock.
        pause: Seconds from a look to the next, at least and at most.
    """
    dice = random.Random(writers)

    def work() -> float:
        return dice.uniform(*_SPREAD) * apart / LOCK_TAKEN

    looks = [(work(), writer) for writer in range(writers)]
    heapq.heapify(looks)
    asked: dict[int, float] = {}
    now = free = waited = 0.0
    taken = 0
    while taken < _COMMITS * LOCK_TAKEN:
        now, writer = heapq.heappop(looks)
        asked.setdefault(writer, now)
        if now < free:
            heapq.heappush(looks, (now + trip + dice.uniform(*pause), writer))
            continue
        waited += now - asked.pop(writer)
        taken += 1
        free = now + hold / LOCK_TAKEN
        heapq.heappush(looks, (free + work(), writer))
    return CommitLock(commits_a_second=_COMMITS / free, wait=waited / _COMMITS, busy=_COMMITS * hold / free)


def hold_of(trip: float) -> float:
    """Return for how long a batch keeps others from the commit lock, by the seconds of a request."""
    return SECONDS_UNDER_LOCK + TRIPS_UNDER_LOCK * trip


def most_commits(trip: float, writes: float | None) -> float:
    """Return how many commits a second the commit lock lets through.

    Args:
        trip: Seconds of a request.
        writes: Most writes a second of one object; None: any number.
    """
    held = 1 / hold_of(trip)
    return held if writes is None else min(held, writes / LOCK_WRITES)


def shortest_interval(writers: int, most: float) -> float:
    """Return from how many seconds between a writer's batches on the lock is free for half of the time.

    Args:
        writers: How many.
        most: Commits a second that the lock lets through.
    """
    return writers / (_HALF * most)


def sentences() -> Iterator[str]:
    """Yield the tables of the page."""
    yield from _table(
        (
            "store",
            "request",
            "a batch holds it",
            "most commits a second",
            "8 writers",
            "100 writers",
            "1,000 writers",
        ),
        [_limits(store) for store in STORES],
    )
    yield ""
    yield from _table(
        ("writers", "measured", "model", "measured / model", "with Hudi's pause of 1 s"),
        [_checked(writers) for writers in MEASURED],
    )
    yield ""
    yield from _table(
        ("writers", "a batch every", "commits", "leases", "commit lock", "data", "log files", "dollars"),
        [_day(writers) for writers in (1, 8, 100, 1_000)],
    )
    yield ""
    yield from _table(
        ("tables", "leases", "validity", "requests", "dollars"),
        [_fleet(tables, validity) for tables in (100, 10_000) for validity in (20.0, 60.0, 300.0)],
    )
    yield ""
    yield from _table(
        (
            "table",
            "buckets of 1 GiB",
            "a batch in all of them",
            "dollars",
            "a batch in 16 of them",
            "dollars",
        ),
        [_volume(terabytes) for terabytes in (1, 10, 100)],
    )


def _limits(store: str) -> tuple[str, ...]:
    trip, writes = STORES[store]
    most = most_commits(trip, writes)
    each = (f"{shortest_interval(writers, most):,.0f} s" for writers in (8, 100, 1_000))
    return store, f"{trip * 1e3:g} ms", f"{hold_of(trip):.2f} s", f"{most:.2f}", *each


def _checked(writers: int) -> tuple[str, ...]:
    ours, hudis = (
        commit_lock(
            writers, apart=SECONDS_APART, hold=hold_of(MEASURED_TRIP), trip=MEASURED_TRIP, pause=pause
        )
        for pause in (PAUSE, HUDIS_PAUSE)
    )
    found, told = MEASURED[writers], ours.commits_a_second
    return f"{writers}", f"{found:.2f}", f"{told:.2f}", f"{found / told:.2f}", f"{hudis.commits_a_second:.2f}"


def _day(writers: int) -> tuple[str, ...]:
    trip, writes = STORES["S3 Standard"]
    every = max(60.0, shortest_interval(writers, most_commits(trip, writes)))
    day = growth(Load(writers=writers, batch_seconds=every))
    numbers = (day.commits, day.lease_requests, day.commit_lock_requests, day.data_requests, day.log_files)
    return f"{writers:,}", f"{every:,.0f} s", *(f"{number:,.0f}" for number in numbers), f"{day.dollars:,.2f}"


def _fleet(tables: int, validity: float) -> tuple[str, ...]:
    cost = cost_of("s3", LeaseSettings(validity=validity), locks=tables * LEASES_OF_A_TABLE)
    return (
        f"{tables:,}",
        f"{tables * LEASES_OF_A_TABLE:,}",
        f"{validity:g} s",
        f"{cost.writes:,}",
        f"{cost.dollars:,.2f}",
    )


def _volume(terabytes: int) -> tuple[str, ...]:
    buckets = terabytes * _GIB_OF_A_TB
    found = []
    for files in (buckets, 16):
        requests = FIXED_REQUESTS + REQUESTS_OF_A_FILE * files
        dollars = requests * cost_of("s3", LeaseSettings()).dollars_per_million_writes / _MILLION
        found += [f"{requests:,}", f"{dollars:,.4f}" if dollars < 1 else f"{dollars:,.2f}"]
    return f"{terabytes} TB", f"{buckets:,}", *found


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(heads)} |"
    yield f"|{'---:|' * len(heads)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"


if __name__ == "__main__":
    print("\n".join(sentences()))
