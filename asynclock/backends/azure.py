"""``az://``, ``abfs[s]://`` and ``wasb[s]://``: Azure Blob Storage, through azure-storage-blob.

A call sends one PutBlob or GetBlob request. Switched off are: the SDK's retries, its second read of a blob
whose body was cut, the repetition of a request by aiohttp, and redirects. What an answer means; the error
code decides before the status:

====================================================  ===========================
Answer                                                Becomes
====================================================  ===========================
``BlobAlreadyExists`` (409, or 412), 412              ``PreconditionFailedError``
404 ``BlobNotFound`` to a write                       ``PreconditionFailedError``
404 ``BlobNotFound`` to a read                        ``Absent``
404 ``ContainerNotFound``                             ``UnsupportedBackendError``
412 ``LeaseIdMissing``                                ``UnsupportedBackendError``
409 ``BlobImmutableDueToPolicy``, ``UnauthorizedBlobOverwrite``  ``UnsupportedBackendError``
409 ``ContainerBeingDeleted``, other 409, 5xx         ``OutcomeUnknownError``
429                                                   ``BackendUnavailableError``
401, 403                                              ``AccessDeniedError``
400, 405, 501, redirects                              ``UnsupportedBackendError``
no connection, no token yet                           ``BackendUnavailableError``
connection lost after sending, timeout                ``OutcomeUnknownError``
====================================================  ===========================

A read writes nothing, so its outcome is never unknown: where the table says ``OutcomeUnknownError``, a
read raises ``BackendUnavailableError``.

Source: Azure Storage REST API, "Specifying conditional headers for Blob service operations".
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

import aiohttp
from azure.core import MatchConditions
from azure.core.exceptions import HttpResponseError, ResourceNotFoundError, ServiceRequestError
from azure.core.pipeline.transport import AioHttpTransport
from azure.storage.blob.aio import BlobServiceClient

from asynclock.backend import MAX_BODY, Absent, Entry, Stored, Written
from asynclock.backends._azure_account import Account, Sdk, find_account
from asynclock.backends._http import (
    CONNECT_TIMEOUT,
    READ_TIMEOUT,
    CloudBackend,
    SharedFetch,
    check_endpoint,
    exchange,
    http_date,
    read_capped,
    server_time,
    without_resend,
)
from asynclock.backends._names import name_problem
from asynclock.backends._resolver import Resolver
from asynclock.backends._url import object_prefix, split_url, take_options, wrong_url
from asynclock.errors import (
    BackendError,
    ConfigError,
    OutcomeUnknownError,
    PreconditionFailedError,
    UnsupportedBackendError,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from azure.core.credentials import AccessToken

_BLOBS_KEPT: Final = 256
_NO_NAME: Final = "this cannot be the name of a container"
_NOT_PROCESSED: Final = frozenset({401, 416})
"""Statuses after which the SDK may send a second request in one call, because the first was not carried out:
401, it sends an access token with the second; 416, the second asks for no range of an empty blob."""


class AzureBackend(CloudBackend[Sdk]):
    """Blobs in one container.

    Args:
        container: Name of the container.
        account: The account and its credential.
        prefix: Put before every key; default empty.
        min_write_interval: Seconds that a lock leaves between two writes of one object; default 0.
        trust_env: Whether to use the proxies that the environment names; default False.
    """

    name = "azure"
    codes: Mapping[str, type[BackendError]] = {
        "BlobAlreadyExists": PreconditionFailedError,
        "ConditionNotMet": PreconditionFailedError,
        "BlobNotFound": PreconditionFailedError,
        "ContainerNotFound": UnsupportedBackendError,
        "ContainerBeingDeleted": OutcomeUnknownError,
        "LeaseIdMissing": UnsupportedBackendError,
        "BlobImmutableDueToPolicy": UnsupportedBackendError,
        "UnauthorizedBlobOverwrite": UnsupportedBackendError,
    }
    hints: Mapping[str, str] = {
        "BlobNotFound": "the blob is missing",
        "ContainerNotFound": "the container does not exist",
        "LeaseIdMissing": "somebody holds an Azure lease on the blob; break it",
        "BlobImmutableDueToPolicy": "the container retains blobs; a lock needs to be overwritten",
        "UnauthorizedBlobOverwrite": "the permission to create does not cover overwriting",
        "AuthenticationFailed": "the key, token or signature is wrong or expired",
        "OutOfRangeInput": _NO_NAME,
        "InvalidResourceName": _NO_NAME,
        "400": "it does not understand the request; check account and container",
        "403": "needs Storage Blob Data Contributor on the container, or a signature with rcwl",
    }

    def __init__(
        self,
        container: str,
        account: Account,
        *,
        prefix: str = "",
        min_write_interval: float = 0.0,
        trust_env: bool = False,
    ) -> None:
        super().__init__(prefix=prefix, min_write_interval=min_write_interval)
        self._container = container
        self._account = account
        self._trust_env = trust_env
        self._resolver = Resolver()
        self._blobs: dict[str, Sdk] = {}
        self._shared: _SharedCredential | None = None
        self._session: aiohttp.ClientSession | None = None

    async def get(self, key: str) -> Stored | Absent:
        """Read a blob; see ``Backend.get``."""
        with self._call("get", key) as current:
            try:
                found = await (await self._blob(key)).download_blob()
            except ResourceNotFoundError as error:
                if error.error_code != "BlobNotFound":
                    raise
                return Absent(server_time(current.headers))
            headers = current.headers
            data = await read_capped(found.read, bool)
            modified = headers.get("Last-Modified")
            return Stored(
                data, headers["ETag"], None if modified is None else http_date(modified), server_time(headers)
            )

    async def put_if_absent(self, key: str, body: bytes) -> Written:
        """Create a blob; see ``Backend.put_if_absent``."""
        # overwrite=False sends If-None-Match: *.
        return await self._put("put_if_absent", key, body, overwrite=False)

    async def put_if_match(self, key: str, body: bytes, version: str) -> Written:
        """Replace one version of a blob; see ``Backend.put_if_match``."""
        condition = {"etag": version, "match_condition": MatchConditions.IfNotModified}
        return await self._put("put_if_match", key, body, overwrite=True, **condition)

    async def put(self, key: str, body: bytes) -> Written:
        """Write without a condition; see ``Backend.put``."""
        return await self._put("put", key, body, overwrite=True)

    async def _put(self, operation: str, key: str, body: bytes, **condition: Sdk) -> Written:
        with self._call(operation, key) as current:
            await (await self._blob(key)).upload_blob(body, length=len(body), **condition)
            return Written(current.headers["ETag"], server_time(current.headers))

    async def list(self, prefix: str) -> AsyncIterator[Entry]:
        """Yield the blobs under ``prefix``; see ``Backend.list``."""
        token: str | None = None
        while True:
            with self._call("list", prefix):
                container = await self._ready()
                listing = container.list_blobs(name_starts_with=self._prefix + prefix)
                pages = listing.by_page(continuation_token=token)
                found = [item async for item in await anext(pages)]
                token = pages.continuation_token
            for item in found:
                modified = item.last_modified
                yield Entry(
                    item.name[len(self._prefix) :], item.size, modified.timestamp() if modified else None
                )
            if not token:
                return

    async def delete(self, key: str) -> None:
        """Delete a blob; see ``Backend.delete``."""
        await self._delete("delete", key)

    async def delete_if_match(self, key: str, version: str) -> None:
        """Delete one version of a blob; see ``ConditionalDelete``."""
        condition = {"etag": version, "match_condition": MatchConditions.IfNotModified}
        await self._delete("delete_if_match", key, **condition)

    async def _delete(self, operation: str, key: str, **condition: Sdk) -> None:
        with self._call(operation, key):
            try:
                await (await self._blob(key)).delete_blob(**condition)
            except ResourceNotFoundError as error:
                if error.error_code != "BlobNotFound":
                    raise

    async def _blob(self, key: str) -> Sdk:
        """Return the SDK's client of one blob. Clients are kept, because making one takes 0.1 ms."""
        container = await self._ready()
        blob = self._blobs.get(key)
        if blob is None:
            if len(self._blobs) >= _BLOBS_KEPT:
                self._blobs.clear()
            blob = self._blobs[key] = container.get_blob_client(self._prefix + key)
        return blob

    async def _open(self) -> Sdk:
        self._session = without_resend(
            aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(resolver=self._resolver),
                trust_env=self._trust_env,
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
            )
        )
        credential = self._account.credential
        if credential is None or hasattr(credential, "get_token"):
            self._shared = credential = _SharedCredential(credential)
        service = BlobServiceClient(
            self._account.url,
            credential=credential,
            transport=_OneRequestTransport(
                session=self._session,
                session_owner=False,
                use_env_settings=self._trust_env,
                # The service client does not pass its own timeouts on to a transport that it is given.
                connection_timeout=CONNECT_TIMEOUT,
                read_timeout=READ_TIMEOUT,
            ),
            retry_total=0,
            permit_redirects=False,
            max_single_get_size=MAX_BODY + 1,
            max_chunk_get_size=MAX_BODY + 1,
        )
        return service.get_container_client(self._container)

    async def _close(self, client: Sdk) -> None:
        await client.close()
        if self._shared is not None:
            await self._shared.aclose()
        if self._session is not None:
            await self._session.close()
        await self._resolver.close()

    def _read_failure(self, error: Exception) -> tuple[int | None, str, Exception | None]:
        if (
            isinstance(error, HttpResponseError)
            and (current := exchange.get()) is not None
            and current.status
        ):
            # A str, or a member of a str enum: then its value is the code, not its name.
            code = getattr(error, "error_code", None)
            return error.status_code, str(getattr(code, "value", code) or ""), None
        cause = getattr(error, "inner_exception", None)
        return None, "", cause if isinstance(cause, Exception) else None


class _OneRequestTransport(AioHttpTransport):  # type: ignore[misc]
    """Refuses a second request within one call, and records status and headers of the answer.

    The SDK documents that users may pass a transport. It does not document that it calls ``send`` once
    for each request, and in the context of the caller: see the table of hooks in ``docs/backends``.
    """

    async def send(self, request: Sdk, **options: Sdk) -> Sdk:
        current = exchange.get()
        if current is None:
            return await super().send(request, **options)
        if current.sent and current.status not in _NOT_PROCESSED:
            # The SDK is about to read a blob again whose body was cut, but a call is one request.
            message = "one request a call"
            raise ServiceRequestError(message)
        current.sent, current.status = True, None
        answer = await super().send(request, **options)
        current.status, current.headers = answer.status_code, answer.headers
        return answer


class _SharedCredential:
    """A credential whose token is shared: one fetch serves all requests, in the background if there is time.

    From five minutes before the token expires, the SDK fetches a new one within a request and under a lock.
    If that fetch hangs or is cancelled, every request fails, although the old token is still valid.

    Args:
        inner: An async credential. None: ``DefaultAzureCredential``, made by the first fetch.
    """

    def __init__(self, inner: Sdk | None) -> None:
        self._inner = inner
        self._ours = inner is None
        self._scopes: tuple[str, ...] = ()
        self._last: Sdk | None = None
        self._fetching: SharedFetch[Sdk] = SharedFetch(self._fetch)

    async def get_token(self, *scopes: str, **_: object) -> AccessToken:
        self._scopes = scopes
        if self._last is not None and time.time() < self._last.expires_on:
            self._fetching.start()
            return self._last
        return await self._fetching.wait()

    async def aclose(self) -> None:
        await self._fetching.aclose()
        if self._ours and self._inner is not None:
            await self._inner.close()

    async def _fetch(self) -> Sdk:
        inner: Sdk = self._inner or await asyncio.to_thread(_default_credential)
        self._inner = inner
        exchange.set(None)  # this task copied the context of a call, whose exchange it must not change
        self._last = await inner.get_token(*self._scopes)
        return self._last


def _default_credential() -> Sdk:
    from azure.identity.aio import DefaultAzureCredential  # noqa: PLC0415  takes 200 ms and is seldom needed

    return DefaultAzureCredential()


def open_azure(url: str, **options: object) -> AzureBackend:
    """Return the backend for a container. Nothing is sent before the first call.

    Args:
        url: ``az://container/prefix``, ``abfss://container@account.dfs.core.windows.net/prefix``
            or ``wasbs://container@account.blob.core.windows.net/prefix``.
        options: ``account_url``, ``connection_string``, ``sas_token``, ``credential`` (an account
            key or an async token credential; default ``DefaultAzureCredential``), ``allow_http``,
            ``trust_env`` (default False: proxies of the environment are not used),
            ``min_write_interval`` (seconds; default 0). Where the options and the URL name no account, the
            environment does: ``AZURE_STORAGE_CONNECTION_STRING``, or ``AZURE_STORAGE_ACCOUNT``. Where no
            option is a credential: ``AZURE_STORAGE_KEY`` or ``AZURE_STORAGE_SAS_TOKEN``.

    Raises:
        ConfigError: The URL or an option is wrong, or nothing names the account.
    """
    parts = split_url(url)
    taken = take_options(
        options,
        account_url=str,
        connection_string=str,
        sas_token=str,
        credential=object,
        allow_http=bool,
        min_write_interval=float,
    )
    container, _, host = parts.netloc.partition("@")
    if (problem := name_problem("az", container)) is not None:
        raise wrong_url("url", url, f"must be like {parts.scheme}://container/prefix; {problem}")
    account = find_account(host, taken)
    allow_http = taken.get("allow_http", False)
    address = check_endpoint("account_url", account.url, allow_http=allow_http, with_path=True)
    if address.startswith("http:") and (
        account.credential is None or hasattr(account.credential, "get_token")
    ):
        raise ConfigError(setting="account_url", value="...", reason="a token credential needs https")
    return AzureBackend(
        container,
        Account(address, account.credential),
        prefix=object_prefix(parts),
        min_write_interval=taken.get("min_write_interval", 0.0),
        trust_env=bool(options.get("trust_env", False)),
    )
