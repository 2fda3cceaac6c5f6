"""Just enough HTTP/1.1 for a proxy: whole requests and answers as they are on the wire."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import struct
from dataclasses import dataclass, replace
from datetime import timedelta
from email.utils import format_datetime, parsedate_to_datetime
from typing import Final

HEAD_LIMIT: Final = 64 * 1024
_TURNS_TO_BEGIN: Final = 4
"""Of the loop, from the look at the listening socket until the task of a connection has begun."""
_BODYLESS: Final = frozenset({204, 304})
_DATES: Final = re.compile(rb"(?im)^((?:date|last-modified):\s*)([^\r\n]+)")


@dataclass(frozen=True)
class Answer:
    """An answer, and whether the server keeps the connection."""

    head: bytes
    body: bytes
    status: int
    keeps: bool

    @property
    def raw(self) -> bytes:
        """All of it."""
        return self.head + self.body

    def dated(self, seconds: float) -> Answer:
        """Return it as from a server whose clock is ``seconds`` ahead."""

        def moved(found: re.Match[bytes]) -> bytes:
            date = parsedate_to_datetime(found[2].decode()) + timedelta(seconds=seconds)
            return found[1] + format_datetime(date, usegmt=True).encode()

        return replace(self, head=_DATES.sub(moved, self.head))


class Upstream:
    """One connection to the server, opened when it is needed."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, request: bytes, method: str) -> Answer:
        """Send a request and return its answer."""
        if self._streams is None or self._streams[0].at_eof():
            self.close()
            self._streams = await asyncio.open_connection(*self._address, limit=HEAD_LIMIT)
        reader, writer = self._streams
        writer.write(request)
        await writer.drain()
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            first, headers = parse_head(head)
            status = int(first.split(" ", 2)[1])
            if status >= 200:  # noqa: PLR2004  1xx are not the answer
                break
        body = (
            b"" if method == "HEAD" or status in _BODYLESS else await read_body(reader, headers, answer=True)
        )
        keeps = headers.get("connection", "").lower() != "close"
        if not keeps:
            self.close()
        return Answer(head, body, status, keeps)

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


def parse_head(head: bytes) -> tuple[str, dict[str, str]]:
    """Return the first line and the headers, their names in lower case."""
    first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    pairs = (line.split(":", 1) for line in lines)
    return first, {name.strip().lower(): value.strip() for name, value in pairs}


async def read_body(reader: asyncio.StreamReader, headers: dict[str, str], *, answer: bool = False) -> bytes:
    """Read a body as it is on the wire, chunk sizes included."""
    if "chunked" in headers.get("transfer-encoding", "").lower():
        parts: list[bytes] = []
        while True:
            line = await reader.readuntil(b"\r\n")
            parts.append(line)
            size = int(line.split(b";")[0], 16)
            parts.append(await reader.readexactly(size + 2))
            if size == 0:
                return b"".join(parts)
    if (length := headers.get("content-length")) is not None:
        return await reader.readexactly(int(length))
    return await reader.read() if answer else b""


async def close_stream(writer: asyncio.StreamWriter, *, reset: bool) -> None:
    """Close a connection, with RST or FIN."""
    if reset and (raw := writer.get_extra_info("socket")) is not None:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.close()
    with contextlib.suppress(OSError, asyncio.CancelledError):
        await writer.wait_closed()


async def stop_listening(server: asyncio.Server) -> None:
    """Close the listening sockets, once the task of every connection that was accepted has begun.

    Python 3.11 leaves a connection open whose server closes while it is accepted, and a task that is
    cancelled before it begins never closes its connection.
    """
    for listening in server.sockets:
        asyncio.get_running_loop().remove_reader(listening)
    for _ in range(_TURNS_TO_BEGIN):
        await asyncio.sleep(0)
    server.close()
