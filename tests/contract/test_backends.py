"""Every backend that a scheme opens, under the same contract."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from asynclock.backends import BUILT_IN, open_backend
from asynclock.testing._contract import BackendContract

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
        """Open file:// in a folder that exists, as the buckets of the others do."""
        (tmp_path / "locks").mkdir()
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

    assert bound == set(BUILT_IN)


BOUND_TO_A_STORE_WITHOUT_DATES = """
from dataclasses import replace
import pytest
from asynclock import Absent, Stored, Written
from asynclock.backends import open_backend
from asynclock.testing import BackendContract

class TestBroken(BackendContract):
    @pytest.fixture
    async def backend(self):
        backend = open_backend("memory://")

        def without_date(call):
            async def changed(*arguments):
                answer = await call(*arguments)
                if isinstance(answer, {spoiled}):
                    return {answer}
                return answer

            return changed

        for name in ("get", "put_if_absent", "put_if_match", "put"):
            setattr(backend, name, without_date(getattr(backend, name)))
        backend.sends_dates = {sends_dates}
        yield backend
        await backend.aclose()
"""
DATELESS = "replace(answer, server_time=None)"


@pytest.mark.parametrize(
    ("spoiled", "answer", "sends_dates", "failed"),
    [
        ("Absent", DATELESS, True, "test_dates_are_sent_as_the_backend_says"),
        ("Stored", DATELESS, True, "test_dates_are_sent_as_the_backend_says"),
        ("Written", DATELESS, True, "test_dates_are_sent_as_the_backend_says"),
        ("Absent", "answer", False, "test_dates_are_sent_as_the_backend_says"),
        ("Absent", "None", True, "test_a_missing_object_reads_as_absent"),
    ],
    ids=["missing object", "object", "write", "Dates though it says never", "None for a missing object"],
)
def test_a_backend_that_hides_the_date_fails_the_contract(
    tmp_path: Path,
    spoiled: str,
    answer: str,
    sends_dates: bool,  # noqa: FBT001  a parameter of the test
    failed: str,
) -> None:
    """A backend whose answers lack the Dates that it claims to send does not pass the contract."""
    bound = tmp_path / "test_broken.py"
    bound.write_text(
        BOUND_TO_A_STORE_WITHOUT_DATES.format(spoiled=spoiled, answer=answer, sends_dates=sends_dates)
    )

    options = ["-q", "-o", "asyncio_mode=auto", "-p", "no:cacheprovider", "-k", "dates or missing"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(bound)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout
    assert failed in done.stdout
