"""A fetch of credentials is shared: a cancelled or hanging request takes no other with it."""

from __future__ import annotations

import asyncio
import time
import uuid
from typing import TYPE_CHECKING

import azure.identity._internal.utils
from gcloud.aio.auth import Token

import asynclock
from asynclock import LeaseSettings
from asynclock.backend import Absent
from asynclock.backends import open_backend
from asynclock.testing._proxy import TapProxy
from tests.faults.credentials import (
    Aws,
    Entra,
    Google,
    Machine,
    age_token,
    from_container,
    managed_identity,
    service_account,
    without_keys,
)
from tests.faults.metadata import MetadataServer

if TYPE_CHECKING:
    from collections.abc import Callable

    from asynclock.backend import Backend
    from tests.laboratory.servers import Server


async def test_a_cancelled_request_takes_no_other_with_it(fake_gcs: Server, machine: Machine) -> None:
    """Of ten requests that wait for the first token one is cancelled: the nine share that token."""
    google = Google()
    async with MetadataServer(google) as metadata, TapProxy(fake_gcs.endpoint) as proxy:
        service_account(machine, metadata.url)
        metadata.mood = "hang"
        async with Token(scopes=["storage"]) as token:
            options = {**fake_gcs.through(proxy.url), "token": token}
            backend = open_backend(f"{fake_gcs.url}/cancelled", **options)
            waiting = [asyncio.create_task(backend.get("a.json")) for _ in range(10)]
            while metadata.asked == 0:  # noqa: ASYNC110  only a look tells what a server was asked
                await asyncio.sleep(0.01)
            waiting[0].cancel()
            metadata.release()
            outcomes = await asyncio.gather(*waiting, return_exceptions=True)
            await backend.aclose()

    assert isinstance(outcomes[0], asyncio.CancelledError)
    assert all(isinstance(outcome, Absent) for outcome in outcomes[1:])
    assert (metadata.asked, len(proxy.journal)) == (1, 9)


async def _first_of_ten_cancelled(backend: Backend, metadata: MetadataServer) -> list[object]:
    """Cancel one of ten requests that wait for hanging credentials; return what became of each."""
    metadata.mood = "hang"
    waiting = [asyncio.create_task(backend.get("a.json")) for _ in range(10)]
    while metadata.asked == 0:  # noqa: ASYNC110  only a look tells what a server was asked
        await asyncio.sleep(0.01)
    waiting[0].cancel()
    await asyncio.sleep(0)
    metadata.release()
    return await asyncio.gather(*waiting, return_exceptions=True)


async def test_a_cancelled_request_takes_no_other_of_s3_with_it(minio: Server, machine: Machine) -> None:
    """Of ten requests that wait for the first keys one is cancelled: the nine get through."""
    async with MetadataServer(Aws(minio)) as metadata:
        from_container(machine, metadata.url)
        backend = open_backend(f"{minio.url}/cancelled", **without_keys(minio))
        outcomes = await _first_of_ten_cancelled(backend, metadata)
        await backend.aclose()

    assert isinstance(outcomes[0], asyncio.CancelledError)
    assert all(isinstance(outcome, Absent) for outcome in outcomes[1:])


async def test_a_cancelled_request_takes_no_other_of_azure_with_it(
    azurite_tls: Server, machine: Machine
) -> None:
    """Of ten requests that wait for the first token one is cancelled: the nine share that token."""
    async with managed_identity(machine, azurite_tls, entra := Entra()) as metadata:
        account = {"account_url": azurite_tls.options["account_url"]}
        backend = open_backend(f"{azurite_tls.url}/cancelled", **account)
        outcomes = await _first_of_ten_cancelled(backend, metadata)
        await backend.aclose()

    assert isinstance(outcomes[0], asyncio.CancelledError)
    assert all(isinstance(outcome, Absent) for outcome in outcomes[1:])
    assert len(entra.grants) == 1


LEASES = 10
SIDE_BY_SIDE = LeaseSettings(validity=20.0, max_clock_skew=0.5)
HANGS = 3.0


async def _renew_side_by_side(
    metadata: MetadataServer, url: str, *, age: Callable[[], None] | None = None, **options: object
) -> list[str]:
    """Renew many leases, some in vain, while a refresh hangs; return those that none succeeded for."""
    async with asynclock.connect(
        f"{url}/{uuid.uuid4()}", settings=SIDE_BY_SIDE, renewal="loop", **options
    ) as client:
        leases = [await client.lock(f"lock-{n}").acquire(timeout=10) for n in range(LEASES)]
        renewed: set[str] = set()
        metadata.mood = "hang"
        if age is not None:
            age()
        asked, until = metadata.asked, time.monotonic() + HANGS
        while time.monotonic() < until or metadata.asked == asked:
            renewals = [asyncio.create_task(lease.confirm()) for lease in leases]
            await asyncio.sleep(0.01)
            for renewal in renewals[::4]:
                renewal.cancel()
            outcomes = await asyncio.gather(*renewals, return_exceptions=True)
            renewed |= {lease.name for lease, o in zip(leases, outcomes, strict=True) if o is None}
            leases.append(leases.pop(0))  # others are cancelled the next time
        metadata.release()
        return [lease.name for lease in leases if not lease.held or lease.name not in renewed]


async def test_many_s3_leases_outlive_a_hanging_refresh(minio: Server, machine: Machine) -> None:
    """Ten leases are renewed all the time that a refresh hangs, though some calls are cancelled."""
    async with MetadataServer(Aws(minio)) as metadata:
        from_container(machine, metadata.url)

        assert await _renew_side_by_side(metadata, minio.url, **without_keys(minio)) == []


async def test_many_azure_leases_outlive_a_hanging_refresh(azurite_tls: Server, machine: Machine) -> None:
    """Ten leases are renewed all the time that a refresh hangs, though some calls are cancelled."""
    entra = Entra()
    entra.lasts = 240
    machine.patch(azure.identity._internal.utils, "DEFAULT_TOKEN_REFRESH_RETRY_DELAY", 0)
    async with managed_identity(machine, azurite_tls, entra) as metadata:
        account = {"account_url": azurite_tls.options["account_url"]}

        assert await _renew_side_by_side(metadata, azurite_tls.url, **account) == []


async def test_many_gcs_leases_outlive_a_hanging_refresh(fake_gcs: Server, machine: Machine) -> None:
    """Ten leases are renewed all the time that a refresh hangs, though some calls are cancelled."""
    async with MetadataServer(Google()) as metadata:
        service_account(machine, metadata.url)
        async with Token(scopes=["storage"]) as token:
            options = {**fake_gcs.options, "token": token}

            failed = await _renew_side_by_side(
                metadata, fake_gcs.url, age=lambda: age_token(machine), **options
            )

    assert failed == []
