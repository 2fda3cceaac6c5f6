"""What each answer of a store becomes, the ones no emulator sends included."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import uuid
from typing import TYPE_CHECKING

import pytest

import asynclock
from asynclock.backend import Absent, Stored
from asynclock.backends import open_backend
from asynclock.errors import (
    AccessDeniedError,
    BackendError,
    BackendUnavailableError,
    OutcomeUnknownError,
    PreconditionFailedError,
    UnsupportedBackendError,
)
from asynclock.testing._proxy import TapProxy, Wire

if TYPE_CHECKING:
    from pathlib import Path

    from tests.laboratory.servers import Server

CANARY = "CANARY-dont-show-me"
REGION = "<Region>eu-west-1</Region>"


def s3_body(code: str, more: str = "") -> bytes:
    """Return an error document of S3."""
    return f"<Error><Code>{code}</Code><Message>{CANARY}</Message>{more}</Error>".encode()


def gcs_body(reason: str) -> bytes:
    """Return an error document of Cloud Storage."""
    return json.dumps({"error": {"errors": [{"reason": reason}], "message": CANARY}}).encode()


S3_ROWS = [
    (412, s3_body("PreconditionFailed"), PreconditionFailedError),
    (200, s3_body("PreconditionFailed"), PreconditionFailedError),
    (500, s3_body("PreconditionFailed"), PreconditionFailedError),
    (404, s3_body("NoSuchKey"), PreconditionFailedError),
    (404, s3_body("NoSuchBucket"), UnsupportedBackendError),
    (409, s3_body("ConditionalRequestConflict"), OutcomeUnknownError),
    (409, s3_body("OperationAborted"), OutcomeUnknownError),
    (409, b"", OutcomeUnknownError),
    (200, s3_body("InternalError"), OutcomeUnknownError),
    (429, s3_body("SlowDown"), BackendUnavailableError),
    (429, b"", BackendUnavailableError),
    (500, s3_body("InternalError"), OutcomeUnknownError),
    (502, b"<html>bad gateway</html>", OutcomeUnknownError),
    (503, s3_body("SlowDown"), OutcomeUnknownError),
    (504, b"", OutcomeUnknownError),
    (400, s3_body("RequestTimeout"), OutcomeUnknownError),
    (400, s3_body("ExpiredToken"), AccessDeniedError),
    (400, s3_body("InvalidToken"), AccessDeniedError),
    (400, s3_body("TokenRefreshRequired"), AccessDeniedError),
    (400, s3_body("InvalidRequest"), UnsupportedBackendError),
    (401, s3_body("Unauthorized"), AccessDeniedError),
    (403, s3_body("AccessDenied"), AccessDeniedError),
    (403, s3_body("RequestTimeTooSkewed"), AccessDeniedError),
    (403, s3_body("InvalidObjectState"), UnsupportedBackendError),
    (405, s3_body("MethodNotAllowed"), UnsupportedBackendError),
    (501, s3_body("NotImplemented"), UnsupportedBackendError),
    (400, s3_body("KMS.DisabledException"), UnsupportedBackendError),
    (400, s3_body("KMS.NotFoundException"), UnsupportedBackendError),
    (400, s3_body("KMS.ThrottlingException"), BackendUnavailableError),
    (403, s3_body("QuotaExceeded"), AccessDeniedError),
    (403, s3_body("InvalidTokenId"), AccessDeniedError),
    (400, s3_body("BadDigest"), BackendUnavailableError),
    (400, s3_body("Throttling"), BackendUnavailableError),
    (407, b"", AccessDeniedError),
    (413, b"<html>413 Request Entity Too Large</html>", UnsupportedBackendError),
    (418, b"", UnsupportedBackendError),
    (425, b"", BackendUnavailableError),
    (451, b"", AccessDeniedError),
    (499, b"", OutcomeUnknownError),
    (511, b"", AccessDeniedError),
    (400, s3_body("AuthorizationHeaderMalformed", REGION), UnsupportedBackendError),
    (400, s3_body("IllegalLocationConstraintException"), UnsupportedBackendError),
    (400, s3_body("PermanentRedirect"), UnsupportedBackendError),
    (301, s3_body("PermanentRedirect"), UnsupportedBackendError),
    (307, s3_body("TemporaryRedirect"), UnsupportedBackendError),
]
GCS_ROWS = [
    (412, gcs_body("conditionNotMet"), PreconditionFailedError),
    (412, b"", PreconditionFailedError),
    (404, gcs_body("notFound"), UnsupportedBackendError),
    (403, gcs_body("retentionPolicyNotMet"), UnsupportedBackendError),
    (403, gcs_body("objectUnderActiveHold"), UnsupportedBackendError),
    (403, gcs_body("rateLimitExceeded"), BackendUnavailableError),
    (403, gcs_body("userRateLimitExceeded"), BackendUnavailableError),
    (429, gcs_body("rateLimitExceeded"), BackendUnavailableError),
    (429, b"", BackendUnavailableError),
    (401, gcs_body("authError"), AccessDeniedError),
    (403, gcs_body("accountDisabled"), AccessDeniedError),
    (407, b"", AccessDeniedError),
    (413, b"<html>413 Request Entity Too Large</html>", UnsupportedBackendError),
    (418, b"", UnsupportedBackendError),
    (403, gcs_body("forbidden"), AccessDeniedError),
    (400, gcs_body("invalid"), UnsupportedBackendError),
    (405, gcs_body("notAllowed"), UnsupportedBackendError),
    (501, b"", UnsupportedBackendError),
    (408, b"", OutcomeUnknownError),
    (409, gcs_body("conflict"), OutcomeUnknownError),
    (502, b"<html>bad gateway</html>", OutcomeUnknownError),
    (500, b"oops", OutcomeUnknownError),
    (503, gcs_body("backendError"), OutcomeUnknownError),
    (200, b"not json", OutcomeUnknownError),
    (301, b"", UnsupportedBackendError),
    (307, b"", UnsupportedBackendError),
    (308, b"", UnsupportedBackendError),
]
AZURE_ROWS = [
    (409, "BlobAlreadyExists", PreconditionFailedError),
    (412, "BlobAlreadyExists", PreconditionFailedError),
    (412, "ConditionNotMet", PreconditionFailedError),
    (412, "", PreconditionFailedError),
    (404, "BlobNotFound", PreconditionFailedError),
    (404, "ContainerNotFound", UnsupportedBackendError),
    (412, "LeaseIdMissing", UnsupportedBackendError),
    (412, "LeaseIdMismatchWithBlobOperation", UnsupportedBackendError),
    (403, "AuthorizationFailure", AccessDeniedError),
    (409, "InvalidBlobType", UnsupportedBackendError),
    (407, "", AccessDeniedError),
    (418, "", UnsupportedBackendError),
    (409, "BlobImmutableDueToPolicy", UnsupportedBackendError),
    (409, "ContainerBeingDeleted", OutcomeUnknownError),
    (409, "AccountIsBeingCreated", OutcomeUnknownError),
    (429, "", BackendUnavailableError),
    (401, "NoAuthenticationInformation", AccessDeniedError),
    (403, "AuthenticationFailed", AccessDeniedError),
    (403, "UnauthorizedBlobOverwrite", UnsupportedBackendError),
    (400, "InvalidHeaderValue", UnsupportedBackendError),
    (405, "UnsupportedHttpVerb", UnsupportedBackendError),
    (501, "", UnsupportedBackendError),
    (500, "InternalError", OutcomeUnknownError),
    (502, "", OutcomeUnknownError),
    (504, "", OutcomeUnknownError),
    (503, "ServerBusy", OutcomeUnknownError),
    (301, "", UnsupportedBackendError),
    (307, "", UnsupportedBackendError),
]


def _id(value: object) -> str | None:
    if isinstance(value, bytes):
        return value.decode()[:60]
    return value.__name__ if isinstance(value, type) else None


async def _refusal(
    server: Server, status: int, body: bytes, headers: dict[str, str] | None = None
) -> tuple[BackendError, int]:
    """Return the error of a write that is answered so, and how many writes reached the proxy."""
    async with TapProxy(server.endpoint) as proxy:
        backend = open_backend(f"{server.url}/answers", **server.through(proxy.url))
        scripted = {"Location": f"{proxy.url}/elsewhere", **(headers or {})}
        proxy.inject(Wire.ANSWER, writes=True, times=9, status=status, headers=scripted, body=body)
        try:
            with pytest.raises(BackendError) as caught:
                await backend.put_if_match("a.json", b"body", "12345")
        finally:
            await backend.aclose()
        assert CANARY not in f"{caught.value!r} {caught.value}"
        return caught.value, len(proxy.journal)


@pytest.mark.parametrize(("status", "body", "expected"), S3_ROWS, ids=_id)
async def test_s3_answers_are_sorted(
    minio: Server, status: int, body: bytes, expected: type[BackendError]
) -> None:
    """Each answer of S3 to a write becomes its error, by its code first, after one request."""
    # As S3 tells of another region; the SDK would go there.
    headers = {"Content-Type": "application/xml", "x-amz-bucket-region": "eu-west-1"}
    error, requests = await _refusal(minio, status, body, headers)

    assert type(error) is expected
    assert requests == 1


@pytest.mark.parametrize(("status", "body", "expected"), GCS_ROWS, ids=_id)
async def test_gcs_answers_are_sorted(
    fake_gcs: Server, status: int, body: bytes, expected: type[BackendError]
) -> None:
    """Each answer of Cloud Storage to a write becomes its error, after one request."""
    error, requests = await _refusal(fake_gcs, status, body)

    assert type(error) is expected
    assert requests == 1


@pytest.mark.parametrize(("status", "code", "expected"), AZURE_ROWS, ids=_id)
async def test_azure_answers_are_sorted(
    azurite: Server, status: int, code: str, expected: type[BackendError]
) -> None:
    """Each answer of Blob Storage to a write becomes its error, by its code first, after one request."""
    error, requests = await _refusal(azurite, status, b"", {"x-ms-error-code": code} if code else {})

    assert type(error) is expected
    assert requests == 1


class NoToken:
    """A source of tokens that has none: Google's and Azure's interface."""

    async def get(self) -> str:
        """Fail."""
        raise RuntimeError(CANARY)

    async def get_token(self, *_: str, **__: object) -> object:
        """Fail."""
        raise RuntimeError(CANARY)

    async def close(self) -> None:
        """Do nothing."""


async def test_without_a_connection_nothing_is_written(cloud: Server) -> None:
    """Where nobody listens every call is unavailable, and nothing was written."""
    backend = open_backend(f"{cloud.url}/answers", **cloud.through("http://127.0.0.1:1"))

    for call in (backend.put_if_absent("a.json", b"1"), backend.get("a.json"), backend.delete("a.json")):
        with pytest.raises(BackendUnavailableError, match="cannot connect") as caught:
            await call
        assert caught.value.written == "no"
    await backend.aclose()


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("gs://locks", {"token": NoToken()}),
        ("az://locks", {"credential": NoToken(), "account_url": "https://127.0.0.1:1/account"}),
    ],
    ids=["gcs", "azure"],
)
async def test_without_a_token_nothing_is_sent(url: str, options: dict[str, object]) -> None:
    """Where no token comes the call is unavailable, and says that nothing was sent."""
    backend = open_backend(url, **options)

    with pytest.raises(BackendUnavailableError, match="nothing was sent") as caught:
        await backend.put_if_absent("a.json", b"1")
    await backend.aclose()

    assert caught.value.written == "no"
    assert CANARY not in str(caught.value)


async def test_credentials_that_do_not_come_are_told_of(caplog: pytest.LogCaptureFixture) -> None:
    """An SDK tries for longer than a request may take: a warning says once what is waited for."""

    class Hangs(NoToken):
        async def get(self) -> str:
            await asyncio.sleep(60)
            return ""

    async with asynclock.connect("gs://locks", renewal="loop", token=Hangs()) as client:
        for _ in range(2):
            with pytest.raises(asynclock.AcquireTimeoutError):
                await client.lock("a").acquire(timeout=0.1)

    said = [record.getMessage() for record in caplog.records if "credentials" in record.getMessage()]
    assert said == ["gcs: no credentials in time, nothing was sent [AL-023]"]


@pytest.mark.parametrize("status", [307, 400, 403, 429, 500, 503])
async def test_a_failed_read_never_says_written(cloud: Server, status: int) -> None:
    """A read that fails wrote nothing, and is sent once."""
    async with TapProxy(cloud.endpoint) as proxy:
        backend = open_backend(f"{cloud.url}/answers", **cloud.through(proxy.url))
        proxy.inject(Wire.ANSWER, times=9, status=status)

        with pytest.raises(BackendError) as caught:
            await backend.get("a.json")
        await backend.aclose()

        assert caught.value.written == "no"
        assert len(proxy.journal) == 1


async def test_settings_of_the_machine_bring_no_retry_back(
    minio: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retries and checksums that the environment asks for stay off: one request, without a trailer."""
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "9")
    monkeypatch.setenv("AWS_RETRY_MODE", "adaptive")
    monkeypatch.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "when_supported")

    error, requests = await _refusal(minio, 503, s3_body("SlowDown"))

    assert type(error) is OutcomeUnknownError
    assert requests == 1


@pytest.mark.parametrize("trusted", [True, False])
async def test_a_proxy_of_the_environment_is_used_if_asked_for(
    cloud: Server, monkeypatch: pytest.MonkeyPatch, *, trusted: bool
) -> None:
    """HTTP_PROXY counts with trust_env=True only."""
    for name in ("NO_PROXY", "no_proxy", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    async with TapProxy(cloud.endpoint) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        backend = open_backend(f"{cloud.url}/proxied", **cloud.options, trust_env=trusted)
        with contextlib.suppress(BackendError):  # the server may not know the form that proxies get
            await backend.put_if_absent(f"{trusted}.json", b"body")
        await backend.aclose()

    assert bool(proxy.journal) is trusted


async def test_a_proxy_gets_its_password_and_no_request_that_it_may_not_have(
    cloud: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """User and password in HTTP_PROXY reach the proxy only; hosts in NO_PROXY are asked directly."""
    for name in ("NO_PROXY", "no_proxy", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    async with TapProxy(cloud.endpoint) as proxy:
        counts = []
        for direct, scheme in (("", "http://"), ("", ""), ("127.0.0.1", "")):
            monkeypatch.setenv("HTTP_PROXY", proxy.url.replace("http://", f"{scheme}me:secret@"))
            monkeypatch.setenv("NO_PROXY", direct)
            backend = open_backend(f"{cloud.url}/proxied", **cloud.options, trust_env=True)
            with contextlib.suppress(BackendError):  # the server may not know the form that proxies get
                await backend.put(f"{uuid.uuid4()}.json", b"body")
            await backend.aclose()
            counts.append(len(proxy.journal))

    assert counts == [1, 2, 2]
    expected = f"Basic {base64.b64encode(b'me:secret').decode()}"
    assert {tap.headers["proxy-authorization"] for tap in proxy.journal} == {expected}


async def test_a_password_in_netrc_is_not_sent_to_a_store(
    cloud: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Only the proxies of the environment are asked for, and the requests keep their own authorization."""
    (tmp_path / "netrc").write_text("default login alice password hunter2\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    for name in ("HTTP_PROXY", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    async with TapProxy(cloud.endpoint) as proxy:
        backend = open_backend(f"{cloud.url}/netrc", **cloud.through(proxy.url), trust_env=True)
        await backend.put("a.json", b"body")
        await backend.aclose()

    assert not any(tap.headers.get("authorization", "").startswith("Basic") for tap in proxy.journal)


HEAD = b'ETag: "1"\r\nX-Goog-Generation: 1\r\nConnection: close\r\n'
PARTS = {
    "no length": b"HTTP/1.1 200 OK\r\n" + HEAD + b'\r\n{"a":',
    "a range": b"HTTP/1.1 206 Partial Content\r\n" + HEAD + b'Content-Length: 5\r\n\r\n{"a":',
}


@pytest.mark.parametrize("answer", PARTS.values(), ids=PARTS.keys())
async def test_a_part_of_an_object_is_never_taken_for_all_of_it(cloud: Server, answer: bytes) -> None:
    """A gateway may drop the length, or send a range that nobody asked for: such a read fails."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as gateway:
        port = gateway.sockets[0].getsockname()[1]
        backend = open_backend(f"{cloud.url}/parts", **cloud.through(f"http://127.0.0.1:{port}"))
        with pytest.raises(BackendUnavailableError):
            await backend.get("a.json")
        await backend.aclose()


async def test_a_date_from_a_cache_is_no_date(cloud: Server) -> None:
    """Where a Date stands beside an Age, it is the cache's copy and not given."""
    async with TapProxy(cloud.endpoint) as proxy:
        backend = open_backend(f"{cloud.url}/answers", **cloud.through(proxy.url))
        date = {"Date": "Tue, 14 Nov 2023 22:13:20 GMT", "x-ms-error-code": "BlobNotFound"}
        missing = s3_body("NoSuchKey")
        proxy.inject(Wire.ANSWER, status=404, headers=date, body=missing)
        proxy.inject(Wire.ANSWER, status=404, headers=date | {"Age": "1"}, body=missing)

        answers = [await backend.get("nothing.json") for _ in range(2)]
        await backend.aclose()

    assert answers == [Absent(1_700_000_000.0), Absent(None)]


async def test_each_call_is_one_request(cloud: Server) -> None:
    """Every call is one request at the server, all of them over one connection."""
    async with TapProxy(cloud.endpoint) as proxy:
        backend = open_backend(f"{cloud.url}/hits", **cloud.through(proxy.url))
        counts = []
        assert isinstance(await backend.get("a.json"), Absent)
        counts.append(len(proxy.journal))
        written = await backend.put_if_absent("a.json", b"1")
        counts.append(len(proxy.journal))
        with pytest.raises(PreconditionFailedError):
            await backend.put_if_absent("a.json", b"2")
        counts.append(len(proxy.journal))
        await backend.put_if_match("a.json", b"3", written.version)
        counts.append(len(proxy.journal))
        stored = await backend.get("a.json")
        counts.append(len(proxy.journal))
        await backend.delete("a.json")
        counts.append(len(proxy.journal))
        await backend.aclose()

    assert counts == [1, 2, 3, 4, 5, 6]
    assert proxy.connections == 1
    assert not any("expect" in tap.headers for tap in proxy.journal)
    assert isinstance(stored, Stored)
    assert None not in {stored.last_modified, stored.server_time}
