"""``az://``, ``abfs[s]://`` and ``wasb[s]://``: Azure Blob Storage, with credentials from Azure's SDK.

A call sends one request of the Blob service's REST API, through aiohttp, once and without following
redirects. azure-core and azure-identity bring the credentials. The SDK's own requests would take three
times as much processor time, and read a blob again whose body was cut. What an answer means; the error code
decides before the status:

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

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from asynclock.backend import Absent, Entry, Stored, Written
from asynclock.backends._azure_account import Account, find_account
from asynclock.backends._azure_client import AzureClient, read_page
from asynclock.backends._http import (
    BackendCall,
    CloudBackend,
    check_endpoint,
    http_date,
    server_time,
)
from asynclock.backends._names import name_problem
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

_MISSING: Final = (404, "BlobNotFound")
_BLOCK_BLOB: Final = {"content-type": "application/json", "x-ms-blob-type": "BlockBlob"}
_NO_NAME: Final = "this cannot be the name of a container"


class AzureBackend(CloudBackend[AzureClient]):
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

    async def get(self, key: str) -> Stored | Absent:
        """Read a blob; see ``Backend.get``."""
        with BackendCall(self, "get", key) as call:
            client = await self._ready()
            answer = await client.send(call, "GET", self._prefix + key)
            headers = answer.headers
            if (answer.status, answer.code) == _MISSING:
                return Absent(server_time(headers))
            answer.check()
            modified = headers.get("Last-Modified")
            return Stored(
                answer.body,
                headers["ETag"],
                None if modified is None else http_date(modified),
                server_time(headers),
            )

    async def put_if_absent(self, key: str, body: bytes) -> Written:
        """Create a blob; see ``Backend.put_if_absent``."""
        return await self._put("put_if_absent", key, body, {"if-none-match": "*"})

    async def put_if_match(self, key: str, body: bytes, version: str) -> Written:
        """Replace one version of a blob; see ``Backend.put_if_match``."""
        return await self._put("put_if_match", key, body, {"if-match": version})

    async def put(self, key: str, body: bytes) -> Written:
        """Write without a condition; see ``Backend.put``."""
        return await self._put("put", key, body, {})

    async def _put(self, operation: str, key: str, body: bytes, condition: Mapping[str, str]) -> Written:
        with BackendCall(self, operation, key) as call:
            client = await self._ready()
            headers = {**_BLOCK_BLOB, **condition}
            answer = await client.send(call, "PUT", self._prefix + key, headers=headers, body=body)
            answer.check()
            # If the answer has no ETag, the KeyError becomes OutcomeUnknownError: the blob was written.
            return Written(answer.headers["ETag"], server_time(answer.headers))

    async def list(self, prefix: str) -> AsyncIterator[Entry]:
        """Yield the blobs under ``prefix``; see ``Backend.list``."""
        query = {"restype": "container", "comp": "list", "prefix": self._prefix + prefix}
        while True:
            with BackendCall(self, "list", prefix) as call:
                client = await self._ready()
                answer = await client.send(call, "GET", query=query)
                answer.check()
                page = read_page(answer.body)
            for entry in page.entries:
                yield replace(entry, key=entry.key[len(self._prefix) :])
            if page.more is None:
                return
            query["marker"] = page.more

    async def delete(self, key: str) -> None:
        """Delete a blob; see ``Backend.delete``."""
        await self._delete("delete", key, {})

    async def delete_if_match(self, key: str, version: str) -> None:
        """Delete one version of a blob; see ``ConditionalDelete``."""
        await self._delete("delete_if_match", key, {"if-match": version})

    async def _delete(self, operation: str, key: str, condition: Mapping[str, str]) -> None:
        with BackendCall(self, operation, key) as call:
            client = await self._ready()
            answer = await client.send(call, "DELETE", self._prefix + key, headers=condition)
            if (answer.status, answer.code) != _MISSING:
                answer.check()

    async def _open(self) -> AzureClient:
        return AzureClient(self._account, self._container, trust_env=self._trust_env)

    async def _close(self, client: AzureClient) -> None:
        await client.aclose()


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
