"""A model of Hudi's own ``StorageBasedLockProvider``: the Java writer that shares the lock.

It relies on its wall clock and 500 ms of drift, knows three fields and drops all others on its
next write, never reads back after a failed write, and revives an expired lock that nobody took.

Source: Apache Hudi 1.2.0, ``StorageBasedLockProvider.java`` and ``StorageLockFile.java``.
"""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import orjson

from asynclock.backend import Absent
from asynclock.errors import BackendError, BackendUnavailableError, PreconditionFailedError

if TYPE_CHECKING:
    from random import Random

    from asynclock.backend import Backend, Written
    from asynclock.clock import Clock

DRIFT_MS: Final = 500
"""``CLOCK_DRIFT_BUFFER_MS``."""
RETRY_WAIT: Final = 1.0
"""``DEFAULT_LOCK_ACQUIRE_RETRY_WAIT_TIME_IN_MILLIS``, in seconds."""
THROTTLE_WAITS: Final = (1.0, 2.0, 4.0)
"""Pauses between the tries of a release that is throttled, in seconds."""
CALL_TIMEOUT_SHARE: Final = 5
"""A call may take the validity divided by this."""


@dataclass(slots=True)
class _Held:
    version: str
    valid_until_ms: int


class HudiPeer:
    """One lock provider instance: one owner, at most one lock.

    Args:
        backend: The store.
        key: Key of the lock object.
        clock: Only its wall clock is used.
        rng: Source of the owner id.
        validity: ``hoodie.write.lock.storage.validity.timeout.secs``, in seconds.
        renew_interval: ``hoodie.write.lock.storage.renew.interval.secs``, in seconds.

    Attributes:
        owner: Its owner id.
    """

    def __init__(
        self,
        backend: Backend,
        key: str,
        *,
        clock: Clock,
        rng: Random,
        validity: float,
        renew_interval: float,
    ) -> None:
        self.owner = str(uuid.UUID(int=rng.getrandbits(128), version=4))
        self._backend = backend
        self._key = key
        self._clock = clock
        self._validity = validity
        self._renew_interval = renew_interval
        self._lock: _Held | None = None
        self._heartbeat: asyncio.Task[None] | None = None
        self._ticking = asyncio.Lock()
        self._unlocking = False

    @property
    def held(self) -> bool:
        """Whether it holds a lock that is valid by its own wall clock."""
        held = self._lock is not None and self._now_ms() <= self._lock.valid_until_ms
        return held and not self._unlocking

    async def try_lock(self, timeout: float) -> bool:
        """Try once a second until ``timeout`` seconds are over."""
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout
        while loop.time() < until:
            if await self._try_once():
                self._heartbeat = loop.create_task(self._renew_for_ever())
                return True
            await asyncio.sleep(RETRY_WAIT)
        return False

    async def unlock(self) -> None:
        """Write ``expired:true`` on the version in memory; a 5xx leaves the lock to expire."""
        self._unlocking = True
        await self._stop_heartbeat()
        for pause in (*THROTTLE_WAITS, None):
            held = self._lock
            if held is None:
                return
            try:
                await self._put(expired=True, valid_until_ms=held.valid_until_ms, version=held.version)
            except BackendUnavailableError:
                if pause is not None:
                    await asyncio.sleep(pause)
                    continue
            except (BackendError, TimeoutError):
                pass
            self._lock = None

    async def close(self) -> None:
        """Unlock, as the provider's shutdown hook does."""
        await self.unlock()

    async def _try_once(self) -> bool:
        try:
            async with asyncio.timeout(self._validity / CALL_TIMEOUT_SHARE):
                stored = await self._backend.get(self._key)
            if isinstance(stored, Absent):
                version = None
            elif self._is_free(orjson.loads(stored.body)):
                version = stored.version
            else:
                return False
            valid_until_ms = self._now_ms() + int(self._validity * 1000)
            written = await self._put(expired=False, valid_until_ms=valid_until_ms, version=version)
        except (BackendError, TimeoutError, orjson.JSONDecodeError):
            return False
        self._lock = _Held(written.version, valid_until_ms)
        return True

    def _is_free(self, fields: dict[str, Any]) -> bool:
        return bool(fields["expired"]) or self._now_ms() > fields["validUntil"] + DRIFT_MS

    async def _renew_for_ever(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time() + self._renew_interval
        while True:
            await asyncio.sleep(max(0.0, due - loop.time()))
            # scheduleAtFixedRate: a late tick does not move the next one.
            due += self._renew_interval
            async with self._ticking:
                if not await self._renew():
                    return

    async def _renew(self) -> bool:
        """Renew without a read and without asking whether the lock has expired."""
        held = self._lock
        if held is None:
            return False
        valid_until_ms = self._now_ms() + int(self._validity * 1000)
        try:
            written = await self._put(expired=False, valid_until_ms=valid_until_ms, version=held.version)
        except PreconditionFailedError:
            # The heartbeat interrupts the writer, which then holds nothing.
            self._lock = None
            return False
        except (BackendError, TimeoutError):
            return True
        if self._lock is held:
            self._lock = _Held(written.version, valid_until_ms)
        return True

    async def _stop_heartbeat(self) -> None:
        heartbeat, self._heartbeat = self._heartbeat, None
        if heartbeat is not None:
            async with self._ticking:  # a renewal under way is waited for
                heartbeat.cancel()
            await asyncio.wait([heartbeat])

    async def _put(self, *, expired: bool, valid_until_ms: int, version: str | None) -> Written:
        body = orjson.dumps({"expired": expired, "validUntil": valid_until_ms, "owner": self.owner})
        async with asyncio.timeout(self._validity / CALL_TIMEOUT_SHARE):
            if version is None:
                return await self._backend.put_if_absent(self._key, body)
            return await self._backend.put_if_match(self._key, body, version)

    def _now_ms(self) -> int:
        return int(self._clock.wall() * 1000)
