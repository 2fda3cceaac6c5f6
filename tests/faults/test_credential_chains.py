"""Credentials come by each SDK's own chain, and a refresh gone wrong costs no lease while time remains."""

from __future__ import annotations

import asyncio
import hashlib
import json
import ssl
import time
import uuid
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import aiohttp.connector
import azure.identity._internal.utils
import botocore.credentials
import gcloud.aio.auth.token
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from gcloud.aio.auth import Token

import asynclock
from asynclock import LeaseSettings
from asynclock.backends import _gcs_token, open_backend
from asynclock.errors import BackendUnavailableError
from asynclock.testing.proxy import TapProxy
from tests.faults.metadata import MetadataServer, Mood

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager

    from asynclock.backend import Backend
    from tests.laboratory.servers import Server

# The servers are one node each.
SETTINGS = LeaseSettings(validity=4.0, max_clock_skew=0.5)
LASTS = timedelta(minutes=15, seconds=0.4)
"""Half a second later the AWS SDK wants new credentials with every request."""
ROLE = "arn:aws:iam::123456789012:role/locker"
MOODS: tuple[Mood, ...] = ("serve", "fail", "hang")


class Aws:
    """Answers like the services that hand out credentials of AWS, with those that MinIO takes."""

    def __init__(self, server: Server) -> None:
        self.key, self.secret = server.options["access_key_id"], server.options["secret_access_key"]

    def __call__(self, request: str, sent: bytes) -> bytes:
        """Answer one request of the SDK."""
        path = request.split(" ")[1].partition("?")[0]
        if path == "/":
            assert b"AssumeRoleWithWebIdentity" in sent
            assert b"WebIdentityToken=identity" in sent
            return self._assumed()
        if path == "/federation/credentials":
            return json.dumps({"roleCredentials": self._role()}).encode()
        if path.endswith(("/container", "/locker")):
            return json.dumps(self._plain()).encode()
        return b"token" if path.endswith("/api/token") else b"locker"

    @property
    def _expires(self) -> datetime:
        return datetime.now(UTC) + LASTS

    def _plain(self) -> dict[str, str]:
        return {
            "Code": "Success",
            "AccessKeyId": self.key,
            "SecretAccessKey": self.secret,
            "Token": "",
            "Expiration": self._expires.isoformat(),
        }

    def _role(self) -> dict[str, object]:
        return {
            "accessKeyId": self.key,
            "secretAccessKey": self.secret,
            "sessionToken": "",
            "expiration": int(self._expires.timestamp() * 1000),
        }

    def _assumed(self) -> bytes:
        fields = {
            "AccessKeyId": self.key,
            "SecretAccessKey": self.secret,
            "SessionToken": "",
            "Expiration": self._expires.isoformat(),
        }
        inner = "".join(f"<{name}>{value}</{name}>" for name, value in fields.items())
        result = f"<AssumeRoleWithWebIdentityResult><Credentials>{inner}</Credentials>"
        return (
            "<AssumeRoleWithWebIdentityResponse>"
            f"{result}</AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>"
        ).encode()


class Machine:
    """The environment and home folder of a process, without any credentials at first."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
        self._patch = monkeypatch
        self.home = home
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_ROLE_ARN"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("HOME", str(home))
        monkeypatch.setenv("AWS_CONFIG_FILE", str(home / "config"))
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(home / "credentials"))
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://127.0.0.1:1")

    def set(self, **variables: str) -> None:
        """Set variables of the environment."""
        for name, value in variables.items():
            self._patch.setenv(name, value)

    def write(self, name: str, text: str) -> str:
        """Write a file of the home folder and return where it is."""
        path = self.home / name
        path.write_text(text)
        return str(path)

    def trust(self, ca_file: str) -> ssl.SSLContext:
        """Trust a certificate as one of the system's; return what serves with it."""
        trusted = ssl.create_default_context(cafile=ca_file)
        self._patch.setattr(aiohttp.connector, "_SSL_CONTEXT_VERIFIED", trusted)
        serving = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        serving.load_cert_chain(ca_file, Path(ca_file).with_name("private.key"))
        return serving

    def patch(self, target: object, name: str, value: object) -> None:
        """Replace what an SDK has read from the environment at its import."""
        self._patch.setattr(target, name, value)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Machine:
    """Return a machine without credentials."""
    return Machine(monkeypatch, tmp_path)


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


def _without_keys(server: Server) -> dict[str, Any]:
    return {name: value for name, value in server.options.items() if "key" not in name}


async def test_s3_keys_come_from_the_environment(minio: Server, machine: Machine) -> None:
    """AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are enough."""
    keys = minio.options
    machine.set(AWS_ACCESS_KEY_ID=keys["access_key_id"], AWS_SECRET_ACCESS_KEY=keys["secret_access_key"])

    assert (await _hold(minio.url, **_without_keys(minio))).fencing_token > 0


async def test_s3_keys_come_from_a_profile(minio: Server, machine: Machine) -> None:
    """AWS_PROFILE names a section of the credentials file."""
    keys = minio.options
    machine.write(
        "credentials",
        f"[locker]\naws_access_key_id={keys['access_key_id']}\n"
        f"aws_secret_access_key={keys['secret_access_key']}\n",
    )
    machine.set(AWS_PROFILE="locker")

    assert (await _hold(minio.url, **_without_keys(minio))).fencing_token > 0


def _from_container(machine: Machine, url: str) -> None:
    machine.set(AWS_CONTAINER_CREDENTIALS_FULL_URI=f"{url}/container")


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
    [_from_container, _from_instance, _from_web_identity, _from_sso],
    ids=["container", "instance", "web identity (IRSA)", "SSO"],
)
async def test_an_s3_lease_outlives_a_refresh_gone_wrong(
    minio: Server, machine: Machine, chain: Callable[[Machine, str], None], mood: Mood
) -> None:
    """The chain brings keys; while they serve, renewals go on beside their refresh, however that ends."""
    async with MetadataServer(Aws(minio)) as metadata:
        chain(machine, metadata.url)

        await _hold_while(mood, metadata, minio.url, **_without_keys(minio))


async def test_credentials_that_never_come_are_no_write(minio: Server, machine: Machine) -> None:
    """Without any credentials nothing is sent, and the error says that nothing was written."""
    async with MetadataServer(Aws(minio)) as metadata:
        _from_container(machine, metadata.url)
        metadata.mood = "fail"
        backend = open_backend(f"{minio.url}/never", **_without_keys(minio))

        with pytest.raises(BackendUnavailableError) as caught:
            await backend.put_if_absent("a.json", b"body")
        await backend.aclose()

    assert caught.value.written == "no"


class Google:
    """Answers like Google's token services."""

    def __init__(self) -> None:
        self.grants: list[bytes] = []

    def __call__(self, request: str, sent: bytes) -> bytes:
        """Give out a token for an hour."""
        self.grants.append(sent or request.encode())
        return b'{"access_token": "from-google", "expires_in": 3600}'


def _service_account(machine: Machine, url: str) -> bytes:
    key = generate_private_key(65537, 2048)
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    account = {"type": "service_account", "client_email": "locker@example.com", "private_key": pem}
    path = machine.write("account.json", json.dumps(account | {"token_uri": f"{url}/token"}))
    machine.set(GOOGLE_APPLICATION_CREDENTIALS=path)
    return b"jwt-bearer"


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
    machine.set(CLOUDSDK_CONFIG=str(machine.home))
    return b"GET /default/token"


GOOGLE_CHAINS = pytest.mark.parametrize(
    "chain",
    [_service_account, _workload_identity, _authorized_user, _metadata_server],
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


def _age(machine: Machine) -> None:
    """Go to the last minute of a token's hour, in which the SDK would wait for the next one."""
    machine.patch(_gcs_token, "time", SimpleNamespace(time=lambda: time.time() + 3540))


@pytest.mark.parametrize("mood", MOODS)
async def test_a_gcs_lease_outlives_a_refresh_gone_wrong(
    fake_gcs: Server, machine: Machine, mood: Mood
) -> None:
    """While the present token serves, renewals bear it and go on beside its refresh, however that ends."""
    async with MetadataServer(Google()) as metadata, TapProxy(fake_gcs.endpoint) as proxy:
        _service_account(machine, metadata.url)
        async with Token(scopes=["storage"]) as token:
            options = {**fake_gcs.through(proxy.url), "token": token}

            await _hold_while(mood, metadata, fake_gcs.url, age=lambda: _age(machine), **options)

    assert {tap.headers.get("authorization") for tap in proxy.journal} == {"Bearer from-google"}


class Entra:
    """Answers like Azure's identity services with tokens that Azurite takes."""

    def __init__(self) -> None:
        self.grants: list[bytes] = []
        self.lasts = 3600

    def __call__(self, request: str, sent: bytes) -> bytes:
        """Give out a token."""
        if "discovery" in request or ".well-known" in request:
            return b"{}"
        self.grants.append(sent or request.encode())
        now = int(time.time())
        claims = {"aud": "https://storage.azure.com", "iss": "https://sts.windows.net/tenant/"}
        token = jwt.encode(
            claims | {"nbf": now - 60, "iat": now - 60, "exp": now + self.lasts}, "k" * 32, algorithm="HS256"
        )
        times = {"expires_in": self.lasts, "expires_on": str(now + self.lasts)}
        return json.dumps(
            {"access_token": token, "token_type": "Bearer", "resource": "https://storage.azure.com"} | times
        ).encode()


@asynccontextmanager
async def _managed_identity(machine: Machine, server: Server, entra: Entra) -> AsyncIterator[MetadataServer]:
    machine.trust(server.ca_file)
    async with MetadataServer(entra) as metadata:
        machine.set(IDENTITY_ENDPOINT=f"{metadata.url}/msi", IDENTITY_HEADER="secret")
        yield metadata


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
    [(_managed_identity, b"/msi?"), (_federated_identity, b"client_assertion=identity")],
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
    entra.lasts = 240  # in the last five minutes the SDK fetches inside of every request
    # At most every half minute, which is longer than a test.
    machine.patch(azure.identity._internal.utils, "DEFAULT_TOKEN_REFRESH_RETRY_DELAY", 0)
    async with chain(machine, azurite_tls, entra) as metadata:
        account = {"account_url": azurite_tls.options["account_url"]}

        await _hold_while(mood, metadata, azurite_tls.url, **account)

    assert proof in entra.grants[0]


async def test_a_cancelled_request_takes_no_other_with_it(fake_gcs: Server, machine: Machine) -> None:
    """Of ten requests that wait for the first token one is cancelled: the nine share that token."""
    google = Google()
    async with MetadataServer(google) as metadata, TapProxy(fake_gcs.endpoint) as proxy:
        _service_account(machine, metadata.url)
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
    assert outcomes[1:] == [None] * 9
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
        _from_container(machine, metadata.url)
        backend = open_backend(f"{minio.url}/cancelled", **_without_keys(minio))
        outcomes = await _first_of_ten_cancelled(backend, metadata)
        await backend.aclose()

    assert isinstance(outcomes[0], asyncio.CancelledError)
    assert outcomes[1:] == [None] * 9


async def test_a_cancelled_request_takes_no_other_of_azure_with_it(
    azurite_tls: Server, machine: Machine
) -> None:
    """Of ten requests that wait for the first token one is cancelled: the nine share that token."""
    async with _managed_identity(machine, azurite_tls, entra := Entra()) as metadata:
        account = {"account_url": azurite_tls.options["account_url"]}
        backend = open_backend(f"{azurite_tls.url}/cancelled", **account)
        outcomes = await _first_of_ten_cancelled(backend, metadata)
        await backend.aclose()

    assert isinstance(outcomes[0], asyncio.CancelledError)
    assert outcomes[1:] == [None] * 9
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
        _from_container(machine, metadata.url)

        assert await _renew_side_by_side(metadata, minio.url, **_without_keys(minio)) == []


async def test_many_azure_leases_outlive_a_hanging_refresh(azurite_tls: Server, machine: Machine) -> None:
    """Ten leases are renewed all the time that a refresh hangs, though some calls are cancelled."""
    entra = Entra()
    entra.lasts = 240
    machine.patch(azure.identity._internal.utils, "DEFAULT_TOKEN_REFRESH_RETRY_DELAY", 0)
    async with _managed_identity(machine, azurite_tls, entra) as metadata:
        account = {"account_url": azurite_tls.options["account_url"]}

        assert await _renew_side_by_side(metadata, azurite_tls.url, **account) == []


async def test_many_gcs_leases_outlive_a_hanging_refresh(fake_gcs: Server, machine: Machine) -> None:
    """Ten leases are renewed all the time that a refresh hangs, though some calls are cancelled."""
    async with MetadataServer(Google()) as metadata:
        _service_account(machine, metadata.url)
        async with Token(scopes=["storage"]) as token:
            options = {**fake_gcs.options, "token": token}

            failed = await _renew_side_by_side(metadata, fake_gcs.url, age=lambda: _age(machine), **options)

    assert failed == []


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
