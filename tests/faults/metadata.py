"""A metadata server, or token service, that does what a test tells it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Literal, Self

from asynclock.testing._http1 import stop_listening

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

Mood = Literal["serve", "fail", "hang"]


class MetadataServer:
    """Hands out credentials over HTTP in the mood that a test sets.

    Args:
        answer: Returns the body for a request: its method and target, and its body.
        tls: Serves https with it.

    Attributes:
        mood: What it does with the next request.
        asked: How often it was asked.
    """

    def __init__(self, answer: Callable[[str, bytes], bytes], *, tls: ssl.SSLContext | None = None) -> None:
        self.mood: Mood = "serve"
        self.asked = 0
        self._answer = answer
        self._released = asyncio.Event()
        self._tls = tls
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        await stop_listening(self._server)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def url(self) -> str:
        """Where it listens."""
        assert self._server is not None
        scheme = "https" if self._tls else "http"
        return f"{scheme}://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def release(self) -> None:
        """Serve from now on, those who hang first."""
        self.mood = "serve"
        self._released.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            length = head.partition("content-length:")[2].split("\r\n")[0].strip() or "0"
            sent = await reader.readexactly(int(length))
            self.asked += 1
            if self.mood == "hang":
                await self._released.wait()
            method, target, _ = head.split(" ", 2)
            status, body = "500 Broken", b""
            if self.mood == "serve":
                status, body = "200 OK", self._answer(f"{method.upper()} {target}", sent)
            lines = ("Content-Type: application/json", f"Content-Length: {len(body)}", "Connection: close")
            writer.write("\r\n".join((f"HTTP/1.1 {status}", *lines, "", "")).encode() + body)
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()
            self._tasks.discard(task)
