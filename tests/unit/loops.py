"""Loops of other threads, and what a test waits for there."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from asynclock._core.portal import run_on

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine


SOON = 5.0
FOREVER = 3600.0


async def nothing() -> None:
    """Do nothing."""


def call_here(start: Callable[[], Coroutine[object, object, None]]) -> asyncio.Task[None]:
    """Call ``start`` on the running loop, from a task that can be cancelled."""
    return asyncio.create_task(run_on(asyncio.get_running_loop(), start))


def let_run(host: asyncio.AbstractEventLoop) -> None:
    """Let the loop of another thread make some turns in one turn of the running loop."""
    for _ in range(5):
        turn = asyncio.run_coroutine_threadsafe(nothing(), host)
        while not turn.done():
            pass


def eventually(holds: Callable[[], bool]) -> bool:
    """Wait until that holds; False if it does not soon."""
    until = time.monotonic() + SOON
    while not holds():
        if time.monotonic() > until:
            return False
        time.sleep(0.005)
    return True
