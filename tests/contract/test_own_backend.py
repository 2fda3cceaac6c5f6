"""A backend of one's own, bound to the contract: the example of docs/backends."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import pytest

import asynclock
from asynclock.backend import MAX_BODY, Absent, Backend, Entry, Stored, Written
from asynclock.backends import open_backend
from asynclock.testing._contract import BackendContract

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


class DictBackend:
    """Objects in a dictionary of one event loop, where nothing happens between two awaits."""

    name = "dict"
    clock_resolution = 0.0
    min_write_interval = 0.0
    sends_dates = True
    versions_may_repeat = False

    def __init__(self) -> None:
        self._objects: dict[str, Stored] = {}
        self._writes = 0

    async def get(self, key: str) -> Stored | Absent:
        """Return the object, at most 64 KiB and a byte of it; or that there is none, and when that was so."""
        found = self._objects.get(key)
        if found is None:
            return Absent(time.time())
        return Stored(found.body[: MAX_BODY + 1], found.version, found.last_modified, time.time())

    async def put_if_absent(self, key: str, body: bytes) -> Written:
        """Create the object."""
        if key in self._objects:
            raise self._refused("put_if_absent", key)
        return await self.put(key, body)

    async def put_if_match(self, key: str, body: bytes, version: str) -> Written:
        """Replace one version of the object."""
        if key not in self._objects or self._objects[key].version != version:
            raise self._refused("put_if_match", key)
        return await self.put(key, body)

    async def list(self, prefix: str) -> AsyncIterator[Entry]:
        """Yield the objects under a prefix, in key order."""
        for key in sorted(self._objects):
            if key.startswith(prefix):
                yield Entry(key, len(self._objects[key].body), self._objects[key].last_modified)

    async def put(self, key: str, body: bytes) -> Written:
        """Write without a condition."""
        self._writes += 1
        self._objects[key] = Stored(body, str(self._writes), time.time(), None)
        return Written(str(self._writes), time.time())

    async def delete(self, key: str) -> None:
        """Delete without a condition."""
        self._objects.pop(key, None)

    async def aclose(self) -> None:
        """Do nothing."""

    def _refused(self, operation: str, key: str) -> asynclock.PreconditionFailedError:
        return asynclock.PreconditionFailedError(
            backend=self.name, operation=operation, key=key, detail="another version", written="no"
        )


def open_dict(url: str, **options: object) -> DictBackend:
    """Open ``dict://``; it has no options."""
    if options or url != "dict://":
        raise asynclock.ConfigError(setting="url", value=url, reason="use dict://, without options")
    return DictBackend()


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Install a distribution that registers the scheme by its entry point."""
    about = tmp_path / "dictlock-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: dictlock\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[asynclock.backends]\ndict = dictlock:open_dict\n")
    monkeypatch.setitem(sys.modules, "dictlock", sys.modules[__name__])
    monkeypatch.syspath_prepend(tmp_path)


class TestDict(BackendContract):
    @pytest.fixture
    async def backend(self) -> AsyncIterator[Backend]:
        """Open the backend by its scheme."""
        backend = open_backend("dict://")
        yield backend
        await backend.aclose()


async def test_a_lock_is_had_on_it() -> None:
    """A lock works on a backend that asynclock has never heard of."""
    async with (
        asynclock.connect("dict://", renewal="loop") as client,
        client.lock("orders").hold(timeout=60) as lease,
    ):
        await lease.confirm()
        assert lease.held


def test_its_options_are_checked() -> None:
    """Its own refusal reaches the user as it is."""
    with pytest.raises(asynclock.ConfigError, match="without options"):
        asynclock.connect("dict://", colour="red")
