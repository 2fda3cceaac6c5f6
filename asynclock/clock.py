"""Clocks: this machine's three, and the store's time as an interval.

A lease is believed until the fastest of the three local clocks says that its time is over. So a suspend, a
SIGSTOP or a clock step ends in a loss, never in a false hold. The store's time is only known from the
``Date`` of its answers. ``StoreTime`` decides which of them to trust and carries them forward for a while
(``protocol.md``, section Clocks).
"""

from __future__ import annotations

import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

CARRY_SECONDS: Final = 600.0
"""How long a Date is carried forward by the boot clock; after that, the store is read first."""
WITNESSES_NEEDED: Final = 3
WITNESSES_KEPT: Final = 5
WITNESS_SPACING: Final = 1.0
STALE_SHARE: Final = 0.01
"""Share of its age added to a Date older than ``CARRY_SECONDS``, which may only be published."""
STALE_LIMIT: Final = 12 * 3600.0
"""Upper bound of what is added, in seconds, so that published times stay within the bounds of rule 9."""


class Clock(Protocol):
    """Three clocks of one machine, in seconds."""

    def monotonic(self) -> float:
        """Return seconds of a clock that never steps; it may stop while the machine is suspended."""
        ...

    def boot(self) -> float:
        """Return seconds of a clock that never steps and keeps running while the machine is suspended."""
        ...

    def wall(self) -> float:
        """Return epoch seconds by this machine's wall clock, which may step."""
        ...


class SystemClock:
    """The clocks of the operating system: ``CLOCK_MONOTONIC``, ``CLOCK_BOOTTIME`` and ``CLOCK_REALTIME``.

    On systems without ``CLOCK_BOOTTIME``, ``boot`` is the monotonic clock.
    """

    if TYPE_CHECKING:

        @staticmethod
        def monotonic() -> float:
            """Return seconds of ``CLOCK_MONOTONIC``."""
            ...

        @staticmethod
        def boot() -> float:
            """Return seconds of ``CLOCK_BOOTTIME``."""
            ...

        @staticmethod
        def wall() -> float:
            """Return seconds of ``CLOCK_REALTIME``."""
            ...

    else:
        # The functions themselves: each acquisition reads the clocks a dozen times.
        monotonic = staticmethod(time.monotonic)
        wall = staticmethod(time.time)
        boot = staticmethod(
            partial(time.clock_gettime, time.CLOCK_BOOTTIME)
            if hasattr(time, "CLOCK_BOOTTIME")
            else time.monotonic  # macOS
        )


class ClockReading(NamedTuple):
    """One reading of the three clocks."""

    monotonic: float
    boot: float
    wall: float

    @classmethod
    def now(cls, clock: Clock) -> ClockReading:
        """Read the three clocks of ``clock``."""
        return tuple.__new__(cls, (clock.monotonic(), clock.boot(), clock.wall()))

    def elapsed(self, since: ClockReading) -> float:
        """Return the seconds since ``since`` by the clock that counted the most."""
        return max(self.monotonic - since.monotonic, self.boot - since.boot, self.wall - since.wall)


class Date(NamedTuple):
    """The ``Date`` of one response, and this machine's clocks when its request was sent and answered.

    Attributes:
        value: Epoch seconds, by the store.
        sent: Before the request was sent.
        arrived: After its answer arrived.
        usable: A witness agrees with it, so it may be published, make tokens and judge locks.
        by_wall: That witness is this machine's wall clock, so it may free another client's lock.
    """

    value: float
    sent: ClockReading
    arrived: ClockReading
    usable: bool
    by_wall: bool


class StoreTime:
    """The store's time, learned from the Dates of its answers.

    Args:
        skew: ``max_clock_skew`` of the store, in seconds.
        resolution: How much a Date may be rounded down, in seconds.
    """

    def __init__(self, *, skew: float, resolution: float) -> None:
        self._skew = skew
        self._resolution = resolution
        self._slack = skew + resolution
        self._longest_trip = max(1.0, skew + resolution)
        self._agreed_at: float | None = None
        self._carried: Date | None = None
        self._recent: deque[Date] = deque(maxlen=WITNESSES_KEPT)

    def observe(self, value: float | None, *, sent: ClockReading, arrived: ClockReading) -> Date | None:
        """Record a response's Date and decide how far to trust it; None if the response had no Date."""
        if value is None:
            return None
        trip = arrived.boot - sent.boot
        # Both readings, each carried over the trip: a wall clock that stepped in between cannot be a witness.
        earliest, latest = max(sent.wall, arrived.wall - trip), min(arrived.wall, sent.wall + trip)
        by_wall = earliest - self._slack <= value <= latest + self._slack
        short = trip <= self._longest_trip
        if by_wall and short:  # a wrong clock may agree by chance within a long trip
            self._agreed_at = arrived.boot
        usable = by_wall or (self._wall_is_wrong(arrived.boot) and self._has_witnesses(value, sent, arrived))
        date = Date(value, sent, arrived, usable, by_wall)
        if short:
            if not self._recent or sent.boot - self._recent[-1].arrived.boot >= WITNESS_SPACING:
                self._recent.append(date)
            if usable:
                self._carried = date
        return date

    def bounds(self, now: ClockReading) -> tuple[float, float] | None:
        """Return the earliest and latest store time at ``now``; None if no usable Date is carried."""
        date = self._carried
        if date is None or now.boot - date.arrived.boot > CARRY_SECONDS:
            return None
        return (
            date.value + (now.boot - date.arrived.boot),
            date.value + self._resolution + (now.boot - date.sent.boot),
        )

    def latest(self, now: ClockReading) -> float | None:
        """Return the latest store time at ``now``, for publishing; None if there never was a usable Date.

        If the Date is too old to be carried, 1 % of its age is added, at most 12 hours.
        """
        if (bounds := self.bounds(now)) is not None:
            return bounds[1]
        if (date := self._carried) is None:
            return None
        age = now.boot - date.sent.boot
        return date.value + self._resolution + age + min(age * STALE_SHARE, STALE_LIMIT)

    @property
    def by_wall(self) -> bool:
        """Whether this machine's wall clock is the witness of the carried Date."""
        return self._carried is not None and self._carried.by_wall

    def _wall_is_wrong(self, boot: float) -> bool:
        return self._agreed_at is None or boot - self._agreed_at > CARRY_SECONDS

    def _has_witnesses(self, value: float, sent: ClockReading, arrived: ClockReading) -> bool:
        agreeing = 0
        for other in self._recent:
            if not WITNESS_SPACING <= sent.boot - other.arrived.boot <= CARRY_SECONDS:
                continue
            latest = other.value + self._resolution + (arrived.boot - other.sent.boot)
            earliest = other.value + (sent.boot - other.arrived.boot)
            if value <= latest + self._skew and value + self._resolution >= earliest - self._skew:
                agreeing += 1
        return agreeing >= WITNESSES_NEEDED
