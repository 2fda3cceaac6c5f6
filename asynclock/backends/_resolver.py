"""A resolver of host names that still works while the process exits."""

from __future__ import annotations

import socket
from typing import Final

from aiohttp.abc import AbstractResolver, ResolveResult

from asynclock.backends._offload import Workers

_NUMERIC: Final = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
_LOOK_UPS: Final = 4


class Resolver(AbstractResolver):
    """Looks up host names through the operating system, on threads of its own.

    aiohttp's own resolver uses the event loop's executor, which refuses work once the interpreter
    shuts down. Releasing a lock at exit often needs a look-up: aiohttp keeps an idle connection for
    15 s and an address for 10 s, while a lock is by default renewed every 30 s.
    """

    def __init__(self) -> None:
        self._workers = Workers("asynclock-names", _LOOK_UPS)

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Return the addresses of a host.

        Args:
            host: Its name.
            port: Copied into each address.
            family: Of the addresses; default IPv4 only.

        Raises:
            OSError: The host has no address, or no name server answered.
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
