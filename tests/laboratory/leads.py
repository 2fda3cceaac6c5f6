"""Users that call ``lead``, and what they are told of the leader (rule 26)."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from asynclock.errors import BackendError, LeaseLostError
from tests.laboratory.checker import Invariant
from tests.laboratory.names import KEY

if TYPE_CHECKING:
    from asynclock._core.status import LockStatus
    from asynclock.lease import Lease
    from asynclock.lock import Lock
    from tests.laboratory.users import User

_STEP_DOWN: Final = 0.5
"""Share of the terms that ``step_down`` ends."""
_LOUD: Final = 0.2
"""Share of the calls of ``on_change`` that raise."""
_POLLS: Final = 2
"""Poll intervals, at least, for which a leader that has stepped down stands back."""


class Leading:
    """One call of ``lead``.

    Args:
        user: Who calls it.
        lock: Of its client.
    """

    def __init__(self, user: User, lock: Lock) -> None:
        self._user = user
        self._lock = lock
        self._run, self._rng = user._run, user._rng
        self._checker = user._run.checker
        self._told: list[LockStatus] = []

    async def run(self) -> None:
        """Be a candidate for a time; others of this process look at the lock meanwhile."""
        user, plan = self._user, self._run.plan
        looks = asyncio.get_running_loop().create_task(self._look())
        patience = user._patience() if self._rng.random() < plan.impatience else None
        try:
            await self._lock.lead(self._work, timeout=patience, on_change=self._hear)
        except LeaseLostError as error:
            self._checker.note(user.name, f"leads no more: {error.reason}")
        finally:
            looks.cancel()
            with suppress(asyncio.CancelledError):
                await looks

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(self._rng.random() * 0.2 * self._user._unit)
            with suppress(BackendError):
                await self._lock.leader()

    def _hear(self, leader: LockStatus) -> None:
        """Take in a change; what this raises may change nothing."""
        told, who = self._told, self._user.name
        leads = leader.state == "held" and not leader.kept
        self._checker.note(who, f"hears: {leader.holder if leads else None} token={leader.fencing_token}")
        if leads and not self._was_there(leader):
            self._blame(f"{who} learns of {leader.holder}, who never led")
        if told and leader.fencing_token is not None and leader.fencing_token < (told[-1].fencing_token or 0):
            self._blame(f"{who} learns of {leader.holder} again, after a later term")
        before = told[-1] if told else None
        if before and leads and self._own(leader) and self._own(before) and self._was_released(before):
            self._blame(f"{who} learns of its next term, and not that the one before has ended")
        told.append(leader)
        if self._rng.random() < _LOUD:
            raise RuntimeError(who)

    def _was_released(self, leader: LockStatus) -> bool:
        """Whether a leader has released the lock, and not handed it over; False if nobody led."""
        owner = f'"owner":"{leader.owner}"'.encode()
        return leader.state == "held" and any(
            each.applied and each.kind != "get" and each.body and b'"expired":true' in each.body
            for each in self._run.store.journal
            if owner in (each.body or b"")
        )

    def _own(self, leader: LockStatus) -> bool:
        return (leader.holder or "").startswith(f"{self._user._machine.name}:")

    def _was_there(self, leader: LockStatus) -> bool:
        owner = f'"owner":"{leader.owner}"'.encode()
        return any(
            each.key == KEY and each.kind != "get" and each.applied and owner in (each.body or b"")
            for each in reversed(self._run.store.journal)
        )

    def _blame(self, detail: str) -> None:
        self._checker.violated(Invariant.LEADERS, detail)

    async def _work(self, lease: Lease) -> None:
        user, rng, checker, loop = self._user, self._rng, self._checker, self._run.loop
        poll = user._machine.settings.poll_interval
        assert poll is not None
        stood_back = loop.time() - user.stepped_down
        if stood_back < _POLLS * poll:
            detail = f"{user.name} leads again {stood_back:.2f} s after it stepped down"
            checker.violated(Invariant.STEPS_DOWN, detail)
        holding = checker.handed_out(user.name, user._process, lease, token=lease.fencing_token)
        user.check_wait()
        user.holding, asked = True, False
        try:
            await asyncio.sleep(rng.uniform(*self._run.plan.holds) * user._unit / 2)
            if lease.held and not any(each.owner == lease.owner for each in self._told):
                self._blame(f"{user.name} leads, and was not told of it")
            if rng.random() < _STEP_DOWN:
                asked = self._lock.step_down()
            await asyncio.sleep(rng.uniform(*self._run.plan.holds) * user._unit / 2)
        except asyncio.CancelledError:
            if not asked or asyncio.current_task() in user._stopped:
                raise
            await asyncio.sleep(0.1 * rng.random() * user._unit)
            if lease.held:
                user.stepped_down = loop.time()
            elif lease.lost is None:
                checker.violated(Invariant.STEPS_DOWN, f"{user.name} was released while it still worked")
            raise
        finally:
            user.holding = False
            if lease.lost is not None:
                checker.told_lost(holding)
            checker.dropped(holding)
            user.waits_since = None
