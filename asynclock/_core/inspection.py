"""Looks at one lock without acquiring it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asynclock._core.protocol.decisions import judge, may_prune
from asynclock._core.status import corrupt_status, seen_status
from asynclock.errors import RecordCorruptError

if TYPE_CHECKING:
    from collections.abc import Callable

    from asynclock._core.protocol.decisions import Observation, Seen, Verdict
    from asynclock._core.protocol.objects import LockObjects
    from asynclock._core.record import LockRecord
    from asynclock._core.status import LockStatus


class Inspection:
    """Reads one lock of a client. On the client's loop.

    Attributes:
        objects: How the client reads and writes.
        observation: Its view of the object.
        name: Of the lock.
        key: Of the lock's object.
        url: Of the lock.
    """

    def __init__(
        self, objects: LockObjects, observation: Observation, *, name: str, key: str, url: str
    ) -> None:
        self.objects: LockObjects = objects
        self.observation: Observation = observation
        self.name: str = name
        self.key: str = key
        self.url: str = url

    async def read(self) -> tuple[LockStatus, LockRecord | None]:
        """Read the lock once; returns its record too, if it is one."""
        try:
            seen = await self.objects.read(self.key)
        except RecordCorruptError as corrupt:
            return corrupt_status(self.name, self.url, corrupt.version, corrupt.reason), None
        self.observation.note(seen)
        verdict = judge(seen, self.observation, self.objects.timing)
        self.observation.note_judged(seen, verdict)
        return self._status(seen, verdict), seen.record

    def last_seen(self) -> LockStatus | None:
        """Return what stood in the way at the last look; None: it was never read."""
        return None if self.observation.last is None else self._status(*self.observation.last)

    def watch(self, tell: Callable[[LockStatus], object]) -> Callable[[], None]:
        """Call ``tell`` with what each look shows; returns what ends that."""
        watchers = self.observation.watchers

        def look(seen: Seen, verdict: Verdict) -> None:
            tell(self._status(seen, verdict))

        watchers.append(look)
        return lambda: watchers.remove(look)

    def _status(self, seen: Seen, verdict: Verdict) -> LockStatus:
        return seen_status(self.name, self.url, seen, verdict, self.objects.timing)

    async def prunable(self, older_than: float) -> str | None:
        """Read the lock once; return its version if that may be deleted (rule 22), else None."""
        try:
            seen = await self.objects.read(self.key)
        except RecordCorruptError:
            return None
        return seen.version if may_prune(seen, older_than, self.objects.timing) else None
