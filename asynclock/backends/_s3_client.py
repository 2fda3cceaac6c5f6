"""Sends the requests of the S3 backend, each once and signed, and reads error codes and listings."""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote_plus

import aiohttp
from yarl import URL

from asynclock.backend import Entry
from asynclock.backends._http import (
    CONNECT_TIMEOUT,
    FAILURE,
    READ_TIMEOUT,
    AnsweredError,
    read_capped,
    without_resend,
)
from asynclock.backends._xml import Page, error_code, parse_listing

if TYPE_CHECKING:
    from collections.abc import Mapping
    from xml.etree import ElementTree as ET

    from asynclock.backends._http import BackendCall
    from asynclock.backends._s3_sdk import BucketAccess

_CONNECTIONS: Final = 50
_KEEP_ALIVE: Final = 12.0
"""Seconds; S3 closes an idle connection after 20 s, and a request on a connection that it closes fails."""
_ERROR: Final = re.compile(rb"\s*(<\?xml[^>]*>\s*)?<Error\b")


class S3Client:
    """Sends requests to one bucket, on the event loop that made this object.

    Args:
        access: How the bucket is reached; closed with this object.
    """

    def __init__(self, access: BucketAccess) -> None:
        self._access = access
        self._timeout = aiohttp.ClientTimeout(sock_connect=CONNECT_TIMEOUT, sock_read=READ_TIMEOUT)
        self._session = without_resend(
            aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    resolver=access.resolver,
                    ssl=access.tls or True,
                    limit=_CONNECTIONS,
                    keepalive_timeout=_KEEP_ALIVE,
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
            )
        )

    @property
    def express(self) -> bool:
        """Whether the bucket is a directory bucket (S3 Express)."""
        return self._access.express

    async def send(
        self,
        call: BackendCall,
        method: str,
        key: str = "",
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str],
        body: bytes | None = None,
    ) -> aiohttp.ClientResponse:
        """Send one request and return the answer, whatever its status; its body is not read yet.

        Args:
            call: What this request is for.
            method: As in HTTP.
            key: Of the object; default: the bucket itself.
            query: Parameters of the address; default none.
            headers: Headers besides those that every request has.
            body: What is sent; default nothing.
        """
        # Encoded here exactly as it is signed: S3 encodes a key once, and yarl would change some characters.
        url = f"{self._access.url}/{quote(key, safe='/~')}"
        if query:
            url += "?" + "&".join(f"{name}={quote(value, safe='~')}" for name, value in query.items())
        signed = await self._access.sign(method, url, headers, body)
        call.sent = True
        return await self._session.request(
            method,
            URL(url, encoded=True),
            headers=signed,
            data=body,
            allow_redirects=False,
            proxy=self._access.proxy,
            timeout=self._timeout,
        )

    async def aclose(self) -> None:
        """Close the connections and cancel a running fetch of credentials."""
        await self._session.close()
        await self._access.aclose()


async def check(answer: aiohttp.ClientResponse) -> None:
    """Raise ``AnsweredError`` if the status of an answer is not a success."""
    if answer.status >= FAILURE:
        raise _refusal(answer, await _start_of(answer))


async def check_write(answer: aiohttp.ClientResponse) -> None:
    """Read the answer to a write to its end, which frees its connection.

    Raises:
        AnsweredError: The write was refused, by the status or, as S3 may do under status 200, by the body.
    """
    body = await _start_of(answer)
    if answer.status >= FAILURE or _ERROR.match(body):
        raise _refusal(answer, body)


async def _start_of(answer: aiohttp.ClientResponse) -> bytes:
    return await read_capped(answer)


def _refusal(answer: aiohttp.ClientResponse, body: bytes) -> AnsweredError:
    return AnsweredError(answer.status, error_code(body))


def read_page(body: bytes) -> Page:
    """Read the answer to ListObjectsV2.

    Raises:
        ValueError: It is not such an answer.
    """
    page = parse_listing(body, "ListBucketResult")
    encoded = page.findtext("{*}EncodingType") == "url"
    entries = [_entry(item, encoded=encoded) for item in page.iterfind("{*}Contents")]
    truncated = page.findtext("{*}IsTruncated") == "true"
    return Page(entries, _of(page, "NextContinuationToken") if truncated else None)


def _entry(item: ET.Element, *, encoded: bool) -> Entry:
    key = _of(item, "Key")
    written = datetime.fromisoformat(_of(item, "LastModified"))
    return Entry(unquote_plus(key) if encoded else key, int(_of(item, "Size")), written.timestamp())


def _of(item: ET.Element, name: str) -> str:
    text = item.findtext(f"{{*}}{name}")
    if text is None:
        raise ValueError(f"the listing has no {name}")
    return text
