"""Deletes on condition at each store, and which stores a prune refuses."""

from __future__ import annotations

import contextlib
import os
import uuid
from typing import TYPE_CHECKING, Any

import pytest

from asynclock import LeaseSettings, LockClient, UnsupportedBackendError, connect
from asynclock._core.prune import _try_out
from asynclock.backend import Absent, ConditionalDelete, Stored
from asynclock.backends import open_backend
from asynclock.errors import PreconditionFailedError

if TYPE_CHECKING:
    from pathlib import Path

    from tests.laboratory.servers import Server

SETTINGS = LeaseSettings(validity=20)


@pytest.fixture(params=["memory", "file", "moto", "azurite"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, dict[str, Any]]:
    """A store that looks at the condition of a delete: its URL and options."""
    if request.param in {"memory", "file"}:
        url = f"memory://{uuid.uuid4()}" if request.param == "memory" else f"file://{tmp_path}/locks"
        return url, {}
    found: Server = request.getfixturevalue(request.param)
    return f"{found.url}/{uuid.uuid4()}", dict(found.options)


async def test_only_the_version_that_is_named_is_deleted(place: tuple[str, dict[str, Any]]) -> None:
    """An old version is refused and stays, the present one is deleted."""
    url, options = place
    backend = open_backend(url, **options)
    try:
        assert isinstance(backend, ConditionalDelete)
        old = await backend.put_if_absent("a.json", b"1")
        new = await backend.put_if_match("a.json", b"2", old.version)
        with pytest.raises(PreconditionFailedError):
            await backend.delete_if_match("a.json", old.version)
        assert isinstance(await backend.get("a.json"), Stored)
        await backend.delete_if_match("a.json", new.version)
        assert isinstance(await backend.get("a.json"), Absent)
        with contextlib.suppress(PreconditionFailedError):  # a missing object: the stores differ
            await backend.delete_if_match("a.json", new.version)
    finally:
        await backend.aclose()


async def test_such_a_store_passes_the_trial_of_a_prune(place: tuple[str, dict[str, Any]]) -> None:
    """The trial ends well and leaves nothing."""
    url, options = place
    async with connect(url, settings=SETTINGS, **options) as client:
        await client._core.run(lambda: _try_out(client._core))

        assert await client._core.run(lambda: _listed(client)) == []


@pytest.fixture(params=["minio", "fake_gcs"])
def careless(request: pytest.FixtureRequest) -> Server:
    """A server that ignores the condition of a delete."""
    found: Server = request.getfixturevalue(request.param)
    return found


async def test_a_store_that_ignores_the_condition_is_refused(careless: Server) -> None:
    """MinIO and fake-gcs-server delete whatever the version is, so no lock there is ever pruned."""
    async with connect(f"{careless.url}/{uuid.uuid4()}", settings=SETTINGS, **careless.options) as client:
        with pytest.raises(UnsupportedBackendError, match="ignores the condition"):
            await client._core.run(lambda: _try_out(client._core))

        assert await client._core.run(lambda: _listed(client)) == []


async def _listed(client: LockClient) -> list[str]:
    return [entry.key async for entry in client.backend.list("")]


async def test_a_version_of_a_file_counts_its_time(tmp_path: Path) -> None:
    """A file that was replaced by the same bytes is another version, and is not deleted."""
    backend = open_backend(f"file://{tmp_path}")
    try:
        written = await backend.put("a.json", b"1")
        os.utime(tmp_path / "a.json")
        assert isinstance(backend, ConditionalDelete)
        with pytest.raises(PreconditionFailedError):
            await backend.delete_if_match("a.json", written.version)
    finally:
        await backend.aclose()

    assert (tmp_path / "a.json").exists()
