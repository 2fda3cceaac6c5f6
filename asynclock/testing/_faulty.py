"""A backend that fails on purpose, around any other backend.

Inject single faults to test how your code meets them, or a storm of random ones::

    backend = FaultyBackend(inner, seed=7)
    backend.inject(Fault.REPLY_LOST, operation="put_if_match", nth=2)
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from asynclock.backend import Absent, Stored
from asynclock.clock import SystemClock
from asynclock.errors import (
    BackendError,
    BackendUnavailableError,
    ConfigError,
    OutcomeUnknownError,
    PreconditionFailedError,
    UnsupportedBackendError,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Mapping

    from asynclock.backend import Backend, Entry, Written
    from asynclock.clock import Clock

T = TypeVar("T")


class Fault(StrEnum):
    """A fault of one request."""

    REPLY_LOST = "reply-lost"
    """The write is applied (the read done), its answer is lost: ``OutcomeUnknownError``."""
    REQUEST_LOST = "request-lost"
    """Nothing reaches the store, and the caller cannot know: ``OutcomeUnknownError``."""
    LATE = "late"
    """``OutcomeUnknownError`` at once; the write is applied after ``delay``: a zombie."""
    DUPLICATE = "duplicate"
    """Delivered twice: the caller gets the first answer, the copy comes after ``delay``."""
    SLOW = "slow"
    """The answer comes ``delay`` late."""
    CONFLICT = "conflict-409"
    """S3's 409 ConditionalRequestConflict; nothing is written."""
    OWN_412 = "own-write-412"
    """Written, then refused as its own second copy: ``PreconditionFailedError``."""
    REFUSED = "refused-412"
    """Refused although its condition is met; nothing is written: ``PreconditionFailedError``."""
    THROTTLED = "throttled-429"
    """429; nothing is written."""
    UNAVAILABLE = "unavailable-503"
    """503; nothing is written, and the caller cannot know: ``OutcomeUnknownError``."""
    BLOCKED = "blocked-418"
    """Written, then refused by a gateway for good: ``UnsupportedBackendError``, ``written="unknown"``."""
    STALE_DATE = "stale-date"
    """The answer's Date is ``date_error`` in the past, as from a cache."""
    NO_DATE = "no-date"
    """The answer has no Date."""
    CLOCK_AHEAD = "clock-ahead"
    """The answer's Date is ``date_error`` in the future."""
    CORRUPT = "corrupt-body"
    """The bytes read are garbled; the object is whole."""
    DELETED = "deleted"
    """The object is deleted by somebody else just before the request."""


ON_WRITES: Final = frozenset(
    {Fault.LATE, Fault.DUPLICATE, Fault.CONFLICT, Fault.OWN_412, Fault.REFUSED, Fault.BLOCKED}
)
"""Faults that need a write; as a storm they pass reads by."""
ON_READS: Final = frozenset({Fault.CORRUPT})
"""Faults that need a read."""
OPERATIONS: Final = ("get", "put_if_absent", "put_if_match")


class Call(NamedTuple):
    """One request through a ``FaultyBackend``.

    Attributes:
        at: Wall clock when it was made, epoch seconds.
        operation: Method of the backend.
        key: Key of the object.
        fault: What was done to it, or None.
        outcome: ``ok``, ``missing``, or the name of the error raised.
    """

    at: float
    operation: str
    key: str
    fault: Fault | None
    outcome: str


@dataclass(slots=True)
class _Injection:
    fault: Fault
    operation: str | None
    skip: int
    times: int


class _FaultPlan:
    """Which of the next requests to spoil, and how.

    Attributes:
        random: Draws the storm, and all else that is drawn.
        applied: How often each fault was applied.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)  # noqa: S311  reproducible on purpose
        self.applied: Counter[Fault] = Counter()
        self._injections: list[_Injection] = []
        self._storm: list[tuple[Fault, float]] = []
        self._storm_total = 0.0

    def inject(self, fault: Fault, *, operation: str | None = None, nth: int = 1, times: int = 1) -> None:
        """See ``FaultyBackend.inject``."""
        if operation is not None and not _fits(fault, operation):
            raise ConfigError(
                setting="operation", value=operation, reason=f"{fault} applies to {_fitting(fault)}"
            )
        for setting, value in (("nth", nth), ("times", times)):
            if value < 1:
                raise ConfigError(setting=setting, value=value, reason="must be at least 1")
        self._injections.append(_Injection(fault, operation, nth - 1, times))

    def storm(self, shares: Mapping[Fault, float]) -> None:
        """See ``FaultyBackend.storm``."""
        total = sum(shares.values())
        if total > 1 or any(share < 0 for share in shares.values()):
            raise ConfigError(
                setting="shares", value=dict(shares), reason="must be 0 to 1 and sum to at most 1"
            )
        self._storm = list(shares.items())
        self._storm_total = total

    def calm(self) -> None:
        """See ``FaultyBackend.calm``."""
        self._injections.clear()
        self.storm({})

    def draw(self, operation: str) -> Fault | None:
        """Return what to do to the next request of that kind, and count it; None: nothing."""
        fault = self._injected(operation) if self._injections else None
        if fault is None and self._storm_total:
            fault = self._stormed(operation)
        if fault is not None:
            self.applied[fault] += 1
        return fault

    def _injected(self, operation: str) -> Fault | None:
        for injection in self._injections:
            matches = (
                _fits(injection.fault, operation)
                if injection.operation is None
                else injection.operation == operation
            )
            if not matches:
                continue
            if injection.skip:
                injection.skip -= 1
                continue
            injection.times -= 1
            if not injection.times:
                self._injections.remove(injection)
            return injection.fault
        return None

    def _stormed(self, operation: str) -> Fault | None:
        chance = self.random.random()
        if chance >= self._storm_total:
            return None
        for fault, share in self._storm:
            chance -= share
            if chance < 0:
                return fault if _fits(fault, operation) else None
        return None


class FaultyBackend:
    """Passes requests on to ``inner`` and spoils the chosen ones.

    Args:
        inner: The real backend.
        seed: Of delays, and of ``storm``.
        clock: Stamps the journal; default the machine's.

    Attributes:
        journal: Every call, in order of completion.
        delay: Least and most seconds by which ``LATE``, ``DUPLICATE`` and ``SLOW`` delay.
        date_error: Least and most seconds by which ``STALE_DATE`` and ``CLOCK_AHEAD`` err.
    """

    def __init__(self, inner: Backend, *, seed: int = 0, clock: Clock | None = None) -> None:
        self.name: str = inner.name
        self.clock_resolution: float = inner.clock_resolution
        self.min_write_interval: float = inner.min_write_interval
        self.sends_dates: bool = inner.sends_dates
        self.versions_may_repeat: bool = inner.versions_may_repeat
        self.journal: list[Call] = []
        self.delay: tuple[float, float] = (0.05, 1.0)
        self.date_error: tuple[float, float] = (30.0, 60.0)
        self._inner = inner
        self._plan = _FaultPlan(seed)
        self._clock = SystemClock() if clock is None else clock
        self._stray: set[asyncio.Task[Any]] = set()

    @property
    def applied(self) -> Counter[Fault]:
        """How often each fault was applied."""
        return self._plan.applied

    def inject(self, fault: Fault, *, operation: str | None = None, nth: int = 1, times: int = 1) -> None:
        """Spoil the ``nth`` matching request from now on, and the ``times - 1`` after it.

        Args:
            fault: What to do to them.
            operation: ``get``, ``put_if_absent`` or ``put_if_match``; None: any that the fault fits.
            nth: Counted from 1.
            times: How many in a row.

        Raises:
            ConfigError: An unknown operation, one that the fault does not fit, or a number below 1.
        """
        self._plan.inject(fault, operation=operation, nth=nth, times=times)

    def storm(self, shares: Mapping[Fault, float]) -> None:
        """Spoil requests at random until further notice; an empty mapping ends it.

        Args:
            shares: For each fault the share of the requests it fits, 0 to 1; 1 in all at most.

        Raises:
            ConfigError: A share is negative or they sum to more than 1.
        """
        self._plan.storm(shares)

    def calm(self) -> None:
        """End the storm and forget the faults not yet applied; what is under way still lands."""
        self._plan.calm()

    async def get(self, key: str) -> Stored | Absent:
        """Read an object, perhaps spoiled."""
        fault = self._draw("get")
        call = self._inner.get(key) if fault is None else self._get(fault, key)
        return await self._noted("get", key, fault, call)

    async def put_if_absent(self, key: str, body: bytes) -> Written:
        """Create an object, perhaps spoiled."""
        fault = self._draw("put_if_absent")
        send = partial(self._inner.put_if_absent, key, body)
        call = send() if fault is None else self._write(fault, "put_if_absent", key, send)
        return await self._noted("put_if_absent", key, fault, call)

    async def put_if_match(self, key: str, body: bytes, version: str) -> Written:
        """Replace an object, perhaps spoiled."""
        fault = self._draw("put_if_match")
        send = partial(self._inner.put_if_match, key, body, version)
        call = send() if fault is None else self._write(fault, "put_if_match", key, send)
        return await self._noted("put_if_match", key, fault, call)

    def list(self, prefix: str) -> AsyncIterator[Entry]:
        """Pass on, never spoiled."""
        return self._inner.list(prefix)

    async def put(self, key: str, body: bytes) -> Written:
        """Pass on, never spoiled."""
        return await self._inner.put(key, body)

    async def delete(self, key: str) -> None:
        """Pass on, never spoiled."""
        await self._inner.delete(key)

    async def aclose(self) -> None:
        """Wait for the late writes, then close ``inner``."""
        while self._stray:
            await asyncio.wait(self._stray)
        await self._inner.aclose()

    def spawn(self, stray: Coroutine[Any, Any, Any]) -> None:
        """Run a late write in parallel with its caller; simulations override how."""
        task = asyncio.get_running_loop().create_task(stray)
        self._stray.add(task)
        task.add_done_callback(self._stray.discard)

    async def _get(self, fault: Fault, key: str) -> Stored | Absent:
        await self._before(fault, "get", key)
        found = await self._inner.get(key)
        await self._after(fault, "get", key)
        found = replace(found, server_time=self._spoiled(fault, found.server_time))
        if fault is Fault.CORRUPT and isinstance(found, Stored):
            return replace(found, body=bytes(255 - byte for byte in found.body))
        return found

    async def _write(
        self,
        fault: Fault,
        operation: str,
        key: str,
        send: Callable[[], Coroutine[Any, Any, Written]],
    ) -> Written:
        if fault is Fault.LATE:
            self.spawn(self._later(send))
            raise self._unknown(operation, key, "no answer")
        await self._before(fault, operation, key)
        written = await send()
        if fault is Fault.DUPLICATE:
            self.spawn(self._later(send))
        await self._after(fault, operation, key)
        return replace(written, server_time=self._spoiled(fault, written.server_time))

    async def _before(self, fault: Fault, operation: str, key: str) -> None:
        """Apply the faults in front of the store."""
        if fault is Fault.DELETED:
            await self._inner.delete(key)
        elif fault is Fault.REQUEST_LOST:
            raise self._unknown(operation, key, "the connection broke")
        elif fault is Fault.CONFLICT:
            raise self._unknown(operation, key, "409 ConditionalRequestConflict")
        elif fault is Fault.REFUSED:
            raise PreconditionFailedError(
                backend=self.name, operation=operation, key=key, detail="412 precondition failed"
            )
        elif fault is Fault.UNAVAILABLE:
            raise self._unknown(operation, key, "503 SlowDown")
        elif fault is Fault.THROTTLED:
            raise BackendUnavailableError(
                backend=self.name, operation=operation, key=key, detail="429 too many requests"
            )

    async def _after(self, fault: Fault, operation: str, key: str) -> None:
        """Apply the faults behind the store."""
        if fault is Fault.SLOW:
            await asyncio.sleep(self._plan.random.uniform(*self.delay))
        elif fault is Fault.REPLY_LOST:
            raise self._unknown(operation, key, "the connection broke")
        elif fault is Fault.OWN_412:
            raise PreconditionFailedError(
                backend=self.name, operation=operation, key=key, detail="412 precondition failed"
            )
        elif fault is Fault.BLOCKED:
            raise UnsupportedBackendError(
                backend=self.name, operation=operation, key=key, detail="418", written="unknown"
            )

    async def _later(self, send: Callable[[], Coroutine[Any, Any, Written]]) -> None:
        await asyncio.sleep(self._plan.random.uniform(*self.delay))
        with suppress(BackendError):  # nobody is waiting for this answer
            await send()

    def _spoiled(self, fault: Fault, date: float | None) -> float | None:
        if date is None or fault is Fault.NO_DATE:
            return None
        if fault is Fault.STALE_DATE:
            return date - self._plan.random.uniform(*self.date_error)
        if fault is Fault.CLOCK_AHEAD:
            return date + self._plan.random.uniform(*self.date_error)
        return date

    def _draw(self, operation: str) -> Fault | None:
        return self._plan.draw(operation)

    async def _noted(self, operation: str, key: str, fault: Fault | None, call: Coroutine[Any, Any, T]) -> T:
        try:
            result = await call
        except BaseException as error:
            self._note(operation, key, fault, type(error).__name__)
            raise
        self._note(operation, key, fault, "missing" if isinstance(result, Absent) else "ok")
        return result

    def _note(self, operation: str, key: str, fault: Fault | None, outcome: str) -> None:
        self.journal.append(Call(self._clock.wall(), operation, key, fault, outcome))

    def _unknown(self, operation: str, key: str, detail: str) -> OutcomeUnknownError:
        return OutcomeUnknownError(backend=self.name, operation=operation, key=key, detail=detail)


def _fits(fault: Fault, operation: str) -> bool:
    return operation in _fitting(fault)


def _fitting(fault: Fault) -> tuple[str, ...]:
    if fault in ON_WRITES:
        return OPERATIONS[1:]
    return OPERATIONS[:1] if fault in ON_READS else OPERATIONS
