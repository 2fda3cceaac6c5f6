"""Closing a client with ``renewal="loop"`` from another loop than its own (rule 18)."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest

import asynclock
from asynclock import ConfigError, Lease, LeaseTakenOverError, LockClient, LockStatus
from asynclock._core.protocol.belief import End
from asynclock.backends._local import LocalBackend
from tests.unit.kit import FAST
from tests.unit.programs import record, run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from asynclock.backend import Written
    from asynclock.events import Event


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """Return a loop that does not run."""
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


async def held(client: LockClient) -> Lease:
    """Hold the lock by the running loop."""
    return await client.lock("orders").acquire()


def connected(folder: Path) -> LockClient:
    """Return a client of the locks in a folder, on the loop of its first use."""
    return asynclock.connect(f"file://{folder}", renewal="loop")


def test_a_client_whose_loop_was_closed_releases_on_another(
    tmp_path: Path, loop: asyncio.AbstractEventLoop
) -> None:
    """Every caller of ``aclose`` returns once nothing is held; closing it again is not an error."""
    client = connected(tmp_path)
    lease = loop.run_until_complete(held(client))
    loop.close()

    async def close() -> None:
        await client.aclose()
        assert record(tmp_path).expired

    async def close_twice_at_once() -> None:
        await asyncio.gather(close(), close())

    asyncio.run(close_twice_at_once())
    asyncio.run(close())

    assert not lease.held
    with pytest.raises(ConfigError, match="it was closed"):
        asyncio.run(held(client))


def test_a_lock_that_is_kept_is_kept_from_there_too(tmp_path: Path, loop: asyncio.AbstractEventLoop) -> None:
    """Its record promises what is left, by the store's time, so that every reader can judge it (rule 21)."""
    client = connected(tmp_path)
    lease = loop.run_until_complete(client.lock("orders").acquire(at_least=60.0))
    loop.close()

    asyncio.run(client.aclose())

    async def status() -> LockStatus:
        async with connected(tmp_path) as other:
            return await other.lock("orders").status()

    kept = asyncio.run(status())
    assert not lease.held
    assert kept.state == "held"
    assert kept.remaining == pytest.approx(60.0 + client.settings.max_clock_skew, abs=5.0)
    assert record(tmp_path).valid_until_ms / 1000 == pytest.approx(time.time() + kept.remaining, abs=5.0)


def test_a_loss_that_is_found_there_is_a_loss(tmp_path: Path, loop: asyncio.AbstractEventLoop) -> None:
    """Where another's record stands, the lease was lost, and the end of its client says so (rule 6)."""
    events: list[Event] = []
    client = asynclock.connect(f"file://{tmp_path}", renewal="loop", events=events.append)
    lease = loop.run_until_complete(held(client))
    loop.close()

    async def break_it() -> None:
        async with connected(tmp_path) as operator:
            lock = operator.lock("orders")
            await lock.break_lock(await lock.status(), force=True)

    asyncio.run(break_it())
    asyncio.run(client.aclose())

    assert isinstance(lease.lost, LeaseTakenOverError)
    assert [event.kind for event in events] == ["acquired", "lost"]


class Hanging(LocalBackend):
    """Answers no write."""

    async def put_if_match(self, key: str, body: bytes, version: str) -> Written:
        """Take forever."""
        del key, body, version
        await asyncio.Event().wait()
        raise AssertionError


def test_nothing_is_under_way_after_a_close_that_got_no_answer(
    tmp_path: Path, loop: asyncio.AbstractEventLoop
) -> None:
    """What could not be released in time is cut off before the backend is closed, and told (rule 18)."""
    events: list[Event] = []
    client = LockClient(
        url=f"file://{tmp_path}",
        backend=LocalBackend(tmp_path),
        settings=FAST,
        renewal="loop",
        events=events.append,
        reopen=lambda: Hanging(tmp_path),
    )
    lease = loop.run_until_complete(held(client))
    loop.close()

    async def close() -> None:
        began = time.monotonic()
        await client.aclose()
        assert time.monotonic() - began < 4 * client._core.exit_bound
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(close())

    assert not lease.held
    assert [event.kind for event in events] == ["acquired", "release_unconfirmed"]


def test_a_client_whose_loop_has_stopped_says_that_nothing_was_released(
    tmp_path: Path, loop: asyncio.AbstractEventLoop
) -> None:
    """Its loop may go on, and closes it then."""
    client = connected(tmp_path)
    lease = loop.run_until_complete(held(client))

    with pytest.raises(ConfigError, match=r"nothing was released.*stopped"):
        asyncio.run(client.aclose())

    assert lease.held
    loop.run_until_complete(client.aclose())
    assert record(tmp_path).expired
    asyncio.run(client.aclose())


def test_a_client_whose_backend_cannot_be_opened_again_says_so(
    tmp_path: Path, loop: asyncio.AbstractEventLoop
) -> None:
    """A client that was made of a backend has no other one to release through."""
    client = LockClient(url=f"file://{tmp_path}", backend=LocalBackend(tmp_path), renewal="loop")
    lease = loop.run_until_complete(held(client))
    loop.close()

    with pytest.raises(ConfigError, match=r"nothing was released.*cannot be opened"):
        asyncio.run(client.aclose())

    assert lease.held
    lease._held.belief.end(End.RELEASE)  # else its end warns


def test_an_exit_releases_what_a_refused_close_did_not(tmp_path: Path) -> None:
    """A client whose loop has stopped stays with those that the exit releases."""
    program = """
client = asynclock.connect(url, settings=settings, renewal="loop")
loop = asyncio.new_event_loop()
lease = loop.run_until_complete(client.lock("orders").acquire())
try:
    asyncio.run(client.aclose())
except asynclock.ConfigError:
    print("refused")
"""
    outcome, output, errors = run(program, tmp_path)

    assert (outcome, output) == (0, "refused\n"), errors
    assert record(tmp_path).expired
