"""What ``asynclock run`` says while it waits for a lock: who holds it, or why the store does not answer."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Final

from asynclock.cli.output import tell

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from asynclock.events import Event

_FIRST_PAUSE: Final = 5.0
_LONGEST_PAUSE: Final = 300.0
_SILENCE: Final = 2.0
"""Seconds without any answer of the store after which that is said."""


class Narration:
    """Prints why the lock is not acquired yet: at once, then ever more rarely.

    Args:
        target: URL and name of the lock.
        wait: Longest wait for it, in seconds; None: no limit.
        quiet: Print nothing.
    """

    def __init__(self, target: str, *, wait: float | None, quiet: bool = False) -> None:
        self._target = target
        self._limit = "" if wait is None else f", waiting at most {wait:g} s"
        self._quiet = quiet or wait == 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._news = asyncio.Event()
        self._last: Event | None = None
        self._heard_at = 0.0
        self._said: set[str] = set()

    def hear(self, event: Event) -> None:
        """Take an event of the client; from its loop."""
        if event.kind in {"waiting", "acquire_failed"} and self._loop is not None:
            self._last, self._heard_at = event, time.monotonic()
            with contextlib.suppress(RuntimeError):  # the loop is closed: there is nothing more to say
                self._loop.call_soon_threadsafe(self._news.set)

    @contextlib.asynccontextmanager
    async def of_the_wait(self) -> AsyncIterator[None]:
        """Print while the body waits for the lock."""
        if self._quiet:
            yield
            return
        self._loop = asyncio.get_running_loop()
        talking = asyncio.create_task(self._talk())
        try:
            yield
        finally:
            self._loop = None
            talking.cancel()
            await asyncio.wait([talking])

    async def _talk(self) -> None:
        started, pause, due = time.monotonic(), _FIRST_PAUSE, _SILENCE
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, started + due - time.monotonic())):
                    await self._news.wait()
            self._news.clear()
            elapsed = time.monotonic() - started
            new = self._last is not None and self._last.kind not in self._said
            if elapsed >= due or new:
                tell(self._sentence(elapsed))
                due, pause = elapsed + pause, min(2 * pause, _LONGEST_PAUSE)

    def _sentence(self, elapsed: float) -> str:
        last = self._last
        if last is None:
            return f"{self._target}: no answer from the store for {elapsed:.0f} s{self._limit}"
        self._said.add(last.kind)
        if last.kind == "acquire_failed":
            return f"{self._target}: the store failed: {last.detail}; trying again{self._limit}"
        return f"waiting for {self._target}, {_held(last, time.monotonic() - self._heard_at)}{self._limit}"


def _held(event: Event, ago: float) -> str:
    words = f"held by {event.detail or event.owner}"
    if event.fencing_token is not None:
        since = event.fencing_token / 1e6  # it is made of the store's time at the acquisition
        clock = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(since))
        words += f" since {clock} ({max(0.0, time.time() - since):.0f} s)"
    if event.remaining is not None:
        words += f", for at most {max(0.0, event.remaining - ago):.0f} s unless it is renewed"
    return words
