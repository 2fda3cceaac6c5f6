"""Looks at one lock without acquiring it, and what may follow from a look: to break it, or to prune it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from asynclock._core.protocol.decisions import judge, may_prune
from asynclock._core.protocol.objects import Attempt, Landed, Open
from asynclock._core.protocol.refusals import Refusals
from asynclock._core.record import LockRecord, is_no_lock
from asynclock._core.status import corrupt_status, seen_status
from asynclock.backend import Absent
from asynclock.errors import LockChangedError, RecordCorruptError

if TYPE_CHECKING:
    from collections.abc import Callable

    from asynclock._core.protocol.decisions import Observation, Seen, Verdict
    from asynclock._core.protocol.objects import LockObjects
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

    async def _refuse_no_lock(self, version: str | None) -> None:
        stored = await self._objects.fetch(self._key)
        if not isinstance(stored, Absent) and stored.version == version and is_no_lock(stored.body):
            reason = "it is evidently no lock: break_lock leaves it alone; give the lock another name"
            raise RecordCorruptError(key=self._key, reason=reason, version=version)

    async def break_lock(self, status: LockStatus, *, force: bool) -> LockStatus:
        """See ``Lock.break_lock``."""
        current, record = await self.read()
        if current.version == status.version and current.state in {"absent", "free"}:
            return current
        if current.version != status.version or (current.state == "held" and not force):
            raise LockChangedError(key=self._key, expected=status.version, status=current)
        if current.state == "corrupt":
            await self._refuse_no_lock(status.version)
        objects = self._objects
        if record is None:
            # As if a Hudi writer had dropped the fields: the next token starts from store time.
            broken = LockRecord(expired=True, valid_until_ms=0, owner=objects.issuer.fresh_owner())
        else:
            broken = record.released(nonce=objects.issuer.fresh_nonce())
        attempt = Attempt(broken, status.version, objects.now())
        refusals, bound = Refusals(), objects.timing.exit_bound
        while True:
            with objects.in_flight.until_closed(), objects.in_flight.protect(at_most=bound):
                outcome = await objects.write(self._key, attempt)
            after, found = await self.read()
            if isinstance(outcome, Landed) or found == broken:
                return after
            if after.version != status.version:
                raise LockChangedError(
                    key=self._key, expected=status.version, status=after
                ) from outcome.error
            if isinstance(outcome, Open):
                raise outcome.error
            shown = status.version, None
            refusals.note(shown, shown)
            if refusals.final:
                raise refusals.error(outcome.error, url=objects.events.url)
            await asyncio.sleep(objects.jittered(objects.timing.poll_interval))
