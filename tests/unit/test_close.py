"""Closing a client: nothing is held and nothing touches the backend once any caller returns (rule 18)."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING

import pytest

import asynclock
from asynclock import ConfigError, LeaseSettings, LockClient
from asynclock.testing._clocks import VirtualClock
from asynclock.testing._faulty import Fault, FaultyBackend
from tests.unit.kit import KEY, World, faulty, hudi_record, in_virtual_time, our_record, steps, while_renewing

if TYPE_CHECKING:
    from collections.abc import Callable

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
        assert client._core._objects.in_flight.pending == []
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
    lease = await client.lock("orders").acquire()
    when_it_hangs(world)
    began = world.now
    await client.aclose()

    assert world.now - began <= 2.0 + 0.1
    assert not lease.held
    assert backend.closed == 1
    await asyncio.sleep(100.0)
    assert backend.late == []


@in_virtual_time
async def test_a_release_after_closing_is_no_error(world: World) -> None:
    """The lease was released with the client; releasing it again changes nothing."""
    client = world.client()
    lease = await client.lock("orders").acquire()
    await client.aclose()
    await lease.release()

    assert world.record().expired
    assert faulty(client).journal[-1].operation == "put_if_match"


@in_virtual_time
async def test_closing_releases_what_is_held(world: World) -> None:
    """``aclose`` frees every lock of the client within the exit bound."""
    client = world.client()
    leases = [await client.lock(name).acquire() for name in ("a", "b", "c/d")]
    began = world.loop.time()
    await client.aclose()
    await client.aclose()

    assert world.loop.time() - began <= 2.0
    assert not any(lease.held for lease in leases)
    assert all(world.record(f"{name}.json").expired for name in ("a", "b", "c/d"))


@pytest.mark.parametrize(
    "call",
    [
        lambda client: client.lock("orders").acquire(),
        lambda client: client.lock("orders").try_acquire(),
        lambda client: client.lock("orders").status(),
        lambda client: client.list(),
    ],
    ids=["acquire", "try_acquire", "status", "list"],
)
async def test_a_closed_client_says_so(call: Callable[[LockClient], object]) -> None:
    """After ``aclose`` every call is a ConfigError with the remedy."""
    client = asynclock.connect("memory://")
    await client.aclose()

    with pytest.raises(asynclock.ConfigError, match="closed; connect again"):
        await call(client)  # type: ignore[misc]


@in_virtual_time
async def test_a_waiter_does_not_outlive_its_client(world: World) -> None:
    """An acquisition that waits while its client is closed ends, and holds nothing later."""
    async with world.client() as holder:
        lease = await holder.lock("orders").acquire()
        client = world.client()
        waiter = asyncio.create_task(client.lock("orders").acquire())
        await asyncio.sleep(1.0)
        await client.aclose()
        await lease.release()
        await asyncio.sleep(3.0)

        assert waiter.done()
        with pytest.raises((asynclock.ConfigError, asyncio.CancelledError)):
            await waiter
        assert world.record().expired
        assert client._core._schedule.held == []


@in_virtual_time
async def test_closing_with_waiters_ends_every_wait(world: World) -> None:
    """``aclose`` frees the lock although many wait for a hand-off."""
    client = world.client()
    lock = client.lock("orders")
    _held = await lock.acquire()
    waiters = [asyncio.create_task(lock.acquire()) for _ in range(5)]
    await asyncio.sleep(0.1)
    await client.aclose()
    await asyncio.sleep(1.0)

    assert all(waiter.done() for waiter in waiters)
    await asyncio.gather(*waiters, return_exceptions=True)
    assert world.record().expired


@pytest.mark.parametrize("head_start", range(-3, 4))
@in_virtual_time
async def test_closing_while_a_lock_changes_hands_leaves_it_free(world: World, head_start: int) -> None:
    """However close ``aclose`` comes to a hand-off, the receiver fails and nobody renews the lock."""
    client = world.client()
    lease = await client.lock("orders").acquire()
    receiver = asyncio.create_task(client.lock("orders").acquire())
    await asyncio.sleep(0.5)

    async def close() -> None:
        await steps(head_start)
        await client.aclose()

    async def release() -> None:
        await steps(-head_start)
        await lease.release()

    _, _, received = await asyncio.gather(release(), close(), receiver, return_exceptions=True)
    await asyncio.sleep(1)

    assert isinstance(received, asynclock.ConfigError)
    assert world.record().expired


@in_virtual_time
async def test_closing_waits_for_a_release_under_way(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The backend is closed only once a release that somebody else has begun is answered."""
    client = world.client()
    free_when_closed: list[bool] = []

    async def aclose() -> None:
        free_when_closed.append(world.record().expired)

    monkeypatch.setattr(faulty(client), "aclose", aclose)
    lease = await client.lock("orders").acquire()
    release = asyncio.create_task(lease.release())
    await asyncio.sleep(0.005)

    await client.aclose()
    await release

    assert free_when_closed == [True]


@pytest.mark.parametrize("close_at", [0.01 * tick for tick in range(1, 13)])
@in_virtual_time
async def test_closing_leaves_no_acquisition_of_unknown_outcome(world: World, close_at: float) -> None:
    """Whenever ``aclose`` comes, an acquisition whose answer was lost is reaped before it ends."""
    client = world.client()
    faulty(client).inject(Fault.REPLY_LOST, operation="put_if_absent")
    acquiring = asyncio.create_task(client.lock("orders").acquire())
    await asyncio.sleep(close_at)

    await client.aclose()
    await asyncio.gather(acquiring, return_exceptions=True)

    assert world.store.body(KEY) is None or world.record().expired


@in_virtual_time
async def test_closing_waits_for_the_renewal_under_way(world: World) -> None:
    """``aclose`` sends its release when the renewal is answered, not beside it (rule 6)."""
    client = world.client()
    lease = await client.lock("orders").acquire()
    await while_renewing(lease)

    await client.aclose()

    assert world.record().expired
    assert all(each.applied for each in world.journal if each.kind.startswith("put"))
