"""``s3://`` and ``s3a://``: S3 and stores that speak it, with credentials and addresses from aiobotocore.

This module sends the requests itself, through aiohttp, each once and without following redirects. The SDK
brings credentials, the bucket's address and the signature. Its own requests would cost twice as much, look
for the bucket's region after a refusal, and wait for ``100 Continue`` before each write. What an answer
means is in the table ``asynclock.backends._tables.S3``, which ``docs/backends/answers.md`` shows.

Source: Amazon S3 user guide, "Add preconditions to S3 operations with conditional requests".
"""

from __future__ import annotations

import base64
import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import botocore.exceptions

from asynclock.backend import Absent, Entry, Stored, Written
from asynclock.backends._answers import AnsweredError
from asynclock.backends._cloud import BackendCall, CloudBackend, Pages
from asynclock.backends._http import (
    check_certificates,
    check_endpoint,
    http_date,
    md5_of,
    read_object,
    read_page,
    server_time,
    version_in,
)
from asynclock.backends._offload import run_apart
from asynclock.backends._s3_client import S3Client, check, check_write, is_missing, parse_page
from asynclock.backends._s3_sdk import SdkSettings, find_bucket
from asynclock.backends._tables import S3
from asynclock.backends._url import bucket_of, object_prefix, split_url, take_options
from asynclock.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

_SSE: Final = frozenset({"AES256", "aws:kms", "aws:kms:dsse"})
_ENDPOINTS: Final = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
_CUSTOMER_KEY_BYTES: Final = 32
_ENCRYPTION: Final = "x-amz-server-side-encryption"


class S3Backend(CloudBackend[S3Client]):
    """Objects in one S3 bucket.

    Args:
        bucket: Name of the bucket.
        settings: Settings for the SDK.
        prefix: Put before every key; default empty.
        min_write_interval: Seconds that a lock leaves between two writes of one object; default 0.
        payer: Headers of every request: who pays.
        customer: More headers of each read and write: the customer's key.
        at_rest: More headers of each write: encryption by the store.

    Attributes:
        versions_may_repeat: True, because an ETag is a hash of the body. Locks are safe with it: no two
            lock records have the same bytes.
    """

    name = "s3"
    versions_may_repeat = True
    answers = S3
    own_hosts = r"(.+\.)?(amazonaws\.(com(\.cn)?|eu)|api\.aws)"

    def __init__(
        self,
        bucket: str,
        settings: SdkSettings,
        *,
        prefix: str = "",
        min_write_interval: float = 0.0,
        payer: Mapping[str, str],
        customer: Mapping[str, str],
        at_rest: Mapping[str, str],
    ) -> None:
        super().__init__(prefix=prefix, min_write_interval=min_write_interval, trust_env=settings.trust_env)
        self._bucket = bucket
        self._settings = settings
        self._payer = payer
        self._read = {**payer, **customer}
        self._write = {"Content-Type": "application/json", **payer, **customer, **at_rest}

    async def get(self, key: str) -> Stored | Absent:
        """Read an object; see ``Backend.get``."""
        with BackendCall(self, "get", key) as call:
            client = await self._ready()
            async with await client.send(call, "GET", self._prefix + key, headers=self._read) as answer:
                headers = answer.headers
                try:
                    await check(answer)
                except AnsweredError as error:
                    if not is_missing(error):
                        raise
                    return Absent(server_time(headers))
                data = await read_object(answer)
                modified = headers.get("Last-Modified")
                return Stored(
                    data,
                    version_in(headers.get("ETag"), "ETag"),
                    None if modified is None else http_date(modified),
                    server_time(headers),
                )

    async def put_if_absent(self, key: str, body: bytes) -> Written:
        """Create an object; see ``Backend.put_if_absent``."""
        return await self._put("put_if_absent", key, body, {"If-None-Match": "*"})

    async def put_if_match(self, key: str, body: bytes, version: str) -> Written:
        """Replace one version of an object; see ``Backend.put_if_match``."""
        return await self._put("put_if_match", key, body, {"If-Match": version})

    async def put(self, key: str, body: bytes) -> Written:
        """Write without a condition; see ``Backend.put``."""
        return await self._put("put", key, body, {})

    async def _put(self, operation: str, key: str, body: bytes, condition: Mapping[str, str]) -> Written:
        with BackendCall(self, operation, key) as call:
            client = await self._ready()
            headers = {**self._write, **condition}
            if not client.express:
                # A bucket that retains objects asks for it; a directory bucket does not know it.
                headers["Content-MD5"] = md5_of(body)
            async with await client.send(
                call, "PUT", self._prefix + key, headers=headers, body=body
            ) as answer:
                await check_write(answer)
                version = version_in(answer.headers.get("ETag"), "ETag")
                return Written(version, server_time(answer.headers))

    async def list(self, prefix: str) -> AsyncIterator[Entry]:
        """Yield the objects under ``prefix``; see ``Backend.list``."""
        query = {"list-type": "2", "encoding-type": "url", "prefix": self._prefix + prefix}
        pages = Pages()
        while True:
            with BackendCall(self, "list", prefix) as call:
                client = await self._ready()
                async with await client.send(call, "GET", query=query, headers=self._payer) as answer:
                    await check(answer)
                    page = parse_page(await read_page(answer))
                more = None if page.more is None else pages.next(page.more)
            for entry in page.entries:
                yield replace(entry, key=entry.key[len(self._prefix) :])
            if more is None:
                return
            query["continuation-token"] = more

    async def delete(self, key: str) -> None:
        """Delete an object; see ``Backend.delete``."""
        await self._delete("delete", key, {})

    async def delete_if_match(self, key: str, version: str) -> None:
        """Delete one version of an object; see ``ConditionalDelete``. Some stores ignore the condition."""
        await self._delete("delete_if_match", key, {"If-Match": version})

    async def _delete(self, operation: str, key: str, condition: Mapping[str, str]) -> None:
        with BackendCall(self, operation, key) as call:
            client = await self._ready()
            headers = {**self._payer, **condition}
            async with await client.send(call, "DELETE", self._prefix + key, headers=headers) as answer:
                try:
                    await check(answer)
                except AnsweredError as error:
                    if not is_missing(error):
                        raise

    async def _open(self) -> S3Client:
        # Apart, because the SDK blocks for 0.1 to 0.3 s while it reads models and configuration.
        access = await run_apart(
            "asynclock-s3", lambda: find_bucket(self._bucket, self._settings, self._note_waiting)
        )
        return S3Client(access)

    def _note_waiting(self, waits: bool) -> None:  # noqa: FBT001  a callback
        self._opening_waits_since = time.monotonic() if waits else None

    def _location(self, client: S3Client) -> tuple[str, str]:
        return client.url, self._bucket

    async def _close(self, client: S3Client) -> None:
        await client.aclose()

    def _read_failure(self, error: Exception) -> tuple[int | None, str]:
        if isinstance(error, botocore.exceptions.ClientError):  # of a service that hands out credentials
            status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
            code = str(error.response.get("Error", {}).get("Code", ""))
            return status, "" if code == str(status) else code
        if isinstance(error, botocore.exceptions.BotoCoreError) and type(error).__name__ in S3.codes:
            return None, type(error).__name__
        return super()._read_failure(error)


def open_s3(url: str, **options: object) -> S3Backend:
    """Return the backend for ``s3://bucket/prefix``. Nothing is sent before the first call.

    Args:
        url: ``s3://bucket/prefix`` or ``s3a://bucket/prefix``.
        options: ``region``, ``endpoint_url``, ``path_style`` (default: where an endpoint is
            given), ``access_key_id`` with ``secret_access_key`` and ``session_token`` (default:
            the credentials that the SDK finds by itself), ``sse`` (``AES256``, ``aws:kms``,
            ``aws:kms:dsse``), ``sse_kms_key_id``, ``sse_customer_key`` (32 bytes),
            ``requester_pays``, ``ca_file``, ``allow_http``,
            ``trust_env`` (default False: proxies of the environment are not used),
            ``min_write_interval`` (seconds; default 0), ``verify`` (default True: a store at another
            address than Amazon's is tried out before the first lock).

    Raises:
        ConfigError: The URL or an option is wrong.
    """
    parts = split_url(url)
    taken = take_options(
        options,
        region=str,
        endpoint_url=str,
        path_style=bool,
        access_key_id=str,
        secret_access_key=str,
        session_token=str,
        sse=str,
        sse_kms_key_id=str,
        sse_customer_key=bytes,
        requester_pays=bool,
        ca_file=str,
        allow_http=bool,
        min_write_interval=float,
        verify=bool,
    )
    allow_http = taken.get("allow_http", False)
    endpoint = taken.get("endpoint_url")
    if endpoint is not None:
        endpoint = check_endpoint("endpoint_url", endpoint, allow_http=allow_http)
    elif os.environ.get("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "").lower() != "true":
        # The SDK uses the first variable that is set. Its files may name another endpoint, which is checked
        # once the SDK has read them.
        for name in [name for name in _ENDPOINTS if os.environ.get(name)][:1]:
            check_endpoint(name, os.environ[name], allow_http=allow_http)
    ca_file = taken.get("ca_file")
    if ca_file is not None:
        check_certificates(ca_file)
    settings = SdkSettings(
        region=taken.get("region"),
        endpoint_url=endpoint,
        path_style=taken.get("path_style"),
        credentials=_credentials(taken),
        ca_file=ca_file,
        allow_http=allow_http,
        trust_env=bool(options.get("trust_env", False)),
    )
    at_rest, customer = _encryption(taken)
    backend = S3Backend(
        bucket_of(parts, "s3"),
        settings,
        prefix=object_prefix(parts),
        min_write_interval=taken.get("min_write_interval", 0.0),
        payer={"x-amz-request-payer": "requester"} if taken.get("requester_pays") else {},
        customer=customer,
        at_rest=at_rest,
    )
    backend.verify = taken.get("verify", True)
    return backend


def _credentials(taken: dict[str, Any]) -> tuple[str, str, str | None] | None:
    key, secret, token = (taken.get(name) for name in ("access_key_id", "secret_access_key", "session_token"))
    if key is None and secret is None and token is None:
        return None
    if not key or not secret:
        raise ConfigError(
            setting="access_key_id",
            value="...",
            reason="give access_key_id and secret_access_key together, or neither",
        )
    return key, secret, token


def _encryption(taken: dict[str, Any]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the encryption headers of writes only, and those of both reads and writes."""
    sse, kms_key, customer = (taken.get(n) for n in ("sse", "sse_kms_key_id", "sse_customer_key"))
    if sse is not None and sse not in _SSE:
        raise ConfigError(setting="sse", value=sse, reason=f"must be one of {', '.join(sorted(_SSE))}")
    if kms_key is not None and (sse is None or not sse.startswith("aws:kms")):
        raise ConfigError(setting="sse_kms_key_id", value="...", reason="needs sse='aws:kms'")
    if customer is not None and (sse is not None or len(customer) != _CUSTOMER_KEY_BYTES):
        raise ConfigError(setting="sse_customer_key", value="...", reason="must be 32 bytes, without sse")
    at_rest = {_ENCRYPTION: sse} if sse else {}
    if kms_key:
        at_rest[f"{_ENCRYPTION}-aws-kms-key-id"] = kms_key
    if customer is None:
        return at_rest, {}
    return at_rest, {
        f"{_ENCRYPTION}-customer-algorithm": "AES256",
        f"{_ENCRYPTION}-customer-key": base64.b64encode(customer).decode(),
        f"{_ENCRYPTION}-customer-key-MD5": md5_of(customer),
    }
