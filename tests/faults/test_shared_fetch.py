"""A fetch of credentials is shared, and one that goes wrong takes no valid credentials with it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from asynclock import ConfigError
from asynclock.backends import _credentials
from asynclock.backends._cloud import SharedFetch
from asynclock.backends._credentials import SharedCredentials


async def test_a_cancelled_waiter_takes_nobody_with_it() -> None:
    """Of ten that wait for one fetch one is cancelled: the others get the value of the same fetch."""
    gate, fetches = asyncio.Event(), 0

    async def fetch() -> str:
        nonlocal fetches
        fetches += 1
        await gate.wait()
        return "token"

    shared = SharedFetch(fetch)
    waiters = [asyncio.create_task(shared.wait()) for _ in range(10)]
    await asyncio.sleep(0)
    waiters[0].cancel()
    await asyncio.sleep(0)
    gate.set()
    outcomes = await asyncio.gather(*waiters, return_exceptions=True)

    assert isinstance(outcomes[0], asyncio.CancelledError)
    assert outcomes[1:] == ["token"] * 9
    assert fetches == 1


async def test_a_hanging_fetch_is_given_up() -> None:
    """A fetch that hangs ends after its limit, and the next call starts a new one."""
    fetches = 0

    async def fetch() -> str:
        nonlocal fetches
        fetches += 1
        if fetches == 1:
            await asyncio.sleep(3600)
        return "token"

    shared = SharedFetch(fetch, limit=0.05)
    with pytest.raises(TimeoutError):
        await shared.wait()

    assert await shared.wait() == "token"


async def test_closing_ends_a_running_fetch() -> None:
    """No task is left of a fetch that hangs when the backend is closed."""
    shared = SharedFetch(lambda: asyncio.sleep(3600))
    task = shared.start()

    await shared.aclose()

    assert task.cancelled()


async def test_closing_is_told_to_those_who_wait() -> None:
    """They were not cancelled; one that was is."""
    shared = SharedFetch(lambda: asyncio.sleep(3600))
    waiting, cancelled = (asyncio.create_task(shared.wait()) for _ in range(2))
    await asyncio.sleep(0)

    cancelled.cancel()
    await shared.aclose()
    outcomes = await asyncio.gather(waiting, cancelled, return_exceptions=True)

    assert isinstance(outcomes[0], ConfigError)
    assert "it was closed; connect again" in str(outcomes[0])
    assert isinstance(outcomes[1], asyncio.CancelledError)


class Credentials(SharedCredentials[str]):
    """Credentials whose age and fetches the test decides."""

    def __init__(self) -> None:
        super().__init__()
        self.fetches = 0
        self.mood = "serve"
        self.age = "fresh"

    async def _fetch(self) -> str:
        self.fetches += 1
        if self.mood == "hang":
            await asyncio.sleep(3600)
        if self.mood == "fail":
            raise ConnectionError
        self.age = "fresh"
        return f"{self.fetches}"

    def _over(self, _last: str, *, soon: bool) -> bool:
        return self.age == "over" or (soon and self.age == "stale")


@pytest.mark.parametrize("mood", ["fail", "hang"])
async def test_a_fetch_gone_wrong_takes_no_valid_credentials(
    mood: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While they are valid they are returned, and a fetch is started at most every ten seconds."""
    now = 1000.0
    monkeypatch.setattr(_credentials, "time", SimpleNamespace(monotonic=lambda: now))
    credentials = Credentials()
    assert await credentials.get() == "1"
    credentials.age, credentials.mood = "stale", mood

    for _ in range(20):
        assert await credentials.get() == "1"
        await asyncio.sleep(0)
    assert credentials.fetches == 2
    await credentials.aclose()  # of the fetch that hangs
    now += 10
    assert await credentials.get() == "1"
    await asyncio.sleep(0)
    assert credentials.fetches == 3
    await credentials.aclose()


async def test_credentials_that_are_over_are_not_returned() -> None:
    """A fetch is waited for, at once after one that failed, and its error is raised."""
    credentials = Credentials()
    await credentials.get()
    credentials.age, credentials.mood = "stale", "fail"
    assert await credentials.get() == "1"
    await asyncio.sleep(0)
    credentials.age = "over"

    with pytest.raises(ConnectionError):
        await credentials.get()
    credentials.mood = "serve"
    assert await credentials.get() == "4"
