"""A cache of credentials that expire, for all three clouds. It fetches the next ones in the background."""

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
"""Least seconds between two fetches while the present credentials are valid."""


@contextlib.contextmanager
def awaiting_credentials() -> Iterator[None]:
    """Mark the running call, if there is one, as waiting for credentials during the block."""
    call = current_call.get()
    if call is not None:
        call.waits_since = time.monotonic()
    yield
    if call is not None:
        call.waits_since = None


class SharedCredentials(ABC, Generic[T]):
    """Credentials that all requests share. The next ones are fetched in the background while these are valid.

    The SDKs fetch them within a request. If that fetch hangs, fails or is cancelled, the request and the next
    ones fail too, although the present credentials are valid for some minutes more.
    """

    def __init__(self) -> None:
        self._last: T | None = None
        self._next_fetch = 0.0  # earliest time of another, by the monotonic clock
        self._fetching: SharedFetch[T] = SharedFetch(self._fetch_next)

    async def get(self) -> T:
        """Return credentials that are valid now. If there are none, errors of the fetch propagate."""
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
        """Return whether these credentials have expired; with ``soon``: whether to fetch the next ones."""

    async def _fetch_next(self) -> T:
        self._last = fetched = await self._fetch()
        return fetched
