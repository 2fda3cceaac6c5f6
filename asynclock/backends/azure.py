"""``az://``, ``abfs[s]://`` and ``wasb[s]://``: Azure Blob Storage, with credentials from Azure's SDK.

A call sends one request of the Blob service's REST API, through aiohttp, once and without following
redirects. azure-core and azure-identity bring the credentials. The SDK's own requests would take three
times as much processor time, and read a blob again whose body was cut. What an answer means is in the table
``asynclock.backends._tables.AZURE``, which ``docs/backends/answers.md`` shows.

Source: Azure Storage REST API, "Specifying conditional headers for Blob service operations".
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from azure.core.exceptions import HttpResponseError

from asynclock.backend import Absent, Entry, Stored, Written
from asynclock.backends._azure_account import Account, find_account
from asynclock.backends._azure_client import AzureClient, parse_page
from asynclock.backends._cloud import BackendCall, CloudBackend, Pages
from asynclock.backends._http import (
    check_certificates,
    check_endpoint,
    http_date,
    refuse_changed,
    refuse_web_page,
    server_time,
    trusting,
    version_in,
)
from asynclock.backends._names import name_problem
from asynclock.backends._tables import AZURE
from asynclock.backends._url import object_prefix, split_url, take_options, wrong_url
from asynclock.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

_MISSING: Final = (404, "BlobNotFound")
_BLOCK_BLOB: Final = {"content-type": "application/json", "x-ms-blob-type": "BlockBlob"}
_PAGE: Final = "1000"
"""Blobs in a page of a listing, as on the other clouds; Azure would send 5,000."""


class AzureBackend(CloudBackend[AzureClient]):
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

    async def get(self, key: str) -> Stored | Absent:
        """Read a blob; see ``Backend.get``."""
        with BackendCall(self, "get", key) as call:
            client = await self._ready()
            answer = await client.send(call, "GET", self._prefix + key)
            headers = answer.headers
            if (answer.status, answer.code) == _MISSING:
                return Absent(server_time(headers))
            answer.check()
            refuse_changed(headers, answer.body)
            modified = headers.get("Last-Modified")
            return Stored(
                answer.body,
                version_in(headers.get("ETag"), "ETag"),
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
            refuse_web_page(answer.headers, answer.body)
            return Written(version_in(answer.headers.get("ETag"), "ETag"), server_time(answer.headers))

    async def list(self, prefix: str) -> AsyncIterator[Entry]:
        """Yield the blobs under ``prefix``; see ``Backend.list``."""
        query = {"restype": "container", "comp": "list", "prefix": self._prefix + prefix}
        query["maxresults"] = _PAGE
        pages = Pages()
        while True:
            with BackendCall(self, "list", prefix) as call:
                client = await self._ready()
                answer = await client.send(call, "GET", query=query)
                answer.check()
                page = parse_page(answer.body)
                more = None if page.more is None else pages.next(page.more)
            for entry in page.entries:
                yield replace(entry, key=entry.key[len(self._prefix) :])
            if more is None:
                return
            query["marker"] = more

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
        return AzureClient(
            self._account, self._container, tls=trusting(self._ca_file), trust_env=self._trust_env
        )

    def _location(self, _client: AzureClient) -> tuple[str, str]:
        return self._account.url, self._container

    async def _close(self, client: AzureClient) -> None:
        await client.aclose()

    def _read_failure(self, error: Exception) -> tuple[int | None, str]:
        if isinstance(error, HttpResponseError) and error.status_code is not None:  # of a token service
            return error.status_code, ""
        return super()._read_failure(error)


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
