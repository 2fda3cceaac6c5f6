"""Several held locks that are one: the loss of one is that of all, and they are released at once."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

from asynclock._core.names import checked_name
from asynclock._core.portal import cancel_once, current_task, run_on
from asynclock._core.protocol.belief import End, Phase
from asynclock.errors import AcquireTimeoutError, ConfigError, LeaseLostError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from asynclock._core.handles import LeaseHandle


def checked_names(names: Iterable[str]) -> list[str]:
    """Return the names of several locks.

    Raises:
        ConfigError: One of them is not a lock name, or is there twice; or ``names`` is one name.
    """
    if isinstance(names, str):
        raise ConfigError(setting="names", value=names, reason="must be several names, as a list")
    found = [checked_name(name) for name in names]
    if twice := sorted({name for name in found if found.count(name) > 1}):
        raise ConfigError(setting="names", value=twice[0], reason="is there twice: it would wait for itself")
    return found


def tie(leases: Sequence[LeaseHandle], first: Callable[[int], object] = lambda _: None) -> None:
    """Lose all of ``leases`` when one of them is lost.

    Args:
        leases: What is held.
        first: Called with the index of the one that is lost first, in whatever thread finds it out.
    """
    # Not the leases: one that is dropped has to be collected, so that it is released.
    cores, names = [lease._held for lease in leases], [lease.name for lease in leases]
    is_lost: list[int] = []

    def lose_others(index: int, _: LeaseLostError) -> None:
        is_lost.append(index)
        if is_lost[0] == index:
            first(index)
            for core in cores:
                core.belief.end(End.WITH_ANOTHER, f"{names[index]!r}, which was held with it, was lost")

    for index, core in enumerate(cores):
        core.on_lost(partial(lose_others, index))


@contextmanager
def cut_off_by_loss(leases: Sequence[LeaseHandle]) -> Iterator[None]:
    """End the running call, with all that its cancellation would clean up, once one of ``leases`` is lost.

    Raises:
        LeaseLostError: One of them is lost.
    """
    loop, task, over = asyncio.get_running_loop(), current_task(), False

    def end() -> None:
        if not over:
            cancel_once(task)

    def lost(_: LeaseLostError) -> None:
        with suppress(RuntimeError):  # the loop is closed, and the call with it
            loop.call_soon_threadsafe(end)

    for lease in leases:
        lease._held.on_lost(lost)
    try:
        yield
    except asyncio.CancelledError:
        for lease in leases:
            lease.check()
        raise
    finally:
        over = True


async def confirm_all(leases: Iterable[LeaseHandle]) -> None:
    """Renew those of which hardly anything is left (rule 7).

    Raises:
        LeaseLostError: One of them is lost.
    """
    for lease in leases:
        core = lease._held
        if lease.remaining() <= lease._engine.renew_interval:
            await run_on(core.loop, core.renewer.renew)
        lease.check()


async def finish_all(leases: Iterable[LeaseHandle]) -> None:
    """Release all at the same time, so that leaving takes no longer than with one lock (rule 24)."""
    finishing = []
    for lease in leases:
        held, engine = lease._held, lease._engine
        if lease.lost is not None:
            held.release.note_left()
        elif held.belief.phase is Phase.HELD:
            finishing.append(run_on(held.loop, partial(engine.finish, held)))
    for result in await asyncio.gather(*finishing, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result


def raise_loss(leases: Iterable[LeaseHandle], error: BaseException | None) -> None:
    """Raise the first loss, or add all of them as notes to the ``error`` of the body."""
    for lost in filter(None, (lease.lost for lease in leases)):
        if error is None:
            raise lost.with_traceback(None)
        if not isinstance(error, LeaseLostError):
            error.add_note(str(lost))


def of_all(error: BaseException, timeout: float | None) -> BaseException:
    """Return the error of one acquisition as that of all, which share a timeout."""
    if timeout is None or not isinstance(error, AcquireTimeoutError):
        return error
    key, status, reason = error.key, error.status, error.reason
    whole = AcquireTimeoutError(key=key, timeout=timeout, status=status, reason=reason)
    whole.__cause__ = error.__cause__
    return whole
