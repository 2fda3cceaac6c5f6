"""``gs://``: Google Cloud Storage, with credentials from gcloud-aio-auth.

This module sends the requests of the JSON API itself, through aiohttp, each once and without following
redirects. The methods of an SDK, ``upload()`` and ``download()``, drop the headers of the answer, and a
lock needs its Date. What an answer means:

===============================================  ===========================
Answer                                           Becomes
===============================================  ===========================
412 to a write                                   ``PreconditionFailedError``
404 to a read                                    ``Absent``
404 to a write (bucket), 400, 405, 501           ``UnsupportedBackendError``
``retentionPolicyNotMet``, ``objectUnderActiveHold``  ``UnsupportedBackendError``
redirects                                        ``UnsupportedBackendError``
429, 403 ``rateLimitExceeded``                   ``BackendUnavailableError``
401, 403                                         ``AccessDeniedError``
408, 5xx, connection lost after sending          ``OutcomeUnknownError``
no connection, no token yet                      ``BackendUnavailableError``
unreadable file of credentials                   ``AccessDeniedError``
===============================================  ===========================

A read writes nothing, so its outcome is never unknown: where the table says ``OutcomeUnknownError``, a
read raises ``BackendUnavailableError``. Objects are written with ``Cache-Control: no-store``, because
Google may otherwise answer reads of a public object from a cache.

Source: Cloud Storage JSON API, "Objects: insert"; "Request preconditions".
"""

from __future__ import annotations

import os
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import aiohttp
import orjson
from yarl import URL

from asynclock.backend import Absent, Entry, Stored, Written
from asynclock.backends._gcs_token import SharedToken, checked_token, default_token
from asynclock.backends._http import (
    CONNECT_TIMEOUT,
    FAILURE,
    READ_TIMEOUT,
    AnsweredError,
    BackendCall,
    CloudBackend,
    check_endpoint,
    environment_proxy,
    http_date,
    read_object,
    server_time,
    without_resend,
)
from asynclock.backends._resolver import Resolver
from asynclock.backends._url import bucket_of, object_prefix, split_url, take_options
from asynclock.errors import (
    AccessDeniedError,
    BackendError,
    BackendUnavailableError,
    ConfigError,
    PreconditionFailedError,
    UnsupportedBackendError,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from asynclock.backends._gcs_token import AccessTokens

_ENDPOINT: Final = "https://storage.googleapis.com"
_EMULATOR: Final = "STORAGE_EMULATOR_HOST"
_WRITE_INTERVAL: Final = 1.0
"""Seconds between two writes of one object: Cloud Storage accepts one a second and answers 429 to more."""
_BOUNDARY: Final = b"asynclock-7f3c1d9be2a84056"
_MULTIPART: Final = f"multipart/related; boundary={_BOUNDARY.decode()}"
_ERROR_BODY: Final = 4096


class GcsBackend(CloudBackend[aiohttp.ClientSession]):
    """Objects in one bucket of Cloud Storage.

    Args:
        bucket: Name of the bucket.
        prefix: Put before every key; default empty.
        min_write_interval: Seconds that a lock leaves between two writes of one object; default 1.
        endpoint_url: Address of the service, without a trailing slash; default Google's.
        token: Where access tokens come from. Default: from the credentials that the SDK finds by itself;
            no token at all for a plain http endpoint, which is an emulator.
        user_project: The project to bill where the bucket's owner does not pay for requests; default none.
        trust_env: Whether to use the proxies that the environment names; default False.
    """

    name = "gcs"
    codes: Mapping[str, type[BackendError]] = {
        "conditionNotMet": PreconditionFailedError,
        "rateLimitExceeded": BackendUnavailableError,
        "userRateLimitExceeded": BackendUnavailableError,
        "retentionPolicyNotMet": UnsupportedBackendError,
        "objectUnderActiveHold": UnsupportedBackendError,
        "NoCredentials": AccessDeniedError,
    }
    hints: Mapping[str, str] = {
        "NoCredentials": "their file cannot be read; check GOOGLE_APPLICATION_CREDENTIALS",
        "400": "it does not understand the request; check endpoint and bucket",
        "404": "the bucket does not exist",
        "401": "the access token was refused",
        "403": "needs storage.objects.get, create and delete (an overwrite is a delete), and list",
        "429": "more than one write a second of one object",
        "retentionPolicyNotMet": "the bucket retains objects; a lock needs to be overwritten",
        "objectUnderActiveHold": "the object is under a hold; a lock needs to be overwritten",
    }

    def __init__(
        self,
        bucket: str,
        *,
        prefix: str = "",
        min_write_interval: float = _WRITE_INTERVAL,
        endpoint_url: str = _ENDPOINT,
        token: AccessTokens | None = None,
        user_project: str | None = None,
        trust_env: bool = False,
    ) -> None:
        super().__init__(prefix=prefix, min_write_interval=min_write_interval)
        self._endpoint = endpoint_url
        # A plain http address without a token is an emulator, which needs no credentials.
        self._anonymous = token is None and endpoint_url.startswith("http://")
        self._token = token
        self._token_session: aiohttp.ClientSession | None = None
        self._trust_env = trust_env
        self._proxy = environment_proxy(endpoint_url) if trust_env else None
        self._resolver = Resolver()
        self._timeout = aiohttp.ClientTimeout(sock_connect=CONNECT_TIMEOUT, sock_read=READ_TIMEOUT)
        self._billed = f"&userProject={quote(user_project, safe='')}" if user_project else ""
        self._objects = f"{endpoint_url}/storage/v1/b/{bucket}/o"
        self._uploads = f"{endpoint_url}/upload/storage/v1/b/{bucket}/o"

    async def get(self, key: str) -> Stored | Absent:
        """Read an object; see ``Backend.get``."""
        with BackendCall(self, "get", key) as call:
            async with await self._send(call, "GET", self._object(key, "alt=media")) as answer:
                headers = answer.headers
                if answer.status == 404:  # noqa: PLR2004  not found
                    if b"bucket does not exist" in await answer.content.read(_ERROR_BODY):
                        raise AnsweredError(404, "")
                    return Absent(server_time(headers))
                await _check(answer)
                data = await read_object(answer)
                modified = headers.get("Last-Modified")
                return Stored(
                    data,
                    headers["X-Goog-Generation"],
                    None if modified is None else http_date(modified),
                    server_time(headers),
                )

    async def put_if_absent(self, key: str, body: bytes) -> Written:
        """Create an object; see ``Backend.put_if_absent``."""
        return await self._put("put_if_absent", key, body, "&ifGenerationMatch=0")

    async def put_if_match(self, key: str, body: bytes, version: str) -> Written:
        """Replace one generation of an object; see ``Backend.put_if_match``."""
        if not version.isdecimal() or int(version) == 0:
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
            address = URL(f"{self._uploads}?uploadType=multipart{condition}{self._billed}", encoded=True)
            answer = await self._send(call, "POST", address, _multipart(self._prefix + key, body))
            if answer.status >= FAILURE:
                async with answer:
                    await _check(answer)
            # Reading the body to its end releases the connection.
            written = orjson.loads(await answer.read())
            return Written(str(written["generation"]), server_time(answer.headers))

    async def list(self, prefix: str) -> AsyncIterator[Entry]:
        """Yield the objects under ``prefix``; see ``Backend.list``."""
        query, more = f"prefix={quote(self._prefix + prefix, safe='')}{self._billed}", ""
        while True:
            with BackendCall(self, "list", prefix) as call:
                address = URL(f"{self._objects}?{query}{more}", encoded=True)
                async with await self._send(call, "GET", address) as answer:
                    await _check(answer)
                    page = orjson.loads(await answer.read())
                entries = [_entry(item, len(self._prefix)) for item in page.get("items", ())]
            for entry in entries:
                yield entry
            if not page.get("nextPageToken"):
                return
            more = f"&pageToken={quote(page['nextPageToken'], safe='')}"

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

    def _object(self, key: str, query: str) -> URL:
        # Encoded here, because yarl would decode %2F in a name and make a separator of it.
        name = quote(self._prefix + key, safe="")
        return URL(f"{self._objects}/{name}?{query}{self._billed}", encoded=True)

    async def _send(
        self, call: BackendCall, method: str, address: URL, data: bytes | None = None
    ) -> aiohttp.ClientResponse:
        session = await self._ready()
        headers = {} if self._token is None else {"Authorization": f"Bearer {await self._token.get()}"}
        if data is not None:
            headers["Content-Type"] = _MULTIPART
        call.sent = True
        return await session.request(
            method,
            address,
            headers=headers,
            data=data,
            allow_redirects=False,
            proxy=self._proxy,
            timeout=self._timeout,
        )

    async def _open(self) -> aiohttp.ClientSession:
        session = without_resend(
            aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(resolver=self._resolver),
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        )
        try:
            if self._token is None and not self._anonymous:
                # The SDK passes no proxy on: it needs a session that looks for one by itself.
                self._token_session = aiohttp.ClientSession(
                    connector=session.connector, connector_owner=False, trust_env=self._trust_env
                )
                self._token = await default_token(self._token_session)
        except BaseException:
            await self._close(session)
            raise
        return session

    async def _close(self, client: aiohttp.ClientSession) -> None:
        if isinstance(self._token, SharedToken):  # the caller closes any other source of tokens
            await self._token.close()
        if self._token_session is not None:
            await self._token_session.close()
        await client.close()
        await self._resolver.close()

    def _read_failure(self, error: Exception) -> tuple[int | None, str]:
        if isinstance(error, FileNotFoundError | PermissionError):
            return None, "NoCredentials"
        return super()._read_failure(error)


def open_gcs(url: str, **options: object) -> GcsBackend:
    """Return the backend for ``gs://bucket/prefix``. Nothing is sent before the first call.

    Args:
        url: ``gs://bucket/prefix``.
        options: ``endpoint_url`` (default: ``STORAGE_EMULATOR_HOST``, else Google), ``token`` (an
            access token, or an object with ``async get()``; default: the credentials that the SDK
            finds by itself), ``user_project`` or ``project`` (billed where the requester pays),
            ``allow_http`` (default False), ``trust_env`` (default False: proxies of the environment
            are not used), ``min_write_interval`` (seconds; default 1, as Cloud Storage asks).

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
        allow_http=bool,
        min_write_interval=float,
    )
    endpoint = taken.get("endpoint_url") or os.environ.get(_EMULATOR) or _ENDPOINT
    if "://" not in endpoint:
        endpoint = f"http://{endpoint}"
    endpoint = check_endpoint("endpoint_url", endpoint, allow_http=taken.get("allow_http", False))
    return GcsBackend(
        bucket_of(parts, "gs"),
        prefix=object_prefix(parts),
        min_write_interval=taken.get("min_write_interval", _WRITE_INTERVAL),
        endpoint_url=endpoint,
        token=checked_token(taken.get("token")),
        user_project=taken.get("user_project") or taken.get("project"),
        trust_env=bool(options.get("trust_env", False)),
    )


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
    if answer.status < FAILURE:
        return
    raise AnsweredError(answer.status, _reason(await answer.content.read(_ERROR_BODY)))


def _reason(body: bytes) -> str:
    """Return the error code in the body of an answer, such as ``conditionNotMet``, or an empty string."""
    try:
        return str(orjson.loads(body)["error"]["errors"][0]["reason"])
    except (orjson.JSONDecodeError, KeyError, IndexError, TypeError):
        return ""


def _entry(item: Mapping[str, Any], start: int) -> Entry:
    return Entry(item["name"][start:], int(item["size"]), datetime.fromisoformat(item["updated"]).timestamp())
