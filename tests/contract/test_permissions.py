"""What a key may do, by the stores' own word: MinIO's session policies, Azurite's signatures."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import uuid
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from azure.storage.blob import ContainerSasPermissions, generate_container_sas

import asynclock
from asynclock import LeaseSettings
from asynclock.backend import Absent
from asynclock.backends import open_backend
from asynclock.errors import AccessDeniedError
from tests.contract.keys import temporary_key
from tests.laboratory.servers import AZURE_ACCOUNT, AZURE_KEY, BUCKET

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from tests.laboratory.servers import Server

# The servers are one node each.
SETTINGS = LeaseSettings(validity=60.0, max_clock_skew=0.5)


def _session(server: Server, actions: list[str]) -> Coroutine[Any, Any, dict[str, Any]]:
    """Get the options of a temporary key that may do only that, to any object."""
    return temporary_key(server, {"Effect": "Allow", "Action": actions, "Resource": ["arn:aws:s3:::*"]})


def _signature(server: Server, **permissions: bool) -> dict[str, Any]:
    """Return the options of a signature that allows only that."""
    text = generate_container_sas(
        AZURE_ACCOUNT,
        BUCKET,
        account_key=AZURE_KEY,
        permission=ContainerSasPermissions(**permissions),
        expiry=datetime.now(UTC) + timedelta(hours=1),
    )
    return {"account_url": server.options["account_url"], "sas_token": text}


async def _refused(url: str, options: dict[str, Any], whole: dict[str, Any]) -> AccessDeniedError:
    """Return the error of an acquisition; nothing may have been written."""
    async with asynclock.connect(url, settings=SETTINGS, renewal="loop", **options) as client:
        with pytest.raises(AccessDeniedError) as caught:
            await client.lock("a").acquire(timeout=60)
    backend = open_backend(url, **whole)
    assert isinstance(await backend.get("a.json"), Absent)
    await backend.aclose()
    assert caught.value.written == "no"
    assert "\n" not in str(caught.value)
    return caught.value


async def _hold_and_list(url: str, options: dict[str, Any]) -> int:
    """Have a lock twice and list it; return how many there are."""
    async with asynclock.connect(url, settings=SETTINGS, renewal="loop", **options) as client:
        for _ in range(2):
            async with client.lock("a").hold(timeout=60) as lease:
                await lease.confirm()
        return len(await client.list())


async def test_reading_writing_and_listing_are_enough_on_s3(minio: Server) -> None:
    """A temporary key without the right to delete holds locks."""
    actions = ["s3:GetObject", "s3:PutObject", "s3:ListBucket"]
    options = await _session(minio, actions)

    assert await _hold_and_list(f"{minio.url}/least-{uuid.uuid4()}", options) == 1


async def test_a_probe_without_the_right_to_delete_says_what_it_left(minio: Server) -> None:
    """Where nothing may be deleted locks are safe; report and command name what stays, list skips it."""
    options = await _session(minio, ["s3:GetObject", "s3:PutObject", "s3:ListBucket"])
    url = f"{minio.url}/probed-{uuid.uuid4()}"

    report = await asynclock.probe(url, **options)
    told = await asyncio.to_thread(_doctor, url, options)

    backend = open_backend(url, **minio.options)
    there = {entry.key async for entry in backend.list("")}
    await backend.aclose()
    said = {line.split()[1] for line in told if line.startswith("left ")}
    assert report.safe
    assert len(report.left) == len(said) > 10
    assert {*report.left, *said} == there
    assert told[-1] == f"{url}: locks may be kept here"
    async with asynclock.connect(url, **options) as client, client.lock("a").hold():
        assert [status.name for status in await client.list()] == ["a"]


def _doctor(url: str, options: dict[str, Any]) -> list[str]:
    """Return what the command prints, which has its key from the environment."""
    environment = os.environ | {
        "AWS_ACCESS_KEY_ID": options["access_key_id"],
        "AWS_SECRET_ACCESS_KEY": options["secret_access_key"],
        "AWS_SESSION_TOKEN": options["session_token"],
        "AWS_ENDPOINT_URL": options["endpoint_url"],
    }
    command = (sys.executable, "-c", "from asynclock._cli import main; main()", "doctor", url)
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True)
    return ran.stdout.splitlines()


@pytest.mark.parametrize(
    "actions",
    [["s3:GetObject", "s3:ListBucket"], ["s3:PutObject", "s3:ListBucket"]],
    ids=["no writing", "no reading"],
)
async def test_a_right_missing_on_s3_is_named(minio: Server, actions: list[str]) -> None:
    """Where the key may not write, or not read, the error says what it needs."""
    options = await _session(minio, actions)

    error = await _refused(f"{minio.url}/denied-{uuid.uuid4()}", options, minio.options)

    assert all(right in str(error) for right in ("403", "s3:GetObject", "s3:PutObject", "s3:ListBucket"))


async def test_a_signature_that_reads_creates_and_writes_is_enough_on_azure(azurite: Server) -> None:
    """A signature without the right to delete holds locks."""
    options = _signature(azurite, read=True, create=True, write=True, list=True)

    assert await _hold_and_list(f"{azurite.url}/least-{uuid.uuid4()}", options) == 1


@pytest.mark.parametrize(
    "permissions", [{"read": True, "list": True}, {"create": True, "write": True}], ids=["reads", "writes"]
)
async def test_a_right_missing_on_azure_is_named(azurite: Server, permissions: dict[str, bool]) -> None:
    """Where the signature only reads or only writes, the error says what it needs."""
    options = _signature(azurite, **permissions)

    error = await _refused(f"{azurite.url}/denied-{uuid.uuid4()}", options, azurite.options)

    assert "a signature with rcwl" in str(error)


@pytest.mark.parametrize("delete", [False, True], ids=["keeps", "deletes"])
async def test_a_probe_with_a_signature_says_what_it_left_on_azure(azurite: Server, *, delete: bool) -> None:
    """A signature that may not delete leaves the objects of a probe, and the report names them."""
    options = _signature(azurite, read=True, create=True, write=True, list=True, delete=delete)
    url = f"{azurite.url}/probed-{uuid.uuid4()}"

    report = await asynclock.probe(url, **options)

    backend = open_backend(url, **azurite.options)
    assert report.safe
    assert {*report.left} == {entry.key async for entry in backend.list("")}
    assert bool(report.left) is not delete
    await backend.aclose()


async def test_a_signature_that_has_run_out_is_told(azurite: Server) -> None:
    """An old signature is refused at once, as one."""
    text = generate_container_sas(
        AZURE_ACCOUNT,
        BUCKET,
        account_key=AZURE_KEY,
        permission=ContainerSasPermissions(read=True, create=True, write=True, list=True),
        expiry=datetime.now(UTC) - timedelta(hours=1),
    )
    options = {"account_url": azurite.options["account_url"], "sas_token": text}

    error = await _refused(f"{azurite.url}/old-{uuid.uuid4()}", options, azurite.options)

    assert "403" in str(error)
