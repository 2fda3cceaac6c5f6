"""Several locks at once, as ``LockClient.hold_all`` gives them."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING
from weakref import WeakMethod

from asynclock._core.together import confirm_all, finish_all, of_all, raise_loss, tie
from asynclock.lease import Lease, was_dropped
from asynclock.lock import Hold

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from asynclock.lock import Lock


class HoldAll(AbstractAsyncContextManager[list[Lease]]):
    """``async with client.hold_all(names)``.

    The locks are acquired in the order of their names, in every process the same, so two that want the same
    ones never wait for each other.

    Args:
        locks: In the order in which their leases are given.
        timeout: Seconds for all of them.
    """

    def __init__(self, locks: Sequence[Lock], timeout: float | None) -> None:
        self._locks = locks
        self._timeout = timeout
        self._holds: list[Hold] = []
        self._leases: list[Lease] = []
        self._entered = False

    async def __aenter__(self) -> list[Lease]:
        if self._entered:
            raise RuntimeError("hold_all() can be entered once; call hold_all() again")
        self._entered = True
        clock = asyncio.get_running_loop().time
        until = None if self._timeout is None else clock() + self._timeout
        try:
            for lock in sorted(self._locks, key=lambda each: each.key):
                hold = Hold(lock, None if until is None else max(0.0, until - clock()))
                self._leases.append(await hold.__aenter__())
                self._holds.append(hold)
            cancel_once = WeakMethod(self._cancel_once)  # a body that is dropped is collected
            tie(self._leases, lambda lost: (leave_others := cancel_once()) and leave_others(lost))
            await confirm_all(self._leases)
        except BaseException as error:
            whole = of_all(error, self._timeout)
            await self.__aexit__(type(whole), whole, error.__traceback__)
            if whole is error:
                raise
            raise whole from whole.__cause__
        by_name = {lease.name: lease for lease in self._leases}
        return [by_name[lock.name] for lock in self._locks]

    def _cancel_once(self, lost: int) -> None:
        """Let only the lock that is lost first cancel the body."""
        for index, hold in enumerate(self._holds):
            if index != lost:
                hold.leave()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if was_dropped(error):
            for lease in self._leases:
                lease._engine.finish_later(lease._held)
            return
        left: BaseException | None = error
        for hold in self._holds:
            hold.leave()
        for hold in reversed(self._holds):
            left = await hold.taken_back(left)
        await finish_all(self._leases)
        raise_loss(self._leases, left)
        if left is not None and left is not error:
            raise left
