"""The fine print: what a rule says of one awkward moment, and ends that come at a bad one."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import anyio
import pytest

import asynclock
import asynclock.client
from asynclock import LeaseLostError, LeaseSettings, LockClient, Written, sync
from asynclock.backends.memory import MemoryBackend
from asynclock.clock import Date, Instant
from asynclock.protocol.decisions import Observation, Seen
from asynclock.record import parse_record
from asynclock.testing.clocks import EPOCH, ManualClock
from asynclock.testing.faulty import Fault
from tests.unit.kit import (
    KEY,
    SETTINGS,
    STEADY,
    World,
    clock_of,
    faulty,
    hudi_record,
    in_virtual_time,
    our_record,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from asynclock.engine import LockEngine
    from asynclock.events import Event
    from asynclock.lease import Lease

FAST = LeaseSettings(validity=2.0, safety_margin=0.5, max_clock_skew=0.0)


@in_virtual_time
async def test_one_try_looks_where_only_its_own_release_is_remembered(world: World) -> None:
    """After another client's turn one try finds the lock free: a remembered version is no look."""
    mine, other = world.client().lock("orders"), world.client().lock("orders")
    for lock in (mine, other):
        await (await lock.acquire()).release()

    lease = await mine.try_acquire()

    assert lease is not None
    await lease.release()


@in_virtual_time
async def test_no_time_to_wait_is_enough_for_a_free_lock(world: World) -> None:
    """``acquire(timeout=0)`` too gets a lock that another client has used and released since."""
    mine, other = world.client().lock("orders"), world.client().lock("orders")
    for lock in (mine, other):
        await (await lock.acquire()).release()

    lease = await mine.acquire(timeout=0)

    assert lease.held
    await lease.release()


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


async def steps(count: int) -> None:
    """Let the loop run ``count`` times."""
    for _ in range(count):
        await asyncio.sleep(0)


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


@in_virtual_time
async def test_a_spent_record_of_ones_own_is_written_over_at_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer past the deadline makes a new attempt with a new token, no wait for oneself [7]."""
    client = world.client()
    create = faulty(client).put_if_absent

    async def answered_after_a_long_sleep(key: str, body: bytes) -> Written:
        written = await create(key, body)
        clock_of(client).step(20.0)
        return written

    monkeypatch.setattr(faulty(client), "put_if_absent", answered_after_a_long_sleep)

    lease = await client.lock("orders").acquire(timeout=1)

    tokens = [parse_record(each.body or b"").epoch for each in world.writes()]
    assert lease.fencing_token == tokens[1]
    assert tokens[0] is not None
    assert tokens[0] < lease.fencing_token
    await client.aclose()


@in_virtual_time
async def test_a_late_write_on_a_spent_record_of_ones_own_is_known(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write that lands late on the acquisition's own spent record does not lock it out of its lock."""
    client = world.client()
    backend = faulty(client)
    create = backend.put_if_absent

    async def answered_after_a_long_sleep(key: str, body: bytes) -> Written:
        written = await create(key, body)
        clock_of(client).step(20.0)
        return written

    monkeypatch.setattr(backend, "put_if_absent", answered_after_a_long_sleep)
    backend.delay = (0.02, 0.02)
    backend.inject(Fault.LATE, operation="put_if_match")
    world.loop.call_later(0.3, clock_of(client).step, -20.0)

    lease = await client.lock("orders").acquire(timeout=5)

    assert lease.held
    await client.aclose()


def test_a_listener_that_exits_ends_no_renewal() -> None:
    """``sys.exit`` in an events listener is logged; other leases live on and calls are answered."""

    def listener(event: Event) -> None:
        if event.kind == "released":
            raise SystemExit(3)

    with (
        sync.connect("memory://", settings=FAST, events=listener) as talkative,
        sync.connect("memory://", settings=FAST) as quiet,
        quiet.lock("orders").hold() as lease,
    ):
        talkative.lock("orders").acquire().release()

        lease.confirm()
        assert lease.held


@in_virtual_time
async def test_the_loss_is_told_though_another_callback_fails(world: World) -> None:
    """One watcher whose loop is closed does not keep the loss from the others."""
    told: list[LeaseLostError] = []
    gone = asyncio.new_event_loop()
    gone.close()
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        lease.watch(lambda loss: gone.call_soon_threadsafe(told.append, loss))
        lease.watch(told.append)
        await asyncio.sleep(0)

        await client.lock("orders").break_lock(await client.lock("orders").status(), force=True)
        await asyncio.sleep(2)

        assert told == [lease.lost]


def test_two_threads_that_name_a_lock_at_once_stand_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same name is the same waiting line, though both threads find it missing."""
    both_here = threading.Barrier(2, timeout=5)
    make = asynclock.client.LockEngine

    def made_at_once(**parts: object) -> LockEngine:
        both_here.wait()
        return make(**parts)  # type: ignore[arg-type]

    monkeypatch.setattr(asynclock.client, "LockEngine", made_at_once)
    client = asynclock.connect("memory://")
    cores: list[LockEngine] = []
    threads = [threading.Thread(target=lambda: cores.append(client.engine("orders"))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert cores[0] is cores[1]


@pytest.fixture
def survivor() -> Iterator[None]:
    """A program whose own handler outlives SIGHUP, with ours installed before it."""
    numbers = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
    before = [signal.getsignal(number) for number in numbers]
    signal.signal(signal.SIGHUP, lambda *_: None)
    asynclock.install_signal_handlers()
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


@pytest.mark.usefixtures("survivor")
@pytest.mark.parametrize("renewal", ["thread", "loop"])
async def test_a_signal_that_the_program_survives_is_a_loss(renewal: str) -> None:
    """The body of ``hold`` is cancelled and told: it does not go on without the lock, unknowing."""
    told = threading.Event()

    async def body(lease: Lease) -> None:
        lease.on_lost(lambda _: told.set())
        os.kill(os.getpid(), signal.SIGHUP)
        await asyncio.sleep(30)

    async with asynclock.connect("memory://", settings=FAST, renewal=renewal) as client:  # type: ignore[arg-type]
        with pytest.raises(LeaseLostError, match="signal"):
            async with client.lock("orders").hold() as lease:
                await body(lease)

        assert (await client.lock("orders").status()).state == "free"
    assert told.wait(5)


class SlowToFree(MemoryBackend):
    """Answers a replacement only after the loop has run a hundred times."""

    async def put_if_match(self, key: str, body: bytes, version: str) -> Written:
        """Replace an object; see ``Backend.put_if_match``."""
        await steps(100)
        return await super().put_if_match(key, body, version)


async def test_a_scope_that_cancels_again_and_again_wakes_a_release_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Under anyio's repeated cancellation the end of ``hold`` does not spin until the store answers."""
    waits = 0
    shield = asyncio.shield

    def counted(ended: asyncio.Future[None]) -> asyncio.Future[None]:
        nonlocal waits
        waits += 1
        return shield(ended)

    async with LockClient(url="memory://", backend=SlowToFree(), renewal="loop") as client:
        with anyio.CancelScope() as scope:
            async with client.lock("orders").hold():
                monkeypatch.setattr(asyncio, "shield", counted)
                scope.cancel()
                await asyncio.sleep(30)

        assert scope.cancelled_caught
    assert 0 < waits < 10


def refused(world: World) -> int:
    """Return how many writes the store refused."""
    return sum(each.kind.startswith("put") and not each.applied for each in world.journal)


async def while_renewing(lease: Lease) -> None:
    """Wait until a renewal of the lease is under way."""
    while not lease._held.renewing:  # noqa: ASYNC110  nothing tells of the sending
        await asyncio.sleep(0.001)


@in_virtual_time
async def test_a_release_waits_for_the_renewal_under_way(world: World) -> None:
    """A lease has one write at a time: the release is sent when the renewal is answered [6]."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        await while_renewing(lease)

        await lease.release()

        assert world.record().expired
        assert refused(world) == 0


@in_virtual_time
async def test_a_hand_off_waits_for_the_renewal_under_way(world: World) -> None:
    """The receiver writes over the renewal's record, not against it [6, 15]."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        receiver = asyncio.create_task(client.lock("orders").acquire())
        await while_renewing(lease)

        await lease.release()

        assert (await receiver).held
        assert refused(world) == 0


@in_virtual_time
async def test_a_renewal_answered_past_the_deadline_revives_nothing(world: World) -> None:
    """The old deadline decides, though nobody has looked at it and the store agrees [5]."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        faulty(client).storm({Fault.REQUEST_LOST: 1.0})
        await asyncio.sleep(7.9)
        faulty(client).calm()
        await while_renewing(lease)

        clock_of(client).step(1.5)
        await asyncio.sleep(0.1)

        assert isinstance(lease.lost, asynclock.LeaseExpiredError)


@in_virtual_time
async def test_a_renewal_that_landed_late_is_freed_by_the_release(world: World) -> None:
    """A release that finds the base gone frees the record that took its place, if that is its own [3]."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        faulty(client).delay = (0.05, 0.05)
        faulty(client).inject(Fault.LATE, operation="put_if_match")
        await asyncio.sleep(1.06)

        await lease.release()

        assert refused(world) == 1
        assert world.record().expired


@in_virtual_time
async def test_a_step_of_the_wall_clock_is_told_within_a_second(world: World) -> None:
    """Belief ended by a clock that no timer follows is found out long before the next renewal."""
    async with world.client(LeaseSettings(validity=300.0)) as client:
        began = world.now
        body = asyncio.create_task(hold_for(60, client))
        await asyncio.sleep(0.5)
        clock_of(client).step(400.0)

        with pytest.raises(LeaseLostError):
            await body
        assert world.now - began < 2


async def hold_for(seconds: float, client: LockClient) -> None:
    """Hold the lock for a while."""
    async with client.lock("orders").hold():
        await asyncio.sleep(seconds)


@in_virtual_time
async def test_an_acquisition_with_little_left_is_renewed_before_it_is_returned(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer so late that less than the renew interval is left: the lease is returned fresh [7].

    Its next renewal is due an interval later, as any other's.
    """
    client = world.client()
    create = faulty(client).put_if_absent

    async def answered_late(key: str, body: bytes) -> Written:
        written = await create(key, body)
        clock_of(client).step(8.5)
        return written

    monkeypatch.setattr(faulty(client), "put_if_absent", answered_late)

    lease = await client.lock("orders").acquire()

    assert lease.remaining() > 8
    assert len(world.writes()) == 2
    await asyncio.sleep(0.5)
    assert len(world.writes()) == 2
    await client.aclose()


@in_virtual_time
async def test_valid_until_never_falls_during_a_lease(world: World) -> None:
    """A node whose clock is behind does not shorten what was promised to Hudi's readers [4]."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        faulty(client).date_error = (0.9, 0.9)
        faulty(client).inject(Fault.STALE_DATE, operation="put_if_match")
        await lease.confirm()
        await lease.confirm()

        promised = [parse_record(each.body or b"").valid_until_ms for each in world.writes()]
        assert promised == sorted(promised)
        await lease.release()


@pytest.mark.parametrize("profile", [replace(STEADY, resolution=1.0)], ids=["whole seconds"])
@in_virtual_time
async def test_a_date_that_is_cut_short_shortens_no_promise(world: World) -> None:
    """With HTTP's whole seconds too, ``validUntil`` is L + S after the sending or later [4]."""
    await asyncio.sleep(0.9)
    async with world.client() as client:
        lease = await client.lock("orders").acquire()

        sent = EPOCH + world.writes()[-1].at - 0.01
        promised = world.record().valid_until_ms / 1000
        assert promised >= sent + SETTINGS.validity + SETTINGS.max_clock_skew
        await lease.release()


@in_virtual_time
async def test_a_token_from_the_future_is_in_no_free_record(world: World) -> None:
    """Who gives up the wait for its token drops it: at no instant can a successor build on it [11]."""
    world.put(hudi_record(world.now + 5, expired=True))
    async with world.client() as client:
        with pytest.raises(asynclock.AcquireTimeoutError):
            await client.lock("orders").acquire(timeout=0.3)
        await asyncio.sleep(5)

    for write in world.writes():
        record = parse_record(write.body or b"")
        if record.expired and record.epoch is not None:
            assert record.epoch <= (EPOCH + write.at) * 1e6


@in_virtual_time
async def test_a_reaper_leaves_no_token_from_the_future(world: World) -> None:
    """Nor does the free record that kills an acquisition of unknown outcome bear one [3, 11]."""
    world.put(hudi_record(world.now + 5, expired=True))
    client = world.client()
    faulty(client).inject(Fault.REQUEST_LOST, operation="put_if_match")
    acquiring = asyncio.create_task(client.lock("orders").acquire())
    while not faulty(client).applied:  # noqa: ASYNC110  nothing tells of the sending
        await asyncio.sleep(0.001)
    acquiring.cancel()
    await asyncio.sleep(3)

    assert world.writes()[-1].client != "stranger"
    assert world.record().epoch is None
    await client.aclose()


@in_virtual_time
async def test_a_date_of_more_than_ten_minutes_ago_makes_no_token(world: World) -> None:
    """After a long pause the remembered version is not written over: it is read first."""
    async with world.client() as client:
        await (await client.lock("orders").acquire()).release()
        await asyncio.sleep(601)
        before, began = len(world.journal), world.loop.time()

        lease = await client.lock("orders").acquire()

        assert [each.kind for each in world.journal[before:]] == ["get", "put_if_match"]
        assert world.journal[before].at - began < 0.1
        await lease.release()


@in_virtual_time
async def test_a_request_may_take_a_fifth_of_the_validity(world: World) -> None:
    """A store that does not answer costs one try L / 5, not more [5]."""
    client = world.client()
    world.store.cut_off.add(world.loop.world)
    began = world.now

    with pytest.raises(asynclock.BackendError):
        await client.lock("orders").try_acquire()

    assert world.now - began == pytest.approx(SETTINGS.validity / 5, abs=0.1)


@in_virtual_time
async def test_reaping_goes_on_for_the_validity_and_a_request(world: World) -> None:
    """As long as a zombie could matter, it is hunted; then no more requests [3]."""
    client = world.client()
    faulty(client).storm({Fault.UNAVAILABLE: 1.0})
    faulty(client).delay = (0.0, 0.0)
    faulty(client).inject(Fault.SLOW, operation="get")  # the one read that is answered
    with pytest.raises(asynclock.BackendError):
        await client.lock("orders").try_acquire()
    gave_up = world.now
    await asyncio.sleep(60)

    lasted = faulty(client).journal[-1].at - gave_up
    assert SETTINGS.validity * 1.1 < lasted < SETTINGS.validity * 1.5


@in_virtual_time
async def test_looks_at_a_held_lock_are_never_in_step(world: World) -> None:
    """A waiter looks after half to all of the poll interval, each time another share of it [13]."""
    world.put(our_record(valid_until=world.now + 1000, lease_ms=1_000_000))
    async with world.client() as client:
        with pytest.raises(asynclock.AcquireTimeoutError):
            await client.lock("orders").acquire(timeout=5)

    looks = [each.at for each in world.journal if each.kind == "get"]
    gaps = [after - before - 0.02 for before, after in pairwise(looks)]
    assert all(0.12 < gap < 0.26 for gap in gaps[:-1])
    assert len({round(gap, 3) for gap in gaps}) > len(gaps) / 2


def test_a_usable_date_of_an_older_version_does_not_stop_an_observation() -> None:
    """Whether Dates were usable is asked of each version anew: Hudi's next record can be freed [8]."""
    observation = Observation()
    clock = ManualClock()
    now = Instant.now(clock)
    date = Date(now.wall, now, now, usable=True, by_wall=True)
    record = parse_record(hudi_record(now.wall))
    observation.note(Seen(record, "1", None, date, now))
    observation.note(Seen(record, "2", None, None, now))

    assert not observation.dated


@pytest.mark.parametrize("failure", [asyncio.CancelledError, RuntimeError])
@in_virtual_time
async def test_a_failure_inside_of_the_sdk_costs_no_lease(
    world: World, monkeypatch: pytest.MonkeyPatch, failure: type[BaseException]
) -> None:
    """A cancellation that nobody sent, or a bug, is a request of unknown outcome; its text is not shown."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        replace_if_match = faulty(client).put_if_match

        async def failing(*_: object) -> Written:
            monkeypatch.setattr(faulty(client), "put_if_match", replace_if_match)
            raise failure("Authorization: secret")

        monkeypatch.setattr(faulty(client), "put_if_match", failing)
        with pytest.raises(asynclock.OutcomeUnknownError) as caught:
            await lease.confirm()
        await asyncio.sleep(20)

        assert lease.held
        assert "secret" not in str(caught.value)
        await lease.release()


def test_a_lock_that_comes_after_its_waiters_loop_was_closed_is_released() -> None:
    """A program that drops its event loop in the middle of a wait leaves no lock that is renewed for ever."""
    told: list[str] = []
    settled = threading.Event()

    def listen(event: Event) -> None:
        told.append(event.kind)
        if event.kind == "released":
            settled.set()

    with sync.connect("memory://dropped", settings=FAST) as holder:
        lease = holder.lock("orders").acquire()
        client = asynclock.connect("memory://dropped", settings=FAST, events=listen)
        loop = asyncio.new_event_loop()
        waiting = loop.create_task(client.lock("orders").acquire())
        loop.run_until_complete(asyncio.sleep(0.05))
        loop.close()
        lease.release()

        assert settled.wait(10 * FAST.validity)
        assert told[-2:] == ["acquired", "released"]
    waiting._log_destroy_pending = False  # type: ignore[attr-defined]  # dropped on purpose


@in_virtual_time
async def test_a_token_that_was_settled_stays_settled(world: World) -> None:
    """After a long lease without a Date of the last ten minutes the release keeps the token."""
    world.put(hudi_record(world.now, expired=True))
    lease = await world.client(LeaseSettings(validity=7200.0)).lock("orders").acquire()
    await asyncio.sleep(700.0)

    await lease.release()

    assert world.record().epoch == lease.fencing_token


@in_virtual_time
async def test_where_no_date_was_usable_a_second_passes_before_the_next_look(world: World) -> None:
    """Dates that agree with nobody's clock are not asked for again and again."""
    client = world.client(wall_error=3600.0)
    began = len(world.journal)
    with pytest.raises(asynclock.AcquireTimeoutError):
        await client.lock("orders").acquire(timeout=2.5)
    looks = [each.at for each in world.journal[began:] if each.kind == "get"]

    assert len(looks) >= 2
    assert all(later - earlier >= 1.0 for earlier, later in pairwise(looks))


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


@pytest.mark.filterwarnings("ignore:the lease on:ResourceWarning")
def test_a_release_on_a_loop_that_stopped_is_refused() -> None:
    """With renewal="loop" nothing waits for ever for an event loop that does not run any more."""
    client = asynclock.connect("memory://stopped", renewal="loop", settings=FAST)
    loop = asyncio.new_event_loop()
    lease = loop.run_until_complete(client.lock("orders").acquire())

    with pytest.raises(asynclock.ConfigError, match="does not run any more"):
        asyncio.run(lease.release())
    asyncio.run(client.aclose())

    loop.close()
    del lease
    gc.collect()  # asyncio.run leaves a cycle with the lease in it
