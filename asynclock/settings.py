"""The times of a lease: validated settings."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Final

from asynclock.errors import ConfigError

MIN_VALIDITY: Final = 0.1
MAX_VALIDITY: Final = 7 * 86_400.0
MAX_POLL_INTERVAL: Final = 5.0
MAX_CLOCK_SKEW: Final = 3600.0
_TOLERANCE: Final = 1e-9


def default_poll_interval(validity: float) -> float:
    """Return the default poll interval for leases of that validity, in seconds."""
    return min(1.0, max(0.05, validity / 40))


@dataclass(frozen=True, kw_only=True, init=False)
class LeaseSettings:
    """Times of a lease, in seconds. None asks for the default, which the attribute then has.

    Attributes:
        validity: How long the record promises the lock after each write: 0.1 s to 7 days,
            default 300. A crashed holder blocks others for about this long.
        renew_interval: Pause between renewals, at most ``validity / 10``, which is the default. Of more than
            64 leases that one client acquires together, each has one shorter pause, so that their renewals
            spread.
        safety_margin: How much earlier than ``validity`` the holder stops believing; between
            ``validity / 100`` and ``validity / 2``, default ``max(2, validity / 10)`` within these.
            Clocks may drift apart by ``safety_margin / validity``.
        max_clock_skew: Upper bound on how far any two nodes of the *store* differ, or a node and
            true time; default 2, at most 3600. It describes the store, not the test: below 2 only for
            ``memory://``, ``file://`` or an endpoint of one node.
        poll_interval: The longest time until another process sees a release, at most 5; default
            ``min(1, max(0.05, validity / 40))``. Clients of one lock may differ: a longer one saves
            requests behind a holder that stays, and gives way to the default for the holder's
            validity while the lock goes from hand to hand.

    Raises:
        ConfigError: A value is out of range; names the setting and the range.
    """

    validity: float
    renew_interval: float
    safety_margin: float
    max_clock_skew: float
    poll_interval: float

    def __init__(
        self,
        *,
        validity: float = 300.0,
        renew_interval: float | None = None,
        safety_margin: float | None = None,
        max_clock_skew: float = 2.0,
        poll_interval: float | None = None,
    ) -> None:
        validity = _seconds("validity", validity)
        if not MIN_VALIDITY <= validity <= MAX_VALIDITY:
            raise ConfigError(setting="validity", value=validity, reason="must be 0.1 s to 7 days (604800 s)")
        resolved = {
            "validity": validity,
            "renew_interval": _renew_interval(renew_interval, validity),
            "safety_margin": _safety_margin(safety_margin, validity),
            "max_clock_skew": _clock_skew(max_clock_skew, validity),
            "poll_interval": _poll_interval(poll_interval, validity),
        }
        for name, value in resolved.items():
            object.__setattr__(self, name, value)  # frozen

    def takeover_bound(self, clock_resolution: float) -> float:
        """Seconds from a dead holder's last write until a watching waiter has the lock.

        Two round trips come on top. Assumes usable Dates; see ``docs/concepts/protocol.md``.

        Args:
            clock_resolution: Of the backend, in seconds: 1 for HTTP dates, 0 for memory and file.
        """
        return self.validity + 2 * self.max_clock_skew + 2 * clock_resolution + 2 * self.poll_interval


def _renew_interval(given: float | None, validity: float) -> float:
    interval = validity / 10 if given is None else _seconds("renew_interval", given)
    if interval * 10 > validity * (1 + _TOLERANCE):
        raise ConfigError(
            setting="renew_interval",
            value=interval,
            reason=f"must be at most validity / 10 = {validity / 10:g} s; "
            "raise validity or lower renew_interval",
        )
    return interval


def _safety_margin(given: float | None, validity: float) -> float:
    least, most = validity / 100, validity / 2
    margin = min(max(2.0, validity / 10), most) if given is None else _seconds("safety_margin", given)
    if not least * (1 - _TOLERANCE) <= margin <= most * (1 + _TOLERANCE):
        raise ConfigError(
            setting="safety_margin",
            value=margin,
            reason=f"must be validity / 100 to validity / 2, {least:g} to {most:g} s",
        )
    return margin


def _clock_skew(given: float, validity: float) -> float:
    skew = _seconds("max_clock_skew", given, zero=True)
    if skew > MAX_CLOCK_SKEW:
        raise ConfigError(setting="max_clock_skew", value=skew, reason="must be at most 3600 s, an hour")
    if skew > validity:
        raise ConfigError(
            setting="max_clock_skew",
            value=skew,
            reason=f"must be at most validity = {validity:g} s; below 2 only for memory://, "
            "file:// or an endpoint of one node",
        )
    return skew


def _poll_interval(given: float | None, validity: float) -> float:
    interval = default_poll_interval(validity) if given is None else _seconds("poll_interval", given)
    if interval > MAX_POLL_INTERVAL:
        raise ConfigError(setting="poll_interval", value=interval, reason="must be at most 5 s")
    return interval


def _seconds(name: str, value: object, *, zero: bool = False) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    # Compared before it is converted: a whole number may be too large for a float.
    if number and (0 < value <= sys.float_info.max or (zero and value == 0)):  # type: ignore[operator]
        return float(value)  # type: ignore[arg-type]
    least = "0 or more" if zero else "more than 0"
    reason = f"must be a finite number of seconds, {least}"
    raise ConfigError(setting=name, value=value, reason=reason)
