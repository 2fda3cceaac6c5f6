"""The invariants of the lock, checked against the journal of a simulated store.

Nothing here knows how the lock works. Who believes is asked of ``Lease.held`` after every
callback that runs; who holds is what the store's journal says.
"""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import orjson

from asynclock._core.protocol.belief import End
from asynclock._text import SUFFIX
from asynclock.errors import LeaseTakenOverError
from tests.laboratory.capped import Cap, Capped
from tests.laboratory.invariants import Invariant as Invariant  # noqa: PLC0414  its users find it here
from tests.laboratory.invariants import Violation as Violation  # noqa: PLC0414  likewise
from tests.laboratory.kept import Kept
from tests.laboratory.periods import Periods
from tests.laboratory.tickets import Tickets
from tests.laboratory.watched import Holding, Probe, Watched

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterator

    from asynclock._core.protocol.held import HeldLock
    from asynclock.testing._store import Operation, SimulatedStore
    from asynclock.testing._virtual import Process
    from tests.laboratory.watched import Believer

COUNT_KEY: Final = "count"
"""Key of a fenced object whose body is a number: the same bytes come from everybody who counts."""
MOST_VIOLATIONS: Final = 20
"""Kept per history; the first ones tell."""
_TOKEN_STEPS: Final = 0.001
"""Seconds: each acquisition within a microsecond moves the token on by one."""
_AFTER_BREAK: Final = 1000
"""How many acquisitions may build on one token, which moves on by one each."""
_FREE: Final = b'{"expired":true'


class Checker:
    """Watches the lock objects, and one fenced object beside them, through one history.

    Args:
        store: Its changes are followed.
        key: Key of the lock object that Hudi writers take, too.
        fenced_key: Key of the fenced object.

    Attributes:
        violations: What did not hold, in order of time.
        events: (true time, who, what) for the trace.
        losses_are_true: Whether no lease may be reported taken over that was not; False where
            bodies are garbled.
        store_time: Returns the latest time that the store's clocks may show, in epoch seconds; None
            where its answers mislead about it.
        allows: Returns whether those may all believe at the same time.
        kept: Which locks are to stay held however early they are released.
        tickets: By which locks pass from one process to another.
        periods: In which a job is run once.
        acquisitions: How many leases were handed out.
    """

    def __init__(self, store: SimulatedStore, *, key: str, fenced_key: str) -> None:
        self.violations: list[Violation] = []
        self.events: list[tuple[float, str, str]] = []
        self.acquisitions = 0
        self.losses_are_true = True
        self.store_time: Callable[[], float] | None = None
        self.allows: Callable[[list[Holding]], bool] = lambda _: False
        self._store = store
        self._loop = store.loop
        self._asked_at = -1.0
        self._key = key
        self._fenced_key = fenced_key
        self._holdings: list[Holding] = []
        self._leases: set[str] = set()
        self._locks: list[HeldLock] = []
        # What a question schedules (the end of a lease that it finds expired) must not run.
        self._observer = store.loop.process("observer")
        self._observer.kill()
        self._waiters: list[asyncio.Future[None]] = []
        self._objects: dict[str, Watched] = {}
        # Of each write of the lock, in the order sent: by its bytes, and once applied by its version.
        self._sent: dict[bytes, int] = {}
        self._applied: dict[str | None, int] = {}
        self._breaking = 0
        self._broken: set[str] = set()
        # Owners whose live record was written over by somebody else, or deleted.
        self._displaced: set[str] = set()
        self._broken_tokens: set[int] = set()
        self.kept = Kept()
        self._capped = Capped()
        self.tickets = Tickets(store)
        self.periods = Periods(store)
        self._fenced_token = -1
        self._fenced_body = b""
        self._acknowledged: list[bytes] = []
        self._counted = 0
        store.on_change = self._on_change
        store.on_send = self._on_send
        store.on_use_after_close = self._on_use_after_close

    def note(self, who: str, what: str) -> None:
        """Add a line to the trace."""
        self.events.append((self._loop.time(), who, what))

    def violated(self, invariant: Invariant, detail: str) -> None:
        """Record a violation."""
        if len(self.violations) < MOST_VIOLATIONS:
            self.violations.append(Violation(self._loop.time(), invariant, detail))
            self.note("CHECKER", f"VIOLATION {invariant}: {detail}")

    def handed_out(self, who: str, process: Process, lease: Believer, *, token: int | None) -> Holding:
        """Watch a lease from the instant at which its user gets it.

        Args:
            who: Whose it is.
            process: The process it lives in.
            lease: The lease.
            token: Its fencing token; None where it has none (a Hudi writer).
        """
        self.acquisitions += 1
        self._conclude()
        self.note(who, f"acquired owner={lease.owner[:8]} token={token}")
        self.kept.acquired(who, lease.owner, self._loop.time())
        overruled, watched = lease.owner in self._broken, self._watched(lease)
        if token is not None:
            if token <= watched.token and not overruled:
                self.violated(
                    Invariant.TOKEN_RISES, f"{who} got {token} after {watched.token} was handed out"
                )
            watched.token = max(watched.token, token)
            # A token that was broken while it settled is kept: those built on it are from the future too.
            after_break = any(0 < token - broken <= _AFTER_BREAK for broken in self._broken_tokens)
            ahead_of = None if self.store_time is None or after_break else self.store_time
            if ahead_of is not None and token > (ahead_of() + _TOKEN_STEPS) * 1e6:
                ahead = token / 1e6 - ahead_of()
                self.violated(Invariant.NOT_AHEAD, f"{who} got {token}, {ahead:.3f} s from the future")
        holding = self.watch(who, process, lease)
        holding.overruled = holding.headless = overruled
        self._leases.add(lease.owner)
        if holding.probe.held is not None:
            self._locks.append(vars(lease)["_held"])
        return holding

    def watch(self, who: str, process: Process, lease: Believer) -> Holding:
        """Ask a lease from now on whether it believes, though it was not handed out again."""
        holding = Holding(who, process, lease, Probe(lease), self._watched(lease))
        self._holdings.append(holding)
        return holding

    def _watched(self, lease: Believer) -> Watched:
        """Return the lock object of a lease."""
        return self._objects.setdefault(getattr(lease, "key", self._key), Watched())

    def holdings_of(self, process: Process) -> list[Holding]:
        """Return the leases of a process that are watched."""
        return [holding for holding in self._holdings if holding.process is process]

    def expect_capped(self, lease: Believer, cap: Cap) -> None:
        """Expect a lease that was acquired just now to end by itself."""
        self._check_capped(self._capped.add(lease, cap, self._watched(lease).head, self._loop.time()))

    def _check_capped(self, wrong: str | None) -> None:
        if wrong is not None:
            self.violated(Invariant.CAPPED, wrong)

    def told_lost(self, holding: Holding) -> None:
        """Note that the lease has told its user that it is lost: it must never be held again."""
        holding.stopped = True

    def not_handed_out(self) -> str | None:
        """Return the machine whose live record stands in the store though nobody has its lease yet."""
        head = self._objects.setdefault(self._key, Watched()).head or {}
        if head.get("expired") is not False or "holder" not in head or head.get("owner") in self._leases:
            return None
        return str(head["holder"]).partition(":")[0]

    def gone(self, holding: Holding) -> bool:
        """Whether a lease believes though its record is gone: its release must tell of a loss."""
        return self._held(holding) and not self._heads(holding)

    def told_at_release(self, holding: Holding, error: BaseException, *, misled: bool = False) -> None:
        """Check the loss that a release has told of.

        Args:
            holding: Of the lease.
            error: What was raised.
            misled: The store has refused a write of this client that had landed.
        """
        if misled or not isinstance(error, LeaseTakenOverError) or not self.losses_are_true:
            return
        if not holding.overruled and holding.lease.owner not in self._displaced:
            detail = f"{holding.who} ({holding.lease.owner[:8]}) learns at its release: {error.reason}"
            self.violated(Invariant.LOSS_IS_TRUE, detail)

    def closed(self, process: Process, *, closing: bool) -> None:
        """Check that nothing of a client is held or under way when a call of its ``aclose`` returns."""
        if closing:
            self.violated(Invariant.CLOSED, f"aclose of {process.name} returned before it was done")
        for holding in self.holdings_of(process):
            if self._held(holding):
                self.violated(Invariant.CLOSED, f"{holding.who} believes after aclose has returned")

    def dropped(self, holding: Holding) -> None:
        """Stop watching a lease: its user has let go of it."""
        if holding in self._holdings:
            self._holdings.remove(holding)

    @contextmanager
    def breaking(self) -> Iterator[None]:
        """Leave out of the reckoning whose record is freed inside: an operator breaks the lock."""
        self._breaking += 1
        yield
        self._breaking -= 1  # not after an error: its write may still land

    def refused(self, who: str) -> None:
        """Note that somebody was told why its settings cannot get the lock as it is now."""
        self._conclude()
        self.note(who, "is refused: too short a lease behind a Hudi writer")

    async def next_acquisition(self) -> None:
        """Wait until somebody acquires, or is refused for good."""
        self._waiters = [self._loop.create_future()]
        await self._waiters[0]

    def acknowledged(self, entry: bytes) -> None:
        """Remember a fenced write that was confirmed to its writer; ``entry`` is unique in it."""
        self._acknowledged.append(entry)

    def counted(self) -> None:
        """Remember an update of the fenced counter that was confirmed."""
        self._counted += 1

    def after_step(self, process: Process) -> None:
        """Ask everybody who got a lease whether they believe to hold the lock."""
        if not self._holdings:
            return
        loop = self._loop
        world = process is loop.world  # it sets clocks, kills and resumes
        later = loop.now != self._asked_at or world
        self._asked_at = loop.now
        believing = 0
        before, loop.current_process = loop.current_process, self._observer  # cheaper than running_as
        for holding in self._holdings:
            # A step of one process changes no other's mind; time does.
            if world or holding.process is process:
                holding.probe.refresh()
                held = holding.probe.lease.held and holding.process.alive
            elif later:
                held = holding.probe.lease.held and holding.process.alive
            else:
                held = holding.believes
            if held is not holding.believes:
                self._turned(holding, held=held)
            if held:
                believing += not holding.overruled
                if later:
                    self._check_capped(self._capped.outlived(holding, loop.now))
        loop.current_process = before
        if believing > 1:
            self._too_many()

    def believers(self) -> list[Holding]:
        """Return who believes now."""
        return [holding for holding in self._holdings if self._held(holding)]

    def forget(self) -> None:
        """Let the leases of the dead be collected without a word, after the end."""
        for held in self._locks:
            held.belief.end(End.FORK, "the history is over")
        self._locks.clear()

    def check_fenced(self) -> None:
        """At the end: every acknowledged write must be in the fenced object, and every lock kept."""
        for early in self.kept.violations():
            self.violated(Invariant.KEPT, early)
        for wrong in self.tickets.violations():
            self.violated(Invariant.TICKETS, wrong)
        for invariant, detail in self.periods.violations():
            self.violated(invariant, detail)
        lines = self._fenced_body.split(b"\n")
        missing = [entry for entry in self._acknowledged if entry not in lines]
        if missing:
            self.violated(
                Invariant.NO_WRITE_LOST,
                f"{len(missing)} of {len(self._acknowledged)} acknowledged writes are gone: {missing[0]!r}",
            )
        if self._counted:
            _, _, count = (self._store.body(COUNT_KEY) or b"").partition(b"\n")
            if int(count or b"0") < self._counted:
                detail = (
                    f"{self._counted} updates of a counter were acknowledged, it says {int(count or b'0')}"
                )
                self.violated(Invariant.NO_WRITE_LOST, detail)
        twice = [entry for entry, count in Counter(lines).items() if count > 1 and entry]
        if twice:
            self.violated(Invariant.NO_WRITE_LOST, f"applied twice: {twice[0]!r}")

    def _conclude(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _held(self, holding: Holding) -> bool:
        loop = self._loop
        before, loop.current_process = loop.current_process, self._observer  # cheaper than running_as
        holding.probe.refresh()
        held = holding.process.alive and holding.probe.lease.held
        loop.current_process = before
        return held

    def _turned(self, holding: Holding, *, held: bool) -> None:
        holding.believes = held
        holding.ended_at = None if held else self._loop.time()
        what = "believes" if held else "stops believing"
        self.note(holding.who, f"{what} owner={holding.lease.owner[:8]}")
        if not held:
            self._check_loss(holding)
            return
        if holding.stopped:
            self.violated(Invariant.LOSS_IS_FINAL, f"{holding.who} believes again after it had stopped")
        self._check_head(holding)

    def _check_loss(self, holding: Holding) -> None:
        lost = getattr(holding.probe.lease, "lost", None)
        if self.losses_are_true and isinstance(lost, LeaseTakenOverError) and self._heads(holding):
            self.violated(Invariant.NO_FALSE_LOSS, f"{holding.who} hears: {lost.reason}")

    def _heads(self, holding: Holding) -> bool:
        head = holding.watched.head
        return head is not None and head.get("expired") is False and head.get("owner") == holding.lease.owner

    def _too_many(self) -> None:
        both = [holding for holding in self._holdings if holding.believes and not holding.overruled]
        if not self.allows(both) and not any(
            each.invariant is Invariant.ONE_BELIEVER for each in self.violations
        ):
            names = " and ".join(f"{each.who} ({each.lease.owner[:8]})" for each in both)
            self.violated(Invariant.ONE_BELIEVER, f"{names} believe at the same time")

    def _check_head(self, holding: Holding) -> None:
        if holding.headless:
            return
        if not self._heads(holding):
            head, shown = holding.watched.head, "no object"
            if head is not None:
                shown = f"{str(head.get('owner'))[:8]} expired={head.get('expired')}"
            self.violated(
                Invariant.HEADS_CHAIN,
                f"{holding.who} ({holding.lease.owner[:8]}) believes while the store shows {shown}",
            )
        elif not self._bears_out(holding):
            self.violated(
                Invariant.HEADS_CHAIN,
                f"{holding.who} ({holding.lease.owner[:8]}) believes by a write that the store does not show",
            )

    def _bears_out(self, holding: Holding) -> bool:
        """Whether the head is what a lease relies on, or a later one: a renewal may not be answered yet."""
        probe = holding.probe
        if probe.held is None:
            return True  # a Hudi writer, of which nothing more can be asked
        order = self._applied.get(probe.held.tenure.head.version)
        return order is not None and order <= holding.watched.order

    def _overrule(self, *records: dict[str, Any] | None) -> None:
        """Leave the owners of records out of the reckoning, even before their lease is handed out."""
        owners = {str(record.get("owner")) for record in records if record is not None}
        self._broken |= owners
        for holding in self._holdings:
            if holding.lease.owner in owners:
                holding.overruled = holding.headless = True

    def _on_send(self, owner: str, body: bytes, *, beside: bool) -> bool:
        self._sent[body] = len(self._sent)
        if owner not in self._leases:
            return False  # an acquisition reaps an attempt while it makes another
        if beside and not self._breaking:
            self.violated(Invariant.ONE_WRITE, f"two writes of {owner[:8]} are under way")
        self._check_capped(self._capped.promised(owner, _fields(body), self._loop.time()))
        if not body.startswith(_FREE):
            for holding in self._holdings:
                if holding.ended_at is not None and holding.lease.owner == owner and owner not in self.kept:
                    detail = f"{holding.who} renews {owner[:8]}, which has ended"
                    self.violated(Invariant.END_IS_KEPT, detail)
        return True

    def _on_use_after_close(self, who: str, kind: str) -> None:
        self.violated(Invariant.CLOSED, f"{who} sends a {kind} after its backend was closed")

    def _on_change(self, operation: Operation) -> None:
        if operation.key.endswith(SUFFIX):
            watched = self._objects.setdefault(operation.key, Watched())
            before, watched.head = watched.head, None if operation.body is None else _fields(operation.body)
            self._note_displaced(before, watched.head or {})
            if operation.body is not None:
                watched.order = self._applied[operation.version] = self._sent.get(operation.body, -1)
            here = [holding for holding in self._holdings if holding.watched is watched]
            if watched.head is None:
                # An operator has deleted it: a holder who believes now learns of it at the next renewal.
                for holding in here:
                    holding.headless = True
            elif self._breaking and watched.head.get("expired"):
                # Of an object that the operator could not read, the owner is another than it shows now.
                self._overrule(before, watched.head)
                self._broken_tokens.add(int(watched.head.get("epoch") or 0))
            for holding in here:
                if self._held(holding):
                    self._check_head(holding)
        elif operation.key == self._fenced_key and operation.body is not None:
            line, _, body = operation.body.partition(b"\n")
            token = _fields(line).get("fencingToken", -1)
            if token < self._fenced_token:
                self.violated(
                    Invariant.NO_WRITE_LOST, f"a write under token {token} landed after {self._fenced_token}"
                )
            self._fenced_token = max(token, self._fenced_token)
            self._fenced_body = body

    def _note_displaced(self, before: dict[str, Any] | None, after: dict[str, Any]) -> None:
        """Remember whose live record was there before; a hand-off within one client displaces nobody."""
        if before is None or before.get("expired") is not False or "holder" not in before:
            return
        if after.get("owner") != before.get("owner") and after.get("holder") != before["holder"]:
            self._displaced.add(str(before.get("owner")))


def _fields(body: bytes) -> dict[str, Any]:
    try:
        fields = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    return fields if isinstance(fields, dict) else {}
