from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.servers.fixtures import minio

if TYPE_CHECKING:
    from pathlib import Path


__all__ = ["minio"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the locks are; made by the first write."""
    return tmp_path / "locks"


@pytest.fixture
def target(folder: Path) -> str:
    """A lock."""
    return f"file://{folder}/nightly"
