"""Write again after a conflict: under optimistic concurrency control the loser of two writes fails."""

from __future__ import annotations

import logging
import random
import time
from typing import TYPE_CHECKING, Final, TypeVar

from py4j.protocol import Py4JJavaError

from asynclock.spark.faults import conflict_of
from asynclock.spark.report import Wasted

if TYPE_CHECKING:
    from collections.abc import Callable

    from asynclock import sync

log = logging.getLogger(__name__)
T = TypeVar("T")

ATTEMPTS: Final = 20
_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 5.0


def until_no_conflict(
    write: Callable[[], T],
    lease: sync.Lease,
    what: str,
    *,
    on_conflict: Callable[[Wasted], object] | None = None,
    sleep: Callable[[float], object] = time.sleep,
    rng: random.Random | None = None,
) -> T:
    """Call ``write`` until no other writer's commit conflicts with it, at most ``ATTEMPTS`` times.

    A pause before each further attempt, random and on average twice as long as the one before, lets writers
    of one pace get out of step.

    Args:
        write: One attempt.
        lease: The lease of the stream, checked before each further attempt.
        what: What is written, for the log.
        on_conflict: Called with the work of each attempt that conflicted, the last one included.
        sleep: Waits so many seconds.
        rng: Source of the pauses.

    Raises:
        Py4JJavaError: The last attempt conflicted too, or an attempt failed for another reason. Nothing of a
            conflicting attempt can be read; the cleaning service removes its files.
        LeaseLostError: The lease ended; nothing was written.
    """
    rng = rng or random.Random()  # noqa: S311  no secret
    attempt = 1
    while True:
        started = time.monotonic()
        try:
            return write()
        except Py4JJavaError as error:
            if (conflict := conflict_of(error)) is None:
                raise
            seconds = time.monotonic() - started
            if on_conflict is not None:
                on_conflict(Wasted(conflicts=1, seconds=seconds))
            if attempt == ATTEMPTS:
                raise
            pause = rng.uniform(0, min(_LONGEST_PAUSE, _FIRST_PAUSE * 2**attempt))
            log.info(
                "%s: %s at attempt %d after %.1f s; again in %.1f s", what, conflict, attempt, seconds, pause
            )
        sleep(pause)
        lease.check()
        attempt += 1
