"""A simulated object store: several nodes, each with a clock, behind a network that takes time.

Its journal is the ground truth of a history: what was applied, when, in which order. A request
is applied at one instant; between its sending, that instant and its answer there is latency, so
that a caller who gives up may be overtaken by its own write.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol

from asynclock.backend import Absent, Entry, Stored, Written
from asynclock.errors import BackendUnavailableError, PreconditionFailedError
from asynclock.testing._clocks import EPOCH

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterator, Callable
    from random import Random

    from asynclock.testing._virtual import Handle, Process, VirtualLoop

BACKEND_NAME: Final = "simulated"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreProfile:
    """The kind of store.

    Attributes:
        nodes: Seconds by which the clock of each node is ahead of true time. A request is
            served by one of them, drawn for each.
        resolution: Seconds to which Dates and ``last_modified`` are cut short.
        dates: Whether answers have a Date.
        last_modified: Whether reads say when the object was last written.
        undated: Share of answers that lack their Date although ``dates`` is set.
        unmodified: Share of reads that lack ``last_modified`` although it is set.
        wrong_dates: Share of answers whose Date is wrong.
        wrong_by: Least and most seconds by which such a Date is wrong, either way.
        versions: ``content``: a hash of the bytes, as S3; ``generation``: a counter, as GCS.
        latency: Least and usual seconds of one way of a request.
        slow: Share of ways that take up to ``slow_by`` seconds.
        slow_by: Seconds.
        write_interval: Seconds that must lie between two writes of one object, as on GCS; a
            write that comes sooner is answered 429.
    """

    nodes: tuple[float, ...] = (0.0,)
    resolution: float = 0.0
    dates: bool = True
    last_modified: bool = True
    undated: float = 0.0
    unmodified: float = 0.0
    wrong_dates: float = 0.0
    wrong_by: tuple[float, float] = (30.0, 60.0)
    versions: Literal["content", "generation"] = "content"
    latency: tuple[float, float] = (0.005, 0.05)
    slow: float = 0.005
    slow_by: float = 3.0
    write_interval: float = 0.0


class Operation(NamedTuple):
    """One request as the store applied it.

    Attributes:
        at: True time.
        client: Process that sent it.
        kind: Method of the backend.
        key: Key of the object.
        base: Version it was conditional on; None for none.
        version: Version there was after it; None: no object.
        applied: Whether it changed the object.
        body: The bytes read or written; None if there are none.
    """

    at: float
    client: str
    kind: str
    key: str
    base: str | None
    version: str | None
    applied: bool
    body: bytes | None


class OnSend(Protocol):
    """A callback for a write of a lock that is about to be sent."""

    def __call__(self, owner: str, body: bytes, *, beside: bool) -> bool:
        """Take note of it; return whether it is of a lease.

        Args:
            owner: The owner in the record.
            body: The record.
            beside: Whether another write of this owner's lease is under way.
        """
        ...


class _Object(NamedTuple):
    body: bytes
    version: str
    last_modified: float | None
    written_at: float


class SimulatedStore:
    """Objects, the clocks of the nodes, and the journal.

    Args:
        loop: Its ``time()`` is true time.
        rng: Draws nodes, latencies and wrong Dates.
        profile: What kind of store it is.

    Attributes:
        journal: Every request that reached the store, in the order applied.
        calm: From now on no request is slow and no Date wrong.
        cut_off: Processes that the network does not reach; their requests and answers vanish.
        on_change: Called after every change of an object.
        on_send: Called before a client writes a lock object.
        on_use_after_close: Called with a process and a method that it calls after ``aclose``.
        network: Process that carries requests; it never pauses.
    """

    def __init__(self, loop: VirtualLoop, rng: Random, profile: StoreProfile) -> None:
        self.loop = loop
        self.profile = profile
        self.journal: list[Operation] = []
        self.calm = False
        self.cut_off: set[Process] = set()
        self.on_change: Callable[[Operation], object] | None = None
        self.on_send: OnSend | None = None
        self.on_use_after_close: Callable[[str, str], object] | None = None
        self.network: Process = loop.process("network")
        self.wrong_dates_sent: int = 0
        self.throttled: int = 0
        self._draw = rng.random
        self._objects: dict[str, _Object] = {}
        self._generation = 0

    def backend(self, process: Process) -> SimulatedBackend:
        """Return the store as ``process`` reaches it."""
        return SimulatedBackend(self, process)

    def body(self, key: str) -> bytes | None:
        """Return the bytes of an object as they are now; None if there is none."""
        found = self._objects.get(key)
        return None if found is None else found.body

    def delete_now(self, key: str, *, client: str = "operator") -> None:
        """Delete an object at once, as an operator by hand does."""
        self._objects.pop(key, None)
        self._record(client, "delete", key, base=None, version=None, applied=True, body=None)

    def way(self) -> float:
        """Draw the seconds that one way of a request takes."""
        least, usual = self.profile.latency
        if not self.calm and self._draw() < self.profile.slow:
            return least + self._draw() * self.profile.slow_by
        return least + self._draw() * usual

    def serve(self, client: str, kind: str, key: str, body: bytes | None, base: str | None) -> Any:  # noqa: ANN401  Stored, Absent, Written or an error
        """Apply a request now and return its answer: the result or the error of the call."""
        node = self._node()
        if kind == "get":
            return self._get(client, key, self._date(node))
        if kind == "delete":
            self.delete_now(key, client=client)
            return None
        found = self._objects.get(key)
        interval = self.profile.write_interval
        if interval and found is not None and self.loop.time() < found.written_at + interval:
            self.throttled += 1
            self._record(client, kind, key, base=base, version=found.version, applied=False, body=body)
            return BackendUnavailableError(
                backend=BACKEND_NAME, operation=kind, key=key, detail="429 too many requests"
            )
        refused = (kind == "put_if_absent" and found is not None) or (
            kind == "put_if_match" and (found is None or found.version != base)
        )
        if refused:
            version = None if found is None else found.version
            self._record(client, kind, key, base=base, version=version, applied=False, body=body)
            return PreconditionFailedError(
                backend=BACKEND_NAME, operation=kind, key=key, detail="412 precondition failed"
            )
        assert body is not None  # noqa: S101  every write has one
        version = self._version(body)
        modified = self._cut(EPOCH + self.loop.time() + node) if self.profile.last_modified else None
        self._objects[key] = _Object(body, version, modified, self.loop.time())
        self._record(client, kind, key, base=base, version=version, applied=True, body=body)
        return Written(version, self._date(node))

    def entries(self, prefix: str) -> list[Entry]:
        """Return the objects whose key starts with ``prefix``, in key order."""
        return [
            Entry(key, len(found.body), found.last_modified)
            for key, found in sorted(self._objects.items())
            if key.startswith(prefix)
        ]

    def _get(self, client: str, key: str, date: float | None) -> Stored | Absent:
        found = self._objects.get(key)
        if found is None:
            self._record(client, "get", key, base=None, version=None, applied=False, body=None)
            return Absent(date)
        self._record(client, "get", key, base=None, version=found.version, applied=False, body=found.body)
        modified = None if self._omits(self.profile.unmodified) else found.last_modified
        return Stored(found.body, found.version, modified, date)

    def _record(
        self,
        client: str,
        kind: str,
        key: str,
        *,
        base: str | None,
        version: str | None,
        applied: bool,
        body: bytes | None,
    ) -> None:
        operation = Operation(self.loop.time(), client, kind, key, base, version, applied, body)
        self.journal.append(operation)
        if applied and self.on_change is not None:
            self.on_change(operation)

    def _node(self) -> float:
        nodes = self.profile.nodes
        return nodes[int(self._draw() * len(nodes))]

    def _date(self, node: float) -> float | None:
        if not self.profile.dates or self._omits(self.profile.undated):
            return None
        date = EPOCH + self.loop.time() + node
        if self.profile.wrong_dates and not self.calm and self._draw() < self.profile.wrong_dates:
            self.wrong_dates_sent += 1
            least, most = self.profile.wrong_by
            wrong = least + self._draw() * (most - least)
            date += wrong if self._draw() < 0.5 else -wrong  # noqa: PLR2004  a fair coin
        return self._cut(date)

    def _omits(self, share: float) -> bool:
        return share > 0 and not self.calm and self._draw() < share

    def _cut(self, seconds: float) -> float:
        resolution = self.profile.resolution
        return math.floor(seconds / resolution) * resolution if resolution else seconds

    def _version(self, body: bytes) -> str:
        if self.profile.versions == "content":
            return hashlib.md5(body, usedforsecurity=False).hexdigest()
        self._generation += 1
        return str(self._generation)


class SimulatedBackend:
    """The store as one process reaches it: a ``Backend``.

    A request goes on when its caller is cancelled, paused or killed, as on a real network.
    """

    def __init__(self, store: SimulatedStore, process: Process) -> None:
        self.name = BACKEND_NAME
        self.clock_resolution: float = store.profile.resolution
        self.min_write_interval: float = store.profile.write_interval
        self.sends_dates: bool = store.profile.dates
        self.versions_may_repeat: bool = store.profile.versions == "content"
        self.used: bool = False
        self.closed: bool = False
        self._store = store
        self._process = process

    async def get(self, key: str) -> Stored | Absent:
        """Read an object."""
        found: Stored | Absent = await self._send("get", key, None, None)
        return found

    async def put_if_absent(self, key: str, body: bytes) -> Written:
        """Create an object.

        Raises:
            PreconditionFailedError: It exists.
        """
        written: Written = await self._send("put_if_absent", key, body, None)
        return written

    async def put_if_match(self, key: str, body: bytes, version: str) -> Written:
        """Replace an object.

        Raises:
            PreconditionFailedError: It is not ``version`` any more.
        """
        written: Written = await self._send("put_if_match", key, body, version)
        return written

    async def list(self, prefix: str) -> AsyncIterator[Entry]:
        """Yield the objects whose key starts with ``prefix``."""
        for entry in self._store.entries(prefix):
            yield entry

    async def put(self, key: str, body: bytes) -> Written:
        """Write without a condition."""
        written: Written = await self._send("put", key, body, None)
        return written

    async def delete(self, key: str) -> None:
        """Delete without a condition."""
        await self._send("delete", key, None, None)

    async def aclose(self) -> None:
        """Close the backend: it has no connection, but every later use is reported."""
        self.closed = True

    def note_use(self, kind: str) -> None:
        """Tell of a call of a closed backend; a request on the network by then is not a call."""
        if self.closed and self._store.on_use_after_close is not None:
            self._store.on_use_after_close(self._process.name, kind)

    def _send(self, kind: str, key: str, body: bytes | None, base: str | None) -> asyncio.Future[Any]:
        store = self._store
        self.used = True
        answer: asyncio.Future[Any] = store.loop.create_future()
        if self._process not in store.cut_off:
            store.loop.call_later_as(store.network, store.way(), self._arrive, kind, key, body, base, answer)
        return answer

    def _arrive(
        self, kind: str, key: str, body: bytes | None, base: str | None, answer: asyncio.Future[Any]
    ) -> None:
        store = self._store
        result = store.serve(self._process.name, kind, key, body, base)
        if self._process not in store.cut_off:
            store.loop.call_later_as(self._process, store.way(), _deliver, answer, result)


def _deliver(answer: asyncio.Future[Any], result: Any) -> None:  # noqa: ANN401  whatever serve returned
    if answer.done():
        return
    if isinstance(result, Exception):
        answer.set_exception(result)
    else:
        answer.set_result(result)


def is_answer(timer: Handle) -> bool:
    """Return whether a timer is an answer still under way: the network's, not its receiver's."""
    return timer.callback is _deliver
