"""A semaphore: its slots, and how many there are, which the store keeps (rule 31)."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, ClassVar, Final

from asynclock._core.slots import LOOKS, Slots
from asynclock.backend import MAX_BODY, Absent
from asynclock.errors import ConfigError, PreconditionFailedError, RecordCorruptError

if TYPE_CHECKING:
    from asynclock._core.status import LockStatus

SEMAPHORE: Final = "slot=*"
"""The last segment of a semaphore's name among the engines; no lock has such a name."""
MAX_SLOTS: Final = 64
_BODY: Final = re.compile(rb'\{"slots":([1-9][0-9]?)\}\n?')
_ROUNDS: Final = 10


def checked_slots(slots: int) -> int:
    """Return ``slots``.

    Raises:
        ConfigError: It is not a number from 1 to 64.
    """
    if type(slots) is int and 1 <= slots <= MAX_SLOTS:
        return slots
    raise ConfigError(setting="slots", value=slots, reason=f"must be a whole number from 1 to {MAX_SLOTS}")


class SemaphoreEngine(Slots):
    """The semaphore of one name. ``slots`` is what the store has shown last."""

    prefix: ClassVar[str] = "slot="
    slots: int

    def __init__(self, **common: Any) -> None:  # noqa: ANN401  of ``LockEngine``
        super().__init__(**common)
        self._asked = 0
        self._agreed = False
        self.size_key: str = f"{self.base}/slots"

    def ask(self, slots: int) -> None:
        """Note the number that a program names; no I/O.

        Raises:
            ConfigError: This client uses another.
        """
        if not self._agreed:
            self._asked = self.slots = slots
        elif slots not in {self._asked, self.slots}:
            raise self._two_sizes(slots, self.slots)

    def refuse_nested(self, who: object) -> None:
        """Like ``LockEngine`` if there is only one slot: otherwise another may be free."""
        if self.slots == 1:
            super().refuse_nested(who)

    async def ready(self, *, first: bool) -> bool:
        """Compare the numbers before the first acquisition, and look for a new one while waiting."""
        if not self._agreed:
            found = await self._size(create=True)
            if found != self._asked:
                raise self._two_sizes(self._asked, found)
            self._agreed = True
        elif not first:
            self.slots = await self._size(create=True)
        self.fairness.reads(math.ceil(self.slots / LOOKS))
        return True

    async def admits(self, slot: int) -> bool:
        """Whether the store still has that slot: the number may have been lowered meanwhile."""
        self.slots = await self._size(create=True)
        return slot < self.slots

    async def status(self) -> LockStatus:
        """Like ``Slots``, for as many slots as the store has."""
        self.slots = await self._size(create=False)
        return await super().status()

    async def resize(self, slots: int) -> None:
        """Change the number in the store; see ``asynclock.Semaphore.resize``."""
        for left in reversed(range(_ROUNDS)):
            found, version = await self._stored()
            if found == slots:
                break
            try:
                await self._objects.put(self.size_key, _body(slots), version)
                break
            except PreconditionFailedError:  # another has changed it since
                if not left:
                    raise
        self._asked, self.slots, self._agreed = slots, slots, True
        self.fairness.wake()

    async def _size(self, *, create: bool) -> int:
        """Return the number in the store; if there is none, the one that was asked for, written or not."""
        found, _ = await self._stored()
        if found is None and create:
            try:
                await self._objects.put(self.size_key, _body(self.slots), None)
            except PreconditionFailedError:
                found, _ = await self._stored()
        return found or self.slots

    async def _stored(self) -> tuple[int | None, str | None]:
        stored = await self._objects.fetch(self.size_key)
        if isinstance(stored, Absent):
            return None, None
        found = _BODY.fullmatch(stored.body) if len(stored.body) <= MAX_BODY else None
        if found is None or int(found[1]) > MAX_SLOTS:
            reason = "does not say how many slots the semaphore has"
            raise RecordCorruptError(key=self.size_key, reason=reason, version=stored.version)
        return int(found[1]), stored.version

    def _two_sizes(self, asked: int, found: int) -> ConfigError:
        reason = (
            f"the semaphore {self.base!r} has {found} slots; nothing was written. Name that number, or "
            f"change it for all with resize({asked})"
        )
        return ConfigError(setting="slots", value=asked, reason=reason)


def _body(slots: int) -> bytes:
    return b'{"slots":%d}\n' % slots
