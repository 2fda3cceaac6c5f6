"""Every answer has a limit in bytes and in time, and none takes more than linear time to read."""

from __future__ import annotations

import asyncio
import resource
import time
import zlib
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import pytest

import asynclock.backends._session
from asynclock._secrets import clean_message, clean_text
from asynclock._text import printable
from asynclock.backend import Stored
from asynclock.backends import open_backend
from asynclock.backends._gcs_token import GcsToken
from asynclock.backends._resolver import Resolver
from asynclock.backends._session import new_session, session_for_credentials
from asynclock.errors import (
    BackendError,
    BackendUnavailableError,
    OutcomeUnknownError,
    RecordCorruptError,
    UnsupportedBackendError,
)
from tests.faults.scripted import CLOUDS, DATE, URLS, Script, options, serving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

VERSION: Final = 'ETag: "1"\r\nX-Goog-Generation: 1\r\n'
CHUNKED: Final = f"HTTP/1.1 {{}} X\r\n{DATE}{VERSION}Transfer-Encoding: chunked\r\n\r\n"
CHUNK: Final = b"10000\r\n" + b"x" * 65536 + b"\r\n"
MIB: Final = 1 << 20


@pytest.fixture
async def script() -> AsyncIterator[Script]:
    """Return a server that answers as the test says."""
    async with serving() as script:
        yield script


def backend_of(cloud: str, script: Script) -> Any:  # noqa: ANN401  has private names
    """Return the backend of a cloud before the script."""
    return open_backend(URLS[cloud], **options(cloud, f"http://127.0.0.1:{script.port}"))


async def _call(backend: Any, operation: str) -> object:  # noqa: ANN401  as above
    if operation == "list":
        return [entry async for entry in backend.list("")]
    if operation == "get":
        return await backend.get("a.json")
    return await backend.put_if_absent("a.json", b"{}")


def _memory() -> int:
    """Return the most MiB that this process has ever used."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


@pytest.mark.parametrize("status", [200, 403, 500])
@pytest.mark.parametrize("operation", ["list", "get", "put_if_absent"])
@pytest.mark.parametrize("cloud", CLOUDS)
async def test_a_body_without_an_end_is_cut_off(
    cloud: str, operation: str, status: int, script: Script
) -> None:
    """However much a server sends, it is read up to a limit, and the connection is closed."""
    script.answer, script.endless = CHUNKED.format(status).encode(), CHUNK
    backend = backend_of(cloud, script)
    before = _memory()

    async with asyncio.timeout(30):
        try:
            got = await _call(backend, operation)
        except BackendError:
            got = None
    await backend.aclose()

    assert not isinstance(got, list)
    if isinstance(got, Stored):
        assert len(got.body) <= 65537  # too long for a lock, which counts as corrupt
    assert _memory() - before < 150


@pytest.mark.parametrize("operation", ["list", "get", "put_if_absent"])
@pytest.mark.parametrize("cloud", CLOUDS)
async def test_an_answer_that_trickles_ends(
    cloud: str, operation: str, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A byte now and then is no silence, but the whole request has its time: 60 s, here one."""
    monkeypatch.setattr(asynclock.backends._session, "TOTAL_TIMEOUT", 1.0)
    script.answer = f"HTTP/1.1 200 X\r\n{DATE}{VERSION}Content-Length: 10000\r\n\r\n".encode()
    script.trickle = True
    backend = backend_of(cloud, script)
    kinds = OutcomeUnknownError if operation == "put_if_absent" else BackendUnavailableError

    async with asyncio.timeout(20):
        with pytest.raises(kinds, match="no answer in time"):
            await _call(backend, operation)
    await backend.aclose()


@cache
def _bomb(mib: int) -> bytes:
    """Return that many MiB of zeros, compressed without ever being in memory."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    return b"".join(packer.compress(b"\0" * MIB) for _ in range(mib)) + packer.flush()


@pytest.mark.parametrize("operation", ["list", "get", "put_if_absent"])
@pytest.mark.parametrize("cloud", CLOUDS)
async def test_a_compressed_answer_is_refused_unread(cloud: str, operation: str, script: Script) -> None:
    """Nobody asks for one: it is no body of the store, and may be a bomb of gigabytes."""
    script.say(200, f"{VERSION}Content-Encoding: gzip\r\n", _bomb(300))
    backend = backend_of(cloud, script)
    before = _memory()

    kinds = OutcomeUnknownError if operation == "put_if_absent" else UnsupportedBackendError
    with pytest.raises(kinds, match="compressed"):
        await _call(backend, operation)
    await backend.aclose()

    assert _memory() - before < 150


PAGES: Final = {
    "s3": (
        "<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>{}</NextContinuationToken>"
        "</ListBucketResult>"
    ),
    "azure": "<EnumerationResults><Blobs/><NextMarker>{}</NextMarker></EnumerationResults>",
    "gcs": '{{"items": [], "nextPageToken": "{}"}}',
}
_XML: Final = "Content-Type: application/xml\r\n"
TYPES: Final = {"s3": _XML, "azure": _XML, "gcs": "Content-Type: application/json\r\n"}


@pytest.mark.parametrize("cloud", CLOUDS)
async def test_a_listing_that_comes_back_to_a_page_ends(cloud: str, script: Script) -> None:
    """The same token again would go round forever."""
    script.say(200, TYPES[cloud], PAGES[cloud].format("again").encode())
    backend = backend_of(cloud, script)

    with pytest.raises(UnsupportedBackendError, match="the listing has no end"):
        await _call(backend, "list")
    await backend.aclose()

    assert len(script.seen) == 2


@pytest.mark.parametrize("cloud", CLOUDS)
async def test_a_listing_with_ever_new_pages_ends(
    cloud: str, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There are 10,000 pages at most, here ten."""
    monkeypatch.setattr(asynclock.backends._cloud.Pages, "_MOST", 10)
    answers = (PAGES[cloud].format(number).encode() for number in range(99))

    class Turning(list[str]):
        """Prepares the answer to the request that is noted."""

        def append(self, line: str) -> None:
            super().append(line)
            script.say(200, TYPES[cloud], next(answers))

    script.seen = Turning()
    backend = backend_of(cloud, script)

    with pytest.raises(UnsupportedBackendError, match="the listing has no end"):
        await _call(backend, "list")
    await backend.aclose()

    assert len(script.seen) == 11


@pytest.mark.parametrize(
    "body",
    [
        b"<ListBucketResult>" + b"<a>" * 400_000,
        b"<EnumerationResults>" + b"<a/>" * 1_000_000,
        b'<!DOCTYPE l [<!ENTITY a "'
        + b"x" * 999
        + b'">'
        + b"".join(b'<!ENTITY %c "%s">' % (98 + n, b"&%c;" % (97 + n) * 20) for n in range(10))
        + b"]><ListBucketResult>&k;</ListBucketResult>",
        b'{"items":' + b"[" * 1_000_000,
        b'{"items": [{"name": "a", "size": "' + b"9" * 100_000 + b'", "updated": "2026-11-25T14:00:00Z"}]}',
        b"null",
        b"",
    ],
    ids=["deep XML", "many elements", "entities", "deep JSON", "digits", "null", "nothing"],
)
@pytest.mark.parametrize("cloud", CLOUDS)
async def test_a_listing_that_is_a_bomb_is_an_error(cloud: str, body: bytes, script: Script) -> None:
    """What no store sends is refused, without a pause and without much memory."""
    script.say(200, TYPES[cloud], body)
    backend = backend_of(cloud, script)
    before = _memory()

    with pytest.raises(BackendError):
        await _call(backend, "list")
    await backend.aclose()

    assert _memory() - before < 150


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 X\r\n" + b"".join(b"X-%d: y\r\n" % n for n in range(100_000)) + b"\r\n",
        b"HTTP/1.1 200 X\r\nX: " + b"y" * MIB + b"\r\n\r\n",
        b"\x00\xff" * 5000,
        b'HTTP/1.1 200 X\r\nETag: "1"\r\nX-Goog-Generation: 1\r\nContent-Length: -5\r\n\r\n{}',
    ],
    ids=["many headers", "a long header", "garbage", "a negative length"],
)
@pytest.mark.parametrize("cloud", CLOUDS)
async def test_what_is_no_http_is_an_open_outcome(cloud: str, answer: bytes, script: Script) -> None:
    """A write that is answered so may have been written; the error says with whom the client spoke."""
    script.answer = answer
    backend = backend_of(cloud, script)

    with pytest.raises(OutcomeUnknownError, match=f"127.0.0.1:{script.port}"):
        await _call(backend, "put_if_absent")
    await backend.aclose()


@pytest.mark.parametrize(
    ("headers", "says"),
    [
        ("Last-Modified: " + "9" * 5000 + '\r\nETag: "\xe2\x80\xae"\r\n', "no version"),
        ("X-Goog-Generation: 1" + "0" * 5000 + "\r\n", "no version"),
        ("", "no version"),
    ],
    ids=["an ETag that is no ASCII", "5,000 digits", "none"],
)
@pytest.mark.parametrize("cloud", CLOUDS)
async def test_an_answer_without_a_version_is_said_to_be_that(
    cloud: str, headers: str, says: str, script: Script
) -> None:
    """A read needs a version that can be sent back; the error says that there is none, at once."""
    script.answer = f"HTTP/1.1 200 X\r\n{DATE}{headers}Content-Length: 2\r\n\r\n{{}}".encode("latin-1")
    backend = backend_of(cloud, script)

    with pytest.raises(UnsupportedBackendError, match=says) as caught:
        await _call(backend, "get")
    await backend.aclose()

    assert "KeyError" not in str(caught.value)


@pytest.mark.parametrize("cloud", CLOUDS)
async def test_a_web_page_is_no_lock_and_no_confirmed_write(cloud: str, script: Script) -> None:
    """A sign-in page in place of the store is reported as that, not as a corrupt lock; a write stays open."""
    script.say(200, f"{VERSION}Content-Type: text/html\r\n", b"<html>Please sign in</html>")
    backend = backend_of(cloud, script)

    with pytest.raises(UnsupportedBackendError, match="web page"):
        await _call(backend, "get")
    with pytest.raises(OutcomeUnknownError, match="web page"):
        await _call(backend, "put_if_absent")
    script.say(404, "Content-Type: text/html\r\n", b"<!DOCTYPE html><h1>nginx</h1>")
    with pytest.raises(UnsupportedBackendError, match="web page"):
        await _call(backend, "get")
    await backend.aclose()


@pytest.mark.parametrize("cloud", ["gcs", "azure"])
async def test_a_body_that_is_not_what_the_store_has_is_said_to_be_that(cloud: str, script: Script) -> None:
    """Where the store sends a checksum, a body that was cut on the way is no corrupt lock."""
    hash_of = "x-goog-hash: crc32c=AAAA==,md5=" if cloud == "gcs" else "Content-MD5: "
    script.say(200, f"{VERSION}{hash_of}1B2M2Y8AsgTpgAmY7PhCfg==\r\n", b'{"expired":')
    backend = backend_of(cloud, script)

    with pytest.raises(BackendUnavailableError, match="changed on the way"):
        await _call(backend, "get")
    script.say(200, f"{VERSION}{hash_of}1B2M2Y8AsgTpgAmY7PhCfg==\r\n", b"")
    assert isinstance(await _call(backend, "get"), Stored)
    await backend.aclose()


async def test_a_body_that_ends_too_early_is_said_to_be_cut(script: Script) -> None:
    """The length said is another than what came."""
    script.answer = f"HTTP/1.1 200 X\r\n{VERSION}Content-Length: 100\r\nConnection: close\r\n\r\n{{".encode()

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(script.answer)
        writer.close()

    async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as server:
        script.port = server.sockets[0].getsockname()[1]
        backend = backend_of("s3", script)
        with pytest.raises(BackendUnavailableError, match="the answer was cut off"):
            await _call(backend, "get")
        await backend.aclose()


def test_a_corrupt_object_may_have_been_changed_on_the_way() -> None:
    """The error sends nobody to break a lock that only looks corrupt from here."""
    assert "changed it on the way" in str(RecordCorruptError(key="a.json", reason="not JSON"))


async def test_a_token_service_is_read_up_to_a_limit(script: Script) -> None:
    """An answer of a megabyte and more is no token."""
    script.answer, script.endless = CHUNKED.format(200).encode(), CHUNK
    store = new_session(Resolver())
    session = session_for_credentials(store, trust_env=False)

    class Service:
        async def refresh(self, *, timeout: int) -> object:  # noqa: ARG002  the SDK's signature
            answer = await session.get(f"http://127.0.0.1:{script.port}/token")
            return await answer.json()

    backend: Any = open_backend("gs://locks", token="given")  # noqa: S106  no secret
    backend._token = GcsToken(Service())  # type: ignore[arg-type]
    with pytest.raises(BackendUnavailableError, match="the answer is too long"):
        await backend.get("a.json")
    await backend.aclose()
    await session.close()
    await store.close()


HOSTILE: Final = {
    "blanks": "<Error><Code>" + " " * 60_000,
    "blanks after a code": "<Code>a" + " " * 60_000 + "b",
    "prologs": " " * 60_000 + "<?xml " + " " * 60_000,
    "schemes": "a:/" * 30_000,
    "slashes": "s3:" + "/" * 100_000,
    "ats": "s3://" + "@" * 100_000,
    "colons": "s3://" + ":" * 100_000,
    "questions": "s3://a?" + "?%3f#" * 20_000,
    "letters": "a" * 200_000,
    "letters and dots": "a.-+" * 50_000 + ":",
    "escapes": "\x1b[" * 50_000,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_what_a_store_says_is_read_in_linear_time(text: str) -> None:
    """Twice as much takes about twice as long: no text of a store stops the process."""

    def cost(said: str) -> float:
        start = time.process_time()
        clean_text(said)
        clean_message(said)
        printable(said)
        return time.process_time() - start

    once = min(cost(text) for _ in range(2))
    four = min(cost(text * 4) for _ in range(2))

    assert four < max(16 * once, 1.0)  # quadratic: 16 times, and here that would be many seconds
