"""Locks of which any one will do: the slots of a semaphore, and those of readers."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

from asynclock._core.acquirers import acquired_above
from asynclock._core.engine import LockEngine
from asynclock._core.names import by_name
from asynclock._core.portal import cut_off_at
from asynclock._core.protocol.acquire_call import AcquireCall
from asynclock._core.protocol.waiting import SharedFairness
from asynclock._text import SUFFIX
from asynclock.errors import AcquireTimeoutError, BackendError, ConfigError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable, Sequence

    from asynclock._core.protocol.held import HeldLock
    from asynclock._core.protocol.objects import LockObjects
    from asynclock._core.record import LockRecord
    from asynclock._core.status import LockStatus
    from asynclock._core.ticket import Ticket

T = TypeVar("T")
LOOKS: Final = 8
"""Slots that a waiter reads at a time."""
_FREEST: Final = ("absent", "free", "expired", "held", "corrupt")


class Inner(LockEngine):
    """A lock that only its group acquires."""

    @property
    def busy(self) -> bool:
        """Whether this client holds it, or is releasing it; no I/O."""
        return self.turns.held is not None

    async def look(self) -> tuple[LockStatus, LockRecord | None]:
        """Read it once, and nothing else of its group."""
        return await self.inspection.read()

    async def transfer(self, held: HeldLock, within: float | None) -> Ticket:
        """Refuse it: the bearer of a ticket would skip the look at the other side."""
        del held, within
        raise ticket_error("transfer", self.name)


class Part(Inner):
    """One slot.

    Attributes:
        slot: Its number.
    """

    def __init__(self, group: Slots, slot: int, **common: Any) -> None:  # noqa: ANN401  of ``LockEngine``
        super().__init__(fairness=group.fairness, **common)
        self._group = group
        self.slot: int = slot

    async def acquire(self, *, at_most: float | None = None, **_: Any) -> HeldLock | None:  # noqa: ANN401
        """Try once; None if others hold it, or if the group does not admit it now that it is confirmed."""
        held = await super().acquire(timeout=None, once=True, at_most=at_most)
        if held is None:
            self._group.note_in_the_way(self.last_seen())
            return None
        try:
            # Announced and confirmed; only now look at the other side.
            admitted = await self._group.admits(self.slot)
        except BaseException:
            await self.finish(held)
            raise
        if admitted and held.belief.end_if_due() > 0:
            held.ending.future.add_done_callback(lambda _: self._group.note_end(self.slot))
            return held
        await self.finish(held)
        return None

    def _note_failure(self, call: AcquireCall, reason: str, detail: str = "") -> None:
        """Report nothing: the call goes on with another slot, or its group reports how it ended."""


class Slots(LockEngine):
    """All slots of one name; acquires any one of them.

    Attributes:
        prefix: Of the last segment of a slot's name.
        slots: How many there are.
        fairness: Of all slots together.
        base: The name.
    """

    prefix: ClassVar[str]

    def __init__(self, *, name: str, url: str, **common: Any) -> None:  # noqa: ANN401  of ``LockEngine``
        self.base: str = name.rpartition("/")[0]
        self.fairness: SharedFairness = SharedFairness(common["objects"].timing)
        super().__init__(
            name=name,
            url=url.rpartition("/")[0],
            key=f"{self.base}{SUFFIX}",
            fairness=self.fairness,
            **common,
        )
        self.slots: int = 0
        self._parts: dict[int, Part] = {}
        self._next: int | None = None
        self._left: list[int] = []
        self._in_the_way: LockStatus | None = None

    async def ready(self, *, first: bool) -> bool:
        """Prepare a round, the ``first`` of an acquisition or a later one; False: no slot can be had now."""
        raise NotImplementedError

    async def admits(self, slot: int) -> bool:
        """Whether a slot that is held, as its write is confirmed, may be handed out."""
        raise NotImplementedError

    def part(self, slot: int) -> Part:
        """Return the lock of a slot."""
        if (part := self._parts.get(slot)) is None:
            name = f"{self.prefix}{slot}"
            part = self._parts[slot] = Part(
                self,
                slot,
                name=f"{self.base}/{name}",
                url=f"{self.url}/{name}",
                objects=self._objects,
                schedule=self._schedule,
                home=self.home,
            )
        return part

    def of(self, held: HeldLock) -> LockEngine:
        """Return the lock that is held."""
        return self._named(held.tenure.key.removesuffix(SUFFIX))

    def _named(self, name: str) -> LockEngine:
        slot = name.removeprefix(f"{self.base}/{self.prefix}")
        if not slot.isdecimal():
            raise ConfigError(setting="status", value=name, reason=f"is of no slot of {self.base!r}")
        return self.part(int(slot))

    def in_body(self, who: object) -> bool:
        """Like ``LockEngine``, for all slots."""
        return any(part.in_body(who) for part in self._parts.values())

    def note_body(self, who: object, held: HeldLock) -> None:
        """Like ``LockEngine``, for each slot: a task that leaves one may still have another."""
        self.of(held).note_body(who, held)

    def remembers(self, now: float) -> bool:
        """Like ``LockEngine``, for all slots."""
        return super().remembers(now) or any(part.remembers(now) for part in self._parts.values())

    def note_end(self, slot: int) -> None:
        """Wake the waiter of this client, so that it tries at once the slot that the client has just left."""
        self._left.append(slot)
        self.fairness.wake()

    def note_in_the_way(self, status: LockStatus | None) -> None:
        """Remember the slot that may be free first."""
        if status is not None:
            self._in_the_way = min(self._in_the_way or status, status, key=_left)

    async def acquire(
        self,
        *,
        timeout: float | None,
        once: bool = False,
        at_most: float | None = None,
        ticket: Ticket | None = None,
    ) -> HeldLock | None:
        """Wait for this call's turn, then acquire any slot; else like ``LockEngine``."""
        refuse_ticket(ticket, self.base)
        call = AcquireCall(self._objects, self.key, timeout, waits=not once)
        try:
            with self._objects.in_flight.until_closed():
                itself = self.turns.warn_of_itself(self._acquired_above()) if call.waits else None
                try:
                    if call.waits:
                        await self._turn(call)
                    elif not self.turns.try_enter():
                        self._note_failure(call, "held")
                        return None
                    try:
                        held = await self._rounds(call, at_most)
                    finally:
                        self.turns.leave()
                finally:
                    if itself is not None:
                        itself.cancel()
        except (Exception, asyncio.CancelledError) as error:
            self._note_error(call, error)
            raise
        if held is None:
            self._note_failure(call, "held")
        return held

    async def _rounds(self, call: AcquireCall, at_most: float | None) -> HeldLock | None:
        first = True
        failure: BackendError | None
        while True:
            self._in_the_way, failure = None, None
            try:
                with cut_off_at(call.round_end()):
                    if (held := await self._round(at_most, first=first)) is not None:
                        if not first:
                            say_acquired(self._objects, self.key, held, call.asked_at)
                        return held
            except BackendError as error:
                if not call.waits or not error.transient:
                    raise
                failure = error
                call.failed(error)
            except TimeoutError:
                call.until = call.loop.time()
            self._say_in_the_way(call)
            if not call.waits:
                return None
            if call.left() <= 0:
                self._time_out(call, failure)
            first, now = False, call.loop.time()
            poll = self._objects.jittered(self.fairness.poll_interval(None, now))
            await self.fairness.sleep(min(max(poll, self.fairness.away_for(now)), call.until - now))

    async def _round(self, at_most: float | None, *, first: bool) -> HeldLock | None:
        """Try the slot that this client left last, and what is free; of many, a few in each later round."""
        if not await self.ready(first=first) or self.fairness.away_for(asyncio.get_running_loop().time()) > 0:
            return None
        left = self._left.pop() if self._left else self.slots
        if left < self.slots:
            self._next = left  # free, unless another has taken it since
        elif self._next is None:
            self._next = math.floor(self._objects.jittered(self.slots, least=0.0))
        ring = [(self._next + step) % self.slots for step in range(self.slots)]
        if (tries := first or left < self.slots) and (held := await self._try(ring[:1], at_most)) is not None:
            return held
        for start in range(int(tries), self.slots if first else min(self.slots, LOOKS), LOOKS):
            some = ring[start : start + LOOKS]
            if (held := await self._try(await self._free_of(some), at_most)) is not None:
                return held
            self._next = some[-1] + 1
        return None

    async def _try(self, slots: Iterable[int], at_most: float | None) -> HeldLock | None:
        for slot in slots:
            part = self.part(slot)
            if not part.busy and (held := await part.acquire(at_most=at_most)) is not None:
                self._next = slot + 1
                self._left = [each for each in self._left if each != slot]
                return held
        return None

    async def _free_of(self, slots: Sequence[int]) -> list[int]:
        """Read slots in parallel; return those that may be free, or that say why not once acquired."""
        parts = [part for part in map(self.part, slots) if not part.busy]
        free, now = [], asyncio.get_running_loop().time()
        for part, (status, record) in zip(parts, await looks_at(parts), strict=True):
            if status.state != "held":
                free.append(part.slot)
            elif record is not None:
                self.fairness.saw_in(part.slot, record, now)
                self.note_in_the_way(status)
        return free

    def _acquired_above(self) -> str | None:
        """Return where the caller, or a task that started it, acquired all that it would wait for."""
        places = [acquired_above(held) for part in self.own_in_the_way() if (held := part.turns.held)]
        return places[0] if places and None not in places else None

    def own_in_the_way(self) -> Sequence[Inner]:
        """Return what this client holds, if nothing can be had before it is released; no I/O."""
        own = self.own()
        return own if len(own) >= self.slots else ()

    def own(self) -> list[Part]:
        """Return the slots that this client holds, or is releasing; no I/O."""
        return [part for part in self._parts.values() if part.busy]

    def _say_in_the_way(self, call: AcquireCall) -> None:
        if self._in_the_way is None:
            for part in self.own_in_the_way()[:1]:
                self.note_in_the_way(part.last_seen())
        if self._in_the_way is not None:
            say_waiting(self._objects, self.key, self._in_the_way, call)

    def _timed_out(self, call: AcquireCall, error: BackendError | None = None) -> AcquireTimeoutError:
        reason = None if error is None else by_name(str(error), self.key)
        timeout, status = call.timeout or 0.0, self._in_the_way
        return AcquireTimeoutError(key=self.key, timeout=timeout, status=status, reason=reason)

    async def finish(self, held: HeldLock | None) -> bool:
        """Like ``LockEngine``."""
        return held is not None and await self.of(held).finish(held)

    async def status(self) -> LockStatus:
        """Read all slots once; return the status of the one that is free, or will be first."""
        found: list[LockStatus] = []
        for start in range(0, self.slots, LOOKS):
            slots = range(start, min(start + LOOKS, self.slots))
            found += [status for status, _ in await looks_at([self.part(slot) for slot in slots])]
        return min(found, key=lambda status: (_FREEST.index(status.state), _left(status)))

    async def break_lock(self, status: LockStatus, *, force: bool) -> LockStatus:
        """Like ``Lock.break_lock``, for the slot of ``status``."""
        return await self._named(status.name).break_lock(status, force=force)


def say_waiting(objects: LockObjects, key: str, status: LockStatus, call: AcquireCall) -> None:
    """Report who is in the way. If it is this client, only the log says so: the store was not read."""
    objects.events.emit(
        "waiting",
        key,
        status.owner or "",
        status.fencing_token,
        status.holder or "",
        reason="kept" if status.kept else "",
        remaining=status.remaining,
        limit=call.limit(),
        only_said=status.age is None,
    )


def say_acquired(objects: LockObjects, key: str, held: HeldLock, asked_at: float) -> None:
    """Report the end of a wait, if the log has told of the wait."""
    duration = objects.clock.monotonic() - asked_at
    objects.events.emit(
        "acquired", key, held.tenure.owner, held.tenure.fencing_token, duration=duration, only_said=True
    )


def refuse_ticket(ticket: object, name: str) -> None:
    """Refuse a ticket: its bearer would skip the look at the other side."""
    if ticket is not None:
        raise ticket_error("ticket", name)


def ticket_error(setting: str, name: str) -> ConfigError:
    """Return the error of handing over a slot, or one side, by a ticket."""
    reason = "a semaphore or a reader-writer lock takes no ticket; nothing was written"
    return ConfigError(setting=setting, value=name, reason=reason)


async def looks_at(parts: Iterable[Part]) -> list[tuple[LockStatus, LockRecord | None]]:
    """Read slots in parallel."""
    return await all_of(part.look() for part in parts)


async def all_of(calls: Iterable[Awaitable[T]]) -> list[T]:
    """Return the results of calls that run at once; raises the first error, once all have ended."""
    results = []
    for each in await asyncio.gather(*calls, return_exceptions=True):
        if isinstance(each, BaseException):
            raise each
        results.append(each)
    return results


def _left(status: LockStatus) -> float:
    return math.inf if status.remaining is None else status.remaining
