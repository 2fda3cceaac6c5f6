"""Every backend that a scheme opens, under the same contract."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import TYPE_CHECKING

import pytest

from asynclock.backends import GROUP, open_backend
from asynclock.testing.contract import BackendContract

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from asynclock.backend import Backend
    from tests.laboratory.servers import Server


async def _opened(url: str, **options: object) -> AsyncIterator[Backend]:
    backend = open_backend(url, **options)
    yield backend
    await backend.aclose()


class TestMemory(BackendContract):
    schemes = ("memory",)

    @pytest.fixture
    async def backend(self) -> AsyncIterator[Backend]:
        """Open memory://."""
        async for backend in _opened("memory://"):
            yield backend


class TestFile(BackendContract):
    schemes = ("file",)

    @pytest.fixture
    async def backend(self, tmp_path: Path) -> AsyncIterator[Backend]:
        """Open file://."""
        async for backend in _opened(f"file://{tmp_path}/locks"):
            yield backend


class TestMinio(BackendContract):
    schemes = ("s3", "s3a")

    @pytest.fixture
    async def backend(self, s3_store: Server) -> AsyncIterator[Backend]:
        """Open MinIO, or the store that is named."""
        async for backend in _opened(f"{s3_store.url}/contract", **s3_store.options):
            yield backend


class TestMinioTls(BackendContract):
    schemes = ("s3", "s3a")

    @pytest.fixture
    async def backend(self, minio_tls: Server) -> AsyncIterator[Backend]:
        """Open MinIO over TLS, where bodies are not signed."""
        async for backend in _opened(f"{minio_tls.url}/contract", **minio_tls.options):
            yield backend


class TestMoto(BackendContract):
    schemes = ("s3", "s3a")

    @pytest.fixture
    async def backend(self, moto_store: Server) -> AsyncIterator[Backend]:
        """Open moto, or the store that is named."""
        async for backend in _opened(f"{moto_store.url}/contract", **moto_store.options):
            yield backend


class TestFakeGcs(BackendContract):
    schemes = ("gs",)

    @pytest.fixture
    async def backend(self, gcs_store: Server) -> AsyncIterator[Backend]:
        """Open fake-gcs-server, or the store that is named."""
        async for backend in _opened(f"{gcs_store.url}/contract", **gcs_store.options):
            yield backend


class TestAzurite(BackendContract):
    schemes = ("az", "abfs", "abfss", "wasb", "wasbs")

    @pytest.fixture
    async def backend(self, azure_store: Server) -> AsyncIterator[Backend]:
        """Open Azurite, or the store that is named."""
        async for backend in _opened(f"{azure_store.url}/contract", **azure_store.options):
            yield backend


def _contracts() -> Iterator[type[BackendContract]]:
    return (
        kind for kind in globals().values() if isinstance(kind, type) and issubclass(kind, BackendContract)
    )


def test_every_scheme_is_under_the_contract() -> None:
    """No URL scheme opens a backend that the contract has not been run against."""
    bound = {scheme for kind in _contracts() for scheme in getattr(kind, "schemes", ())}

    registered = {p.name for p in entry_points(group=GROUP) if p.value.startswith("asynclock.")}

    assert bound == registered
