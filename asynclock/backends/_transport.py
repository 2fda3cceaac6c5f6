"""Sends requests through aiohttp: each once, without redirects, and with a limit for every answer."""

from __future__ import annotations

import asyncio
import ssl
import warnings
from typing import TYPE_CHECKING, Final, cast

import aiohttp
from yarl import URL

from asynclock.backends._answers import Fault, FaultError
from asynclock.backends._faults import find_fault
from asynclock.backends._http import (
    CONNECT_TIMEOUT,
    READ_TIMEOUT,
    TOTAL_TIMEOUT,
    without_resend,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiohttp.connector import Connection

    from asynclock.backends._cloud import BackendCall
    from asynclock.backends._resolver import Resolver

_CONNECTIONS: Final = 100
_KEEP_ALIVE: Final = 12.0
"""Seconds; S3 closes an idle connection after 20 s, and a request on a connection that it closes fails."""
_CREDENTIALS: Final = 1 << 20
"""Bytes of the longest answer with credentials."""
_ASKED: Final = 1.0
"""Seconds for a port to show what it speaks."""
_LOST: Final = frozenset({Fault.CLOSED, Fault.RESET, Fault.NO_HTTP})
_NO_HANDSHAKE: Final = frozenset({Fault.CONNECT_LOST, Fault.CONNECT_TIMEOUT})
_OLD: Final = frozenset({"SSLv3", "TLSv1", "TLSv1.1"})


class Transport:
    """The connections of one client to its store, on the event loop that made this object.

    Args:
        resolver: Looks up hosts. It is not closed with this object.
        tls: The certificates to trust; None: those of the machine.
        proxy: Address of the proxy to use, or None.
    """

    def __init__(
        self, resolver: Resolver, *, tls: ssl.SSLContext | None = None, proxy: str | None = None
    ) -> None:
        self._proxy = proxy
        self._timeout = aiohttp.ClientTimeout(
            total=TOTAL_TIMEOUT, sock_connect=CONNECT_TIMEOUT, sock_read=READ_TIMEOUT
        )
        self._session = without_resend(
            aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    resolver=resolver,
                    ssl=tls or True,
                    limit=_CONNECTIONS,
                    keepalive_timeout=_KEEP_ALIVE,
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
            )
        )
        self._answered = False
        self._lost = 0

    async def send(
        self,
        call: BackendCall,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        body: bytes | None = None,
    ) -> aiohttp.ClientResponse:
        """Send one request and return the answer, whatever its status; its body is not read yet.

        Args:
            call: What this request is for.
            method: As in HTTP.
            url: The address, encoded.
            headers: All of them.
            body: What is sent; default nothing.
        """
        address = URL(url, encoded=True)
        call.sent, call.where = True, f"{address.host}:{address.port}"
        try:
            answer = await self._session.request(
                method,
                address,
                headers=headers,
                data=body,
                allow_redirects=False,
                proxy=self._proxy,
                timeout=self._timeout,
            )
        except (aiohttp.ClientError, OSError) as error:
            if not (self._answered or self._proxy):
                call.fault = await self._diagnose(address, find_fault(error).fault)
            raise
        self._answered = True
        call.note_answer(answer.headers)
        return answer

    def session_for_credentials(self, *, trust_env: bool) -> aiohttp.ClientSession:
        """Return a session over the same connections, for an SDK that fetches credentials; close it first.

        Args:
            trust_env: Whether it looks for a proxy in the environment by itself.
        """
        return aiohttp.ClientSession(
            connector=self._session.connector,
            connector_owner=False,
            trust_env=trust_env,
            auto_decompress=False,
            headers={"Accept-Encoding": "identity"},
            response_class=_Bounded,
        )

    async def aclose(self) -> None:
        """Close the connections."""
        await self._session.close()

    async def _diagnose(self, address: URL, fault: Fault) -> Fault | None:
        """Return what keeps a store from ever answering, if the port shows it, where no answer has come yet.

        Asked from the second failure on: one connection may be lost anyhow.
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


class _Bounded(aiohttp.ClientResponse):
    """An answer whose whole body is read up to a limit only, whoever reads it."""

    async def start(self, connection: Connection) -> _Bounded:
        await super().start(connection)
        self.content = cast("aiohttp.StreamReader", _BoundedStream(self.content))
        return self


class _BoundedStream:
    def __init__(self, stream: aiohttp.StreamReader) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)

    async def read(self, n: int = -1) -> bytes:
        if n >= 0:
            return await self._stream.read(n)
        body = bytearray()
        while chunk := await self._stream.read(_CREDENTIALS + 1 - len(body)):
            body += chunk
            if len(body) > _CREDENTIALS:
                raise FaultError(Fault.TOO_LONG, f"more than {_CREDENTIALS >> 20} MiB")
        return bytes(body)


async def _tls_version(host: str, port: int) -> str | None:
    """Return the version of TLS that a port speaks with somebody who takes any; None: it speaks none."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of old versions: nothing is sent by them
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
    """Whether a port answers plain http, and not only to say that it expects TLS."""
    try:
        async with asyncio.timeout(_ASKED):
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(b"HEAD / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            said = await reader.read(12)
    except (OSError, TimeoutError):
        return False
    writer.transport.abort()
    return said.startswith(b"HTTP/1.") and not said.endswith(b" 400")
