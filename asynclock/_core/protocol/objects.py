"""The requests of one client: each is one read or one write of a lock object, timed, never repeated."""

from __future__ import annotations

import asyncio
import math
from contextvars import Context
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypeVar
from uuid import UUID
from weakref import WeakKeyDictionary, WeakSet

from asynclock._core.inflight import InFlight
from asynclock._core.portal import current_task
from asynclock._core.protocol.decisions import Seen, next_token, next_token_without_dates, promise
from asynclock._core.record import parse_record
from asynclock.backend import Absent
from asynclock.clock import ClockReading, StoreTime
from asynclock.errors import (
    BackendError,
    BackendUnavailableError,
    ConfigError,
    OutcomeUnknownError,
    PreconditionFailedError,
    UnsupportedBackendError,
)
from asynclock.events import SILENCE, UnderWay

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine
    from random import Random

    from asynclock._core.protocol.decisions import Token
    from asynclock._core.protocol.timing import Timing
    from asynclock._core.record import LockRecord
    from asynclock.backend import Backend, Entry, Stored, Written
    from asynclock.clock import Clock
    from asynclock.events import Events

T = TypeVar("T")
_ROUNDED: Final = 1 - 1e-9
_LONGEST_OPENING: Final = 8.0
"""A backend that takes longer than this many seconds to open counts as a silent store."""
_MOST_PACED: Final = 4096
"""Keys from which those whose pace is over are dropped."""


class Attempt(NamedTuple):
    """One conditional write of a record with its own nonce. ``Claim`` knows what has become of it.

    Attributes:
        base: The version this write replaces; None to create the object.
        sent: Read before it was sent; belief counts from here, however late the answer.
        settled_at: Store time before which its token must not be handed out; None: at once.
        version: What it became, if it is known to have landed; else None.
    """

    record: LockRecord
    base: str | None
    sent: ClockReading
    settled_at: float | None = None
    version: str | None = None

    def at(self, version: str | None) -> Attempt:
        """Return this attempt as one that became ``version``."""
        return Attempt(self.record, self.base, self.sent, self.settled_at, version)


class Landed(NamedTuple):
    """The write is in the store."""

    version: str


class Refused(NamedTuple):
    """The store refused the condition. A copy sent by a layer below may have landed: read back."""

    error: PreconditionFailedError


class Open(NamedTuple):
    """Nobody knows whether the write landed, or still may: read back."""

    error: BackendError


Outcome: TypeAlias = Landed | Refused | Open
"""The store's answer to one write."""


class _Listing:
    """A listing under way, and at what loop time its next object was asked for; infinite: it is not."""

    def __init__(self, asked: float) -> None:
        self.asked = asked


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
        next_write: dict[str, float] | None = None,
    ) -> None:
        self.clock = clock
        self.timing = timing
        self.events = events
        self.holder = holder
        self.time: StoreTime = StoreTime(skew=timing.skew, resolution=timing.resolution)
        # One answer without a Date does not make a store dateless.
        self.dateless: bool = not backend.sends_dates
        self.in_flight: InFlight = in_flight or InFlight()
        self.closed: ConfigError | None = None
        """The error of new requests after the backend was closed; None while it is open."""
        self.unverified: bool = getattr(backend, "verify", False)
        """Whether the store may need a test before the first lock is held."""
        if self.unverified:
            import asynclock._core.verification  # noqa: F401, PLC0415  later it would read files on the loop
        self._verification: asyncio.Task[None] | None = None
        self._verification_failure: BackendError | None = None
        self._backend = backend
        self._rng = rng
        self._next_write: dict[str, float] = {} if next_write is None else next_write
        self._pauses: WeakSet[asyncio.Future[None]] = WeakSet()
        self._no_context = Context()  # one for each: no two threads can be in the same at once
        # Weak: a request whose loop was closed by force is collected, and the lease in its frame with it.
        self._expiries: WeakKeyDictionary[Callable[[], object], tuple[str, float]] = WeakKeyDictionary()
        """For each running request: the way to end it, its key, and the loop time at which it began."""
        self._opening_at = -math.inf
        self._listings: WeakSet[_Listing] = WeakSet()

    def close(self, error: ConfigError) -> None:
        """Send nothing more, and end the running requests. Their outcome is unknown."""
        self.closed = error
        for expire in list(self._expiries):
            expire()

    def _under_way(self) -> list[UnderWay]:
        """Return the requests under way; nothing can be answered before the backend is open."""
        now = asyncio.get_running_loop().time()
        if getattr(self._backend, "opening", False):
            self._opening_at = now
        asked = [*self._expiries.values(), *(("", each.asked) for each in self._listings)]
        return [
            UnderWay(key, began, max(began, min(self._opening_at, began + _LONGEST_OPENING)))
            for key, began in asked
        ]

    async def list(self, prefix: str) -> AsyncGenerator[Entry, None]:
        """Yield the objects whose keys begin with ``prefix``.

        Raises:
            BackendError: They could not be listed.
        """
        loop = asyncio.get_running_loop()
        listing = _Listing(loop.time())
        self._listings.add(listing)
        due = listing.asked + SILENCE
        timer = loop.call_at(due, self.events.watch, self._under_way, due, context=self._no_context)
        try:
            async for entry in self._backend.list(prefix):
                listing.asked = math.inf
                yield entry
                listing.asked = loop.time()
        finally:
            timer.cancel()
            self._listings.discard(listing)

    def through(self, backend: Backend) -> LockObjects:
        """Return the same objects as another backend reads and writes them, on another event loop."""
        other = LockObjects(
            backend=backend,
            clock=self.clock,
            timing=self.timing,
            rng=self._rng,
            events=self.events,
            holder=self.holder,
            next_write=self._next_write,
        )
        other.time = self.time
        return other

    def now(self) -> ClockReading:
        """Read this machine's clocks."""
        return ClockReading.now(self.clock)

    def knows_time(self, now: ClockReading | None = None) -> bool:
        """Whether a record can be made ``now`` (default: read the clocks); else read first, for a Date."""
        return self.dateless or self.time.bounds(self.now() if now is None else now) is not None

    def fresh_owner(self) -> str:
        """Return a new owner id."""
        return str(UUID(bytes=self._rng.randbytes(16), version=4))

    def fresh_nonce(self) -> str:
        """Return a new nonce, 32 hex digits."""
        return self._rng.randbytes(16).hex()

    def jittered(self, seconds: float, *, least: float = 0.5) -> float:
        """Return a share of ``seconds``, ``least`` to all, so that clients never wait in step."""
        return seconds * self._rng.uniform(least, 1.0)

    def promise(self, now: ClockReading, *, lease: float | None = None) -> int | None:
        """Return the ``validUntil`` to publish at ``now`` for ``lease`` seconds, or for L (rule 4).

        None: no usable Date yet, read again.
        """
        latest = self.time.latest(now)
        if latest is not None:
            return promise(latest, self.timing, by_wall=self.time.by_wall, lease=lease)
        return promise(now.wall, self.timing, lease=lease) if self.dateless else None

    def renewed(self, record: LockRecord, now: ClockReading, ends_in: float | None) -> LockRecord:
        """Return the record that renews ``record`` at ``now``.

        Its ``validUntil`` never falls (rule 4), unless belief has an end of its own: then the record promises
        no more than the ``ends_in`` seconds that are left (rule 27).
        """
        nonce, until = self.fresh_nonce(), record.valid_until_ms
        if ends_in is None:
            return record._replace(nonce=nonce, valid_until_ms=max(until, self.promise(now) or 0))
        lease = self.timing.promised(ends_in)
        until = self.promise(now, lease=lease) or until
        return record._replace(nonce=nonce, valid_until_ms=until).lasting(lease)

    def next_token(self, key: str, predecessor: LockRecord | None, now: ClockReading) -> Token | None:
        """Return the token to write over ``predecessor`` (rule 11); None: no usable Date yet, read again.

        Raises ConfigError or UnsupportedBackendError where none can be made after a Hudi writer.
        """
        if self.dateless:
            if (token := next_token_without_dates(predecessor, now.wall)) is not None:
                return token
            raise UnsupportedBackendError(
                backend="store",
                operation="acquire",
                key=key,
                detail="a Hudi writer dropped the fencing token, and the store's answers have no "
                "Date to make a new one from; use a store whose answers do",
            )
        timing, dropped = self.timing, predecessor is not None and predecessor.epoch is None
        if dropped and timing.longest_trip_for_future < timing.request_timeout * _ROUNDED:
            raise ConfigError(
                setting="validity",
                value=timing.validity,
                reason="a Hudi writer dropped the fencing token; to make a new one the validity must be at "
                "least 1.25 * (max_clock_skew + the store's clock resolution) = "
                f"{1.25 * timing.slack:g} s",
            )
        bounds = self.time.bounds(now)
        return None if bounds is None else next_token(predecessor, bounds, timing)

    def until_settled(self, settled_at: float | None) -> float:
        """Return seconds until store time has surely reached ``settled_at``, if any (rule 11), else 0.0."""
        if settled_at is None:
            return 0.0
        bounds = self.time.bounds(self.now())
        earliest = -math.inf if bounds is None else bounds[0] + self.timing.resolution
        return max(0.0, min(settled_at - earliest, 2 * self.timing.slack))

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

    async def verify(self, key: str, *, within: float) -> None:
        """Try the store out, unless that was done within a day; for all locks of the client at a time.

        It goes on in the background if ``within`` seconds are not enough, and the next call waits for it.

        Raises:
            UnsupportedBackendError: The store does not keep its conditions.
            BackendError: It did not answer, or not in time.
        """
        if self._verification is None or self._verification.done():
            self._verification = self.in_flight.spawn(self._verify(key))
            self._verification.add_done_callback(self._note_verification)
        trial = self._verification
        await asyncio.wait([trial], timeout=None if within == math.inf else within)
        if trial.done() and not trial.cancelled():
            return trial.result()
        if self._verification_failure is not None:
            raise self._verification_failure
        detail = "the store is still being tried out before the first lock"
        raise BackendUnavailableError(backend=self._backend.name, operation="verify", key=key, detail=detail)

    def _note_verification(self, trial: asyncio.Task[None]) -> None:
        error = None if trial.cancelled() else trial.exception()
        self._verification_failure = error if isinstance(error, BackendError) else None

    async def _verify(self, key: str) -> None:
        from asynclock._core.verification import verify  # noqa: PLC0415  imported by now

        backend: Any = self._backend
        place = await backend.place()
        if place is not None:
            await verify(backend, self.request, place=place, key=key, url=self.events.url)
        self.unverified = False

    async def pause(self, seconds: float) -> bool:
        """Wait before something is tried again; True if ``hurry`` has cut that short."""
        hurried = asyncio.get_running_loop().create_future()
        self._pauses.add(hurried)
        await asyncio.wait([hurried], timeout=seconds)
        return hurried.done()

    def hurry(self) -> None:
        """End all pauses before retries, because the client or its process is about to end."""
        for each in list(self._pauses):
            if not each.done():
                each.set_result(None)

    @property
    def paced(self) -> bool:
        """Whether the store limits the rate of writes to one object."""
        return self._backend.min_write_interval > 0

    async def pace(self, key: str) -> None:
        """Wait until the store takes another write of this object (GCS: one a second)."""
        if self._backend.min_write_interval > 0:
            wait = self._next_write.get(key, 0.0) - asyncio.get_running_loop().time()
            if wait > 0:
                await asyncio.sleep(wait)

    def _set_pace(self, key: str, now: float) -> None:
        if len(self._next_write) >= _MOST_PACED:
            self._next_write = {each: at for each, at in self._next_write.items() if at > now}
        self._next_write[key] = now + self._backend.min_write_interval

    async def write(self, key: str, attempt: Attempt, *, timeout: float | None = None) -> Outcome:
        """Send one attempt, once.

        Callers that may be cancelled send it in ``InFlight.protect``, so that they learn the outcome.

        Raises:
            BackendError: No waiting helps, as with AccessDeniedError; ``written`` says whether it may stand.
        """
        body, backend = attempt.record.encode(), self._backend
        put: Coroutine[object, object, Written]
        if attempt.base is None:
            name, put = "put_if_absent", backend.put_if_absent(key, body)
        else:
            name, put = "put_if_match", backend.put_if_match(key, body, attempt.base)
        if backend.min_write_interval > 0:
            self._set_pace(key, asyncio.get_running_loop().time())
        try:
            written = await self.request(name, key, put, timeout)
        except ConfigError as error:
            detail = str(error)
            return Open(BackendUnavailableError(backend=backend.name, operation=name, key=key, detail=detail))
        except BackendError as error:
            if not error.transient:
                raise
            return Refused(error) if isinstance(error, PreconditionFailedError) else Open(error)
        self.time.observe(written.server_time, sent=attempt.sent, arrived=self.now())
        return Landed(written.version)

    async def put(self, key: str, body: bytes, version: str | None) -> None:
        """Write an object that is no lock over that version, or create it; raises what ``request`` does."""
        if self.unverified:
            await self.verify(key, within=self.timing.request_timeout)
        await self.pace(key)
        if self._backend.min_write_interval > 0:
            self._set_pace(key, asyncio.get_running_loop().time())
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
            timer = loop.call_at(began + limit, expire, context=self._no_context)
            self.events.watch(self._under_way, began + SILENCE)

        loop = asyncio.get_running_loop()
        began = loop.time()
        at, act = (began + limit, expire) if limit <= SILENCE else (began + SILENCE, notice)
        # In place of asyncio.timeout, whose timer keeps a copy of the context long after its end.
        timer = loop.call_at(at, act, context=self._no_context)
        self._expiries[expire] = key, began
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
            self._expiries.pop(expire, None)
            if expired:
                task.uncancel()
        if expired:
            detail = "the client was closed" if self.closed else f"no answer within {limit:.3g} s"
        raise unknown(backend=self._backend.name, operation=operation, key=key, detail=detail)
