"""A server that answers as a test says, byte for byte, and the options that lead each backend to it."""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, cast

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator

CLOUDS: Final = ("s3", "gcs", "azure")
_KEY: Final = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
URLS: Final = {"s3": "s3://locks/x", "gcs": "gs://locks/x", "azure": "az://locks/x"}
DATE: Final = "Date: Wed, 25 Nov 2026 14:00:00 GMT\r\n"


def options(cloud: str, endpoint: str, **others: object) -> dict[str, Any]:
    """Return what leads a backend to an endpoint, with credentials that need no fetch."""
    keys = {"access_key_id": "a", "secret_access_key": "b", "region": "us-east-1"}
    of: dict[str, dict[str, object]] = {
        "s3": {"endpoint_url": endpoint, **keys},
        "gcs": {"endpoint_url": endpoint, "token": "token"},
        "azure": {"account_url": f"{endpoint}/account", "credential": _KEY},
    }
    return of[cloud] | others


class Script:
    """What the server answers, and what it was asked.

    Attributes:
        answer: The whole answer to each request; bytes are sent as they are.
        trickle: Whether its last bytes come one by one, a tenth of a second apart, forever.
        endless: What follows it again and again; empty: nothing.
        seen: The first line of each request.
        port: Where it listens.
    """

    def __init__(self) -> None:
        self.answer = b""
        self.trickle = False
        self.endless = b""
        self.seen: list[str] = []
        self.port = 0
        self._serving: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    def say(self, status: int, headers: str = "", body: bytes = b"") -> None:
        """Answer so from now on."""
        length = f"Content-Length: {len(body)}\r\n"
        self.answer = f"HTTP/1.1 {status} X\r\n{DATE}{headers}{length}\r\n".encode() + body

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection."""
        task = cast("asyncio.Task[None]", asyncio.current_task())
        self._serving[task] = writer
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                self.seen.append(head.partition("\r\n")[0])
                length = head.partition("content-length:")[2].partition("\r\n")[0].strip()
                await reader.readexactly(int(length or 0))
                writer.write(self.answer)
                await writer.drain()
                while self.endless:
                    writer.write(self.endless)
                    await writer.drain()
                while self.trickle:
                    writer.write(b" ")
                    await writer.drain()
                    await asyncio.sleep(0.1)
        writer.close()

    async def end(self) -> None:
        """Hang up on everybody."""
        self.trickle, self.endless = False, b""
        for writer in self._serving.values():
            writer.transport.abort()
        await asyncio.gather(*self._serving)


@asynccontextmanager
async def serving(tls: ssl.SSLContext | None = None) -> AsyncIterator[Script]:
    """Serve a script on this machine."""
    script = Script()
    server = await asyncio.start_server(script.serve, "127.0.0.1", 0, ssl=tls)
    script.port = server.sockets[0].getsockname()[1]
    try:
        yield script
    finally:
        server.close()
        await script.end()
