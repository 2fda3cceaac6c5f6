"""Clocks of simulated machines, all driven by the true time of a virtual loop."""

from __future__ import annotations

from typing import Final, Protocol

EPOCH: Final = 1_700_000_000.0
"""True epoch seconds at ``loop.time() == 0``."""


class TrueTime(Protocol):
    """The source of true time: a ``VirtualLoop``."""

    @property
    def now(self) -> float:
        """True time, in seconds."""
        ...


class VirtualClock:
    """The three clocks of one machine.

    Args:
        loop: Gives true time.
        offset: Seconds by which the wall clock is ahead of true time.
        drift: By how much all three run fast: 0.01 is one second too many in a hundred.
        boot: Reading of the monotonic and the boot clock at ``loop.time() == 0``.

    Attributes:
        wakes_at: True time until which the monotonic clock stands still; past: it runs.
    """

    __slots__ = ("_base", "_drift", "_loop", "_offset", "_slept", "wakes_at")

    def __init__(
        self, loop: TrueTime, *, offset: float = 0.0, drift: float = 0.0, boot: float = 1000.0
    ) -> None:
        self._loop = loop
        self._offset = EPOCH + offset
        self._drift = 1.0 + drift
        self._base = boot
        self._slept = 0.0
        self.wakes_at: float = -1.0

    def monotonic(self) -> float:
        """Return seconds that stand still while the machine is suspended."""
        if not self._slept:
            return self._loop.now * self._drift + self._base
        # While it sleeps the reading is that of the instant it fell asleep.
        return (max(self._loop.now, self.wakes_at) - self._slept) * self._drift + self._base

    def boot(self) -> float:
        """Return seconds that go on while the machine is suspended."""
        return self._loop.now * self._drift + self._base

    def wall(self) -> float:
        """Return epoch seconds as the machine believes them."""
        return self._loop.now * self._drift + self._offset

    def step(self, seconds: float) -> None:
        """Move the wall clock by ``seconds``, as NTP or an operator does."""
        self._offset += seconds

    def set_error(self, seconds: float) -> None:
        """Put the wall clock ``seconds`` ahead of true time, regardless of its drift."""
        self._offset = EPOCH + seconds - self._loop.now * (self._drift - 1.0)

    def suspend(self, seconds: float) -> None:
        """Let the monotonic clock stand still for the next ``seconds``."""
        self.wakes_at = max(self._loop.now, self.wakes_at) + seconds
        self._slept += seconds


class ManualClock:
    """Three clocks that move only when told to.

    Args:
        wall: First reading of the wall clock, epoch seconds.
        boot: First reading of the other two, seconds.
    """

    __slots__ = ("_boot", "_monotonic", "_wall")

    def __init__(self, *, wall: float = EPOCH, boot: float = 1000.0) -> None:
        self._wall = wall
        self._boot = boot
        self._monotonic = boot

    def monotonic(self) -> float:
        """Return the monotonic clock, in seconds."""
        return self._monotonic

    def boot(self) -> float:
        """Return the boot clock, in seconds."""
        return self._boot

    def wall(self) -> float:
        """Return the wall clock, in epoch seconds."""
        return self._wall

    def advance(self, seconds: float) -> None:
        """Let ``seconds`` pass on all three."""
        self._monotonic += seconds
        self._boot += seconds
        self._wall += seconds

    def suspend(self, seconds: float) -> None:
        """Let ``seconds`` pass while the machine is suspended: the monotonic clock stands still."""
        self._boot += seconds
        self._wall += seconds

    def step(self, seconds: float) -> None:
        """Move the wall clock alone."""
        self._wall += seconds
