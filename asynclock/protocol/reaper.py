"""Rules 3 and 6: freeing a lock, and leaving no write behind that could land later."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from asynclock.errors import BackendError, RecordCorruptError
from asynclock.protocol.attempts import Attempt

if TYPE_CHECKING:
    from asynclock.protocol.attempts import Attempts
    from asynclock.protocol.judgement import Seen
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
) -> Attempt | None:
    """Write a free record over ``base``, so that nothing of this owner is held or can still land.

    Success kills every write that is still under way on ``base``. Where the base is gone, the
    object is read once and freed if it bears a nonce of ours. Repeated with backoff while the
    outcome is unknown, for at most L plus a request timeout.

    Args:
        store: The client's store.
        key: Key of the lock object.
        record: The record whose owner, ``validUntil`` and token the free record keeps.
        base: Version that the open or last write was based on or made; None: there was no object.
        attempts: The nonces that are ours.
        keep_token: False drops our fields, as Hudi does: the token is still from the future and
            no successor may build on it (rule 11).

    Returns:
        The write that freed the lock; None where another's record stands or the time ran out.
    """
    loop = asyncio.get_running_loop()
    until = loop.time() + store.terms.reap_for
    pause = store.terms.poll_interval / 4
    sent: list[Attempt] = []
    while True:
        await store.pace(key)
        attempt = Attempt(
            record.released(nonce=store.fresh_nonce() if keep_token else None), base, store.now()
        )
        sent.append(attempt)
        try:
            if await store.write(key, attempt) is None:
                return attempt
            seen = await store.read(key)
        except RecordCorruptError:
            return None
        except BackendError:
            pass  # even a refusal may pass: permissions and tokens come back
        else:
            if (landed := _landed(sent, seen)) is not None:
                return landed
            mine = attempts.find(seen)
            if mine is not None and seen.version != base:
                record, base = mine.record, seen.version
                continue
            if seen.version != base:
                return None
        if loop.time() >= until:
            return None
        await asyncio.sleep(store.jittered(pause))
        pause = min(pause * 2, store.terms.renew_interval)


def _landed(sent: list[Attempt], seen: Seen) -> Attempt | None:
    for attempt in sent:
        # A free record without a nonce is known by its owner, which is fresh for each acquisition.
        if (
            seen.record is not None
            and seen.record.expired
            and ((seen.record.nonce, seen.record.owner) == (attempt.record.nonce, attempt.record.owner))
        ):
            attempt.version = seen.version
            return attempt
    return None
