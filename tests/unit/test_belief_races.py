"""What another thread does to a lease between two readings of a clock, and small guards of the protocol."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from asynclock import ConfigError, LeaseExpiredError
from asynclock._core.protocol.belief import End
from asynclock._core.protocol.refusals import Refusals
from asynclock._core.protocol.stake import _Reaped
from asynclock.clock import ClockReading
from asynclock.errors import PreconditionFailedError
from tests.unit.kit import BELIEF, KEY, World, faulty, in_virtual_time, steps

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

    from asynclock._core.inflight import InFlight, Unfreed
    from asynclock._core.protocol.belief import Belief
    from asynclock.clock import Clock


class Between:
    """A clock; another thread comes in at one of its readings.

    Args:
        clock: What it reads.
        does: What the other thread does.
        wall: At which reading of the wall clock, from 1; 0: of none.
        monotonic: At which of the monotonic one.
    """

    def __init__(
        self, clock: Clock, does: Callable[[], object], *, wall: int = 0, monotonic: int = 0
    ) -> None:
        self._clock = clock
        self._does = does
        self._at = {"wall": wall, "monotonic": monotonic}

    def _read(self, name: str) -> float:
        self._at[name] -= 1
        if self._at[name] == 0:
            self._does()
        seconds: float = getattr(self._clock, name)()
        return seconds

    def wall(self) -> float:
        """Read the wall clock."""
        return self._read("wall")

    def monotonic(self) -> float:
        """Read the monotonic clock."""
        return self._read("monotonic")

    def boot(self) -> float:
        """Read the boot clock."""
        return self._clock.boot()


def overdue(belief: Belief) -> None:
    """Have the deadline be over."""
    at = ClockReading.now(belief._objects.clock)
    belief.sent = ClockReading(at.monotonic - BELIEF, at.boot - BELIEF, at.wall - BELIEF)


@in_virtual_time
async def test_a_renewal_may_land_between_two_looks(world: World) -> None:
    """The lease goes on: its deadline was only just moved."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        belief = lease._held.belief
        clock = belief._objects.clock
        overdue(belief)
        belief._objects.clock = Between(clock, lambda: belief.extend(ClockReading.now(clock)), wall=1)

        assert belief.end_if_due() == BELIEF
        assert belief.since_end() == 0.0


@in_virtual_time
async def test_a_release_may_come_before_the_deadline_is_noticed(world: World) -> None:
    """It is not a loss: belief has ended by the release."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        belief = lease._held.belief
        clock = belief._objects.clock
        overdue(belief)
        belief._objects.clock = Between(
            clock, lambda: belief._ends.append((ClockReading.now(clock), End.RELEASE, None)), monotonic=3
        )

        assert belief.end_if_due() == 0.0
        assert belief.lost is None
        belief.close()  # as that release does


@in_virtual_time
async def test_a_loss_may_come_before_a_release(world: World) -> None:
    """Who releases learns that the lock was no longer held."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        belief = lease._held.belief
        clock = belief._objects.clock
        belief._objects.clock = Between(
            clock, lambda: belief.end(End.TAKEN_OVER, "another thread"), monotonic=2
        )

        assert not belief.end(End.RELEASE)
        assert belief.lost is not None
        belief._objects.clock = clock


@in_virtual_time
async def test_the_answer_of_a_renewal_comes_after_the_loss(world: World) -> None:
    """It revives nothing, and what was written must be freed."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        belief = lease._held.belief
        overdue(belief)
        before = belief.sent
        assert belief.end_if_due() == 0.0

        assert not belief.extend(ClockReading.now(belief._objects.clock))
        assert belief.sent is before
        assert isinstance(belief.lost, LeaseExpiredError)


@in_virtual_time
async def test_pauses_between_writes_are_forgotten_once_they_are_over(world: World) -> None:
    """Those of many keys; a pause that is not over stays."""
    async with world.client() as client:
        objects = client._core._objects
        objects._next_write |= {f"old-{number}": -1.0 for number in range(4096)} | {"late": 1e9}
        objects._note_write("new")

        assert set(objects._next_write) == {"late", "new"}


def test_a_weak_etag_is_named_as_the_cause() -> None:
    """No If-Match matches it."""
    refusals = Refusals()
    refusals.note(('W/"1"', None), ('W/"1"', None))
    refused = PreconditionFailedError(backend="s3", operation="put", key="k", detail="412")

    assert "the ETag is weak" in str(refusals.error(refused, url="s3://b"))


@in_virtual_time
async def test_what_is_no_lock_is_written_as_a_lock_is(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """To a store that was tried out, and no faster than the store takes writes."""
    async with world.client() as client:
        objects, loop = client._core._objects, asyncio.get_running_loop()
        tried: list[str] = []

        async def place() -> None:
            tried.append("tried")

        monkeypatch.setattr(faulty(client), "place", place, raising=False)
        monkeypatch.setattr(faulty(client), "min_write_interval", 2.0)
        objects.verifier.needed = True
        await objects.put("slots", b"1", None)
        began = loop.time()
        await objects.put("slots", b"2", world.journal[-1].version)

        assert tried == ["tried"]
        assert loop.time() - began > 1.9
        assert world.store.body("slots") == b"2"


@in_virtual_time
async def test_a_closed_client_sends_nothing_more(world: World) -> None:
    """What asks too late learns why."""
    async with world.client() as client:
        await client.lock("orders").status()
    sent = len(world.journal)

    with pytest.raises(ConfigError, match="closed"):
        await client._core._objects.read(KEY)
    assert len(world.journal) == sent


@in_virtual_time
async def test_what_waits_for_the_end_of_a_lock_that_has_ended_runs_at_once(world: World) -> None:
    """Nothing would call it later."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        await lease.release()
        ran: list[str] = []
        lease._held.ending.then(lambda: ran.append("after"))

        assert ran == ["after"]


@in_virtual_time
async def test_an_exit_writes_nothing_for_a_lock_that_was_lost_before(world: World) -> None:
    """No renewal is under way, so nothing of it can land."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        overdue(lease._held.belief)
        assert not lease.held
        sent = len(world.journal)
        await lease._held.release.free_through(client._core._objects)

        assert len(world.journal) == sent


async def cut(in_flight: InFlight, freeing: Coroutine[Any, Any, Any], record: Unfreed) -> None:
    """Cancel what frees a record, as a loop that ends does: the exit must find it."""
    task = in_flight.spawn(freeing)
    await steps(2)
    task.cancel()
    await asyncio.wait([task])

    assert task.cancelled()
    assert in_flight.unfreed == [record]


@in_virtual_time
async def test_a_release_whose_loop_ends_is_left_to_the_exit(world: World) -> None:
    """It frees the lock through another loop."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        release, objects = lease._held.release, client._core._objects
        await cut(objects.in_flight, release._free_in_background(), release)
        assert not world.record().expired
        await release.free_through(objects)

        assert world.record().expired
        assert not objects.in_flight.unfreed


@in_virtual_time
async def test_what_an_acquisition_left_is_freed_by_the_exit_too(world: World) -> None:
    """The same of a write that made no lease."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        held, objects = lease._held, client._core._objects
        reaped = _Reaped(objects, KEY, held.claim, held.tenure.head)
        await cut(objects.in_flight, reaped.run(), reaped)
        assert not world.record().expired
        await reaped.free_through(objects)

        assert world.record().expired
        assert not objects.in_flight.unfreed
