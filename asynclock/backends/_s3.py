"""``s3://`` and ``s3a://``: S3 and compatible stores, through aiobotocore's client.

The table ``asynclock.backends._tables.S3`` says what each answer means; ``docs/backends/answers.md`` shows
it.

Source: Amazon S3 user guide, "Add preconditions to S3 operations with conditional requests".
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import aiobotocore
import botocore.exceptions

from asynclock.backend import MAX_BODY
from asynclock.backends._answers import is_web_page
from asynclock.backends._aws import AwsClient, open_client
from asynclock.backends._cloud import CloudBackend, Item
from asynclock.backends._http import check_certificates, check_endpoint, md5_of, version_in
from asynclock.backends._tables import REGION, S3
from asynclock.backends._url import bucket_of, object_prefix, split_url, take_options
from asynclock.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from asynclock.backends._cloud import BackendCall

Parameters: TypeAlias = "Mapping[str, str | bytes]"
_SSE: Final = frozenset({"AES256", "aws:kms", "aws:kms:dsse"})
_ENDPOINTS: Final = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
_CUSTOMER_KEY_BYTES: Final = 32
_DIRECTORIES: Final = ("--x-s3", "--xa-s3")
"""Endings of the names of directory buckets (S3 Express) and of their access points."""
_SESSIONS: Final = (3, 9)
"""The first release of aiobotocore that renews a failed session with a directory bucket."""
_ELSEWHERE: Final = frozenset({code for code, row in S3.codes.items() if row is REGION})
_MISSING: Final = 404


class _Unshown(dict[str, Any]):
    """Parameters that may have a key. It has no repr, because that would show secrets."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<{len(self)} parameters>"


class S3Backend(CloudBackend[AwsClient]):
    """Objects in one S3 bucket.

    Args:
        bucket: Name of the bucket.
        settings: Arguments of ``open_client``.
        prefix: Put before every key; default empty.
        min_write_interval: Seconds that a lock leaves between two writes of one object; default 0.
        payer: Parameters of every request: who pays.
        customer: More parameters of each read and write: the customer's key.
        at_rest: More parameters of each write: encryption by the store.

    Attributes:
        versions_may_repeat: True, because an ETag is a hash of the body. Locks are safe: no two lock records
            have the same bytes.
    """

    name = "s3"
    versions_may_repeat = True
    answers = S3
    if_absent: Parameters = {"IfNoneMatch": "*"}  # noqa: RUF012  a Mapping
    own_hosts = r"(.+\.)?(amazonaws\.(com(\.cn)?|eu)|api\.aws)"

    def __init__(
        self,
        bucket: str,
        settings: Mapping[str, Any],
        *,
        prefix: str = "",
        min_write_interval: float = 0.0,
        payer: Parameters,
        customer: Parameters,
        at_rest: Parameters,
    ) -> None:
        trust_env = settings["trust_env"]
        super().__init__(prefix=prefix, min_write_interval=min_write_interval, trust_env=trust_env)
        self._bucket = bucket
        self._settings = _Unshown(settings)
        self._every = {"Bucket": bucket, **payer}
        self._read_with = _Unshown({**self._every, **customer})
        self._write_with = _Unshown({"ContentType": "application/json", **self._read_with, **at_rest})

    def _if_match(self, version: str) -> Parameters:
        return {"IfMatch": version}

    async def _read(self, call: BackendCall, client: AwsClient, name: str) -> tuple[bytes, str] | None:
        try:
            found = await client.sdk.get_object(**self._read_with, Key=name)
        except botocore.exceptions.ClientError as error:
            if _is_missing(call, error):
                return None
            raise
        async with found["Body"]:  # older releases enter another object
            return await found["Body"].read(MAX_BODY + 1), version_in(call.headers.get("ETag"), "ETag")

    async def _write(
        self, call: BackendCall, client: AwsClient, name: str, body: bytes, condition: Parameters
    ) -> str:
        # A bucket with object lock requires the checksum; a directory bucket does not support it.
        checksum = {} if self._bucket.endswith(_DIRECTORIES) else {"ContentMD5": md5_of(body)}
        await client.sdk.put_object(**self._write_with, **checksum, **condition, Key=name, Body=body)
        return version_in(call.headers.get("ETag"), "ETag")

    async def _page(self, client: AwsClient, prefix: str, token: str | None) -> tuple[list[Item], str | None]:
        more = {} if token is None else {"ContinuationToken": token}
        page = await client.sdk.list_objects_v2(**self._every, **more, Prefix=prefix)
        items = [
            Item(item["Key"], item["Size"], item["LastModified"].timestamp())
            for item in page.get("Contents", ())
        ]
        return items, page["NextContinuationToken"] if page["IsTruncated"] else None

    async def _remove(self, call: BackendCall, client: AwsClient, name: str, condition: Parameters) -> None:
        try:
            await client.sdk.delete_object(**self._every, **condition, Key=name)
        except botocore.exceptions.ClientError as error:
            if not _is_missing(call, error):
                raise

    async def _open(self) -> AwsClient:
        return await open_client(**self._settings, waiting=self._note_waiting)

    def _note_waiting(self, waits: bool) -> None:  # noqa: FBT001  a callback
        self._opening_waits_since = time.monotonic() if waits else None

    def _location(self, client: AwsClient) -> tuple[str, str]:
        return client.sdk.meta.endpoint_url, self._bucket

    async def _close(self, client: AwsClient) -> None:
        await client.aclose()

    def _read_failure(self, error: Exception) -> tuple[int | None, str]:
        if isinstance(error, botocore.exceptions.ClientError):
            return error.response.get("ResponseMetadata", {}).get("HTTPStatusCode"), _code(error)
        if isinstance(error, botocore.exceptions.BotoCoreError) and type(error).__name__ in S3.codes:
            return None, type(error).__name__
        return super()._read_failure(error)

    def _region(self, call: BackendCall, error: Exception) -> str | None:
        if not isinstance(error, botocore.exceptions.ClientError) or _code(error) not in _ELSEWHERE:
            return None
        told: str | None = error.response["Error"].get("Region")
        return told or call.headers.get("x-amz-bucket-region")


def _code(error: botocore.exceptions.ClientError) -> str:
    """Return the error code of a refusal. It is empty if there is none; the SDK then returns the status."""
    code = str(error.response.get("Error", {}).get("Code") or "")
    return "" if code.isdigit() else code


def _is_missing(call: BackendCall, error: botocore.exceptions.ClientError) -> bool:
    """Return whether a refused read means that there is no object: an empty 404 does, a web page does not."""
    code = _code(error)
    return call.status == _MISSING and (code == "NoSuchKey" or not (code or is_web_page(call.body)))


def open_s3(url: str, **options: object) -> S3Backend:
    """Return the backend for ``s3://bucket/prefix``. Nothing is sent before the first call.

    Args:
        url: ``s3://bucket/prefix`` or ``s3a://bucket/prefix``.
        options: ``region``, ``endpoint_url``, ``path_style`` (default: True if an endpoint is given),
            ``access_key_id`` with ``secret_access_key`` and ``session_token`` (default: the credentials that
            the SDK finds itself), ``sse`` (``AES256``, ``aws:kms``, ``aws:kms:dsse``), ``sse_kms_key_id``,
            ``sse_customer_key`` (32 bytes), ``requester_pays``, ``ca_file``, ``allow_http``, ``trust_env``
            (default False: proxies of the environment are not used), ``min_write_interval`` (seconds; default
            0), ``verify`` (default True: a store at an address other than Amazon's is probed before the first
            lock).

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
        # The SDK uses the first variable that is set. Its files may name another endpoint; that one is
        # checked once the SDK has read them.
        for name in [name for name in _ENDPOINTS if os.environ.get(name)][:1]:
            check_endpoint(name, os.environ[name], allow_http=allow_http)
    ca_file = taken.get("ca_file")
    if ca_file is not None:
        check_certificates(ca_file)
    settings = {
        "region": taken.get("region"),
        "endpoint_url": endpoint,
        "path_style": taken.get("path_style"),
        "credentials": _credentials(taken),
        "ca_file": ca_file,
        "allow_http": allow_http,
        "trust_env": bool(options.get("trust_env", False)),
    }
    at_rest, customer = _encryption(taken)
    bucket = bucket_of(parts, "s3")
    if bucket.endswith(_DIRECTORIES):
        _check_release()
    backend = S3Backend(
        bucket,
        settings,
        prefix=object_prefix(parts),
        min_write_interval=taken.get("min_write_interval", 0.0),
        payer={"RequestPayer": "requester"} if taken.get("requester_pays") else {},
        customer=customer,
        at_rest=at_rest,
    )
    backend.verify = taken.get("verify", True)
    return backend


def _check_release() -> None:
    installed = aiobotocore.__version__
    if tuple(int(part) for part in installed.split(".")[:2]) < _SESSIONS:
        raise ConfigError(
            setting="aiobotocore",
            value=installed,
            reason="before 3.9, a session with a directory bucket that fails or is cancelled stays broken; "
            "install 3.9 or later",
        )


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


def _encryption(taken: dict[str, Any]) -> tuple[Parameters, Parameters]:
    """Return the encryption parameters of writes only, and those of both reads and writes."""
    sse, kms_key, customer = (taken.get(n) for n in ("sse", "sse_kms_key_id", "sse_customer_key"))
    if sse is not None and sse not in _SSE:
        raise ConfigError(setting="sse", value=sse, reason=f"must be one of {', '.join(sorted(_SSE))}")
    if kms_key is not None and (sse is None or not sse.startswith("aws:kms")):
        raise ConfigError(setting="sse_kms_key_id", value="...", reason="needs sse='aws:kms'")
    if customer is not None and (sse is not None or len(customer) != _CUSTOMER_KEY_BYTES):
        raise ConfigError(setting="sse_customer_key", value="...", reason="must be 32 bytes, without sse")
    if customer is not None:
        return {}, {"SSECustomerAlgorithm": "AES256", "SSECustomerKey": customer}
    at_rest = {"ServerSideEncryption": sse} if sse else {}
    return at_rest | ({"SSEKMSKeyId": kms_key} if kms_key else {}), {}
