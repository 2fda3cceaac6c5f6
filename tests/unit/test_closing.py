"""Closing a client: nothing is held and nothing touches the backend once any caller returns (rule 18)."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from asynclock import ConfigError, LeaseSettings, LockClient
from asynclock.testing.clocks import VirtualClock
from asynclock.testing.faulty import Fault, FaultyBackend
from tests.unit.kit import World, faulty, hudi_record, in_virtual_time, our_record

LONG = LeaseSettings(validity=100.0, max_clock_skew=1.0, poll_interval=0.25)
"""A request may take 20 s, an exit 2 s."""


class Watched(FaultyBackend):
    """Counts what is asked of it after it was closed.

    Attributes:
        closed: How often it was closed.
        late: The requests that came after.
    """

    closed = 0

    def __init__(self, world: World) -> None:
        super().__init__(world.store.backend(world.loop.world), clock=VirtualClock(world.loop))
        self.late: list[str] = []

    def _draw(self, operation: str) -> Fault | None:
        if self.closed:
            self.late.append(operation)
        return super()._draw(operation)

    async def aclose(self) -> None:
        """Note that it is closed."""
        self.closed += 1


def watched(world: World) -> tuple[LockClient, Watched]:
    """Return a client and the backend that watches over it."""
    backend = Watched(world)
    client = LockClient(
        url="sim://store",
        backend=backend,
        settings=LONG,
        renewal="loop",
        clock=VirtualClock(world.loop),
        rng=Random(1),
    )
    return client, backend


def when_it_hangs(world: World) -> None:
    """Let every request from now on get no answer."""
    world.store.cut_off.add(world.loop.world)


STATES = {
    "looking": None,
    "waiting behind another": lambda world: our_record(valid_until=world.now + 100),
    "free": lambda world: our_record(valid_until=world.now, expired=True),
    "behind a Hudi writer": lambda world: hudi_record(world.now, expired=True),
}


@pytest.mark.parametrize("state", STATES.values(), ids=STATES.keys())
@pytest.mark.parametrize("after", [0.0, 0.005, 0.015, 0.025, 0.035, 0.5])
@pytest.mark.parametrize("waiters", [1, 3])
def test_nothing_touches_the_backend_after_closing(
    world: World, state: object, after: float, waiters: int
) -> None:
    """An acquisition whose request hangs is ended with the client."""

    async def story() -> None:
        if state is not None:
            world.put(state(world))  # type: ignore[operator]
        client, backend = watched(world)
        acquiring = [asyncio.create_task(client.lock("orders").acquire()) for _ in range(waiters)]
        await asyncio.sleep(after)
        when_it_hangs(world)
        await client.aclose()

        assert all(task.done() for task in acquiring)
        assert all(isinstance(task.exception(), ConfigError | None) for task in acquiring)
        assert client._in_flight.pending == []
        await asyncio.sleep(100.0)
        assert backend.closed == 1
        assert backend.late == []

    world.loop.run_until_complete(story())


@in_virtual_time
async def test_every_caller_of_aclose_returns_when_nothing_is_held(world: World) -> None:
    """A second, concurrent one does not return while the first still releases."""
    client, backend = watched(world)
    lease = await client.lock("orders").acquire()
    backend.delay = (1.0, 1.0)
    backend.inject(Fault.SLOW, operation="put_if_match")
    ends: list[tuple[bool, int]] = []

    async def close() -> None:
        await client.aclose()
        ends.append((world.record().expired, backend.closed))

    await asyncio.gather(close(), close(), close())
    await close()

    assert not lease.held
    assert ends == [(True, 1)] * 4


@in_virtual_time
async def test_a_cancelled_aclose_closes_all_the_same(world: World) -> None:
    """The cancellation waits for its end, which is bounded."""
    client, backend = watched(world)
    _held = await client.lock("orders").acquire()
    backend.delay = (1.0, 1.0)
    backend.inject(Fault.SLOW, operation="put_if_match")
    closing = asyncio.create_task(client.aclose())
    await asyncio.sleep(0.5)
    closing.cancel()
    await asyncio.wait([closing])

    assert closing.cancelled()
    assert world.record().expired
    assert backend.closed == 1


@in_virtual_time
async def test_closing_is_bounded_where_nothing_answers(world: World) -> None:
    """By min(2 s, validity / 5), renewals and releases under way included."""
    client, backend = watched(world)
    _held = await client.lock("orders").acquire()
    when_it_hangs(world)
    began = world.now
    await client.aclose()

    assert world.now - began <= 2.0 + 0.1
    assert backend.closed == 1
    await asyncio.sleep(100.0)
    assert backend.late == []


@in_virtual_time
async def test_a_release_after_closing_says_what_happened(world: World) -> None:
    """The lease has been released with the client; a second release is no error."""
    client = world.client()
    lease = await client.lock("orders").acquire()
    await client.aclose()
    await lease.release()

    assert world.record().expired
    assert faulty(client).journal[-1].operation == "put_if_match"
