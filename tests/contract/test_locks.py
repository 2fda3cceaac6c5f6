"""The lock on every backend that a scheme opens, under the same contract."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from asynclock.backends import BUILT_IN, open_backend
from asynclock.testing import LockContract

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from asynclock.backend import Backend
    from tests.laboratory.servers import Server


async def _opened(url: str, **options: object) -> AsyncIterator[Backend]:
    backend = open_backend(url, **options)
    yield backend
    await backend.aclose()


class TestMemory(LockContract):
    schemes = ("memory",)

    @pytest.fixture
    async def backend(self) -> AsyncIterator[Backend]:
        """Open memory://."""
        async for backend in _opened("memory://"):
            yield backend


class TestFile(LockContract):
    schemes = ("file",)

    @pytest.fixture
    async def backend(self, tmp_path: Path) -> AsyncIterator[Backend]:
        """Open a folder of its own."""
        async for backend in _opened(tmp_path.as_uri()):
            yield backend


class TestGcsPace(LockContract):
    """A store that takes one write a second of each object."""

    @pytest.fixture
    async def backend(self) -> AsyncIterator[Backend]:
        """Open memory:// with the pace of GCS, shortened."""
        async for backend in _opened("memory://", min_write_interval=0.1):
            yield backend


class TestMinio(LockContract):
    schemes = ("s3", "s3a")

    @pytest.fixture
    async def backend(self, s3_store: Server) -> AsyncIterator[Backend]:
        """Open MinIO, or the store that is named."""
        async for backend in _opened(f"{s3_store.url}/locks", **s3_store.options):
            yield backend


class TestMoto(LockContract):
    schemes = ("s3", "s3a")

    @pytest.fixture
    async def backend(self, moto_store: Server) -> AsyncIterator[Backend]:
        """Open moto, or the store that is named."""
        async for backend in _opened(f"{moto_store.url}/locks", **moto_store.options):
            yield backend


class TestFakeGcs(LockContract):
    schemes = ("gs",)

    @pytest.fixture
    async def backend(self, gcs_store: Server) -> AsyncIterator[Backend]:
        """Open fake-gcs-server, or the store that is named."""
        async for backend in _opened(f"{gcs_store.url}/locks", **gcs_store.options):
            yield backend


class TestAzurite(LockContract):
    schemes = ("az", "abfs", "abfss", "wasb", "wasbs")

    @pytest.fixture
    async def backend(self, azure_store: Server) -> AsyncIterator[Backend]:
        """Open Azurite, or the store that is named."""
        async for backend in _opened(f"{azure_store.url}/locks", **azure_store.options):
            yield backend


def _contracts() -> Iterator[type[LockContract]]:
    return (kind for kind in globals().values() if isinstance(kind, type) and issubclass(kind, LockContract))


def test_every_scheme_is_under_the_contract() -> None:
    """No URL scheme opens a backend on which the lock has not been tried."""
    bound = {scheme for kind in _contracts() for scheme in getattr(kind, "schemes", ())}

    assert bound == set(BUILT_IN)


BOUND_TO_A_BROKEN_STORE = """
import asyncio
import time
import pytest
from asynclock import Absent
from asynclock.backends import open_backend
from asynclock.testing import LockContract

class TestBroken(LockContract):
    @pytest.fixture
    async def backend(self):
        backend = open_backend("memory://")

        async def put(key, body, version=None):
            await asyncio.sleep(0.01)  # as long as a request takes: others get in between
            return await backend.put(key, body)

        async def get(key):
            await asyncio.sleep(0.01)
            return Absent(time.time())

        backend.{broken} = get if "{broken}" == "get" else put
        yield backend
        await backend.aclose()
"""


@pytest.mark.parametrize(
    ("broken", "noticed_by"),
    [
        ("put_if_absent", "contenders_take_turns"),
        ("put_if_match", "a_broken_lock_is_lost"),
        ("get", "a_free_lock_is_acquired"),
    ],
    ids=["creates over what is there", "writes over any version", "shows no object"],
)
def test_a_broken_store_fails_the_contract(tmp_path: Path, broken: str, noticed_by: str) -> None:
    """The contract tells: a store that breaks one promise does not pass."""
    bound = tmp_path / "test_broken.py"
    bound.write_text(BOUND_TO_A_BROKEN_STORE.format(broken=broken))

    options = ["-q", "-o", "asyncio_mode=auto", "-p", "no:cacheprovider", "-k", noticed_by]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(bound)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout
    assert "1 failed" in done.stdout
