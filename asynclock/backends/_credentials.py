"""The cache of credentials that end, for all three clouds: renewals go on while the next ones are fetched."""

from __future__ import annotations

import contextlib
import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from asynclock.backends._cloud import SharedFetch, current_call

if TYPE_CHECKING:
    from collections.abc import Iterator

T = TypeVar("T")
_BETWEEN_FETCHES: Final = 10.0
"""Seconds at least between two fetches while the present credentials are valid."""


@contextlib.contextmanager
def awaiting_credentials() -> Iterator[None]:
    """Note, around the wait for credentials, that the running call waits for them, if there is one."""
    call = current_call.get()
    if call is not None:
        call.waits_since = time.monotonic()
    yield
    if call is not None:
        call.waits_since = None


class SharedCredentials(ABC, Generic[T]):
    """Credentials that all requests share. The next ones are fetched in the background while these are valid.

    The SDKs fetch them within a request. A fetch that hangs, fails or is cancelled would make that request
    fail, and the next ones, although the present credentials are valid for some minutes more.
    """

    def __init__(self) -> None:
        self._last: T | None = None
        self._next_fetch = 0.0  # earliest time of another, by the monotonic clock
        self._fetching: SharedFetch[T] = SharedFetch(self._fetch_next)

    async def get(self) -> T:
        """Return credentials that are valid now. Raises what the fetch raises, if there are none."""
        if self._last is None or self._over(self._last, soon=False):
            with awaiting_credentials():
                return await self._fetching.wait()
        if self._over(self._last, soon=True) and (now := time.monotonic()) >= self._next_fetch:
            self._next_fetch = now + _BETWEEN_FETCHES
            self._fetching.start()
        return self._last

    async def aclose(self) -> None:
        """Cancel a running fetch."""
        await self._fetching.aclose()

    @abstractmethod
    async def _fetch(self) -> T: ...

    @abstractmethod
    def _over(self, last: T, *, soon: bool) -> bool:
        """Return whether these are not valid any more, or with ``soon``: whether to fetch the next ones."""

    async def _fetch_next(self) -> T:
        self._last = fetched = await self._fetch()
        return fetched
