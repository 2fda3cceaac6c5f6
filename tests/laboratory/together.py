"""Users that hold several locks at once, all or none (rule 28)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from asynclock._core.protocol.belief import Phase
from asynclock._text import SUFFIX
from asynclock.errors import AcquireTimeoutError, BackendError, LeaseLostError, RecordCorruptError
from tests.laboratory.checker import Invariant
from tests.laboratory.endings import ROUND_TRIPS
from tests.laboratory.names import NAMES

if TYPE_CHECKING:
    from asynclock.client import LockClient
    from asynclock.lease import Lease
    from tests.laboratory.users import User
    from tests.laboratory.watched import Holding

_LINGERS: Final = 0.2
"""Lifetimes for which a body goes on after its cancellation."""


class Together:
    """One call of ``hold_all``.

    Args:
        user: Who calls it; no other user of its client wants these locks.
        client: Its client.
        told_within: Seconds that a body may run on after a loss.
    """

    def __init__(self, user: User, client: LockClient, told_within: float) -> None:
        self._user = user
        self._client = client
        self._told_within = told_within
        self._run, self._rng = user._run, user._rng
        self._checker, self._loop = user._run.checker, user._run.loop
        self._names = user._rng.sample(NAMES, user._rng.choice((2, 3, 3)))
        self._holdings: list[Holding] = []

    async def run(self) -> None:
        """Hold them for a time."""
        user, rng, plan = self._user, self._rng, self._run.plan
        patience = user._patience() if rng.random() < plan.impatience else None
        cut = rng.random() * (patience or user._unit) if rng.random() < plan.cancels else None
        began = self._loop.time()
        try:
            async with asyncio.timeout(cut), self._client.hold_all(self._names, timeout=patience) as leases:
                user.check_wait()
                self._enter(leases)
                await self._body(leases, cancelled_by_others=cut is not None)
                ends = self._loop.time()
            user._check_left(self._loop.time() - ends)
            if lost := [lease.lost.reason for lease in leases if lease.lost is not None]:
                self._checker.violated(Invariant.LOSS_ENDS_BODY, f"{user.name} was not told: {lost[0]}")
        except asyncio.CancelledError:
            if asyncio.current_task() not in user._stopped:
                detail = f"{user.name} met a cancellation that is nobody's"
                self._checker.violated(Invariant.LOSS_ENDS_BODY, detail)
            raise
        except (TimeoutError, LeaseLostError, BackendError, RecordCorruptError) as error:
            self._checker.note(user.name, f"leaves hold_all(): {type(error).__name__}")
            if isinstance(error, RecordCorruptError):
                self._run.unreadable(user.name, error)
            if isinstance(error, AcquireTimeoutError) and patience is not None:
                self._check_deadline(self._loop.time() - began - patience)
            for holding in self._holdings:
                self._checker.told_lost(holding)
        finally:
            user.holding, user.waits_since = False, None
            self._check_none()
            for holding in self._holdings:
                self._checker.dropped(holding)

    def _enter(self, leases: list[Lease]) -> None:
        """Watch all leases; each is held, unless time alone has just ended them all."""
        user, checker = self._user, self._checker
        user.holding = True
        known = [lease.name for lease in leases if lease._held.belief.lost is not None]
        if known or [lease.name for lease in leases] != self._names:
            self._blame(f"{user.name} is given {[lease.name for lease in leases]}, of which {known} are lost")
        for lease in leases:
            token = lease.fencing_token
            self._holdings.append(checker.handed_out(user.name, user._process, lease, token=token))

    async def _body(self, leases: list[Lease], *, cancelled_by_others: bool) -> None:
        """Work to the end, or after a loss without end, since nobody asks the leases."""
        user, rng, loop = self._user, self._rng, self._loop
        until = loop.time() + rng.uniform(*self._run.plan.holds) * user._unit
        endless = rng.random() < 0.5
        try:
            while (left := until - loop.time()) > 0 or (endless and self._ended() and not user.exiting):
                await asyncio.sleep(min(max(left, 0.1), (0.02 + rng.random() * 0.4) * user._unit))
                self._check_told()
        except asyncio.CancelledError:
            stopped = asyncio.current_task() in user._stopped
            self._check_all_lost(leases)
            try:
                await asyncio.sleep(_LINGERS * rng.random() * user._unit)
            except asyncio.CancelledError:
                if not (stopped or cancelled_by_others or asyncio.current_task() in user._stopped):
                    self._blame(f"{user.name} is cancelled twice for one loss")
                raise
            raise

    def _ended(self) -> list[float]:
        return [holding.ended_at for holding in self._holdings if holding.ended_at is not None]

    def _check_told(self) -> None:
        """Check that no body runs on, and nothing is believed, long after the loss of one."""
        user, ended = self._user, self._ended()
        if not ended or user.exiting:
            return
        late = self._loop.time() - max(min(ended), user._machine.runs_from)
        if late > self._told_within:
            detail = f"{user.name} runs on in hold_all() {late:.2f} s after a loss"
            self._checker.violated(Invariant.LOSS_ENDS_BODY, detail)

    def _check_all_lost(self, leases: list[Lease]) -> None:
        lost = [lease.name for lease in leases if lease.lost is not None]
        held = [lease.name for lease in leases if lease.held]
        if lost and held:
            self._blame(f"{self._user.name} has lost {lost}, and still believes in {held}")

    def _check_deadline(self, late: float) -> None:
        """Check that the time was one for all; the clean-up of the last, and the rest, may take longer."""
        plan, bound = self._run.plan, 2 * self._client._core.exit_bound + ROUND_TRIPS
        if late > bound and not (plan.pauses or plan.stalls or plan.suspends):
            self._blame(f"{self._user.name} gets its timeout {late:.2f} s after it")

    def _check_none(self) -> None:
        if self._loop.time() >= self._run.ends:
            return  # the last turn of this client has begun
        keys = {f"{name}{SUFFIX}" for name in self._names}
        held = [
            each.tenure.key for each in self._client._core._schedule.held if each.belief.phase is Phase.HELD
        ]
        if left := keys.intersection(held):
            self._blame(f"{self._user.name} has left hold_all(), and still holds {sorted(left)}")

    def _blame(self, detail: str) -> None:
        self._checker.violated(Invariant.TOGETHER, detail)
