"""Repeat work after a temporary error: which errors, how long between attempts, and how often.

Three kinds of work are repeated by a policy of this module: work on a table (``PASSING``), a write that met
another writer's commit (``CONFLICT``), and a read of Hudi's timeline (``READ``).
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from py4j.protocol import Py4JJavaError
from pyspark.errors.exceptions.captured import CapturedException

from asynclock.spark.faults import conflict_of, is_passing

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


def _unchecked() -> None:
    """Allow every attempt."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Policy:
    """When to repeat work, and after which pauses.

    Source: "full jitter", AWS Architecture Blog, Exponential Backoff And Jitter (2015).

    Attributes:
        passes: Whether an error may be gone at the next attempt.
        most: Most retries in a row.
        first: Longest pause before the first retry, in seconds; twice as long before each further one.
        longest: Longest pause of all, in seconds.
        shortest: Shortest pause, in seconds.
        spread: Pauses are random, so that writers of one pace get out of step; False: each is the maximum.
    """

    passes: Callable[[Exception], object]
    most: int
    first: float
    longest: float
    shortest: float = 0.0
    spread: bool = True

    def pause(self, retries: int, rng: random.Random) -> float:
        """Return the seconds to wait after that many retries."""
        longest = min(self.longest, self.first * 2**retries)
        return rng.uniform(self.shortest, longest) if self.spread else longest


PASSING: Final = Policy(passes=is_passing, most=8, first=1.0, longest=30.0, shortest=0.05)
"""Work on a table: about a minute of waiting, two at most."""
CONFLICT: Final = Policy(passes=conflict_of, most=19, first=0.2, longest=5.0)
"""A write that failed because another writer committed."""
READ: Final = Policy(
    passes=lambda error: isinstance(error, (Py4JJavaError, CapturedException)),
    most=4,
    first=0.05,
    longest=0.4,
    spread=False,
)
"""A read of the timeline: an instant may be archived between the listing and its reading, and Hudi stumbles
over the temporary file of a manifest that is just being written."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Failed:
    """An attempt that failed.

    Attributes:
        error: Its error.
        attempt: Its number; the first is 1.
        seconds: Its duration.
        pause: Seconds until the next attempt; None: there is none, and ``error`` is raised.
    """

    error: Exception
    attempt: int
    seconds: float
    pause: float | None


class Retry:
    """Counts the retries of one piece of work. Not thread-safe.

    Args:
        policy: When to try again.
        rng: Source of the pauses.

    Attributes:
        count: Retries since the last success.
    """

    def __init__(self, policy: Policy, rng: random.Random | None = None) -> None:
        self.count = 0
        self._policy = policy
        self._rng = rng or random.Random()  # noqa: S311  spreads attempts, hides nothing

    @property
    def most(self) -> int:
        """Most retries in a row."""
        return self._policy.most

    def after(self, error: Exception) -> float | None:
        """Return the seconds to wait before the next attempt, and count it.

        None: there is none, because the error is permanent or there were enough attempts.
        """
        if self.count >= self._policy.most or not self._policy.passes(error):
            return None
        pause = self._policy.pause(self.count, self._rng)
        self.count += 1
        return pause

    def reset(self) -> None:
        """Count from zero again: the work has succeeded."""
        self.count = 0


def retry(
    work: Callable[[], T],
    policy: Policy,
    *,
    check: Callable[[], object] = _unchecked,
    on_failure: Callable[[Failed], object] | None = None,
    sleep: Callable[[float], object] = time.sleep,
    rng: random.Random | None = None,
) -> T:
    """Call ``work`` until it succeeds, and return what it returns.

    Args:
        work: One attempt.
        policy: When to try again.
        check: Called after each pause; raises if there must be no further attempt.
        on_failure: Called after each attempt that failed, the last one included.
        sleep: Waits that many seconds.
        rng: Source of the pauses.

    Raises:
        Exception: The error of the last attempt, or the error of ``check``.
    """
    attempts, attempt = Retry(policy, rng), 0
    while True:
        attempt += 1
        started = time.monotonic()
        try:
            return work()
        except Exception as error:
            seconds, pause = time.monotonic() - started, attempts.after(error)
            if on_failure is not None:
                on_failure(Failed(error=error, attempt=attempt, seconds=seconds, pause=pause))
            if pause is None:
                raise
        sleep(pause)
        check()
