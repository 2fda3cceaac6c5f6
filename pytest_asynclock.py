"""pytest fixtures: clients of a lock whose store is in memory, fails on demand, or lives in virtual time.

pytest loads this module in every run where asynclock is installed, so it imports nothing of asynclock
before a test asks for a fixture: that would take a third as long as pytest itself, and register hooks
for fork and exit. That is also why it is a module next to the package: to load a module of the package
is to import the package. It has fixtures only, no hook and no option; their names begin with
``asynclock_``.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from asynclock import LeaseSettings, LockClient
    from asynclock.testing import FaultyClient, VirtualWorld


@pytest.fixture
def asynclock_settings() -> LeaseSettings:
    """The times of the leases of the other fixtures: the defaults. Override it to have others."""
    from asynclock import LeaseSettings

    return LeaseSettings()


@pytest.fixture
def asynclock_memory(asynclock_settings: LeaseSettings) -> Iterator[LockClient]:
    """A LockClient whose store is in memory and the test's own, usable from any loop and thread.

    Other clients of this process, blocking ones too, reach the same locks by its ``url``.
    """
    import asynclock.sync

    client = asynclock.connect(_own_url(), settings=asynclock_settings)
    with closing(asynclock.sync.LockClient(client._core)):
        yield client


@pytest.fixture
def asynclock_faulty(asynclock_settings: LeaseSettings) -> Iterator[FaultyClient]:
    """Like asynclock_memory, but its ``backend`` spoils requests: ``inject`` and ``storm``."""
    import asynclock.sync
    from asynclock.backends import open_backend
    from asynclock.testing import FaultyBackend, FaultyClient

    url = _own_url()
    backend = FaultyBackend(open_backend(url))
    client = FaultyClient(url=url, backend=backend, settings=asynclock_settings)
    with closing(asynclock.sync.LockClient(client._core)):
        yield client
        backend.calm()


@pytest.fixture
def asynclock_virtual(asynclock_settings: LeaseSettings) -> Iterator[VirtualWorld]:
    """A VirtualWorld: a store and machines in virtual time, for tests that are not async."""
    from asynclock.testing import VirtualWorld

    with VirtualWorld(settings=asynclock_settings) as world:
        yield world


def _own_url() -> str:
    return f"memory://{uuid4()}"
