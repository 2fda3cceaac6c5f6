"""Credentials come by each SDK's own chain, and a refresh gone wrong costs no lease while time remains."""

from __future__ import annotations

import asyncio
import hashlib
import json
import uuid
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import azure.identity._internal.utils
import botocore.credentials
import gcloud.aio.auth.token
import pytest
from gcloud.aio.auth import Token

import asynclock
import asynclock.backends._credentials
from asynclock import LeaseSettings
from asynclock.backends import open_backend
from asynclock.errors import BackendUnavailableError
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
from tests.faults.metadata import MetadataServer, Mood

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager

    from tests.laboratory.servers import Server

# The servers are one node each.
SETTINGS = LeaseSettings(validity=4.0, max_clock_skew=0.5)
ROLE = "arn:aws:iam::123456789012:role/locker"
MOODS: tuple[Mood, ...] = ("serve", "fail", "hang")


async def _hold(url: str, **options: object) -> asynclock.Lease:
    """Have a lock and give it back; return its lease."""
    async with (
        asynclock.connect(f"{url}/{uuid.uuid4()}", settings=SETTINGS, renewal="loop", **options) as client,
        client.lock("a").hold(timeout=10) as lease,
    ):
        await lease.confirm()
        return lease


async def _hold_while(
    mood: Mood,
    metadata: MetadataServer,
    url: str,
    *,
    age: Callable[[], None] | None = None,
    **options: object,
) -> None:
    """Have a lock, confirm it often while the metadata server is in that mood, and find it held."""
    async with (
        asynclock.connect(f"{url}/{uuid.uuid4()}", settings=SETTINGS, renewal="loop", **options) as client,
        client.lock("a").hold(timeout=10) as lease,
    ):
        metadata.mood = mood
        asked = metadata.asked
        if age is not None:
            age()
        await asyncio.sleep(0.5)  # renewals of the scheduler, too
        async with asyncio.timeout(10):
            while metadata.asked == asked:
                await lease.confirm()
        for _ in range(10):
            await lease.confirm()
        lease.check()
    metadata.mood = "serve"


async def test_s3_keys_come_from_the_environment(minio: Server, machine: Machine) -> None:
    """AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are enough."""
    keys = minio.options
    machine.set(AWS_ACCESS_KEY_ID=keys["access_key_id"], AWS_SECRET_ACCESS_KEY=keys["secret_access_key"])

    assert (await _hold(minio.url, **without_keys(minio))).fencing_token > 0


async def test_s3_keys_come_from_a_profile(minio: Server, machine: Machine) -> None:
    """AWS_PROFILE names a section of the credentials file."""
    keys = minio.options
    machine.write(
        "credentials",
        f"[locker]\naws_access_key_id={keys['access_key_id']}\n"
        f"aws_secret_access_key={keys['secret_access_key']}\n",
    )
    machine.set(AWS_PROFILE="locker")

    assert (await _hold(minio.url, **without_keys(minio))).fencing_token > 0


def _from_instance(machine: Machine, url: str) -> None:
    machine.set(AWS_EC2_METADATA_SERVICE_ENDPOINT=url)


def _from_web_identity(machine: Machine, url: str) -> None:
    token = machine.write("token", "identity")
    machine.set(AWS_WEB_IDENTITY_TOKEN_FILE=token, AWS_ROLE_ARN=ROLE, AWS_ENDPOINT_URL_STS=url)


def _from_sso(machine: Machine, url: str) -> None:
    start = "https://example.awsapps.com/start"
    fields = {"sso_start_url": start, "sso_region": "us-east-1", "sso_account_id": "123456789012"}
    fields |= {"sso_role_name": "locker", "region": "us-east-1"}
    machine.write("config", "[profile locker]\n" + "".join(f"{k}={v}\n" for k, v in fields.items()))
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    token = {"startUrl": start, "region": "us-east-1", "accessToken": "token", "expiresAt": tomorrow}
    machine.write(
        f"{hashlib.sha1(start.encode(), usedforsecurity=False).hexdigest()}.json", json.dumps(token)
    )
    # As written by "aws sso login"; where that is was read at the import.
    machine.patch(botocore.credentials.SSOProvider, "_SSO_TOKEN_CACHE_DIR", str(machine.home))
    machine.set(AWS_PROFILE="locker", AWS_ENDPOINT_URL_SSO=url)


@pytest.mark.parametrize("mood", MOODS)
@pytest.mark.parametrize(
    "chain",
    [from_container, _from_instance, _from_web_identity, _from_sso],
    ids=["container", "instance", "web identity (IRSA)", "SSO"],
)
async def test_an_s3_lease_outlives_a_refresh_gone_wrong(
    minio: Server, machine: Machine, chain: Callable[[Machine, str], None], mood: Mood
) -> None:
    """The chain brings keys; while they serve, renewals go on beside their refresh, however that ends."""
    async with MetadataServer(Aws(minio)) as metadata:
        chain(machine, metadata.url)

        await _hold_while(mood, metadata, minio.url, **without_keys(minio))


async def test_credentials_that_never_come_are_no_write(minio: Server, machine: Machine) -> None:
    """Without any credentials nothing is sent, and the error says that nothing was written."""
    async with MetadataServer(Aws(minio)) as metadata:
        from_container(machine, metadata.url)
        metadata.mood = "fail"
        backend = open_backend(f"{minio.url}/never", **without_keys(minio))

        with pytest.raises(BackendUnavailableError) as caught:
            await backend.put_if_absent("a.json", b"body")
        await backend.aclose()

    assert caught.value.written == "no"


def _workload_identity(machine: Machine, url: str) -> bytes:
    account = {
        "type": "external_account",
        "audience": "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/q",
        "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
        "token_url": f"{url}/token",
        "credential_source": {"file": machine.write("token", "identity")},
    }
    machine.set(GOOGLE_APPLICATION_CREDENTIALS=machine.write("account.json", json.dumps(account)))
    return b"subject_token=identity"


def _authorized_user(machine: Machine, url: str) -> bytes:
    account = {"type": "authorized_user", "client_id": "me", "client_secret": "s", "refresh_token": "r"}
    path = machine.write("account.json", json.dumps(account | {"token_uri": f"{url}/token"}))
    machine.set(GOOGLE_APPLICATION_CREDENTIALS=path)
    return b"refresh_token=r"


def _metadata_server(machine: Machine, url: str) -> bytes:
    # GCE_METADATA_HOST, which was read at the import.
    machine.patch(gcloud.aio.auth.token, "GCE_ENDPOINT_TOKEN", f"{url}/default/token")
    machine.set(HOME=str(machine.home))
    return b"GET /default/token"


GOOGLE_CHAINS = pytest.mark.parametrize(
    "chain",
    [service_account, _workload_identity, _authorized_user, _metadata_server],
    ids=["service account", "workload identity", "user", "metadata server"],
)


@GOOGLE_CHAINS
async def test_gcs_tokens_come_by_the_chain(
    fake_gcs_tls: Server, machine: Machine, chain: Callable[[Machine, str], bytes]
) -> None:
    """Without any option the default credentials are found, and one token serves all requests."""
    machine.trust(fake_gcs_tls.ca_file)
    google = Google()
    async with MetadataServer(google) as metadata:
        proof = chain(machine, metadata.url)

        await _hold(fake_gcs_tls.url, **fake_gcs_tls.options)

    assert len(google.grants) == 1
    assert proof in google.grants[0]


@pytest.mark.parametrize("mood", MOODS)
async def test_a_gcs_lease_outlives_a_refresh_gone_wrong(
    fake_gcs: Server, machine: Machine, mood: Mood
) -> None:
    """While the present token is valid, renewals send it and go on beside its refresh, however that ends."""
    async with MetadataServer(Google()) as metadata, TapProxy(fake_gcs.endpoint) as proxy:
        service_account(machine, metadata.url)
        async with Token(scopes=["storage"]) as token:
            options = {**fake_gcs.through(proxy.url), "token": token}

            await _hold_while(mood, metadata, fake_gcs.url, age=lambda: age_token(machine), **options)

    assert {tap.headers.get("authorization") for tap in proxy.journal} == {"Bearer from-google"}


@asynccontextmanager
async def _federated_identity(
    machine: Machine, server: Server, entra: Entra
) -> AsyncIterator[MetadataServer]:
    async with MetadataServer(entra, tls=machine.trust(server.ca_file)) as metadata:
        machine.set(
            AZURE_AUTHORITY_HOST=metadata.url,
            AZURE_TENANT_ID="tenant",
            AZURE_CLIENT_ID="client",
            AZURE_FEDERATED_TOKEN_FILE=machine.write("token", "identity"),
        )
        yield metadata


AZURE_CHAINS = pytest.mark.parametrize(
    ("chain", "proof"),
    [(managed_identity, b"/msi?"), (_federated_identity, b"client_assertion=identity")],
    ids=["managed identity", "workload identity"],
)


@AZURE_CHAINS
@pytest.mark.parametrize("mood", MOODS)
async def test_an_azure_lease_outlives_a_refresh_gone_wrong(
    azurite_tls: Server,
    machine: Machine,
    chain: Callable[[Machine, Server, Entra], AbstractAsyncContextManager[MetadataServer]],
    proof: bytes,
    mood: Mood,
) -> None:
    """The default credential brings a token; while it serves, renewals go on beside its refresh."""
    entra = Entra()
    entra.lasts = 240  # in the last five minutes the SDK fetches in every request
    # At most every half minute, which is longer than a test.
    machine.patch(azure.identity._internal.utils, "DEFAULT_TOKEN_REFRESH_RETRY_DELAY", 0)
    machine.patch(asynclock.backends._credentials, "_BETWEEN_FETCHES", 0.0)
    async with chain(machine, azurite_tls, entra) as metadata:
        account = {"account_url": azurite_tls.options["account_url"]}

        await _hold_while(mood, metadata, azurite_tls.url, **account)

    assert proof in entra.grants[0]


async def test_an_azure_signature_is_enough(azurite: Server) -> None:
    """A shared access signature with rcwl holds a lock."""
    from azure.storage.blob import ContainerSasPermissions, generate_container_sas  # noqa: PLC0415  only here

    signature = generate_container_sas(
        "devstoreaccount1",
        "locks",
        account_key=azurite.options["credential"],
        permission=ContainerSasPermissions(read=True, create=True, write=True, list=True),
        expiry=datetime.now(UTC) + timedelta(hours=1),
    )

    assert await _hold(azurite.url, account_url=azurite.options["account_url"], sas_token=signature)
