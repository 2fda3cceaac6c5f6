"""One running server of each kind for the whole test run; import the fixtures into a conftest."""

from __future__ import annotations

import atexit
import contextlib
import functools
import sys

import pytest

from asynclock.testing.servers import Server, running

_stack = contextlib.ExitStack()
atexit.register(_stack.close)


@functools.cache
def server(name: str) -> Server:
    """Return the server of that name, started on first use and stopped when the process ends."""
    started = _stack.enter_context(running(name))
    sys.stderr.write(f"{name}: {started.version}\n")
    return started


@pytest.fixture(scope="session")
def minio() -> Server:
    """Return MinIO, or the store that ASYNCLOCK_TEST_S3_URL names."""
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
    """Return fake-gcs-server, or the store that ASYNCLOCK_TEST_GCS_URL names."""
    return server("gcs")


@pytest.fixture(scope="session")
def azurite() -> Server:
    """Return Azurite, or the store that ASYNCLOCK_TEST_AZURE_URL names."""
    return server("azure")


@pytest.fixture(scope="session", params=["s3", "moto", "gcs", "azure"])
def any_server(request: pytest.FixtureRequest) -> Server:
    """Return each of the four servers in turn."""
    return server(request.param)


@pytest.fixture(scope="session", params=["s3", "gcs", "azure"])
def cloud(request: pytest.FixtureRequest) -> Server:
    """Return one server for each SDK in turn."""
    return server(request.param)
