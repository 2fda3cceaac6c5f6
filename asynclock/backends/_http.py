"""HTTP of the three clouds: usable answers, their limits, and allowed addresses."""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import re
import ssl
from email.utils import mktime_tz, parsedate_tz
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from asynclock._text import printable
from asynclock.backend import MAX_BODY
from asynclock.backends._answers import Fault, FaultError, is_web_page
from asynclock.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import aiohttp

CONNECT_TIMEOUT: Final = 10.0
"""Seconds to connect. A lock ends its requests earlier if its lease is short."""
READ_TIMEOUT: Final = 30.0
"""Seconds of silence after which a request ends. A lock ends its requests earlier if its lease is short."""
TOTAL_TIMEOUT: Final = 60.0
"""Seconds after which a request ends in any case, even if its answer still trickles in."""
MAX_ANSWER: Final = 8 << 20
"""Bytes of the longest answer: a page of a listing with at most 1,000 keys."""
_WHOLE: Final = 200
_RANGE: Final = 206
_PLAIN: Final = frozenset({"", "identity", "aws-chunked"})
"""Values of ``Content-Encoding`` that leave the body as it was written."""


@lru_cache(maxsize=64)
def http_date(text: str) -> float | None:
    """Return an HTTP date as epoch seconds, or None if the text is not a date."""
    try:
        parsed = parsedate_tz(text)
        return None if parsed is None else float(mktime_tz(parsed))
    except (ArithmeticError, LookupError, TypeError, ValueError):
        return None


def server_time(headers: Mapping[str, str]) -> float | None:
    """Return the ``Date`` of an answer in epoch seconds.

    Returns:
        None if the answer has no Date, or has an ``Age``: then a cache sent it, and the Date is that of its
        copy.
    """
    text = headers.get("date") or headers.get("Date")
    if text is None or "age" in headers or "Age" in headers:
        return None
    return http_date(text)


def environment_proxy(url: str) -> str | None:
    """Return the proxy that the environment names for an address, perhaps with a user and password, or None.

    Replaces aiohttp's ``trust_env``, which would also send the credentials in ``~/.netrc`` for the store's
    host.
    """
    parts = urlsplit(url)
    proxy = getproxies().get(parts.scheme)
    if not proxy or proxy_bypass(parts.netloc):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


async def read_object(answer: aiohttp.ClientResponse) -> bytes:
    """Return at most the first ``MAX_BODY`` + 1 bytes of an object.

    Raises:
        FaultError: This may be a part of the object or something else. The status is not 200 and the range
            not 0 to ``MAX_BODY``, or nothing says where the body ends, or it is compressed or a web page.
    """
    headers = answer.headers
    framed = "Content-Length" in headers or "Transfer-Encoding" in headers
    if not framed:
        raise FaultError(Fault.PARTIAL, "it has no length")
    length = _length_of_range(headers) if answer.status == _RANGE else None
    if answer.status != _WHOLE and length is None:
        raise FaultError(Fault.PARTIAL, f"status {answer.status}")
    refuse_compressed(headers)
    body = await read_capped(answer)
    refuse_web_page(headers, body)
    if length is not None and len(body) != length:
        raise FaultError(Fault.PARTIAL, f"{len(body)} bytes of {length}")
    return body


def _length_of_range(headers: Mapping[str, str]) -> int | None:
    """Return the length of a range that is the object or its first ``MAX_BODY`` + 1 bytes, else None."""
    found = re.fullmatch(r"bytes 0-(\d{1,18})/(\d{1,18})", headers.get("Content-Range", ""))
    if found is None:
        return None
    length, whole = int(found[1]) + 1, int(found[2])
    return length if length == min(whole, MAX_BODY + 1) else None


def refuse_compressed(headers: Mapping[str, str]) -> None:
    """Raise ``FaultError`` if a body is compressed. No request asks for that, so it is not the store's."""
    encoding = headers.get("Content-Encoding", "").strip().lower()
    if encoding not in _PLAIN:
        raise FaultError(Fault.COMPRESSED, printable(encoding, limit=32))


def refuse_web_page(headers: Mapping[str, str], body: bytes) -> None:
    """Raise ``FaultError`` if the answer to a read or a write is a page for people, such as a sign-in."""
    if headers.get("Content-Type", "").lstrip().lower().startswith("text/html") and is_web_page(body):
        raise FaultError(Fault.WEB_PAGE, f"text/html, {len(body)} bytes")


def refuse_changed(headers: Mapping[str, str], body: bytes) -> None:
    """Raise ``FaultError`` if a whole object does not match the MD5 checksum that the store sent."""
    said = (
        headers.get("Content-MD5")
        or headers.get("x-ms-blob-content-md5")
        or next(
            (each.strip()[4:] for each in headers.get("x-goog-hash", "").split(",") if "md5=" in each[:6]), ""
        )
    )
    if said and len(body) <= MAX_BODY and said != md5_of(body):
        raise FaultError(Fault.CHANGED, f"{len(body)} bytes came with another checksum")


def md5_of(data: bytes) -> str:
    """Return the MD5 checksum in the form of the clouds' headers."""
    return base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()


def version_in(text: str | None, name: str) -> str:
    """Return the version in an answer, checked so that it can be sent back.

    Args:
        text: Value of the header or field; None: there is none.
        name: Of the header or field.

    Raises:
        FaultError: There is none, or it is not printable ASCII.
    """
    if not text:
        raise FaultError(Fault.NO_VERSION, f"no {name}")
    if not (text.isascii() and text.isprintable()):
        raise FaultError(Fault.NO_VERSION, f"an {name} that cannot be sent back")
    return text


async def read_capped(answer: aiohttp.ClientResponse, limit: int = MAX_BODY + 1) -> bytes:
    """Return at most the first ``limit`` bytes of a body. A longer one closes the connection."""
    chunks: list[bytes] = []
    left = limit
    while left > 0:
        chunk = await answer.content.read(left)
        if not chunk:
            return b"".join(chunks)
        chunks.append(chunk)
        left -= len(chunk)
    answer.close()
    return b"".join(chunks)


async def read_page(answer: aiohttp.ClientResponse) -> bytes:
    """Return the whole body of a page of a listing.

    Raises:
        FaultError: It is longer than any page, compressed, or a web page.
    """
    refuse_compressed(answer.headers)
    body = await read_capped(answer, MAX_ANSWER + 1)
    if len(body) > MAX_ANSWER:
        raise FaultError(Fault.TOO_LONG, f"more than {MAX_ANSWER >> 20} MiB")
    refuse_web_page(answer.headers, body)
    return body


def check_certificates(ca_file: str) -> None:
    """Raise ``ConfigError`` if ``ca_file`` cannot be read or is not a PEM file of certificates."""
    if not Path(ca_file).is_file():
        raise ConfigError(setting="ca_file", value=ca_file, reason="there is no such file")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(ca_file)
    except OSError:
        raise ConfigError(setting="ca_file", value=ca_file, reason="it is not a PEM certificate") from None


def trusting(ca_file: str | None) -> ssl.SSLContext | None:
    """Return a context that trusts these certificates and the machine's; None: only the machine's."""
    if ca_file is None:
        return None
    context = ssl.create_default_context()
    context.load_verify_locations(ca_file)
    return context


def is_loopback(host: str | None) -> bool:
    """Return whether a host name or address means this machine, without looking the name up."""
    if host is None:
        return False
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


_BLANK: Final = r"[\x00-\x20\x7f]"


def check_endpoint(setting: str, value: str, *, allow_http: bool, with_path: bool = False) -> str:
    """Check the address of a service and return it, the scheme in small letters, without a trailing slash.

    Args:
        setting: Named in the error.
        value: The address.
        allow_http: Whether plain http is allowed to other machines than this one.
        with_path: Whether the address may have a path; default False.

    Raises:
        ConfigError: It is not such an address, or secrets would be sent over plain http.
    """

    def refuse(reason: str) -> NoReturn:
        # The value is not shown: an address may contain a password or a token.
        raise ConfigError(setting=setting, value="...", reason=reason)

    if re.search(_BLANK, value):  # the parser would drop it, even within the scheme
        refuse("must have no blanks or control characters")
    try:
        parts = urlsplit(value)
        parts.port  # noqa: B018  raises if the port is not a number
    except ValueError:
        parts = None  # refused below: this error may quote a secret, so it must not become the context
    if parts is None or parts.scheme not in {"http", "https"} or not parts.hostname:
        refuse("must be like https://host:443")
    if "@" in parts.netloc or parts.query or parts.fragment:
        refuse("must contain no user, password, ? or #; give credentials by their options")
    if parts.path.strip("/") and not with_path:
        refuse("must have no path; the bucket and prefix belong in the URL")
    if parts.scheme == "http" and not (allow_http or is_loopback(parts.hostname)):
        refuse("is plain http and not this machine; use https, or allow_http=True to accept the risk")
    return f"{parts.scheme}{value[len(parts.scheme) :]}".rstrip("/")
