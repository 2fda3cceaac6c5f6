"""What must never happen, from the text of ``docs/concepts/protocol.md`` alone."""

from __future__ import annotations

import json
import math
import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from asynclock import Lease
    from tests.laboratory.attack.bucket import Bucket, Thing
    from tests.laboratory.attack.world import World


@dataclass(eq=False)
class Claim:
    """A lease that a user was given, or a Hudi writer's belief.

    Attributes:
        key: Of the lock object.
        owner: As in the record.
        who: Client, for the trace.
        lease_ref: What is asked whether it believes; weakly, since users may drop it.
        ended: It said once that it does not believe.
        excused: The lock was broken by force: it may believe until it learns of it.
        until: When it ends by itself.
    """

    key: str
    owner: str
    who: str
    lease_ref: weakref.ref[Lease | Any]
    ended: bool = False
    excused: bool = False
    until: float = math.inf

    @property
    def held(self) -> bool:
        """Whether the lease is still there and believes."""
        lease = self.lease_ref()
        return lease is not None and bool(lease.held)


@dataclass
class Judge:
    """Watches one history.

    Attributes:
        violations: What must not happen and did.
        may_be_corrupt: Keys that somebody wrote garbage to by hand.
        waiting: Since when clients wait for a turn.
        tickets: Names of locks, and a ticket of each that somebody was given.
        most: How many may believe at once, by all locks together; 0: as many as there are locks.
        alone: The lock whose believer must be the only one of all; empty: there is none.
        every: Seconds of a period of a job.
        settling: The standing token of a lock, in seconds, where it was made after a record without one.
    """

    world: World
    bucket: Bucket
    violations: list[str] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    most: int = 0
    alone: str = ""
    acquisitions: int = 0
    acknowledged: dict[str, list[str]] = field(default_factory=dict)
    may_be_corrupt: set[str] = field(default_factory=set)
    waiting: dict[str, float] = field(default_factory=dict)
    settling: dict[str, float] = field(default_factory=dict)
    tickets: list[tuple[str, str]] = field(default_factory=list)
    every: float = 0.0
    _periods: dict[str, int] = field(default_factory=dict)
    _marks: dict[tuple[str, int], int] = field(default_factory=dict)
    _results: dict[tuple[str, int], int] = field(default_factory=dict)
    _last: dict[tuple[str, str], Claim] = field(default_factory=dict)
    _redeemed: dict[str, str] = field(default_factory=dict)
    _dropped: set[str] = field(default_factory=set)
    _broken: dict[str, tuple[int, str] | None] = field(default_factory=dict)
    _highest: dict[str, tuple[int, str]] = field(default_factory=dict)

    def blame(self, rule: str, what: str) -> None:
        """Note a violation."""
        self.world.tell("JUDGE", f"{rule}: {what}")
        self.violations.append(f"{rule}: {what}")

    # One believer, and it is the one that the store names.

    def given(self, key: str, who: str, lease: Lease | Any, token: int | None) -> Claim:  # noqa: ANN401
        """Take in a lease that was handed out just now, with its token (None: a Hudi writer's)."""
        claim = Claim(key, lease.owner, who, weakref.ref(lease), excused=lease.owner in self._broken)
        self.claims.append(claim)
        self._last[who, key] = claim
        self.acquisitions += 1
        self.world.tell(who, f"HAS {key} owner={lease.owner[:8]} token={token} held={lease.held}")
        if token is not None:
            highest = self._highest.get(key)
            # One that was broken before its holder had the answer may be reported after its successor: its
            # token rises over those that were told before the break.
            rises_over = self._broken.get(lease.owner, highest)
            if rises_over is not None and token <= rises_over[0]:
                behind = (rises_over[0] - token) / 1e6
                self.blame(
                    "token",
                    f"{who} was given {token} of {key}, {behind:.6f} s behind that of {rises_over[1]}",
                )
            self._highest[key] = max(highest or (0, ""), (token, who))
        self.look(key)
        return claim

    def landed(self, key: str, thing: Thing) -> None:
        """Look at those who believe after a write of ``key``."""
        self.look(key)
        if key.endswith(".json"):
            self._still_readable(key, thing)
            self._note_token(key)
        elif key.endswith(".once"):
            self.marked(key, thing)

    def look(self, key: str | None = None) -> None:
        """Ask every lease whether it believes: one at most, whose record is the newest and live."""
        believers: dict[str, Claim] = {}
        for claim in list(self.claims):
            if key is not None and claim.key != key:
                continue
            if not claim.held:
                claim.ended = True
                self.claims.remove(claim)
                continue
            if self.world.now > claim.until:
                self.blame("capped", f"{claim.who} believes in {claim.key} after its end at {claim.until}")
                claim.until = math.inf  # told once
            if claim.excused:
                continue
            head = self.head(claim.key)
            if head is None or head.get("expired") or head.get("owner") != claim.owner:
                self.claims.remove(claim)  # told once
                stands = None if head is None else {name: head.get(name) for name in ("owner", "expired")}
                self.blame(
                    "believer",
                    f"{claim.who} believes in {claim.key} as {claim.owner}, but there stands {stands}",
                )
            elif claim.key in believers:
                other = believers[claim.key]
                if other.owner != claim.owner:
                    self.blame("believers", f"{claim.who} and {other.who} both believe in {claim.key}")
            believers[claim.key] = claim
        if self.most or self.alone:
            self._look_around()

    def _look_around(self) -> None:
        """Look at those who believe in a semaphore or a reader-writer lock, whatever the part."""
        held = [each for each in self.claims if each.held and not each.who.startswith("stranger")]
        names = ", ".join(f"{each.who} in {each.key}" for each in held)
        if self.most and len(held) > self.most:
            self.blame("slots", f"{len(held)} believe, of {self.most}: {names}")
        if any(each.key == self.alone for each in held) and len(held) > 1:
            self.blame("beside", f"a writer is not alone: {names}")

    def not_revived(self, claim: Claim) -> None:
        """A lease that once said that it is lost stays lost."""
        if claim.ended and claim.held:
            self.blame("revived", f"{claim.who} believes in {claim.key} again")

    def head(self, key: str) -> dict[str, Any] | None:
        """Return the record that stands, or None."""
        thing = self.bucket.things.get(key)
        if thing is None:
            return None
        try:
            found = json.loads(thing.body)
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}

    def excuse(self, key: str) -> None:
        """The lock is broken by force: its holder may believe until its next renewal."""
        # Also where its holder has yet to learn that it has the lock: a break keeps the owner.
        owner = str((self.head(key) or {}).get("owner"))
        self._broken.setdefault(owner, self._highest.get(key))
        for claim in self.claims:
            if claim.key == key and claim.owner == owner:
                claim.excused = True

    # Records stay readable (rule 9's numbers, with nodes within their promise).

    def _still_readable(self, key: str, thing: Thing) -> None:
        record = self.head(key)
        if record is None or key in self.may_be_corrupt or self.bucket.weather.undated >= 1:
            return
        ahead = record.get("validUntil", 0) / 1000 - self.world.now
        if ahead > 8 * 86_400 + 60:
            self.blame("corrupt", f"{thing.by} wrote a validUntil {ahead / 86_400:.2f} days ahead")
        ahead = record.get("epoch", 0) / 1e6 - self.world.now
        if ahead > 86_400 + 60:
            self.blame("corrupt", f"{thing.by} wrote a token {ahead / 86_400:.2f} days ahead")

    def _note_token(self, key: str) -> None:
        """Remember a token from the future: its acquisition holds the lock until that has settled."""
        epoch = (self.head(key) or {}).get("epoch")
        if epoch is None:
            self._dropped.add(key)
        elif key in self._dropped:
            self._dropped.discard(key)
            self.settling[key] = epoch / 1e6
        elif self.settling.get(key) != epoch / 1e6:
            self.settling.pop(key, None)

    def corrupt(self, who: str, key: str, error: Exception) -> None:
        """Take in that a client found a record corrupt."""
        if key not in self.may_be_corrupt:
            self.blame("corrupt", f"{who} cannot read {key}: {error}")

    # Releases tell the truth.

    def released(self, who: str, claim: Claim, before: dict[str, Any] | None) -> None:
        """Take in a release that returned well; ``before`` is the record that stood when it began."""
        stood = before is not None and not before.get("expired") and before.get("owner") == claim.owner
        if not stood:
            owner = None if before is None else (before.get("owner"), before.get("expired"))
            self.blame("swallowed", f"{who} released {claim.key} well, although there stood {owner}")
        if claim.held:
            self.blame("believer", f"{who} believes in {claim.key} after its release")

    # Tickets.

    def redeemed(self, who: str, ticket: str) -> None:
        """Take in a lease that a ticket has made; it makes one at most."""
        if ticket in self._redeemed:
            self.blame("ticket", f"{who} has got the lock by a ticket that {self._redeemed[ticket]} has used")
        self._redeemed[ticket] = who

    # Several locks at once.

    def all_or_none(self, who: str, claims: list[Claim]) -> None:
        """Look at locks that are held together: the loss of one is that of all."""
        if not all([claim.held for claim in claims]) and any(claim.held for claim in claims):  # noqa: C419  all are asked
            held = {claim.key: claim.held for claim in claims}
            self.blame("torn", f"{who} holds some of what it held together: {held}")

    def left(self, who: str, claims: list[Claim]) -> None:
        """Take in that the holder of those has left its body."""
        for claim in claims:
            if claim.held:
                self.blame("believer", f"{who} believes in {claim.key} after it has left its body")

    # Jobs.

    def marked(self, key: str, thing: Thing) -> None:
        """Look at a mark that has landed: the periods never go back."""
        head, _, body = thing.body.partition(b"\n")
        period, token = json.loads(body)["period"], json.loads(head)["fencingToken"]
        before = self._periods.get(key)
        if before is not None and period < before:
            self.blame("period", f"{thing.by} marks period {period} of {key} over {before}")
        self._periods[key], self._marks[key, token] = period, period

    def answered(self, who: str, name: str, token: int | None, *, began: float, wait: bool) -> None:
        """Take in what a job's call returned: the token of its run, or None if it was skipped."""
        key, every = f"{name}.once", self.every
        if token is None:
            period = math.floor((began + min(self.bucket.nodes)) / every)
            if wait and self._periods.get(key, -1) < period:
                self.blame("skipped", f"{who} waited for {name}, is skipped, and period {period} is not done")
            return
        if (period := self._marks.get((key, token), -1)) < 0:
            self.blame("unmarked", f"{who} has run {name} under {token}, which is not marked")
        elif self._results.setdefault((key, period), token) != token:
            self.blame("twice", f"{who} has run {name} in period {period}, which another run had done")

    # Turns.

    def overdue(self, patience: float) -> None:
        """Look for anyone who has been waiting for a turn for longer than ``patience``."""
        for who, since in list(self.waiting.items()):
            if self.world.now - since > patience:
                self.blame("starved", f"{who} has waited {self.world.now - since:.1f} s for a turn")

    def nothing_left(self, who: str) -> None:
        """An ``aclose`` has returned in time: what was not lost before has been freed."""
        for (owner, key), claim in self._last.items():
            lease, head = claim.lease_ref(), self.head(key) or {}
            kept = head.get("owner") == claim.owner and not head.get("expired")
            if owner == who and kept and lease is not None and lease.lost is None and not claim.excused:
                self.blame("closed", f"an aclose() of {who} has returned, and {key} is still held")

    # Updates are counted.

    def acknowledge(self, key: str, mark: str) -> None:
        """Take in an update of a fenced object that returned well."""
        self.acknowledged.setdefault(key, []).append(mark)

    def count_updates(self, *, once: bool) -> None:
        """Compare the fenced objects with what was acknowledged; ``once``: none may be there twice."""
        for key, marks in self.acknowledged.items():
            thing = self.bucket.things.get(key)
            found = [] if thing is None else thing.body.partition(b"\n")[2].decode().split()
            if key.endswith(".sum"):
                total = int(found[0]) if found else 0
                if total < len(marks):
                    self.blame(
                        "update", f"{len(marks)} updates of {key} are acknowledged, {total} are counted"
                    )
                continue
            lost = [mark for mark in marks if mark not in found]
            if lost:
                self.blame("update", f"{len(lost)} of {len(marks)} acknowledged updates of {key} are lost")
            if once and len(found) != len(set(found)):
                self.blame("update", f"an update of {key} was made twice")
