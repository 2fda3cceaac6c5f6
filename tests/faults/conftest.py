"""The servers behind the fault proxy, and a machine that asks them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.faults.credentials import Machine
from tests.servers.fixtures import (
    any_server,
    azurite,
    azurite_tls,
    cloud,
    fake_gcs,
    fake_gcs_tls,
    minio,
    minio_tls,
    moto,
)

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "any_server",
    "azurite",
    "azurite_tls",
    "cloud",
    "fake_gcs",
    "fake_gcs_tls",
    "minio",
    "minio_tls",
    "moto",
]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Machine:
    """Return a machine without credentials."""
    return Machine(monkeypatch, tmp_path)
