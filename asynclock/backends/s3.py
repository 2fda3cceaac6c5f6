"""``s3://`` and ``s3a://``: S3 and stores that speak it, through aiobotocore.

One PutObject or GetObject a call: SDK retries, aiohttp's re-send, ``Expect: 100-continue``,
redirects and payload checksums are off. What an answer means, by its code first:

===============================================  =====================================
Answer                                           Becomes
===============================================  =====================================
412, or ``PreconditionFailed`` under any status  ``PreconditionFailedError``
404 ``NoSuchKey`` to a conditional write         ``PreconditionFailedError``
404 ``NoSuchKey`` to a read                      None
404 ``NoSuchBucket``                             ``UnsupportedBackendError``
409 ``ConditionalRequestConflict``, other 409    ``OutcomeUnknownError`` (not "held")
429, ``SlowDown`` under 429                      ``BackendUnavailableError``
500, 502, 503, 504, ``RequestTimeout``           ``OutcomeUnknownError``
401, 403, ``ExpiredToken``, ``InvalidToken``     ``AccessDeniedError``
400, 405, 501, ``NotImplemented``, redirects     ``UnsupportedBackendError``
no connection, no credentials yet                ``BackendUnavailableError``
connection lost after sending, timeout           ``OutcomeUnknownError``
===============================================  =====================================

A read has no outcome that could be unknown: there ``OutcomeUnknownError`` is
``BackendUnavailableError``.

Source: Amazon S3 user guide, "Add preconditions to S3 operations with conditional requests".
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import aiobotocore.config
import aiobotocore.httpsession
import aiobotocore.session
import botocore.exceptions
import botocore.handlers
import botocore.loaders

from asynclock.backend import Entry, Stored, Written, note_date
from asynclock.backends._http import (
    CONNECT_TIMEOUT,
    READ_TIMEOUT,
    CloudBackend,
    Joined,
    RedirectRefusedError,
    bucket_of,
    check_endpoint,
    http_date,
    note_sent,
    read_capped,
    server_time,
    without_resend,
)
from asynclock.backends._url import object_prefix, take_options
from asynclock.errors import (
    AccessDeniedError,
    BackendError,
    ConfigError,
    OutcomeUnknownError,
    PreconditionFailedError,
    UnsupportedBackendError,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from urllib.parse import SplitResult

Sdk: TypeAlias = Any
"""Something of the SDK, which has no types."""
_MISSING: Final = frozenset({"NoSuchKey", "404"})
_SSE: Final = frozenset({"AES256", "aws:kms", "aws:kms:dsse"})
_CUSTOMER_KEY_BYTES: Final = 32
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_POOL: Final = 50


@dataclass(frozen=True, slots=True, repr=False)
class _Settings:
    """What a client is made of; no repr, it bears secrets."""

    region: str | None
    endpoint_url: str | None
    path_style: bool | None
    credentials: tuple[str, str, str | None] | None
    ca_file: str | None
    allow_http: bool
    trust_env: bool


class S3Backend(CloudBackend[Sdk]):
    """Objects in one S3 bucket under a prefix."""

    name = "s3"
    codes: Mapping[str, type[BackendError]] = {
        "PreconditionFailed": PreconditionFailedError,
        "NoSuchKey": PreconditionFailedError,
        "ConditionalRequestConflict": OutcomeUnknownError,
        "OperationAborted": OutcomeUnknownError,
        "NoSuchBucket": UnsupportedBackendError,
        "NotImplemented": UnsupportedBackendError,
        "MethodNotAllowed": UnsupportedBackendError,
        "InvalidObjectState": UnsupportedBackendError,
        "RequestTimeout": OutcomeUnknownError,
        "ExpiredToken": AccessDeniedError,
        "InvalidToken": AccessDeniedError,
        "TokenRefreshRequired": AccessDeniedError,
    }
    hints: Mapping[str, str] = {
        "NoSuchKey": "the object is missing",
        "NoSuchBucket": "the bucket does not exist",
        "NotImplemented": "the store has no conditional writes",
        "NoCredentials": "no credentials were found; set access_key_id and secret_access_key, or a profile",
        "SignatureDoesNotMatch": "the secret key is wrong",
        "InvalidAccessKeyId": "the access key is unknown",
        "ExpiredToken": "the session token has expired",
        "RequestTimeTooSkewed": "this machine's clock is wrong",
        "AuthorizationHeaderMalformed": "the region is wrong; set region",
        "InvalidObjectState": "the object was moved to an archive tier; exempt the prefix from lifecycle",
        "403": "needs s3:GetObject and s3:PutObject, and s3:ListBucket so that a missing object answers 404",
    }

    def __init__(
        self,
        bucket: str,
        settings: _Settings,
        *,
        prefix: str = "",
        min_write_interval: float = 0.0,
        read_extra: Mapping[str, Any],
        write_extra: Mapping[str, Any],
    ) -> None:
        super().__init__(prefix=prefix, min_write_interval=min_write_interval)
        self._bucket = bucket
        self._settings = settings
        self._read_extra = read_extra
        self._write_extra = write_extra
        self._stack = AsyncExitStack()

    async def get(self, key: str) -> Stored | None:
        """Read an object; see ``Backend.get``."""
        with self._call("get", key):
            client = await self._ready()
            try:
                answer = await client.get_object(
                    Bucket=self._bucket, Key=self._prefix + key, **self._read_extra
                )
            except botocore.exceptions.ClientError as error:
                if error.response.get("Error", {}).get("Code") not in _MISSING:
                    raise
                note_date(server_time(_headers(error.response)))
                return None
            body = answer["Body"]
            try:
                data = await read_capped(body.read, body.close)
            except BaseException:
                body.close()
                raise
            headers = _headers(answer)
            return Stored(data, answer["ETag"], _last_modified(headers), server_time(headers))

    async def put_if_absent(self, key: str, body: bytes) -> Written:
        """Create an object; see ``Backend.put_if_absent``."""
        return await self._put("put_if_absent", key, body, IfNoneMatch="*")

    async def put_if_match(self, key: str, body: bytes, version: str) -> Written:
        """Replace one version of an object; see ``Backend.put_if_match``."""
        return await self._put("put_if_match", key, body, IfMatch=version)

    async def put(self, key: str, body: bytes) -> Written:
        """Write without a condition; see ``Backend.put``."""
        return await self._put("put", key, body)

    async def _put(self, operation: str, key: str, body: bytes, **condition: str) -> Written:
        with self._call(operation, key):
            client = await self._ready()
            answer = await client.put_object(
                Bucket=self._bucket,
                Key=self._prefix + key,
                Body=body,
                ContentType="application/json",
                **condition,
                **self._write_extra,
            )
            # A store that drops the ETag cannot be locked on: a KeyError is an unknown outcome.
            return Written(answer["ETag"], server_time(_headers(answer)))

    async def list(self, prefix: str) -> AsyncIterator[Entry]:
        """Yield the objects under ``prefix``; see ``Backend.list``."""
        more: dict[str, str] = {}
        while True:
            with self._call("list", prefix):
                client = await self._ready()
                page = await client.list_objects_v2(
                    Bucket=self._bucket, Prefix=self._prefix + prefix, **more, **_payer(self._read_extra)
                )
            for item in page.get("Contents", ()):
                key = item["Key"][len(self._prefix) :]
                yield Entry(key, item["Size"], item["LastModified"].timestamp())
            if not page.get("IsTruncated"):
                return
            more = {"ContinuationToken": page["NextContinuationToken"]}

    async def delete(self, key: str) -> None:
        """Delete an object; see ``Backend.delete``."""
        with self._call("delete", key):
            client = await self._ready()
            try:
                await client.delete_object(
                    Bucket=self._bucket, Key=self._prefix + key, **_payer(self._read_extra)
                )
            except botocore.exceptions.ClientError as error:
                if error.response.get("Error", {}).get("Code") not in _MISSING:
                    raise

    async def _open(self) -> Sdk:
        # Off the loop: the SDK reads its models and the user's configuration, for 0.1 to 0.3 s.
        # Its connections belong to the loop that sends the first request, which is ours.
        client, self._stack = await asyncio.to_thread(lambda: asyncio.run(self._make_client()))
        return client

    async def _make_client(self) -> tuple[Sdk, AsyncExitStack]:
        settings = self._settings
        session = aiobotocore.session.get_session()
        session.register_component("data_loader", _loader(session.get_config_variable("data_path")))
        if settings.credentials is not None:
            session.set_credentials(*settings.credentials)
        credentials = await session.get_credentials()
        if credentials is None:
            raise botocore.exceptions.NoCredentialsError
        shared = _SharedCredentials(credentials)
        # There is no public way to bring credentials of one's own making.
        session._credentials = shared  # noqa: SLF001
        async with AsyncExitStack() as stack:
            stack.push_async_callback(shared.aclose)
            client = await stack.enter_async_context(
                session.create_client(
                    "s3",
                    region_name=settings.region or session.get_config_variable("region") or "us-east-1",
                    endpoint_url=settings.endpoint_url,
                    verify=settings.ca_file,
                    config=_config(settings),
                )
            )
            # Where the endpoint came from the environment, it is known only now.
            check_endpoint("endpoint_url", client.meta.endpoint_url, allow_http=settings.allow_http)
            # Expect: 100-continue costs a round trip a write, and a new connection for each loser.
            client.meta.events.unregister("before-call.s3", botocore.handlers.add_expect_header)
            _fix_user_agent(client)
            return client, stack.pop_all()

    async def _close(self, client: Sdk) -> None:  # noqa: ARG002  the stack owns it
        await self._stack.aclose()

    def _read_failure(self, error: Exception) -> tuple[int | None, str, Exception | None]:
        if isinstance(error, botocore.exceptions.ClientError):
            status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
            code = str(error.response.get("Error", {}).get("Code", ""))
            return status, "" if code == str(status) else code, None
        if isinstance(error, botocore.exceptions.NoCredentialsError):
            return 401, "NoCredentials", None
        cause = getattr(error, "kwargs", {}).get("error")
        return None, "", cause if isinstance(cause, Exception) else None


class _OneRequestSession(aiobotocore.httpsession.AIOHTTPSession):  # type: ignore[misc]
    """Sends each request once and follows no redirect."""

    async def _get_session(self, proxy_url: str | None) -> _Steady:
        return _Steady(without_resend(await super()._get_session(proxy_url)))

    async def send(self, request: Sdk) -> Sdk:
        note_sent()
        answer = await super().send(request)
        if answer.status_code in _REDIRECTS:
            # botocore would look for the bucket's region and send the write there again.
            answer.raw.close()
            raise RedirectRefusedError
        return answer


class _Steady:
    """The part of an aiohttp session that the SDK uses, without redirects."""

    __slots__ = ("_session",)

    def __init__(self, session: Sdk) -> None:
        self._session = session

    def request(self, method: str, **options: Sdk) -> Sdk:
        return self._session.request(method, allow_redirects=False, **options)


def _fix_user_agent(client: Sdk) -> None:
    """Keep the SDK from putting its user agent together anew, twice for each request."""
    creator = client._user_agent_creator  # noqa: SLF001  there is no public way
    client.meta.events.unregister("request-created.s3", creator.rebuild_and_replace_user_agent_handler)
    client._user_agent_creator = _FixedUserAgent(creator)  # noqa: SLF001  likewise


class _FixedUserAgent:
    """The user agent as it was when the client was made."""

    def __init__(self, creator: Sdk) -> None:
        self._text: str = creator.to_string()

    def to_string(self) -> str:
        return self._text


class _SharedCredentials:
    """Credentials that are refreshed beside the requests while the present ones still serve.

    botocore refreshes inside of a request: one that hangs or is cancelled would cost that request,
    and the next, though the credentials are good for minutes yet.
    """

    def __init__(self, inner: Sdk) -> None:
        self._inner = inner
        self._last: Sdk = None
        self._refresh: Joined[Sdk] = Joined(inner.get_frozen_credentials)

    def __getattr__(self, name: str) -> Sdk:
        return getattr(self._inner, name)

    async def get_frozen_credentials(self) -> Sdk:
        needed = getattr(self._inner, "refresh_needed", None)
        if needed is None or not needed():
            self._last = await self._inner.get_frozen_credentials()
        elif self._last is None or needed(refresh_in=0):
            self._last = await self._refresh.join()
        else:
            self._refresh.start()
        return self._last

    async def aclose(self) -> None:
        await self._refresh.aclose()


def open_s3(url: SplitResult, **options: object) -> S3Backend:
    """Open ``s3://bucket/prefix``; no I/O, the client is made on first use.

    Args:
        url: ``s3://bucket/prefix`` or ``s3a://bucket/prefix``.
        options: ``region``, ``endpoint_url``, ``path_style`` (default: where an endpoint is
            given), ``access_key_id`` with ``secret_access_key`` and ``session_token`` (default:
            the SDK's chain), ``sse`` (``AES256``, ``aws:kms``, ``aws:kms:dsse``), ``sse_kms_key_id``,
            ``sse_customer_key`` (32 bytes), ``requester_pays``, ``ca_file``, ``allow_http``,
            ``trust_env`` (default False: proxies of the environment are not used),
            ``min_write_interval`` (default 0).

    Raises:
        ConfigError: The URL or an option is wrong.
    """
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
    )
    allow_http = taken.get("allow_http", False)
    endpoint = taken.get("endpoint_url")
    if endpoint is not None:
        endpoint = check_endpoint("endpoint_url", endpoint, allow_http=allow_http)
    ca_file = taken.get("ca_file")
    if ca_file is not None and not Path(ca_file).is_file():
        raise ConfigError(setting="ca_file", value=ca_file, reason="there is no such file")
    settings = _Settings(
        region=taken.get("region"),
        endpoint_url=endpoint,
        path_style=taken.get("path_style"),
        credentials=_credentials(taken),
        ca_file=ca_file,
        allow_http=allow_http,
        trust_env=bool(options.get("trust_env", False)),
    )
    payer = {"RequestPayer": "requester"} if taken.get("requester_pays") else {}
    at_rest, customer = _encryption(taken)
    return S3Backend(
        bucket_of(url),
        settings,
        prefix=object_prefix(url),
        min_write_interval=taken.get("min_write_interval", 0.0),
        read_extra={**payer, **customer},
        write_extra={**payer, **customer, **at_rest},
    )


@cache
def _loader(path: str | None) -> Sdk:
    """Return the reader of the SDK's models, which take 0.1 s to read, once for all clients."""
    return botocore.loaders.create_loader(path)


def _credentials(taken: dict[str, Any]) -> tuple[str, str, str | None] | None:
    key, secret, token = (taken.get(name) for name in ("access_key_id", "secret_access_key", "session_token"))
    if key is None and secret is None and token is None:
        return None
    if not key or not secret:
        raise ConfigError(
            setting="access_key_id",
            value="…",
            reason="give access_key_id and secret_access_key together, or neither",
        )
    return key, secret, token


def _encryption(taken: dict[str, Any]) -> tuple[dict[str, str], dict[str, Any]]:
    """Return the extra parameters of writes only, and those of reads and writes."""
    sse, kms_key, customer = (taken.get(n) for n in ("sse", "sse_kms_key_id", "sse_customer_key"))
    if sse is not None and sse not in _SSE:
        raise ConfigError(setting="sse", value=sse, reason=f"must be one of {', '.join(sorted(_SSE))}")
    if kms_key is not None and (sse is None or not sse.startswith("aws:kms")):
        raise ConfigError(setting="sse_kms_key_id", value="…", reason="needs sse='aws:kms'")
    if customer is not None and (sse is not None or len(customer) != _CUSTOMER_KEY_BYTES):
        raise ConfigError(setting="sse_customer_key", value="…", reason="must be 32 bytes, without sse")
    at_rest = {"ServerSideEncryption": sse} if sse else {}
    if kms_key:
        at_rest["SSEKMSKeyId"] = kms_key
    if customer is None:
        return at_rest, {}
    return at_rest, {"SSECustomerAlgorithm": "AES256", "SSECustomerKey": customer}


def _config(settings: _Settings) -> Sdk:
    path_style = settings.path_style
    if path_style is None:
        path_style = settings.endpoint_url is not None
    return aiobotocore.config.AioConfig(
        http_session_cls=_OneRequestSession,
        connect_timeout=CONNECT_TIMEOUT,
        read_timeout=READ_TIMEOUT,
        max_pool_connections=_POOL,
        retries={"total_max_attempts": 1, "mode": "standard"},
        # A lock record is checked by its own parser; the checksums cost CPU and bytes.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        parameter_validation=False,
        proxies=None if settings.trust_env else {},
        # Over TLS the body needs no hash of its own; botocore signs it over plain http.
        s3={"addressing_style": "path" if path_style else "auto", "payload_signing_enabled": False},
    )


def _headers(answer: Mapping[str, Any]) -> Mapping[str, str]:
    headers: Mapping[str, str] = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    return headers


def _last_modified(headers: Mapping[str, str]) -> float | None:
    text = headers.get("last-modified")
    return None if text is None else http_date(text)


def _payer(extra: Mapping[str, Any]) -> dict[str, Any]:
    return {"RequestPayer": extra["RequestPayer"]} if "RequestPayer" in extra else {}
