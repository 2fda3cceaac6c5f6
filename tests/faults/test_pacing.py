"""Cloud Storage takes one write a second of one object, and the user need not know."""

from __future__ import annotations

import asyncio
import uuid
from collections import defaultdict
from random import Random
from typing import TYPE_CHECKING

import pytest

import asynclock
from asynclock import LeaseSettings, LockClient
from asynclock.backends import open_backend
from asynclock.errors import BackendUnavailableError
from asynclock.testing._clocks import VirtualClock
from asynclock.testing._proxy import TapProxy, Wire
from asynclock.testing._store import SimulatedBackend, SimulatedStore, StoreProfile
from asynclock.testing._virtual import VirtualLoop

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

    from asynclock.backend import Written
    from tests.laboratory.servers import Server

SETTINGS = LeaseSettings(validity=12.0, max_clock_skew=0.5, poll_interval=0.1)
STEADY = StoreProfile(latency=(0.01, 0.0), slow=0.0, resolution=1.0, versions="generation")


class OneWriteASecond:
    """Cloud Storage in virtual time: a write of an object within a second of its last one gets a 429.

    Attributes:
        loop: Its time is the true one.
        refused: How many writes were refused.
    """

    def __init__(self) -> None:
        self.loop = VirtualLoop(seed=1)
        self.refused = 0
        self._store = SimulatedStore(self.loop, Random(1), STEADY)
        self._clients = 0
        self._last: defaultdict[str, float] = defaultdict(lambda: -1.0)

    def client(self, min_write_interval: float) -> LockClient:
        """Return a client with a backend of its own that leaves so much between two writes."""
        self._clients += 1
        backend = _Throttled(self._store, self.loop.world)
        backend.quota, backend.min_write_interval = self, min_write_interval
        return LockClient(
            url="gs://bucket",
            backend=backend,
            settings=SETTINGS,
            renewal="loop",
            clock=VirtualClock(self.loop),
            rng=Random(self._clients),
        )

    def refuse_early(self, key: str) -> None:
        """Raise unless the last write of the object is a second ago."""
        if self.loop.time() - self._last[key] < 0.999:
            self.refused += 1
            raise BackendUnavailableError(
                backend="gcs", operation="put", key=key, detail="429 rateLimitExceeded", written="no"
            )
        self._last[key] = self.loop.time()


class _Throttled(SimulatedBackend):
    """A way to the store that meets the quota."""

    quota: OneWriteASecond

    async def put_if_absent(self, key: str, body: bytes) -> Written:
        """Create, within the quota."""
        return await self._within_quota(key, super().put_if_absent(key, body))

    async def put_if_match(self, key: str, body: bytes, version: str) -> Written:
        """Replace, within the quota."""
        return await self._within_quota(key, super().put_if_match(key, body, version))

    async def _within_quota(self, key: str, write: Coroutine[object, object, Written]) -> Written:
        try:
            self.quota.refuse_early(key)
        except BackendUnavailableError:
            write.close()
            raise
        return await write


@pytest.fixture
def store() -> Iterator[OneWriteASecond]:
    """Return a store in virtual time that takes one write a second of each object."""
    store = OneWriteASecond()
    yield store
    store.loop.close()


async def _hold(client: LockClient, name: str, times: int) -> list[int]:
    """Acquire, confirm and release in a row; return the tokens."""
    tokens = []
    for _ in range(times):
        async with client.lock(name).hold(timeout=60) as lease:
            await lease.confirm()
            tokens.append(lease.fencing_token)
    return tokens


def test_writes_in_a_row_are_a_second_apart(store: OneWriteASecond) -> None:
    """A hundred rounds of three writes take three hundred seconds of virtual time and meet no 429."""

    async def main() -> list[int]:
        async with store.client(1.0) as client:
            return await _hold(client, "a", 100)

    tokens = store.loop.run_until_complete(main())

    assert store.refused == 0
    assert tokens == sorted(set(tokens))
    assert 295 < store.loop.time() < 310


def test_locks_are_paced_each_for_itself(store: OneWriteASecond) -> None:
    """Fifty locks at once take no longer than one: the quota is that of an object."""

    async def main() -> None:
        async with store.client(1.0) as client:
            await asyncio.gather(*(_hold(client, f"lock-{number}", 10) for number in range(50)))

    store.loop.run_until_complete(main())

    assert store.refused == 0
    assert store.loop.time() < 31


def test_a_lease_held_for_an_hour_is_renewed_within_the_quota(store: OneWriteASecond) -> None:
    """Renewals and confirmations of one lease share the pace, and the lease is never lost."""

    async def main() -> None:
        async with store.client(1.0) as client, client.lock("a").hold(timeout=60) as lease:
            for _ in range(720):
                await asyncio.sleep(5)
                await lease.confirm()

    store.loop.run_until_complete(main())

    assert store.refused == 0
    assert store.loop.time() >= 3600


def test_clients_that_take_turns_all_get_it(store: OneWriteASecond) -> None:
    """What another process wrote just now may cost a 429: it costs time, never the lock nor a turn."""

    async def main() -> list[list[int]]:
        clients = [store.client(1.0) for _ in range(3)]
        tokens = await asyncio.gather(*(_hold(client, "a", 10) for client in clients))
        for client in clients:
            await client.aclose()
        return tokens

    tokens = store.loop.run_until_complete(main())

    assert [len(each) for each in tokens] == [10, 10, 10]
    assert len(set().union(*tokens)) == 30
    assert store.refused > 0


async def _three_holds(server: Server, proxy: TapProxy, **changed: object) -> list[int]:
    options = {**server.through(proxy.url), **changed}
    url = f"{server.url}/pace-{uuid.uuid4()}"
    tokens = []
    async with asynclock.connect(url, settings=SETTINGS, renewal="loop", **options) as client:
        for _ in range(3):
            async with client.lock("a").hold(timeout=10) as lease:
                tokens.append(lease.fencing_token)
    return tokens


def test_the_default_leaves_a_second_between_two_writes() -> None:
    """Nobody has to set it: the backend knows what Cloud Storage takes."""
    assert open_backend("gs://bucket", endpoint_url="http://127.0.0.1:1").min_write_interval == 1.0


async def test_paced_writes_are_never_throttled(fake_gcs: Server) -> None:
    """Before a server that takes one write a second, acquire and release meet no 429."""
    async with TapProxy(fake_gcs.endpoint, writes_every=0.95) as proxy:
        tokens = await _three_holds(fake_gcs, proxy, min_write_interval=1.0)

    assert proxy.faults() == 0
    assert tokens == sorted(set(tokens))


async def test_throttled_writes_are_tried_again(fake_gcs: Server) -> None:
    """Where pacing was turned off, the 429s of the same server cost time and nothing else."""
    async with TapProxy(fake_gcs.endpoint, writes_every=0.5) as proxy:
        tokens = await _three_holds(fake_gcs, proxy, min_write_interval=0.0)

    assert proxy.faults(Wire.ANSWER) > 0
    assert tokens == sorted(set(tokens))
