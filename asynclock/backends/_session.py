"""The aiohttp session that the SDKs use: one attempt per request, no redirects, a limit for every answer.

After a lost connection aiohttp repeats a GET, PUT or DELETE once, whatever the retry settings of the SDK. If
the first copy of a conditional PUT was written, the store refuses the second because of the first, and the
caller believes that somebody else wrote. aiohttp only repeats after its own errors, so the middleware of this
session raises a different one.

Source: aiohttp, "Client Middleware"; aiohttp#10790 (there is no public switch).
"""

from __future__ import annotations

import asyncio
import ssl
import warnings
from typing import TYPE_CHECKING, Final, cast

import aiohttp

from asynclock.backends._answers import FAILURE, Fault, FaultError, refusal
from asynclock.backends._cloud import current_call
from asynclock.backends._faults import find_fault
from asynclock.backends._http import CONNECT_TIMEOUT, READ_TIMEOUT, TOTAL_TIMEOUT, read_capped

if TYPE_CHECKING:
    from yarl import URL

    from asynclock.backends._cloud import BackendCall
    from asynclock.backends._resolver import Resolver

_CONNECTIONS: Final = 100
_KEEP_ALIVE: Final = 12.0
"""Seconds. S3 closes an idle connection after 20 s, and a request on a closing connection fails."""
_CREDENTIALS: Final = 1 << 20
"""Bytes of the longest answer with credentials."""
_ASKED: Final = 1.0
"""Seconds for a port to show what it speaks."""
_REDIRECTS: Final = range(300, 400)
_REPEATED: Final = (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError)
"""aiohttp sends a request again after these errors, unless no connection was made."""
_LOST: Final = frozenset({Fault.CLOSED, Fault.RESET, Fault.NO_HTTP})
_NO_HANDSHAKE: Final = frozenset({Fault.CONNECT_LOST, Fault.CONNECT_TIMEOUT})
_OLD: Final = frozenset({"SSLv3", "TLSv1", "TLSv1.1"})


class AnswerLostError(aiohttp.ClientError):
    """A request has no answer; the cause says why. aiohttp only repeats a request after its own errors."""


def new_session(
    resolver: Resolver,
    *,
    tls: ssl.SSLContext | None = None,
    proxy: str | None = None,
    follows_nothing: bool = False,
) -> aiohttp.ClientSession:
    """Return a session for an SDK.

    Args:
        resolver: Looks up hosts. It is not closed with the session.
        tls: The certificates to trust; None: those of the machine.
        proxy: Address of the proxy to use, or None.
        follows_nothing: True if the sender tells aiohttp not to follow redirects and reads them itself.
            Default False: a redirect raises ``AnsweredError``, because aiohttp would follow it.
    """
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(
            resolver=resolver, ssl=tls or True, limit=_CONNECTIONS, keepalive_timeout=_KEEP_ALIVE
        ),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        timeout=aiohttp.ClientTimeout(sock_connect=CONNECT_TIMEOUT, sock_read=READ_TIMEOUT),
        proxy=proxy,
        middlewares=(_Once(diagnoses=proxy is None, follows_nothing=follows_nothing),),
    )


def session_for_credentials(session: aiohttp.ClientSession, *, trust_env: bool) -> aiohttp.ClientSession:
    """Return a session on the same connections, for an SDK that fetches credentials; close it first.

    Args:
        session: Made by ``new_session``.
        trust_env: Whether the new session looks for a proxy in the environment itself.
    """
    return aiohttp.ClientSession(
        connector=session.connector,
        connector_owner=False,
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        trust_env=trust_env,
        middlewares=(_Once(diagnoses=False, follows_nothing=False),),
    )


class _Once:
    """A client middleware of aiohttp that sends every request of a session."""

    def __init__(self, *, diagnoses: bool, follows_nothing: bool) -> None:
        self._diagnoses = diagnoses
        self._follows_nothing = follows_nothing
        self._lost = 0

    async def __call__(
        self, request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        call = current_call.get()
        url = request.url
        if call is not None:
            call.sent, call.where, call.url = True, f"{url.host}:{url.port}", str(url)
        request.headers["Accept-Encoding"] = "identity"
        try:
            async with asyncio.timeout(TOTAL_TIMEOUT):
                return await self._exchange(request, send, call)
        except (aiohttp.ClientError, OSError) as error:
            if call is not None and self._diagnoses:
                call.fault = await self._diagnose(url, find_fault(error).fault)
            if isinstance(error, _REPEATED) and not isinstance(error, aiohttp.ClientConnectorError):
                raise AnswerLostError from error
            raise

    async def _exchange(
        self, request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType, call: BackendCall | None
    ) -> aiohttp.ClientResponse:
        answer = await send(request)
        self._diagnoses = False  # it answers
        try:
            body = await (_take_credentials(answer) if call is None else call.take(answer))
            if not self._follows_nothing:
                _refuse_redirect(answer, body)
        except BaseException:
            answer.close()
            raise
        answer.content = cast("aiohttp.StreamReader", _Read(body))
        return answer

    async def _diagnose(self, address: URL, fault: Fault) -> Fault | None:
        """Return why this port can never answer, if it shows that, until a first answer has come.

        It probes the port from the second failure on, because any one connection may get lost.
        """
        host, port, plain = address.host or "", address.port or 0, address.scheme == "http"
        if fault not in (_LOST if plain else _NO_HANDSHAKE):
            return None
        self._lost += 1
        if self._lost == 1:
            return None
        if plain:
            return Fault.NEEDS_TLS if await _tls_version(host, port) else None
        if await _tls_version(host, port) in _OLD:
            return Fault.TLS_VERSION
        return Fault.PLAIN_HTTP if await _speaks_http(host, port) else None


class _Read:
    """The body of an answer for the SDK, instead of the stream it was read from."""

    def __init__(self, body: bytes) -> None:
        self._left = body

    async def read(self, n: int = -1) -> bytes:
        """Return what is left, ``n`` bytes at most; all of it by default."""
        end = len(self._left) if n < 0 else n
        chunk, self._left = self._left[:end], self._left[end:]
        return chunk

    def at_eof(self) -> bool:
        """Return whether all of it was read."""
        return not self._left

    def exception(self) -> None:
        """Return None: the body is complete, whatever happens to the connection."""

    def set_exception(self, *_: object) -> None:
        """Do nothing, because the body is complete."""


def _refuse_redirect(answer: aiohttp.ClientResponse, body: bytes) -> None:
    if answer.status in _REDIRECTS:
        raise refusal(str(answer.url), answer.status, "", headers=answer.headers, body=body)


async def _take_credentials(answer: aiohttp.ClientResponse) -> bytes:
    body = await read_capped(answer, _CREDENTIALS + 1)
    if len(body) > _CREDENTIALS and answer.status < FAILURE:
        raise FaultError(Fault.TOO_LONG, f"more than {_CREDENTIALS >> 20} MiB")
    return body


async def _tls_version(host: str, port: int) -> str | None:
    """Return the TLS version that a port chooses if the client accepts any; None: it speaks no TLS."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # about old versions: nothing is sent over them
        context.minimum_version = ssl.TLSVersion.TLSv1
    try:
        async with asyncio.timeout(_ASKED):
            _, writer = await asyncio.open_connection(host, port, ssl=context)
    except (OSError, TimeoutError):
        return None
    version = str(writer.get_extra_info("ssl_object").version())
    writer.transport.abort()
    return version


async def _speaks_http(host: str, port: int) -> bool:
    """Whether a port answers plain http with more than a note that it expects TLS."""
    try:
        async with asyncio.timeout(_ASKED):
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(b"HEAD / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            said = await reader.read(12)
    except (OSError, TimeoutError):
        return False
    writer.transport.abort()
    return said.startswith(b"HTTP/1.") and not said.endswith(b" 400")
