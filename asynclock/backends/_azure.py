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
from azure.core.exceptions import HttpResponseError
from azure.core.pipeline.transport import AioHttpTransport
from azure.storage.blob import ContentSettings
from azure.storage.blob.aio import ContainerClient

from asynclock.backend import MAX_BODY
from asynclock.backends._answers import Fault, FaultError
from asynclock.backends._azure_account import Account, find_account
from asynclock.backends._azure_token import AzureToken
from asynclock.backends._cloud import CloudBackend, Item
from asynclock.backends._http import (
    check_certificates,
    check_endpoint,
    environment_proxy,
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
    from collections.abc import Mapping

    import aiohttp
    from azure.storage.blob import BlobProperties

    from asynclock.backends._azure_account import Sdk
    from asynclock.backends._cloud import BackendCall

_JSON: Final = ContentSettings(content_type="application/json")
_MISSING: Final = (404, "BlobNotFound")
_WHOLE: Final = 200
_PAGE: Final = 100
"""Blobs per page of a listing. The SDK reads a page on the event loop, 0.3 ms a blob; Azure's default is
5,000."""


class AzureBackend(CloudBackend[Any]):  # ContainerClient has parameters without a type
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
    if_absent: Mapping[str, Any] = {"overwrite": False}
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
        self._token: AzureToken | None = None
        if account.credential is None or hasattr(account.credential, "get_token"):
            self._token = AzureToken(account.credential)
        self._key: object = None

    def _if_match(self, version: str) -> Mapping[str, Any]:
        return {"etag": version, "match_condition": MatchConditions.IfNotModified}

    async def _read(self, call: BackendCall, client: ContainerClient, name: str) -> tuple[bytes, str] | None:
        try:
            found = await client.get_blob_client(name).download_blob()
            body = await found.read(MAX_BODY + 1)
        except Exception as error:  # some refusals make the SDK itself fail
            if (call.status, self._code(call, error)) == _MISSING:
                return None
            # The SDK asks for a range. It fails if a server answers with the whole blob.
            if call.status != _WHOLE or not isinstance(error, ValueError):
                raise
            body = call.body
        return body, version_in(call.headers.get("ETag"), "ETag")

    async def _write(
        self, call: BackendCall, client: ContainerClient, name: str, body: bytes, condition: Mapping[str, Any]
    ) -> str:
        options = {"overwrite": True, **condition}
        await client.get_blob_client(name).upload_blob(body, content_settings=_JSON, **options)
        return version_in(call.headers.get("ETag"), "ETag")

    async def _page(
        self, client: ContainerClient, prefix: str, token: str | None
    ) -> tuple[list[Item], str | None]:
        blobs = client.list_blobs(name_starts_with=prefix, results_per_page=_PAGE)
        pages: Sdk = blobs.by_page(continuation_token=token)
        items = [_item(blob) async for blob in await anext(pages)]
        return items, pages.continuation_token or None

    async def _remove(
        self, call: BackendCall, client: ContainerClient, name: str, condition: Mapping[str, Any]
    ) -> None:
        try:
            await client.get_blob_client(name).delete_blob(**condition)
        except Exception as error:  # as in ``_read``
            if (call.status, self._code(call, error)) != _MISSING:
                raise

    async def _ready(self) -> ContainerClient:
        client = await super()._ready()
        credential = self._account.credential
        if isinstance(credential, AzureNamedKeyCredential) and credential.named_key != self._key:
            # The user replaced the key in its object. A client of the SDK keeps a copy of the old one.
            client = self._client = self._connect(self._session)
        return client

    def _connect(self, session: aiohttp.ClientSession) -> ContainerClient:
        credential = self._token or self._account.credential
        if isinstance(credential, AzureNamedKeyCredential):
            self._key = credential.named_key
        return ContainerClient(
            self._account.url,
            self._container,
            credential=credential,
            transport=AioHttpTransport(
                session=session,
                session_owner=False,
                use_env_settings=False,
                connection_timeout=session.timeout.sock_connect,
                read_timeout=session.timeout.sock_read,
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


def _item(blob: BlobProperties) -> Item:
    if not (isinstance(blob.name, str) and isinstance(blob.size, int)):
        raise FaultError(Fault.NO_LISTING, "an entry has no name or no size")
    written = None if blob.last_modified is None else blob.last_modified.timestamp()
    return Item(blob.name, blob.size, written)


def open_azure(url: str, **options: object) -> AzureBackend:
    """Return the backend for a container. Nothing is sent before the first call.

    Args:
        url: ``az://container/prefix``, ``abfss://container@account.dfs.core.windows.net/prefix``
            or ``wasbs://container@account.blob.core.windows.net/prefix``.
        options: ``account_url``, ``connection_string``, ``sas_token``, ``credential`` (an account
            key or an async token credential; default ``DefaultAzureCredential``), ``ca_file``
            (certificates to trust besides those of the machine), ``allow_http``,
            ``trust_env`` (default False: proxies of the environment are not used),
            ``min_write_interval`` (seconds; default 0), ``verify`` (default True: a store at an address other
            than Azure's is probed before the first lock). If neither the options nor the URL name an account,
            ``AZURE_STORAGE_CONNECTION_STRING`` or ``AZURE_STORAGE_ACCOUNT`` does. If no option is a
            credential, ``AZURE_STORAGE_KEY`` or ``AZURE_STORAGE_SAS_TOKEN`` is used.

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
