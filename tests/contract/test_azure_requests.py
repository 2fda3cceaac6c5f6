"""Azure's requests: signed as the SDK signs them, with the credential of the moment; answers read whole."""

from __future__ import annotations

import asyncio
import base64
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import pytest
from azure.core.credentials import AccessToken, AzureNamedKeyCredential, AzureSasCredential
from azure.core.pipeline.transport import AioHttpTransport
from azure.storage.blob import ContainerSasPermissions, generate_container_sas
from azure.storage.blob.aio import BlobServiceClient
from yarl import URL

from asynclock.backend import Absent
from asynclock.backends import _azure_client, open_backend
from asynclock.backends._answers import Fault, FaultError
from asynclock.backends._azure_client import SharedCredential, parse_page, shared_key
from asynclock.errors import (
    AccessDeniedError,
    BackendError,
    BackendUnavailableError,
    OutcomeUnknownError,
    UnsupportedBackendError,
)
from asynclock.testing.proxy import TapProxy, Wire
from tests.laboratory.servers import AZURE_ACCOUNT, AZURE_KEY, BUCKET

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.laboratory.servers import Server

URL_OF_ACCOUNT: Final = f"http://127.0.0.1:10000/{AZURE_ACCOUNT}"


def _signature(**permissions: bool) -> str:
    """Return a signature that allows only that, for an hour."""
    return generate_container_sas(
        AZURE_ACCOUNT,
        BUCKET,
        account_key=AZURE_KEY,
        permission=ContainerSasPermissions(**permissions),
        expiry=datetime.now(UTC) + timedelta(hours=1),
    )


class Composed(Exception):  # noqa: N818  no error
    """The request that the SDK would send."""


class Keeps(AioHttpTransport):  # type: ignore[misc]
    """Sends nothing."""

    async def send(self, request: Any, **_: object) -> Any:  # noqa: ANN401  the SDK has no types
        """Hand the request to the test."""
        raise Composed(request)


async def _by_the_sdk(ask: Callable[[Any], Awaitable[object]]) -> Any:  # noqa: ANN401  the SDK has no types
    """Return the request that the SDK composes for a call of its client of a container."""
    async with BlobServiceClient(
        URL_OF_ACCOUNT, credential=AZURE_KEY, transport=Keeps(), retry_total=0
    ) as service:
        with pytest.raises(Composed) as caught:
            await ask(service.get_container_client("locks"))
    return caught.value.args[0]


@pytest.mark.parametrize(
    "ask",
    [
        lambda locks: locks.get_blob_client("a b/ü'(1)~$,=.json").upload_blob(b"body", overwrite=False),
        lambda locks: locks.get_blob_client("a.json").upload_blob(b"", overwrite=True),
        lambda locks: locks.get_blob_client("a%2Fb+c.json").delete_blob(),
        lambda locks: anext(locks.list_blobs(name_starts_with="a b/ü=&+").by_page()),
    ],
    ids=["write", "empty write", "delete", "list"],
)
async def test_a_request_is_signed_as_by_the_sdk(ask: Callable[[Any], Awaitable[object]]) -> None:
    """For the same request the SDK and we have the same signature."""
    request = await _by_the_sdk(ask)
    headers = {name.lower(): value for name, value in request.headers.items()}
    address = URL(request.url)  # as aiohttp sends it for the SDK

    ours = shared_key(
        AzureNamedKeyCredential(AZURE_ACCOUNT, AZURE_KEY),
        request.method,
        str(address.with_query(None)),
        query=dict(address.query),
        headers=headers,
        length=int(headers.get("content-length", "0")),
    )

    assert ours == headers["authorization"]


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
        proxy.inject(Wire.ANSWER, writes=True, status=412, body=body)
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
            proxy.inject(Wire.ANSWER, writes=False, status=200, body=page)
        found = [entry.key async for entry in backend.list("many/")]
        await backend.aclose()

    assert found == ["many/1.json", "many/2.json"]
    assert "marker=m%201" in proxy.journal[1].target


def _blob(name: str, encoded: str = "") -> bytes:
    properties = (
        "<Last-Modified>Tue, 24 Nov 2026 12:00:00 GMT</Last-Modified><Content-Length>7</Content-Length>"
    )
    return f"<Blob><Name{encoded}>{name}</Name><Properties>{properties}</Properties></Blob>".encode()


def test_a_name_that_xml_cannot_hold_is_decoded() -> None:
    """The service encodes such a name and says so; another name may have a % of its own."""
    blobs = _blob("a%EF%BF%BE.json", ' Encoded="true"') + _blob("100%25.json")

    page = parse_page(b"<EnumerationResults><Blobs>" + blobs + b"</Blobs><NextMarker/></EnumerationResults>")

    assert [entry.key for entry in page.entries] == ["a\ufffe.json", "100%25.json"]
    assert {(entry.size, entry.last_modified) for entry in page.entries} == {(7, 1795521600.0)}
    assert page.more is None


def test_a_listing_may_have_a_namespace() -> None:
    """The service sends none; a server that is compatible with it may."""
    page = parse_page(
        b'<EnumerationResults xmlns="http://example.org/"><Blobs>' + _blob("a.json") + b"</Blobs>"
        b"<NextMarker>more</NextMarker></EnumerationResults>"
    )

    assert [entry.key for entry in page.entries] == ["a.json"]
    assert page.more == "more"


class KeepsNothing:
    """A credential that has no cache, as that of the Azure CLI."""

    def __init__(self, *, lasts: float) -> None:
        self.asked = 0
        self._lasts = lasts

    async def get_token(self, *_: str) -> AccessToken:
        """Return another token each time."""
        self.asked += 1
        return AccessToken(f"{self.asked}", int(time.time() + self._lasts))


@pytest.mark.parametrize(("lasts", "asked"), [(3600, 1), (240, 2)], ids=["fresh", "about to expire"])
async def test_a_credential_without_a_cache_is_not_asked_by_every_request(lasts: float, asked: int) -> None:
    """It is asked again in the last five minutes of its token, and then not more often than every 10 s."""
    credential = KeepsNothing(lasts=lasts)
    shared = SharedCredential(credential)

    for _ in range(20):
        await shared.get()
        await asyncio.sleep(0)
    await shared.aclose()

    assert credential.asked == asked


async def test_a_credential_that_cannot_be_closed_leaves_no_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The session is closed all the same."""

    class Stuck(KeepsNothing):
        async def close(self) -> None:
            raise OSError("stuck")

    monkeypatch.setattr(_azure_client, "_default_credential", lambda: Stuck(lasts=3600))
    backend = open_backend("az://locks", account_url="https://127.0.0.1:9/account")
    with pytest.raises(BackendUnavailableError):
        await backend.get("a.json")
    client: Any = backend._client  # type: ignore[attr-defined]

    with pytest.raises(OSError, match="stuck"):
        await backend.aclose()

    assert client._transport._session.closed


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


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"<html/>",
        b"<EnumerationResults/>",
        b"<EnumerationResults><Blobs><Blob><Name>a</Name></Blob></Blobs></EnumerationResults>",
    ],
)
def test_what_is_no_listing_is_refused(body: bytes) -> None:
    """A gateway's page is no empty container."""
    with pytest.raises(FaultError) as caught:
        parse_page(body)
    assert caught.value.fault is Fault.NO_LISTING
