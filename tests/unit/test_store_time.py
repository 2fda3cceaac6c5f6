"""Store time as an interval: what a Date is good for (protocol, section Clocks)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from asynclock.clock import ClockReading, Date, StoreTime, SystemClock

if TYPE_CHECKING:
    from asynclock.testing._clocks import ManualClock

SKEW, RESOLUTION = 2.0, 1.0


def test_the_largest_clock_counts(clock: ManualClock) -> None:
    """A suspended machine or a step of the wall clock lets time pass, never stand still."""
    since = ClockReading.now(clock)
    clock.advance(1.0)
    assert ClockReading.now(clock).elapsed(since) == pytest.approx(1.0)

    clock.suspend(5.0)
    assert ClockReading.now(clock).elapsed(since) == pytest.approx(6.0)

    clock.step(-100.0)
    assert ClockReading.now(clock).elapsed(since) == pytest.approx(6.0)

    clock.step(200.0)
    assert ClockReading.now(clock).elapsed(since) == pytest.approx(106.0)


def test_the_system_clock_reads_three_clocks_that_go_on() -> None:
    """The clocks of the operating system only rise between two readings."""
    clock = SystemClock()
    first, second = ClockReading.now(clock), ClockReading.now(clock)

    assert second.monotonic >= first.monotonic
    assert second.boot >= first.boot
    assert first.wall > 1_600_000_000


@pytest.fixture
def time() -> StoreTime:
    """Return the time of a store with whole-second Dates, as yet unknown."""
    return StoreTime(skew=SKEW, resolution=RESOLUTION)


def test_nothing_is_known_before_the_first_date(time: StoreTime, clock: ManualClock) -> None:
    """Without any Date there are no bounds."""
    now = ClockReading.now(clock)
    assert time.observe(None, sent=now, arrived=now) is None

    assert time.bounds(now) is None
    assert time.latest(now) is None


def observe(
    time: StoreTime, clock: ManualClock, *, error: float = 0.0, trip: float = 0.0, true: float | None = None
) -> Date:
    """Take in a Date that is ``error`` from the wall clock (or from ``true``) after a round ``trip``."""
    sent = ClockReading.now(clock)
    value = (clock.wall() if true is None else true) + error
    clock.advance(trip)
    date = time.observe(value, sent=sent, arrived=ClockReading.now(clock))
    assert date is not None
    return date


def test_a_date_bounds_the_stores_time(time: StoreTime, clock: ManualClock) -> None:
    """``lo`` counts from the arrival, ``hi`` from the sending and covers the cut-off second."""
    date = observe(time, clock, trip=0.5)
    clock.advance(100.0)
    now = ClockReading.now(clock)

    bounds = time.bounds(now)

    assert bounds is not None
    assert [bound - date.value for bound in bounds] == pytest.approx([100.0, 101.5])
    assert time.latest(now) == bounds[1]


def test_a_date_is_carried_for_ten_minutes(time: StoreTime, clock: ManualClock) -> None:
    """After ten minutes a Date bounds nothing any more: read first."""
    observe(time, clock)
    clock.advance(600.0)
    assert time.bounds(ClockReading.now(clock)) is not None

    clock.advance(0.001)
    assert time.bounds(ClockReading.now(clock)) is None


def test_a_date_is_carried_by_the_boot_clock_only(time: StoreTime, clock: ManualClock) -> None:
    """A step of the wall clock changes nothing, a suspend counts in full."""
    date = observe(time, clock)
    clock.step(5_000.0)
    clock.suspend(100.0)

    bounds = time.bounds(ClockReading.now(clock))

    assert bounds == (
        pytest.approx(date.value + 100.0, abs=1e-5),
        pytest.approx(date.value + 101.0, abs=1e-5),
    )


def test_an_old_date_is_still_published_one_percent_later(time: StoreTime, clock: ManualClock) -> None:
    """Where no usable Date came in ten minutes, the old one is carried on, plus 1 % of its age."""
    date = observe(time, clock)
    clock.advance(1_000.0)

    assert time.latest(ClockReading.now(clock)) == pytest.approx(date.value + 1_011.0, abs=1e-5)


@pytest.mark.parametrize(
    ("error", "usable"), [(0.0, True), (3.0, True), (-3.0, True), (3.001, False), (-3.001, False)]
)
def test_the_wall_clock_is_the_witness_of_a_date(
    time: StoreTime, clock: ManualClock, error: float, *, usable: bool
) -> None:
    """A Date is usable within S + R of this machine's wall clock."""
    date = observe(time, clock, error=error)

    assert (date.usable, date.by_wall) == (usable, usable)
    assert (time.bounds(ClockReading.now(clock)) is not None) == usable


def test_the_witness_spans_sending_and_arrival(time: StoreTime, clock: ManualClock) -> None:
    """A Date taken anywhere on the way of a slow answer agrees with the wall clock."""
    assert observe(time, clock, error=3.0 + 2.5, trip=2.5).by_wall
    assert not observe(time, clock, error=3.0 + 2.6, trip=2.5).by_wall


@pytest.mark.parametrize(
    ("trip", "step", "value"),
    [
        (1.0, 5.0, 1.5),
        (1.0, 5.0, 5.0),
        (1.0, -5.0, -0.5),
        (1.0, -5.0, -3.5),
        (0.1, 3600.0, 36.0),
        (0.1, -3600.0, -36.0),
    ],
)
def test_a_wall_clock_that_steps_during_a_request_is_no_witness(
    time: StoreTime, clock: ManualClock, trip: float, step: float, value: float
) -> None:
    """Its readings at the sending and at the arrival must both agree with the Date."""
    sent = ClockReading.now(clock)
    clock.advance(trip)
    clock.step(step)

    date = time.observe(sent.wall + value, sent=sent, arrived=ClockReading.now(clock))

    assert date is not None
    assert not date.by_wall


def test_a_long_round_trip_does_not_prove_the_wall_clock_right(time: StoreTime, clock: ManualClock) -> None:
    """A wall clock that agreed only within a long round trip lets other Dates be witnesses."""
    observe(time, clock, trip=3.01)
    clock.step(60.0)

    dates = []
    for _ in range(4):
        clock.advance(1.0)
        dates.append(observe(time, clock, true=clock.wall() - 60.0))

    assert [date.usable for date in dates] == [False, False, False, True]


@pytest.mark.parametrize(("trip", "carried"), [(3.0, True), (3.01, False)])
def test_a_date_of_a_slow_answer_is_not_carried(
    time: StoreTime, clock: ManualClock, trip: float, *, carried: bool
) -> None:
    """A round trip over max(1 s, S + R) makes the Date good for judging only."""
    date = observe(time, clock, trip=trip)

    assert date.usable
    assert (time.bounds(ClockReading.now(clock)) is not None) == carried


def test_the_longest_trip_is_at_least_a_second(clock: ManualClock) -> None:
    """On a store of one exact clock an answer may still take a second."""
    time = StoreTime(skew=0.0, resolution=0.0)
    observe(time, clock, trip=1.0, error=0.5)

    assert time.bounds(ClockReading.now(clock)) is not None


def wrong_wall(time: StoreTime, clock: ManualClock, count: int, *, spacing: float = 1.0) -> list[Date]:
    """Take in ``count`` right Dates on a machine whose wall clock is an hour off."""
    dates = []
    for _ in range(count):
        dates.append(observe(time, clock, error=3_600.0))
        clock.advance(spacing)
    return dates


def test_three_dates_are_witnesses_where_the_wall_clock_is_wrong(time: StoreTime, clock: ManualClock) -> None:
    """The fourth Date that agrees with three before it is usable, though not to free a lock."""
    dates = wrong_wall(time, clock, 4)

    assert [date.usable for date in dates] == [False, False, False, True]
    assert not dates[-1].by_wall


@pytest.mark.parametrize(("apart", "usable"), [(0.3, False), (1.0, True)])
def test_witnesses_are_a_second_apart(
    time: StoreTime, clock: ManualClock, apart: float, *, usable: bool
) -> None:
    """Answers of one moment are one witness: one wrong node may have given them all."""
    wrong_wall(time, clock, 3, spacing=apart)
    clock.advance(2.0)

    assert observe(time, clock, error=3_600.0).usable is usable


def test_a_date_must_not_be_its_neighbours_witness(time: StoreTime, clock: ManualClock) -> None:
    """The Date itself comes at least a second after each of its witnesses."""
    wrong_wall(time, clock, 2)
    observe(time, clock, error=3_600.0)
    clock.advance(0.5)

    assert not observe(time, clock, error=3_600.0).usable


def test_three_of_the_last_five_suffice(time: StoreTime, clock: ManualClock) -> None:
    """Two wrong Dates among the last five do no harm."""
    for error in (3_600.0, 9_000.0, 3_600.0, -9_000.0, 3_600.0):
        observe(time, clock, error=error)
        clock.advance(1.0)

    assert observe(time, clock, error=3_600.0).usable


def test_older_dates_than_the_last_five_are_no_witnesses(time: StoreTime, clock: ManualClock) -> None:
    """Three that agree count only among the last five."""
    for error in (3_600.0, 9_000.0, 3_600.0, -9_000.0, 20_000.0, 3_600.0):
        observe(time, clock, error=error)
        clock.advance(1.0)

    assert not observe(time, clock, error=3_600.0).usable


def test_witnesses_of_more_than_ten_minutes_ago_do_not_count(time: StoreTime, clock: ManualClock) -> None:
    """A Date is carried for ten minutes, as a witness too."""
    wrong_wall(time, clock, 3)
    clock.advance(601.0)

    assert not observe(time, clock, error=3_600.0).usable


@pytest.mark.parametrize(("off", "usable"), [(3.0, True), (3.1, False), (-3.0, True), (-3.1, False)])
def test_witnesses_agree_within_skew_and_resolution(
    time: StoreTime, clock: ManualClock, off: float, *, usable: bool
) -> None:
    """``D <= hi + S`` and ``D + R >= lo - S``, carried forward."""
    wrong_wall(time, clock, 3)

    assert observe(time, clock, error=3_600.0 + off).usable is usable


def test_dates_never_outvote_a_wall_clock_that_is_right(time: StoreTime, clock: ManualClock) -> None:
    """One Date that agreed with the wall clock silences witnesses for ten minutes."""
    observe(time, clock)
    clock.advance(1.0)
    dates = wrong_wall(time, clock, 5, spacing=100.0)

    assert not any(date.usable for date in dates)


def test_after_ten_minutes_of_disagreement_the_wall_clock_is_wrong(
    time: StoreTime, clock: ManualClock
) -> None:
    """Then the Dates are each other's witnesses."""
    observe(time, clock)
    clock.advance(1.0)
    dates = wrong_wall(time, clock, 8, spacing=100.0)

    assert dates[-1].usable


def test_an_unusable_date_replaces_nothing(time: StoreTime, clock: ManualClock) -> None:
    """A wrong Date leaves the bounds as the last usable one made them."""
    date = observe(time, clock)
    observe(time, clock, error=50.0)

    assert time.bounds(ClockReading.now(clock)) == (
        pytest.approx(date.value, abs=1e-5),
        pytest.approx(date.value + 1.0, abs=1e-5),
    )
