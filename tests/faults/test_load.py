"""Hundreds contend for one lock on each real server, and nothing is lost or left."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import uuid
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import asynclock
from asynclock import LeaseSettings, sync

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.laboratory.servers import Server

COROUTINES = 500
THREADS = 200
CLIENTS, EACH = 20, 25
PATIENCE = 110.0
# The servers are one node each.
SETTINGS = LeaseSettings(validity=30.0, max_clock_skew=1.0, poll_interval=0.1)


class Counter:
    """A list and a file, both read and written without care: only the lock keeps them right."""

    def __init__(self, path: Path) -> None:
        self.numbers: list[int] = []
        self._path = path
        self._inside = 0
        path.write_text("0")

    def add(self) -> None:
        """Add one to the file, and to the list what the file said."""
        assert self._inside == 0, "two holders at once"
        self._inside += 1
        number = int(self._path.read_text()) + 1
        self._path.write_text(str(number))
        self.numbers.append(number)
        self._inside -= 1

    async def add_slowly(self) -> None:
        """Add one, with a gap in which anyone else could get in."""
        number = len(self.numbers) + 1
        await asyncio.sleep(0)
        await asyncio.to_thread(self.add)
        assert self.numbers[-1] == number


@pytest.fixture
def counter(tmp_path: Path) -> Counter:
    """Return a counter at zero."""
    return Counter(tmp_path / "counter")


@pytest.fixture
async def nothing_left() -> AsyncIterator[None]:
    """Fail where a task or a descriptor of the test is left after it."""
    await asyncio.to_thread(lambda: None)  # the executor's threads are not of the test
    tasks, descriptors = len(asyncio.all_tasks()), await asyncio.to_thread(_descriptors)
    yield
    await asyncio.sleep(0.1)  # transports close one turn of the loop after their streams
    gc.collect()
    assert len(asyncio.all_tasks()) == tasks
    assert await asyncio.to_thread(_descriptors) <= descriptors


def _descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


@pytest.mark.usefixtures("nothing_left")
async def test_500_coroutines_of_one_client(any_server: Server, counter: Counter) -> None:
    """500 coroutines take their turn at one lock of one client."""
    async with asynclock.connect(
        f"{any_server.url}/load", settings=SETTINGS, renewal="loop", **any_server.options
    ) as client:
        lock = client.lock(f"coroutines-{uuid.uuid4()}")

        async def work() -> None:
            async with lock.hold(timeout=PATIENCE):
                await counter.add_slowly()

        await asyncio.gather(*(work() for _ in range(COROUTINES)))

    assert counter.numbers == list(range(1, COROUTINES + 1))


@pytest.mark.usefixtures("nothing_left")
async def test_20_clients_of_25_coroutines(cloud: Server, counter: Counter) -> None:
    """20 clients with sessions of their own share one lock fairly enough that all 500 get it."""
    name = f"clients-{uuid.uuid4()}"
    async with AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(
                asynclock.connect(f"{cloud.url}/load", settings=SETTINGS, renewal="loop", **cloud.options)
            )
            for _ in range(CLIENTS)
        ]

        async def work(client: asynclock.LockClient) -> None:
            async with client.lock(name).hold(timeout=PATIENCE):
                await counter.add_slowly()

        await asyncio.gather(*(work(client) for client in clients for _ in range(EACH)))

    assert counter.numbers == list(range(1, CLIENTS * EACH + 1))


def test_200_threads(any_server: Server, counter: Counter) -> None:
    """200 threads take their turn at one lock of one blocking client, as in Hudi's own test."""
    failures: list[BaseException] = []
    with sync.connect("memory://") as first:
        first.list()  # the host's thread and loop stay for the life of the process
    descriptors, before = _descriptors(), set(threading.enumerate())
    with sync.connect(f"{any_server.url}/load", settings=SETTINGS, **any_server.options) as client:
        lock = client.lock(f"threads-{uuid.uuid4()}")

        def work() -> None:
            try:
                with lock.hold(timeout=PATIENCE):
                    counter.add()
            except BaseException as error:  # noqa: BLE001  shown below, by the main thread
                failures.append(error)

        threads = [threading.Thread(target=work) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert failures == []
    assert counter.numbers == list(range(1, THREADS + 1))
    until = time.monotonic() + 5
    while _descriptors() > descriptors and time.monotonic() < until:
        time.sleep(0.05)  # transports close one turn of the host's loop after their streams
    assert _descriptors() <= descriptors
    started = {thread.name for thread in set(threading.enumerate()) - before if "asynclock-" in thread.name}
    # Those on which the host's loop has others block are few, and stay for an exit.
    blocking = {name for name in started if name.startswith("asynclock-host-calls-")}
    assert len(blocking) <= 8
    assert started == blocking
