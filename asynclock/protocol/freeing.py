"""Freeing a lock, and leaving no write behind that could land later (rules 3 and 6)."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING

from asynclock.errors import BackendError, ConfigError, RecordCorruptError
from asynclock.protocol.attempts import Attempt
from asynclock.protocol.decisions import Displaced, displaced

if TYPE_CHECKING:
    from asynclock.protocol.attempts import Attempts
    from asynclock.protocol.objects import LockObjects
    from asynclock.record import LockRecord


async def free(
    objects: LockObjects,
    key: str,
    *,
    head: Attempt,
    attempts: Attempts,
    limit: float | None = None,
    kept_until: float = -math.inf,
) -> Attempt | Displaced | None:
    """Write a free record, so that nothing of this owner is held or can still land (rule 3).

    It is conditional on the version that ``head`` made, or was based on if it is not known to have
    landed: success makes every write that is still under way on that version fail. If the version is
    gone, the object is read once, and freed if it shows one of ``attempts``. Repeated with backoff
    while the outcome is unknown, for ``limit`` seconds; None: L plus a request timeout.

    Until ``kept_until``, by the boot clock, the record is not free but a live one that promises what is
    left of that time. Nobody believes in it and nobody renews it (rule 21).

    Returns:
        The write that freed the lock; or what stands in its place; or None if the store did not
        say. What stands in its place proves no loss if a free record may have landed before.
    """
    loop = asyncio.get_running_loop()
    until = loop.time() + (objects.timing.clean_up_for if limit is None else limit)
    pause = objects.timing.poll_interval / 4
    # No successor may build on a token from the future: drop our fields, as Hudi does (rule 11).
    keep_token = objects.until_settled(attempts.settled_at()) <= 0
    while True:
        await objects.pace(key)
        base = head.base if head.version is None else head.version
        nonce = objects.fresh_nonce() if keep_token else None
        attempt = _release(objects, head.record, base, nonce, kept_until)
        attempts.add_release(attempt.record)
        try:
            if await objects.write(key, attempt) is None:
                return attempt
            attempts.doubtful |= attempt.unseen
            seen = await objects.read(key)
        except RecordCorruptError as corrupt:
            return Displaced(f"its object is corrupt: {corrupt.reason}")
        except (BackendError, ConfigError):
            pass  # try again, even after a refusal: permissions and credentials come back
        else:
            if seen.record is not None and attempts.has_released(seen, head.record.owner):
                return Attempt(seen.record, base, attempt.sent, seen.version, unseen=True)
            if seen.version != base:
                mine = attempts.recognise(seen)
                if mine is None:
                    return displaced(seen, head.record.owner, proven=not attempts.doubtful)
                head = mine
                continue
        if loop.time() >= until or objects.closed is not None:
            return None
        await asyncio.sleep(objects.jittered(pause))
        pause = min(pause * 2, objects.timing.renew_interval)


def _release(
    objects: LockObjects, record: LockRecord, base: str | None, nonce: str | None, kept_until: float
) -> Attempt:
    """Return the write that releases ``record`` over ``base``."""
    now = objects.now()
    left = kept_until - now.boot
    if nonce is None or left <= 0:
        return Attempt(record.released(nonce=nonce), base, now)
    valid_until = objects.promise(now, lease=left) or record.valid_until_ms
    return Attempt(record.kept(nonce=nonce, valid_until_ms=valid_until, seconds=left), base, now)
