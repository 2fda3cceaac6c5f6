"""Services that hand out credentials, and a machine that has none at first."""

from __future__ import annotations

import json
import ssl
import time
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import aiohttp.connector
import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from asynclock.backends import _gcs_token
from tests.faults.metadata import MetadataServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import pytest

    from tests.laboratory.servers import Server

LASTS = timedelta(minutes=15, seconds=0.4)
"""Half a second later the AWS SDK wants new credentials with every request."""


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


def without_keys(server: Server) -> dict[str, Any]:
    """Return the options of a server without its credentials."""
    return {name: value for name, value in server.options.items() if "key" not in name}


def from_container(machine: Machine, url: str) -> None:
    """Let the AWS SDK ask a container's credential service."""
    machine.set(AWS_CONTAINER_CREDENTIALS_FULL_URI=f"{url}/container")


class Google:
    """Answers like Google's token services."""

    def __init__(self) -> None:
        self.grants: list[bytes] = []

    def __call__(self, request: str, sent: bytes) -> bytes:
        """Give out a token for an hour."""
        self.grants.append(sent or request.encode())
        return b'{"access_token": "from-google", "expires_in": 3600}'


def service_account(machine: Machine, url: str) -> bytes:
    """Let the Google SDK find a service account; return what its requests contain."""
    key = generate_private_key(65537, 2048)
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    account = {"type": "service_account", "client_email": "locker@example.com", "private_key": pem}
    path = machine.write("account.json", json.dumps(account | {"token_uri": f"{url}/token"}))
    machine.set(GOOGLE_APPLICATION_CREDENTIALS=path)
    return b"jwt-bearer"


def age_token(machine: Machine) -> None:
    """Go to the last minute of a token's hour, in which the SDK would wait for the next one."""
    machine.patch(_gcs_token, "time", SimpleNamespace(time=lambda: time.time() + 3540))


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
async def managed_identity(machine: Machine, server: Server, entra: Entra) -> AsyncIterator[MetadataServer]:
    """Let the Azure SDK ask the identity service of a machine."""
    machine.trust(server.ca_file)
    async with MetadataServer(entra) as metadata:
        machine.set(IDENTITY_ENDPOINT=f"{metadata.url}/msi", IDENTITY_HEADER="secret")
        yield metadata
