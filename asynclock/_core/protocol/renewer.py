"""Renews one held lock: one conditional write, and what its answer means (rules 2, 4 and 5)."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from asynclock._core.names import by_name
from asynclock._core.protocol.belief import Phase
from asynclock._core.protocol.decisions import Displaced, displaced
from asynclock._core.protocol.outcomes import Attempt, Landed, Refused
from asynclock.errors import BackendError, ConfigError, RecordCorruptError

if TYPE_CHECKING:
    from asynclock._core.protocol.belief import Belief
    from asynclock._core.protocol.ending import Ending
    from asynclock._core.protocol.outcomes import Open


class Renewer:
    """Renews one held lock, with one write at a time. On the client's loop.

    Attributes:
        last: The last renewal, running or not; None: there was none.
    """

    def __init__(self, belief: Belief, ending: Ending) -> None:
        self.last: asyncio.Task[BackendError | None] | None = None
        self._tenure = belief.tenure
        self._objects = belief.tenure.objects
        self._claim = belief.tenure.claim
        self._belief = belief
        self._ending = ending

    @property
    def running(self) -> asyncio.Task[BackendError | None] | None:
        """The running renewal, or None."""
        return None if self.last is None or self.last.done() else self.last

    async def renew(self) -> BackendError | None:
        """Renew with one conditional write, or join a running renewal; return why it is not confirmed."""
        if (renewal := self.start()) is None:
            return None
        await asyncio.wait([renewal])
        return None if renewal.cancelled() else renewal.result()

    def start(self) -> asyncio.Task[BackendError | None] | None:
        """Start a renewal or return the running one; None if the lock is no longer held."""
        renewal = self.running
        if renewal is None and self._belief.end_if_due() > 0:
            # Already done if tasks start eagerly and the store answers at once.
            renewal = self.last = self._objects.in_flight.spawn(self._renew())
        return renewal

    async def _renew(self) -> BackendError | None:
        began = self._objects.clock.monotonic()
        error = await self._renew_once()
        if error is not None and self._belief.phase is Phase.HELD:
            reason, left = type(error).__name__, max(0.0, self._belief.left())
            detail = by_name(str(error), self._tenure.key)
            self._tenure.report("renewal_failed", detail, reason=reason, since=began, remaining=left)
        return error

    async def _renew_once(self) -> BackendError | None:
        objects, key = self._objects, self._tenure.key
        await objects.pace(key)
        if self._belief.capped and not objects.issuer.knows_time():
            with suppress(BackendError, RecordCorruptError, ConfigError):  # the write will tell
                await objects.read(key)  # as for a record that is kept (rule 21)
        if (left := self._belief.end_if_due()) <= 0:
            return None  # past the deadline no renewal is sent
        base = self._tenure.head
        try:
            now = objects.now()
            record = objects.issuer.renewed(base.record, now, self._belief.count_cap_from(now))
            attempt = Attempt(record, base.version, now, base.settled_at)
            outcome = await self._claim.write(attempt, timeout=left)
            if isinstance(outcome, Landed):
                self._extend(outcome.attempt)
                return None
            return await self._read_back(outcome)
        except RecordCorruptError as corrupt:
            self._taken_over(Displaced(f"its object is corrupt: {corrupt.reason}"))
            return None
        except BackendError as failed:
            return failed

    async def _read_back(self, outcome: Refused | Open) -> BackendError | None:
        """Find out the outcome of a renewal that the store did not confirm (rule 2)."""
        error = outcome.error
        if (left := self._belief.end_if_due()) <= 0:
            return error
        try:
            seen = await self._objects.read(self._tenure.key, timeout=left)
        except ConfigError:
            return error  # the write is as open as before
        head = self._tenure.head
        landed = self._claim.settle(seen)
        if landed is not None and landed.attempt.sent is not head.sent:
            self._extend(landed.attempt, reason="read_back")
            return None
        if landed is not None:
            # Written again under its nonce: the next renewal replaces that.
            self._tenure.head = landed.attempt
        if seen.version == self._tenure.head.version:
            if isinstance(outcome, Refused):
                refusals = self._tenure.refusals
                refusals.note((head.version, head.record), (seen.version, seen.record))
                return refusals.error(outcome.error, url=self._objects.events.url)
            return error  # unchanged: the attempt may still land
        self._taken_over(displaced(seen, self._tenure.owner))
        return None

    def _taken_over(self, by: Displaced) -> None:
        if self._belief.phase is Phase.HELD:  # else a release, which may be what was found, says how it ends
            self._ending.found_gone(by)

    def _extend(self, attempt: Attempt, reason: str = "") -> None:
        """Count belief from a renewal that landed, unless it has ended."""
        if self._belief.phase in {Phase.HANDED_OVER, Phase.RELEASED}:
            return  # the claim is the receiver's, or settled
        self._tenure.head = attempt
        self._claim.note_landed(attempt)
        if (left := self._belief.end_if_due()) <= 0 or not self._belief.extend(attempt.sent):
            return
        self._tenure.refusals.count = 0
        self._claim.note_settled(attempt)  # while there is a Date to tell by
        self._tenure.report("renewed", reason=reason, since=attempt.sent.monotonic, remaining=left, aged=True)
