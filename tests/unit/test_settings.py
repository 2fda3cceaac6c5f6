"""Settings: every bound, and what the defaults are."""

from __future__ import annotations

import math

import pytest

from asynclock import ConfigError, LeaseSettings
from asynclock.protocol.timing import Timing


@pytest.mark.parametrize(
    ("validity", "renew_interval", "safety_margin", "poll_interval"),
    [
        (300.0, 30.0, 30.0, 1.0),
        (30.0, 3.0, 3.0, 0.75),
        (10.0, 1.0, 2.0, 0.25),
        (4.0, 0.4, 2.0, 0.1),
        (1.0, 0.1, 0.5, 0.05),
        (604_800.0, 60_480.0, 60_480.0, 1.0),
    ],
)
def test_defaults_follow_from_the_validity(
    validity: float, renew_interval: float, safety_margin: float, poll_interval: float
) -> None:
    """What is not given is derived from the validity and then shown by the attribute."""
    settings = LeaseSettings(validity=validity, max_clock_skew=0.5)

    assert settings.renew_interval == pytest.approx(renew_interval)
    assert settings.safety_margin == pytest.approx(safety_margin)
    assert settings.poll_interval == pytest.approx(poll_interval)


def test_the_default_lease_lasts_five_minutes() -> None:
    """Without arguments a lease is valid for 300 s in a store within 2 s."""
    settings = LeaseSettings()

    assert (settings.validity, settings.max_clock_skew) == (300.0, 2.0)


@pytest.mark.parametrize(
    "kwargs",
    [
        {"validity": 0.1, "max_clock_skew": 0.1},
        {"validity": 604_800.0},
        {"validity": 3.0, "renew_interval": 0.3},
        {"validity": 10.0, "safety_margin": 0.1},
        {"validity": 10.0, "safety_margin": 5.0},
        {"validity": 10.0, "max_clock_skew": 0.0},
        {"validity": 10.0, "max_clock_skew": 10.0},
        {"poll_interval": 5.0},
        {"validity": 20},
    ],
    ids=str,
)
def test_values_at_their_bounds_are_allowed(kwargs: dict[str, float]) -> None:
    """Each bound itself is fine, whole numbers too."""
    LeaseSettings(**kwargs)


@pytest.mark.parametrize(
    ("kwargs", "setting", "remedy"),
    [
        ({"validity": 0.09}, "validity", "0.1 s to 7 days"),
        ({"validity": 604_801.0}, "validity", "0.1 s to 7 days"),
        ({"validity": 10.0, "renew_interval": 1.01}, "renew_interval", "raise validity or lower"),
        ({"validity": 10.0, "safety_margin": 0.09}, "safety_margin", "0.1 to 5 s"),
        ({"validity": 10.0, "safety_margin": 5.1}, "safety_margin", "0.1 to 5 s"),
        ({"validity": 1.0}, "max_clock_skew", "at most validity = 1 s"),
        ({"validity": 604_800.0, "max_clock_skew": 3601.0}, "max_clock_skew", "at most 3600 s"),
        ({"poll_interval": 5.1}, "poll_interval", "at most 5 s"),
    ],
    ids=str,
)
def test_a_value_out_of_range_is_refused(kwargs: dict[str, float], setting: str, remedy: str) -> None:
    """The error names the setting and the range that is allowed."""
    with pytest.raises(ConfigError, match=remedy) as caught:
        LeaseSettings(**kwargs)

    assert caught.value.setting == setting
    assert setting in str(caught.value)


@pytest.mark.parametrize(
    "setting", ["validity", "renew_interval", "safety_margin", "max_clock_skew", "poll_interval"]
)
@pytest.mark.parametrize(
    "value", [-1.0, math.nan, math.inf, 10**400, True, "10", []], ids=lambda value: str(value)[:8]
)
def test_what_is_no_number_of_seconds_is_refused(setting: str, value: object) -> None:
    """Every setting must be a finite number of seconds and not negative."""
    with pytest.raises(ConfigError) as caught:
        LeaseSettings(**{setting: value})  # type: ignore[arg-type]

    assert caught.value.setting == setting


@pytest.mark.parametrize("setting", ["validity", "renew_interval", "safety_margin", "poll_interval"])
def test_zero_is_refused_except_for_the_skew(setting: str) -> None:
    """Only ``max_clock_skew`` may be 0."""
    with pytest.raises(ConfigError, match="more than 0"):
        LeaseSettings(**{setting: 0})


def test_settings_cannot_be_changed() -> None:
    """Settings are shared by clients and threads, so they are frozen."""
    with pytest.raises(AttributeError):
        LeaseSettings().validity = 5.0  # type: ignore[misc]


def test_the_takeover_bound_counts_skew_resolution_and_polls_twice() -> None:
    """``takeover_bound`` is L + 2 S + 2 R + 2 polls."""
    settings = LeaseSettings(validity=60.0, max_clock_skew=2.0, poll_interval=1.0)

    assert settings.takeover_bound(1.0) == 60 + 4 + 2 + 2
    assert settings.takeover_bound(0.0) == 60 + 4 + 2


def test_a_validity_below_skew_and_resolution_is_refused() -> None:
    """On a store with whole-second Dates the validity must cover them too."""
    settings = LeaseSettings(validity=2.5, max_clock_skew=2.0)
    Timing.of(settings, resolution=0.0)

    with pytest.raises(ConfigError, match="at least") as caught:
        Timing.of(settings, resolution=1.0)

    assert caught.value.setting == "validity"
