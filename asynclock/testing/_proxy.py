"""TapProxy: an HTTP proxy that counts every request and breaks chosen ones.

::

    async with TapProxy(upstream="http://127.0.0.1:9000", seed=7) as proxy:
        proxy.inject(Wire.CUT_AFTER, writes=True, nth=1)
        ...  # talk to proxy.url
        assert [tap.forwarded for tap in proxy.journal if tap.write] == [1]

The journal is the ground truth of what reached the server. Plain http on the loopback only.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Self
from urllib.parse import urlsplit

from asynclock.testing._http1 import (
    HEAD_LIMIT,
    Answer,
    Upstream,
    close_stream,
    parse_head,
    read_body,
    stop_listening,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

_WRITES: Final = frozenset({"PUT", "POST", "DELETE"})
_FOR_EVER: Final = 86_400.0


class Wire(StrEnum):
    """A fault of one request on the wire."""

    CUT_BEFORE = "cut-before"
    """Closed without forwarding: nothing is applied."""
    CUT_AFTER = "cut-after"
    """Forwarded and answered, the answer is dropped and the connection closed: it is applied."""
    CUT_MIDDLE = "cut-middle"
    """Closed in the middle of the answer's head: it is applied."""
    CUT_BODY = "cut-body"
    """Closed in the middle of the answer's body."""
    DELAY = "delay"
    """The answer comes ``seconds`` late."""
    LATE = "late"
    """Closed at once, forwarded ``seconds`` later: a zombie."""
    DUPLICATE = "duplicate"
    """Forwarded twice; the client gets the second answer, as from a proxy that retries."""
    BLACKHOLE = "blackhole"
    """Forwarded, never answered, the connection stays open for ``seconds``."""
    SWALLOW = "swallow"
    """Never forwarded nor answered, the connection stays open for ``seconds``: half-open."""
    DRIP = "drip"
    """The answer comes byte by byte over ``seconds``."""
    ANSWER = "answer"
    """Not forwarded; answered with ``status`` and ``body``."""


@dataclass
class Tap:
    """One request as the proxy saw it.

    Attributes:
        method: Its method.
        target: Path and query.
        headers: Its headers, names in lower case.
        body: Its body.
        connection: Number of the client's connection, from 1.
        forwarded: How often it was sent to the server.
        status: The server's answer, None if there was none.
        fault: What was done to it.
    """

    method: str
    target: str
    headers: dict[str, str] = field(repr=False)
    body: bytes = field(repr=False)
    connection: int
    forwarded: int = 0
    status: int | None = None
    fault: Wire | None = None

    @property
    def write(self) -> bool:
        """Whether it changes an object."""
        return self.method in _WRITES

    @property
    def applied(self) -> bool:
        """Whether the server said that it did what was asked."""
        return self.status is not None and self.status < 300  # noqa: PLR2004  success


@dataclass
class _Plan:
    fault: Wire
    matches: Callable[[Tap], bool]
    skip: int
    left: int
    reset: bool
    seconds: float
    status: int
    headers: dict[str, str]
    body: bytes


class TapProxy:
    """A proxy in front of one server, on a port of the loopback.

    Args:
        upstream: Address of the server.
        seed: Of the storm's choices.
        delay: Seconds by which every answer is late, for both ways together: a far store; or a function
            that draws them for each answer.
        writes_every: Answers 429 to a write sooner than this many seconds after the last one, as
            Cloud Storage does for one object.
        clock_error: Seconds by which the server's clock looks ahead: they are added to the dates in
            the heads of its answers.
        continues: Answers ``100 Continue`` to a client that waits for it, as a server does; without that
            such a client waits for its own timeout.

    Attributes:
        journal: Every request so far, in order of arrival.
        connections: How many connections clients have made.
        applied: How often a request was applied though it was broken so, by kind.
    """

    def __init__(
        self,
        upstream: str,
        *,
        seed: int = 0,
        delay: float | Callable[[], float] = 0.0,
        writes_every: float = 0.0,
        clock_error: float = 0.0,
        continues: bool = False,
    ) -> None:
        parts = urlsplit(upstream)
        self._upstream = (parts.hostname or "127.0.0.1", parts.port or 80)
        self._rng = random.Random(seed)  # noqa: S311  seeded so that a run can be repeated
        self._delay = delay
        self._writes_every = writes_every
        self._clock_error = clock_error
        self._continues = continues
        self._next_write = 0.0
        self._plans: list[_Plan] = []
        self._storm: tuple[float, tuple[Wire, ...], float] | None = None
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._clients: set[asyncio.StreamWriter] = set()
        self._forgotten = 0
        self.journal: list[Tap] = []
        self.connections: int = 0
        self.applied: Counter[Wire] = Counter()

    @property
    def url(self) -> str:
        """Address to give to clients."""
        if self._server is None:
            message = "the proxy is not open; use async with"
            raise RuntimeError(message)
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=HEAD_LIMIT)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None:
            await stop_listening(self._server)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._server is not None:
            await self._server.wait_closed()

    def inject(
        self,
        fault: Wire,
        *,
        method: str | None = None,
        writes: bool | None = None,
        nth: int = 1,
        times: int = 1,
        reset: bool = False,
        seconds: float = 0.0,
        status: int = 503,
        headers: dict[str, str] | None = None,
        body: bytes = b"",
    ) -> None:
        """Break requests to come.

        Args:
            fault: How.
            method: Only those of this method.
            writes: Only those that change objects, or only those that do not.
            nth: The first one to break among the matching ones, from 1.
            times: How many from there on.
            reset: Close with RST, not FIN.
            seconds: For the faults that take time.
            status: Of ``ANSWER``.
            headers: Of ``ANSWER``.
            body: Of ``ANSWER``.
        """

        def matches(tap: Tap) -> bool:
            return (method is None or tap.method == method) and (writes is None or tap.write == writes)

        self._plans.append(_Plan(fault, matches, nth - 1, times, reset, seconds, status, headers or {}, body))

    def storm(self, rate: float, *faults: Wire, seconds: float = 0.0) -> None:
        """Break each write with probability ``rate``, by one of ``faults``, half of them with RST."""
        self._storm = (rate, faults, seconds) if rate > 0 else None

    async def hang_up(self, *, reset: bool = False) -> None:
        """Close every connection that clients have now, as a server does to idle ones."""
        await asyncio.gather(*(close_stream(writer, reset=reset) for writer in list(self._clients)))

    def forget(self) -> None:
        """Swallow what comes on the connections there are now, as a NAT that has forgotten them."""
        self._forgotten = self.connections

    def faults(self, *kinds: Wire) -> int:
        """Count the requests broken so far, by any of ``kinds`` or at all."""
        return sum(tap.fault is not None and (not kinds or tap.fault in kinds) for tap in self.journal)

    def _plan_for(self, tap: Tap) -> _Plan | None:
        if tap.connection <= self._forgotten:
            return _Plan(Wire.SWALLOW, lambda _: True, 0, 0, False, _FOR_EVER, 0, {}, b"")
        for plan in self._plans:
            if plan.matches(tap):
                if plan.skip:
                    plan.skip -= 1
                    continue
                plan.left -= 1
                if not plan.left:
                    self._plans.remove(plan)
                return plan
        if self._writes_every and tap.write:
            now = asyncio.get_running_loop().time()
            if now < self._next_write:
                return _Plan(Wire.ANSWER, lambda _: True, 0, 0, False, 0.0, 429, {}, b"")
            self._next_write = now + self._writes_every
        if self._storm is not None and tap.write and self._rng.random() < self._storm[0]:
            _, faults, seconds = self._storm
            fault, reset = self._rng.choice(faults), self._rng.random() < 0.5  # noqa: PLR2004  half of them
            return _Plan(fault, lambda _: True, 0, 0, reset, seconds, 503, {}, b"")
        return None

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        self.connections += 1
        self._clients.add(writer)
        upstream = Upstream(self._upstream)
        try:
            await self._serve(reader, writer, upstream, self.connections)
        except (OSError, asyncio.IncompleteReadError):
            pass
        except asyncio.CancelledError:
            # Ours, from closing; a server's callback must not end as cancelled.
            pass
        finally:
            self._clients.discard(writer)
            upstream.close()
            await close_stream(writer, reset=False)

    async def _serve(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        upstream: Upstream,
        connection: int,
    ) -> None:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            first, headers = parse_head(head)
            method, target, _ = first.split(" ", 2)
            if self._continues and headers.get("expect", "").lower() == "100-continue":
                writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            body = await read_body(reader, headers)
            tap = Tap(method, target, headers, body, connection)
            self.journal.append(tap)
            plan = self._plan_for(tap)
            if plan is not None:
                tap.fault = plan.fault
            if not await self._handle(tap, head + body, plan, writer, upstream):
                await close_stream(writer, reset=plan is not None and plan.reset)
                return

    async def _handle(
        self,
        tap: Tap,
        request: bytes,
        plan: _Plan | None,
        writer: asyncio.StreamWriter,
        upstream: Upstream,
    ) -> bool:
        """Serve one request; False: the connection is to be closed."""
        fault = None if plan is None else plan.fault
        if plan is not None and fault in {Wire.CUT_BEFORE, Wire.LATE, Wire.SWALLOW, Wire.ANSWER}:
            return await self._withhold(tap, request, plan, writer)
        answer = await self._forward(tap, request, upstream)
        if seconds := self._delay() if callable(self._delay) else self._delay:
            await asyncio.sleep(seconds)
        if plan is None:
            writer.write(answer.raw)
            await writer.drain()
            return answer.keeps
        return await self._spoil(tap, request, plan, answer, writer=writer, upstream=upstream)

    async def _withhold(self, tap: Tap, request: bytes, plan: _Plan, writer: asyncio.StreamWriter) -> bool:
        if plan.fault is Wire.LATE:
            task = asyncio.create_task(self._forward_later(tap, request, plan.seconds))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        elif plan.fault is Wire.SWALLOW:
            await asyncio.sleep(plan.seconds)
        elif plan.fault is Wire.ANSWER:
            headers = {"Content-Length": str(len(plan.body)), **plan.headers}
            lines = [f"HTTP/1.1 {plan.status} Scripted", *(f"{k}: {v}" for k, v in headers.items())]
            writer.write(("\r\n".join(lines) + "\r\n\r\n").encode() + plan.body)
            await writer.drain()
            return True
        return False

    async def _spoil(
        self,
        tap: Tap,
        request: bytes,
        plan: _Plan,
        answer: Answer,
        *,
        writer: asyncio.StreamWriter,
        upstream: Upstream,
    ) -> bool:
        fault = plan.fault
        if fault is Wire.DUPLICATE:
            answer = await self._forward(tap, request, upstream)
        elif fault in {Wire.CUT_MIDDLE, Wire.CUT_BODY}:
            cut = (
                len(answer.head) // 2
                if fault is Wire.CUT_MIDDLE
                else len(answer.head) + len(answer.body) // 2
            )
            writer.write(answer.raw[:cut])
            await writer.drain()
        elif fault is Wire.DRIP:
            for at in range(len(answer.raw)):
                writer.write(answer.raw[at : at + 1])
                await writer.drain()
                await asyncio.sleep(plan.seconds / len(answer.raw))
            return answer.keeps
        elif fault in {Wire.DELAY, Wire.BLACKHOLE}:
            await asyncio.sleep(plan.seconds)
        if fault in {Wire.CUT_AFTER, Wire.CUT_MIDDLE, Wire.CUT_BODY, Wire.BLACKHOLE}:
            return False
        writer.write(answer.raw)
        await writer.drain()
        return answer.keeps

    async def _forward(self, tap: Tap, request: bytes, upstream: Upstream) -> Answer:
        tap.forwarded += 1
        answer = await upstream.ask(request, tap.method)
        if self._clock_error:
            answer = answer.dated(self._clock_error)
        tap.status = answer.status
        if tap.fault is not None and tap.applied:
            self.applied[tap.fault] += 1
        return answer

    async def _forward_later(self, tap: Tap, request: bytes, seconds: float) -> None:
        await asyncio.sleep(seconds)
        upstream = Upstream(self._upstream)
        try:
            await self._forward(tap, request, upstream)
        finally:
            upstream.close()
