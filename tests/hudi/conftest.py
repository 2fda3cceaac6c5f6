"""A Hudi table on a real S3 server, and a JVM with Hudi's provider."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from asynclock.backend import Stored
from asynclock.backends import open_backend
from asynclock.hudi._core.paths import LOCK_NAME
from tests.hudi.harness import Providers, compile_harness
from tests.servers.fixtures import minio  # noqa: F401  a fixture

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

    from asynclock.backend import Backend
    from tests.laboratory.servers import Server

LOCK_KEY = f"{LOCK_NAME}.json"
_numbers = itertools.count()


@dataclass
class Table:
    """A table of one test.

    Attributes:
        base: Its base path.
        options: Those of ``table_lock``: the shortest lease that Hudi allows, one node's clock.
        backend: Its store, for looking behind the scenes.
    """

    base: str
    options: dict[str, Any]
    backend: Backend

    async def lock_file(self) -> bytes:
        """The bytes of the lock."""
        stored = await self.backend.get(LOCK_KEY)
        assert isinstance(stored, Stored)
        return stored.body


def lock_options(server: Server) -> dict[str, Any]:
    """Options that lead ``table_lock`` to a server of one node."""
    return {
        "hoodie.write.lock.storage.validity.timeout.secs": "10",
        "hoodie.write.lock.storage.renew.interval.secs": "1",
        "asynclock.max_clock_skew": "0",
        **{f"asynclock.{name}": value for name, value in server.options.items()},
    }


@pytest.fixture
async def table(minio: Server) -> AsyncIterator[Table]:  # noqa: F811  the fixture
    """A Hudi table of version 9 without data."""
    base = f"{minio.url}/hudi-{next(_numbers)}"
    backend = open_backend(base, **minio.options)
    try:
        await backend.put(".hoodie/hoodie.properties", b"hoodie.table.name=t\nhoodie.table.version=9\n")
        yield Table(base, lock_options(minio), backend)
    finally:
        await backend.aclose()


@pytest.fixture(scope="session")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled harness."""
    return compile_harness(tmp_path_factory.mktemp("harness"))


@pytest.fixture(scope="session")
def jvm(classes: Path, minio: Server) -> Iterator[Providers]:  # noqa: F811  the fixture
    """A JVM that lives as long as the run."""
    with Providers(classes, minio) as program:
        yield program


@pytest.fixture
def new_jvm(classes: Path, minio: Server) -> Iterator[Callable[..., Providers]]:  # noqa: F811  the fixture
    """A JVM of the test's own, to be killed or led through a proxy."""
    started: list[Providers] = []

    def start(endpoint: str | None = None) -> Providers:
        started.append(Providers(classes, minio, endpoint=endpoint))
        return started[-1]

    yield start
    for program in started:
        program.__exit__()
