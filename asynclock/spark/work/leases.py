"""Wait for a lease that another process may keep for hours."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from asynclock import sync
from asynclock._core.portal import run_on
from asynclock.errors import AcquireTimeoutError

if TYPE_CHECKING:
    import threading

_STEP_SECONDS: Final = 0.5


def acquire_until(
    lock: sync.Lock,
    stop: threading.Event | None = None,
    *,
    own: sync.Lease | None = None,
    timeout: float | None = None,
) -> sync.Lease:
    """Return the lease of a lock; the log names its holder meanwhile.

    Args:
        lock: The lock.
        stop: Set it to end the wait.
        own: A lease of the caller, which must stay held.
        timeout: Longest wait, in seconds; None: no limit.

    Raises:
        AcquireTimeoutError: The timeout has passed, or ``stop`` was set.
        LeaseLostError: The caller's own lease was lost.
    """
    engine = lock._core

    async def acquire() -> sync.Lease:
        acquiring = asyncio.ensure_future(
            run_on(engine.home(), lambda: engine.acquire(timeout=timeout), undo=engine.finish)
        )
        try:
            while not (await asyncio.wait([acquiring], timeout=_STEP_SECONDS))[0]:
                if own is not None:
                    own.check()
                if stop is not None and stop.is_set():
                    raise AcquireTimeoutError(key=lock.key, timeout=0.0)
            held = acquiring.result()
            assert held is not None  # noqa: S101  only one try gives None
            return sync.Lease(held, engine)
        finally:
            acquiring.cancel()
            await asyncio.wait([acquiring])

    if own is not None:
        own.check()
    return asyncio.run(acquire())
