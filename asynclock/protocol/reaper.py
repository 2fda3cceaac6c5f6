"""Rules 3 and 6: freeing a lock, and leaving no write behind that could land later."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from asynclock.errors import BackendError, ConfigError, RecordCorruptError
from asynclock.protocol.attempts import Attempt
from asynclock.protocol.judgement import Displaced, displaced

if TYPE_CHECKING:
    from asynclock.protocol.attempts import Attempts
    from asynclock.protocol.store import Store
    from asynclock.record import LockRecord


async def free(
    store: Store,
    key: str,
    *,
    record: LockRecord,
    base: str | None,
    attempts: Attempts,
    keep_token: bool = True,
    limit: float | None = None,
) -> Attempt | Displaced | None:
    """Write a free record over ``base``, so that nothing of this owner is held or can still land.

    Success kills every write that is still under way on ``base``. Where the base is gone, the
    object is read once and freed if it bears a nonce of ours. Repeated with backoff while the
    outcome is unknown.

    Args:
        store: The client's store.
        key: Key of the lock object.
        record: The record whose owner, ``validUntil`` and token the free record keeps.
        base: Version that the open or last write was based on or made; None: there was no object.
        attempts: The nonces that are ours.
        keep_token: False drops our fields, as Hudi does: the token is still from the future and
            no successor may build on it (rule 11).
        limit: Seconds after which to give up; None: L plus a request timeout (rule 3).

    Returns:
        The write that freed the lock; or what stands there instead of a record of this owner; or
        None where the store did not say, and the same call may go on. Where a free record may have
        landed before another took the lock, what stands there proves no loss.
    """
    loop = asyncio.get_running_loop()
    until = loop.time() + (store.terms.reap_for if limit is None else limit)
    pause = store.terms.poll_interval / 4
    while True:
        await store.pace(key)
        nonce = store.fresh_nonce() if keep_token else None
        attempt = Attempt(record.released(nonce=nonce), base, store.now())
        attempts.add_release(attempt.record)
        try:
            if await store.write(key, attempt) is None:
                return attempt
            attempts.note_end(attempt)
            seen = await store.read(key)
        except RecordCorruptError as corrupt:
            return Displaced(f"its object is corrupt: {corrupt.reason}")
        except (BackendError, ConfigError):
            pass  # even a refusal may pass: permissions and tokens come back
        else:
            if seen.record is not None and attempts.has_released(seen, record.owner):
                return Attempt(seen.record, base, attempt.sent, seen.version)
            if seen.version != base:
                mine = attempts.find(seen)
                if mine is None:
                    return displaced(seen, record.owner)._replace(proven=not attempts.doubtful)
                record, base = mine.record, seen.version
                continue
        if loop.time() >= until or store.closed is not None:
            return None
        await asyncio.sleep(store.jittered(pause))
        pause = min(pause * 2, store.terms.renew_interval)
