"""A backend gives up by itself what nobody bounds: a connection that does not come, a silence."""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING

import pytest

import asynclock
import asynclock.backends._session
from asynclock.backend import Absent
from asynclock.backends import open_backend
from asynclock.errors import BackendUnavailableError, OutcomeUnknownError
from asynclock.testing._proxy import TapProxy, Wire

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.laboratory.servers import Server

BOUND = 0.5


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the bounds, which are 10 and 30 seconds."""
    monkeypatch.setattr(asynclock.backends._session, "CONNECT_TIMEOUT", BOUND)
    monkeypatch.setattr(asynclock.backends._session, "READ_TIMEOUT", BOUND)


@pytest.fixture
def full() -> Iterator[str]:
    """Return the address of a server that takes no more connections: what comes waits forever."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        waiting = [socket.socket() for _ in range(4)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(server.getsockname())
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        for one in waiting:
            one.close()


@pytest.mark.usefixtures("impatient")
async def test_a_silent_store_is_given_up(cloud: Server) -> None:
    """A write that is never answered is unknown, a read unavailable, each after the bound for silence."""
    async with TapProxy(cloud.endpoint) as proxy:
        backend = open_backend(f"{cloud.url}/silent", **cloud.through(proxy.url))
        assert isinstance(await backend.get("a.json"), Absent)  # a connection, and a token
        proxy.inject(Wire.SWALLOW, times=2, seconds=30)
        start = time.monotonic()

        with pytest.raises(OutcomeUnknownError) as caught:
            await backend.put_if_absent("a.json", b"body")
        with pytest.raises(BackendUnavailableError):
            await backend.get("a.json")
        await backend.aclose()

    assert 2 * BOUND <= time.monotonic() - start < 10 * BOUND
    assert caught.value.written == "unknown"
    assert len(proxy.journal) == 3


@pytest.mark.usefixtures("impatient")
async def test_a_connection_that_does_not_come_is_given_up(cloud: Server, full: str) -> None:
    """Where no connection is made nothing has been written, and the call says so after the bound."""
    backend = open_backend(f"{cloud.url}/full", **cloud.through(full))
    start = time.monotonic()

    with pytest.raises(BackendUnavailableError) as caught:
        await backend.put_if_absent("a.json", b"body")
    await backend.aclose()

    assert time.monotonic() - start < 10 * BOUND
    assert caught.value.written == "no"
