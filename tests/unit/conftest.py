"""Fixtures of the unit tests."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.unit.kit import STEADY, World

if TYPE_CHECKING:
    from collections.abc import Iterator

    from asynclock.testing.store import StoreProfile


@pytest.fixture
def profile() -> StoreProfile:
    """Return the kind of store; tests replace it by another."""
    return STEADY


@pytest.fixture
def world(profile: StoreProfile) -> Iterator[World]:
    """Return a store of that kind and machines in virtual time."""
    world = World(profile)
    yield world
    world.loop.close()


@pytest.fixture
def public() -> Iterator[Path]:
    """Return a folder that every user of this machine can reach; pytest's own are closed to others."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder
