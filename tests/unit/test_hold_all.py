"""``hold_all``: several locks, all or none, in one order and within one deadline."""

# ruff: noqa: PT012  a loss is raised by the end of a body with several statements

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

import asynclock
from asynclock import AcquireTimeoutError, ConfigError, LeaseLostError, LeaseSettings, LockChangedError, sync
from asynclock._core.record import parse_record
from asynclock.testing._faulty import Fault
from tests.unit.kit import ALWAYS, SETTINGS, World, faulty, in_virtual_time

if TYPE_CHECKING:
    from collections.abc import Iterator

NAMES = ["c", "a", "b"]


def free(world: World) -> dict[str, bool]:
    """Return of each lock whether it is free."""
    bodies = {name: world.store.body(f"{name}.json") for name in NAMES}
    return {name: body is None or parse_record(body).expired for name, body in bodies.items()}


@in_virtual_time
async def test_leases_come_as_named_and_are_acquired_in_one_order(world: World) -> None:
    """The order of the names is that of the leases; the store sees another, the same for everybody."""
    async with world.client() as client:
        async with client.hold_all(NAMES) as leases:
            assert [lease.name for lease in leases] == NAMES
            assert all(lease.held for lease in leases)
            assert [each.key for each in world.writes()] == ["a.json", "b.json", "c.json"]
        assert all(free(world).values())
        async with client.hold_all([]) as leases:
            assert leases == []


@in_virtual_time
async def test_opposite_orders_never_wait_for_each_other(world: World) -> None:
    """Two that name the same locks in opposite orders both come through, again and again."""
    done = []

    async def work(names: list[str]) -> None:
        async with world.client() as client:
            for _ in range(5):
                async with client.hold_all(names):
                    await asyncio.sleep(0.5)
                done.append(names[0])

    async with asyncio.timeout(120.0):
        await asyncio.gather(work(["a", "b"]), work(["b", "a"]))
    assert sorted(done) == ["a"] * 5 + ["b"] * 5


@in_virtual_time
async def test_one_deadline_for_all_and_nothing_is_left(world: World) -> None:
    """The timeout counts for all together, the error names it, and what was acquired is released."""
    async with world.client() as client, world.client() as other:
        first, last = await other.lock("a").acquire(), await other.lock("c").acquire()
        asyncio.get_running_loop().call_later(3.0, lambda: tasks.append(asyncio.create_task(first.release())))
        tasks: list[asyncio.Task[None]] = []
        began = world.now
        with pytest.raises(AcquireTimeoutError, match=r"'c' was not acquired within 5 s"):
            async with client.hold_all(NAMES, timeout=5.0):
                pytest.fail("c is another's")
        assert 5.0 <= world.now - began <= 5.5
        assert free(world) == {"a": True, "b": True, "c": False}
        await last.release()


@in_virtual_time
async def test_an_error_at_one_releases_those_before(world: World) -> None:
    """Nothing after it is tried."""
    async with world.client() as client:
        world.put(b"no lock", key="b.json")
        with pytest.raises(asynclock.errors.RecordCorruptError):
            async with client.hold_all(NAMES):
                pytest.fail("b is corrupt")
        assert world.store.body("c.json") is None
        assert parse_record(world.store.body("a.json") or b"").expired


@in_virtual_time
@pytest.mark.parametrize("lost", [0, 1, 2])
async def test_the_loss_of_one_is_that_of_all(world: World, lost: int) -> None:
    """The body is cancelled once, the others are lost too, and then free at once."""
    cancelled = 0
    async with world.client() as client:
        lock = client.lock(NAMES[lost])
        with pytest.raises(LeaseLostError) as caught:
            async with client.hold_all(NAMES) as leases:
                await lock.break_lock(await lock.status(), force=True)
                try:
                    await asyncio.sleep(30.0)
                except asyncio.CancelledError:
                    cancelled += 1
                    assert [lease.held for lease in leases] == [False] * 3
                    await asyncio.sleep(3.0)  # would be cut off by a second cancellation
                    cancelled += 1
                    raise
        assert cancelled == 2
        assert caught.value is leases[lost].lost
        reasons = {lease.lost.reason for index, lease in enumerate(leases) if lease.lost and index != lost}
        assert reasons == {f"{NAMES[lost]!r}, which was held with it, was lost"}
        await asyncio.sleep(0.5)
        assert all(free(world).values())


@in_virtual_time
async def test_a_loss_while_it_waits_ends_the_wait(world: World) -> None:
    """What was acquired and is lost before the rest has come is a loss of the statement."""
    async with world.client() as client, world.client() as other:
        held = await other.lock("c").acquire()
        operator = other.lock("a")

        async def break_it() -> None:
            await asyncio.sleep(2.5)
            await operator.break_lock(await operator.status(), force=True)

        breaking = asyncio.create_task(break_it())
        with pytest.raises(LeaseLostError, match="'a'"):
            async with client.hold_all(NAMES, timeout=60.0):
                pytest.fail("c is another's")
        assert free(world) == {"a": True, "b": True, "c": False}
        await breaking
        await held.release()


@pytest.mark.parametrize("trouble", [7.9, 7.95, 8.0, 8.1, 8.2, 8.3, 8.35, 8.4])
@in_virtual_time
async def test_what_has_hardly_any_time_left_is_renewed_first(world: World, trouble: float) -> None:
    """The store fails while the second is acquired; the first is not handed out with what that has left."""
    async with world.client() as client:
        async with client.lock("z").hold():
            pass  # the store's time is known
        loop, backend = asyncio.get_running_loop(), faulty(client)
        loop.call_later(0.03, lambda: backend.inject(Fault.UNAVAILABLE, times=ALWAYS))
        loop.call_later(0.03 + trouble, backend.calm)
        async with client.hold_all(["a", "b"]) as leases:
            assert SETTINGS.renew_interval is not None
            assert min(lease.remaining() for lease in leases) > SETTINGS.renew_interval


@in_virtual_time
async def test_a_cancellation_from_outside_wins_and_releases_all(world: World) -> None:
    """At whatever step it comes."""
    async with world.client() as client:

        async def work() -> None:
            async with client.hold_all(NAMES):
                await asyncio.sleep(1.0)

        for steps in range(25):
            task = asyncio.create_task(work())
            await asyncio.sleep(steps * 0.01)
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled()
            await asyncio.sleep(0.2)
            assert all(free(world).values())


@in_virtual_time
async def test_leaving_takes_no_longer_than_with_one_lock(world: World) -> None:
    """The releases go side by side, also where the store does not answer."""
    async with world.client() as client:
        with pytest.raises(TimeoutError):
            async with client.hold_all([f"{each}" for each in range(8)]):
                faulty(client).inject(Fault.SLOW, operation="put_if_match", times=ALWAYS)
                began = world.now
                raise TimeoutError
        assert world.now - began <= 2.1


@in_virtual_time
async def test_an_error_of_the_body_is_raised_with_the_loss_as_a_note(world: World) -> None:
    """As with one lock."""
    async with world.client() as client:
        lock = client.lock("b")
        with pytest.raises(KeyError) as caught:
            async with client.hold_all(NAMES):
                await lock.break_lock(await lock.status(), force=True)
                raise KeyError
        assert any("'b'" in note for note in caught.value.__notes__)
        assert all(free(world).values())


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@in_virtual_time
async def test_a_body_that_is_dropped_releases_all(world: World) -> None:
    """Its coroutine is closed, as by a loop that ends."""
    async with world.client() as client:

        async def work() -> None:
            async with client.hold_all(NAMES):
                await asyncio.Event().wait()

        coroutine = work()
        task = asyncio.create_task(coroutine)
        await asyncio.sleep(1.0)
        assert not any(free(world).values())
        coroutine.close()
        await asyncio.sleep(1.0)
        assert all(free(world).values())
        task.cancel()


@pytest.mark.parametrize(
    ("names", "reason"),
    [(["a", "b", "a"], "'a'.*twice"), ("orders", "several"), (["a", "b.json"], "without .json"), ([3], "3")],
)
def test_bad_names_are_refused_without_io(names: list[str], reason: str) -> None:
    """A name that is there twice would wait for itself."""
    for connect in (asynclock.connect, sync.connect):
        with pytest.raises(ConfigError, match=reason):
            connect("memory://").hold_all(names)
        with pytest.raises(ConfigError, match="timeout"):
            connect("memory://").hold_all(["a"], timeout=-1)


@pytest.fixture
def blocking() -> Iterator[sync.LockClient]:
    """A blocking client of locks in memory."""
    settings = LeaseSettings(validity=2.0, max_clock_skew=0.0)
    with sync.connect("memory://", settings=settings) as client:
        yield client


def test_threads_hold_several_as_well(blocking: sync.LockClient) -> None:
    """In the order of the names; a timeout leaves nothing behind."""
    with blocking.hold_all(NAMES) as leases:
        assert [lease.name for lease in leases] == NAMES
        assert not [lease for lease in leases if not lease.held]
        with pytest.raises(AcquireTimeoutError, match=r"within 0.1 s"):
            thread_timeout(blocking)
    assert {status.state for status in blocking.list()} == {"free"}


def thread_timeout(client: sync.LockClient) -> None:
    """Try for the locks in another thread, which holds none of them."""
    errors: list[BaseException] = []

    def wait() -> None:
        try:
            with client.hold_all(["d", "a"], timeout=0.1):
                pass
        except AcquireTimeoutError as error:
            errors.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    thread.join()
    raise errors[0]


def test_a_loss_while_a_thread_waits_ends_the_wait(blocking: sync.LockClient) -> None:
    """What it has acquired and loses before the rest has come is a loss of the statement."""
    held, lock = blocking.lock("c").acquire(), blocking.lock("a")

    def break_it() -> None:
        while True:
            if (status := lock.status()).state == "held":
                with suppress(LockChangedError):  # it was renewed
                    lock.break_lock(status, force=True)
                    return
            time.sleep(0.01)

    breaking = threading.Thread(target=break_it)
    breaking.start()
    with pytest.raises(LeaseLostError, match="'a'"), blocking.hold_all(NAMES, timeout=60.0):
        pytest.fail("c is another's")
    breaking.join()
    held.release()
    assert {status.state for status in blocking.list()} == {"free"}


def test_a_thread_is_told_by_every_lease(blocking: sync.LockClient) -> None:
    """Nothing can interrupt its body, so whichever lease it asks says that one is lost."""
    lock = blocking.lock("b")
    with pytest.raises(LeaseLostError), blocking.hold_all(NAMES) as leases:
        lost = threading.Event()
        leases[0].on_lost(lambda _: lost.set())
        lock.break_lock(lock.status(), force=True)
        assert lost.wait(5.0)
        for lease in leases:
            with pytest.raises(LeaseLostError, match=r"'b'|broken"):
                lease.check()
    blocking.lock("a").acquire(timeout=2.0).release()
