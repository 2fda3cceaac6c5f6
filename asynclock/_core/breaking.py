"""Frees a lock that another holds, if an operator wants that."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from asynclock._core.protocol.outcomes import Attempt, Landed, Open
from asynclock._core.protocol.refusals import Refusals
from asynclock._core.record import LockRecord, is_no_lock
from asynclock.backend import Absent
from asynclock.errors import LockChangedError, RecordCorruptError

if TYPE_CHECKING:
    from asynclock._core.inspection import Inspection
    from asynclock._core.protocol.objects import LockObjects
    from asynclock._core.status import LockStatus


async def break_lock(inspection: Inspection, status: LockStatus, *, force: bool) -> LockStatus:
    """Return the status after ``Lock.break_lock``, on the client's loop.

    Args:
        inspection: Of the lock.
        status: See ``Lock.break_lock``.
        force: See ``Lock.break_lock``.

    Raises:
        LockChangedError: The lock has changed, or is live; nothing was written.
        RecordCorruptError: The object is clearly no lock; nothing was written.
        BackendError: The store did not answer, or refuses a write over what it still shows.
    """
    objects, key = inspection.objects, inspection.key
    current, record = await inspection.read()
    if current.version == status.version and current.state in {"absent", "free"}:
        return current
    if current.version != status.version or (current.state == "held" and not force):
        raise LockChangedError(key=key, expected=status.version, status=current)
    if current.state == "corrupt":
        await _refuse_no_lock(objects, key, status.version)
    if record is None:
        # As if a Hudi writer had dropped the fields: the next token starts from store time.
        broken = LockRecord(expired=True, valid_until_ms=0, owner=objects.issuer.fresh_owner())
    else:
        broken = record.released(nonce=objects.issuer.fresh_nonce())
    attempt = Attempt(broken, status.version, objects.now())
    refusals, bound = Refusals(), objects.timing.exit_bound
    while True:
        with objects.in_flight.until_closed(), objects.in_flight.protect(at_most=bound):
            outcome = await objects.write(key, attempt)
        after, found = await inspection.read()
        if isinstance(outcome, Landed) or found == broken:
            return after
        if after.version != status.version:
            raise LockChangedError(key=key, expected=status.version, status=after) from outcome.error
        if isinstance(outcome, Open):
            raise outcome.error
        shown = status.version, None
        refusals.note(shown, shown)
        if refusals.final:
            raise refusals.error(outcome.error, url=objects.events.url)
        await asyncio.sleep(objects.jittered(objects.timing.poll_interval))


async def _refuse_no_lock(objects: LockObjects, key: str, version: str | None) -> None:
    stored = await objects.fetch(key)
    if not isinstance(stored, Absent) and stored.version == version and is_no_lock(stored.body):
        reason = "the object is not a lock: break_lock leaves it as it is; give the lock another name"
        raise RecordCorruptError(key=key, reason=reason, version=version)
