"""What an acquisition has in the store, and how it leaves nothing behind (rules 3, 15, 16 and 18)."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from asynclock._core.protocol.claim import Claim
from asynclock._core.protocol.decisions import displaced
from asynclock._core.protocol.outcomes import Landed

if TYPE_CHECKING:
    from asynclock._core.protocol.decisions import Displaced, Seen
    from asynclock._core.protocol.held import HeldLock
    from asynclock._core.protocol.objects import LockObjects
    from asynclock._core.protocol.outcomes import Attempt


class Stake:
    """The writes of one acquisition that may stand, and the lock that is handed over to it.

    Attributes:
        owner: The id under which it writes.
        claim: Its writes; with a lock that is handed over, those of its giver too.
        given: A lock of this client to write over, or to free (rule 15); None: there is none, or no more.
    """

    def __init__(self, objects: LockObjects, key: str, given: HeldLock | None) -> None:
        self.owner: str = objects.issuer.fresh_owner()
        self.given: HeldLock | None = given
        self.claim: Claim = Claim(objects, key) if given is None else given.claim
        self._objects = objects
        self._key = key

    def may_stand(self) -> Attempt | None:
        """Return the last write, if it may stand without a held lock that will free it; else None."""
        last = self.claim.last()
        return None if last is None or (self.given is None and self.claim.is_spent(last)) else last

    def note_landed(self, attempt: Attempt) -> None:
        """Note that ``attempt`` landed, and with it the end of the lock that was handed over."""
        self.claim.note_landed(attempt)
        given, self.given = self.given, None
        if given is not None:
            given.ending.written_over()

    def found_gone(self, seen: Seen) -> None:
        """Note that another's record is there: the writes have failed, and what was handed over is gone."""
        self.claim.forget()
        given, self.given = self.given, None
        if given is not None:
            given.ending.found_gone(displaced(seen, given.tenure.owner, proven=not self.claim.doubtful))

    def change_owner(self) -> None:
        """Continue as a new owner after a lost lock, which may still be cleaning up."""
        self.owner = self._objects.issuer.fresh_owner()

    def start_over(self, last: Attempt) -> asyncio.Task[None]:
        """Free the handed-over lock and the own write, and continue without them; returns the freeing."""
        freeing = self.clean_up(last)
        self.given, self.claim = None, Claim(self._objects, self._key)
        self.change_owner()
        return freeing

    def clean_up(self, last: Attempt) -> asyncio.Task[None]:
        """Free in the background the lock that was handed over, and the own write."""
        given = self.given
        if given is not None and last.version is not None and not self.claim.is_spent(last):
            given.ending.written_over()  # by this acquisition
            given = None
        reaped = _Reaped(self._objects, self._key, self.claim, last)
        return self._objects.in_flight.spawn(reaped.run() if given is None else given.release.free())


class _Reaped:
    """Frees a write of an acquisition that has ended, because it may stand, or may still land (rule 3)."""

    def __init__(self, objects: LockObjects, key: str, claim: Claim, last: Attempt) -> None:
        self._objects = objects
        self._key = key
        self._claim = claim
        self._last = last

    async def run(self) -> None:
        """Free it, and report that."""
        self._objects.in_flight.note_unfreed(self)
        try:
            freed = await self._claim.free(self._last)
        except asyncio.CancelledError:
            if self._objects.closed is None:
                raise  # its loop ends: it is freed at the exit, through another
            freed = None
        self._note(freed)

    async def free_through(self, objects: LockObjects, loss: str | None = None) -> None:
        """See ``Unfreed``."""
        del loss  # nobody holds it
        with suppress(TimeoutError):
            async with asyncio.timeout(objects.timing.exit_bound):
                self._note(await self._claim.free(self._last, through=objects))

    def note_pending(self) -> None:
        """Do nothing: no caller waited for it."""

    def give_up(self, reason: str) -> None:
        """Do nothing: no caller waits for it, and its record says when it is free."""
        del reason
        self._objects.in_flight.note_freed(self)

    def _note(self, freed: Landed | Displaced | None) -> None:
        self._objects.in_flight.note_freed(self)
        if isinstance(freed, Landed):
            self._objects.events.emit("reaped", self._key, self._last.record.owner, self._last.record.epoch)
