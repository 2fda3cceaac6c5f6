"""Fixtures of the unit tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.unit.kit import World

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def world() -> Iterator[World]:
    """Return a store and machines in virtual time."""
    world = World()
    yield world
    world.loop.close()
