"""The durations of the protocol, derived from the settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from asynclock.errors import ConfigError
from asynclock.settings import default_poll_interval

if TYPE_CHECKING:
    from asynclock.settings import LeaseSettings

_RUN_POLLS: Final = 20
_REQUESTS_PER_LEASE: Final = 5
LEAVE_WITHIN: Final = 2.0
"""Seconds that a leaving caller waits for the store, unless a fifth of L is less (rule 24)."""
ROUND_TRIP: Final = 0.5
"""Seconds that a round trip may take after the pause that a store asks for between two writes (rule 24)."""
_LONGEST_REQUEST: Final = 3600.0
"""So that ``validUntil``, which allows for requests under way, stays within the bounds of rule 9."""


def longest_request(validity: float) -> float:
    """Return the longest time that one request of a lease may take, in seconds (rule 5)."""
    return min(validity / _REQUESTS_PER_LEASE, _LONGEST_REQUEST)


def longest_run(validity: float) -> float:
    """Return how long a client with leases of that validity keeps a lock to itself by default, in seconds."""
    return max(validity / 10, _RUN_POLLS * default_poll_interval(validity))


class Timing:
    """Settings of a lease on one backend, and the times that the rules derive from them; all in seconds.

    Args:
        settings: Of the client.
        resolution: Of the clock of its backend.
        write_interval: What the backend leaves between two writes of an object.

    Raises:
        ConfigError: The validity is shorter than skew and resolution together (rule 11).
    """

    def __init__(self, settings: LeaseSettings, *, resolution: float, write_interval: float = 0.0) -> None:
        self.slack: float = settings.max_clock_skew + resolution
        if settings.validity < self.slack:
            raise ConfigError(
                setting="validity",
                value=settings.validity,
                reason=f"must be at least max_clock_skew + the backend's clock resolution = {self.slack:g} s",
            )
        self.validity: float = settings.validity  # L of the rules
        self.renew_interval: float = settings.renew_interval  # I
        self.skew: float = settings.max_clock_skew  # S
        self.resolution = resolution  # R; and slack is S + R
        self.poll_interval: float = settings.poll_interval
        self.belief: float = (
            self.validity - settings.safety_margin
        )  # L - M, from the sending of a write (rule 4)
        self.request_timeout: float = longest_request(self.validity)
        # The longest round trip of a Date that makes a token from the future (rule 11): store time has
        # reached such a token before a dead holder's lock can be taken over.
        self.longest_trip_for_future: float = self.validity - self.slack
        # How long anybody who leaves waits for the store's word (rules 18 and 24).
        self.exit_bound: float = min(LEAVE_WITHIN, self.validity / 5)
        if write_interval > 0:
            self.exit_bound = max(self.exit_bound, write_interval + ROUND_TRIP)
        # The poll interval that this client makes way for; waiters can tell it from its record (rule 14).
        self.turn_poll: float = max(self.poll_interval, default_poll_interval(self.validity))
        self.run_length: float = max(self.renew_interval, _RUN_POLLS * self.turn_poll)

    @property
    def clean_up_for(self) -> float:
        """How long a write that may stand is looked for (rule 3)."""
        return self.validity + self.request_timeout

    def promised(self, left: float | None) -> float:
        """Return the seconds that a record promises.

        Args:
            left: Seconds until belief ends, whatever is renewed; None: renewals move its end.
        """
        return self.validity if left is None else min(self.validity, left + self.validity - self.belief)
