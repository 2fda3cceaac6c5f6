"""The mutants: a mistake in one decision of a function, the invariant it breaks, and where it shows.

``planting`` says how a decision and its mistake are written. Every function has its line ahead of the
mutants, so that one line follows a rename. ``scenario`` is one of the simulator's, or an exploration:
``single-faults``, ``cancellations``, ``interleavings``.
"""

from __future__ import annotations

from typing import Final

from tests.laboratory.checker import Invariant
from tests.mutants.mutant import Mutant
from tests.mutants.planting import Change
from tests.mutants.several import SEVERAL_MUTANTS
from tests.mutants.shared import SHARED_MUTANTS

ONE: Final = Invariant.ONE_BELIEVER
HEAD: Final = Invariant.HEADS_CHAIN
TOKEN: Final = Invariant.TOKEN_RISES
LEFT: Final = Invariant.NOTHING_LEFT

# Writing, and what a read-back says of it.
_OBJECTS: Final = "asynclock._core.protocol.objects:LockObjects"
CLOSE_OBJECTS: Final = f"{_OBJECTS}.close"
READ: Final = f"{_OBJECTS}.read"
REQUEST: Final = f"{_OBJECTS}.request"
WRITE: Final = f"{_OBJECTS}.write"
_ISSUER: Final = "asynclock._core.protocol.issuer:Issuer"
ISSUER: Final = f"{_ISSUER}.__init__"
FRESH_NONCE: Final = f"{_ISSUER}.fresh_nonce"
PROMISE_NOW: Final = f"{_ISSUER}.promise"
RENEWED: Final = f"{_ISSUER}.renewed"
UNTIL_SETTLED: Final = f"{_ISSUER}.until_settled"
_CLAIM: Final = "asynclock._core.protocol.claim:Claim"
SETTLE: Final = f"{_CLAIM}.settle"
FREE: Final = f"{_CLAIM}.free"
CLAIM_WRITE: Final = f"{_CLAIM}.write"
FREE_ONCE: Final = f"{_CLAIM}.free_once"
FREEING: Final = f"{_CLAIM}._attempt_to_free"
RELEASED: Final = "asynclock._core.record:LockRecord.released"

# Acquiring.
_ACQUISITION: Final = "asynclock._core.protocol.acquire:Acquisition"
GIVE_UP: Final = f"{_ACQUISITION}._give_up"
_STAKE: Final = "asynclock._core.protocol.stake:Stake"
STAKE: Final = f"{_STAKE}.__init__"
CLEAN_UP: Final = f"{_STAKE}.clean_up"
GIVER_GONE: Final = f"{_STAKE}.found_gone"
READ_AND_ADOPT: Final = f"{_ACQUISITION}._read_and_adopt"
TAKE: Final = f"{_ACQUISITION}._take"
ATTEMPT_ON: Final = f"{_ACQUISITION}._attempt_on"
ROUND: Final = f"{_ACQUISITION}._round"
REFUSED_FOR_GOOD: Final = "asynclock._core.protocol.refusals:Refusals.final"
NOTE_REFUSAL: Final = "asynclock._core.protocol.refusals:Refusals.note"

# Holding, renewing and releasing.
_BELIEF: Final = "asynclock._core.protocol.belief:Belief"
BELIEF: Final = f"{_BELIEF}.__init__"
END_IF_DUE: Final = f"{_BELIEF}.end_if_due"
BELIEVED: Final = f"{_BELIEF}._believed"
LEFT_OF_BELIEF: Final = f"{_BELIEF}.left"
COUNT_CAP: Final = f"{_BELIEF}.count_cap_from"
EXTEND: Final = f"{_BELIEF}.extend"
END_BELIEF: Final = f"{_BELIEF}.end"
ABANDON: Final = f"{_BELIEF}._abandon"
_RENEWER: Final = "asynclock._core.protocol.renewer:Renewer"
RENEW: Final = f"{_RENEWER}._renew_once"
READ_BACK: Final = f"{_RENEWER}._read_back"
_RELEASE: Final = "asynclock._core.protocol.release:Release"
MAY_HAND_OVER: Final = "asynclock._core.protocol.held:HeldLock.may_hand_over"
OUTLAST: Final = f"{_RELEASE}._outlast"
LET_GO: Final = f"{_RELEASE}.let_go"
FREE_HELD: Final = f"{_RELEASE}.free"
FREE_IN_BACKGROUND: Final = f"{_RELEASE}._free_in_background"
CLEAN_UP_HELD: Final = f"{_RELEASE}._clean_up"
_ENDING: Final = "asynclock._core.protocol.ending:Ending"
ENDED: Final = f"{_ENDING}.end"
FOUND_GONE: Final = f"{_ENDING}.found_gone"
CANCEL_TIMER: Final = "asynclock._core.protocol.schedule:Schedule._cancel"

# Judging what was seen.
_DECISIONS: Final = "asynclock._core.protocol.decisions"
EXPIRY: Final = f"{_DECISIONS}:_expiry"
JUDGE: Final = f"{_DECISIONS}:judge"
NEXT_TOKEN: Final = f"{_DECISIONS}:next_token"
NOTE_SEEN: Final = f"{_DECISIONS}:Observation.note"
OBSERVED: Final = f"{_DECISIONS}:_observed"
PROMISE: Final = f"{_DECISIONS}:promise"
TIMING: Final = "asynclock._core.protocol.timing:Timing.__init__"
LONGEST_REQUEST: Final = "asynclock._core.protocol.timing:longest_request"

# Store time.
_STORE_TIME: Final = "asynclock.clock:StoreTime"
BOUNDS: Final = f"{_STORE_TIME}.bounds"
OBSERVE_DATE: Final = f"{_STORE_TIME}.observe"

# Waiting and handing over.
TURN: Final = "asynclock._core.turns:Turns._turn"
FINISH: Final = "asynclock._core.engine:LockEngine._finish"
RUN_ENDED: Final = "asynclock._core.protocol.waiting:Fairness.ended"
POLL_INTERVAL: Final = "asynclock._core.protocol.waiting:Fairness.poll_interval"

# Leading.
LOOK_AT_LEADER: Final = "asynclock._core.leading:Candidate._look"
STEP_DOWN: Final = "asynclock._core.turns:Turns.step_down"
ENGINE_TELL: Final = "asynclock._core.engine:LockEngine._tell_of"

# Handing over by a ticket.
TRANSFER: Final = "asynclock._core.engine:LockEngine.transfer"
REDEEM: Final = "asynclock._core.redemption:Redemption._judge"

# What users hold in their hands.
ACQUIRE: Final = "asynclock.lock:Holdable.acquire"
CANCEL_BODY: Final = "asynclock.lock:Hold._cancel"
PENDING: Final = "asynclock._core.inflight:InFlight.pending"
PROGRESS: Final = "asynclock._core.inflight:InFlight.progress"
CLOSE_CLIENT: Final = "asynclock._core.client:Core._close"
CLOSE_ONCE: Final = "asynclock._core.client:Core._close_once"
DROP_LEASE: Final = "asynclock._core.handles:LeaseHandle.__del__"
FINISH_LEASE: Final = "asynclock._core.engine:LockEngine.finish_lease"
_FENCED: Final = "asynclock._core.fenced:Fenced"
FENCED_IN_TURN: Final = f"{_FENCED}._in_turn"
FENCED_PUT: Final = f"{_FENCED}._put"
FENCED_UPDATE: Final = f"{_FENCED}._update"

MUTANTS: Final = (
    # Writing: nonces, read-back, conditions.
    Mutant(
        "adopt whatever record is found",
        SETTLE,
        "self._by_nonce.get($nonce)",
        "next(reversed(self._by_nonce.values()), None)",
        HEAD,
        "zombie-writes",
    ),
    Mutant(
        "adopt by owner instead of nonce",
        SETTLE,
        "$attempt = self._by_nonce.get($nonce)",
        "owner = record.owner\n"
        "own = [each for each in self._by_nonce.values() if each.record.owner == owner]\n"
        "$attempt = own[-1] if own else None",
        ONE,
        "refused-writes",
    ),
    Mutant(
        "use one nonce for all writes",
        FRESH_NONCE,
        "self._rng.randbytes(16).hex()",
        'f"{1:032x}"',
        HEAD,
        "contention",
    ),
    Mutant(
        "keep the nonce of the lease for its renewals",
        RENEWED,
        "record._replace(nonce=$fresh, valid_until_ms=max($until, $promise))",
        "record._replace(valid_until_ms=max($until, $promise))",
        ONE,
        "refused-writes",
    ),
    Mutant(
        "take over without a condition",
        WRITE,
        "backend.put_if_match($key, $body, $base)",
        "backend.put($key, $body)",
        HEAD,
        "contention",
    ),
    Mutant(
        "create without a condition",
        WRITE,
        "backend.put_if_absent($key, $body)",
        "backend.put($key, $body)",
        HEAD,
        "interleavings",
    ),
    Mutant(
        "release without a condition",
        WRITE,
        "if base is None: $create\nelse: $name, $put = $condition, backend.put_if_match($key, $body, $base)",
        "if record.expired: $name, $put = $condition, backend.put($key, $body)\n"
        "elif base is None: $create\n"
        "else: $name, $put = $condition, backend.put_if_match($key, $body, $base)",
        HEAD,
        "zombie-writes",
    ),
    Mutant(
        "treat an unknown renewal as done",
        RENEW,
        "if isinstance($outcome, Landed): *$extend\nreturn await self._read_back($outcome)",
        "self._extend($outcome.attempt)\nreturn None",
        ONE,
        "partition",
    ),
    Mutant(
        "treat an unknown acquisition as done",
        ROUND,
        "if isinstance($outcome, Landed): $take\nelse: $fail",
        'await self._take($outcome.attempt, "acquired")',
        HEAD,
        "contention",
    ),
    Mutant(
        "treat 409 and 412 as held by another",
        READ_AND_ADOPT,
        "$landed = claim.settle($seen)",
        "$landed = None",
        Invariant.TAKEOVER_BOUND,
        "single-faults",
    ),
    Mutant(
        "treat a refused renewal as lost without reading back",
        READ_BACK,
        "if ($left := self._belief.end_if_due()) <= 0: return $error",
        "if isinstance($error, BackendError):\n"
        '    self._taken_over(Displaced("the write was refused"))\n'
        "    return None\n"
        "$left = 1.0",
        Invariant.NO_FALSE_LOSS,
        "single-faults",
    ),
    Mutant(
        "leave what may still land",
        CLEAN_UP,
        "$reaped.run()",
        "asyncio.sleep(0)",
        LEFT,
        "cancellations",
    ),
    Mutant(
        "keep a lock that a cancelled acquisition got",
        GIVE_UP,
        "self._held.belief.end(End.RELEASE)\nawait self._held.release.free($until)",
        "pass",
        Invariant.TAKEOVER_BOUND,
        "hudi-turns",
    ),
    Mutant(
        "keep a lock whose caller was cancelled at the last moment",
        ACQUIRE,
        "run_on($loop, $call, undo=$undo)",
        "run_on($loop, $call)",
        LEFT,
        "cancellations",
    ),
    Mutant(
        "forget a write whose refusal may not be the store's",
        CLAIM_WRITE,
        'if $error.written == "no": $forget',
        "$forget",
        LEFT,
        "single-faults",
    ),
    Mutant(
        "give up a release that was refused",
        FREE,
        "if $landed is None: $gone",
        "if True: $gone",
        LEFT,
        "cancellations",
    ),
    Mutant(
        "give up a release that was not answered",
        FREE,
        "except (BackendError, ConfigError) as error: self.error = error",
        "except (BackendError, ConfigError): "
        "return Landed(head._replace(record=head.record.released(nonce=None)))",
        LEFT,
        "single-faults",
    ),
    Mutant(
        "do not release at all",
        FREE_ONCE,
        "$outcome = await $objects.write(self._key, $attempt, timeout=$limit)",
        "$outcome = Landed($attempt.at($attempt.base))",
        LEFT,
        "single-faults",
    ),
    Mutant(
        "take the first try of a release for its end",
        FREE_HELD,
        "if isinstance($tried, Landed): *$freed",
        "if $tried is not None:\n    self._note_freed(Landed($tried.attempt))\n    return",
        LEFT,
        "single-faults",
    ),
    # Belief.
    Mutant(
        "believe until the record ends",
        BELIEF,
        "$timing.belief",
        "$timing.validity",
        ONE,
        "worst-clocks",
    ),
    Mutant(
        "count a renewal from its answer",
        EXTEND,
        "before = self.sent\nself.sent = $sent",
        "before = self.sent\nself.sent = self._objects.now()",
        HEAD,
        "slow-answers",
    ),
    Mutant(
        "count an acquisition from its answer",
        BELIEF,
        "self.sent: ClockReading = $tenure.head.sent",
        "self.sent = tenure.objects.now()",
        HEAD,
        "slow-answers",
    ),
    Mutant(
        "count belief on the monotonic clock only",
        LEFT_OF_BELIEF,
        "max($monotonic, $boot, $wall)",
        "$monotonic",
        ONE,
        "clock-chaos",
    ),
    Mutant(
        "count belief on the wall clock only",
        LEFT_OF_BELIEF,
        "max($monotonic, $boot, $wall)",
        "$wall",
        ONE,
        "clock-chaos",
    ),
    Mutant(
        "never look at the deadline",
        END_IF_DUE,
        "if self.phase is _HELD and ($left := self.left()) > 0: return $left",
        "if self.phase is _HELD: return 1.0",
        ONE,
        "partition",
    ),
    Mutant(
        "revive a lost lease",
        BELIEVED,
        "self.end($by, $reason)",
        "pass",
        Invariant.LOSS_IS_FINAL,
        "clock-chaos",
    ),
    Mutant(
        "go on believing while the release is sent",
        END_BELIEF,
        "self.phase = Phase.RELEASING",
        "pass",
        HEAD,
        "contention",
    ),
    Mutant(
        "release beside a renewal in flight",
        FREE_IN_BACKGROUND,
        "await asyncio.wait([$renewal], timeout=$limit)",
        "pass",
        Invariant.ONE_WRITE,
        "contention",
    ),
    Mutant(
        "renew after the deadline",
        RENEW,
        "if ($left := self._belief.end_if_due()) <= 0: return None",
        "$left = max(self._belief.end_if_due(), 0.1)",
        Invariant.END_IS_KEPT,
        "paced",
    ),
    # Taking over.
    Mutant(
        "trust a Date without a witness",
        JUDGE,
        "$expiry is not None and $seen.date is not None and $seen.date.by_wall",
        "$expiry is not None and $seen.date is not None",
        HEAD,
        "wrong-store-times",
    ),
    Mutant(
        "free by Dates that outvote the wall clock",
        JUDGE,
        "$seen.date.by_wall",
        "$seen.date.usable",
        HEAD,
        "wrong-store-times",
    ),
    Mutant(
        "trust the local wall clock",
        JUDGE,
        "if $expiry is not None and $seen.date is not None and $seen.date.by_wall:\n"
        "    $remaining = $expiry - $seen.date.value",
        "if $expiry is not None:\n    $remaining = $expiry - $seen.arrived.wall",
        HEAD,
        "clock-chaos",
    ),
    Mutant(
        "drop S + R from the takeover",
        EXPIRY,
        "return $written + $lease + $timing.slack",
        "return $written + $lease",
        HEAD,
        "worst-clocks",
    ),
    Mutant(
        "trust a last_modified from before its write",
        EXPIRY,
        "if $written < $earliest: return None",
        "pass",
        HEAD,
        "wrong-store-times",
    ),
    Mutant(
        "count another's lease as long as one's own",
        EXPIRY,
        "$lease = $record.lease_ms / 1000",
        "$lease = timing.validity",
        HEAD,
        "mixed-settings",
    ),
    Mutant(
        "observe for one's own validity only",
        OBSERVED,
        "max($record.lease_ms / 1000, $own)",
        "$own",
        HEAD,
        "observation",
    ),
    Mutant(
        "go on observing when the version changes",
        NOTE_SEEN,
        "if $seen.version != self._version:\n    self._version = $seen.version\n    *$rest",
        "self._version, first = $seen.version, self._version is None\nif first: *$rest",
        HEAD,
        "observation",
    ),
    Mutant(
        "observe from the sending of the first request",
        NOTE_SEEN,
        "$seen.arrived.monotonic",
        "$seen.arrived.monotonic - 1.9",
        HEAD,
        "observation",
    ),
    Mutant(
        "take a corrupt record for no record",
        READ,
        "$record = parse_record(*$body, **$told)",
        "try: $record = parse_record(*$body, **$told)\nexcept Exception: $record = None",
        HEAD,
        "deletion",
    ),
    Mutant(
        "hand over before belief has ended",
        FINISH,
        "not $held.belief.end(End.RELEASE)",
        "$held.belief.end_if_due() <= 0",
        HEAD,
        "hand-off",
    ),
    Mutant(
        "drop what was handed to somebody who is gone",
        TURN,
        "self._objects.in_flight.spawn($held.release.free())",
        "self.leave()",
        LEFT,
        "cancellations",
    ),
    # Beside Hudi.
    Mutant(
        "judge a Hudi record by its validUntil only",
        EXPIRY,
        "max($until + HUDI_DRIFT, $written) + $timing.slack",
        "$until + HUDI_DRIFT",
        HEAD,
        "hudi-behind",
    ),
    Mutant(
        "forget when a Hudi record was written",
        EXPIRY,
        "max($until + HUDI_DRIFT, $written)",
        "$until + HUDI_DRIFT",
        HEAD,
        "hudi-behind",
    ),
    Mutant(
        "observe a Hudi record though Dates are usable",
        OBSERVED,
        "if $observation.dated: return math.inf",
        "return $observation.left(seen, timing.validity)",
        HEAD,
        "hudi-peer",
    ),
    Mutant(
        "publish validUntil from the earliest store time",
        PROMISE_NOW,
        "self._time.latest($now)",
        "(self._time.bounds($now) or (self._time.latest($now),))[0]",
        HEAD,
        "hudi-ahead",
    ),
    Mutant(
        "publish as if no Date were cut short",
        BOUNDS,
        "$date + self._resolution + $age",
        "$date + $age",
        HEAD,
        "hudi-ahead",
    ),
    Mutant(
        "publish no allowance for skew",
        PROMISE,
        "$latest + $timing.skew + $lease",
        "$latest + $lease",
        HEAD,
        "hudi-ahead",
    ),
    Mutant(
        "publish by the local wall clock",
        PROMISE_NOW,
        "self._time.latest($now)",
        "$now.wall",
        HEAD,
        "hudi-clocks",
    ),
    Mutant(
        "carry store time by the wall clock",
        BOUNDS,
        "$now.boot - $date.sent.boot",
        "$now.wall - $date.sent.wall",
        HEAD,
        "hudi-clocks",
    ),
    Mutant(
        "publish by a Date without a witness",
        OBSERVE_DATE,
        "if $usable: self._carried = $date",
        "if True: self._carried = $date",
        HEAD,
        "hudi-clocks",
    ),
    Mutant(
        "let one wrong Date witness another",
        OBSERVE_DATE,
        "$by_wall or (self._wall_is_wrong($boot) and self._has_witnesses(*$date))",
        "True",
        HEAD,
        "hudi-clocks",
    ),
    # Tokens.
    Mutant(
        "take the token from store time only",
        NEXT_TOKEN,
        "max($predecessor.epoch + 1, $now)",
        "$now",
        TOKEN,
        "contention",
    ),
    Mutant(
        "hand the predecessor's token out again",
        NEXT_TOKEN,
        "$predecessor.epoch + 1",
        "$predecessor.epoch",
        TOKEN,
        "contention",
    ),
    Mutant(
        "reset the token on creation",
        NEXT_TOKEN,
        "_micros($earliest + $timing.resolution)",
        "1",
        TOKEN,
        "deletion",
    ),
    Mutant(
        "reset the token on release",
        RELEASED,
        "self._replace(expired=True, nonce=$nonce, is_kept=False)",
        "self._replace(expired=True, nonce=$nonce, is_kept=False, epoch=0)",
        TOKEN,
        "contention",
    ),
    Mutant(
        "guess a dropped token too low",
        NEXT_TOKEN,
        "_micros($latest + $timing.slack)",
        "_micros(earliest)",
        TOKEN,
        "hudi-turns",
    ),
    Mutant(
        "hand a token out before its wait beside Hudi",
        UNTIL_SETTLED,
        "if $settled_at is None: return 0.0",
        "return 0.0",
        TOKEN,
        "hudi-turns",
    ),
    Mutant(
        "keep a token from the future when released",
        FREE_ONCE,
        "$objects.issuer.until_settled($token) <= 0",
        "True",
        TOKEN,
        "hudi-turns",
    ),
    # Refusals of what is still shown (rule 23).
    Mutant(
        "count refusals over what others have written",
        NOTE_REFUSAL,
        "not _is_still($back, $base)",
        "False",
        Invariant.REFUSALS,
        "contention",
        also=(
            Change(
                NOTE_REFUSAL,
                "self.count = self.count + 1 if _is_still($base, self._base) else 1",
                "self.count += 1",
            ),
        ),
    ),
    Mutant(
        "call a store broken after one refusal",
        REFUSED_FOR_GOOD,
        "self.count >= REFUSALS",
        "True",
        Invariant.REFUSALS,
        "refusals",
    ),
    Mutant(
        "never call a store broken that refuses what it shows",
        REFUSED_FOR_GOOD,
        "self.count >= REFUSALS",
        "False",
        Invariant.REFUSALS,
        "refusals",
    ),
    # Locks that are kept for a time (rule 21).
    Mutant(
        "free a lock that is to be kept",
        FREEING,
        "$nonce is None or $left <= 0",
        "True",
        Invariant.KEPT,
        "kept",
    ),
    Mutant(
        "hand over a lock that is to be kept",
        MAY_HAND_OVER,
        "self.release.left_to_keep()",
        "0.0",
        Invariant.KEPT,
        "kept",
    ),
    # What an independent attack found.
    Mutant(
        "make a second lease of one attempt",
        READ_AND_ADOPT,
        "$landed is not None and not claim.is_spent($attempt)",
        "$landed is not None",
        HEAD,
        "hudi-endings",
        also=(
            Change(
                ROUND,
                "if ($away := self._fairness.away_for($now)) > 0: return $away, $seen",
                "if ($away := self._fairness.away_for($now)) > 0 and self._stake.claim.last() is None: "
                "return $away, $seen",
            ),
        ),
    ),
    Mutant(
        "keep a loss found at release to oneself",
        FINISH_LEASE,
        "await self.finish($held)\nif $lost is not None: $tell",
        "if not await self.finish($held) and $lost is not None: $tell",
        Invariant.LOSS_IS_TOLD,
        "broken",
    ),
    Mutant(
        "take an operator's break for one's own release",
        FREE,
        "$landed = self.settle($seen)",
        "$landed = self.settle($seen)\n"
        "if $seen.record is not None and $seen.record.expired and $seen.record.owner == head.record.owner:\n"
        "    $landed = Landed(Attempt($seen.record, None, head.sent), read_back=True)",
        Invariant.LOSS_IS_TOLD,
        "broken",
    ),
    Mutant(
        "tell the giver nothing where its receiver finds the lock gone",
        GIVER_GONE,
        "$given.ending.found_gone($by)",
        "$given.ending.written_over()",
        Invariant.LOSS_IS_TOLD,
        "broken",
    ),
    Mutant(
        "take a store for dateless until its first Date",
        ISSUER,
        "self.dateless: bool = $dateless",
        "type(self).dateless = property(lambda issuer: issuer._time._carried is None)",
        Invariant.NOT_AHEAD,
        "undated",
    ),
    Mutant(
        "publish what every reader calls corrupt",
        LONGEST_REQUEST,
        "min($share, _LONGEST_REQUEST)",
        "$share",
        Invariant.READABLE,
        "any-validity",
    ),
    Mutant(
        "wait forever for a last_modified of a Hudi record",
        JUDGE,
        "$since = $observation.first_date",
        "$since = None",
        Invariant.TAKEOVER_BOUND,
        "hudi-undated",
    ),
    Mutant(
        "let updates under one lease pass each other",
        FENCED_IN_TURN,
        "async with $lease._held.body.updating: *$update",
        "if True: *$update",
        Invariant.NO_WRITE_LOST,
        "shared-fence",
    ),
    Mutant(
        "let a second caller of aclose return at once",
        CLOSE_CLIENT,
        "if self._closing is None: $close",
        "if self._closing is not None: return\nif True: $close",
        Invariant.CLOSED,
        "endings",
    ),
    Mutant(
        "send requests after the end of the client",
        REQUEST,
        "if self.closed is not None: *$refuse",
        "pass",
        Invariant.CLOSED,
        "endings",
        also=(Change(CLOSE_OBJECTS, "$expire()", "pass"),),
    ),
    Mutant(
        "make way for as long as one's own poll interval says",
        TIMING,
        "max(self.poll_interval, $default)",
        "self.poll_interval",
        Invariant.FAIR,
        "slow-waiter",
    ),
    Mutant(
        "poll slowly while the lock changes hands",
        POLL_INTERVAL,
        "min($usual, $default)",
        "$usual",
        Invariant.FAIR,
        "slow-waiter",
    ),
    # Leaving (rules 24 and 25).
    Mutant(
        "wait for a release for as long as the store takes",
        OUTLAST,
        "await asyncio.wait([$end], timeout=$limit)",
        "await asyncio.wait([$end])",
        Invariant.LEAVING_IS_SHORT,
        "leaving",
    ),
    Mutant(
        "drop a release that nobody waits for any more",
        OUTLAST,
        "if not $end.done(): self.note_pending()",
        "$end.cancel()",
        Invariant.FAIR,
        "leaving",
    ),
    Mutant(
        "close a client without a loss for its bodies",
        CLOSE_ONCE,
        "await self._let_go_of_all(CLOSED, closing=True)",
        "await self._let_go_of_all(None)",
        Invariant.LOSS_ENDS_BODY,
        "leaving",
    ),
    Mutant(
        "report a loss before it ends anything",
        ENDED,
        "if not self.future.done() and not $closed: *$end\n*$rest",
        "try: self._belief.tenure.objects.events._listener(None)\nexcept Exception: return\n"
        "if not self.future.done() and not $closed: *$end\n*$rest",
        Invariant.FAIR,
        "partition",
    ),
    # Other ends of a process.
    Mutant(
        "believe in a forked child",
        ABANDON,
        "self.lost, self.phase = $loss, Phase.LOST",
        "pass",
        ONE,
        "endings",
    ),
    Mutant(
        "tell nobody of a signal that is survived",
        LET_GO,
        "self._stop($loss)",
        "self._stop(None)",
        Invariant.LOSS_ENDS_BODY,
        "endings",
    ),
    Mutant(
        "release nothing at an exit",
        LET_GO,
        "self._in_flight.spawn(self._free_in_background())",
        "pass",
        LEFT,
        "endings",
    ),
    Mutant(
        "wait for no work at an exit",
        PROGRESS,
        "if not self.pending or $now >= $until: return False",
        "return False",
        LEFT,
        "endings",
    ),
    Mutant(
        "leave behind at an exit what an acquisition may have written",
        PENDING,
        "$stands or self.closed is not None",
        "self.closed is not None",
        LEFT,
        "endings",
    ),
    Mutant(
        "keep a lease that nobody has any more",
        DROP_LEASE,
        "self._engine.finish_later(self._held)",
        "pass",
        Invariant.TAKEOVER_BOUND,
        "closed-loops",
    ),
    # Fencing, fairness, the end.
    Mutant(
        "let an older token write",
        FENCED_UPDATE,
        "$before.fencing_token > $token",
        "$before.fencing_token < 0",
        Invariant.NO_WRITE_LOST,
        "broken",
    ),
    Mutant(
        "write the fenced object without a condition",
        FENCED_PUT,
        "$backend.put_if_match($key, $data, $version)",
        "$backend.put($key, $data)",
        Invariant.NO_WRITE_LOST,
        "zombie-writes",
    ),
    Mutant(
        "apply a fenced change again though it has landed",
        FENCED_UPDATE,
        "$after.body in $attempted",
        "False",
        Invariant.NO_WRITE_LOST,
        "zombie-writes",
    ),
    Mutant(
        "never make way",
        RUN_ENDED,
        "$now - self._run_began >= $longest",
        "$now < 0",
        Invariant.FAIR,
        "turns",
    ),
    Mutant(
        "leave a renewal timer behind",
        CANCEL_TIMER,
        "$timer.cancel()",
        "pass",
        LEFT,
        "contention",
    ),
    Mutant(
        "let the body of hold() run on after a loss",
        CANCEL_BODY,
        "task.cancel($reason)",
        "pass",
        Invariant.LOSS_ENDS_BODY,
        "clock-chaos",
    ),
    Mutant(
        "let a token settle by the last attempt, whichever landed",
        ATTEMPT_ON,
        "return Attempt($record, $base, $now, $settled_at)",
        "own = self._stake.claim._by_nonce\n"
        "own.update({nonce: each._replace(settled_at=$settled_at) for nonce, each in own.items()})\n"
        "return Attempt($record, $base, $now, $settled_at)",
        Invariant.NOT_AHEAD,
        "hudi-endings",
    ),
    # What the soak and a look at hole 13 found.
    Mutant(
        "leave the round trip out of the shortest lease behind a Hudi writer",
        TIMING,
        "self.longest_trip_for_future: float = self.validity - self.slack",
        "self.longest_trip_for_future = 2 * self.validity",
        Invariant.NOT_AHEAD,
        "hudi-short",
    ),
    Mutant(
        "take a lost answer for a refusal",
        WRITE,
        "if isinstance($error, PreconditionFailedError): $refused",
        "$refused",
        Invariant.LOSS_IS_TRUE,
        "zombie-writes",
    ),
    Mutant(
        "take a doubt for the proof of a loss",
        FOUND_GONE,
        "not by.proven",
        "False",
        Invariant.LOSS_IS_TRUE,
        "hand-off",
    ),
    Mutant(
        "forget what the receiver of a lock may have written",
        STAKE,
        "Claim(*$own) if $given is None else $given.claim",
        "Claim(*$own)",
        Invariant.LOSS_IS_TRUE,
        "hand-off",
    ),
    # Leading: what candidates are told, and how a leader steps down.
    Mutant(
        "tell of no leader's end",
        LOOK_AT_LEADER,
        "$leader = $status.owner if $leads else None",
        "$leader = $status.owner if $leads else self._leader",
        Invariant.LEADERS,
        "leaders",
    ),
    Mutant(
        "let a late answer bring back an earlier leader",
        LOOK_AT_LEADER,
        "if $order < self._newest: return",
        "pass",
        Invariant.LEADERS,
        "leaders",
    ),
    Mutant(
        "tell nobody of the own term",
        ENGINE_TELL,
        "self._observation.tell($shown, $verdict)",
        "pass",
        Invariant.LEADERS,
        "leaders",
    ),
    Mutant(
        "release the lock of a leader that steps down before its work has ended",
        STEP_DOWN,
        "$held.body.ceded = True",
        "$held.release.let_go()",
        Invariant.STEPS_DOWN,
        "leaders",
    ),
    Mutant(
        "step down without standing back",
        STEP_DOWN,
        "self.fairness.cede()",
        "pass",
        Invariant.STEPS_DOWN,
        "leaders",
    ),
    # Leases that end by themselves.
    Mutant(
        "end at most: promise with each renewal what was left at the first",
        COUNT_CAP,
        "self._cap = $left, $now",
        "$left = self._cap[0]",
        Invariant.CAPPED,
        "capped",
    ),
    Mutant(
        "end at most: count again from each renewal",
        COUNT_CAP,
        "self._cap = $left, $now",
        "self._cap = self._at_most, $now",
        Invariant.CAPPED,
        "capped",
    ),
    Mutant(
        "end at most: cut only what is published",
        LEFT_OF_BELIEF,
        "$left if self._cap is None else min($left, $cap)",
        "$left",
        ONE,
        "capped",
    ),
    Mutant(
        "end at most: promise a whole lease at the acquisition",
        ATTEMPT_ON,
        "self._objects.timing.promised(self._at_most)",
        "self._objects.timing.promised(None)",
        Invariant.CAPPED,
        "capped",
    ),
    Mutant(
        "end at most: free the lock beside a renewal under way",
        CLEAN_UP_HELD,
        "if self._renewer.last is not None: await asyncio.wait([self._renewer.last])",
        "pass",
        Invariant.ONE_WRITE,
        "capped",
    ),
    # Handing over by a ticket.
    Mutant(
        "offer the lock without ending belief",
        TRANSFER,
        "$held.release.let_go()",
        "self._objects.in_flight.spawn($held.release._free_in_background())",
        HEAD,
        "transfers",
    ),
    Mutant(
        "give a ticket before its offer is confirmed",
        TRANSFER,
        "if $held.release.freed is None or $expired: *$refusal",
        "pass",
        Invariant.TICKETS,
        "transfers",
    ),
    Mutant(
        "offer the lock under the owner of the lease",
        FREEING,
        "$head.record.kept(nonce=$nonce, valid_until_ms=$until, seconds=$left, owner=self.offer)",
        "$head.record.kept(nonce=$nonce, valid_until_ms=$until, seconds=$left)",
        Invariant.TICKETS,
        "transfers",
    ),
    Mutant(
        "redeem a ticket over any offer",
        REDEEM,
        "$record.owner == self._offer",
        "$record.is_kept",
        Invariant.TICKETS,
        "transfers",
    ),
    Mutant(
        "redeem a ticket over whatever stands",
        REDEEM,
        "$record.owner == self._offer",
        "True",
        HEAD,
        "transfers",
    ),
    Mutant(
        "redeem a ticket after its offer was broken",
        REDEEM,
        "not $record.expired",
        "True",
        Invariant.TICKETS,
        "transfers",
    ),
    *SEVERAL_MUTANTS,
    *SHARED_MUTANTS,
)
