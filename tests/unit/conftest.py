"""Fixtures of the unit tests."""

from __future__ import annotations

import asyncio
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from asynclock.backends._local import LocalBackend
from tests.unit.kit import STEADY, World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from asynclock.testing._store import StoreProfile


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


@pytest.fixture
def host() -> Iterator[asyncio.AbstractEventLoop]:
    """Return a loop that runs in a thread of its own."""
    host = asyncio.new_event_loop()
    thread = threading.Thread(target=host.run_forever)
    thread.start()
    yield host
    host.call_soon_threadsafe(host.stop)
    thread.join()
    host.close()


@pytest.fixture
def backend(tmp_path: Path) -> LocalBackend:
    """Return a backend in a folder that does not exist yet."""
    return LocalBackend(tmp_path / "locks", fsync=False)


@pytest.fixture
def backend_here(tmp_path: Path) -> LocalBackend:
    """Return a backend in a folder that exists."""
    return LocalBackend(tmp_path, fsync=False)


@pytest.fixture
def write_spec(tmp_path: Path) -> Callable[[str], Path]:
    """Write a spec whose sources exist."""
    for stream in ("departures", "arrivals"):
        folder = tmp_path / "in" / stream
        folder.mkdir(parents=True)
        (folder / "0.csv").write_text("tailnum\nN1\n")

    def written(text: str) -> Path:
        path = tmp_path / "fleet.toml"
        path.write_text(text)
        return path

    return written
