"""Wait for a lease, or for an answer of its store, which may take hours."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Final, TypeVar

from asynclock import sync
from asynclock._shared.internals import engine_of, run_on
from asynclock.errors import AcquireTimeoutError

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Coroutine

T = TypeVar("T")
STEP_SECONDS: Final = 0.5
"""How often a wait looks whether it has to end."""


class StoppedError(Exception):
    """A wait was stopped; never the user's."""


async def heeding(
    call: Coroutine[object, object, T], check: Callable[[], object], *, until: float = math.inf
) -> T:
    """Return the result of ``call``, which is cancelled as soon as ``check`` raises.

    Args:
        call: What may take long.
        check: Raises what is to end the wait; called twice a second.
        until: Loop time at which the wait ends.

    Raises:
        TimeoutError: There was no result by then.
    """
    loop, running = asyncio.get_running_loop(), asyncio.ensure_future(call)
    try:
        while not (await asyncio.wait([running], timeout=min(STEP_SECONDS, until - loop.time())))[0]:
            check()
            if loop.time() >= until:
                raise TimeoutError
        return running.result()
    finally:
        running.cancel()
        await asyncio.wait([running])
        if not running.cancelled():
            running.exception()  # read, so that the loop does not report it


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
    engine = engine_of(lock)

    def check() -> None:
        if own is not None:
            own.check()
        if stop is not None and stop.is_set():
            raise AcquireTimeoutError(key=lock.key, timeout=0.0)

    async def acquire() -> sync.Lease:
        start = run_on(engine.home(), lambda: engine.acquire(timeout=timeout), undo=engine.finish)
        held = await heeding(start, check)
        assert held is not None  # noqa: S101  only one try gives None
        return sync.Lease(held, engine)

    if own is not None:
        own.check()
    return asyncio.run(acquire())
