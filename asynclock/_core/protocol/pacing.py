"""How often one object may be written: some stores limit that, as Cloud Storage does to once a second."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from asynclock.backend import Backend

_MOST: Final = 4096
"""Keys from which those whose pause is over are dropped."""


class Pacing:
    """Keeps a client's writes of one object as far apart as its store demands."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._next_write: dict[str, float] = {}

    @property
    def limits(self) -> bool:
        """Whether the store limits the rate of writes to one object."""
        return self._backend.min_write_interval > 0

    async def wait(self, key: str) -> None:
        """Wait until the store takes another write of this object."""
        if self._backend.min_write_interval > 0:
            wait = self._next_write.get(key, 0.0) - asyncio.get_running_loop().time()
            if wait > 0:
                await asyncio.sleep(wait)

    def note_write(self, key: str) -> None:
        """Note that this object is written now."""
        now = asyncio.get_running_loop().time()
        if len(self._next_write) >= _MOST:
            self._next_write = {each: at for each, at in self._next_write.items() if at > now}
        self._next_write[key] = now + self._backend.min_write_interval
