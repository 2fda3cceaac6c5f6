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
    """Reads one lock of a client. On the client's loop."""

    def __init__(
        self, objects: LockObjects, observation: Observation, *, name: str, key: str, url: str
    ) -> None:
        self._objects = objects
        self._observation = observation
        self._name = name
        self._key = key
        self._url = url

    async def read(self) -> tuple[LockStatus, LockRecord | None]:
        """Read the lock once; returns its record too, if it is one."""
        try:
            seen = await self._objects.read(self._key)
        except RecordCorruptError as corrupt:
            return corrupt_status(self._name, self._url, corrupt.version, corrupt.reason), None
        self._observation.note(seen)
        verdict = judge(seen, self._observation, self._objects.timing)
        self._observation.note_judged(seen, verdict)
        return self._status(seen, verdict), seen.record

    def last_seen(self) -> LockStatus | None:
        """Return what stood in the way at the last look; None: it was never read."""
        return None if self._observation.last is None else self._status(*self._observation.last)

    def watch(self, tell: Callable[[LockStatus], object]) -> Callable[[], None]:
        """Call ``tell`` with what each look shows; returns what ends that."""
        watchers = self._observation.watchers

        def look(seen: Seen, verdict: Verdict) -> None:
            tell(self._status(seen, verdict))

        watchers.append(look)
        return lambda: watchers.remove(look)

    def _status(self, seen: Seen, verdict: Verdict) -> LockStatus:
        return seen_status(self._name, self._url, seen, verdict, self._objects.timing)

    async def prunable(self, older_than: float) -> str | None:
        """Read the lock once; return its version if that may be deleted (rule 22), else None."""
        try:
            seen = await self._objects.read(self._key)
        except RecordCorruptError:
            return None
        return seen.version if may_prune(seen, older_than, self._objects.timing) else None
