"""What another thread does to a lease between two readings of a clock, and small guards of the protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asynclock import LeaseExpiredError, LeaseLostError
from asynclock._core.protocol.refusals import Refusals
from asynclock.clock import ClockReading
from asynclock.errors import PreconditionFailedError
from tests.unit.kit import BELIEF, World, in_virtual_time

if TYPE_CHECKING:
    from collections.abc import Callable

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


def loss(belief: Belief) -> LeaseLostError:
    """Return a loss that another thread finds."""
    return belief.tenure.error(LeaseLostError, "another thread")


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
    """It is no loss: belief has ended by the release."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        belief = lease._held.belief
        clock = belief._objects.clock
        overdue(belief)
        belief._objects.clock = Between(
            clock, lambda: belief._ends.append((ClockReading.now(clock), None)), monotonic=3
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
        belief._objects.clock = Between(clock, lambda: belief.end(loss(belief)), monotonic=2)

        assert not belief.stop()
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
