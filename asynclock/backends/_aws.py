"""The client of the AWS SDK: its credentials and certificates, and the one request that each call sends.

aiobotocore finds credentials and the bucket's address, signs requests and reads answers. Only its public
interfaces are used: ``create_client``, the session's component ``credential_provider``, and the client's
events. A handler of the event ``before-send`` can answer a request itself. This one does, because the SDK's
own transport would send a write again after a lost connection, and the SDK would send a refused write to
another region.

Source: Botocore, "Botocore Events" and "Config reference"; aiobotocore, "AioConfig".
"""

from __future__ import annotations

import contextlib
import ssl
from contextlib import AsyncExitStack
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import botocore.exceptions
import botocore.httpsession
import botocore.loaders
from aiobotocore.awsrequest import AioAWSResponse
from aiobotocore.config import AioConfig
from aiobotocore.session import get_session
from yarl import URL

from asynclock._text import printable
from asynclock.backends._answers import FAILURE, CredentialsError
from asynclock.backends._cloud import apart_from_call
from asynclock.backends._credentials import SharedCredentials
from asynclock.backends._http import (
    CONNECT_TIMEOUT,
    READ_TIMEOUT,
    check_endpoint,
    environment_proxy,
    http_date,
)
from asynclock.backends._offload import run_apart
from asynclock.backends._resolver import Resolver
from asynclock.backends._session import new_session
from asynclock.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager

    import aiohttp

Sdk: TypeAlias = Any
"""An object of the SDK, which has no types."""
_OURS: Final = frozenset({"GetObject", "PutObject", "ListObjectsV2", "DeleteObject"})
_PROCESS: Final = "custom-process"
"""The SDK's name for the provider of ``credential_process``."""


class AwsClient:
    """A client of the SDK that sends through this package's own session, on the running event loop.

    Args:
        sdk: The client; closed with this object, like the rest.
        opened: Closed together with the client.
        tls: The certificates to trust; None: the address is plain http.
        proxy: Address of the proxy to use, or None.
        resolver: Looks up hosts.

    Attributes:
        sdk: As given.
    """

    def __init__(
        self,
        sdk: Sdk,
        opened: AsyncExitStack,
        *,
        tls: ssl.SSLContext | None,
        proxy: str | None,
        resolver: Resolver,
    ) -> None:
        self.sdk = sdk
        self._opened = opened
        self._http = new_session(resolver, tls=tls, proxy=proxy, follows_nothing=True)
        sdk.meta.events.register_last("before-call.s3", _without_expect)
        sdk.meta.events.register("before-send.s3", self._send)
        sdk.meta.events.register_first("needs-retry.s3", _refuse)

    async def aclose(self) -> None:
        """Close the connections and cancel a running fetch of credentials."""
        await self._http.close()
        await self._opened.aclose()

    async def _send(self, request: Sdk, event_name: str, **_: object) -> Sdk:
        """Send a request that the SDK composed, instead of the SDK's own transport."""
        if event_name.rpartition(".")[2] in _OURS:
            answer = await self._exchange(request)
        else:
            with apart_from_call():  # a session with a directory bucket
                answer = await self._exchange(request)
        response = AioAWSResponse(request.url, answer.status, _lower(answer.headers), answer)
        if not request.stream_output:
            await response.content  # as the SDK's own transport does
        return response

    async def _exchange(self, request: Sdk) -> aiohttp.ClientResponse:
        body = request.body
        return await self._http.request(
            request.method,
            URL(request.url, encoded=True),
            headers={name: _text(value) for name, value in request.headers.items()},
            data=body.read() if hasattr(body, "read") else body,
            allow_redirects=False,
        )


async def open_client(
    *,
    region: str | None,
    endpoint_url: str | None,
    path_style: bool | None,
    credentials: tuple[str, str, str | None] | None,
    ca_file: str | None,
    allow_http: bool,
    trust_env: bool,
    waiting: Callable[[bool], object],
) -> AwsClient:
    """Return a client for S3. It sends nothing to a bucket, but may fetch credentials.

    Args:
        region: None: the one that the SDK finds in its configuration, else ``us-east-1``.
        endpoint_url: Address of the service; None: the one that the SDK finds, else Amazon's.
        path_style: True puts the bucket in the path of a request, False in the host. None: in the path if
            ``endpoint_url`` is given, else as the SDK's configuration says.
        credentials: Access key id, secret and session token; None: those that the SDK finds by itself.
        ca_file: File of the certificates to trust; None: the one that the SDK finds, else its own.
        allow_http: Whether plain http is allowed to other machines than this one.
        trust_env: Whether to use the proxies that the environment names.
        waiting: Called with True before credentials are fetched, and with False once they are there.

    Raises:
        ConfigError: The endpoint or the certificates that the SDK found in its configuration cannot be used.
        NoCredentialsError: The SDK found no credentials (an error of botocore, as are others).
    """
    key, secret, token = credentials or (None, None, None)
    resolver = Resolver()

    async def make() -> tuple[Sdk, ssl.SSLContext | None]:
        session = get_session()
        session.register_component("data_loader", _loader(session.get_config_variable("data_path")))
        # As the default, so that the SDK's clients that fetch credentials use it too.
        session.set_default_client_config(AioConfig(connector_args={"resolver": resolver}))
        if credentials is None:
            waiting(True)
            session.register_component("credential_provider", _Chain(session))
            found = await session.get_credentials()
            if found is None:
                raise botocore.exceptions.NoCredentialsError
            opened.push_async_callback(found.aclose)
            await found.get()  # here, because the first fetch reads models of the SDK, which blocks
            waiting(False)
        client = await opened.enter_async_context(
            session.create_client(
                "s3",
                region_name=region or session.get_config_variable("region") or "us-east-1",
                endpoint_url=endpoint_url,
                aws_access_key_id=key,
                aws_secret_access_key=secret,
                aws_session_token=token,
                config=_config(True if path_style is None and endpoint_url is not None else path_style),
            )
        )
        url = client.meta.endpoint_url
        # An endpoint from the environment is only known now.
        check_endpoint("endpoint_url", url, allow_http=allow_http)
        return client, _certificates(session, ca_file) if url.lower().startswith("https:") else None

    opened = AsyncExitStack()
    opened.push_async_callback(resolver.close)
    try:
        # On another thread, because the SDK blocks for 0.1 to 0.3 s while it reads models and configuration.
        client, tls = await run_apart("asynclock-s3", make)
    except BaseException:
        await resolver.close()
        raise
    proxy = environment_proxy(client.meta.endpoint_url) if trust_env else None
    return AwsClient(client, opened, tls=tls, proxy=proxy, resolver=resolver)


def _config(path_style: bool | None) -> AioConfig:  # noqa: FBT001  as an option
    # A signed payload lets the store refuse a damaged body, even over TLS.
    s3: dict[str, object] = {"payload_signing_enabled": True}
    if path_style is not None:
        s3["addressing_style"] = "path" if path_style else "virtual"
    return AioConfig(
        connect_timeout=CONNECT_TIMEOUT,
        read_timeout=READ_TIMEOUT,
        retries={"total_max_attempts": 1, "mode": "standard"},
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        parameter_validation=False,
        s3=s3,
    )


def _certificates(session: Sdk, ca_file: str | None) -> ssl.SSLContext:
    found = ca_file or session.get_config_variable("ca_bundle") or True
    try:
        return ssl.create_default_context(cafile=botocore.httpsession.get_cert_path(found))
    except OSError:
        raise ConfigError(
            setting="AWS_CA_BUNDLE", value=found, reason="there is no such file of PEM certificates"
        ) from None


@cache
def _loader(path: str | None) -> Sdk:
    """Return the loader of the SDK's models. All clients share it, because loading takes 0.1 s."""
    return botocore.loaders.create_loader(path)


def _without_expect(params: Mapping[str, Sdk], **_: object) -> None:
    """Send the body at once. Waiting for ``100 Continue`` costs a round trip, and losers their connection."""
    params["headers"].pop("Expect", None)


def _refuse(response: tuple[Sdk, dict[str, Sdk]] | None, operation: Sdk, **_: object) -> None:
    """Raise a refusal at once. The SDK's next handler would send the request again, to another region."""
    if response is None:
        return
    answer, told = response
    if answer.status_code >= FAILURE or "Error" in told:
        raise botocore.exceptions.ClientError(told, operation.name)


def _lower(headers: Mapping[str, str]) -> dict[str, str]:
    """Return headers that the SDK can read, without an unreadable time, which would make it fail."""
    lower = {name.lower(): value for name, value in headers.items()}
    if http_date(lower.get("last-modified", "")) is None:
        lower.pop("last-modified", None)
    return lower


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


class _Chain:
    """The SDK's chain of credentials as a component of its session, refreshed in parallel with the requests.

    Args:
        session: The SDK's session, which still has its own chain.
    """

    def __init__(self, session: Sdk) -> None:
        self._session = session
        self._chain = session.get_component("credential_provider")

    async def load_credentials(self) -> AwsCredentials | None:
        """Return credentials in the SDK's form; None: there are none."""
        with self._explained():
            found = await self._chain.load_credentials()
        return None if found is None else AwsCredentials(found, self._explained)

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Raise ``CredentialsError`` if ``credential_process`` or a file gives no credentials."""
        try:
            yield
        except (FileNotFoundError, PermissionError, NotADirectoryError) as error:
            sentence = (
                f"{printable(error.filename)} cannot be run or read: {error.strerror}; "
                "check credential_process"
            )
            raise CredentialsError(f"{sentence} and AWS_WEB_IDENTITY_TOKEN_FILE") from None
        except botocore.exceptions.CredentialRetrievalError as error:
            if error.kwargs.get("provider") != _PROCESS:
                raise
            # Do not quote its output, which may contain a secret.
            raise CredentialsError(
                "credential_process ended with an error, or printed no credentials of version 1; "
                "run it by hand"
            ) from None
        except (ValueError, AttributeError, TypeError):
            if "credential_process" not in self._session.get_scoped_config():
                raise
            raise CredentialsError("credential_process printed no JSON object; run it by hand") from None


class AwsCredentials(SharedCredentials[Sdk]):
    """Credentials of the SDK, refreshed in parallel with the requests.

    Args:
        inner: The SDK's credentials. Other attributes are read from it.
        explained: Turns an exception of a fetch into an error that says more.
    """

    get_frozen_credentials = SharedCredentials.get  # the SDK calls this for key id, secret and token

    def __init__(self, inner: Sdk, explained: Callable[[], AbstractContextManager[object]]) -> None:
        super().__init__()
        self._inner = inner
        self._explained = explained
        self._needed = getattr(inner, "refresh_needed", None)  # None: they never end

    def __getattr__(self, name: str) -> Sdk:
        return getattr(self._inner, name)

    async def _fetch(self) -> Sdk:
        with self._explained():
            return await self._inner.get_frozen_credentials()

    def _over(self, _last: Sdk, *, soon: bool) -> bool:
        return self._needed is not None and self._needed(refresh_in=None if soon else 0)
