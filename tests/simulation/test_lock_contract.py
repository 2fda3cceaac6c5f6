"""LockContract on the stores that need no server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from asynclock.backends import open_backend
from asynclock.testing import LockContract

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from asynclock.backend import Backend


class TestMemory(LockContract):
    @pytest.fixture
    async def backend(self) -> AsyncIterator[Backend]:
        """Open memory://."""
        backend = open_backend("memory://")
        yield backend
        await backend.aclose()


class TestFile(LockContract):
    @pytest.fixture
    async def backend(self, tmp_path: Path) -> AsyncIterator[Backend]:
        """Open a folder of its own."""
        backend = open_backend(tmp_path.as_uri())
        yield backend
        await backend.aclose()


class TestGcsPace(LockContract):
    """A store that takes one write a second of each object."""

    @pytest.fixture
    async def backend(self) -> AsyncIterator[Backend]:
        """Open memory:// with the pace of GCS, shortened."""
        backend = open_backend("memory://", min_write_interval=0.1)
        yield backend
        await backend.aclose()
