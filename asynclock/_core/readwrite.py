"""A reader-writer lock: slots for readers, a lock for the writer, and who looks when (rule 32)."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Final

from asynclock._core.acquirers import acquired_above
from asynclock._core.portal import cut_off_at
from asynclock._core.protocol.acquire_call import AcquireCall
from asynclock._core.slots import (
    Inner,
    Part,
    Slots,
    all_of,
    refuse_ticket,
    say_acquired,
    say_waiting,
)
from asynclock.errors import BackendError, RecordCorruptError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from asynclock._core.engine import LockEngine
    from asynclock._core.protocol.held import HeldLock
    from asynclock._core.status import LockStatus
    from asynclock._core.ticket import Ticket

READERS: Final = "rw=r*"
"""The last segment of the readers' name among the engines; no lock has such a name."""
WRITER: Final = "rw=w"
MOST_READERS: Final = 64
"""Never another number: a writer that knows of fewer slots would overlook a reader."""
_LOOKS: Final = 16
"""Slots that a writer reads at a time."""


class Readers(Slots):
    """The readers' side of a name: as many slots as there may be readers.

    Attributes:
        writer: The other side.
    """

    prefix: ClassVar[str] = "rw=r"
    slots: int

    def __init__(self, **common: Any) -> None:  # noqa: ANN401  of ``LockEngine``
        super().__init__(**common)
        self.slots = MOST_READERS
        self.fairness.reads(0)  # readers leave no turn to one another
        self._kept_out = False
        both = {"name": f"{self.base}/{WRITER}", "url": f"{self.url}/{WRITER}"}
        self.writer: Writer = Writer(self, **{**common, **both})

    def stand_back(self, until: float) -> None:
        """Like ``LockEngine``, for both sides."""
        super().stand_back(until)
        self.writer.stand_back(until)

    def remembers(self, now: float) -> bool:
        """Like ``LockEngine``, for both sides."""
        return super().remembers(now) or self.writer.remembers(now)

    def refuse_upgrade(self, who: object) -> None:
        """Refuse the writer, who would wait for itself."""
        if self.writer.in_body(who):
            raise RuntimeError(
                f"this task or thread writes {self.base!r}, so its read would wait for itself; a writer may "
                "read under the lease that it has"
            )

    def note_end(self, slot: int) -> None:
        """Like ``Slots``, and wake the writer of this client, which may have waited for this reader."""
        super().note_end(slot)
        self.writer.wake()

    async def ready(self, *, first: bool) -> bool:
        """Take no slot in front of a writer that was there at the last look."""
        return (first and not self._kept_out) or await self._no_writer()

    async def admits(self, slot: int) -> bool:
        """Whether there is no writer, now that the slot is held: any later one will see it."""
        del slot
        return await self._no_writer()

    def own_in_the_way(self) -> Sequence[Inner]:
        """Like ``Slots``, the writer first."""
        return [self.writer] if self.writer.busy else super().own_in_the_way()

    async def _no_writer(self) -> bool:
        # Judged by rule 8, and never written over: that writer has stopped believing.
        status = self.writer.last_seen() if self.writer.busy else (await self.writer.look())[0]
        self.note_in_the_way(status)
        if status is not None and status.state == "corrupt":
            raise corrupt_error(status, self.writer.key)
        self._kept_out = status is not None and status.state == "held"
        return not self._kept_out

    async def status(self) -> LockStatus:
        """Return that of the writer, if one has the lock, else of a slot that is free, or will be first."""
        status, _ = await self.writer.look()
        return status if status.state in {"held", "corrupt"} else await super().status()

    def _named(self, name: str) -> LockEngine:
        return self.writer if name == self.writer.name else super()._named(name)


class Writer(Inner):
    """The writer's side of a name: one lock, and a look at all slots of the readers.

    Args:
        readers: The other side.
    """

    def __init__(self, readers: Readers, **common: Any) -> None:  # noqa: ANN401  of ``LockEngine``
        super().__init__(**common)
        self._readers = readers
        self._reader: LockStatus | None = None

    def last_seen(self) -> LockStatus | None:
        """Return the reader that the writer waits for; else like ``LockEngine``."""
        return self._reader or super().last_seen()

    def wake(self) -> None:
        """Look at the readers now."""
        self.turns.fairness.wake()

    def refuse_upgrade(self, who: object) -> None:
        """Refuse a reader, who would wait for itself."""
        if self._readers.in_body(who):
            raise RuntimeError(
                f"this task or thread reads {self._readers.base!r}, so its write would wait for itself, and "
                "two such readers for each other; release the lease of the read first"
            )

    async def acquire(
        self,
        *,
        timeout: float | None,
        once: bool = False,
        at_most: float | None = None,
        ticket: Ticket | None = None,
    ) -> HeldLock | None:
        """Acquire like ``LockEngine``, and then wait until the earlier readers have left."""
        refuse_ticket(ticket, self._readers.base)
        call = AcquireCall(self._objects, self.key, timeout, waits=not once)
        while True:
            self._reader = None
            left = None if timeout is None else max(0.0, call.left())
            held = await super().acquire(timeout=left, once=once, at_most=at_most)
            if held is None:
                return None
            try:
                with self._objects.in_flight.until_closed(), self._warning():
                    # Announced and confirmed; only now look at the readers, for each lease again.
                    alone = await self._alone(held, call)
            except BaseException as error:
                await self.finish(held)
                self._note_error(call, error)
                raise
            if alone:
                held.ending.future.add_done_callback(lambda _: self._readers.fairness.wake())
                return held
            await self.finish(held)
            if once or call.left() <= 0:
                self._note_failure(call, "held")
            if once:
                return None
            if call.left() <= 0:
                self._time_out(call, None)

    @contextmanager
    def _warning(self) -> Iterator[None]:
        """Warn of a body that waits for a reader which is its own task, or one that started it."""
        places = (acquired_above(held) for part in self._readers.own() if (held := part.turns.held))
        itself = self.turns.warn_of_itself(next(filter(None, places), None))
        try:
            yield
        finally:
            if itself is not None:
                itself.cancel()

    async def _alone(self, held: HeldLock, call: AcquireCall) -> bool:
        """Read each slot until it was seen free; True if the lock was held all the while."""
        objects = self._objects
        began = objects.clock.monotonic()
        inside = [self._readers.part(slot) for slot in range(self._readers.slots)]
        while True:
            try:
                with cut_off_at(call.round_end()):
                    await self._leave_out_free(inside)
            except TimeoutError:
                return False
            except BackendError as error:
                if call.once or not error.transient:
                    raise
                call.failed(error, held.tenure.owner)
            if not inside or call.once or call.left() <= 0 or held.belief.end_if_due() <= 0:
                if not inside and self._reader is not None:
                    say_acquired(objects, self.key, held, began)
                return not inside and held.belief.end_if_due() > 0
            if own := [part for part in inside if part.busy]:
                self._reader = own[0].last_seen()
            if self._reader is not None:
                say_waiting(objects, self.key, self._reader, call)
            await self.turns.fairness.sleep(min(objects.jittered(objects.timing.poll_interval), call.left()))

    async def _leave_out_free(self, readers: list[Part], *, own: bool = False) -> None:
        """Read slots, and take those that are free out of the list, whatever becomes of the other reads.

        Args:
            readers: The slots.
            own: Read also those that this client holds.
        """
        asked = [part for part in readers if own or not part.busy]

        async def look(part: Part) -> None:
            status, _ = await part.look()
            if status.state == "corrupt":
                raise corrupt_error(status, part.key)
            if status.state == "held":
                self._reader = status
            else:
                readers.remove(part)

        for start in range(0, len(asked), _LOOKS):
            await all_of(look(part) for part in asked[start : start + _LOOKS])

    async def status(self) -> LockStatus:
        """Return the status of the writer, if one has the lock, else of a reader, if one has it."""
        status, _ = await self.look()
        if status.state in {"held", "corrupt"}:
            return status
        self._reader = None
        await self._leave_out_free(
            [self._readers.part(slot) for slot in range(self._readers.slots)], own=True
        )
        return self._reader or status

    async def break_lock(self, status: LockStatus, *, force: bool) -> LockStatus:
        """Like ``Lock.break_lock``, for either side."""
        if status.name == self.name:
            return await super().break_lock(status, force=force)
        return await self._readers.break_lock(status, force=force)


def corrupt_error(status: LockStatus, key: str) -> RecordCorruptError:
    """Return the error of a status: an object that is not a record is neither held nor free."""
    return RecordCorruptError(key=key, reason=status.reason or "", version=status.version)
