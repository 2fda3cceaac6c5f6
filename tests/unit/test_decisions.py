"""Pure decisions: is it free (rule 8), which token (rule 11), what is published (rule 4)."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from asynclock import LeaseSettings
from asynclock._core.protocol.decisions import (
    Observation,
    Seen,
    judge,
    next_token,
    next_token_without_dates,
    promise,
)
from asynclock._core.protocol.timing import Timing
from asynclock._core.record import LockRecord, parse_record
from asynclock.clock import ClockReading, Date
from asynclock.testing._clocks import ManualClock
from tests.unit import kit
from tests.unit.kit import SETTINGS, hudi_record, our_record

T = 1_700_000_000.0
"""When the record was written, by the store."""
TIMING = Timing(
    LeaseSettings(validity=20.0, safety_margin=2.0, max_clock_skew=2.0, poll_interval=1.0), resolution=1.0
)
SLACK = 3.0
LEASE = 10.0
HUDI_LATE = hudi_record(T + 60.0)
HUDI_SOON = hudi_record(T + 5.0)


def see(
    record: bytes | None,
    *,
    at: float | None = None,
    last_modified: float | None = T,
    version: str = "v1",
    by_wall: bool = True,
    usable: bool = True,
    monotonic: float = 0.0,
) -> Seen:
    """Return what an answer with Date ``at`` shows; None: it has no Date."""
    now = ClockReading(monotonic, monotonic, T + monotonic)
    date = None if at is None else Date(at, now, now, usable, by_wall)
    parsed = None if record is None else parse_record(record)
    return Seen(parsed, None if record is None else version, last_modified, date, now)


def ours(**fields: object) -> bytes:
    """Return a record of ours written at ``T``."""
    return our_record(**({"valid_until": T + 13.0} | fields))  # type: ignore[arg-type]


FREE = {
    "no object": (None, T, T, True),
    "released": (ours(expired=True), T, T, True),
    "released, no Date": (ours(expired=True), None, T, True),
    "released by Hudi": (hudi_record(T + 60, expired=True), None, None, True),
    "ours, at its expiry": (ours(), T + LEASE + SLACK, T, False),
    "ours, past its expiry": (ours(), T + LEASE + SLACK + 0.001, T, True),
    "ours, no last_modified": (ours(), T + 1000, None, False),
    "ours, no Date": (ours(), None, T, False),
    "ours, validUntil is long past": (ours(valid_until=T - 5), T + LEASE + SLACK - 1, T, False),
    "ours, dated before it can have been sent": (ours(valid_until=T + 19.1), T + 1000, T, False),
    "ours, dated as early as can be": (ours(valid_until=T + 19.0), T + 1000, T, True),
    "Hudi, validUntil decides": (HUDI_LATE, T + 60.5 + SLACK, T, False),
    "Hudi, past validUntil": (HUDI_LATE, T + 60.5 + SLACK + 0.001, T, True),
    "Hudi, our validity decides": (HUDI_SOON, T + 20 + SLACK, T, False),
    "Hudi, past our validity": (HUDI_SOON, T + 20 + SLACK + 0.001, T, True),
    "Hudi, no last_modified, seen once": (HUDI_SOON, T + 1000, None, False),
}


def record(body: bytes) -> LockRecord:
    """Return what the bytes say."""
    return parse_record(body)


@pytest.mark.parametrize(("record", "at", "last_modified", "free"), FREE.values(), ids=FREE.keys())
def test_when_a_lock_is_free(
    record: bytes | None, at: float | None, last_modified: float | None, *, free: bool
) -> None:
    """A lock is free past its expiry by the Date of the very answer, with all slack on top."""
    seen = see(record, at=at, last_modified=last_modified)
    observation = Observation()
    observation.note(seen)

    assert judge(seen, observation, TIMING).free is free


@pytest.mark.parametrize(
    ("record", "at", "free"),
    [
        (HUDI_SOON, T + 20 + SLACK, False),
        (HUDI_SOON, T + 20 + SLACK + 0.001, True),
        (HUDI_LATE, T + 60.5 + SLACK, False),
        (HUDI_LATE, T + 60.5 + SLACK + 0.001, True),
        (ours(), T + 1000, False),
    ],
    ids=["within our validity", "past it", "within validUntil", "past it too", "ours is observed"],
)
def test_without_last_modified_a_hudi_record_counts_from_the_date_it_was_first_seen_by(
    record: bytes, at: float, *, free: bool
) -> None:
    """It was written before, so a dead Hudi holder on such a store is replaced all the same."""
    observation = Observation()
    for date in (None, T, T + 1, at):
        seen = see(record, at=date, last_modified=None)
        observation.note(seen)

    assert judge(seen, observation, TIMING).free is free


def test_a_date_without_the_wall_clock_as_witness_does_not_count_as_first() -> None:
    """Where Dates may all be wrong, counting begins with the first that this machine's clock confirms."""
    observation = Observation()
    observation.note(see(HUDI_SOON, at=T - 1000, last_modified=None, by_wall=False))
    observation.note(see(HUDI_SOON, at=T, last_modified=None))
    seen = see(HUDI_SOON, at=T + 20 + SLACK, last_modified=None)
    observation.note(seen)

    assert not judge(seen, observation, TIMING).free


def test_another_version_is_first_seen_anew() -> None:
    """A Hudi writer that renews is not counted from the record before."""
    observation = Observation()
    observation.note(see(HUDI_SOON, at=T, last_modified=None, version="v1"))
    seen = see(HUDI_SOON, at=T + 1000, last_modified=None, version="v2")
    observation.note(seen)

    assert not judge(seen, observation, TIMING).free


@pytest.mark.parametrize("record", [ours(), HUDI_SOON], ids=["ours", "Hudi"])
def test_only_a_date_with_the_wall_clock_as_witness_frees(record: bytes) -> None:
    """A Date that only other Dates confirm may be published, but does not free a lock."""
    seen = see(record, at=T + 1000, by_wall=False)
    observation = Observation()
    observation.note(seen)

    assert not judge(seen, observation, TIMING).free


@pytest.mark.parametrize(
    ("lease_ms", "lasting"), [(10_000, 20.0), (30_000, 30.0)], ids=["its lease is shorter", "longer"]
)
def test_our_record_seen_unchanged_for_the_longer_validity_is_free(lease_ms: int, lasting: float) -> None:
    """A whole observation of max(leaseMs, L) frees a record of asynclock without any Date."""
    observation = Observation()
    record = ours(lease_ms=lease_ms)
    for monotonic, free in ((100.0, False), (100 + lasting - 0.01, False), (100 + lasting, True)):
        seen = see(record, monotonic=monotonic)
        observation.note(seen)
        assert judge(seen, observation, TIMING).free is free


def test_an_observation_starts_again_with_another_version() -> None:
    """A renewal in between starts the count again."""
    observation = Observation()
    for version, monotonic in (("v1", 0.0), ("v2", 19.0), ("v2", 38.9)):
        seen = see(ours(), version=version, monotonic=monotonic)
        observation.note(seen)
        assert not judge(seen, observation, TIMING).free


def test_an_observation_is_of_the_version_judged() -> None:
    """A long observation of one version frees no other."""
    observation = Observation()
    observation.note(see(ours(), version="v1", monotonic=0.0))
    observation.note(see(ours(), version="v1", monotonic=50.0))

    assert not judge(see(ours(), version="v2", monotonic=50.0), observation, TIMING).free


def test_our_record_is_freed_by_observation_even_where_dates_were_usable() -> None:
    """Observation always holds for records of our own."""
    observation = Observation()
    for monotonic in (0.0, 20.0):
        seen = see(ours(), at=T + monotonic, last_modified=None, monotonic=monotonic)
        observation.note(seen)

    assert judge(seen, observation, TIMING).free


@pytest.mark.parametrize(
    ("record", "last_modified", "lasting"),
    [(HUDI_LATE, T, 60.5 + SLACK), (HUDI_SOON, T, 20.0), (HUDI_LATE, None, 20.0)],
    ids=["its promise is longer than L", "shorter", "not known from when"],
)
def test_hudis_record_is_observed_without_dates_for_what_it_promises(
    record: bytes, last_modified: float | None, lasting: float
) -> None:
    """Where no Date was usable all through, a Hudi record is free after its own time, and after L."""
    observation = Observation()
    for monotonic, free in ((0.0, False), (lasting - 0.001, False), (lasting, True)):
        seen = see(record, monotonic=monotonic, last_modified=last_modified)
        observation.note(seen)
        assert judge(seen, observation, TIMING).free is free


def test_one_usable_date_spoils_the_observation_of_hudis_record() -> None:
    """With a Date to judge by, Hudi's validUntil must have passed."""
    observation = Observation()
    for monotonic, at in ((0.0, None), (10.0, T + 10), (64.0, None)):
        seen = see(HUDI_LATE, monotonic=monotonic, at=at)
        observation.note(seen)

    assert not judge(seen, observation, TIMING).free


def test_an_unusable_date_does_not_spoil_the_observation_of_hudis_record() -> None:
    """A Date without a witness decides nothing, this neither."""
    observation = Observation()
    for monotonic in (0.0, 60.5 + SLACK):
        seen = see(HUDI_LATE, monotonic=monotonic, at=T + 9_999, usable=False, by_wall=False)
        observation.note(seen)

    assert judge(seen, observation, TIMING).free


def test_the_wait_leads_just_past_the_expiry() -> None:
    """The next look comes when a Date, cut short by up to R, must lie past the expiry."""
    seen = see(ours(), at=T + 4.0)
    observation = Observation()
    observation.note(seen)

    verdict = judge(seen, observation, TIMING)

    assert verdict.remaining == pytest.approx(LEASE + SLACK - 4.0)
    assert verdict.wait == pytest.approx(LEASE + SLACK - 4.0 + 1.0)


def test_remaining_is_negative_once_others_may_take_over() -> None:
    """The status of an expired lock says for how long it has been so."""
    seen = see(ours(), at=T + 20.0)

    assert judge(seen, Observation(), TIMING).remaining == pytest.approx(-7.0)


def test_the_first_token_is_the_earliest_store_time_plus_resolution() -> None:
    """Without an object the token is ``lo + R``."""
    assert next_token(None, (T, T + 5), TIMING) == (T + 1.0) * 1e6


def test_a_token_is_one_above_its_predecessor_at_least() -> None:
    """A clock that goes back does not let tokens fall."""
    predecessor = record(ours(epoch=2_000_000_000_000_000))

    assert next_token(predecessor, (T, T + 5), TIMING) == 2_000_000_000_000_001


def test_a_token_follows_store_time() -> None:
    """Where store time is ahead of the last token, the new token is the earliest store time."""
    assert next_token(record(ours(epoch=5)), (T, T + 5), TIMING) == T * 1e6


def test_a_dropped_token_is_replaced_by_one_from_the_future() -> None:
    """After a Hudi writer the token is ``hi + S + R``, to be handed out when ``lo + R`` gets there."""
    assert next_token(record(hudi_record(T)), (T, T + 1), TIMING) == (T + 1 + SLACK) * 1e6


def test_without_dates_the_wall_clock_makes_the_first_token_only() -> None:
    """Creation takes the wall clock, a successor adds one, dropped fields are refused."""
    first = next_token_without_dates(None, T)
    later = next_token_without_dates(record(ours(epoch=7)), T)

    assert first == T * 1e6
    assert later == 8
    assert next_token_without_dates(record(hudi_record(T)), T) is None


def test_valid_until_is_published_late() -> None:
    """``validUntil`` is ``hi + S + L``, rounded up to a millisecond."""
    assert promise(T + 0.0001, TIMING) == math.ceil((T + 0.0001 + 2.0 + 20.0) * 1000)


@pytest.mark.parametrize(
    ("timing", "lease", "under_way"),
    [
        (Timing(SETTINGS, resolution=0.0), 30.0, 6.0),
        (Timing(SETTINGS, resolution=1.0), 5.0, 2.0),
        (Timing(replace(SETTINGS, max_clock_skew=0.2), resolution=0.0), 2.0, 1.0),
    ],
    ids=["a fifth of its lease", "skew and resolution", "a second"],
)
@pytest.mark.parametrize("early", [True, False])
def test_a_write_dated_before_it_was_sent_is_observed(
    timing: Timing, lease: float, under_way: float, *, early: bool
) -> None:
    """A record whose promise does not fit its ``last_modified`` is not judged by Dates (rule 8)."""
    modified = 1_700_000_000.0
    valid_until = modified + lease + 2 * timing.slack + under_way + (0.01 if early else -0.01)
    record = parse_record(our_record(valid_until=valid_until, lease_ms=round(lease * 1000)))
    now = ClockReading(0.0, 0.0, modified + 1000.0)
    seen = Seen(record, "v1", modified, Date(now.wall, now, now, usable=True, by_wall=True), now)
    observation = Observation()
    observation.note(seen)

    assert judge(seen, observation, timing).free is not early


def test_the_next_look_comes_at_the_end_of_the_observation() -> None:
    """Without Dates the wait lasts until the record has been seen unchanged for long enough."""
    record = parse_record(our_record(valid_until=1_700_000_013.0))
    observation = Observation()
    for monotonic in (0.0, 9.9):
        now = ClockReading(monotonic, monotonic, 0.0)
        seen = Seen(record, "v1", None, None, now)
        observation.note(seen)

    assert judge(seen, observation, kit.TIMING).wait == pytest.approx(0.1)


def test_a_usable_date_of_an_older_version_does_not_stop_an_observation() -> None:
    """Each version is observed by itself, so the next Hudi record can be freed without Dates (rule 8)."""
    observation = Observation()
    clock = ManualClock()
    now = ClockReading.now(clock)
    date = Date(now.wall, now, now, usable=True, by_wall=True)
    record = parse_record(hudi_record(now.wall))
    observation.note(Seen(record, "1", None, date, now))
    observation.note(Seen(record, "2", None, None, now))

    assert not observation.dated
