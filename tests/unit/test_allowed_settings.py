"""Under all allowed settings no published record is corrupt and no token falls (rules 4, 9 and 11)."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from asynclock import LeaseSettings
from asynclock.clock import Instant, StoreTime
from asynclock.errors import ConfigError
from asynclock.protocol.decisions import Token, next_token, promise
from asynclock.protocol.timing import Timing
from asynclock.record import LockRecord, parse_record
from asynclock.testing.clocks import EPOCH, ManualClock
from asynclock.testing.store import StoreProfile
from tests.unit.kit import STEADY, World, in_virtual_time

DAY = 86_400.0
WEEK = LeaseSettings(validity=7 * DAY, max_clock_skew=2.0)


@pytest.mark.parametrize("profile", [replace(STEADY, resolution=1.0)], ids=["whole seconds"])
@pytest.mark.parametrize("wall_error", [0.0, 2 * DAY, -2 * DAY])
def test_a_lease_of_a_week_is_no_corrupt_record(world: World, wall_error: float) -> None:
    """Neither while it is held nor after its release, whatever the wall clock of its holder says."""

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
        return Timing.of(LeaseSettings(validity=validity, max_clock_skew=skew), resolution=resolution)
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
    """For every lease, by any node, at any age of the last Date, and a reader at any other node."""
    timing = terms_of(validity, skew, resolution)
    if timing is None:
        return
    clock = ManualClock()
    time = StoreTime(skew=skew, resolution=resolution)
    sent = Instant.now(clock)
    clock.advance(trip * max(1.0, timing.slack))
    time.observe(clock.wall() + ahead * skew, sent=sent, arrived=Instant.now(clock))
    clock.advance(age)
    latest = time.latest(Instant.now(clock))
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

    def token(true: float, node: float, under_way: float) -> Token | None:
        date = true + node * skew
        return next_token(dropped, (date, date + resolution + under_way), timing)

    first = token(EPOCH, ahead, trip * max(1.0, timing.slack))
    second = token(EPOCH + validity + timing.slack, behind, 0.0)

    assert second is not None
    assert first is None or second.epoch >= first.epoch


@in_virtual_time
async def test_behind_a_hudi_writer_the_validity_must_cover_a_request_too(world: World) -> None:
    """Else a holder that dies while its token settles could be followed by a lower one: told at once."""
    world.put(LockRecord(expired=True, valid_until_ms=0, owner="hudi").encode())
    async with world.client(LeaseSettings(validity=2.4, max_clock_skew=2.0)) as client:
        with pytest.raises(ConfigError, match=r"1\.25 \* .* = 2\.5 s"):
            await client.lock("orders").acquire()

    assert [each.kind for each in world.writes()] == ["put"]


@pytest.mark.parametrize(
    "profile", [StoreProfile(latency=(0.01, 0.0), slow=0.0, last_modified=False)], ids=["no Last-Modified"]
)
@in_virtual_time
async def test_a_dead_hudi_holder_is_replaced_on_a_store_without_last_modified(world: World) -> None:
    """Counted from the Date by which its record was first seen."""
    async with world.client() as client:
        world.put(LockRecord(False, round((world.now + 5.0) * 1000), "dead").encode())
        began = world.now
        lease = await asyncio.wait_for(client.lock("orders").acquire(), 60.0)

        assert lease.held
        assert world.now - began > client.settings.validity
