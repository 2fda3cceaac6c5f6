"""Settings: every bound, what the defaults are, and what all allowed ones ensure (rules 4, 9 and 11)."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from asynclock import ConfigError, LeaseSettings
from asynclock._core.protocol.decisions import next_token, promise
from asynclock._core.protocol.timing import Timing
from asynclock._core.record import LockRecord, parse_record
from asynclock.clock import ClockReading, StoreTime
from asynclock.testing._clocks import EPOCH, ManualClock
from tests.unit.kit import STEADY, World, in_virtual_time

DAY = 86_400.0
WEEK = LeaseSettings(validity=7 * DAY, max_clock_skew=2.0)


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
    Timing(settings, resolution=0.0)

    with pytest.raises(ConfigError, match="at least") as caught:
        Timing(settings, resolution=1.0)

    assert caught.value.setting == "validity"


@pytest.mark.parametrize("profile", [replace(STEADY, resolution=1.0)], ids=["whole seconds"])
@pytest.mark.parametrize("wall_error", [0.0, 2 * DAY, -2 * DAY])
def test_a_lease_of_a_week_is_no_corrupt_record(world: World, wall_error: float) -> None:
    """Its record is readable while held and after release, whatever the holder's wall clock shows."""

    async def story() -> None:
        async with world.client(WEEK, wall_error=wall_error) as client, world.client() as other:
            lease = await client.lock("orders").acquire()
            held = await other.lock("orders").status()
            await lease.release()
            free = await other.lock("orders").status()

            assert (held.state, free.state) == ("held", "free")

    world.loop.run_until_complete(story())


def terms_of(validity: float, skew: float, resolution: float) -> Timing | None:
    """Return the timing of settings that are allowed, else None."""
    try:
        return Timing(LeaseSettings(validity=validity, max_clock_skew=skew), resolution=resolution)
    except ConfigError:
        return None


@given(
    validity=st.floats(0.1, 7 * DAY),
    skew=st.one_of(st.just(0.0), st.floats(0.0, 3600.0)),
    resolution=st.sampled_from([0.0, 1.0]),
    ahead=st.floats(-1.0, 1.0),
    behind=st.floats(-1.0, 1.0),
    trip=st.floats(0.0, 1.0),
    age=st.floats(0.0, 400 * DAY),
    by_wall=st.booleans(),
)
@example(
    validity=7 * DAY,
    skew=3600.0,
    resolution=1.0,
    ahead=1.0,
    behind=-1.0,
    trip=1.0,
    age=400 * DAY,
    by_wall=False,
)
def test_what_is_published_is_never_too_far_ahead_for_a_reader(
    *,
    validity: float,
    skew: float,
    resolution: float,
    ahead: float,
    behind: float,
    trip: float,
    age: float,
    by_wall: bool,
) -> None:
    """True for every lease, by any node, at any age of the last Date, and a reader at any other node."""
    timing = terms_of(validity, skew, resolution)
    if timing is None:
        return
    clock = ManualClock()
    time = StoreTime(skew=skew, resolution=resolution)
    sent = ClockReading.now(clock)
    clock.advance(trip * max(1.0, timing.slack))
    time.observe(clock.wall() + ahead * skew, sent=sent, arrived=ClockReading.now(clock))
    clock.advance(age)
    latest = time.latest(ClockReading.now(clock))
    if latest is None:
        return

    published = promise(latest, timing, by_wall=by_wall)
    record = LockRecord(expired=False, valid_until_ms=published, owner="somebody")
    parse_record(record.encode(), store_time=clock.wall() + behind * skew)


@given(
    validity=st.floats(0.1, 3600.0),
    skew=st.floats(0.0, 10.0),
    resolution=st.sampled_from([0.0, 1.0]),
    trip=st.floats(0.0, 1.0),
    ahead=st.floats(-0.5, 0.5),
    behind=st.floats(-0.5, 0.5),
)
@example(validity=2.5, skew=2.0, resolution=0.0, trip=1.0, ahead=0.5, behind=-0.5)
def test_a_token_from_the_future_is_reached_before_its_lease_can_be_taken_over(
    *, validity: float, skew: float, resolution: float, trip: float, ahead: float, behind: float
) -> None:
    """A holder that dies while its token settles, a Hudi writer, and a successor on another node."""
    timing = terms_of(validity, skew, resolution)
    if timing is None:
        return
    dropped = LockRecord(expired=True, valid_until_ms=0, owner="hudi")

    def token(true: float, node: float, under_way: float) -> int | None:
        date = true + node * skew
        return next_token(dropped, (date, date + resolution + under_way), timing)

    first = token(EPOCH, ahead, trip * max(1.0, timing.slack))
    second = token(EPOCH + validity + timing.slack, behind, 0.0)

    assert second is not None
    assert first is None or second >= first


@in_virtual_time
async def test_behind_a_hudi_writer_the_validity_must_cover_a_request_too(world: World) -> None:
    """Otherwise a holder that dies while its token settles could be followed by a lower token."""
    world.put(LockRecord(expired=True, valid_until_ms=0, owner="hudi").encode())
    async with world.client(LeaseSettings(validity=2.4, max_clock_skew=2.0)) as client:
        with pytest.raises(ConfigError, match=r"1\.25 \* .* = 2\.5 s"):
            await client.lock("orders").acquire()

    assert [each.kind for each in world.writes()] == ["put"]
