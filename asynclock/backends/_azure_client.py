"""Sends the requests of the Azure backend, each once and authorized, and reads error codes and listings."""

from __future__ import annotations

import asyncio
import base64
import hmac
import re
import time
from email.utils import formatdate, parsedate_to_datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import quote, unquote

from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential
from azure.core.exceptions import ClientAuthenticationError
from yarl import URL

from asynclock.backend import Entry
from asynclock.backends._answers import FAILURE, CredentialsError, Fault, FaultError, refusal
from asynclock.backends._cloud import SharedFetch
from asynclock.backends._http import environment_proxy, read_capped, read_object, read_page
from asynclock.backends._resolver import Resolver
from asynclock.backends._transport import Transport
from asynclock.backends._xml import Page, error_code, parse_listing

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping
    from xml.etree import ElementTree as ET

    from asynclock.backends._azure_account import Account, Sdk
    from asynclock.backends._cloud import BackendCall

_VERSION: Final = "2023-11-03"
"""Of the Blob service's REST API."""
_SCOPE: Final = "https://storage.azure.com/.default"
_FETCHED_BEFORE: Final = 300.0
"""Seconds before a token expires from which on the next one is fetched, as by the SDK."""
_BETWEEN_FETCHES: Final = 10.0
"""Seconds at least between two fetches while the present token is valid."""
_SERVER: Final = 500
_LATER: Final = frozenset({408, 429})
_SAID: Final = 4096
_SIGNED: Final = (
    "content-encoding",
    "content-language",
    "content-length",
    "content-md5",
    "content-type",
    "date",
    "if-modified-since",
    "if-match",
    "if-none-match",
    "if-unmodified-since",
    "range",
)
"""The headers that a signature covers, in its order, besides those that begin with ``x-ms-``."""


class Answer(NamedTuple):
    """An answer, read. It has no address, which may contain a shared access signature.

    Attributes:
        status: Its HTTP status.
        code: The service's error code; empty: there was none.
        headers: Its headers.
        body: Its body; of a blob, the first ``MAX_BODY`` + 1 bytes at most.
        https: Whether it came over https.
    """

    status: int
    code: str
    headers: Mapping[str, str]
    body: bytes
    https: bool

    def check(self) -> None:
        """Raise ``AnsweredError`` if the status is not a success."""
        if self.status >= FAILURE:
            url = "https:" if self.https else "http:"
            raise refusal(url, self.status, self.code, headers=self.headers, body=self.body)


class AzureClient:
    """Sends requests to one container, on the event loop that made this object.

    Args:
        account: The account and its credential. A token credential is not closed with this object.
        container: Name of the container.
        tls: The certificates to trust; None: those of the machine.
        trust_env: Whether to use the proxies that the environment names.
    """

    def __init__(
        self, account: Account, container: str, *, tls: ssl.SSLContext | None, trust_env: bool
    ) -> None:
        self._url = f"{account.url}/{container}"
        self._credential = account.credential
        self._token: SharedCredential | None = None
        if account.credential is None or hasattr(account.credential, "get_token"):
            self._token = SharedCredential(account.credential)
        self._resolver = Resolver()
        proxy = environment_proxy(account.url) if trust_env else None
        self._transport = Transport(self._resolver, tls=tls, proxy=proxy)

    async def send(
        self,
        call: BackendCall,
        method: str,
        blob: str = "",
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> Answer:
        """Send one request and return the answer, whatever its status.

        Args:
            call: What this request is for.
            method: As in HTTP.
            blob: Its name; default: the container itself.
            query: Parameters of the address; default none.
            headers: Headers besides those that every request has, with lower-case names; default none.
            body: What is sent; default nothing.
        """
        # Encoded here, exactly as it is signed: yarl would change some characters.
        url = f"{self._url}/{quote(blob, safe='/~')}" if blob else self._url
        sent = {
            "accept-encoding": "identity",
            "x-ms-date": formatdate(usegmt=True),
            "x-ms-version": _VERSION,
            **(headers or {}),
        }
        parameters = "&".join(f"{name}={quote(value, safe='~')}" for name, value in (query or {}).items())
        if self._token is not None:
            call.waits_since = time.monotonic()
            sent["authorization"] = f"Bearer {await self._token.get()}"
            call.waits_since = None
        elif isinstance(self._credential, AzureNamedKeyCredential):
            sent["authorization"] = shared_key(
                self._credential, method, url, query=query or {}, headers=sent, length=len(body or b"")
            )
        elif isinstance(self._credential, AzureSasCredential):
            signature = self._credential.signature.removeprefix("?")
            parameters = f"{parameters}&{signature}" if parameters else signature
        url = f"{url}?{parameters}" if parameters else url
        async with await self._transport.send(call, method, url, headers=sent, body=body) as answer:
            if answer.status >= FAILURE:
                found = await read_capped(answer)
            elif not blob:
                found = await read_page(answer)
            else:
                found = await (read_object(answer) if method == "GET" else read_capped(answer))
            code = answer.headers.get("x-ms-error-code")
            if code is None:
                code = error_code(found) if answer.status >= FAILURE else ""
            return Answer(answer.status, code, answer.headers, found, url.startswith("https:"))

    async def aclose(self) -> None:
        """Close the connections and cancel a running fetch of a token."""
        try:
            if self._token is not None:
                await self._token.aclose()
        finally:
            await self._transport.aclose()
            await self._resolver.close()


def shared_key(
    credential: AzureNamedKeyCredential,
    method: str,
    url: str,
    *,
    query: Mapping[str, str],
    headers: Mapping[str, str],
    length: int,
) -> str:
    """Return the value of ``Authorization`` for an account key.

    Source: Azure Storage REST API, "Authorize with Shared Key".

    Args:
        credential: Name of the account and its key.
        method: As in HTTP.
        url: Address of the request without its parameters, encoded as it is sent.
        query: The parameters, not encoded.
        headers: All headers that are signed, with lower-case names.
        length: Of the body, in bytes.
    """
    account, key = credential.named_key
    given = {**headers, "content-length": str(length or "")}
    signed = [method, *(given.get(name, "") for name in _SIGNED)]
    signed += [f"{name}:{given[name]}" for name in sorted(given) if name.startswith("x-ms-")]
    signed += [f"/{account}{URL(url, encoded=True).raw_path}"]
    signed += [f"{name}:{query[name]}" for name in sorted(query)]
    digest = hmac.digest(base64.b64decode(key), "\n".join(signed).encode(), sha256)
    return f"SharedKey {account}:{base64.b64encode(digest).decode()}"


class SharedCredential:
    """A token credential whose token is shared: one fetch serves all requests, beside them if there is time.

    From five minutes before a token expires, credentials of the SDK fetch the next one within ``get_token``.
    If that hangs or is cancelled, so would every request, although the present token is still valid. Some
    keep no token at all: ``AzureCliCredential`` starts a process for each.

    Args:
        credential: An async credential. None: ``DefaultAzureCredential``, made by the first fetch.
    """

    def __init__(self, credential: Sdk | None) -> None:
        self._credential = credential
        self._ours = credential is None
        self._last: Sdk | None = None
        self._next_fetch = 0.0  # earliest time of another
        self._fetching: SharedFetch[Sdk] = SharedFetch(self._fetch)

    async def get(self) -> str:
        """Return a token that has not expired. Raises what the credential raises."""
        now = time.time()
        if self._last is None or now >= self._last.expires_on:
            return str((await self._fetching.wait()).token)
        if now >= max(self._last.expires_on - _FETCHED_BEFORE, self._next_fetch):
            self._next_fetch = now + _BETWEEN_FETCHES
            self._fetching.start()
        return str(self._last.token)

    async def aclose(self) -> None:
        """Cancel a running fetch, and close the credential if it was made here."""
        await self._fetching.aclose()
        if self._ours and self._credential is not None:
            await self._credential.close()

    async def _fetch(self) -> Sdk:
        credential: Sdk = self._credential or await asyncio.to_thread(_default_credential)
        self._credential = credential
        try:
            self._last = await credential.get_token(_SCOPE)
        except ClientAuthenticationError as error:
            status = error.status_code
            if status is not None and (status >= _SERVER or status in _LATER):
                raise
            # Not what it says, which may contain a secret; Entra's number of an error contains none.
            number = re.search(r"AADSTS[0-9]{4,8}", str(error.message)[:_SAID])
            raise CredentialsError(
                f"the credential gave no token ({number[0] if number else type(error).__name__}); "
                "check its settings, or sign in again"
            ) from None
        return self._last


def _default_credential() -> Sdk:
    from azure.identity.aio import DefaultAzureCredential  # noqa: PLC0415  takes 200 ms and is seldom needed

    return DefaultAzureCredential()


def parse_page(body: bytes) -> Page:
    """Read the answer to List Blobs.

    Raises:
        FaultError: It is not such an answer.
    """
    page = parse_listing(body, "EnumerationResults")
    blobs = page.find("{*}Blobs")
    if blobs is None:
        raise FaultError(Fault.NO_LISTING, "it has no Blobs")
    try:
        entries = [_entry(blob) for blob in blobs.iterfind("{*}Blob")]
    except ValueError:
        raise FaultError(Fault.NO_LISTING, "an entry cannot be read") from None
    return Page(entries, page.findtext("{*}NextMarker") or None)


def _entry(blob: ET.Element) -> Entry:
    name, size, modified = (
        blob.find(each)
        for each in ("{*}Name", "{*}Properties/{*}Content-Length", "{*}Properties/{*}Last-Modified")
    )
    if name is None or size is None:
        raise ValueError("the listing has a blob without a name or a size")
    # A name with characters that XML does not have is encoded.
    text = unquote(name.text or "") if name.get("Encoded") == "true" else name.text or ""
    written = None if modified is None else parsedate_to_datetime(modified.text or "").timestamp()
    return Entry(text, int(size.text or ""), written)
