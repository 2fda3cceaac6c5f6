"""Looks up host names, also while the process exits."""

from __future__ import annotations

import socket
from typing import Final

from aiohttp.abc import AbstractResolver, ResolveResult

from asynclock.backends._offload import Workers

_NUMERIC: Final = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
_LOOK_UPS: Final = 4


class Resolver(AbstractResolver):
    """Asks the operating system, on threads of its own.

    aiohttp's resolver uses the loop's executor, which takes no work once the interpreter shuts
    down. A lock that is renewed every 30 s has by then neither a connection (kept for 15 s) nor
    an address (kept for 10 s), and could not be released (rule 18 of the protocol).
    """

    def __init__(self) -> None:
        self._workers = Workers("asynclock-names", _LOOK_UPS)

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Return the addresses of ``host``.

        Raises:
            OSError: It has none, or no name server answered.
        """
        return await self._workers.run(lambda: _look_up(host, port, family))

    async def close(self) -> None:
        """Let the threads end."""
        self._workers.close()


def _look_up(host: str, port: int, family: socket.AddressFamily) -> list[ResolveResult]:
    found = socket.getaddrinfo(host, port, family, socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
    return [
        ResolveResult(
            hostname=host,
            # Unlike the address alone, this text has the scope of a link-local address.
            host=socket.getnameinfo(address, socket.NI_NUMERICHOST | socket.NI_NUMERICSERV)[0],
            port=port,
            family=kind,
            proto=protocol,
            flags=_NUMERIC,
        )
        for kind, _, protocol, _, address in found
    ]
