"""Makes the S3 client that a lock needs: one request a call, no redirects, little work for each request."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import aiobotocore.config
import aiobotocore.httpsession
import aiobotocore.session
import botocore.exceptions
import botocore.handlers
import botocore.loaders

from asynclock.backends._http import (
    CONNECT_TIMEOUT,
    READ_TIMEOUT,
    RedirectRefusedError,
    SharedFetch,
    check_endpoint,
    note_sent,
    without_resend,
)
from asynclock.backends._resolver import Resolver

if TYPE_CHECKING:
    from collections.abc import Mapping

Sdk: TypeAlias = Any
"""An object of the SDK, whose types are not checked here."""
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_POOL: Final = 50


@dataclass(frozen=True, slots=True, repr=False)
class ClientSettings:
    """What an S3 client is made of. It has no repr, because that would show secrets.

    Attributes:
        region: None: the one that the SDK finds in its configuration, else ``us-east-1``.
        endpoint_url: Address of the service; None: the one that the SDK finds, else Amazon's.
        path_style: Whether the bucket is in the path of a request; None: if ``endpoint_url`` is given.
        credentials: Access key id, secret and session token; None: those that the SDK finds by itself.
        ca_file: File of the certificates to trust; None: those of the system.
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


async def make_client(settings: ClientSettings) -> tuple[Sdk, AsyncExitStack]:
    """Return an S3 client and the stack that closes it. Blocks the event loop for 0.1 to 0.3 s.

    Raises:
        ConfigError: The endpoint that the SDK found in its configuration is not allowed.
        NoCredentialsError: The SDK found no credentials (an error of botocore, as are others).
    """
    session = aiobotocore.session.get_session()
    session.register_component("data_loader", _loader(session.get_config_variable("data_path")))
    async with AsyncExitStack() as stack:
        resolver = Resolver()
        stack.push_async_callback(resolver.close)
        # Set as the default, so that the SDK's clients which fetch credentials get it too.
        session.set_default_client_config(aiobotocore.config.AioConfig(connector_args={"resolver": resolver}))
        if settings.credentials is not None:
            session.set_credentials(*settings.credentials)
        credentials = await session.get_credentials()
        if credentials is None:
            raise botocore.exceptions.NoCredentialsError
        shared = _SharedCredentials(credentials)
        stack.push_async_callback(shared.aclose)
        # Fetched here, because the first fetch reads models of the SDK, which blocks.
        await shared.get_frozen_credentials()
        session._credentials = shared  # noqa: SLF001  there is no public way to pass a credentials object
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
        events = client.meta.events
        # Expect: 100-continue costs each write a round trip, and each refused write a new connection.
        events.unregister("before-call.s3", botocore.handlers.add_expect_header)
        events.register("before-call.s3", _stay_in_region)
        # There is only one attempt: nothing to decide after it, and no number of it to send.
        events.unregister("needs-retry.s3", unique_id="retry-config-s3")
        events.unregister("request-created", botocore.handlers.add_retry_headers)
        # This handler looks in the environment at each call, to see whether it runs on AWS Lambda.
        events.unregister("before-call", botocore.handlers.add_recursion_detection_header)
        _fix_user_agent(client)
        if client._ruleset_resolver is not None:  # noqa: SLF001  there is no public way
            client._ruleset_resolver = _CachedEndpoints(client._ruleset_resolver)  # noqa: SLF001  likewise
        return client, stack.pop_all()


def _config(settings: ClientSettings) -> Sdk:
    path_style = settings.path_style
    if path_style is None:
        path_style = settings.endpoint_url is not None
    return aiobotocore.config.AioConfig(
        http_session_cls=_OneRequestSession,
        connect_timeout=CONNECT_TIMEOUT,
        read_timeout=READ_TIMEOUT,
        max_pool_connections=_POOL,
        retries={"total_max_attempts": 1, "mode": "standard"},
        # Checksums cost CPU and bytes, and the parser of lock records notices a damaged one by itself.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        parameter_validation=False,
        proxies=None if settings.trust_env else {},
        # Over TLS the body need not be signed; over plain http botocore signs it all the same.
        s3={"addressing_style": "path" if path_style else "auto", "payload_signing_enabled": False},
    )


@cache
def _loader(path: str | None) -> Sdk:
    """Return the loader of the SDK's models, one for all clients, because loading them takes 0.1 s."""
    return botocore.loaders.create_loader(path)


class _OneRequestSession(aiobotocore.httpsession.AIOHTTPSession):  # type: ignore[misc]
    """Sends each request once and follows no redirect."""

    async def _get_session(self, proxy_url: str | None) -> _WithoutRedirects:
        return _WithoutRedirects(without_resend(await super()._get_session(proxy_url)))

    async def send(self, request: Sdk) -> Sdk:
        note_sent()
        answer = await super().send(request)
        if answer.status_code in _REDIRECTS:
            # botocore would look for the bucket's region and send the write again to that region.
            answer.raw.close()
            raise RedirectRefusedError
        return answer


class _WithoutRedirects:
    """The part of an aiohttp session that the SDK uses; it follows no redirect."""

    __slots__ = ("_session",)

    def __init__(self, session: Sdk) -> None:
        self._session = session

    def request(self, method: str, **options: Sdk) -> Sdk:
        return self._session.request(method, allow_redirects=False, **options)


def _stay_in_region(context: dict[str, Sdk], **_: Sdk) -> None:
    """Keep the SDK from sending a refused write again to the region that the store names.

    Whatever its retry settings, the SDK would ask for the bucket's region and send the write there. It does
    not do so for a request that is marked as redirected already.
    """
    context.setdefault("s3_redirect", {})["redirected"] = True


def _fix_user_agent(client: Sdk) -> None:
    """Keep the SDK from composing its user agent again, twice for each request."""
    creator = client._user_agent_creator  # noqa: SLF001  there is no public way
    client.meta.events.unregister("request-created.s3", creator.rebuild_and_replace_user_agent_handler)
    client._user_agent_creator = _FixedUserAgent(creator)  # noqa: SLF001  likewise


class _CachedEndpoints:
    """Remembers the endpoint of each bucket, which the SDK otherwise computes again for each request."""

    def __init__(self, rules: Sdk) -> None:
        self._rules = rules
        self._known: dict[tuple[str, str | None], Sdk] = {}

    def __getattr__(self, name: str) -> Sdk:
        return getattr(self._rules, name)

    async def construct_endpoint(
        self, operation_model: Sdk, call_args: Mapping[str, Sdk] | None, request_context: Sdk
    ) -> Sdk:
        asked = operation_model.name, (call_args or {}).get("Bucket")
        found = self._known.get(asked)
        if found is None:
            found = await self._rules.construct_endpoint(operation_model, call_args, request_context)
            self._known[asked] = found
        return found._replace(headers=dict(found.headers))


class _FixedUserAgent:
    """The user agent that the SDK composed when the client was made."""

    def __init__(self, creator: Sdk) -> None:
        self._text: str = creator.to_string()

    def to_string(self) -> str:
        return self._text


class _SharedCredentials:
    """Credentials that are refreshed in the background while the present ones are still valid.

    botocore refreshes them within a request. A refresh that hangs or is cancelled would make that request
    fail, and the next ones, although the present credentials are valid for some minutes more.
    """

    def __init__(self, inner: Sdk) -> None:
        self._inner = inner
        self._last: Sdk = None
        self._refresh: SharedFetch[Sdk] = SharedFetch(inner.get_frozen_credentials)

    def __getattr__(self, name: str) -> Sdk:
        return getattr(self._inner, name)

    async def get_frozen_credentials(self) -> Sdk:
        needed = getattr(self._inner, "refresh_needed", None)
        if needed is None or not needed():
            self._last = await self._inner.get_frozen_credentials()
        elif self._last is None or needed(refresh_in=0):
            self._last = await self._refresh.wait()
        else:
            self._refresh.start()
        return self._last

    async def aclose(self) -> None:
        await self._refresh.aclose()
