"""What a client says of its locks in the log ``asynclock``, and how often."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

import asynclock
from asynclock import AccessDeniedError, AcquireTimeoutError, LockClient, sync
from asynclock._core.narration import Narrator, held_by, span
from asynclock._core.sparing import BURST
from asynclock.backend import Entry
from asynclock.events import Events
from asynclock.testing._clocks import VirtualClock
from asynclock.testing._faulty import Fault
from tests.unit.kit import ALWAYS, BELIEF, World, faulty, in_virtual_time, our_record, until_lost

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from asynclock.lease import Lease

URL = "sim://store/orders"


class Said:
    """The sentences of the log, each with its level and its time."""

    def __init__(self, world: World) -> None:
        self.lines: list[tuple[float, int, str]] = []
        self.world = world

    def note(self, record: logging.LogRecord) -> bool:
        """Take a record."""
        self.lines.append((self.world.loop.time(), record.levelno, record.getMessage()))
        return True

    def of(self, level: int) -> list[str]:
        """Return the sentences of one level, in order, and forget nothing."""
        return [line for _, each, line in self.lines if each == level]

    @property
    def warnings(self) -> list[str]:
        """Return what was warned of."""
        return self.of(logging.WARNING)

    @property
    def notes(self) -> list[str]:
        """Return what was said on level INFO."""
        return self.of(logging.INFO)


@pytest.fixture
def said(world: World) -> Iterator[Said]:
    """Return what the log ``asynclock`` says on level INFO and above."""
    said, logger = Said(world), logging.getLogger("asynclock")
    logger.addFilter(said.note)
    logger.setLevel(logging.INFO)
    yield said
    logger.setLevel(logging.NOTSET)
    logger.removeFilter(said.note)


async def stopped(task: asyncio.Task[Any]) -> None:
    """Cancel a task and wait for its end."""
    task.cancel()
    await asyncio.wait([task])


# The store fails.


@in_virtual_time
async def test_the_first_failed_round_is_a_warning_and_more_come_ever_more_rarely(
    world: World, said: Said
) -> None:
    """At once, after 5, 10, 20 s and so on, at last every five minutes; each names lock and reason."""
    async with world.client() as client:
        faulty(client).inject(Fault.UNAVAILABLE, times=ALWAYS)
        began = world.loop.time()
        acquiring = asyncio.create_task(client.lock("orders").acquire())
        await asyncio.sleep(1300.0)
        await stopped(acquiring)

    pauses = [at - began for at, _, _ in said.lines]
    assert pauses == pytest.approx([0, 5, 15, 35, 75, 155, 315, 615, 915, 1215], abs=5)
    assert all(line.startswith(f"{URL}: the store ") and "trying again" in line for line in said.warnings)
    assert "has failed for 20 min" in said.warnings[-1]
    assert said.notes == []


@in_virtual_time
async def test_the_end_of_a_fault_is_said_once(world: World, said: Said) -> None:
    """One INFO, once the store answers again; afterwards nothing."""
    async with world.client() as client:
        faulty(client).inject(Fault.UNAVAILABLE, times=20)
        async with client.lock("orders").hold():
            await asyncio.sleep(60.0)

    assert len(said.warnings) >= 1
    (note,) = said.notes
    assert note.startswith(f"{URL}: the store answers again, after ")


@in_virtual_time
async def test_many_locks_on_a_dead_store_are_one_line(world: World, said: Said) -> None:
    """The first one names its lock, the next ones say how many have the same."""
    async with world.client() as client:
        faulty(client).inject(Fault.UNAVAILABLE, times=10**9)
        tasks = [asyncio.create_task(client.lock(f"a/{number}").acquire()) for number in range(500)]
        await asyncio.sleep(12.0)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)

    first, second, *_ = said.warnings
    assert len(said.lines) <= 4
    assert first.startswith("sim://store/a/")
    assert " and 499 other locks: the store has failed for " in second


@in_virtual_time
async def test_a_new_reason_is_said_at_once(world: World, said: Said) -> None:
    """A store that fails in another way is news; one that only counts its requests is none."""
    events, _ = hearing(world)
    for number in range(20):
        detail = f"s3: get 'orders.json' failed: 503 SlowDown (request {number:X}A7); nothing was written"
        events.emit("acquire_failed", "orders.json", "", detail=detail, reason="BackendUnavailableError")
    detail = "s3: get 'orders.json' failed: connection refused; nothing was written"
    events.emit("acquire_failed", "orders.json", "", detail=detail, reason="BackendUnavailableError")

    assert [("SlowDown" in line, "refused" in line) for line in said.warnings] == [
        (True, False),
        (False, True),
    ]


@in_virtual_time
async def test_a_store_that_fails_every_other_time_is_no_flood(world: World, said: Said) -> None:
    """A fault that only seemed to have ended goes on, with its pauses."""
    events, _ = hearing(world)
    for _ in range(200):
        events.emit("acquire_failed", "orders.json", "", detail="it is busy")
        await asyncio.sleep(0.25)
        events.emit("renewed", "orders.json", "")
        await asyncio.sleep(0.25)

    assert len(said.warnings) == 5  # in 100 s
    assert len(said.notes) == 5


@in_virtual_time
async def test_calls_with_a_short_timeout_do_not_begin_again(world: World, said: Said) -> None:
    """A caller of acquire(timeout=1) again and again is not warned each time."""
    async with world.client() as client:
        faulty(client).inject(Fault.UNAVAILABLE, times=ALWAYS)
        for _ in range(20):
            with pytest.raises(AcquireTimeoutError):
                await client.lock("orders").acquire(timeout=1.0)
        assert len(said.warnings) <= 4
        assert "waiting at most 1 s" in said.warnings[0]
        faulty(client).calm()
        await (await client.lock("orders").acquire()).release()

    assert len(said.notes) == 1


# No answer.


def slow(client: LockClient, seconds: float) -> None:
    """Let one answer come so much later."""
    faulty(client).delay = (seconds, seconds)
    faulty(client).inject(Fault.SLOW)


@in_virtual_time
async def test_silence_is_said_after_two_seconds(world: World, said: Said) -> None:
    """Of any request for a lock; then the timeout is the reason, as of any fault."""
    settings = asynclock.LeaseSettings(validity=60.0)
    async with world.client(settings) as client:
        slow(client, 30.0)
        acquiring = asyncio.create_task(client.lock("orders").acquire())
        await asyncio.sleep(1.9)
        assert said.lines == []
        await asyncio.sleep(0.2)
        assert said.warnings == [f"{URL}: no answer from the store for 2 s [AL-032]"]
        await (await acquiring).release()

    assert [line.partition(": ")[2][:24] for line in said.warnings] == [
        "no answer from the store",
        "no answer from the store",
        "the store failed: simula",
    ]
    assert len(said.notes) == 1


@in_virtual_time
async def test_a_process_that_did_not_run_does_not_blame_the_store(world: World, said: Said) -> None:
    """A blocked event loop could not read the answer."""
    async with world.client(asynclock.LeaseSettings(validity=60.0)) as client:
        acquiring = asyncio.create_task(client.lock("orders").acquire())
        await asyncio.sleep(0.005)
        world.loop.now += 5.0
        await (await acquiring).release()

    assert said.lines == []


@in_virtual_time
async def test_a_listing_without_an_answer_is_said(
    world: World, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before its first object and between two of them; what its reader takes between them does not count."""

    async def listed(_: str) -> AsyncIterator[Entry]:
        for number in range(3):
            await asyncio.sleep(30.0 if number == 2 else 0.1)
            yield Entry(f"a/{number}.json", 10, None)

    async with world.client(asynclock.LeaseSettings(validity=300.0)) as client:
        monkeypatch.setattr(client.backend, "list", listed)
        found = client._core._objects.list("")
        assert (await anext(found)).key == "a/0.json"
        await asyncio.sleep(20.0)
        assert (await anext(found)).key == "a/1.json"
        assert said.lines == []
        assert (await anext(found)).key == "a/2.json"
        await found.aclose()

    assert said.warnings[0].startswith("sim://store/: no answer from the store for ")
    assert len(said.warnings) <= 3


@in_virtual_time
async def test_a_client_that_is_still_opened_does_not_blame_the_store(world: World, said: Said) -> None:
    """To import an SDK takes long on a busy machine, and nothing is sent before; but not forever."""
    async with world.client(asynclock.LeaseSettings(validity=300.0)) as client:
        slow(client, 40.0)
        client.backend.opening = True  # type: ignore[attr-defined]  as of a backend in the cloud
        acquiring = asyncio.create_task(client.lock("orders").acquire())
        await asyncio.sleep(9.0)
        assert said.lines == []
        await asyncio.sleep(3.0)
        await (await acquiring).release()

    assert said.warnings[0] == f"{URL}: no answer from the store for 10 s [AL-032]"


# Renewals and losses.


@in_virtual_time
async def test_failing_renewals_say_when_the_lease_will_be_lost(world: World, said: Said) -> None:
    """The first one, then more rarely, then the loss with its cause."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        faulty(client).inject(Fault.UNAVAILABLE, times=ALWAYS)
        await until_lost(lease)
        await asyncio.sleep(0.1)
        faulty(client).calm()

    first, second, loss = said.warnings
    assert first.startswith(f"{URL}: a renewal failed: ")
    assert "; unless one succeeds, the lease will be lost in 8 s, at " in first
    assert ": renewals have failed for 5 s: " in second
    assert loss.startswith(f"{URL}: the lease was lost after 9 s: its deadline passed ")
    assert "; the last renewal failed: " in loss
    assert loss.endswith(" that it protects, and acquire the lock again before you go on [AL-034]")


@in_virtual_time
async def test_a_renewal_that_works_again_is_said_once(world: World, said: Said) -> None:
    """With how long it had failed."""
    async with world.client() as client, client.lock("orders").hold():
        faulty(client).inject(Fault.UNAVAILABLE, times=4)
        await asyncio.sleep(BELIEF * 3)

    (note,) = [line for line in said.notes if "renewed again" in line]
    assert note.endswith(" of failures")
    assert len(said.warnings) == 1


@in_virtual_time
async def test_many_losses_at_once_are_all_told_but_not_each_in_a_line(world: World, said: Said) -> None:
    """Some by name, the others counted."""
    async with world.client() as client:
        leases = [await client.lock(f"a/{number}").acquire() for number in range(100)]
        faulty(client).inject(Fault.UNAVAILABLE, times=10**9)
        await asyncio.sleep(60.0)
        faulty(client).calm()

    assert not any(lease.held for lease in leases)
    losses = [line for line in said.warnings if "lost after" in line]
    (counted,) = [line for line in said.warnings if "leases lost as well" in line]
    assert len(losses) == BURST
    assert counted.startswith("leases lost as well: sim://store/a/")
    assert counted.endswith(" and 89 more; stop the work that they protect [AL-034]")


@in_virtual_time
async def test_what_was_only_counted_is_told_at_the_end_of_the_client(world: World, said: Said) -> None:
    """Nothing waits for a timer that never comes."""
    events, narrator = hearing(world)
    for number in range(20):
        events.emit("lost", f"a/{number}.json", "", 1, "broken", duration=1.0)
    narrator.close()

    assert len(said.warnings) == BURST + 1
    assert said.warnings[-1].startswith("leases lost as well: sim://store/a/8, ")
    assert said.warnings[-1].endswith(" and 9 more; stop the work that they protect [AL-034]")


@in_virtual_time
async def test_a_loss_is_said_in_full_after_many_waits(world: World, said: Said) -> None:
    """What is counted of one kind hides nothing of another."""
    events, _ = hearing(world)
    for number in range(100):
        events.emit("waiting", f"a/{number}.json", "them", 1, "them", remaining=5.0)
    events.emit("lost", "orders.json", "", 1, "it was broken by an operator", duration=1.0)

    (line,) = said.warnings
    assert line.startswith(f"{URL}: the lease was lost after 1 s: it was broken by an operator; stop ")


# Releases.


@in_virtual_time
async def test_a_release_in_the_background_is_narrated_to_its_end(world: World, said: Said) -> None:
    """That it goes on and when the lock is free at the latest; then how it ended."""
    events, _ = hearing(world)
    for name, end in (("a.json", "released"), ("b.json", "release_unconfirmed")):
        events.emit("release_pending", name, "", 1, "it is down", duration=1.0)
        await asyncio.sleep(3.0)
        events.emit("released" if end == "released" else "release_unconfirmed", name, "", 1)

    first, second, third = said.warnings
    assert first.startswith("sim://store/a: the store has not confirmed the release (it is down); it goes on")
    assert first.endswith("the lock is free in 10 s at the latest [AL-035]")
    assert second.startswith("sim://store/b: the store has not confirmed")
    assert third.startswith("sim://store/b: the store never confirmed the release; if it did not arrive")
    assert said.notes == ["sim://store/a: released, 3 s later"]


# Waits.


@in_virtual_time
async def test_a_wait_for_another_holder_is_one_line(world: World, said: Said) -> None:
    """Who holds the lock, since when and for how long at most; then that it was acquired."""
    world.put(our_record(valid_until=world.now + 20, lease_ms=20_000))
    async with world.client() as client:
        acquiring = asyncio.create_task(client.lock("orders").acquire(timeout=60))
        await asyncio.sleep(4.0)
        (note,) = said.notes
        await (await acquiring).release()

    assert note.startswith(f"waiting for {URL}, held by host:1:other since 2020-09-13 ")
    assert note.endswith(" for at most 21 s unless it is renewed, waiting at most 60 s [AL-030]")
    assert said.notes[-1].startswith(f"acquired {URL} after 2")
    assert said.warnings == []


@in_virtual_time
async def test_a_wait_for_another_of_the_same_client_is_said_too(world: World, said: Said) -> None:
    """A coroutine that never gives the lock back is found so. No store was asked, so there is no event."""
    async with world.client(holder="us") as client:
        lock = client.lock("orders")
        first = await lock.acquire()
        waiting = asyncio.create_task(lock.acquire(timeout=30))
        await asyncio.sleep(3.0)
        await first.release()
        await (await waiting).release()

    note, end = said.notes
    assert note.startswith(f"waiting for {URL}, held by us since ")
    assert note.endswith(" (0.0 s), waiting at most 30 s [AL-030]")
    assert end == f"acquired {URL} after 3 s"
    assert "waiting" not in world.told()


@in_virtual_time
async def test_one_try_waits_for_nothing(world: World, said: Said) -> None:
    """Its caller learns that others hold the lock."""
    world.put(our_record(valid_until=world.now + 1000, lease_ms=1_000_000))
    async with world.client() as client:
        assert await client.lock("orders").try_acquire() is None

    assert said.lines == []


@in_virtual_time
async def test_many_waits_are_no_flood(world: World, said: Said) -> None:
    """A few by name, the others counted; and a lock in great demand is no news each time."""
    events, narrator = hearing(world)
    for _ in range(3):
        for number in range(100):
            events.emit("waiting", f"a/{number}.json", "them", 1, "them", remaining=5.0)
        await asyncio.sleep(0.25)
    narrator.close()

    assert len(said.notes) == BURST + 1
    assert said.notes[-1].startswith("waiting as well for sim://store/a/8, ")
    assert said.notes[-1].endswith(" and 89 more [AL-030]")


# Leaders.


async def fail(_: Lease) -> None:
    """Fail as work does."""
    raise ValueError("a bug, s3://key:hush@bucket")


@in_virtual_time
async def test_work_of_a_leader_that_fails_is_a_warning(world: World, said: Said) -> None:
    """Nobody may await lead(): the log says that nobody leads, and why. Secrets stay out."""
    async with world.client() as client:
        leading = asyncio.create_task(client.lock("orders").lead(fail))
        await asyncio.wait([leading])
        assert isinstance(leading.exception(), ValueError)

    (line,) = said.warnings
    assert line.startswith(
        f"{URL}: the work of the leader failed: ValueError: a bug, s3://...@bucket; lead() "
    )
    assert "nobody leads from here until it is called again" in line


@in_virtual_time
async def test_a_leader_that_cannot_lead_is_a_warning(
    world: World, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where acquiring raises at once, as with a wrong key."""

    async def denied(key: str) -> NoReturn:
        raise AccessDeniedError(backend="s3", operation="get", key=key, detail="403 InvalidAccessKeyId")

    async with world.client() as client:
        monkeypatch.setattr(client.backend, "get", denied)
        leading = asyncio.create_task(client.lock("orders").lead(fail))
        await asyncio.wait([leading])
        assert leading.exception() is not None

    (line,) = said.warnings
    assert line.startswith(f"{URL}: lead() did not become the leader: AccessDeniedError: ")


@in_virtual_time
async def test_that_others_lead_is_no_fault(world: World, said: Said) -> None:
    """A timeout of lead() because of another leader is said on level INFO, and a cancellation not at all."""
    world.put(our_record(valid_until=world.now + 1000, lease_ms=1_000_000))
    async with world.client() as client:
        with pytest.raises(AcquireTimeoutError):
            await client.lock("orders").lead(fail, timeout=1.0)
        waiting = asyncio.create_task(client.lock("orders").lead(fail))
        await asyncio.sleep(1.0)
        await stopped(waiting)

    assert said.warnings == []
    assert [line for line in said.notes if "did not become the leader" in line]


@in_virtual_time
async def test_the_end_of_the_client_is_no_fault_of_its_leaders(world: World, said: Said) -> None:
    """A leader learns of the end by the loss alone; a candidate who waits to lead gets no warning."""

    async def work(_: Lease) -> None:
        await asyncio.sleep(1000.0)

    async with world.client() as other, world.client() as client:
        waits = other.lock("orders")
        leading = asyncio.create_task(client.lock("orders").lead(work))
        await asyncio.sleep(1.0)
        waiting = asyncio.create_task(waits.lead(work))
        await asyncio.sleep(1.0)
        await other.aclose()
        await client.aclose()
        await asyncio.wait([leading, waiting])
        assert leading.exception() is not None
        assert waiting.exception() is not None

    (line,) = said.warnings
    assert "the lease was lost after 2 s: the client was closed; " in line
    assert [note for note in said.notes if "did not become the leader" in note]


def test_a_leader_in_a_thread_is_as_loud(world: World, said: Said) -> None:
    """``asynclock.sync`` says the same."""

    def work(_: sync.Lease) -> None:
        raise ValueError("a bug")

    with sync.connect("memory://") as client, pytest.raises(ValueError, match="a bug"):
        client.lock("orders").lead(work)

    assert [line for line in said.warnings if "the work of the leader failed: ValueError: a bug" in line]
    assert world.journal == []


# The log.


@in_virtual_time
async def test_a_level_makes_it_quiet(world: World, said: Said) -> None:
    """``logging.getLogger("asynclock").setLevel(logging.ERROR)`` is all that it takes."""
    logging.getLogger("asynclock").setLevel(logging.ERROR)
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        faulty(client).inject(Fault.UNAVAILABLE, times=ALWAYS)
        await until_lost(lease)
        faulty(client).calm()

    assert said.lines == []


@in_virtual_time
async def test_raw_events_are_for_level_debug(world: World, said: Said) -> None:
    """Each sentence has the fields of its event, and so has the raw line."""
    records: list[logging.LogRecord] = []

    def keep(record: logging.LogRecord) -> bool:
        records.append(record)
        return True

    logger = logging.getLogger("asynclock")
    logger.addFilter(keep)
    try:
        logger.setLevel(logging.DEBUG)
        events, _ = hearing(world)
        events.emit("lost", "orders.json", "me", 7, "broken", duration=1.0)
    finally:
        logger.removeFilter(keep)

    assert [(each.levelname, vars(each)["asynclock.event"]) for each in records] == [
        ("DEBUG", "lost"),
        ("WARNING", "lost"),
    ]
    assert records[0].getMessage() == "lost orders owner=me token=7 broken"
    assert len(said.lines) == 2


@in_virtual_time
async def test_a_log_handler_that_exits_harms_nothing(world: World) -> None:
    """Whatever it raises, ``SystemExit`` included: the lease is renewed, lost and taken as without it."""

    def leave(_: logging.LogRecord) -> bool:
        raise SystemExit(3)

    logger = logging.getLogger("asynclock")
    logger.addFilter(leave)
    logger.setLevel(logging.INFO)
    try:
        async with world.client() as client:
            lease = await client.lock("orders").acquire()
            faulty(client).inject(Fault.UNAVAILABLE, times=ALWAYS)
            await until_lost(lease)
            await asyncio.sleep(0.1)
            assert "lost" in world.told()
            faulty(client).calm()
            await (await client.lock("orders").acquire()).release()
    finally:
        logger.removeFilter(leave)
        logger.setLevel(logging.NOTSET)


@in_virtual_time
async def test_no_timer_is_left_after_the_end_of_a_client(world: World, said: Said) -> None:
    """Also not after silence and after what was only counted."""
    async with world.client(asynclock.LeaseSettings(validity=60.0)) as client:
        slow(client, 30.0)
        acquiring = asyncio.create_task(client.lock("orders").acquire())
        await asyncio.sleep(2.5)
        await stopped(acquiring)
    events, narrator = hearing(world)
    for number in range(20):
        events.emit("lost", f"a/{number}.json", "", 1, "broken", duration=1.0)
    narrator.close()
    events.emit("lost", "orders.json", "", 1, "broken", duration=1.0)

    waiting = [each for _, _, each in world.loop._heap if not each.cancelled()]
    assert [each for each in waiting if "Narrator" in repr(each._callback)] == []
    assert said.lines


def test_a_program_without_logging_is_warned_too() -> None:
    """Python prints warnings to the standard error where nobody has set up a log."""
    program = (
        "import asyncio, asynclock\n"
        "async def main():\n"
        "    keys = dict(access_key_id='x', secret_access_key='y', region='us-east-1', allow_http=True)\n"
        "    keys['endpoint_url'] = 'http://127.0.0.1:9'\n"
        "    async with asynclock.connect('s3://locks', **keys) as client:\n"
        "        await client.lock('orders').acquire(timeout=5.0)\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False
    )

    first = done.stderr.splitlines()[0]
    assert first.startswith("s3://locks/orders: the store failed: ")
    assert "trying again, waiting at most " in first


# Words.


def test_who_holds_a_lock_is_one_phrase() -> None:
    """Whatever of it is known; a time of another day has its date."""
    assert held_by(holder=None, token=None, remaining=None, now=0.0) == "held by another"
    words = held_by(holder="host-7:4711:worker", token=1_000_000, remaining=4.2, now=90_001.0)
    assert words.startswith("held by host-7:4711:worker since 1970-01-01 ")
    assert words.endswith(" (25 h), for at most 4 s unless it is renewed")


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-1.0, "0.0 s"),
        (0.42, "0.4 s"),
        (43.4, "43 s"),
        (119.0, "119 s"),
        (2580.0, "43 min"),
        (18_000.0, "5 h"),
        (1e6, "12 days"),
    ],
)
def test_a_time_has_the_unit_that_tells_enough(seconds: float, words: str) -> None:
    """Nobody counts 2,580 seconds."""
    assert span(seconds) == words


def hearing(world: World) -> tuple[Events, Narrator]:
    """Return what takes the events of a client, and the narrator behind it."""
    clock = VirtualClock(world.loop)
    narrator = Narrator(url="sim://store", clock=clock)
    return Events(url="sim://store", validity=10.0, clock=clock, narrator=narrator), narrator
