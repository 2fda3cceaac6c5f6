"""One lock of one client, on the client's loop: acquire, release, hand over, look, break."""

from __future__ import annotations

import asyncio
import math
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar
from weakref import WeakKeyDictionary, WeakValueDictionary, ref

from asynclock._core.breaking import break_lock
from asynclock._core.inspection import Inspection
from asynclock._core.names import by_name
from asynclock._core.portal import start_on
from asynclock._core.protocol.acquire import Acquisition
from asynclock._core.protocol.acquire_call import AcquireCall
from asynclock._core.protocol.belief import End
from asynclock._core.protocol.decisions import Observation, Seen, Verdict
from asynclock._core.protocol.waiting import Fairness
from asynclock._core.redemption import Redemption
from asynclock._core.status import own_status
from asynclock._core.ticket import Ticket
from asynclock._core.turns import Turns
from asynclock._secrets import clean_url
from asynclock._text import SUFFIX
from asynclock.errors import (
    AcquireTimeoutError,
    BackendError,
    ConfigError,
    LeaseLostError,
    OutcomeUnknownError,
    PreconditionFailedError,
    TicketSpentError,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from weakref import ReferenceType

    from asynclock._core.hooks import LeaseHooks
    from asynclock._core.protocol.held import HeldLock
    from asynclock._core.protocol.objects import LockObjects
    from asynclock._core.protocol.schedule import Schedule
    from asynclock._core.status import LockStatus


A = TypeVar("A", bound=Acquisition)
KEPT: Final = 1024
"""At least this many unused engines are kept, those used last; an idle one takes 2 kB."""
_MOST_KEPT: Final = 16 * KEPT
"""At most this many engines are kept, even if each still has something to remember."""


class Engines:
    """The engines of one client, by the names of their locks.

    While an engine is in use (by a ``Lock``, a lease or a waiter), it is the only one of its name. Of the
    unused ones, only those used last are kept. Forgetting one costs a read, or time; it makes no takeover
    earlier and no token lower. Any thread may call, and there is no mutex, because a signal handler may
    interrupt anywhere: each step that decides is one operation of a dict.

    Args:
        make: Makes the engine of a name.
        clock: Reads the clock of the client's loop, from any thread.
    """

    def __init__(self, make: Callable[[str], LockEngine], clock: Callable[[], float]) -> None:
        self._make = make
        self._clock = clock
        self._kept: dict[str, LockEngine] = {}
        self._living: WeakValueDictionary[str, LockEngine] = WeakValueDictionary()
        self._stands_back_until = -math.inf
        self._may_shrink = [True]

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, name: str) -> LockEngine:
        """Return the engine of a name, the same one as long as it is used or kept."""
        return self._kept.get(name) or self.keep(self._living.get(name) or self._make(name))

    def look(self, name: str) -> LockEngine:
        """Return an engine for one read; a new one is not kept, so that a listing displaces no other."""
        return self._kept.get(name) or self._living.get(name) or self._make(name)

    def keep(self, engine: LockEngine) -> LockEngine:
        """Keep an engine, and return the engine kept under its name."""
        name = engine.name
        kept = self._kept.setdefault(name, engine)
        # Another may be in use: it was entered, and left the kept ones, since the caller looked.
        if (living := self._living.get(name)) is not None and living is not kept:
            kept = self._kept[name] = living
        self._living[name] = kept
        kept.stand_back(self._stands_back_until)
        if len(self._kept) > 2 * KEPT:
            self._shrink()
        return kept

    def _shrink(self) -> None:
        try:
            self._may_shrink.pop()
        except IndexError:
            return  # another thread does this, or the code that a signal handler has interrupted
        now = self._clock()
        for name, engine in list(self._kept.items())[:-KEPT]:
            # Only what can be found among the living: another thread may be about to enter the rest.
            if self._living.get(name) is engine and (
                len(self._kept) > _MOST_KEPT or not engine.remembers(now)
            ):
                self._kept.pop(name, None)
        self._may_shrink.append(True)

    def stand_back(self, until: float) -> None:
        """Acquire nothing before loop time ``until``, nor by engines that are made later."""
        self._stands_back_until = until
        for engine in (*self._kept.values(), *(each() for each in self._living.valuerefs())):
            if engine is not None:
                engine.stand_back(until)


class LockEngine:
    """One lock of one client: its waiters, its object as last seen, and the held lock.

    Attributes:
        home: Returns the client's loop; the first use decides which that is.
        fencing: Whether tokens are handed out (rule 11).
        hooks: What else happens when a lease begins and ends, or None.
        turns: Whose turn it is, and the lock while this client holds it.
        inspection: Looks at the lock without acquiring it.
        slot: Its number among those of a semaphore or of readers; None: it is not a slot.
    """

    slot: int | None = None
    _bodies: WeakKeyDictionary[object, ReferenceType[HeldLock]] | None = None

    def __init__(
        self,
        *,
        name: str,
        url: str,
        objects: LockObjects,
        schedule: Schedule,
        home: Callable[[], asyncio.AbstractEventLoop],
        key: str | None = None,
        fairness: Fairness | None = None,
    ) -> None:
        self.home: Callable[[], asyncio.AbstractEventLoop] = home
        self.fencing: bool = True
        self.hooks: LeaseHooks | None = None
        self.name = name
        self.key: str = key or f"{name}{SUFFIX}"
        self.url = url
        self._objects = objects
        self._schedule = schedule
        self._observation = Observation()
        self.inspection: Inspection = Inspection(objects, self._observation, name=name, key=self.key, url=url)
        self.turns: Turns = Turns(self.inspection, schedule, fairness or Fairness(objects.timing))

    def checked_at_most(self, seconds: float | None, at_least: float) -> float | None:
        """Return ``seconds``.

        Raises:
            ConfigError: It is shorter than a renewal interval or than ``at_least``, or not a number.
        """
        least = max(self._objects.timing.renew_interval, at_least)
        if seconds is None or (isinstance(seconds, int | float) and seconds >= least):
            return seconds
        reason = f"must be seconds, at least renew_interval and at_least: {least:g} s here"
        raise ConfigError(setting="at_most", value=seconds, reason=reason)

    def of(self, held: HeldLock) -> LockEngine:
        """Return the lock that is held: this one, or a slot of it."""
        del held
        return self

    @property
    def renew_interval(self) -> float:
        """The pause between two renewals, in seconds."""
        return self._objects.timing.renew_interval

    @property
    def observes(self) -> bool:
        """Whether it observes the record of a holder whom the store's clock cannot judge."""
        return self._observation.needed

    def remembers(self, now: float) -> bool:
        """Whether it knows something that its next user needs, at loop time ``now``.

        It keeps away, counts refusals, or observes a holder whom the store's clock cannot judge.
        """
        return self.observes or self._observation.refusals.count > 0 or self.turns.fairness.away_for(now) > 0

    @property
    def _entered(self) -> WeakKeyDictionary[object, ReferenceType[HeldLock]]:
        """By the task or thread that runs the body of a ``hold()``: the lease of that body."""
        # Made when it is needed, since it is large. setdefault: two threads at once must get the same.
        return self._bodies or vars(self).setdefault("_bodies", WeakKeyDictionary())

    def refuse_nested(self, who: object) -> None:
        """Refuse ``hold()`` in the body of another of the same lock.

        Args:
            who: The task or thread that would wait for itself.

        Raises:
            RuntimeError: It holds the lock already.
        """
        if self.in_body(who):
            raise RuntimeError(
                f"hold() of {self.name!r} inside hold() of the same lock would wait for itself; pass the "
                "lease on to the code that needs it"
            )

    def refuse_upgrade(self, who: object) -> None:
        """Refuse a caller that holds another side of this lock: it would wait for itself."""

    def in_body(self, who: object) -> bool:
        """Whether the task or thread ``who`` runs a body under a lease of this lock."""
        outer = self._entered.get(who)
        held = None if outer is None else outer()
        return held is not None and held.belief.end_if_due() > 0

    def note_body(self, who: object, held: HeldLock) -> None:
        """Note that the task or thread ``who`` runs a body under ``held``."""
        self._entered[who] = ref(held)

    async def acquire(
        self,
        *,
        timeout: float | None,
        once: bool = False,
        at_most: float | None = None,
        ticket: Ticket | None = None,
    ) -> HeldLock | None:
        """Wait for this call's turn, then acquire; None, with ``once`` only, if others hold the lock.

        Raises:
            AcquireTimeoutError: The time is out.
            ConfigError: The client was closed.
            TicketSpentError: See ``_redeem``.
        """
        if ticket is not None:
            return await self._redeem(ticket, timeout, at_most)
        call, held = AcquireCall(self._objects, self.key, timeout, waits=not once), None
        try:
            with self._objects.in_flight.until_closed():
                if call.waits:
                    given = await self._turn(call)
                elif self.turns.try_enter():
                    given = None
                else:
                    self._note_failure(call, "held")
                    return None
                acquisition = self._acquisition(Acquisition, call=call, at_most=at_most, given=given)
                try:
                    self.turns.held = held = await acquisition.run()
                except BackendError as error:
                    if timeout == 0 and error.transient:
                        self._time_out(call, error)
                    raise
                finally:
                    if held is None:
                        self.turns.leave()
                if held is not None:
                    held.ending.then(partial(self.turns.note_end, held))
                    self._tell_of(held)
                elif call.waits:
                    self._time_out(call, call.error)
                else:
                    self._note_failure(call, acquisition.failure)
        except (Exception, asyncio.CancelledError) as error:
            self._note_error(call, error)
            raise
        return held if held is None or self.hooks is None else await self._begun(held, self.hooks)

    def _acquisition(self, kind: Callable[..., A], **named: Any) -> A:  # noqa: ANN401  what that kind takes
        return kind(
            self._objects,
            self.key,
            observation=self._observation,
            fairness=self.turns.fairness,
            schedule=self._schedule,
            fencing=self.fencing,
            **named,
        )

    def _tell_of(self, held: HeldLock) -> None:
        """Tell the watchers, if there are any, of a lock that this client holds from now on."""
        if not self._observation.watchers:
            return
        shown = Seen(held.tenure.head.record, held.tenure.head.version, None, None, self._objects.now())
        self._observation.tell(shown, Verdict(free=False, wait=math.inf))

    async def _redeem(self, ticket: Ticket, timeout: float | None, at_most: float | None) -> HeldLock:
        """Acquire the lock over the offer that a ticket names; past the queue, which waits for the lock.

        Raises:
            TicketSpentError: Another record stands.
            ConfigError: The ticket is of another lock, or the client was closed.
            AcquireTimeoutError: The store did not answer in time.
        """
        call = AcquireCall(self._objects, self.key, timeout)
        try:
            with self._objects.in_flight.until_closed():
                redemption = self._acquisition(
                    Redemption, offer=ticket.offer, call=call, at_most=at_most, given=None
                )
                if (held := await redemption.run()) is None:
                    self._time_out(call, call.error)
        except (Exception, asyncio.CancelledError) as error:
            self._note_error(call, error)
            if isinstance(error, TicketSpentError) and ticket.lock != (own := clean_url(self.url)):
                reason = f"the ticket is for that lock, not for {own}; nothing was written"
                raise ConfigError(setting="ticket", value=ticket.lock, reason=reason) from error
            raise
        held.ending.then(partial(self._schedule.discard, held))
        self._tell_of(held)
        return held

    async def transfer(self, held: HeldLock, within: float | None) -> Ticket:
        """End belief, and offer the lock to the bearer of a ticket; see ``Lease.transfer``."""
        if self.hooks is not None or not self.fencing:
            reason = "the lock of a Hudi table takes no ticket; release it"
            raise ConfigError(setting="transfer", value=self.name, reason=reason)
        held.belief.check()
        offer, timing = self._objects.issuer.fresh_owner(), self._objects.timing
        held.claim.offer = offer
        held.release.keep(max(timing.validity if within is None else within, held.release.left_to_keep()))
        held.release.let_go()
        try:
            await asyncio.wait([held.ending.future], timeout=timing.request_timeout + timing.exit_bound)
        except asyncio.CancelledError:
            self._objects.in_flight.spawn(self.withdraw(held))
            raise
        if held.belief.lost is not None:
            held.belief.check()
        if held.release.freed is None or held.release.freed.record.expired:
            self._objects.in_flight.spawn(self.withdraw(held))
            detail = f"{held.claim.error or 'no answer'}: there is no ticket, and the lock is being freed"
            raise OutcomeUnknownError(backend="store", operation="transfer", key=self.key, detail=detail)
        return Ticket(clean_url(self.url), offer)

    async def withdraw(self, held: HeldLock) -> None:
        """Free a lock that was offered by a ticket that nobody has."""
        await asyncio.wait([held.ending.future])
        if (offered := held.release.freed) is not None and not offered.record.expired:
            await held.claim.free(offered)

    async def _begun(self, held: HeldLock, hooks: LeaseHooks) -> HeldLock:
        try:
            await hooks.begin(held)
        except BaseException:  # also a cancellation: the caller will never get the lease
            await self.finish(held)
            raise
        return held

    def _note_error(self, call: AcquireCall, error: BaseException) -> None:
        """Report a call that ends with ``error``."""
        self._note_failure(call, type(error).__name__, by_name(str(error), self.key))

    def _note_failure(self, call: AcquireCall, reason: str, detail: str = "") -> None:
        """Report a call that ends without the lock."""
        call.ended(reason, detail)

    async def _turn(self, call: AcquireCall) -> HeldLock | None:
        """Wait for the turn; raise AcquireTimeoutError if it does not come in time."""
        try:
            return await self.turns.enter(call.timeout)
        except TimeoutError:
            raise self._timed_out(call) from None

    def _time_out(self, call: AcquireCall, error: BackendError | None) -> NoReturn:
        raise self._timed_out(call, error) from error

    def _timed_out(self, call: AcquireCall, error: BackendError | None = None) -> AcquireTimeoutError:
        assert call.timeout is not None  # noqa: S101  else it does not run out
        status = self.last_seen()
        contended = isinstance(error, PreconditionFailedError) and not self._observation.refusals.count
        reason = None if error is None or contended else by_name(str(error), self.key)
        held = self.turns.held
        if reason is None and held is not None and (pending := held.release.pending) is not None:
            reason = f"its last release is not confirmed: {pending}"
        return AcquireTimeoutError(key=self.key, timeout=call.timeout, status=status, reason=reason)

    def last_seen(self) -> LockStatus | None:
        """Return what stood in the way at the last look; None: it was never read."""
        if self.turns.held is not None:
            head = self.turns.held.tenure.head
            return own_status(self.name, self.url, head.record, head.version)
        return self.inspection.last_seen()

    def stand_back(self, until: float) -> None:
        """Acquire nothing before loop time ``until``: the process may be ending."""
        self.turns.fairness.stand_back(until)

    async def finish_lease(self, held: HeldLock) -> None:
        """Finish the lease of a holder.

        Raises:
            LeaseLostError: It was lost before its end.
        """
        await self.finish(held)
        if held.belief.lost is not None:
            held.belief.check()

    def finish_later(self, held: HeldLock) -> None:
        """Finish a lease in the background; from any thread, and from finalizers."""
        with suppress(RuntimeError, ConfigError):  # that loop is closed: the lock frees itself, or at exit
            start_on(held.loop, lambda: self.finish(held))

    async def finish(self, held: HeldLock | None) -> bool:
        """Hand the lock over to the next waiter, or free it; False if it was not held any more."""
        if held is None:
            return False
        if self.hooks is not None:
            return await self.hooks.end(lambda: self._finish(held))
        return await self._finish(held)

    async def _finish(self, held: HeldLock) -> bool:
        if not held.belief.end(End.RELEASE):
            held.release.note_left()
            return False
        try:
            await held.release.free(hand_over=partial(self.turns.hand_over, held))
        except asyncio.CancelledError:
            if self._objects.in_flight.closed is None:
                raise  # else the end of the client cut it off: not the caller's error
        return True

    @property
    def closed(self) -> bool:
        """Whether the client was closed."""
        return self._objects.in_flight.closed is not None

    def note_leader(self, error: Exception, *, led: bool) -> None:
        """Log that ``lead`` of this lock ends with ``error``; from any thread."""
        if led and self.closed and isinstance(error, LeaseLostError):
            return  # the loss is said, and its reason: the client was closed
        held_by_others = isinstance(error, AcquireTimeoutError) and error.reason is None
        fault = not (held_by_others or self.closed)
        if (narrator := self._objects.events.narrator) is not None:
            narrator.leader_failed(self.url, error, led=led, fault=fault)

    async def status(self) -> LockStatus:
        """Read the lock once."""
        return (await self.inspection.read())[0]

    async def break_lock(self, status: LockStatus, *, force: bool) -> LockStatus:
        """See ``Lock.break_lock``."""
        return await break_lock(self.inspection, status, force=force)
