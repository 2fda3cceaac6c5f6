"""``az://``, ``abfs[s]://`` and ``wasb[s]://``: Azure Blob Storage, through azure-storage-blob.

A call sends one request: the SDK's retries are off, and the session sends nothing twice. Two exceptions write
nothing: the SDK reads an empty blob again without a range, and asks again after a 401 that names a tenant.
What an answer means is in the table ``asynclock.backends._tables.AZURE``, which ``docs/backends/answers.md``
shows.

Source: Azure Storage REST API, "Specifying conditional headers for Blob service operations".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from azure.core import MatchConditions
from azure.core.credentials import AzureNamedKeyCredential
from azure.core.exceptions import AzureError, HttpResponseError, ResourceNotFoundError
from azure.core.pipeline.transport import AioHttpTransport
from azure.storage.blob import ContentSettings
from azure.storage.blob.aio import ContainerClient

from asynclock.backend import MAX_BODY, Absent, Entry, Stored, Written
from asynclock.backends._answers import FAILURE, Fault, FaultError
from asynclock.backends._azure_account import Account, find_account
from asynclock.backends._azure_token import SharedCredential
from asynclock.backends._cloud import BackendCall, CloudBackend, Pages
from asynclock.backends._http import (
    CONNECT_TIMEOUT,
    READ_TIMEOUT,
    check_certificates,
    check_endpoint,
    environment_proxy,
    http_date,
    trusting,
    version_in,
)
from asynclock.backends._names import name_problem
from asynclock.backends._resolver import Resolver
from asynclock.backends._session import new_session
from asynclock.backends._tables import AZURE
from asynclock.backends._url import object_prefix, split_url, take_options, wrong_url
from asynclock.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import aiohttp
    from azure.storage.blob import BlobProperties
    from azure.storage.blob.aio import BlobClient

    from asynclock.backends._azure_account import Sdk

_JSON: Final = ContentSettings(content_type="application/json")
_MISSING: Final = (404, "BlobNotFound")
_WHOLE: Final = 200
_PAGE: Final = 1000
"""Blobs in a page of a listing, as on the other clouds; Azure would send 5,000."""
_BLOBS: Final = 64
"""Clients of blobs that are kept. To make one takes as long as half a request; each has 10 KiB."""


class AzureBackend(CloudBackend[ContainerClient]):
    """Blobs in one container.

    Args:
        container: Name of the container.
        account: The account and its credential.
        prefix: Put before every key; default empty.
        min_write_interval: Seconds that a lock leaves between two writes of one object; default 0.
        ca_file: Certificates to trust besides those of the machine; default none.
        trust_env: Whether to use the proxies that the environment names; default False.
    """

    name = "azure"
    answers = AZURE
    own_hosts = r".+\.(core\.(windows\.net|chinacloudapi\.cn|usgovcloudapi\.net)|storage\.azure\.net)"

    def __init__(
        self,
        container: str,
        account: Account,
        *,
        prefix: str = "",
        min_write_interval: float = 0.0,
        ca_file: str | None = None,
        trust_env: bool = False,
    ) -> None:
        super().__init__(prefix=prefix, min_write_interval=min_write_interval, trust_env=trust_env)
        self._container = container
        self._account = account
        self._ca_file = ca_file
        self._resolver = Resolver()
        self._token: SharedCredential | None = None
        if account.credential is None or hasattr(account.credential, "get_token"):
            self._token = SharedCredential(account.credential)
        self._key: object = None
        self._blobs: dict[str, BlobClient] = {}

    async def get(self, key: str) -> Stored | Absent:
        """Read a blob; see ``Backend.get``."""
        with BackendCall(self, "get", key) as call:
            blob = await self._blob(key)
            try:
                found = await blob.download_blob()
                body = await found.read(MAX_BODY + 1)
            except ResourceNotFoundError as error:
                if self._read_failure(error) != _MISSING:
                    raise
                return Absent(call.date)
            except ValueError:
                # The SDK asks for the first bytes. A server may answer with all of them, which it refuses.
                if call.status != _WHOLE:
                    raise
                body = call.body
            modified = call.headers.get("Last-Modified")
            return Stored(
                body,
                version_in(call.headers.get("ETag"), "ETag"),
                None if modified is None else http_date(modified),
                call.date,
            )

    async def put_if_absent(self, key: str, body: bytes) -> Written:
        """Create a blob; see ``Backend.put_if_absent``."""
        return await self._put("put_if_absent", key, body, overwrite=False)

    async def put_if_match(self, key: str, body: bytes, version: str) -> Written:
        """Replace one version of a blob; see ``Backend.put_if_match``."""
        condition = {"etag": version, "match_condition": MatchConditions.IfNotModified}
        return await self._put("put_if_match", key, body, overwrite=True, **condition)

    async def put(self, key: str, body: bytes) -> Written:
        """Write without a condition; see ``Backend.put``."""
        return await self._put("put", key, body, overwrite=True)

    async def _put(self, operation: str, key: str, body: bytes, **condition: Any) -> Written:  # noqa: ANN401  of the SDK
        with BackendCall(self, operation, key) as call:
            blob = await self._blob(key)
            await blob.upload_blob(body, content_settings=_JSON, **condition)
            return Written(version_in(call.headers.get("ETag"), "ETag"), call.date)

    async def list(self, prefix: str) -> AsyncIterator[Entry]:
        """Yield the blobs under ``prefix``; see ``Backend.list``."""
        pages = Pages()
        with BackendCall(self, "list", prefix):
            container = await self._connected()
        found = container.list_blobs(name_starts_with=self._prefix + prefix, results_per_page=_PAGE).by_page()
        while True:
            with BackendCall(self, "list", prefix) as call:
                blobs = await next_page(call, found)
                if found.continuation_token:
                    pages.next(found.continuation_token)
            for blob in blobs:
                written = None if blob.last_modified is None else blob.last_modified.timestamp()
                yield Entry(blob.name.removeprefix(self._prefix), blob.size, written)
            if not found.continuation_token:
                return

    async def delete(self, key: str) -> None:
        """Delete a blob; see ``Backend.delete``."""
        await self._delete("delete", key)

    async def delete_if_match(self, key: str, version: str) -> None:
        """Delete one version of a blob; see ``ConditionalDelete``."""
        condition = {"etag": version, "match_condition": MatchConditions.IfNotModified}
        await self._delete("delete_if_match", key, **condition)

    async def _delete(self, operation: str, key: str, **condition: Any) -> None:  # noqa: ANN401  of the SDK
        with BackendCall(self, operation, key):
            blob = await self._blob(key)
            try:
                await blob.delete_blob(**condition)
            except ResourceNotFoundError as error:
                if self._read_failure(error) != _MISSING:
                    raise

    async def _blob(self, key: str) -> BlobClient:
        """Return the SDK's client of one blob. Those that were used last are kept."""
        container = await self._connected()
        blob = self._blobs.pop(key, None) or container.get_blob_client(self._prefix + key)
        self._blobs[key] = blob
        if len(self._blobs) > _BLOBS:
            del self._blobs[next(iter(self._blobs))]
        return blob

    async def _connected(self) -> ContainerClient:
        client = await self._ready()
        credential = self._account.credential
        if isinstance(credential, AzureNamedKeyCredential) and credential.named_key != self._key:
            # The key was replaced in its object, of which a client of the SDK makes a copy.
            client = self._client = self._connect(self._session)
        return client

    def _connect(self, session: aiohttp.ClientSession) -> ContainerClient:
        credential = self._token or self._account.credential
        if isinstance(credential, AzureNamedKeyCredential):
            self._key = credential.named_key
        self._blobs.clear()
        return ContainerClient(
            self._account.url,
            self._container,
            credential=credential,
            transport=AioHttpTransport(
                session=session,
                session_owner=False,
                use_env_settings=False,
                connection_timeout=CONNECT_TIMEOUT,
                read_timeout=READ_TIMEOUT,
            ),
            retry_total=0,
            permit_redirects=False,
            max_single_get_size=MAX_BODY + 1,
        )

    async def _open(self) -> ContainerClient:
        proxy = environment_proxy(self._account.url) if self._trust_env else None
        self._session = new_session(
            self._resolver, tls=trusting(self._ca_file), proxy=proxy, follows_nothing=True
        )
        return self._connect(self._session)

    def _location(self, _client: ContainerClient) -> tuple[str, str]:
        return self._account.url, self._container

    async def _close(self, client: ContainerClient) -> None:
        self._blobs.clear()
        try:
            if self._token is not None:
                await self._token.aclose()
        finally:
            await client.close()
            await self._session.close()
            await self._resolver.close()

    def _read_failure(self, error: Exception) -> tuple[int | None, str]:
        if not isinstance(error, HttpResponseError) or error.status_code is None:
            return super()._read_failure(error)
        code = getattr(error, "error_code", None)  # text, or an enum whose value is the text
        return error.status_code, str(getattr(code, "value", code) or "")

    def _code(self, call: BackendCall, error: Exception) -> str:
        return call.headers.get("x-ms-error-code") or super()._code(call, error)


async def next_page(call: BackendCall, pages: Sdk) -> list[BlobProperties]:
    """Return the blobs in the next page of a listing.

    Raises:
        FaultError: The answer is no such page.
    """
    try:
        blobs = [blob async for blob in await anext(pages)]
    except (AzureError, AttributeError, TypeError, ValueError):
        # What the SDK raises if it does not find what it expects.
        if 0 < call.status < FAILURE:
            raise FaultError(Fault.NO_LISTING, "it cannot be read") from None
        raise
    if not all(isinstance(blob.name, str) and isinstance(blob.size, int) for blob in blobs):
        raise FaultError(Fault.NO_LISTING, "an entry has no name or no size")
    return blobs


def open_azure(url: str, **options: object) -> AzureBackend:
    """Return the backend for a container. Nothing is sent before the first call.

    Args:
        url: ``az://container/prefix``, ``abfss://container@account.dfs.core.windows.net/prefix``
            or ``wasbs://container@account.blob.core.windows.net/prefix``.
        options: ``account_url``, ``connection_string``, ``sas_token``, ``credential`` (an account
            key or an async token credential; default ``DefaultAzureCredential``), ``ca_file``
            (certificates to trust besides those of the machine), ``allow_http``,
            ``trust_env`` (default False: proxies of the environment are not used),
            ``min_write_interval`` (seconds; default 0), ``verify`` (default True: a store at another
            address than Azure's is tried out before the first lock). Where the options and the URL name
            no account, the environment does: ``AZURE_STORAGE_CONNECTION_STRING``, or
            ``AZURE_STORAGE_ACCOUNT``. Where no
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
        ca_file=str,
        allow_http=bool,
        min_write_interval=float,
        verify=bool,
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
    if (ca_file := taken.get("ca_file")) is not None:
        check_certificates(ca_file)
    backend = AzureBackend(
        container,
        Account(address, account.credential),
        prefix=object_prefix(parts),
        min_write_interval=taken.get("min_write_interval", 0.0),
        ca_file=ca_file,
        trust_env=bool(options.get("trust_env", False)),
    )
    backend.verify = taken.get("verify", True)
    return backend
