"""Asks the AWS SDK what requests to one bucket need: credentials, an address, a signature, certificates.

The SDK itself sends nothing to the bucket. It composes one request, which shows the address of the bucket by
the SDK's rules (endpoints, FIPS, dual-stack, access points, dots in names) and how requests are signed there.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import re
import ssl
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import urlsplit

import aiobotocore.awsrequest
import aiobotocore.config
import aiobotocore.credentials
import aiobotocore.session
import botocore.auth
import botocore.awsrequest
import botocore.exceptions
import botocore.httpsession
import botocore.loaders

from asynclock._text import printable
from asynclock.backends._answers import CredentialsError
from asynclock.backends._cloud import SharedFetch
from asynclock.backends._http import CONNECT_TIMEOUT, READ_TIMEOUT, check_endpoint, environment_proxy
from asynclock.backends._offload import run_apart
from asynclock.backends._resolver import Resolver
from asynclock.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager

Sdk: TypeAlias = Any
"""An object of the SDK, whose types are not checked here."""
_KEY: Final = "key"
_PROCESS: Final = "custom-process"
"""By what the SDK names the provider of ``credential_process``."""
_SCOPE: Final = re.compile(r"AWS4-HMAC-SHA256 Credential=.*/\d{8}/([^/,]+)/([^/,]+)/aws4_request,")
_EXPRESS_TOKEN: Final = "x-amz-s3session-token"  # noqa: S105  the name of a header
_EXPRESS_STALE: Final = 150
"""Seconds before its end at which the next session with a directory bucket is made. It lasts 300 s."""


@dataclass(frozen=True, slots=True, repr=False)
class SdkSettings:
    """Settings for the SDK. It has no repr, because that would show secrets.

    Attributes:
        region: None: the one that the SDK finds in its configuration, else ``us-east-1``.
        endpoint_url: Address of the service; None: the one that the SDK finds, else Amazon's.
        path_style: Whether the bucket is in the path of a request, else in the host; None: in the path if
            ``endpoint_url`` is given, else as the SDK finds it in its configuration.
        credentials: Access key id, secret and session token; None: those that the SDK finds by itself.
        ca_file: File of the certificates to trust; None: the one that the SDK finds, else its own.
        allow_http: Whether plain http is allowed to other machines than this one.
        trust_env: Whether to use the proxies that the environment names.
    """

    region: str | None
    endpoint_url: str | None
    path_style: bool | None
    credentials: tuple[str, str, str | None] | None
    ca_file: str | None
    allow_http: bool
    trust_env: bool


class BucketAccess:
    """How one bucket is reached.

    Args:
        url: Address of the bucket, without a trailing slash.
        sample: The authorization of a request to the bucket, as the SDK composed it.
        user_agent: The SDK's user agent, which contains the application's id if one is configured.
        credentials: Those of the bucket: of a session with it if ``express``, else those of the caller.
        express: Whether this is a directory bucket that is used through a session.
        tls: The certificates to trust; None: the address is plain http.
        proxy: Address of the proxy to use, or None.
        resolver: Looks up hosts; closed with this object.

    Attributes:
        url: As given, like ``express``, ``tls``, ``proxy`` and ``resolver``.

    Raises:
        ConfigError: The SDK does not sign by AWS4-HMAC-SHA256.
    """

    def __init__(
        self,
        url: str,
        *,
        sample: str,
        user_agent: str,
        credentials: SharedCredentials,
        express: bool,
        tls: ssl.SSLContext | None,
        proxy: str | None,
        resolver: Resolver,
    ) -> None:
        scope = _SCOPE.match(sample)
        if scope is None:
            raise ConfigError(
                setting="signature",
                value=sample.partition(" ")[0],
                reason="the SDK is configured to sign otherwise than by AWS4-HMAC-SHA256, which locks need",
            )
        self.url, self.express, self.tls, self.proxy, self.resolver = url, express, tls, proxy, resolver
        self._region, self._service = scope.groups()
        self._host = urlsplit(url).netloc
        self._unsigned = {"User-Agent": user_agent, "Accept-Encoding": "identity"}
        self._credentials = credentials
        self._auth: Sdk = None

    async def sign(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None
    ) -> dict[str, str]:
        """Return the headers of a request: those given, those that every request has, and the signature.

        Args:
            method: As in HTTP.
            url: The whole address, encoded.
            headers: More headers to sign.
            body: What is sent; it is signed too.
        """
        credentials = await self._credentials.get()
        if self._auth is None or self._auth.credentials != credentials:
            self._auth = self._auth_of(credentials)
        request = botocore.awsrequest.AWSRequest(method, url, data=body)
        request.headers = {"Host": self._host, **headers}  # a plain dict: the SDK's takes longer to fill
        self._auth.add_auth(request)
        return {**self._unsigned, **request.headers}

    def _auth_of(self, credentials: Sdk) -> Sdk:
        if self.express:
            return _ExpressAuth(credentials, self._service, self._region, identity_cache=None)
        return _Auth(credentials, self._service, self._region)

    async def aclose(self) -> None:
        """Cancel a running fetch of credentials, and let the resolver's threads end."""
        await self._credentials.aclose()
        await self.resolver.close()


async def find_bucket(
    bucket: str, settings: SdkSettings, waiting: Callable[[bool], object] = bool
) -> BucketAccess:
    """Return how a bucket is reached. Blocks the event loop for 0.1 to 0.3 s; sends nothing to the bucket.

    Only credentials are fetched, if their kind needs it, and a session with a directory bucket.

    Args:
        bucket: Its name.
        settings: Settings for the SDK.
        waiting: Called with True before credentials are fetched, and with False once they are there.

    Raises:
        ConfigError: The endpoint or the certificates that the SDK found in its configuration cannot be used.
        NoCredentialsError: The SDK found no credentials (an error of botocore, as are others).
    """
    resolver = Resolver()
    try:
        return await _find_bucket(bucket, settings, resolver, waiting)
    except BaseException:
        await resolver.close()
        raise


async def _find_bucket(
    bucket: str, settings: SdkSettings, resolver: Resolver, waiting: Callable[[bool], object]
) -> BucketAccess:
    session = aiobotocore.session.get_session()
    session.register_component("data_loader", _loader(session.get_config_variable("data_path")))
    # As the default, so that the SDK's clients which fetch credentials have it too.
    session.set_default_client_config(aiobotocore.config.AioConfig(connector_args={"resolver": resolver}))
    if settings.credentials is not None:
        session.set_credentials(*settings.credentials)
    waiting(True)
    with _explained(session):
        credentials = await session.get_credentials()
        if credentials is None:
            raise botocore.exceptions.NoCredentialsError
        # Fetched here, because the first fetch reads models of the SDK, which blocks.
        shared = SharedCredentials(credentials, lambda: _explained(session))
        await shared.get()
    waiting(False)
    async with _client(session, settings) as client:
        # Where the endpoint came from the environment, it is known only now.
        check_endpoint("endpoint_url", client.meta.endpoint_url, allow_http=settings.allow_http)
        request = await _compose(client, bucket)
    url = request.url.removesuffix(f"/{_KEY}")
    headers = {name.lower(): _text(value) for name, value in request.headers.items()}
    express = _EXPRESS_TOKEN in headers
    if express:
        shared = SharedCredentials(await _express_session(session, settings, bucket))
    return BucketAccess(
        url,
        sample=headers.get("authorization", ""),
        user_agent=headers["user-agent"],
        credentials=shared,
        express=express,
        tls=_certificates(session, settings) if url.lower().startswith("https:") else None,
        proxy=environment_proxy(url) if settings.trust_env else None,
        resolver=resolver,
    )


@contextlib.contextmanager
def _explained(session: Sdk) -> Iterator[None]:
    """Raise ``CredentialsError`` where ``credential_process`` or a file gives no credentials."""
    try:
        yield
    except (FileNotFoundError, PermissionError, NotADirectoryError) as error:
        sentence = (
            f"{printable(error.filename)} cannot be run or read: {error.strerror}; check credential_process"
        )
        raise CredentialsError(f"{sentence} and AWS_WEB_IDENTITY_TOKEN_FILE") from None
    except botocore.exceptions.CredentialRetrievalError as error:
        if error.kwargs.get("provider") != _PROCESS:
            raise
        # Not what it printed, which may contain a secret.
        raise CredentialsError(
            "credential_process ended with an error, or printed no credentials of version 1; run it by hand"
        ) from None
    except (ValueError, AttributeError, TypeError):
        if "credential_process" not in session.get_scoped_config():
            raise
        raise CredentialsError("credential_process printed no JSON object; run it by hand") from None


def _client(session: Sdk, settings: SdkSettings) -> Sdk:
    config = aiobotocore.config.AioConfig(
        connect_timeout=CONNECT_TIMEOUT,
        read_timeout=READ_TIMEOUT,
        retries={"total_max_attempts": 1, "mode": "standard"},
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        proxies=None if settings.trust_env else {},
        s3=_addressing(settings),
    )
    return session.create_client(
        "s3",
        region_name=settings.region or session.get_config_variable("region") or "us-east-1",
        endpoint_url=settings.endpoint_url,
        verify=settings.ca_file,
        config=config,
    )


def _addressing(settings: SdkSettings) -> dict[str, str]:
    if settings.path_style is not None:
        return {"addressing_style": "path" if settings.path_style else "virtual"}
    # Without an endpoint the SDK's configuration file decides, else the SDK itself.
    return {} if settings.endpoint_url is None else {"addressing_style": "path"}


async def _compose(client: Sdk, bucket: str) -> Sdk:
    """Return the request by which the SDK would read an object of the bucket, signed and not sent.

    Not a presigned URL: the SDK sends those of most regions to the host of ``us-east-1``.
    """
    composed: list[Sdk] = []

    def instead_of_sending(request: Sdk, **_: Sdk) -> Sdk:
        composed.append(request)
        return aiobotocore.awsrequest.AioAWSResponse(request.url, 200, {}, None)

    client.meta.events.register("before-send.s3.GetObject", instead_of_sending)
    await client.get_object(Bucket=bucket, Key=_KEY)
    return composed[0]


async def _express_session(session: Sdk, settings: SdkSettings, bucket: str) -> Sdk:
    """Return the credentials of a session with a directory bucket (S3 Express)."""

    async def ask() -> Sdk:
        async with _client(session, settings) as client:
            return (await client.create_session(Bucket=bucket))["Credentials"]

    async def create() -> dict[str, str]:
        given = await run_apart("asynclock-s3-session", ask)  # to make a client blocks for 0.1 s
        return {
            "access_key": given["AccessKeyId"],
            "secret_key": given["SecretAccessKey"],
            "token": given["SessionToken"],
            "expiry_time": given["Expiration"].isoformat(),
        }

    return aiobotocore.credentials.AioRefreshableCredentials.create_from_metadata(
        await create(),
        refresh_using=create,
        method="s3express",
        advisory_timeout=_EXPRESS_STALE,
        mandatory_timeout=0,
    )


def _certificates(session: Sdk, settings: SdkSettings) -> ssl.SSLContext:
    found = settings.ca_file or session.get_config_variable("ca_bundle") or True
    try:
        return ssl.create_default_context(cafile=botocore.httpsession.get_cert_path(found))
    except OSError:
        raise ConfigError(
            setting="AWS_CA_BUNDLE", value=found, reason="there is no such file of PEM certificates"
        ) from None


@cache
def _loader(path: str | None) -> Sdk:
    """Return the loader of the SDK's models, one for all clients, because loading them takes 0.1 s."""
    return botocore.loaders.create_loader(path)


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


class _Signing:
    """How the SDK's signatures are made here. Its own way is right too, but takes twice as long."""

    _day = ""
    _key = b""

    def payload(self, request: Sdk) -> str:
        """Return the hash of the body, which is small; signed, a damaged one is refused, also over TLS."""
        return hashlib.sha256(request.data or b"").hexdigest()

    def signature(self: Sdk, string_to_sign: str, request: Sdk) -> str:
        """Return the signature, by a key that is valid for a day of UTC."""
        day = request.context["timestamp"][:8]
        if day != self._day:
            key = f"AWS4{self.credentials.secret_key}".encode()
            _, *scope = self.scope(request).rsplit("/", 4)
            for part in scope:
                key = hmac.digest(key, part.encode(), "sha256")
            self._day, self._key = day, key
        return hmac.digest(self._key, string_to_sign.encode(), "sha256").hex()


class _Auth(_Signing, botocore.auth.S3SigV4Auth):  # type: ignore[misc]
    """AWS4-HMAC-SHA256 for S3."""


class _ExpressAuth(_Signing, botocore.auth.S3ExpressAuth):  # type: ignore[misc]
    """The same for directory buckets, by the token of a session."""


class SharedCredentials:
    """Credentials that are refreshed in the background while the present ones are still valid.

    botocore refreshes them within a request. A refresh that hangs or is cancelled would make that request
    fail, and the next ones, although the present credentials are valid for some minutes more.

    Args:
        inner: The SDK's credentials.
        explained: Turns what a fetch raises into an error that says more; default: nothing.
    """

    def __init__(
        self,
        inner: Sdk,
        explained: Callable[[], AbstractContextManager[object]] = contextlib.nullcontext,
    ) -> None:
        self._inner = inner
        self._explained = explained
        self._last: Sdk = None
        self._refresh: SharedFetch[None] = SharedFetch(self._fetch)

    async def get(self) -> Sdk:
        """Return access key id, secret and session token that are valid now."""
        needed = getattr(self._inner, "refresh_needed", None)
        if needed is None or not needed():
            await self._fetch()  # sends nothing
        elif self._last is None or needed(refresh_in=0):
            await self._refresh.wait()
        else:
            self._refresh.start()
        return self._last

    async def _fetch(self) -> None:
        with self._explained():
            self._last = await self._inner.get_frozen_credentials()

    async def aclose(self) -> None:
        """Cancel a running refresh."""
        await self._refresh.aclose()
