"""``once``: of all callers one runs a job to its end in each period."""

from __future__ import annotations

import asyncio
import inspect
import time
from typing import TYPE_CHECKING

import orjson
import pytest

import asynclock
from asynclock import ConfigError, LeaseLostError, LeaseSettings, sync
from asynclock._core.protocol.belief import End
from asynclock._once import Periods
from asynclock.errors import BackendError, BackendUnavailableError, RecordCorruptError
from asynclock.testing._faulty import Fault
from asynclock.testing._store import StoreProfile
from tests.unit.kit import ALWAYS, SETTINGS, World, faulty, in_virtual_time

if TYPE_CHECKING:
    from asynclock._core.engine import LockEngine

EVERY = 60.0
SKEW = SETTINGS.max_clock_skew
MARK = "nightly.once"


class Job:
    """A job that counts its runs.

    Attributes:
        runs: When each began, in epoch seconds.
        done: How many came to their end.
    """

    def __init__(self, world: World, *, lasts: float = 1.0) -> None:
        self.runs: list[float] = []
        self.done = 0
        self._world = world
        self._lasts = lasts

    async def __call__(self, text: str = "result") -> str:
        """Run it."""
        self.runs.append(self._world.now)
        await asyncio.sleep(self._lasts)
        self.done += 1
        return text

    def by(self, client: asynclock.LockClient, *, wait: bool = False, every: float = EVERY) -> object:
        """Return it as decorated by a client."""

        @client.once("nightly", every=every, wait=wait)
        async def run(text: str = "result") -> str:
            """Run the job."""
            return await self(text)

        return run


async def into_period(world: World, seconds: float = 10.0) -> None:
    """Wait until a period began that many seconds ago."""
    await asyncio.sleep(seconds + EVERY - (world.now - seconds) % EVERY - seconds)


@in_virtual_time
async def test_many_machines_run_it_once_a_period(world: World) -> None:
    """All call at once, in three periods; what one returns is its result, and None the skips."""
    job, clients = Job(world), [world.client() for _ in range(5)]
    calls = [job.by(client) for client in clients]
    for _ in range(3):
        await into_period(world)
        results = await asyncio.gather(*(call("done") for call in calls))  # type: ignore[operator]
        assert sorted(map(str, results)) == ["None"] * 4 + ["done"]
        assert await calls[0]() is None  # type: ignore[operator]
    assert (len(job.runs), job.done) == (3, 3)
    assert len({at // EVERY for at in job.runs}) == 3
    for client in clients:
        await client.aclose()


@in_virtual_time
async def test_a_skip_is_one_request(world: World) -> None:
    """The mark alone says that a period is done."""
    async with world.client() as client:
        call = Job(world).by(client)
        await into_period(world)
        await call()  # type: ignore[operator]
        before = len(world.journal)
        assert await call() is None  # type: ignore[operator]
        assert [each.key for each in world.journal[before:]] == [MARK]


@in_virtual_time
async def test_a_run_that_fails_is_run_again(world: World) -> None:
    """An exception is that of the call, and the period is not done."""
    async with world.client() as client:
        fails = True

        @client.once("nightly", every=EVERY)
        async def job() -> int:
            if fails:
                raise KeyError
            return 3

        await into_period(world)
        with pytest.raises(KeyError):
            await job()
        assert world.store.body(MARK) is None
        fails = False
        assert await job() == 3
        assert await job() is None


@in_virtual_time
async def test_held_is_not_done(world: World) -> None:
    """Who waits takes the place of a run that dies; who does not wait skips, and may come again."""
    async with world.client() as other:
        dying = world.client()
        job = Job(world, lasts=30.0)
        await into_period(world, 2.0)
        run = asyncio.create_task(job.by(dying)())  # type: ignore[operator]
        await asyncio.sleep(1.0)
        assert await job.by(other)() is None  # type: ignore[operator]
        faulty(dying).inject(Fault.REQUEST_LOST, operation="put_if_match", times=ALWAYS)
        waiting = asyncio.create_task(job.by(other, wait=True)())  # type: ignore[operator]
        with pytest.raises(LeaseLostError):
            await run
        assert job.done == 0
        assert await waiting == "result"
        assert (len(job.runs), job.done) == (2, 1)
        await dying.aclose()


@in_virtual_time
async def test_who_waits_is_skipped_by_a_run_that_ends_well(world: World) -> None:
    """It looks at the mark again once it has the lock."""
    async with world.client() as one, world.client() as other:
        job = Job(world, lasts=5.0)
        await into_period(world)
        results = await asyncio.gather(job.by(one, wait=True)(), job.by(other, wait=True)())  # type: ignore[operator]
        assert sorted(map(str, results)) == ["None", "result"]
        assert job.done == 1


@pytest.mark.parametrize("nodes", [(0.0,), (-1.0, 0.0), (0.0, 0.9)], ids=str)
@pytest.mark.parametrize("walls", [(-0.9, 0.0, 0.9)], ids=str)
def test_at_the_end_of_a_period_clocks_agree(nodes: tuple[float, ...], walls: tuple[float, ...]) -> None:
    """Calls of all machines around the end of a period, by whatever clock: each of both is run once."""
    world = World(StoreProfile(latency=(0.01, 0.0), slow=0.0, nodes=nodes, resolution=1.0))

    async def play() -> None:
        job = Job(world, lasts=0.1)
        clients = [world.client(wall_error=each) for each in walls]
        calls = [job.by(client, wait=True) for client in clients]
        await into_period(world, 55.0)
        tasks = []
        for _ in range(40):
            tasks += [asyncio.create_task(call()) for call in calls]  # type: ignore[operator]
            await asyncio.sleep(0.25)
        await asyncio.gather(*tasks)
        assert len(job.runs) == 2
        assert job.runs[1] - job.runs[0] >= 4.0
        for client in clients:
            await client.aclose()

    world.loop.run_until_complete(play())
    world.loop.close()


@in_virtual_time
async def test_an_older_run_marks_nothing_over_a_newer_one(world: World) -> None:
    """A run whose lock was broken gets an error, and its mark is refused."""
    async with world.client() as one, world.client() as other:
        slow, quick = Job(world, lasts=1.0), Job(world, lasts=0.1)
        await into_period(world, 5.0)
        lock = other.lock("nightly")
        run = asyncio.create_task(slow.by(one)())  # type: ignore[operator]
        await asyncio.sleep(0.5)
        await lock.break_lock(await lock.status(), force=True)
        assert await quick.by(other)() == "result"  # type: ignore[operator]
        mark = world.store.body(MARK)
        with pytest.raises(LeaseLostError):
            await run
        assert world.store.body(MARK) == mark


@in_virtual_time
@pytest.mark.parametrize("fault", [Fault.REPLY_LOST, Fault.REQUEST_LOST, Fault.LATE])
async def test_a_mark_without_an_answer_is_read_back(world: World, fault: Fault) -> None:
    """The period is done once the call returns."""
    async with world.client() as client:
        call = Job(world).by(client)
        async with client.lock("nightly").hold():
            pass  # the next write that creates an object is that of the mark
        await into_period(world)
        faulty(client).inject(fault, operation="put_if_absent")
        assert await call() == "result"  # type: ignore[operator]
        assert await call() is None  # type: ignore[operator]


@in_virtual_time
async def test_a_job_that_is_done_is_marked_after_the_store_is_back(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """One read that fails does not make the next caller run it again; the log says what is waited for."""
    async with world.client() as client:
        job = Job(world)
        await into_period(world)

        async def work(text: str = "result") -> str:
            faulty(client).inject(Fault.UNAVAILABLE, operation="get", times=3)
            return await job(text)

        assert await client.once("nightly", every=EVERY)(work)() == "result"
        assert await job.by(client)() is None  # type: ignore[operator]

    assert job.done == 1
    assert caplog.text.count("the run is done, but the store did not take its mark") == 1


@in_virtual_time
async def test_another_period_length_counts_from_what_was_done(world: World) -> None:
    """Neither a shorter nor a longer period stops the job forever."""
    async with world.client() as client:
        job = Job(world)
        await into_period(world)
        assert await job.by(client)() == "result"  # type: ignore[operator]
        assert await job.by(client, every=3600.0)() is None or job.done == 2  # type: ignore[operator]
        await asyncio.sleep(3600.0)
        assert await job.by(client, every=3600.0)() == "result"  # type: ignore[operator]
        await asyncio.sleep(EVERY)
        assert await job.by(client)() == "result"  # type: ignore[operator]


@in_virtual_time
@pytest.mark.parametrize(
    "body",
    [b"{}", b"no json", b'{"period":"x","every":2}', b"[1]", orjson.dumps({"period": 10**9, "every": 60.0})],
)
async def test_a_mark_that_is_none_is_told(world: World, body: bytes) -> None:
    """Neither skipped in silence nor run: one from the far future would stop the job for years."""
    async with world.client() as client:
        job = Job(world)
        world.put(b'{"fencingToken":1}\n' + body, key=MARK)
        with pytest.raises(RecordCorruptError, match="mark"):
            await job.by(client)()  # type: ignore[operator]
        assert job.runs == []


@in_virtual_time
async def test_a_machine_that_has_to_learn_the_time_runs_nothing_that_is_done(world: World) -> None:
    """Its clock is wrong, and the Date that it knows too old to tell the period."""
    async with world.client(wall_error=3600.0) as wrong, world.client() as right:
        job = Job(world)
        await into_period(world)
        assert await job.by(wrong)() == "result"  # type: ignore[operator]
        await asyncio.sleep(20 * EVERY)
        await into_period(world)
        assert await job.by(right)() == "result"  # type: ignore[operator]
        mark = world.store.body(MARK)
        assert await job.by(wrong)() is None  # type: ignore[operator]
        assert world.store.body(MARK) == mark
        assert job.done == 2


@pytest.mark.parametrize("wait", [False, True])
def test_a_store_without_a_time_is_an_error(caplog: pytest.LogCaptureFixture, *, wait: bool) -> None:
    """No period is guessed, and nothing is run; the log says soon what is waited for."""
    world = World(StoreProfile(latency=(0.01, 0.0), slow=0.0, undated=1.0))

    async def play() -> None:
        async with world.client() as client:
            job = Job(world)
            with pytest.raises(BackendUnavailableError, match="none of 30 answers tells the time"):
                await job.by(client, wait=wait)()  # type: ignore[operator]
            assert (job.runs, world.writes()) == ([], [])
            assert "sim://store/nightly.once: the store failed: store: get" in caplog.messages[0]

    world.loop.run_until_complete(play())
    world.loop.close()


@in_virtual_time
async def test_a_store_that_fails_is_an_error_and_no_skip(world: World) -> None:
    """Nothing is skipped in silence."""
    async with world.client() as client:
        faulty(client).inject(Fault.UNAVAILABLE, times=ALWAYS)
        with pytest.raises(BackendError):
            await Job(world).by(client)()  # type: ignore[operator]


@pytest.mark.parametrize("every", [0, -1, 3, float("nan"), float("inf"), "60"], ids=repr)
def test_a_period_that_clocks_cannot_agree_on_is_refused(every: object) -> None:
    """Nine seconds at the least, with two seconds between any two clocks."""
    for connect in (asynclock.connect, sync.connect):
        with pytest.raises(ConfigError, match="9 s"):
            connect("memory://").once("nightly", every=every)  # type: ignore[arg-type]


async def nothing() -> None:
    """Do nothing."""


def test_the_wrong_kind_of_function_is_refused() -> None:
    """A coroutine that nobody awaits would be a run that never was."""
    with pytest.raises(ConfigError, match=r"asynclock\.sync"):
        asynclock.connect("memory://").once("nightly", every=EVERY)(lambda: None)  # type: ignore[arg-type, return-value]
    with pytest.raises(ConfigError, match="use asynclock"):
        sync.connect("memory://").once("nightly", every=EVERY)(nothing)
    job = asynclock.connect("memory://").once("nightly", every=EVERY)(nothing)
    assert (job.__name__, job.__doc__) == ("nothing", "Do nothing.")
    assert inspect.iscoroutinefunction(job)


def lose_in_the_second_look(patch: pytest.MonkeyPatch, engine: LockEngine) -> None:
    """Have the lease be lost while a call looks whether the period is still due."""
    due, looks = Periods.due, list[int | None]()

    async def look(self: Periods) -> int | None:
        looks.append(await due(self))
        if len(looks) == 2:
            assert engine.turns.held is not None
            engine.turns.held.belief.end(End.WITH_ANOTHER, "it was lost")
        return looks[-1]

    patch.setattr(Periods, "due", look)


@in_virtual_time
async def test_a_lease_that_is_lost_during_the_look_runs_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another may run it by then, so not even the first step is taken."""
    async with world.client() as client:
        job = Job(world)
        await into_period(world)
        lose_in_the_second_look(monkeypatch, client.lock("nightly")._engine)
        with pytest.raises(LeaseLostError):
            await job.by(client)()  # type: ignore[operator]
        assert job.runs == []


def test_a_thread_whose_lease_is_lost_during_the_look_runs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing can interrupt it once it runs."""
    with sync.connect("memory://") as client:
        runs = []
        lose_in_the_second_look(monkeypatch, client.lock("nightly")._engine)
        with pytest.raises(LeaseLostError):
            client.once("nightly", every=3600.0)(lambda: runs.append(True))()
        assert runs == []


def test_threads_run_it_once_as_well() -> None:
    """The twin for functions: an argument, a result, a skip, an error."""
    settings = LeaseSettings(validity=2.0, max_clock_skew=0.0)
    with sync.connect("memory://", settings=settings) as client:
        runs: list[str] = []

        @client.once("nightly", every=3600.0)
        def job(text: str) -> str:
            runs.append(text)
            if text == "fails":
                raise KeyError
            return text

        while time.time() % 3600.0 > 3590.0:
            time.sleep(0.5)
        with pytest.raises(KeyError):
            job("fails")
        lease = client.lock("nightly").acquire()
        assert job("held") is None
        lease.release()
        assert job("runs") == "runs"
        assert job("again") is None
        assert runs == ["fails", "runs"]
