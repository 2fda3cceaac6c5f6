"""The writes with which a client holds or may hold a lock, and the way to free it (rules 2, 3 and 6)."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING

from asynclock._core.protocol.decisions import Displaced, displaced
from asynclock._core.protocol.outcomes import Attempt, Landed, Open, Refused
from asynclock._core.protocol.refusals import Refusals
from asynclock.errors import BackendError, ConfigError, RecordCorruptError

if TYPE_CHECKING:
    from asynclock._core.protocol.decisions import Seen
    from asynclock._core.protocol.objects import LockObjects
    from asynclock._core.protocol.outcomes import Outcome
    from asynclock._core.protocol.refusals import Shown


class Claim:
    """The writes of one acquisition or of one held lock that may still land, or have landed last.

    Only the claim knows their outcomes: the versions they made, whether they can still make a lease, and
    whether store time has reached their tokens. An equal nonce proves that a record is one of them; an equal
    owner does not. A hand-over passes the claim on: the receiver's writes join it, so it finds out the
    outcome of all of them.

    Args:
        objects: How the client writes.
        key: Of the object.
        landed: The write that made the lease whose claim this is; None: an acquisition's.

    Attributes:
        doubtful: A write may have freed or taken over the lock unseen: another's record proves no loss.
        refusal: Why the store refuses to free it although it shows no other write; else None (rule 23).
        error: Why the last try to free it did not succeed, if the store said so.
        offer: The owner of a record that keeps the lock for a ticket; None: of one that keeps it for nobody.
    """

    def __init__(self, objects: LockObjects, key: str, landed: Attempt | None = None) -> None:
        self._objects = objects
        self._key = key
        self._by_nonce: dict[str | None, Attempt] = {}
        self._spent: list[str] = []  # the owners that have made a lease
        self._reached = -1  # the highest token that store time is known to have reached
        if landed is not None:
            self._by_nonce[landed.record.nonce] = landed
            self.spend(landed)
        self._freeing: dict[str | None, Attempt] = {}  # like ``_by_nonce``, the writes of ``free``
        self.doubtful: bool = False
        self.refusal: BackendError | None = None
        self.error: BackendError | ConfigError | None = None
        self.offer: str | None = None

    async def write(self, attempt: Attempt, *, timeout: float) -> Outcome:
        """Send one attempt, and remember its outcome. A cancelled call waits for the outcome first.

        Raises:
            BackendError: Waiting does not help; ``written`` says whether the write may be in the store.
        """
        nonce = attempt.record.nonce
        self._by_nonce[nonce] = attempt
        with self._objects.in_flight.protect(at_most=self._objects.timing.exit_bound):
            try:
                outcome = await self._objects.write(self._key, attempt, timeout=timeout)
            except BackendError as error:
                if error.written == "no":
                    self._by_nonce.pop(nonce, None)
                self._note_doubt(attempt, error)
                raise
            except asyncio.CancelledError:
                self._note_doubt(attempt)
                raise
            if isinstance(outcome, Landed):
                self._by_nonce[nonce] = outcome.attempt
            elif isinstance(outcome, Open):  # a refusal is believed
                self._note_doubt(attempt, outcome.error)
            return outcome

    def _note_doubt(self, attempt: Attempt, error: BackendError | None = None) -> None:
        """Note that an attempt has no answer. A renewal leaves no doubt: it frees and takes nothing."""
        if (error is None or error.written == "unknown") and not self.is_spent(attempt):
            self.doubtful = True

    def is_spent(self, attempt: Attempt) -> bool:
        """Whether a write can no longer make a lease: it is a renewal, or it already made one (rule 2)."""
        return attempt.record.owner in self._spent

    def spend(self, attempt: Attempt) -> None:
        """Note that an attempt makes a lease; neither it nor a renewal of that lease makes another."""
        self._spent.append(attempt.record.owner)

    def settle(self, seen: Seen) -> Landed | None:
        """Return the write of this claim that a read shows to have landed; None: it shows none (rule 2).

        Only here nonces are compared. If it ``frees`` the lock, ``free`` has sent it, not an operator.
        """
        record, version = seen.record, seen.version
        if record is None:
            return None
        nonce = record.nonce
        if nonce in self._freeing:
            freeing = self._freeing[nonce]
            # Without a nonce, only a free record of that owner is a release.
            ours = nonce is not None or (record.expired and record.owner == freeing.record.owner)
            return Landed(freeing.at(version), read_back=True) if ours else None
        if record.expired or nonce is None:
            return None
        attempt = self._by_nonce.get(nonce)
        if attempt is None:
            return None
        if attempt.version != version:
            attempt = self._by_nonce[nonce] = attempt.at(version)
        return Landed(attempt, read_back=True)

    def open_on(self, base: str | None) -> bool:
        """Whether an attempt on ``base`` may still land."""
        return any(each.version is None and each.base == base for each in self._by_nonce.values())

    def note_landed(self, attempt: Attempt) -> None:
        """Note that ``attempt`` landed. Writes based on older versions can only fail, so forget them."""
        kept = {nonce: each for nonce, each in self._by_nonce.items() if each.base == attempt.version}
        self._by_nonce = {attempt.record.nonce: attempt, **kept}

    def forget(self) -> None:
        """Forget all attempts: their base is gone."""
        self._by_nonce.clear()

    def last(self) -> Attempt | None:
        """Return the latest attempt, or None."""
        return next(reversed(self._by_nonce.values()), None)

    def settles_at(self, attempt: Attempt) -> float | None:
        """Return the store time that its token must wait for (rule 11); None: that time has come."""
        epoch = attempt.record.epoch
        return None if epoch is None or epoch <= self._reached else attempt.settled_at

    def note_settled(self, attempt: Attempt) -> float:
        """Note if store time has reached the token of ``attempt`` (rule 11); return seconds until then."""
        wait = self._objects.issuer.until_settled(self.settles_at(attempt))
        if wait <= 0:
            assert attempt.record.epoch is not None  # noqa: S101  our own record
            # For good, also if no Date is carried any more.
            self._reached = max(self._reached, attempt.record.epoch)
        return wait

    async def free(
        self,
        head: Attempt,
        *,
        kept_until: float = -math.inf,
        through: LockObjects | None = None,
        tried: Outcome | None = None,
    ) -> Landed | Displaced | None:
        """Write a free record, so that nothing of this claim is held or can still land (rule 3).

        It is conditional on the version that ``head`` made, or on its base if ``head`` is not known to have
        landed. Success makes every pending write on that version fail. If the version is gone, the object is
        read once, and freed if it shows one of these attempts. While the outcome is unknown, this is repeated
        with backoff, for L plus a request timeout. If this claim's event loop is closed, the requests go
        ``through`` other objects. ``tried`` is the answer to a write that ``free_once`` already sent.

        Until ``kept_until``, by the boot clock, the record is not free but a live one that promises what is
        left of that time. No client believes in it or renews it (rule 21).

        It ends as soon as the store has refused three such writes over an unchanged object (rule 23).

        Returns:
            The write that freed the lock; or what stands in its place; or None if the store did not say, or
            only that it refuses (``refusal``).
        """
        objects, loop, refusals = through or self._objects, asyncio.get_running_loop(), Refusals()
        until = loop.time() + objects.timing.clean_up_for
        pause = first = objects.timing.poll_interval / 4
        while not refusals.final:
            try:
                outcome = tried or await self.free_once(head, kept_until, objects)
                tried = None
                if isinstance(outcome, Landed):
                    return outcome
                seen = await objects.read(self._key)
            except RecordCorruptError as corrupt:
                return Displaced(f"its object is corrupt: {corrupt.reason}")
            except (BackendError, ConfigError) as error:
                self.error = error  # try again, even after a refusal: permissions and credentials come back
            else:
                landed = self.settle(seen)
                if landed is not None and landed.attempt.frees:
                    return landed
                base = outcome.attempt.base, None if head.version is None else head.record
                self._note_refusal(refusals, outcome, base, seen)
                if seen.version != outcome.attempt.base:
                    if landed is None:
                        return displaced(seen, head.record.owner, proven=not self.doubtful)
                    head = landed.attempt
                    continue
            if loop.time() >= until or objects.closed is not None:
                return None
            hurried = await objects.in_flight.pause(objects.jittered(pause))
            pause = first if hurried else min(pause * 2, objects.timing.renew_interval)
        return None

    def _note_refusal(self, refusals: Refusals, outcome: Outcome, base: Shown, seen: Seen) -> None:
        """Note the object seen after a refused write over ``base`` (rule 23)."""
        if isinstance(outcome, Refused) and refusals.note(base, (seen.version, seen.record)):
            self.refusal = refusals.error(outcome.error, url=self._objects.events.url)

    async def free_once(
        self,
        head: Attempt,
        kept_until: float = -math.inf,
        objects: LockObjects | None = None,
        *,
        timeout: float | None = None,
    ) -> Outcome:
        """Send one write of ``free``; return the store's answer.

        Raises BackendError or ConfigError if nothing was written.
        """
        objects = objects or self._objects
        await objects.pace(self._key)
        unsettled = [at for each in self._by_nonce.values() if (at := self.settles_at(each)) is not None]
        # No successor may build on a token from the future: drop our fields, as Hudi does (rule 11).
        keep_token = objects.issuer.until_settled(max(unsettled, default=None)) <= 0
        nonce = objects.issuer.fresh_nonce() if keep_token else None
        attempt = self._freeing[nonce] = await self._attempt_to_free(objects, head, nonce, kept_until)
        try:
            outcome = await objects.write(self._key, attempt, timeout=timeout)
        except (BackendError, ConfigError) as error:
            self.error = error
            raise
        self.error = None if isinstance(outcome, Landed) else outcome.error
        if isinstance(outcome, Open) and outcome.error.written == "unknown":
            self.doubtful = True
        return outcome

    async def _attempt_to_free(
        self, objects: LockObjects, head: Attempt, nonce: str | None, kept_until: float
    ) -> Attempt:
        """Return the write that frees ``head``'s record, or keeps it until then."""
        if kept_until > objects.clock.boot() and not objects.issuer.knows_time():
            await objects.read(self._key)  # readers do not trust a promise from an old Date (rule 8)
        now, base = objects.now(), head.base if head.version is None else head.version
        left = kept_until - now.boot
        if nonce is None or left <= 0:
            return Attempt(head.record.released(nonce=nonce), base, now)
        valid_until = objects.issuer.promise(now, lease=left) or head.record.valid_until_ms
        kept = head.record.kept(nonce=nonce, valid_until_ms=valid_until, seconds=left, owner=self.offer)
        return Attempt(kept, base, now)
