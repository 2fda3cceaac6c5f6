"""One running server of each kind for the whole test run; import the fixtures into a conftest.

``minio``, ``fake_gcs``, ``azurite`` and ``moto`` are the tests' own: to be broken and administered.
``s3_store``, ``gcs_store``, ``azure_store`` and ``moto_store`` are those that the environment names,
a real account too, else the same servers.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
from typing import TYPE_CHECKING

import pytest

from tests.laboratory.servers import Server, is_named, running

if TYPE_CHECKING:
    from collections.abc import Iterator

_stack = contextlib.ExitStack()
atexit.register(_stack.close)
versions: dict[str, str] = {}
"""What has been started or found in this run, for its report."""


@functools.cache
def server(name: str) -> Server:
    """Return the tests' own server of that name, started on first use and stopped when the process ends."""
    started = _stack.enter_context(running(name, own=True))
    versions[name] = started.version
    return started


def store(name: str) -> Iterator[Server]:
    """Yield the store that the environment names, emptied of the tests' objects afterwards, or ``server``."""
    if not is_named(name):
        yield server(name)
        return
    with running(name) as found:
        versions[name] = found.version
        yield found


@pytest.fixture(scope="session")
def minio() -> Server:
    """Return MinIO."""
    return server("s3")


@pytest.fixture(scope="session")
def minio_tls() -> Server:
    """Return MinIO behind a certificate of its own, with a key to encrypt by."""
    return server("s3-tls")


@pytest.fixture(scope="session")
def fake_gcs_tls() -> Server:
    """Return fake-gcs-server behind a certificate of its own."""
    return server("gcs-tls")


@pytest.fixture(scope="session")
def azurite_tls() -> Server:
    """Return Azurite behind a certificate of its own, which takes access tokens."""
    return server("azure-tls")


@pytest.fixture(scope="session")
def moto() -> Server:
    """Return moto, another dialect of S3."""
    return server("moto")


@pytest.fixture(scope="session")
def fake_gcs() -> Server:
    """Return fake-gcs-server."""
    return server("gcs")


@pytest.fixture(scope="session")
def azurite() -> Server:
    """Return Azurite."""
    return server("azure")


@pytest.fixture(scope="session")
def s3_store() -> Iterator[Server]:
    """Return the store that ASYNCLOCK_TEST_S3_URL names, or MinIO."""
    yield from store("s3")


@pytest.fixture(scope="session")
def moto_store() -> Iterator[Server]:
    """Return the store that ASYNCLOCK_TEST_MOTO_URL names, or moto."""
    yield from store("moto")


@pytest.fixture(scope="session")
def gcs_store() -> Iterator[Server]:
    """Return the store that ASYNCLOCK_TEST_GCS_URL names, or fake-gcs-server."""
    yield from store("gcs")


@pytest.fixture(scope="session")
def azure_store() -> Iterator[Server]:
    """Return the store that ASYNCLOCK_TEST_AZURE_URL names, or Azurite."""
    yield from store("azure")


@pytest.fixture(scope="session", params=["s3", "moto", "gcs", "azure"])
def any_store(request: pytest.FixtureRequest) -> Iterator[Server]:
    """Return each of the four stores in turn."""
    yield from store(request.param)


@pytest.fixture(scope="session", params=["s3", "moto", "gcs", "azure"])
def any_server(request: pytest.FixtureRequest) -> Server:
    """Return each of the four servers in turn."""
    return server(request.param)


@pytest.fixture(scope="session", params=["s3", "gcs", "azure"])
def cloud(request: pytest.FixtureRequest) -> Server:
    """Return one server for each SDK in turn."""
    return server(request.param)
