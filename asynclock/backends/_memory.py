"""``memory://``: objects in this process's memory, for tests and for locks within one process."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from asynclock.backend import MAX_BODY, Absent, Entry, Stored, Written
from asynclock.backends._url import object_prefix, split_url, take_options
from asynclock.errors import ConfigError, PreconditionFailedError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@dataclass(frozen=True, slots=True)
class _Object:
    body: bytes
    version: str
    modified: float


class _Store:
    """The objects of one named store. Threads share it, so every write takes the mutex."""

    def __init__(self) -> None:
        self.mutex = threading.Lock()
        self.objects: dict[str, _Object] = {}
        self.writes = 0


_named: Final[dict[str, _Store]] = {}


def _store(name: str) -> _Store:
    if not name:
        return _Store()
    return _named.get(name) or _named.setdefault(name, _Store())  # in one step, for signal handlers


class MemoryBackend:
    """Objects in a dictionary. Their Dates are this process's wall clock.

    Args:
        name: Backends of one name share one store, which lasts as long as the process. Default: empty,
            a store that no other backend sees.
        prefix: Put before every key; default empty.
        min_write_interval: Seconds that a lock leaves between two writes of one object; default 0.
    """

    name = "memory"
    clock_resolution: float = 0.0
    sends_dates = True
    versions_may_repeat = False

    def __init__(self, name: str = "", *, prefix: str = "", min_write_interval: float = 0.0) -> None:
        self.min_write_interval = min_write_interval
        self._store = _store(name)
        self._prefix = prefix

    async def get(self, key: str) -> Stored | Absent:
        """Read an object; see ``Backend.get``."""
        found = self._store.objects.get(self._prefix + key)
        now = time.time()
        if found is None:
            return Absent(now)
        return Stored(found.body[: MAX_BODY + 1], found.version, found.modified, now)

    async def put_if_absent(self, key: str, body: bytes) -> Written:
        """Create an object; see ``Backend.put_if_absent``."""
        with self._store.mutex:
            if self._prefix + key in self._store.objects:
                raise self._refused("put_if_absent", key, "it exists")
            return self._write(key, body)

    async def put_if_match(self, key: str, body: bytes, version: str) -> Written:
        """Replace one version of an object; see ``Backend.put_if_match``."""
        with self._store.mutex:
            found = self._store.objects.get(self._prefix + key)
            if found is None or found.version != version:
                raise self._refused("put_if_match", key, "another version" if found else "no object")
            return self._write(key, body)

    async def list(self, prefix: str) -> AsyncIterator[Entry]:
        """Yield the objects under ``prefix``; see ``Backend.list``."""
        start = len(self._prefix)
        with self._store.mutex:
            found = sorted(self._store.objects.items())
        for path, item in found:
            if path.startswith(self._prefix + prefix):
                yield Entry(path[start:], len(item.body), item.modified)

    async def put(self, key: str, body: bytes) -> Written:
        """Write without a condition; see ``Backend.put``."""
        with self._store.mutex:
            return self._write(key, body)

    async def delete(self, key: str) -> None:
        """Delete an object; see ``Backend.delete``."""
        with self._store.mutex:
            self._store.objects.pop(self._prefix + key, None)

    async def delete_if_match(self, key: str, version: str) -> None:
        """Delete one version of an object; see ``ConditionalDelete``."""
        with self._store.mutex:
            found = self._store.objects.get(self._prefix + key)
            if found is not None and found.version != version:
                raise self._refused("delete_if_match", key, "another version")
            self._store.objects.pop(self._prefix + key, None)

    async def aclose(self) -> None:
        """Do nothing: a named store lasts as long as the process."""

    def _write(self, key: str, body: bytes) -> Written:
        now = time.time()
        self._store.writes += 1
        version = str(self._store.writes)
        # Copied, because bytes from orjson occupy 4 KiB.
        self._store.objects[self._prefix + key] = _Object(bytes(memoryview(body)), version, now)
        return Written(version, now)

    def _refused(self, operation: str, key: str, detail: str) -> PreconditionFailedError:
        return PreconditionFailedError(
            backend=self.name, operation=operation, key=key, detail=detail, written="no"
        )


def open_memory(url: str, **options: object) -> MemoryBackend:
    """Return the backend for ``memory://NAME/prefix``; the store of ``memory://`` is private to its client.

    Args:
        url: The URL.
        options: ``min_write_interval`` (seconds; default 0).

    Raises:
        ConfigError: The URL or an option is wrong.
    """
    parts = split_url(url)
    if parts.query or parts.fragment or "@" in parts.netloc or ":" in parts.netloc:
        raise ConfigError(setting="url", value=url, reason="use memory:// or memory://NAME")
    taken = take_options(options, min_write_interval=float)
    return MemoryBackend(parts.netloc, prefix=object_prefix(parts), **taken)
