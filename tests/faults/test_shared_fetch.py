"""One fetch of credentials is shared: a caller that is cancelled does not take the others with it."""

from __future__ import annotations

import asyncio

import pytest

from asynclock.backends._cloud import SharedFetch


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
