"""Few cores for much work: long runs spread over processes, and JVMs that leave the cores to others."""

from __future__ import annotations

import multiprocessing
import os
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

SHORT_LIVED_JVM: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m"
"""Options of a JVM that lives for minutes and shares its cores: most of what C2 compiles is never used.

With C1 alone the room for compiled code is 48 MB, which a session of Spark fills, and then throws away and
compiles again.
"""

STANDS_BACK: Final = 5
"""What work that fills a core adds to its niceness: what runs next to it mostly waits and must be in time."""

Job = TypeVar("Job")
Result = TypeVar("Result")


def spread(
    work: Callable[[Job], Result], jobs: Iterable[Job], *, processes: int | None = None
) -> Iterator[Result]:
    """Yield ``work(job)`` for each job, in their order, from processes that stand back.

    Args:
        work: A function of a module, which the other processes import.
        jobs: Its arguments; they and the results are pickled.
        processes: How many; None: one for each core.
    """
    # Spawned, not forked: each starts from the same state, whatever this process has done before.
    context = multiprocessing.get_context("spawn")
    with context.Pool(processes or os.cpu_count(), os.nice, (STANDS_BACK,)) as pool:
        yield from pool.imap(work, jobs)
