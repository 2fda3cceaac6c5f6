"""Tries a store out before a client holds its first lock there (rule 19)."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Any

from asynclock.errors import BackendError, BackendUnavailableError

if TYPE_CHECKING:
    from asynclock._core.inflight import InFlight
    from asynclock._core.verification import Send
    from asynclock.backend import Backend


class Verifier:
    """Finds out whether the store keeps its conditions, once for all locks of a client.

    Args:
        backend: The store.
        request: Awaits one call of the backend: ``LockObjects.request``.
        in_flight: The client's work.
        url: Where the objects are.

    Attributes:
        needed: Whether the store may need to be tried out before the first lock is held.
    """

    def __init__(self, backend: Backend, request: Send, in_flight: InFlight, url: str) -> None:
        self.needed: bool = getattr(backend, "verify", False)
        if self.needed:
            import asynclock._core.verification  # noqa: F401, PLC0415  later it would read files on the loop
        self._backend = backend
        self._request = request
        self._in_flight = in_flight
        self._url = url
        self._trial: asyncio.Task[None] | None = None
        self._failure: BackendError | None = None

    async def verify(self, key: str, *, within: float) -> None:
        """Try the store out, unless that was done within a day; for all locks of the client at a time.

        It goes on in the background if ``within`` seconds are not enough, and the next call waits for it.

        Raises:
            UnsupportedBackendError: The store does not keep its conditions.
            BackendError: It did not answer, or not in time.
        """
        if self._trial is None or self._trial.done():
            self._trial = self._in_flight.spawn(self._try_out(key))
            self._trial.add_done_callback(self._note_end)
        trial = self._trial
        await asyncio.wait([trial], timeout=None if within == math.inf else within)
        if trial.done() and not trial.cancelled():
            return trial.result()
        if self._failure is not None:
            raise self._failure
        detail = "the store is still being tried out before the first lock"
        raise BackendUnavailableError(backend=self._backend.name, operation="verify", key=key, detail=detail)

    def _note_end(self, trial: asyncio.Task[None]) -> None:
        error = None if trial.cancelled() else trial.exception()
        self._failure = error if isinstance(error, BackendError) else None

    async def _try_out(self, key: str) -> None:
        from asynclock._core.verification import verify  # noqa: PLC0415  imported by now

        backend: Any = self._backend
        place = await backend.place()
        if place is not None:
            await verify(backend, self._request, place=place, key=key, url=self._url)
        self.needed = False
