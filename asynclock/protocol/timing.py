"""The numbers that the rules are written in."""

from __future__ import annotations

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
    """Return how long one request of a lease may take at most, in seconds (rule 5)."""
    return min(validity / _REQUESTS_PER_LEASE, _LONGEST_REQUEST)


def longest_run(validity: float) -> float:
    """Return how long a client with leases of that validity keeps a lock to itself by default, in seconds."""
    return max(validity / 10, _RUN_POLLS * default_poll_interval(validity))


class Timing:
    """Settings of a lease on one backend, and what the rules make of them; all in seconds.

    Attributes:
        validity: L of ``protocol.md``.
        renew_interval: I.
        skew: S.
        resolution: R, of the backend's clock.
        slack: S + R.
        poll_interval: Longest time between two looks of a waiter (rule 13).
        belief: L - M, counted from the sending of a write (rule 4).
        request_timeout: Of one request (rule 5).
        longest_trip_for_future: The longest round trip of a Date that makes a token from the future
            (rule 11). Store time has reached such a token before a dead holder's lock can be taken over.
        clean_up_for: How long a write whose outcome is unknown is cleaned up (rule 3).
        exit_bound: How long an exit may take to release (rule 18).
        turn_poll: The poll interval that this client makes way for; waiters can tell it from its record.
        run_length: How long one client may keep a lock for itself before it makes way (rule 14).

    Raises:
        ConfigError: The validity is shorter than skew and resolution together (rule 11).
    """

    def __init__(self, settings: LeaseSettings, *, resolution: float) -> None:
        self.slack = settings.max_clock_skew + resolution
        if settings.validity < self.slack:
            raise ConfigError(
                setting="validity",
                value=settings.validity,
                reason=f"must be at least max_clock_skew + the backend's clock resolution = {self.slack:g} s",
            )
        self.validity = settings.validity
        self.renew_interval = settings.renew_interval
        self.skew = settings.max_clock_skew
        self.resolution = resolution
        self.poll_interval = settings.poll_interval
        self.belief = self.validity - settings.safety_margin
        self.request_timeout = longest_request(self.validity)
        self.longest_trip_for_future = self.validity - self.slack
        self.clean_up_for = self.validity + self.request_timeout
        self.exit_bound = min(2.0, self.validity / 5)
        self.turn_poll = max(self.poll_interval, default_poll_interval(self.validity))
        self.run_length = max(self.renew_interval, _RUN_POLLS * self.turn_poll)
