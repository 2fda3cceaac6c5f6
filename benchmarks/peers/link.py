"""A link with a delay, for any protocol: what comes back from a server of this machine comes late."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_CHUNK: Final = 1 << 16


@contextlib.asynccontextmanager
async def link(port: int, *, delay: float) -> AsyncIterator[int]:
    """Open a port of the loopback that leads to another one.

    Args:
        port: Of the server.
        delay: Seconds by which all that it sends is late, for both ways together.
    """
    loop = asyncio.get_running_loop()

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers, requests = await asyncio.open_connection("127.0.0.1", port)

        async def there() -> None:
            while data := await reader.read(_CHUNK):
                requests.write(data)
            requests.close()

        async def back() -> None:
            while data := await answers.read(_CHUNK):
                loop.call_later(delay, writer.write, data)
            loop.call_later(delay, writer.close)

        with contextlib.suppress(ConnectionError):  # a client that was killed
            await asyncio.gather(there(), back())

    server = await asyncio.start_server(carry, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
