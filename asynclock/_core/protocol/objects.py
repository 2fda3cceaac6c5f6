"""The requests of one client: each is one read or one write of a lock object, timed, never repeated."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Final, TypeVar

from asynclock._core.inflight import InFlight
from asynclock._core.portal import current_task
from asynclock._core.protocol.decisions import Seen
from asynclock._core.protocol.issuer import Issuer
from asynclock._core.protocol.outcomes import Attempt, Landed, Open, Refused
from asynclock._core.protocol.unanswered import Unanswered
from asynclock._core.protocol.verifier import Verifier
from asynclock._core.record import parse_record
from asynclock.backend import Absent
from asynclock.clock import ClockReading, StoreTime
from asynclock.errors import (
    BackendError,
    BackendUnavailableError,
    ConfigError,
    OutcomeUnknownError,
    PreconditionFailedError,
)
from asynclock.events import SILENCE

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine
    from random import Random

    from asynclock._core.protocol.outcomes import Outcome
    from asynclock._core.protocol.timing import Timing
    from asynclock.backend import Backend, Entry, Stored, Written
    from asynclock.clock import Clock
    from asynclock.events import Events

T = TypeVar("T")
_MOST_PAUSES: Final = 4096
"""Keys from which those whose pause is over are dropped."""


class LockObjects:
    """The lock objects of one client: reads and writes them, and keeps track of store time."""

    def __init__(
        self,
        *,
        backend: Backend,
        clock: Clock,
        timing: Timing,
        rng: Random,
        events: Events,
        holder: str,
        in_flight: InFlight | None = None,
        time: StoreTime | None = None,
        next_write: dict[str, float] | None = None,
    ) -> None:
        self.clock = clock
        self.timing = timing
        self.events = events
        self.time: StoreTime = time or StoreTime(skew=timing.skew, resolution=timing.resolution)
        self.issuer: Issuer = Issuer(
            clock=clock,
            timing=timing,
            time=self.time,
            dateless=not backend.sends_dates,
            rng=rng,
            holder=holder,
        )
        self.in_flight: InFlight = in_flight or InFlight()
        self.verifier: Verifier = Verifier(backend, self.request, self.in_flight, events.url)
        self.closed: ConfigError | None = None
        """The error of new requests after the backend was closed; None while it is open."""
        self._backend = backend
        self._rng = rng
        # By key, the loop time from which the store takes another write.
        self._next_write: dict[str, float] = {} if next_write is None else next_write
        self._unanswered = Unanswered(backend, events)

    def close(self, error: ConfigError) -> None:
        """Send nothing more, and end the running requests. Their outcome is unknown."""
        self.closed = error
        self._unanswered.end_all()

    async def list(self, prefix: str) -> AsyncGenerator[Entry, None]:
        """Yield the objects whose keys begin with ``prefix``.

        Raises:
            BackendError: They could not be listed.
        """
        loop = asyncio.get_running_loop()
        with self._unanswered.listing() as listing:
            async for entry in self._backend.list(prefix):
                listing.asked = math.inf
                yield entry
                listing.asked = loop.time()

    def through(self, backend: Backend) -> LockObjects:
        """Return the same objects as another backend reads and writes them, on another event loop."""
        return LockObjects(
            backend=backend,
            clock=self.clock,
            timing=self.timing,
            rng=self._rng,
            events=self.events,
            holder=self.issuer.holder,
            time=self.time,
            next_write=self._next_write,
        )

    @property
    def limits_writes(self) -> bool:
        """Whether the store limits how often one object is written: Cloud Storage, to once a second."""
        return self._backend.min_write_interval > 0

    async def pace(self, key: str) -> None:
        """Wait until the store takes another write of this object."""
        if self._backend.min_write_interval > 0:
            wait = self._next_write.get(key, 0.0) - asyncio.get_running_loop().time()
            if wait > 0:
                await asyncio.sleep(wait)

    def _note_write(self, key: str) -> None:
        """Note that this object is written now."""
        now, pauses = asyncio.get_running_loop().time(), self._next_write
        if len(pauses) >= _MOST_PAUSES:
            for each in [each for each, at in pauses.items() if at <= now]:
                del pauses[each]
        pauses[key] = now + self._backend.min_write_interval

    def now(self) -> ClockReading:
        """Read this machine's clocks."""
        return ClockReading.now(self.clock)

    def jittered(self, seconds: float, *, least: float = 0.5) -> float:
        """Return a share of ``seconds``, ``least`` to all, so that clients never wait in step."""
        return seconds * self._rng.uniform(least, 1.0)

    async def fetch(self, key: str, *, timeout: float | None = None) -> Stored | Absent:
        """Return an object unparsed. Errors are those of ``request``."""
        return await self.request("get", key, self._backend.get(key), timeout)

    async def read(self, key: str, *, timeout: float | None = None) -> Seen:
        """Read a lock object. Errors are RecordCorruptError and those of ``request``."""
        sent = self.now()
        stored = await self.fetch(key, timeout=timeout)
        arrived = self.now()
        date = self.time.observe(stored.server_time, sent=sent, arrived=arrived)
        if isinstance(stored, Absent):
            return Seen(None, None, None, date, arrived)
        latest = date.value + self.timing.resolution + self.timing.skew if date and date.usable else None
        record = parse_record(stored.body, key=key, version=stored.version, store_time=latest)
        return Seen(record, stored.version, stored.last_modified, date, arrived)

    async def write(self, key: str, attempt: Attempt, *, timeout: float | None = None) -> Outcome:
        """Send one attempt, once.

        Callers that may be cancelled send it in ``InFlight.protect``, so that they learn the outcome.

        Raises:
            BackendError: No waiting helps, as with AccessDeniedError; ``written`` says whether it may stand.
        """
        record, base, sent, settled_at, _ = attempt
        body, backend = record.encode(), self._backend
        put: Coroutine[object, object, Written]
        if base is None:
            name, put = "put_if_absent", backend.put_if_absent(key, body)
        else:
            name, put = "put_if_match", backend.put_if_match(key, body, base)
        if backend.min_write_interval > 0:
            self._note_write(key)
        try:
            written = await self.request(name, key, put, timeout)
        except ConfigError as error:
            closed = BackendUnavailableError(backend=backend.name, operation=name, key=key, detail=str(error))
            return Open(attempt, closed)
        except BackendError as error:
            if not error.transient:
                raise
            if isinstance(error, PreconditionFailedError):
                return Refused(attempt, error)
            return Open(attempt, error)
        self.time.observe(written.server_time, sent=sent, arrived=ClockReading.now(self.clock))
        return Landed(Attempt(record, base, sent, settled_at, written.version))

    async def put(self, key: str, body: bytes, version: str | None) -> None:
        """Write an object other than a lock over that version, or create it; raises what ``request`` does."""
        if self.verifier.needed:
            await self.verifier.verify(key, within=self.timing.request_timeout)
        await self.pace(key)
        if self._backend.min_write_interval > 0:
            self._note_write(key)
        if version is None:
            await self.request("put_if_absent", key, self._backend.put_if_absent(key, body))
        else:
            await self.request("put_if_match", key, self._backend.put_if_match(key, body, version))

    async def request(
        self, operation: str, key: str, call: Coroutine[object, object, T], timeout: float | None = None
    ) -> T:
        """Await one call of the backend within the request timeout; any failure is a BackendError.

        Raises:
            BackendError: As the backend says; if it does not, the outcome is unknown.
            ConfigError: The backend cannot be opened as it was set up, or the client was closed;
                nothing was sent.
        """
        if self.closed is not None:
            call.close()
            raise self.closed
        unknown = BackendUnavailableError if operation == "get" else OutcomeUnknownError
        limit = self.timing.request_timeout if timeout is None else min(timeout, self.timing.request_timeout)
        task = current_task()
        cancelling, expired = task.cancelling(), False

        def expire() -> None:
            nonlocal expired
            task.cancel()
            expired = True  # after it: an interrupt in between must not make an outside cancellation ours

        timer: asyncio.TimerHandle

        def notice() -> None:
            nonlocal timer
            timer = self._expires(began + limit, expire)
            self._unanswered.watch(began + SILENCE)

        loop = asyncio.get_running_loop()
        began = loop.time()
        at, act = (began + limit, expire) if limit <= SILENCE else (began + SILENCE, notice)
        # In place of asyncio.timeout, whose timer keeps a copy of the context long after its end.
        timer = loop.call_at(at, act, context=self._unanswered.context)
        self._unanswered.requests[expire] = key, began
        try:
            return await call
        except (BackendError, ConfigError):
            raise
        except asyncio.CancelledError:
            # SDKs share tasks (token refresh): another waiter's cancellation may surface here.
            if task.cancelling() > cancelling + expired:
                raise
            detail = "the call was cancelled inside the SDK"
        except Exception as error:  # noqa: BLE001  a renewal must outlive a bug below it
            # The type only: the text of a foreign error may contain secrets.
            detail = f"unexpected {type(error).__name__}"
        finally:
            timer.cancel()
            self._unanswered.requests.pop(expire, None)
            if expired:
                task.uncancel()
        if expired:
            detail = "the client was closed" if self.closed else f"no answer within {limit:.3g} s"
        raise unknown(backend=self._backend.name, operation=operation, key=key, detail=detail)

    def _expires(self, at: float, expire: Callable[[], None]) -> asyncio.TimerHandle:
        """Return the timer that calls ``expire``, which is called now if the process was stopped until then.

        A release that waits for the request a little longer (rule 6) is due by then as well, and comes next.
        """
        loop = asyncio.get_running_loop()
        timer = loop.call_at(at, expire, context=self._unanswered.context)
        if loop.time() >= at:
            timer.cancel()
            expire()
        return timer
