"""Sends the requests of the S3 backend, each once and signed, and reads error codes and listings."""

from __future__ import annotations

import time
from datetime import datetime
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote_plus

from asynclock.backend import Entry
from asynclock.backends._answers import FAILURE, AnsweredError, Fault, FaultError, refusal
from asynclock.backends._http import read_capped, refuse_web_page
from asynclock.backends._tables import REGION, S3
from asynclock.backends._transport import Transport
from asynclock.backends._xml import Page, error_code, is_error, parse_listing, region_in

if TYPE_CHECKING:
    from collections.abc import Mapping
    from xml.etree import ElementTree as ET

    import aiohttp

    from asynclock.backends._cloud import BackendCall
    from asynclock.backends._s3_sdk import BucketAccess

_ELSEWHERE: Final = frozenset({code for code, row in S3.codes.items() if row is REGION})


class S3Client:
    """Sends requests to one bucket, on the event loop that made this object.

    Args:
        access: How the bucket is reached; closed with this object.
    """

    def __init__(self, access: BucketAccess) -> None:
        self._access = access
        self._transport = Transport(access.resolver, tls=access.tls, proxy=access.proxy)

    @property
    def express(self) -> bool:
        """Whether the bucket is a directory bucket (S3 Express)."""
        return self._access.express

    @property
    def url(self) -> str:
        """Address of the bucket."""
        return self._access.url

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
        call.waits_since = time.monotonic()
        signed = await self._access.sign(method, url, headers, body)
        call.waits_since = None
        return await self._transport.send(call, method, url, headers=signed, body=body)

    async def aclose(self) -> None:
        """Close the connections and cancel a running fetch of credentials."""
        await self._transport.aclose()
        await self._access.aclose()


async def check(answer: aiohttp.ClientResponse) -> None:
    """Raise ``AnsweredError`` if the status of an answer is not a success."""
    if answer.status >= FAILURE:
        raise _refusal(answer, await read_capped(answer))


async def check_write(answer: aiohttp.ClientResponse) -> None:
    """Read the answer to a write to its end, which frees its connection.

    Raises:
        AnsweredError: The write was refused, by the status or, as S3 may do under status 200, by the body.
        FaultError: It is a web page, not the store's answer.
    """
    body = await read_capped(answer)
    if answer.status >= FAILURE or is_error(body):
        raise _refusal(answer, body)
    refuse_web_page(answer.headers, body)


def is_missing(error: AnsweredError) -> bool:
    """Return whether a refused read says that there is no object; an empty 404 does, a web page does not."""
    return error.status == 404 and (error.code == "NoSuchKey" or not (error.code or error.more))  # noqa: PLR2004


def _refusal(answer: aiohttp.ClientResponse, body: bytes) -> AnsweredError:
    code = error_code(body)
    region = region_in(body) or answer.headers.get("x-amz-bucket-region")
    return refusal(
        str(answer.url),
        answer.status,
        code,
        headers=answer.headers,
        body=body,
        region=region if code in _ELSEWHERE else None,
    )


def parse_page(body: bytes) -> Page:
    """Read the answer to ListObjectsV2.

    Raises:
        FaultError: It is not such an answer.
    """
    page = parse_listing(body, "ListBucketResult")
    encoded = page.findtext("{*}EncodingType") == "url"
    try:
        entries = [_entry(item, encoded=encoded) for item in page.iterfind("{*}Contents")]
    except ValueError:
        raise FaultError(Fault.NO_LISTING, "an entry cannot be read") from None
    truncated = page.findtext("{*}IsTruncated") == "true"
    return Page(entries, _of(page, "NextContinuationToken") if truncated else None)


def _entry(item: ET.Element, *, encoded: bool) -> Entry:
    key = _of(item, "Key")
    written = datetime.fromisoformat(_of(item, "LastModified"))
    return Entry(unquote_plus(key) if encoded else key, int(_of(item, "Size")), written.timestamp())


def _of(item: ET.Element, name: str) -> str:
    text = item.findtext(f"{{*}}{name}")
    if text is None:
        raise FaultError(Fault.NO_LISTING, f"it has no {name}")
    return text
