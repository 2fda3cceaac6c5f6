"""Clocks: this machine's three, and the store's time as an interval.

Belief in a lease ends by the largest of the three local clocks, so that a suspend, a SIGSTOP
or a clock step ends in a loss and never in a false hold. The store's time is known only
through the ``Date`` of its answers; ``StoreTime`` says which of them may be used and carries
them for a while (``protocol.md``, section Clocks).
"""

from __future__ import annotations

import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

CARRY_SECONDS: Final = 600.0
"""A Date is carried this long by the boot clock; older: read first."""
WITNESSES_NEEDED: Final = 3
WITNESSES_KEPT: Final = 5
WITNESS_SPACING: Final = 1.0
STALE_SHARE: Final = 0.01
"""Share of its age by which a Date older than ``CARRY_SECONDS`` is stretched where it is only published."""
STALE_LIMIT: Final = 12 * 3600.0
"""The most seconds by which it is stretched, so that what is published stays within rule 9's bounds."""


class Clock(Protocol):
    """Three clocks of one machine, in seconds."""

    def monotonic(self) -> float:
        """Return seconds that never step; they may stand still while the machine is suspended."""
        ...

    def boot(self) -> float:
        """Return seconds that never step and go on while the machine is suspended."""
        ...

    def wall(self) -> float:
        """Return epoch seconds as this machine believes them; they may step."""
        ...


class SystemClock:
    """The clocks of the operating system: ``CLOCK_MONOTONIC``, ``CLOCK_BOOTTIME`` and ``CLOCK_REALTIME``.

    Where there is no ``CLOCK_BOOTTIME``, ``boot`` is the monotonic clock.
    """

    # As they are: they are read a dozen times in each acquisition.
    monotonic = staticmethod(time.monotonic)
    wall = staticmethod(time.time)
    boot: Callable[[], float] = staticmethod(
        partial(time.clock_gettime, time.CLOCK_BOOTTIME)
        if hasattr(time, "CLOCK_BOOTTIME")
        else time.monotonic  # macOS
    )


class Instant(NamedTuple):
    """One reading of the three clocks."""

    monotonic: float
    boot: float
    wall: float

    @classmethod
    def now(cls, clock: Clock) -> Instant:
        """Read the three clocks of ``clock``."""
        return tuple.__new__(cls, (clock.monotonic(), clock.boot(), clock.wall()))

    def elapsed(self, since: Instant) -> float:
        """Return the largest time that any of the clocks counted since ``since``, in seconds."""
        return max(self.monotonic - since.monotonic, self.boot - since.boot, self.wall - since.wall)


class Date(NamedTuple):
    """The ``Date`` of one answer and when its request was sent and answered here.

    Attributes:
        value: Epoch seconds, by the store.
        sent: Before the request was sent.
        arrived: After its answer arrived.
        usable: It has a witness: it may be published, make a token and be judged by.
        by_wall: Its witness is this machine's wall clock: it may free another's lock.
    """

    value: float
    sent: Instant
    arrived: Instant
    usable: bool
    by_wall: bool


class StoreTime:
    """The store's time, learned from the Dates of its answers.

    Args:
        skew: ``max_clock_skew`` of the store, in seconds.
        resolution: By how much a Date may be cut short, in seconds.
    """

    def __init__(self, *, skew: float, resolution: float) -> None:
        self._skew = skew
        self._resolution = resolution
        self._slack = skew + resolution
        self._longest_trip = max(1.0, skew + resolution)
        self._agreed_at: float | None = None
        self._carried: Date | None = None
        self._recent: deque[Date] = deque(maxlen=WITNESSES_KEPT)

    def observe(self, value: float | None, *, sent: Instant, arrived: Instant) -> Date | None:
        """Take in the Date of an answer and say what it is good for; None if it bore none."""
        if value is None:
            return None
        trip = arrived.boot - sent.boot
        # Both readings, each carried over the trip: a wall clock that stepped meanwhile is no witness.
        earliest, latest = max(sent.wall, arrived.wall - trip), min(arrived.wall, sent.wall + trip)
        by_wall = earliest - self._slack <= value <= latest + self._slack
        short = trip <= self._longest_trip
        if by_wall and short:  # within a long trip, a wrong clock may agree as well
            self._agreed_at = arrived.boot
        usable = by_wall or (self._wall_is_wrong(arrived.boot) and self._has_witnesses(value, sent, arrived))
        date = Date(value, sent, arrived, usable, by_wall)
        if short:
            if not self._recent or sent.boot - self._recent[-1].arrived.boot >= WITNESS_SPACING:
                self._recent.append(date)
            if usable:
                self._carried = date
        return date

    def bounds(self, now: Instant) -> tuple[float, float] | None:
        """Return the earliest and latest store time at ``now``; None if no usable Date is carried."""
        date = self._carried
        if date is None or now.boot - date.arrived.boot > CARRY_SECONDS:
            return None
        return (
            date.value + (now.boot - date.arrived.boot),
            date.value + self._resolution + (now.boot - date.sent.boot),
        )

    def latest(self, now: Instant) -> float | None:
        """Return the latest store time at ``now``, to be published; None if there never was a usable Date.

        A Date too old to be carried is stretched by 1 % of its age, 12 hours at most.
        """
        if (bounds := self.bounds(now)) is not None:
            return bounds[1]
        if (date := self._carried) is None:
            return None
        age = now.boot - date.sent.boot
        return date.value + self._resolution + age + min(age * STALE_SHARE, STALE_LIMIT)

    @property
    def by_wall(self) -> bool:
        """Whether this machine's wall clock is the witness of the Date that is carried."""
        return self._carried is not None and self._carried.by_wall

    def _wall_is_wrong(self, boot: float) -> bool:
        return self._agreed_at is None or boot - self._agreed_at > CARRY_SECONDS

    def _has_witnesses(self, value: float, sent: Instant, arrived: Instant) -> bool:
        agreeing = 0
        for other in self._recent:
            if not WITNESS_SPACING <= sent.boot - other.arrived.boot <= CARRY_SECONDS:
                continue
            latest = other.value + self._resolution + (arrived.boot - other.sent.boot)
            earliest = other.value + (sent.boot - other.arrived.boot)
            if value <= latest + self._skew and value + self._resolution >= earliest - self._skew:
                agreeing += 1
        return agreeing >= WITNESSES_NEEDED
