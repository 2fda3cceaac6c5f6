"""Azure's requests: one a call, with the credential of the moment; answers are read whole."""

from __future__ import annotations

import asyncio
import base64
import gc
import time
import uuid
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import pytest
from azure.core.credentials import AccessToken, AzureNamedKeyCredential, AzureSasCredential
from azure.storage.blob import ContainerSasPermissions, generate_container_sas
from azure.storage.blob.aio import BlobClient

from asynclock.backend import Absent, Stored, Written
from asynclock.backends import _azure_token, open_backend
from asynclock.backends._azure_token import AzureToken
from asynclock.errors import (
    AccessDeniedError,
    BackendError,
    BackendUnavailableError,
    OutcomeUnknownError,
    UnsupportedBackendError,
)
from asynclock.testing._proxy import TapProxy, Wire
from tests.faults.scripted import serving
from tests.faults.test_tables import Certificates
from tests.laboratory.servers import AZURE_ACCOUNT, AZURE_KEY, BUCKET

if TYPE_CHECKING:
    from pathlib import Path

    from asynclock.backend import Entry
    from tests.laboratory.servers import Server

XML: Final = {"Content-Type": "application/xml"}


def _signature(**permissions: bool) -> str:
    """Return a signature that allows only that, for an hour."""
    return str(
        generate_container_sas(
            AZURE_ACCOUNT,
            BUCKET,
            account_key=AZURE_KEY,
            permission=ContainerSasPermissions(**permissions),
            expiry=datetime.now(UTC) + timedelta(hours=1),
        )
    )


@pytest.mark.parametrize("name", ["a b/ü'(1)~$,=.json", "100%/a+b&c.json", "{x}/[y]@:!*.json"])
async def test_a_blob_of_any_name_is_written_read_listed_and_deleted(azurite: Server, name: str) -> None:
    """What the name contains is sent and signed alike."""
    backend = open_backend(f"{azurite.url}/names-of-requests", **azurite.options)

    written = await backend.put_if_absent(name, b"body")
    found = await backend.get(name)
    listed = [entry.key async for entry in backend.list(name[:3])]
    await backend.delete(name)
    gone = await backend.get(name)
    await backend.aclose()

    assert not isinstance(found, Absent)
    assert (found.body, found.version) == (b"body", written.version)
    assert listed == [name]
    assert isinstance(gone, Absent)


async def test_a_key_that_is_replaced_counts_at_once(azurite: Server) -> None:
    """A credential whose key the user updates signs the next request with the new one."""
    credential = AzureNamedKeyCredential(AZURE_ACCOUNT, AZURE_KEY)
    backend = open_backend(f"{azurite.url}/keys", **azurite.options | {"credential": credential})

    await backend.put("a.json", b"body")
    credential.update(AZURE_ACCOUNT, base64.b64encode(b"another").decode())
    with pytest.raises(AccessDeniedError):
        await backend.put("a.json", b"body")
    credential.update(AZURE_ACCOUNT, AZURE_KEY)
    await backend.put("a.json", b"body")
    await backend.aclose()


async def test_a_signature_that_is_replaced_counts_at_once(azurite: Server) -> None:
    """So does a shared access signature."""
    reads = _signature(read=True, list=True)
    credential = AzureSasCredential(reads)
    options = {"account_url": azurite.options["account_url"], "credential": credential}
    backend = open_backend(f"{azurite.url}/signatures", **options)

    with pytest.raises(AccessDeniedError):
        await backend.put("a.json", b"body")
    credential.update("?" + _signature(read=True, create=True, write=True, list=True))
    await backend.put("a.json", b"body")
    assert [entry.key async for entry in backend.list("")] == ["a.json"]
    await backend.aclose()


async def test_a_body_that_is_cut_is_asked_for_once(azurite: Server) -> None:
    """A call is one request, also where the answer breaks off: the lock decides whether to read again."""
    async with TapProxy(azurite.endpoint) as proxy:
        backend = open_backend(f"{azurite.url}/cut", **azurite.through(proxy.url))
        await backend.put("a.json", b"body" * 100)
        before = len(proxy.journal)
        proxy.inject(Wire.CUT_BODY, writes=False, times=9)
        with pytest.raises(BackendUnavailableError, match="the answer was lost"):
            await backend.get("a.json")
        await backend.aclose()

    assert len(proxy.journal) - before == 1


async def test_a_code_in_the_body_counts_where_no_header_has_one(azurite: Server) -> None:
    """A gateway that drops headers leaves the code in the answer's XML."""
    body = b'<?xml version="1.0"?><Error><Code>LeaseIdMissing</Code><Message>x</Message></Error>'
    async with TapProxy(azurite.endpoint) as proxy:
        backend = open_backend(f"{azurite.url}/codes", **azurite.through(proxy.url))
        proxy.inject(Wire.ANSWER, writes=True, status=412, body=body, headers=XML)
        with pytest.raises(UnsupportedBackendError, match="Azure lease"):
            await backend.put_if_match("a.json", b"body", '"1"')
        await backend.aclose()


async def test_a_write_whose_answer_has_no_etag_may_have_landed(azurite: Server) -> None:
    """Nothing is known of its version: the outcome is open, not refused."""
    async with TapProxy(azurite.endpoint) as proxy:
        backend = open_backend(f"{azurite.url}/etags", **azurite.through(proxy.url))
        proxy.inject(Wire.ANSWER, writes=True, status=201, body=b"")
        with pytest.raises(OutcomeUnknownError):
            await backend.put("a.json", b"body")
        await backend.aclose()


async def test_a_listing_goes_on_where_its_page_ended(azurite: Server) -> None:
    """A container may have more blobs than one answer."""
    pages = [
        b"<EnumerationResults><Blobs>" + _blob("many/1.json") + b"</Blobs><NextMarker>m 1</NextMarker>"
        b"</EnumerationResults>",
        b"<EnumerationResults><Blobs>" + _blob("many/2.json") + b"</Blobs><NextMarker/></EnumerationResults>",
    ]
    async with TapProxy(azurite.endpoint) as proxy:
        backend = open_backend(f"az://{BUCKET}", **azurite.through(proxy.url))
        for page in pages:
            proxy.inject(Wire.ANSWER, writes=False, status=200, body=page, headers=XML)
        found = [entry.key async for entry in backend.list("many/")]
        await backend.aclose()

    assert found == ["many/1.json", "many/2.json"]
    assert "marker=m+1" in proxy.journal[1].target.replace("%20", "+")


def _blob(name: str, encoded: str = "") -> bytes:
    properties = (
        "<Last-Modified>Tue, 24 Nov 2026 12:00:00 GMT</Last-Modified><Content-Length>7</Content-Length>"
        "<BlobType>BlockBlob</BlobType>"
    )
    return f"<Blob><Name{encoded}>{name}</Name><Properties>{properties}</Properties></Blob>".encode()


async def _listed(azurite: Server, body: bytes) -> list[Entry]:
    """Return what a listing has whose only page this is."""
    async with TapProxy(azurite.endpoint) as proxy:
        backend = open_backend(f"az://{BUCKET}", **azurite.through(proxy.url))
        proxy.inject(Wire.ANSWER, writes=False, status=200, body=body, headers=XML)
        try:
            return [entry async for entry in backend.list("")]
        finally:
            await backend.aclose()


async def test_a_name_that_xml_cannot_hold_is_decoded(azurite: Server) -> None:
    """The service encodes such a name and says so; another name may have a % of its own."""
    blobs = _blob("a%EF%BF%BE.json", ' Encoded="true"') + _blob("100%25.json")

    entries = await _listed(
        azurite, b"<EnumerationResults><Blobs>" + blobs + b"</Blobs><NextMarker/></EnumerationResults>"
    )

    assert [entry.key for entry in entries] == ["a\ufffe.json", "100%25.json"]
    assert {(entry.size, entry.last_modified) for entry in entries} == {(7, 1795521600.0)}


class KeepsNothing:
    """A credential that has no cache, as that of the Azure CLI."""

    def __init__(self, *, lasts: float) -> None:
        self.asked = 0
        self.tenants: set[object] = set()
        self._lasts = lasts

    async def get_token(self, *_: str, tenant_id: str | None = None) -> AccessToken:
        """Return another token each time."""
        self.asked += 1
        self.tenants.add(tenant_id)
        return AccessToken(f"{self.asked}", int(time.time() + self._lasts))


@pytest.mark.parametrize(("lasts", "asked"), [(3600, 1), (240, 2)], ids=["fresh", "about to expire"])
async def test_a_credential_without_a_cache_is_not_asked_by_every_request(lasts: float, asked: int) -> None:
    """It is asked again in the last five minutes of its token, and then not more often than every 10 s."""
    credential = KeepsNothing(lasts=lasts)
    shared = AzureToken(credential)

    for _ in range(20):
        await shared.get_token("scope")
        await asyncio.sleep(0)
    await shared.aclose()

    assert credential.asked == asked


async def test_a_store_does_not_choose_the_tenant_of_a_token(tmp_path: Path) -> None:
    """To a 401 that names a tenant the SDK sends the request again, with the token that there is."""
    certificates = Certificates(tmp_path)
    credential = KeepsNothing(lasts=3600)
    challenge = (
        "Bearer authorization_uri=https://login.example/another-tenant/oauth2/authorize "
        "resource_id=https://storage.azure.com"
    )
    async with serving(certificates.serving()) as script:
        script.say(401, f"WWW-Authenticate: {challenge}\r\n")
        backend = open_backend(
            f"az://{BUCKET}",
            account_url=f"https://127.0.0.1:{script.port}/account",
            credential=credential,
            ca_file=certificates.ca_file,
        )
        with pytest.raises(AccessDeniedError):
            await backend.put("a.json", b"body")
        await backend.aclose()

    assert [line.partition(" ")[0] for line in script.seen] == ["put", "put"]
    assert (credential.asked, credential.tenants) == (1, {None})


async def test_a_credential_that_cannot_be_closed_leaves_no_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The session is closed all the same."""

    class Stuck(KeepsNothing):
        async def close(self) -> None:
            raise OSError("stuck")

    monkeypatch.setattr(_azure_token, "_default_credential", lambda: Stuck(lasts=3600))
    backend = open_backend("az://locks", account_url="https://127.0.0.1:9/account")
    with pytest.raises(BackendUnavailableError):
        await backend.get("a.json")
    session: Any = backend._session  # type: ignore[attr-defined]

    with pytest.raises(OSError, match="stuck"):
        await backend.aclose()

    assert session.closed


async def test_only_a_missing_blob_is_no_blob(azurite: Server) -> None:
    """The same code in a failure of the server says nothing about the blob."""
    body = b"<Error><Code>BlobNotFound</Code></Error>"
    async with TapProxy(azurite.endpoint) as proxy:
        backend = open_backend(f"{azurite.url}/codes", **azurite.through(proxy.url))
        proxy.inject(Wire.ANSWER, status=500, body=body, times=2)
        with pytest.raises(BackendUnavailableError):
            await backend.get("a.json")
        with pytest.raises(BackendError):
            await backend.delete("a.json")
        await backend.aclose()


NAMESPACE: Final = b'<EnumerationResults xmlns="http://example.org/"><Blobs>'


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"<html/>",
        b"<EnumerationResults/>",
        b"<EnumerationResults><Blobs><Blob><Name>a</Name></Blob></Blobs></EnumerationResults>",
        NAMESPACE + _blob("a.json") + b"</Blobs></EnumerationResults>",
    ],
    ids=["nothing", "a tag", "a page", "no blobs", "half a blob", "another language"],
)
async def test_what_is_no_listing_is_refused(azurite: Server, body: bytes) -> None:
    """A gateway's page is no empty container."""
    with pytest.raises(BackendUnavailableError, match="the answer is not a listing"):
        await _listed(azurite, body)


@pytest.mark.parametrize(
    ("status", "range_of", "found"),
    [
        (200, "", b"body"),
        (206, "bytes 0-3/4", b"body"),
        (206, "bytes 0-3/5", None),
        (206, "bytes 1-4/5", None),
        (206, "bytes 0-4/5", None),
        (206, "bytes 0-x/y", None),
        (206, "", None),
    ],
    ids=["no range", "whole", "a part", "its end", "too little", "no numbers", "none"],
)
async def test_a_part_of_a_blob_is_not_the_blob(
    azurite: Server, status: int, range_of: str, found: bytes | None
) -> None:
    """The SDK asks for the first 64 KiB; a server may send all, but not less than there is."""
    headers = {"ETag": '"1"'} | ({"Content-Range": range_of} if range_of else {})
    async with TapProxy(azurite.endpoint) as proxy:
        backend = open_backend(f"az://{BUCKET}", **azurite.through(proxy.url))
        proxy.inject(Wire.ANSWER, status=status, body=b"body", headers=headers, times=9)
        if found is None:
            with pytest.raises(BackendUnavailableError, match="part of the object"):
                await backend.get("a.json")
        else:
            stored = await backend.get("a.json")
            assert isinstance(stored, Stored)
            assert stored.body == found
        await backend.aclose()

    assert len(proxy.journal) == 1


async def test_a_redirect_is_not_followed(azurite: Server) -> None:
    """It would carry what signs the request to another host."""
    async with TapProxy(azurite.endpoint) as proxy:
        backend = open_backend(f"{azurite.url}/redirected", **azurite.through(proxy.url))
        headers = {"Location": f"{proxy.url}/elsewhere?sig=CANARY"}
        proxy.inject(Wire.ANSWER, status=307, headers=headers, times=9)
        with pytest.raises(UnsupportedBackendError, match="redirect") as caught:
            await backend.put("a.json", b"body")
        await backend.aclose()

    assert len(proxy.journal) == 1
    assert "CANARY" not in str(caught.value)


async def test_no_client_of_a_blob_is_kept(azurite: Server) -> None:
    """Each of the SDK's takes 32 KiB; a process may have thousands of locks."""
    backend = open_backend(f"{azurite.url}/kept", **azurite.options)
    for _ in range(10):
        assert isinstance(await backend.put_if_absent(f"{uuid.uuid4()}.json", b"body"), Written)
    gc.collect()
    kept = [each for each in gc.get_objects() if isinstance(each, BlobClient)]
    await backend.aclose()

    assert kept == []
