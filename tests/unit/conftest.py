"""Fixtures of the unit tests."""

from __future__ import annotations

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
