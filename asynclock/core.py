"""One lock of one client, on the client's loop: who of its callers may talk to the store, and when."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from asynclock.errors import (
    AcquireTimeoutError,
    BackendError,
    ConfigError,
    LockChangedError,
    RecordCorruptError,
)
from asynclock.line import Line, Turn, Turns
from asynclock.portal import cancel_once, current_task, uninterrupted
from asynclock.protocol.acquisition import Acquisition, LockState, is_passing
from asynclock.protocol.attempts import Attempt
from asynclock.protocol.judgement import judge
from asynclock.record import LockRecord
from asynclock.status import corrupt_status, own_status, seen_status

if TYPE_CHECKING:
    from asynclock.protocol.judgement import Seen, Verdict
    from asynclock.protocol.store import Store
    from asynclock.protocol.tenure import Spawn, Tenure
    from asynclock.renewal import RenewalScheduler
    from asynclock.status import LockStatus


class LockCore:
    """One lock of one client on the client's loop: line, turns and what is known of the object."""

    def __init__(
        self, *, name: str, url: str, store: Store, scheduler: RenewalScheduler, spawn: Spawn
    ) -> None:
        self.name = name
        self.key = f"{name}.json"
        self.url = url
        self._store = store
        self._scheduler = scheduler
        self._spawn = spawn
        self._state = LockState()
        self._line = Line(self._orphaned)
        self._turns = Turns(store.terms)
        self._tenure: Tenure | None = None
        self._acquiring: set[asyncio.Task[Any]] = set()
        self._releasing: set[asyncio.Task[object]] = set()
        self._handed: tuple[Acquisition, asyncio.Task[Any]] | None = None
        """The acquisition that was handed the lock last, and the task it runs in."""
        self._closed: ConfigError | None = None

    async def acquire(
        self, *, timeout: float | None, once: bool = False, fencing: bool = True
    ) -> Tenure | None:
        """Return a tenure, or None with ``once``.

        Raises:
            AcquireTimeoutError: The time is out.
            ConfigError: The client was closed.
        """
        task = current_task()
        self._acquiring.add(task)
        try:
            return await self._acquire(timeout=timeout, once=once, fencing=fencing)
        except asyncio.CancelledError as error:
            if self._closed is not None:
                raise self._closed from error
            raise
        finally:
            self._acquiring.discard(task)
            del task  # an error that keeps this frame would let go of it in the caller's thread

    async def _acquire(self, *, timeout: float | None, once: bool, fencing: bool) -> Tenure | None:
        if self._closed is not None:
            raise self._closed
        loop = asyncio.get_running_loop()
        until = None if timeout is None else loop.time() + timeout
        turn = self._line.try_enter() if once else await self._line.enter(until)
        if turn is None:
            self._not_acquired(timeout, once=once, error=None)
            return None
        try:
            acquisition = Acquisition(
                store=self._store,
                key=self.key,
                state=self._state,
                spawn=self._spawn,
                on_tenure=self._scheduler.add,
                until=until,
                once=once or timeout == 0,
                fencing=fencing,
                baton=turn.baton,
                held_back=self._held_back,
            )
            if turn.baton is not None:
                self._handed = acquisition, current_task()
            set_out = loop.time()
            may_try = turn.baton is not None or await self._make_way(until, once=once)
            tenure = await acquisition.run() if may_try else None
        except BaseException as error:
            self._line.leave()
            if timeout == 0 and isinstance(error, BackendError) and is_passing(error):
                self._not_acquired(timeout, once=once, error=error)
            raise
        if tenure is None:
            self._line.leave()
            self._not_acquired(timeout, once=once, error=acquisition.error)
            return None
        self._turns.began(
            loop.time(), set_out=set_out, owner=tenure.owner, predecessor=acquisition.predecessor
        )
        self._tenure = tenure
        tenure.on_end.append(lambda _: self._ended(tenure))
        return tenure

    async def release(self, tenure: Tenure) -> bool:
        """End a tenure: hand it on to the next in line, or free the lock; False if it had ended.

        ``tenure.lost`` says afterwards whether the release found that it had been lost.
        """
        if not tenure.end_belief():
            return False
        try:
            with uninterrupted(self._releasing):
                await tenure.settle()
                if self._hand_on(tenure):
                    await tenure.handed_on()
                else:
                    await tenure.release()
        except asyncio.CancelledError:
            if self._closed is None:
                raise
            # The client's end cut it off: it was not answered in time, which is no error of the caller.
        return True

    def _hand_on(self, tenure: Tenure) -> bool:
        if not (self._line.waiting and tenure is self._tenure and tenure.may_hand_on()):
            return False
        now = asyncio.get_running_loop().time()
        if not (self._turns.may_hand_on(now) and self._line.hand(Turn(tenure))):
            return False
        self._tenure = None
        self._scheduler.discard(tenure)
        self._turns.handed_on(now)
        tenure.hand_on()
        return True

    def _orphaned(self, turn: Turn) -> None:
        if turn.baton is None:
            self._line.leave()
        else:
            self._spawn(self._free_baton(turn.baton))

    async def _free_baton(self, baton: Tenure) -> None:
        try:
            await baton.release()
            self._state.freed = baton.freed
        finally:
            self._line.leave()

    def close(self, error: ConfigError) -> list[asyncio.Task[object]]:
        """Let everybody who waits for the lock fail; returns what is still cleaning up."""
        self._closed = error
        for task in self._acquiring:
            cancel_once(task)
        return list(self._acquiring)

    @property
    def ending(self) -> set[asyncio.Task[object]]:
        """The tasks that are releasing, or that were handed the lock and have neither taken nor freed it."""
        if self._handed is None or not self._handed[0].has_baton or self._handed[1].done():
            return self._releasing
        return {*self._releasing, self._handed[1]}

    def stand_back(self, until: float) -> None:
        """Acquire nothing until loop time ``until``: the process may be ending."""
        self._turns.stand_back(until)

    def _held_back(self) -> bool:
        return self._turns.away_for(asyncio.get_running_loop().time()) > 0

    async def _make_way(self, until: float | None, *, once: bool) -> bool:
        loop = asyncio.get_running_loop()
        away = self._turns.away_for(loop.time())
        if away <= 0:
            return True
        if once:
            return False
        await asyncio.sleep(away if until is None else max(0.0, min(away, until - loop.time())))
        return until is None or loop.time() < until

    def _ended(self, tenure: Tenure) -> None:
        if tenure is not self._tenure:
            return  # handed on
        self._tenure = None
        self._scheduler.discard(tenure)
        self._state.freed = tenure.freed
        self._turns.ended(asyncio.get_running_loop().time(), jittered=self._store.jittered)
        self._line.leave()

    def _not_acquired(self, timeout: float | None, *, once: bool, error: Exception | None) -> None:
        if once or timeout is None:
            return
        last = self._state.last
        status = None if last is None else self._status(*last)
        if self._tenure is not None:
            status = own_status(self.name, self.url, *self._tenure.head)
        raise AcquireTimeoutError(key=self.key, timeout=timeout, status=status) from error

    async def status(self) -> LockStatus:
        """Read the lock once."""
        return (await self._read())[0]

    async def _read(self) -> tuple[LockStatus, LockRecord | None]:
        try:
            seen = await self._store.read(self.key)
        except RecordCorruptError as corrupt:
            return corrupt_status(self.name, self.url, corrupt.version), None
        self._state.observation.note(seen)
        return self._status(seen, judge(seen, self._state.observation, self._store.terms)), seen.record

    def _status(self, seen: Seen, verdict: Verdict) -> LockStatus:
        return seen_status(self.name, self.url, seen, verdict)

    async def break_lock(self, status: LockStatus, *, force: bool) -> LockStatus:
        """See ``Lock.break_lock``."""
        current, record = await self._read()
        if current.version != status.version:
            raise LockChangedError(key=self.key, expected=status.version, status=current)
        if current.state == "free":
            return current
        if current.state == "held" and not force:
            raise LockChangedError(key=self.key, expected=status.version, status=current)
        if record is None:
            # As if a Hudi writer had dropped the fields: the next token starts from store time.
            broken = LockRecord(expired=True, valid_until_ms=0, owner=self._store.fresh_owner())
        else:
            broken = record.released(nonce=self._store.fresh_nonce())
        attempt = Attempt(broken, status.version, self._store.now())
        error = await self._store.write(self.key, attempt)
        after, found = await self._read()
        if error is None or found == broken:
            return after
        if after.version == status.version:
            raise error
        raise LockChangedError(key=self.key, expected=status.version, status=after) from error
