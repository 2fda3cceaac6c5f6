"""What the proxy answers by itself."""

from __future__ import annotations

import asyncio
import gc
import socket
from urllib.parse import urlsplit

import pytest

from asynclock.testing._proxy import TapProxy

REQUEST = b"PUT /key HTTP/1.1\r\nHost: here\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n"
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A server that takes one request."""
    await reader.readuntil(b"\r\n\r\n")
    await reader.readexactly(4)
    writer.write(ANSWER)
    await writer.drain()
    writer.close()


async def test_a_client_that_waits_for_100_continue_gets_it_before_it_sends_its_body() -> None:
    """And then the answer to the whole request."""
    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with TapProxy(f"http://127.0.0.1:{port}", continues=True) as proxy:
            reader, writer = await asyncio.open_connection("127.0.0.1", int(proxy.url.rpartition(":")[2]))
            writer.write(REQUEST)
            assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            writer.write(b"body")
            assert await reader.readuntil(b"\r\n\r\n") == ANSWER
            writer.close()
            await writer.wait_closed()

            assert [(tap.body, tap.status) for tap in proxy.journal] == [(b"body", 200)]


@pytest.mark.parametrize("turns", range(7))
def test_a_connection_that_comes_while_the_proxy_closes_is_closed_too(turns: int) -> None:
    """However far the loop has come with accepting it; what stays open warns when it is collected."""

    async def main() -> None:
        async with TapProxy("http://127.0.0.1:9") as proxy:
            await asyncio.sleep(0)
            address = urlsplit(proxy.url)
            client.connect((address.hostname, address.port))
            for _ in range(turns):
                await asyncio.sleep(0)

    with socket.socket() as client:
        asyncio.run(main())
        gc.collect()
