"""The state of the services on the active timeline: planned work and due work."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asynclock.spark.hudi.instants import CLEAN, COMPACTED, DELTA_COMMIT, SAVEPOINT

if TYPE_CHECKING:
    from asynclock.spark.hudi.instants import Instant


def planned(instants: list[Instant], action: str) -> list[str]:
    """Return the instants of ``action`` that are not completed, oldest first."""
    return [
        instant.requested for instant in instants if instant.action == action and instant.completed is None
    ]


def count_since(instants: list[Instant], action: str, mark: str) -> int:
    """Return the number of completed instants of ``action`` since the last completed one of ``mark``."""
    last = max((instant.requested for instant in instants if _is_done(instant, mark)), default="")
    return sum(_is_done(instant, action) and (instant.completed or "") > last for instant in instants)


def is_cleaning_due(instants: list[Instant], retain_commits: int) -> bool:
    """Return whether a compaction has become older than the commits to retain since the last cleaning.

    Readers of the retained commits still need the files that a compaction has merged. Hudi leaves no instant
    of a cleaning that removes nothing, so a cleaning before that time would be repeated forever.
    """
    commits = sorted(_commits(instants), key=lambda instant: instant.requested)
    cleaned = max((instant.requested for instant in instants if _is_done(instant, CLEAN)), default="")
    return any(
        commit.action == COMPACTED and (settled_by.completed or "") > cleaned
        for commit, settled_by in zip(commits, commits[retain_commits:], strict=False)
    )


def newest_commit(instants: list[Instant]) -> str:
    """Return the time of the newest completed commit."""
    return max((instant.completed or "" for instant in _commits(instants)), default="")


def count_commits(instants: list[Instant]) -> int:
    """Return the number of completed commits, compactions included."""
    return len(_commits(instants))


def _commits(instants: list[Instant]) -> list[Instant]:
    return [one for one in instants if _is_done(one, DELTA_COMMIT) or _is_done(one, COMPACTED)]


def unkept(instants: list[Instant]) -> list[Instant]:
    """Return the instants before the oldest savepoint; Hudi archives no others."""
    oldest = min((instant.requested for instant in instants if _is_done(instant, SAVEPOINT)), default=None)
    return [instant for instant in instants if oldest is None or instant.requested < oldest]


def _is_done(instant: Instant, action: str) -> bool:
    return instant.action == action and instant.completed is not None
