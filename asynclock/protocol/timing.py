"""The numbers that the rules are written in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from asynclock.errors import ConfigError
from asynclock.settings import default_poll_interval

if TYPE_CHECKING:
    from asynclock.settings import LeaseSettings

_RUN_POLLS: Final = 20
_REQUESTS_PER_LEASE: Final = 5
_LONGEST_REQUEST: Final = 3600.0
"""So that ``validUntil``, which allows for requests under way, stays within the bounds of rule 9."""


def longest_request(validity: float) -> float:
    """Return the longest that one request of a lease may take, in seconds (rule 5)."""
    return min(validity / _REQUESTS_PER_LEASE, _LONGEST_REQUEST)


def longest_run(validity: float) -> float:
    """Return how long a client with leases of that validity keeps a lock to itself by default, in seconds."""
    return max(validity / 10, _RUN_POLLS * default_poll_interval(validity))


@dataclass(frozen=True, slots=True)
class Timing:
    """Settings of a lease on one backend; seconds.

    Attributes:
        validity: L of ``protocol.md``.
        renew_interval: I.
        safety_margin: M.
        skew: S.
        resolution: R.
        poll_interval: Longest time between two looks of a waiter.
    """

    validity: float
    renew_interval: float
    safety_margin: float
    skew: float
    resolution: float
    poll_interval: float

    @classmethod
    def of(cls, settings: LeaseSettings, *, resolution: float) -> Timing:
        """Combine settings with the resolution of a backend's clock.

        Raises:
            ConfigError: The validity is shorter than skew and resolution together (rule 11).
        """
        if settings.validity < settings.max_clock_skew + resolution:
            least = settings.max_clock_skew + resolution
            raise ConfigError(
                setting="validity",
                value=settings.validity,
                reason=f"must be at least max_clock_skew + the backend's clock resolution = {least:g} s",
            )
        assert settings.renew_interval is not None  # noqa: S101  filled by LeaseSettings
        assert settings.safety_margin is not None  # noqa: S101  filled by LeaseSettings
        assert settings.poll_interval is not None  # noqa: S101  filled by LeaseSettings
        return cls(
            validity=settings.validity,
            renew_interval=settings.renew_interval,
            safety_margin=settings.safety_margin,
            skew=settings.max_clock_skew,
            resolution=resolution,
            poll_interval=settings.poll_interval,
        )

    @property
    def belief(self) -> float:
        """How long a write is believed, counted from its sending (rule 4)."""
        return self.validity - self.safety_margin

    @property
    def slack(self) -> float:
        """Return S + R."""
        return self.skew + self.resolution

    @property
    def request_timeout(self) -> float:
        """The longest that one request may take (rule 5)."""
        return longest_request(self.validity)

    @property
    def longest_trip_for_future(self) -> float:
        """The longest round trip of a Date that makes a token from the future (rule 11).

        LockObjects time has reached such a token before its lease can be taken over from a dead holder.
        """
        return self.validity - self.slack

    @property
    def reap_for(self) -> float:
        """How long an unknown write is reaped (rule 3)."""
        return self.validity + self.request_timeout

    @property
    def exit_bound(self) -> float:
        """How long an exit may take to release (rule 18)."""
        return min(2.0, self.validity / 5)

    @property
    def turn_poll(self) -> float:
        """The poll interval that this client makes way for; waiters can tell it from its record."""
        return max(self.poll_interval, default_poll_interval(self.validity))

    @property
    def run_length(self) -> float:
        """How long one client may keep a lock for itself before it makes way (rule 14)."""
        return max(self.renew_interval, _RUN_POLLS * self.turn_poll)
