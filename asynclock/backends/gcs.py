"""``gs://``: Google Cloud Storage, with credentials from gcloud-aio-auth.

This module sends the requests of the JSON API itself, through aiohttp, each once and without following
redirects. The methods of an SDK, ``upload()`` and ``download()``, drop the headers of the answer, and a
lock needs its Date. What an answer means is in the table
``asynclock.backends._tables.GCS``, which ``docs/backends/answers.md`` shows.

Objects are written with ``Cache-Control: no-store``, because Google may otherwise answer reads of a public
object from a cache.

Source: Cloud Storage JSON API, "Objects: insert"; "Request preconditions".
"""

from __future__ import annotations

import os
import time
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import aiohttp
import orjson

from asynclock.backend import Absent, Entry, Stored, Written
from asynclock.backends._answers import FAILURE, AnsweredError, Fault, FaultError, is_web_page, refusal
from asynclock.backends._cloud import BackendCall, CloudBackend, Pages
from asynclock.backends._gcs_token import SharedToken, checked_token, default_token
from asynclock.backends._http import (
    check_certificates,
    check_endpoint,
    environment_proxy,
    http_date,
    read_capped,
    read_object,
    read_page,
    refuse_changed,
    refuse_compressed,
    refuse_web_page,
    server_time,
    trusting,
)
from asynclock.backends._resolver import Resolver
from asynclock.backends._tables import GCS
from asynclock.backends._transport import Transport
from asynclock.backends._url import bucket_of, object_prefix, split_url, take_options
from asynclock.errors import ConfigError, PreconditionFailedError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from asynclock.backends._gcs_token import AccessTokens

_ENDPOINT: Final = "https://storage.googleapis.com"
_EMULATOR: Final = "STORAGE_EMULATOR_HOST"
_WRITE_INTERVAL: Final = 1.0
"""Seconds between two writes of one object: Cloud Storage accepts one a second and answers 429 to more."""
_BOUNDARY: Final = b"asynclock-7f3c1d9be2a84056"
_MULTIPART: Final = f"multipart/related; boundary={_BOUNDARY.decode()}"
_DIGITS: Final = 20
"""Of the longest generation, which is a number of 64 bits."""


class GcsBackend(CloudBackend[Transport]):
    """Objects in one bucket of Cloud Storage.

    Args:
        bucket: Name of the bucket.
        prefix: Put before every key; default empty.
        min_write_interval: Seconds that a lock leaves between two writes of one object; default 1.
        endpoint_url: Address of the service, without a trailing slash; default Google's.
        token: Where access tokens come from. Default: from the credentials that the SDK finds by itself;
            no token at all for a plain http endpoint, which is an emulator.
        user_project: The project to bill where the bucket's owner does not pay for requests; default none.
        ca_file: Certificates to trust besides those of the machine; default none.
        trust_env: Whether to use the proxies that the environment names; default False.
    """

    name = "gcs"
    answers = GCS
    own_hosts = r"(.+\.)?googleapis\.com"

    def __init__(
        self,
        bucket: str,
        *,
        prefix: str = "",
        min_write_interval: float = _WRITE_INTERVAL,
        endpoint_url: str = _ENDPOINT,
        token: AccessTokens | None = None,
        user_project: str | None = None,
        ca_file: str | None = None,
        trust_env: bool = False,
    ) -> None:
        super().__init__(prefix=prefix, min_write_interval=min_write_interval, trust_env=trust_env)
        self._endpoint, self._bucket = endpoint_url, bucket
        # A plain http address without a token is an emulator, which needs no credentials.
        self._anonymous = token is None and endpoint_url.startswith("http://")
        self._token = token
        self._token_session: aiohttp.ClientSession | None = None
        self._ca_file = ca_file
        self._proxy = environment_proxy(endpoint_url) if trust_env else None
        self._resolver = Resolver()
        self._billed = f"&userProject={quote(user_project, safe='')}" if user_project else ""
        self._objects = f"{endpoint_url}/storage/v1/b/{bucket}/o"
        self._uploads = f"{endpoint_url}/upload/storage/v1/b/{bucket}/o"

    async def get(self, key: str) -> Stored | Absent:
        """Read an object; see ``Backend.get``."""
        with BackendCall(self, "get", key) as call:
            async with await self._send(call, "GET", self._object(key, "alt=media")) as answer:
                headers = answer.headers
                if answer.status == 404:  # noqa: PLR2004  not found
                    said = await read_capped(answer)
                    if b"bucket does not exist" in said or is_web_page(said):
                        raise _refusal(answer, said)
                    return Absent(server_time(headers))
                await _check(answer)
                data = await read_object(answer)
                refuse_changed(headers, data)
                modified = headers.get("Last-Modified")
                return Stored(
                    data,
                    _generation(headers.get("X-Goog-Generation")),
                    None if modified is None else http_date(modified),
                    server_time(headers),
                )

    async def put_if_absent(self, key: str, body: bytes) -> Written:
        """Create an object; see ``Backend.put_if_absent``."""
        return await self._put("put_if_absent", key, body, "&ifGenerationMatch=0")

    async def put_if_match(self, key: str, body: bytes, version: str) -> Written:
        """Replace one generation of an object; see ``Backend.put_if_match``."""
        if not _is_generation(version):
            # ifGenerationMatch=0 means "only if there is no object" and would create one.
            raise PreconditionFailedError(
                backend=self.name,
                operation="put_if_match",
                key=key,
                detail="the version is no generation",
                written="no",
            )
        return await self._put("put_if_match", key, body, f"&ifGenerationMatch={version}")

    async def put(self, key: str, body: bytes) -> Written:
        """Write without a condition; see ``Backend.put``."""
        return await self._put("put", key, body, "")

    async def _put(self, operation: str, key: str, body: bytes, condition: str) -> Written:
        with BackendCall(self, operation, key) as call:
            address = f"{self._uploads}?uploadType=multipart{condition}{self._billed}"
            async with await self._send(
                call, "POST", address, _multipart(self._prefix + key, body)
            ) as answer:
                await _check(answer)
                refuse_compressed(answer.headers)
                said = await read_capped(answer)
                refuse_web_page(answer.headers, said)
                return Written(_generation(_field(said, "generation")), server_time(answer.headers))

    async def list(self, prefix: str) -> AsyncIterator[Entry]:
        """Yield the objects under ``prefix``; see ``Backend.list``."""
        query, more = f"prefix={quote(self._prefix + prefix, safe='')}{self._billed}", ""
        pages = Pages()
        while True:
            with BackendCall(self, "list", prefix) as call:
                async with await self._send(call, "GET", f"{self._objects}?{query}{more}") as answer:
                    await _check(answer)
                    entries, token = _parse_page(await read_page(answer), len(self._prefix))
                more = f"&pageToken={quote(pages.next(token), safe='')}" if token else ""
            for entry in entries:
                yield entry
            if not more:
                return

    async def delete(self, key: str) -> None:
        """Delete an object; see ``Backend.delete``."""
        await self._delete("delete", key, "")

    async def delete_if_match(self, key: str, version: str) -> None:
        """Delete one generation of an object; see ``ConditionalDelete``."""
        await self._delete("delete_if_match", key, f"&ifGenerationMatch={quote(version, safe='')}")

    async def _delete(self, operation: str, key: str, condition: str) -> None:
        with BackendCall(self, operation, key) as call:
            async with await self._send(call, "DELETE", self._object(key, f"alt=json{condition}")) as answer:
                if answer.status != 404:  # noqa: PLR2004  missing is no error
                    await _check(answer)

    def _object(self, key: str, query: str) -> str:
        # Encoded here, because yarl would decode %2F in a name and make a separator of it.
        name = quote(self._prefix + key, safe="")
        return f"{self._objects}/{name}?{query}{self._billed}"

    async def _send(
        self, call: BackendCall, method: str, address: str, body: bytes | None = None
    ) -> aiohttp.ClientResponse:
        transport = await self._ready()
        headers = {"Accept-Encoding": "identity"}
        if self._token is not None:
            call.waits_since = time.monotonic()
            headers["Authorization"] = f"Bearer {await self._token.get()}"
            call.waits_since = None
        if body is not None:
            headers["Content-Type"] = _MULTIPART
        return await transport.send(call, method, address, headers=headers, body=body)

    async def _open(self) -> Transport:
        transport = Transport(self._resolver, tls=trusting(self._ca_file), proxy=self._proxy)
        try:
            if self._token is None and not self._anonymous:
                # The SDK passes no proxy on: it needs a session that looks for one by itself.
                self._token_session = transport.session_for_credentials(trust_env=self._trust_env)
                self._token = await default_token(self._token_session)
        except BaseException:
            await self._close(transport)
            raise
        return transport

    def _location(self, _client: Transport) -> tuple[str, str]:
        return self._endpoint, self._bucket

    async def _close(self, client: Transport) -> None:
        if isinstance(self._token, SharedToken):  # the caller closes any other source of tokens
            await self._token.close()
        if self._token_session is not None:
            await self._token_session.close()
        await client.aclose()
        await self._resolver.close()

    def _read_failure(self, error: Exception) -> tuple[int | None, str]:
        # Of a token service; with a cause, aiohttp could not read the answer, and the status is its own.
        if isinstance(error, aiohttp.ClientResponseError) and error.__cause__ is None:
            return error.status, ""
        return super()._read_failure(error)


def open_gcs(url: str, **options: object) -> GcsBackend:
    """Return the backend for ``gs://bucket/prefix``. Nothing is sent before the first call.

    Args:
        url: ``gs://bucket/prefix``.
        options: ``endpoint_url`` (default: ``STORAGE_EMULATOR_HOST``, else Google), ``token`` (an
            access token, or an object with ``async get()``; default: the credentials that the SDK
            finds by itself), ``ca_file`` (certificates to trust besides those of the machine),
            ``user_project`` or ``project`` (billed where the requester pays),
            ``allow_http`` (default False), ``trust_env`` (default False: proxies of the environment
            are not used), ``min_write_interval`` (seconds; default 1, as Cloud Storage asks),
            ``verify`` (default True: a store at another address than Google's is tried out before the
            first lock).

    Raises:
        ConfigError: The URL or an option is wrong.
    """
    parts = split_url(url)
    taken = take_options(
        options,
        endpoint_url=str,
        token=object,
        project=str,
        user_project=str,
        ca_file=str,
        allow_http=bool,
        min_write_interval=float,
        verify=bool,
    )
    endpoint = taken.get("endpoint_url") or os.environ.get(_EMULATOR) or _ENDPOINT
    if "://" not in endpoint:
        endpoint = f"http://{endpoint}"
    endpoint = check_endpoint("endpoint_url", endpoint, allow_http=taken.get("allow_http", False))
    if (ca_file := taken.get("ca_file")) is not None:
        check_certificates(ca_file)
    backend = GcsBackend(
        bucket_of(parts, "gs"),
        prefix=object_prefix(parts),
        min_write_interval=taken.get("min_write_interval", _WRITE_INTERVAL),
        endpoint_url=endpoint,
        token=checked_token(taken.get("token")),
        user_project=taken.get("user_project") or taken.get("project"),
        ca_file=ca_file,
        trust_env=bool(options.get("trust_env", False)),
    )
    backend.verify = taken.get("verify", True)
    return backend


def _multipart(name: str, body: bytes) -> bytes:
    """Return the body of a multipart upload: metadata and the object's bytes.

    Raises:
        ConfigError: The bytes contain the boundary; nothing was sent.
    """
    if _BOUNDARY in body:
        raise ConfigError(setting="body", value="...", reason="it contains the multipart boundary")
    about = orjson.dumps({"name": name, "cacheControl": "no-store", "contentType": "application/json"})
    return b"".join(
        (
            b"--" + _BOUNDARY + b"\r\nContent-Type: application/json; charset=UTF-8\r\n\r\n",
            about,
            b"\r\n--" + _BOUNDARY + b"\r\nContent-Type: application/json\r\n\r\n",
            body,
            b"\r\n--" + _BOUNDARY + b"--\r\n",
        )
    )


async def _check(answer: aiohttp.ClientResponse) -> None:
    if answer.status >= FAILURE:
        raise _refusal(answer, await read_capped(answer))


def _refusal(answer: aiohttp.ClientResponse, body: bytes) -> AnsweredError:
    return refusal(str(answer.url), answer.status, _reason(body), headers=answer.headers, body=body)


def _reason(body: bytes) -> str:
    """Return the error code in the body of an answer, such as ``conditionNotMet``, or an empty string."""
    try:
        return str(orjson.loads(body)["error"]["errors"][0]["reason"])
    except (orjson.JSONDecodeError, KeyError, IndexError, TypeError):
        return ""


def _field(body: bytes, name: str) -> str | None:
    try:
        return str(orjson.loads(body)[name])
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return None


def _generation(text: str | None) -> str:
    """Return the generation in an answer; raises ``FaultError`` if there is none."""
    if text is None or not _is_generation(text):
        raise FaultError(Fault.NO_VERSION, "no generation")
    return text


def _is_generation(text: str) -> bool:
    # 0 would mean "only if there is no object" and create one.
    return text.isascii() and text.isdecimal() and len(text) <= _DIGITS and text.strip("0") != ""


def _parse_page(body: bytes, start: int) -> tuple[list[Entry], str]:
    """Return the entries of a page of a listing, and the token of the next one or an empty string."""
    try:
        page = orjson.loads(body)
        entries = [_entry(item, start) for item in page.get("items", ())]
        return entries, str(page.get("nextPageToken") or "")
    except (orjson.JSONDecodeError, AttributeError, KeyError, TypeError, ValueError):
        raise FaultError(Fault.NO_LISTING, "it cannot be read") from None


def _entry(item: Mapping[str, Any], start: int) -> Entry:
    return Entry(item["name"][start:], int(item["size"]), datetime.fromisoformat(item["updated"]).timestamp())
