"""One run of a job in a period, by any of its callers: what ``once`` of both libraries shares."""

from __future__ import annotations

import asyncio
import functools
import inspect
import math
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

import orjson

from asynclock._core.fenced import Fenced
from asynclock._log import log
from asynclock.clock import WITNESS_SPACING
from asynclock.errors import (
    AcquireTimeoutError,
    BackendError,
    BackendUnavailableError,
    ConfigError,
    RecordCorruptError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from asynclock._core.client import Core
    from asynclock._core.handles import LeaseHandle
    from asynclock._kinds import Kind
    from asynclock.lock import Lock

P = ParamSpec("P")
T = TypeVar("T")
_LOOKS: Final = 30
"""Answers after which a store whose time is still unknown is an error."""


class Periods:
    """The periods of one job, and the mark of the last one that a run has finished in.

    A period begins at each multiple of ``every``, by the store's clock. A lock that is held tells that a run
    is under way, and one that is free tells nothing; only the mark tells that a run is done.

    Args:
        core: The client.
        name: Of the lock.
        every: Length of a period, in seconds.

    Raises:
        ConfigError: The period is too short for clocks to agree on.
    """

    def __init__(self, core: Core, name: str, every: float) -> None:
        objects = core.objects
        timing = objects.timing
        # Longer than any time in which clocks may disagree on the period.
        least = 4 * timing.skew + 2 * timing.resolution + 1.0
        if not (isinstance(every, int | float) and least <= every < math.inf):
            reason = f"must be seconds, at least 4 * max_clock_skew + 2 * clock_resolution + 1: {least:g} s"
            raise ConfigError(setting="every", value=every, reason=reason)
        self._every = float(every)
        self._objects = objects
        self._mark = Fenced(core, f"{name}.once")

    async def due(self) -> int | None:
        """Return the number of the present period, or None if a run is done in it; on the client's loop.

        Raises:
            RecordCorruptError: The mark is none, or lies in the future.
            BackendError: The store did not answer, or its time cannot be learned.
        """
        while True:
            done, bounds = await self._present()
            skew, every = self._objects.timing.skew, self._every
            period = math.floor((bounds[0] - skew) / every)
            if period == math.floor((bounds[1] + skew) / every):
                break
            # Near its end some machines would say this period, and others the next.
            await asyncio.sleep((period + 1) * every - bounds[0] + skew)
        if done > (period + 1) * every:
            ahead = done - period * every
            reason = f"it marks a period {ahead:.0f} s ahead: the store's clock was set back"
            raise RecordCorruptError(key=self._mark.key, reason=reason, version=None)
        return None if done >= period * every else period

    async def _present(self) -> tuple[float, tuple[float, float]]:
        """Return when the last period that is done began, and the bounds of the store's time now."""
        objects, said = self._objects, False
        try:
            for look in range(_LOOKS):
                if look > 0:
                    await asyncio.sleep(WITNESS_SPACING)
                done, now = await self._done(), objects.now()
                bounds = (now.wall, now.wall) if objects.issuer.dateless else objects.time.bounds(now)
                if bounds is not None:
                    return done, bounds
                # An acquisition may publish by an older Date, but that is too old to tell the period.
                if look == 1:  # one such answer means little
                    said = True
                    self._say("acquire_failed", str(self._timeless()))
            raise self._timeless()
        finally:
            if said:
                self._say("not_acquired")

    def _say(self, kind: Kind, detail: str = "") -> None:
        limit = _LOOKS * WITNESS_SPACING
        self._objects.events.emit(kind, self._mark.key, "", None, detail, limit=limit, only_said=True)

    def _timeless(self) -> BackendUnavailableError:
        """Return the error of a store whose time is not learned; nothing was run or written."""
        detail = (
            f"none of {_LOOKS} answers tells the time, and so the period: none had a Date that this "
            "machine's clock or three earlier answers confirm; check the clocks of this machine and of the "
            "store, and any proxy that may remove the Date header"
        )
        return BackendUnavailableError(backend="store", operation="get", key=self._mark.key, detail=detail)

    async def _done(self) -> float:
        """Return when the last period that is done began, in epoch seconds; reads the store's time too."""
        objects, key = self._objects, self._mark.key
        sent = objects.now()
        stored = await objects.fetch(key)
        objects.time.observe(stored.server_time, sent=sent, arrived=objects.now())
        mark = self._mark.parsed(stored)
        if mark is None:
            return -math.inf
        try:
            fields = orjson.loads(mark.body)
            return float(fields["period"] * fields["every"])
        except (ValueError, KeyError, TypeError) as error:
            raise RecordCorruptError(key=key, reason="no mark of once()", version=mark.version) from error

    async def note_done(self, period: int, lease: LeaseHandle) -> None:
        """Mark a period as done, under the lease of its run; raises what ``FencedObject.write`` does.

        The work is done, and without the mark it would be done again. So after a temporary error of the store
        this goes on until the lease is lost.
        """
        body = orjson.dumps({"period": period, "every": self._every})
        said = False
        while True:
            try:
                await self._mark.update(lambda _: body, lease)
            except BackendError as failed:
                if not failed.transient:
                    raise
                if not said:
                    log.warning(
                        "%s: the run is done, but the store did not take its mark: %s. This is repeated "
                        "while the lease is held; without the mark the next caller runs the job again",
                        self._mark.key,
                        failed,
                    )
                    said = True
            else:
                if said:
                    log.info("%s: the store has taken the mark of the run", self._mark.key)
                return
            await asyncio.sleep(self._objects.timing.poll_interval)
            lease.check()


def checked_job(work: Any, *, coroutine: bool) -> None:  # noqa: ANN401  whatever is decorated
    """Refuse a function that the library cannot call.

    Raises:
        ConfigError: It is not a coroutine function, or it is one although a thread would have to await it.
    """
    if not callable(work) or inspect.iscoroutinefunction(work) != coroutine:
        kinds = ("a coroutine function", "asynclock.sync") if coroutine else ("a function", "asynclock")
        reason = f"once() decorates {kinds[0]}; for the other kind use {kinds[1]}"
        raise ConfigError(setting="once", value=getattr(work, "__qualname__", repr(work)), reason=reason)


def run_once(
    core: Core, lock: Lock, work: Callable[P, Coroutine[Any, Any, T]], *, every: float, wait: bool
) -> Callable[P, Coroutine[Any, Any, T | None]]:
    """Return ``work`` as a function that runs it once in a period; see ``asynclock.LockClient.once``."""
    periods = Periods(core, lock.name, every)
    checked_job(work, coroutine=True)

    @functools.wraps(work)
    async def run(*args: P.args, **kwargs: P.kwargs) -> T | None:
        while await core.run(periods.due) is not None:
            async with AsyncExitStack() as stack:
                try:
                    lease = await stack.enter_async_context(lock.hold(timeout=None if wait else 0))
                except AcquireTimeoutError as error:
                    if error.reason is not None:
                        raise  # the store
                    if (await lock.status()).state == "held":
                        return None
                    await asyncio.sleep(core.settings.poll_interval)
                    continue  # it was in use for a moment, or this client makes way
                if (period := await core.run(periods.due)) is None:
                    return None
                lease.check()  # the look may have taken long
                result = await work(*args, **kwargs)
                await core.run(functools.partial(periods.note_done, period, lease))
                return result
        return None

    return run
