"""A process that stalls while its connection dies goes on with its lease, or knows that it is lost."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
import uuid
from typing import TYPE_CHECKING, Literal, TypeVar

import pytest

import asynclock
from asynclock import LeaseSettings
from asynclock.backend import Stored
from asynclock.backends import open_backend
from asynclock.errors import LeaseExpiredError, LeaseLostError, OutcomeUnknownError
from asynclock.testing._proxy import TapProxy

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

    from tests.laboratory.servers import Server

T = TypeVar("T")
End = Literal["closed", "reset", "forgotten"]
STALL = 0.5
KEPT = LeaseSettings(validity=6.0, safety_margin=1.0, max_clock_skew=0.5)
LOST = LeaseSettings(validity=2.0, safety_margin=1.0, max_clock_skew=0.5)


class ProxyThread:
    """A proxy on a loop of its own thread: it goes on while the client's loop is blocked."""

    def __init__(self, endpoint: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self.tap = self._run(self._opened(endpoint))

    def end_connections(self, how: End) -> None:
        """Close, reset or forget the connections that clients have now."""
        self._run(self._end(how))

    def close(self) -> None:
        """Close the proxy and end its thread."""
        self._run(self.tap.__aexit__(None, None, None))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _opened(self, endpoint: str) -> TapProxy:
        return await TapProxy(endpoint).__aenter__()

    async def _end(self, how: End) -> None:
        if how == "forgotten":
            self.tap.forget()
        else:
            await self.tap.hang_up(reset=how == "reset")

    def _run(self, work: Coroutine[object, object, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)


@pytest.fixture
def proxy(cloud: Server) -> Iterator[ProxyThread]:
    """Return a proxy before the server."""
    proxy = ProxyThread(cloud.endpoint)
    yield proxy
    proxy.close()


async def _confirm(lease: asynclock.Lease) -> int:
    """Confirm until the store agrees; return how often the outcome was unknown."""
    unknown = 0
    while True:
        try:
            await lease.confirm()
        except OutcomeUnknownError:
            unknown += 1
        else:
            return unknown


async def test_a_write_on_a_closed_connection_is_sent_by_nobody(cloud: Server, proxy: ProxyThread) -> None:
    """The first write after a stall fails as unknown, nobody sends it again unasked, and the next works."""
    backend = open_backend(f"{cloud.url}/stalled", **cloud.through(proxy.tap.url))
    key = f"dead-{uuid.uuid4()}.json"
    version = (await backend.put_if_absent(key, b"first")).version
    proxy.end_connections("closed")
    time.sleep(0.1)  # noqa: ASYNC251  the loop must not see the end before the write is sent

    with pytest.raises(OutcomeUnknownError):
        await backend.put_if_match(key, b"second", version)
    stored = await backend.get(key)
    await backend.put_if_match(key, b"third", version)
    await backend.aclose()

    assert isinstance(stored, Stored)
    assert stored.body == b"first"
    assert [tap.connection for tap in proxy.tap.journal if tap.write] == [1, 2]


@pytest.mark.parametrize("end", ["closed", "reset", "forgotten"])
async def test_a_stall_over_a_dead_connection_keeps_the_lease(
    cloud: Server, proxy: ProxyThread, end: End
) -> None:
    """Awake within its lease, the process fails on the dead connection, reads again and renews."""
    url = f"{cloud.url}/stalled"
    async with (
        asynclock.connect(url, settings=KEPT, renewal="loop", **cloud.through(proxy.tap.url)) as client,
        client.lock(f"kept-{uuid.uuid4()}").hold(timeout=5) as lease,
    ):
        await lease.confirm()
        before = len(proxy.tap.journal)
        proxy.end_connections(end)
        time.sleep(STALL)  # noqa: ASYNC251  a blocked loop is what is tested

        await _confirm(lease)

        assert lease.held
        after = proxy.tap.journal[before:]
        # A closed connection is noticed before the write, a dead one only by the silence after it.
        fell_silent = [(True, 0), (False, 1)] if end == "forgotten" else []
        seen = [(tap.write, tap.forwarded) for tap in after]
        assert seen[: len(fell_silent) + 1] == [*fell_silent, (True, 1)]
        assert max(tap.forwarded for tap in after) == 1


@pytest.mark.parametrize("end", ["closed", "forgotten"])
async def test_a_stall_past_the_lease_is_a_loss_and_no_write(
    cloud: Server, proxy: ProxyThread, end: End
) -> None:
    """Awake after its lease, the process sends nothing more and every call says that it is lost."""
    url = f"{cloud.url}/stalled"
    async with asynclock.connect(
        url, settings=LOST, renewal="loop", **cloud.through(proxy.tap.url)
    ) as client:
        lease = await client.lock(f"lost-{uuid.uuid4()}").acquire(timeout=5)
        proxy.end_connections(end)
        time.sleep(LOST.validity)  # noqa: ASYNC251  a blocked loop is what is tested
        before = len(proxy.tap.journal)

        assert not lease.held
        with pytest.raises(LeaseExpiredError):
            await lease.confirm()
        with contextlib.suppress(LeaseLostError):
            await lease.release()

        assert [tap for tap in proxy.tap.journal[before:] if tap.write] == []
