"""A lock for each order is free: a client remembers the names that it uses, and the last ones."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import pytest

import asynclock
from asynclock import LockClient, sync
from asynclock._core import engine
from asynclock._core.engine import Engines, LockEngine
from asynclock.backends import open_backend
from asynclock.testing import FaultyBackend
from tests.unit.loops import SOON

if TYPE_CHECKING:
    from collections.abc import Callable

MANY = 200


@pytest.fixture(autouse=True)
def engines(monkeypatch: pytest.MonkeyPatch) -> WeakSet[LockEngine]:
    """Keep few engines, and return all that are alive."""
    monkeypatch.setattr(engine, "KEPT", 8)
    monkeypatch.setattr(engine, "_MOST_KEPT", 64)
    made: WeakSet[LockEngine] = WeakSet()
    create = LockEngine.__init__

    def noted(self: LockEngine, **given: Any) -> None:  # noqa: ANN401  as LockEngine
        create(self, **given)
        made.add(self)

    monkeypatch.setattr(LockEngine, "__init__", noted)
    return made


async def _hold(client: LockClient, name: str) -> None:
    async with client.lock(name).hold():
        pass


async def _look(client: LockClient, name: str) -> None:
    await client.lock(name).status()


async def _list(client: LockClient, _: str) -> None:
    await client.list()


@pytest.mark.parametrize("use", [_hold, _look, _list])
async def test_names_that_nobody_uses_any_more_are_forgotten(
    engines: WeakSet[LockEngine], use: Callable[[LockClient, str], Any]
) -> None:
    """As many are kept after 200 names as after 20."""
    async with asynclock.connect("memory://", renewal="loop") as client:
        for number in range(MANY):
            await client.backend.put_if_absent(f"order/{number}.json", b"{}")
        for number in range(20 if use is _list else MANY):
            await use(client, f"new/{number}")
        gc.collect()

        assert len(engines) <= 17


async def test_a_lock_object_keeps_its_waiting_line() -> None:
    """However many other names come in between, two objects of one name share one line."""
    async with asynclock.connect("memory://", renewal="loop") as client:
        first = client.lock("orders")
        for number in range(MANY):
            await _hold(client, f"new/{number}")

        assert client.lock("orders")._engine is first._engine


async def test_a_lease_keeps_its_waiting_line() -> None:
    """A waiter gets the lock by the release itself, although nobody has kept the lock object."""
    backend = FaultyBackend(open_backend("memory://"), seed=1)
    async with LockClient(url="memory://", backend=backend, renewal="loop") as client:
        lease = await client.lock("orders").acquire()
        for number in range(MANY):
            await _hold(client, f"new/{number}")
        waiting = asyncio.create_task(client.lock("orders").acquire())
        await asyncio.sleep(0)
        for number in range(MANY):
            await _hold(client, f"new/{number}")
        gc.collect()
        sent = len(backend.journal)
        await lease.release()
        async with asyncio.timeout(SOON):
            await (await waiting).release()

        assert len(backend.journal) - sent == 2  # the hand-over, and the last release


async def test_the_last_names_are_acquired_by_one_request() -> None:
    """A list of very many locks in between displaces none of them."""
    backend = FaultyBackend(open_backend("memory://"), seed=1)
    async with LockClient(url="memory://", backend=backend, renewal="loop") as client:
        for number in range(MANY):
            await _hold(client, f"new/{number}")
        await client.list()
        sent = len(backend.journal)
        await _hold(client, f"new/{MANY - 1}")

        assert len(backend.journal) - sent == 2


async def test_a_name_that_was_forgotten_has_a_higher_token() -> None:
    """What is forgotten costs a read: the token comes from the store."""
    async with asynclock.connect("memory://", renewal="loop") as client:
        async with client.lock("orders").hold() as first:
            pass
        for number in range(MANY):
            await _hold(client, f"new/{number}")
        async with client.lock("orders").hold() as second:
            assert second.fencing_token > first.fencing_token


class _Remembering:
    """As much of an engine as ``Engines`` needs."""

    def __init__(self, name: str) -> None:
        self.name = name

    def remembers(self, now: float) -> bool:
        """See ``LockEngine.remembers``."""
        return self.name.startswith("watched") or now < 1.0

    def stand_back(self, until: float) -> None:
        """See ``LockEngine.stand_back``."""


def test_what_is_observed_or_kept_away_from_is_remembered() -> None:
    """Such names are kept beyond others, up to a bound."""
    now = 0.0
    engines = Engines(_Remembering, lambda: now)  # type: ignore[arg-type]
    watched = [engines.get(f"watched/{number}") for number in range(20)]
    identities = [id(each) for each in watched]
    del watched
    for number in range(30):
        engines.get(f"new/{number}")
    assert len(engines) == 50
    now = 2.0
    for number in range(MANY):
        engines.get(f"later/{number}")
    assert [id(engines.get(f"watched/{number}")) for number in range(20)] == identities
    for number in range(MANY):
        engines.get(f"watched/more/{number}")
    assert len(engines) <= 64 + 1


def _ask(client: sync.LockClient, name: str, start: threading.Barrier, found: list[sync.Lock]) -> None:
    start.wait()
    found.append(client.lock(name))
    for other in range(20):
        client.lock(f"{threading.get_ident()}/{other}")
    found.append(client.lock(name))


def test_threads_that_ask_at_once_get_one_line() -> None:
    """Also while names are forgotten all the time."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with sync.connect("memory://") as client:
            for number in range(60):
                found: list[sync.Lock] = []
                ask = partial(_ask, client, f"order/{number}", threading.Barrier(4), found)
                threads = [threading.Thread(target=ask) for _ in range(4)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
                assert len({id(lock._engine) for lock in found}) == 1
    finally:
        sys.setswitchinterval(interval)


async def test_a_scan_reads_as_it_goes() -> None:
    """The first locks are there before the last are read, and leaving it early ends the listing."""
    backend = FaultyBackend(open_backend("memory://"), seed=1)
    async with LockClient(url="memory://", backend=backend, renewal="loop") as client:
        for number in range(MANY):
            await client.backend.put_if_absent(f"order/{number:03}.json", b"{}")
        sent = len(backend.journal)
        scan = client.scan("order/")
        assert (await anext(aiter(scan))).name == "order/000"
        assert len(backend.journal) - sent < MANY / 4
        await scan.aclose()  # type: ignore[attr-defined]
        assert [status.name async for status in client.scan()] == [
            status.name for status in await client.list()
        ]


def test_a_blocking_scan_reads_as_it_goes() -> None:
    """A generator that is dropped in the middle blocks nobody."""
    with sync.connect("memory://scanned") as client:
        for number in range(MANY):
            client.lock(f"order/{number:03}").acquire().release()
        scan = client.scan("order/")
        assert next(scan).name == "order/000"
        del scan
        gc.collect()
        assert [status.name for status in client.scan()] == [status.name for status in client.list()]
