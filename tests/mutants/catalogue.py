# ruff: noqa: E501  patches stand as the source has them
"""The mutants: each a patch of the shipped source, the invariant it breaks, and where.

``old`` must occur exactly once in the file, so that a mutant whose source has moved on fails the
run instead of passing unseen. ``scenario`` is one of the simulator's, or an exploration:
``single-faults``, ``cancellations``, ``interleavings``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from asynclock.testing.checker import Invariant

ONE: Final = Invariant.ONE_BELIEVER
HEAD: Final = Invariant.HEADS_CHAIN
TOKEN: Final = Invariant.TOKEN_RISES
LEFT: Final = Invariant.NOTHING_LEFT


@dataclass(frozen=True, slots=True)
class Mutant:
    """One planted mistake.

    Attributes:
        name: What the mistake is.
        path: File under ``asynclock/``.
        old: Text that is replaced; it occurs exactly once.
        new: The mistake.
        invariant: What must be reported violated.
        scenario: Where.
        also: More of the same mistake in the same file, where one place alone is made up for by another.
    """

    name: str
    path: str
    old: str
    new: str
    invariant: Invariant
    scenario: str
    also: tuple[tuple[str, str], ...] = ()


_ATTEMPTS = "protocol/attempts.py"
_JUDGE = "protocol/judgement.py"
_TENURE = "protocol/tenure.py"
_STORE = "protocol/store.py"
_ACQUIRE = "protocol/acquisition.py"
_REAPER = "protocol/reaper.py"
_CLOCK = "clock.py"
_FENCING = "fencing.py"
_TERMS = "protocol/terms.py"
_LEASE = "lease.py"
_CLIENT = "client.py"

MUTANTS: Final = (
    # Writing: nonces, read-back, conditions.
    Mutant(
        "adopt whatever record is found",
        _ATTEMPTS,
        "attempt = self._by_nonce.get(seen.record.nonce)",
        "attempt = next(reversed(self._by_nonce.values()), None)",
        HEAD,
        "zombie-writes",
    ),
    Mutant(
        "adopt by owner instead of nonce",
        _ATTEMPTS,
        "        attempt = self._by_nonce.get(seen.record.nonce)\n",
        "        owner = seen.record.owner\n"
        "        own = [each for each in self._by_nonce.values() if each.record.owner == owner]\n"
        "        attempt = own[-1] if own else None\n",
        ONE,
        "refused-writes",
    ),
    Mutant(
        "use one nonce for all writes",
        _STORE,
        "return self._rng.randbytes(16).hex()",
        'return f"{1:032x}"',
        HEAD,
        "contention",
    ),
    Mutant(
        "keep the nonce of the lease for its renewals",
        _TENURE,
        "record = base.record._replace(nonce=self._store.fresh_nonce(), valid_until_ms=valid_until)",
        "record = base.record._replace(valid_until_ms=valid_until)",
        ONE,
        "refused-writes",
    ),
    Mutant(
        "take over without a condition",
        _STORE,
        'name, put = "put_if_match", self._backend.put_if_match(key, body, attempt.base)',
        'name, put = "put_if_match", self._backend.put(key, body)',
        HEAD,
        "contention",
    ),
    Mutant(
        "create without a condition",
        _STORE,
        'name, put = "put_if_absent", self._backend.put_if_absent(key, body)',
        'name, put = "put_if_absent", self._backend.put(key, body)',
        HEAD,
        "interleavings",
    ),
    Mutant(
        "release without a condition",
        _STORE,
        "        if attempt.base is None:\n",
        "        if attempt.record.expired:\n"
        '            name, put = "put_if_match", self._backend.put(key, body)\n'
        "        elif attempt.base is None:\n",
        HEAD,
        "zombie-writes",
    ),
    Mutant(
        "treat an unknown renewal as done",
        _TENURE,
        "            if error is None:\n                self._extend(attempt)\n                return None\n"
        "            return await self._read_back(error)",
        "            self._extend(attempt)\n            return None",
        ONE,
        "partition",
    ),
    Mutant(
        "treat an unknown acquisition as done",
        _ACQUIRE,
        "        if self.error is None:\n            await self._take(attempt",
        "        if True:\n            await self._take(attempt",
        HEAD,
        "contention",
    ),
    Mutant(
        "treat 409 and 412 as held by another",
        _ACQUIRE,
        "        mine = self._attempts.find(seen)\n        if mine is not None and not mine.spent:\n",
        "        mine = None\n        if mine is not None and not mine.spent:\n",
        Invariant.TAKEOVER_BOUND,
        "single-faults",
    ),
    Mutant(
        "treat a refused renewal as lost without reading back",
        _TENURE,
        "        if (left := self.remaining()) <= 0:\n            return error\n",
        "        if isinstance(error, BackendError):\n"
        '            self._taken_over(Displaced("the write was refused"))\n            return None\n'
        "        left = 1.0\n",
        Invariant.NO_FALSE_LOSS,
        "single-faults",
    ),
    Mutant(
        "leave what may still land",
        _ACQUIRE,
        "            reaping = self._spawn(self._reap(attempt))",
        "            reaping = self._spawn(asyncio.sleep(0))",
        LEFT,
        "cancellations",
    ),
    Mutant(
        "keep a lock that a cancelled acquisition got",
        _ACQUIRE,
        "            self._tenure.end_belief()\n            await self._tenure.release()\n            return\n",
        "            return\n",
        Invariant.TAKEOVER_BOUND,
        "hudi-turns",
    ),
    Mutant(
        "keep a lock whose caller was cancelled at the last moment",
        "lock.py",
        "            undo=self._undo,\n",
        "",
        LEFT,
        "cancellations",
    ),
    Mutant(
        "give up a release that was refused",
        _REAPER,
        "                mine = attempts.find(seen)\n",
        "                mine = None\n",
        LEFT,
        "cancellations",
    ),
    Mutant(
        "give up a release that was not answered",
        _REAPER,
        "            pass  # even a refusal may pass: permissions and tokens come back\n",
        "            return attempt\n",
        LEFT,
        "single-faults",
    ),
    Mutant(
        "do not release at all",
        _TENURE,
        '            if not await self._free("released", 2 * self._store.terms.request_timeout):\n'
        '                self._spawn(self._free("released", None))',
        "            self._tell(None)",
        LEFT,
        "single-faults",
    ),
    # Belief.
    Mutant(
        "believe until the record ends",
        _TENURE,
        "self._belief = store.terms.belief",
        "self._belief = store.terms.validity",
        ONE,
        "worst-clocks",
    ),
    Mutant(
        "count a renewal from its answer",
        _TENURE,
        "            self._sent = attempt.sent\n        self.until_settled()",
        "            self._sent = self._store.now()\n        self.until_settled()",
        HEAD,
        "slow-answers",
    ),
    Mutant(
        "count an acquisition from its answer",
        _TENURE,
        "        self._sent = landed.sent\n",
        "        self._sent = store.now()\n",
        HEAD,
        "slow-answers",
    ),
    Mutant(
        "count belief on the monotonic clock only",
        _TENURE,
        "return self._belief - max(\n"
        "            clock.monotonic() - sent.monotonic, clock.boot() - sent.boot, clock.wall() - sent.wall\n        )",
        "return self._belief - (clock.monotonic() - sent.monotonic)",
        ONE,
        "clock-chaos",
    ),
    Mutant(
        "count belief on the wall clock only",
        _TENURE,
        "return self._belief - max(\n"
        "            clock.monotonic() - sent.monotonic, clock.boot() - sent.boot, clock.wall() - sent.wall\n        )",
        "return self._belief - (clock.wall() - sent.wall)",
        ONE,
        "clock-chaos",
    ),
    Mutant(
        "never look at the deadline",
        _TENURE,
        "        if not self._ended and (left := self._left()) > 0:\n            return left\n",
        "        if not self._ended:\n            return 1.0\n",
        ONE,
        "partition",
    ),
    Mutant(
        "revive a lost lease",
        _TENURE,
        "                self._lose(self._error(LeaseExpiredError, _EXPIRED))\n        return 0.0\n",
        "        return 0.0\n",
        Invariant.LOSS_IS_FINAL,
        "clock-chaos",
    ),
    Mutant(
        "go on believing while the release is sent",
        _TENURE,
        "            self._ended = True\n        return True\n",
        "            pass\n        return True\n",
        HEAD,
        "contention",
    ),
    Mutant(
        "release beside a renewal in flight",
        _TENURE,
        "            await asyncio.wait([self._flight], timeout=self._store.terms.request_timeout)\n",
        "            pass\n",
        Invariant.ONE_WRITE,
        "contention",
    ),
    Mutant(
        "renew after the deadline",
        _TENURE,
        "        if (left := self.remaining()) <= 0:\n            return None\n",
        "        left = max(self.remaining(), 0.1)\n",
        Invariant.END_IS_KEPT,
        "paced",
    ),
    # Taking over.
    Mutant(
        "trust a Date without a witness",
        _JUDGE,
        "if expiry is not None and seen.date is not None and seen.date.by_wall:",
        "if expiry is not None and seen.date is not None:",
        HEAD,
        "wrong-store-times",
    ),
    Mutant(
        "free by Dates that outvote the wall clock",
        _JUDGE,
        "if expiry is not None and seen.date is not None and seen.date.by_wall:",
        "if expiry is not None and seen.date is not None and seen.date.usable:",
        HEAD,
        "wrong-store-times",
    ),
    Mutant(
        "trust the local wall clock",
        _JUDGE,
        "    if expiry is not None and seen.date is not None and seen.date.by_wall:\n"
        "        remaining = expiry - seen.date.value\n",
        "    if expiry is not None:\n        remaining = expiry - seen.arrived.wall\n",
        HEAD,
        "clock-chaos",
    ),
    Mutant(
        "drop S + R from the takeover",
        _JUDGE,
        "return last_modified + lease + terms.slack",
        "return last_modified + lease",
        HEAD,
        "worst-clocks",
    ),
    Mutant(
        "trust a last_modified from before its write",
        _JUDGE,
        "    if last_modified < earliest:\n        return None\n",
        "",
        HEAD,
        "wrong-store-times",
    ),
    Mutant(
        "count another's lease as long as one's own",
        _JUDGE,
        "    lease = record.lease_ms / 1000\n",
        "    lease = terms.validity\n",
        HEAD,
        "mixed-settings",
    ),
    Mutant(
        "observe for one's own validity only",
        _JUDGE,
        "observation.left(seen, max(record.lease_ms / 1000, terms.validity))",
        "observation.left(seen, terms.validity)",
        HEAD,
        "observation",
    ),
    Mutant(
        "go on observing when the version changes",
        _JUDGE,
        "        if seen.version != self._version:\n            self._version = seen.version\n            self._since",
        "        self._version, first = seen.version, self._version is None\n        if first:\n            self._since",
        HEAD,
        "observation",
    ),
    Mutant(
        "observe from the sending of the first request",
        _JUDGE,
        "            self._since = seen.arrived.monotonic\n",
        "            self._since = seen.arrived.monotonic - 1.9\n",
        HEAD,
        "observation",
    ),
    Mutant(
        "take a corrupt record for no record",
        _STORE,
        "        record = parse_record(stored.body, key=key, version=stored.version, store_time=latest)\n",
        "        try:\n"
        "            record = parse_record(stored.body, key=key, version=stored.version, store_time=latest)\n"
        "        except Exception:\n            record = None\n",
        HEAD,
        "deletion",
    ),
    Mutant(
        "hand on before belief has ended",
        "core.py",
        "        if not tenure.end_belief():\n            return False\n        try:",
        "        if tenure.remaining() <= 0:\n            return False\n        try:",
        HEAD,
        "hand-off",
    ),
    Mutant(
        "drop what was handed to somebody who is gone",
        "core.py",
        "            self._spawn(self._free_baton(turn.baton))",
        "            self._line.leave()",
        LEFT,
        "cancellations",
    ),
    # Beside Hudi.
    Mutant(
        "judge a Hudi record by its validUntil only",
        _JUDGE,
        "return max(valid_until + HUDI_DRIFT, last_modified + terms.validity) + terms.slack",
        "return valid_until + HUDI_DRIFT",
        HEAD,
        "hudi-behind",
    ),
    Mutant(
        "forget when a Hudi record was written",
        _JUDGE,
        "return max(valid_until + HUDI_DRIFT, last_modified + terms.validity) + terms.slack",
        "return valid_until + HUDI_DRIFT + terms.slack",
        HEAD,
        "hudi-behind",
    ),
    Mutant(
        "observe a Hudi record though Dates are usable",
        _JUDGE,
        "        if observation.dated:\n            return math.inf\n",
        "        return observation.left(seen, terms.validity)\n",
        HEAD,
        "hudi-peer",
    ),
    Mutant(
        "publish validUntil from the earliest store time",
        _STORE,
        "latest = self.time.latest(now)",
        "latest = (self.time.bounds(now) or (self.time.latest(now),))[0]",
        HEAD,
        "hudi-ahead",
    ),
    Mutant(
        "publish as if no Date were cut short",
        _CLOCK,
        "            date.value + self._resolution + (now.boot - date.sent.boot),\n",
        "            date.value + (now.boot - date.sent.boot),\n",
        HEAD,
        "hudi-ahead",
    ),
    Mutant(
        "publish no allowance for skew",
        _JUDGE,
        "return math.ceil((latest + terms.skew + terms.validity) * 1000)",
        "return math.ceil((latest + terms.validity) * 1000)",
        HEAD,
        "hudi-ahead",
    ),
    Mutant(
        "publish by the local wall clock",
        _STORE,
        "latest = self.time.latest(now)",
        "latest = now.wall",
        HEAD,
        "hudi-clocks",
    ),
    Mutant(
        "carry store time by the wall clock",
        _CLOCK,
        "            date.value + self._resolution + (now.boot - date.sent.boot),\n",
        "            date.value + self._resolution + (now.wall - date.sent.wall),\n",
        HEAD,
        "hudi-clocks",
    ),
    Mutant(
        "publish by a Date without a witness",
        _CLOCK,
        "            if usable:\n",
        "            if True:\n",
        HEAD,
        "hudi-clocks",
    ),
    Mutant(
        "let one wrong Date witness another",
        _CLOCK,
        "by_wall or (self._wall_is_wrong(arrived.boot) and self._has_witnesses(value, sent, arrived))",
        "True",
        HEAD,
        "hudi-clocks",
    ),
    # Tokens.
    Mutant(
        "take the token from store time only",
        _JUDGE,
        "return Token(max(predecessor.epoch + 1, _micros(earliest)))",
        "return Token(_micros(earliest))",
        TOKEN,
        "contention",
    ),
    Mutant(
        "hand the predecessor's token out again",
        _JUDGE,
        "return Token(max(predecessor.epoch + 1, _micros(earliest)))",
        "return Token(max(predecessor.epoch, _micros(earliest)))",
        TOKEN,
        "contention",
    ),
    Mutant(
        "reset the token on creation",
        _JUDGE,
        "return Token(_micros(earliest + terms.resolution))",
        "return Token(1)",
        TOKEN,
        "deletion",
    ),
    Mutant(
        "reset the token on release",
        "record.py",
        "return self._replace(expired=True, nonce=nonce)",
        "return self._replace(expired=True, nonce=nonce, epoch=0)",
        TOKEN,
        "contention",
    ),
    Mutant(
        "guess a dropped token too low",
        _JUDGE,
        "        settled_at = latest + terms.slack\n",
        "        settled_at = earliest\n",
        TOKEN,
        "hudi-turns",
    ),
    Mutant(
        "hand a token out before its wait beside Hudi",
        _STORE,
        "        if settled_at is None:\n            return 0.0\n",
        "        return 0.0\n",
        TOKEN,
        "hudi-turns",
    ),
    Mutant(
        "keep a token from the future when released",
        _TENURE,
        "            keep_token=self.until_settled() <= 0,\n",
        "            keep_token=True,\n",
        TOKEN,
        "hudi-turns",
    ),
    # What an independent attack found.
    Mutant(
        "make a second lease of one attempt",
        _ACQUIRE,
        "        if mine is not None and not mine.spent:\n",
        "        if mine is not None:\n",
        HEAD,
        "hudi-endings",
    ),
    Mutant(
        "keep a loss found at release to oneself",
        _LEASE,
        "        await self._end(self._tenure)\n        if self._tenure.lost is not None:\n",
        "        if not await self._end(self._tenure) and self._tenure.lost is not None:\n",
        Invariant.LOSS_IS_TOLD,
        "broken",
    ),
    Mutant(
        "take an operator's break for one's own release",
        _REAPER,
        "if seen.record is not None and attempts.has_released(seen, record.owner):",
        "if seen.record is not None and seen.record.expired and seen.record.owner == record.owner:",
        Invariant.LOSS_IS_TOLD,
        "broken",
    ),
    Mutant(
        "tell the giver nothing where its receiver finds the lock gone",
        _ACQUIRE,
        "            self._baton.displaced_by(displaced(seen, self._baton.owner)._replace(proven=proven))\n",
        "            self._baton.taken_on()\n",
        Invariant.LOSS_IS_TOLD,
        "broken",
    ),
    Mutant(
        "take a store for dateless until its first Date",
        _STORE,
        "        self.dateless = not backend.sends_dates\n",
        "        type(self).dateless = property(lambda store: store.time._carried is None)\n",
        Invariant.NOT_AHEAD,
        "undated",
    ),
    Mutant(
        "publish what every reader calls corrupt",
        _TERMS,
        "return min(validity / _REQUESTS_PER_LEASE, _LONGEST_REQUEST)",
        "return validity / _REQUESTS_PER_LEASE",
        Invariant.READABLE,
        "any-validity",
    ),
    Mutant(
        "wait for ever for a last_modified of a Hudi record",
        _JUDGE,
        "        since = observation.first_date\n",
        "        since = None\n",
        Invariant.TAKEOVER_BOUND,
        "hudi-undated",
    ),
    Mutant(
        "let updates under one lease pass each other",
        _FENCING,
        "        async with lease.updating:\n            return await self._update(change, lease)\n",
        "        return await self._update(change, lease)\n",
        Invariant.NO_WRITE_LOST,
        "shared-fence",
    ),
    Mutant(
        "let a second caller of aclose return at once",
        _CLIENT,
        "        if self._closing is None:\n            self._closing =",
        "        if self._closing is not None:\n            return\n        if True:\n            self._closing =",
        Invariant.CLOSED,
        "endings",
    ),
    Mutant(
        "send requests after the end of the client",
        _STORE,
        "        if self.closed is not None:\n            call.close()\n            raise self.closed\n",
        "",
        Invariant.CLOSED,
        "endings",
        also=(("            expire()\n\n", "            pass\n\n"),),
    ),
    Mutant(
        "make way for as long as one's own poll interval says",
        _TERMS,
        "return max(self.poll_interval, default_poll_interval(self.validity))",
        "return self.poll_interval",
        Invariant.FAIR,
        "slow-waiter",
    ),
    Mutant(
        "poll slowly while the lock changes hands",
        "protocol/turnover.py",
        "return min(usual, default_poll_interval(record.lease_ms / 1000))",
        "return usual",
        Invariant.FAIR,
        "slow-waiter",
    ),
    # Other ends of a process.
    Mutant(
        "believe in a forked child",
        _TENURE,
        "            self._ended = True\n            self.lost = self._error(LeaseLostError, reason)\n",
        "            pass\n",
        ONE,
        "endings",
    ),
    Mutant(
        "tell nobody of a signal that is survived",
        _TENURE,
        "if self.end_belief() if loss is None else self.give_up(loss):",
        "if self.end_belief():",
        Invariant.LOSS_ENDS_BODY,
        "endings",
    ),
    Mutant(
        "release nothing at an exit",
        _TENURE,
        "            self._spawn(self.release())\n",
        "            pass\n",
        LEFT,
        "endings",
    ),
    Mutant(
        "keep a lease that nobody has any more",
        _LEASE,
        "            source=self,\n        )\n        self.let_go()\n",
        "            source=self,\n        )\n",
        Invariant.TAKEOVER_BOUND,
        "closed-loops",
    ),
    # Fencing, fairness, the end.
    Mutant(
        "let an older token write",
        _FENCING,
        "            if before is not None and before.fencing_token > token:\n",
        "            if before is not None and before.fencing_token < 0:\n",
        Invariant.NO_WRITE_LOST,
        "broken",
    ),
    Mutant(
        "write the fenced object without a condition",
        _FENCING,
        "backend.put_if_match(self.key, data, before.version)",
        "backend.put(self.key, data)",
        Invariant.NO_WRITE_LOST,
        "zombie-writes",
    ),
    Mutant(
        "apply a fenced change again though it has landed",
        _FENCING,
        "                and after.body in attempted\n",
        "                and False\n",
        Invariant.NO_WRITE_LOST,
        "zombie-writes",
    ),
    Mutant(
        "never make way",
        "line.py",
        "        if now - self._run_began >= self._terms.run_length:\n",
        "        if now < 0:\n",
        Invariant.FAIR,
        "turns",
    ),
    Mutant(
        "leave a renewal timer behind",
        "renewal.py",
        "        if entry is not None and entry.timer is not None:\n            entry.timer.cancel()\n",
        "",
        LEFT,
        "contention",
    ),
    Mutant(
        "let the body of hold() run on after a loss",
        "lock.py",
        '            self._task.cancel("the lease was lost")\n',
        "",
        Invariant.LOSS_ENDS_BODY,
        "clock-chaos",
    ),
    Mutant(
        "let a token settle by the last attempt, whichever landed",
        _ACQUIRE,
        "        attempt = Attempt(record, seen.version, now, settled_at=token.settled_at)\n",
        "        attempt = Attempt(record, seen.version, now, settled_at=token.settled_at)\n"
        "        for each in self._attempts._by_nonce.values():\n"
        "            each.settled_at = token.settled_at\n",
        Invariant.NOT_AHEAD,
        "hudi-endings",
    ),
    Mutant(
        "leave the round trip out of the shortest lease behind a Hudi writer",
        _TERMS,
        "return self.validity - self.slack",
        "return 2 * self.validity",
        Invariant.NOT_AHEAD,
        "hudi-short",
    ),
)
