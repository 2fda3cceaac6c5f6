"""Host names, looked up as long as the process lives."""

from __future__ import annotations

import socket
from typing import Final

from aiohttp.abc import AbstractResolver, ResolveResult

from asynclock.backends._offload import Workers

_NUMERIC: Final = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
_LOOK_UPS: Final = 4


class Resolver(AbstractResolver):
    """Asks the operating system, on threads of its own.

    aiohttp's asks in the loop's executor, which refuses once the interpreter shuts down; a lock
    that is renewed every 30 s has by then neither a connection (kept for 15 s) nor an address
    (kept for 10 s), and could not be released.
    """

    def __init__(self) -> None:
        self._workers = Workers("asynclock-names", _LOOK_UPS)

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Return the addresses of ``host``.

        Raises:
            OSError: It has none, or nobody could be asked.
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
            # Unlike the bare address it has the scope of a link-local one in it.
            host=socket.getnameinfo(address, socket.NI_NUMERICHOST | socket.NI_NUMERICSERV)[0],
            port=port,
            family=kind,
            proto=protocol,
            flags=_NUMERIC,
        )
        for kind, _, protocol, _, address in found
    ]
