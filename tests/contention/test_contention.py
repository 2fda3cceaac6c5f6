"""Many contend for one lock that guards a plain list and a counter in a file: nothing is lost."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import uuid
from random import Random
from typing import TYPE_CHECKING, Literal

import pytest

import asynclock
from asynclock import Lease, LeaseSettings, sync

if TYPE_CHECKING:
    from pathlib import Path

COROUTINES = 300
THREADS = 200
PROCESSES = 8
TURNS = 12
SETTINGS = LeaseSettings(validity=20.0, max_clock_skew=0.0, poll_interval=0.05)


class Guarded:
    """What the lock guards; its updates are lost as soon as two are under way at once."""

    def __init__(self, folder: Path) -> None:
        self.tokens: list[int] = []
        self.inside = 0
        self.overlaps = 0
        self.file = folder / "counter"
        self.file.write_text("0")

    def enter(self, lease: asynclock.Lease | sync.Lease) -> int:
        """Begin an update: return what was read."""
        self.overlaps += self.inside
        self.inside += 1
        self.tokens = [*self.tokens, lease.fencing_token]
        return int(self.file.read_text())

    def leave(self, read: int) -> None:
        """End an update: write one more than was read."""
        self.file.write_text(str(read + 1))
        self.inside -= 1

    def assert_whole(self, count: int) -> None:
        """Check that ``count`` updates went one after the other, each under a higher token."""
        assert self.overlaps == 0
        assert int(self.file.read_text()) == count
        assert len(self.tokens) == count
        assert self.tokens == sorted(set(self.tokens))


@pytest.fixture(params=["memory", "file"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the URL of a fresh store of each kind that needs no server."""
    if request.param == "memory":
        return f"memory://{uuid.uuid4()}"
    return f"file://{tmp_path}/locks"


@pytest.mark.parametrize("renewal", ["thread", "loop"])
def test_coroutines_lose_nothing(url: str, renewal: Literal["thread", "loop"], tmp_path: Path) -> None:
    """300 coroutines of one client take the lock in turn."""
    guarded = Guarded(tmp_path)

    async def main() -> None:
        async with asynclock.connect(url, settings=SETTINGS, renewal=renewal) as client:

            async def work() -> None:
                async with client.lock("orders").hold() as lease:
                    read = guarded.enter(lease)
                    await asyncio.sleep(0)
                    guarded.leave(read)

            await asyncio.gather(*(work() for _ in range(COROUTINES)))

    asyncio.run(main())
    guarded.assert_whole(COROUTINES)


def in_threads(work: object) -> None:
    """Run ``work`` in 200 threads at once and raise what one of them raised."""
    errors: list[BaseException] = []
    gate = threading.Barrier(THREADS)

    def run() -> None:
        try:
            gate.wait()
            work()  # type: ignore[operator]
        except BaseException as error:  # noqa: BLE001  raised again below
            errors.append(error)

    threads = [threading.Thread(target=run) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def test_threads_lose_nothing(url: str, tmp_path: Path) -> None:
    """200 threads of one client take the lock in turn through ``asynclock.sync``."""
    guarded = Guarded(tmp_path)
    with sync.connect(url, settings=SETTINGS) as client:

        def work() -> None:
            with client.lock("orders").hold() as lease:
                guarded.leave(guarded.enter(lease))

        in_threads(work)

    guarded.assert_whole(THREADS)


def test_threads_with_loops_of_their_own_lose_nothing(url: str, tmp_path: Path) -> None:
    """200 threads, each with its own event loop, share one client with ``renewal="thread"``."""
    guarded = Guarded(tmp_path)
    client = asynclock.connect(url, settings=SETTINGS)

    async def hold() -> None:
        async with client.lock("orders").hold() as lease:
            read = guarded.enter(lease)
            await asyncio.sleep(0)
            guarded.leave(read)

    in_threads(lambda: asyncio.run(hold()))
    asyncio.run(client.aclose())
    guarded.assert_whole(THREADS)


@pytest.mark.parametrize("renewal", ["thread", "loop"])
def test_clients_lose_nothing(url: str, renewal: Literal["thread", "loop"], tmp_path: Path) -> None:
    """Five clients that know nothing of each other, eight coroutines in each."""
    guarded = Guarded(tmp_path)

    async def main() -> None:
        clients = [asynclock.connect(url, settings=SETTINGS, renewal=renewal) for _ in range(5)]

        async def work(client: asynclock.LockClient) -> None:
            async with client.lock("orders").hold() as lease:
                read = guarded.enter(lease)
                await asyncio.sleep(0.001)
                guarded.leave(read)

        await asyncio.gather(*(work(client) for client in clients for _ in range(8)))
        for client in clients:
            await client.aclose()

    asyncio.run(main())
    guarded.assert_whole(40)


@pytest.mark.parametrize("renewal", ["thread", "loop"])
def test_random_cancellations_leave_nothing(
    url: str, renewal: Literal["thread", "loop"], tmp_path: Path
) -> None:
    """Of 200 coroutines a third is cancelled anywhere; the others lose nothing, the lock ends free."""
    guarded = Guarded(tmp_path)
    rng = Random(7)
    done = 0

    async def main() -> None:
        nonlocal done
        async with asynclock.connect(url, settings=SETTINGS, renewal=renewal) as client:
            lock = client.lock("orders")

            async def work() -> None:
                nonlocal done
                async with lock.hold() as lease:
                    await asyncio.sleep(0)
                    guarded.leave(guarded.enter(lease))
                    done += 1

            tasks = [asyncio.create_task(work()) for _ in range(200)]
            for task in rng.sample(tasks, 70):
                await asyncio.sleep(rng.uniform(0, 0.002))
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

            assert {type(task.exception()) for task in tasks if not task.cancelled()} == {type(None)}
            assert (await lock.status()).state == "free"
            async with lock.hold(timeout=5):
                pass

    asyncio.run(main())
    assert done >= 130
    guarded.assert_whole(done)


WORKER = """
import pathlib, sys
from asynclock import LeaseSettings, sync
url, counter, log, turns = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])
settings = LeaseSettings(validity=20.0, max_clock_skew=0.0, poll_interval=0.05)
with sync.connect(url, settings=settings, fsync=False) as client:
    for _ in range(turns):
        with client.lock("orders").hold(timeout=60) as lease:
            read = int(counter.read_text())
            with open(log, "a") as file:
                file.write(f"{lease.fencing_token}\\n")
            counter.write_text(str(read + 1))
"""


def test_processes_lose_nothing(tmp_path: Path) -> None:
    """Eight processes on ``file://`` take the lock in turn."""
    counter, log = tmp_path / "counter", tmp_path / "tokens"
    counter.write_text("0")
    arguments = [f"file://{tmp_path}/locks", str(counter), str(log), str(TURNS)]
    workers = [
        subprocess.Popen([sys.executable, "-c", WORKER, *arguments], stderr=subprocess.PIPE, text=True)
        for _ in range(PROCESSES)
    ]
    for worker in workers:
        _, errors = worker.communicate()
        assert worker.returncode == 0, errors
    tokens = [int(line) for line in log.read_text().split()]

    assert int(counter.read_text()) == PROCESSES * TURNS
    assert len(tokens) == PROCESSES * TURNS
    assert tokens == sorted(set(tokens))


async def test_an_acquisition_that_waits_is_fair_across_the_client(url: str) -> None:
    """Of fifty waiters, the first to come is the first to hold."""
    order: list[int] = []
    async with asynclock.connect(url, settings=SETTINGS) as client:
        lease: Lease = await client.lock("orders").acquire()

        async def work(number: int) -> None:
            async with client.lock("orders").hold():
                order.append(number)

        tasks = []
        for number in range(50):
            tasks.append(asyncio.create_task(work(number)))
            await asyncio.sleep(0.002)
        await lease.release()
        await asyncio.gather(*tasks)

    assert order == list(range(50))
