"""Records a simulated history as lines for ``Trace.tla``, each an action of the specification."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from operator import attrgetter
from random import Random
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import patch

import orjson

from asynclock._core.protocol import acquire as acquiring
from asynclock._core.protocol.acquire import Acquisition
from asynclock._core.protocol.belief import Belief
from asynclock._core.protocol.body import Body
from asynclock._core.protocol.claim import Claim
from asynclock._core.protocol.decisions import Observation
from asynclock._core.protocol.held import HeldLock
from asynclock._core.protocol.objects import LockObjects
from asynclock._core.protocol.renewer import Renewer
from asynclock.testing._virtual import Process
from tests.laboratory.history import Simulation
from tests.laboratory.names import KEY
from tests.laboratory.scenarios import SCENARIOS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from asynclock._core.protocol.decisions import Seen
    from asynclock._core.protocol.outcomes import Attempt
    from asynclock.testing._store import Operation
    from tests.laboratory.checker import Checker
    from tests.laboratory.plan import Plan
    from tests.laboratory.watched import Holding

LONGEST: Final = 20_000
"""L of ``Trace.tla``, in milliseconds. A record that promises less counts as one that was written earlier."""
_VOID: Final = "void"
_OURS: Final = frozenset({"put_if_absent", "put_if_match"})

Place = tuple[float, int, int]
"""True time, changes and reads of the store before it, number of the line."""


@dataclass(slots=True)
class Line:
    """One line.

    Attributes:
        place: Where in the history.
        event: What the code did.
        owner: Which acquisition, by the owner id in its record.
        attempt: Number of the attempt; 0: none of the lock's.
        current: The base of the attempt, or of what was read, is the newest version.
        short: By how many milliseconds its promise, or what must be observed, is shorter than ``LONGEST``.
        kind: Of the record.
        to: The acquisition that takes over.
    """

    place: Place
    event: str
    owner: str
    attempt: int = 0
    current: bool = False
    short: int = 0
    kind: str = "live"
    to: str = ""


@dataclass(slots=True)
class _Look:
    """What an acquisition has seen, and when."""

    place: Place
    observed: bool = False


@dataclass(slots=True)
class _Owner:
    """What is known of one acquisition.

    Attributes:
        process: Where it runs.
        base: Version that its last attempt was based on.
        gone: It has read that neither this nor an attempt of its own is there.
        alias: Who answers for its writes since a hand-over.
    """

    process: Process
    base: str | None
    gone: bool = False
    alias: str | None = None


class OutsideError(Exception):
    """The history has something that the specification leaves out."""


def leaves_out(plan: Plan) -> str:
    """Return what a plan has that the specification leaves out; empty: nothing."""
    reasons = {
        "Hudi's writers": plan.hudi_peers > 0,
        "deletions": plan.deletions > 0,
        "breaks": plan.breaks > 0,
        "tickets": plan.transfers > 0,
        "jobs that run once": plan.onces > 0,
        "several slots": plan.kind in {"semaphore", "rwlock"},
        "longer leases": max(each.validity for each in plan.settings) * 1000 > LONGEST,
    }
    return ", ".join(reason for reason, given in reasons.items() if given)


@dataclass(slots=True)
class Recorder:
    """Collects the lines of one simulation."""

    run: Simulation
    lines: list[Line] = field(default_factory=list)
    _numbers: dict[Any, int] = field(default_factory=dict)
    _writers: dict[int, str] = field(default_factory=dict)
    _owners: dict[str, _Owner] = field(default_factory=dict)
    _looks: dict[tuple[int, str | None], _Look] = field(default_factory=dict)
    _since: dict[int, tuple[str | None, Place]] = field(default_factory=dict)
    _believed: dict[str, Place] = field(default_factory=dict)
    _heads: dict[str | None, Place] = field(default_factory=dict)
    _acquired: set[str] = field(default_factory=set)
    _gone: set[str] = field(default_factory=set)
    _claimed: set[str] = field(default_factory=set)
    _told: set[str] = field(default_factory=set)

    # Lines.

    def place(self) -> Place:
        """Return the place of what happens now."""
        return self.run.loop.now, len(self.run.store.journal), 2 * len(self.lines)

    def add(self, event: str, owner: str, place: Place | None = None, **more: Any) -> None:  # noqa: ANN401  of Line
        """Add a line, here or where it belongs."""
        self.lines.append(Line(place or self.place(), event, owner, **more))

    def _head(self) -> str | None:
        """Return the newest version."""
        return next(reversed(self._heads))

    def number(self, nonce: Any) -> int:  # noqa: ANN401  a nonce
        """Return the number of an attempt."""
        return self._numbers.setdefault(nonce, len(self._numbers) + 1)

    def actor(self, owner: str) -> str:
        """Return who answers for the writes of an acquisition."""
        known = self._owners.get(owner)
        while known is not None and known.alias is not None:
            owner = known.alias
            known = self._owners.get(owner)
        return owner

    # What the code does.

    def sends(self, attempt: Attempt, acquisition: Acquisition | None, clock: Any) -> None:  # noqa: ANN401  a clock
        """Note an attempt to acquire or renew."""
        record, owner = attempt.record, attempt.record.owner
        self._claimed.add(str(record.nonce))
        known = self._owners.get(owner)
        if owner not in self._acquired and acquisition is not None:
            given, mine = acquisition._stake.given, None
            if known is None or known.base != attempt.base:
                mine = self._mine(acquisition, attempt.base)
            if known is None and given is not None:
                self._hand(given.tenure.owner, owner)
            elif mine is not None and mine != owner:
                self._hand(mine, owner)
            elif (
                (known is None or known.base != attempt.base)
                and mine is None
                and not self._look(acquisition, attempt, clock)
            ):
                return
        self._owners[owner] = _Owner(self.run.loop.current_process, attempt.base)
        self._writers[self.number(record.nonce)] = owner
        self.add(
            "send",
            owner,
            attempt=self.number(record.nonce),
            current=attempt.base == self._head(),
            short=LONGEST - int(record.lease_ms or 0),
        )

    def _mine(self, acquisition: Acquisition, base: str | None) -> str | None:
        """Return the owner of the attempt of this acquisition that made ``base``."""
        mine = (each for each in acquisition._stake.claim._by_nonce.values() if base and each.version == base)
        return next((self.actor(each.record.owner) for each in mine), None)

    def _hand(self, giver: str, to: str) -> None:
        giver = self.actor(giver)
        self.add("hand", giver, to=to)
        self._owners[giver].alias = to

    def _look(self, acquisition: Acquisition, attempt: Attempt, clock: Any) -> bool:  # noqa: ANN401  a clock
        """Note why the lock is free; False: its version was replaced while it was observed."""
        owner = attempt.record.owner
        look = self._looks.get((id(acquisition), attempt.base))
        if look is None:  # it was remembered from the own last write
            self.add("look", owner, self._heads[attempt.base])
            return True
        if look.observed:
            if attempt.base != self._head():
                self._gone.add(owner)
                return False
            version, since = self._since[id(acquisition._observation)]
            assert version == attempt.base
            record = acquisition._observation.last[0].record if acquisition._observation.last else None
            lease = max(
                (record.lease_ms or 0) / 1000 if record else 0.0, acquisition._objects.timing.validity
            )
            needed = lease / clock._drift  # by true time
            # The client may have begun to observe while an attempt of this acquisition was under way.
            begins = max((each.place for each in self.lines if each.owner == owner), default=since)
            if begins > since:
                needed -= int(begins[0] * 1000) / 1000 - int(since[0] * 1000) / 1000
                since = begins[0], begins[1], begins[2] + 1
            self.add("watch", owner, since, short=LONGEST - int(needed * 1000) + 1)
        self.add("look", owner, look.place)
        return True

    def frees(self, attempt: Attempt) -> None:
        """Note a write that frees, or keeps."""
        record, owner = attempt.record, self.actor(attempt.record.owner)
        if record.nonce is None:
            raise OutsideError("a token that settles")
        if owner in self._gone and owner not in self._owners:
            return
        self.add(
            "free",
            owner,
            attempt=self.number(record.nonce),
            current=attempt.base == self._head(),
            kind="free" if record.expired else "kept",
            short=0 if record.expired else LONGEST - int(record.lease_ms or 0),
        )
        self._writers[self.number(record.nonce)] = owner
        if owner in self._owners:
            self._owners[owner].base, self._owners[owner].gone = attempt.base, False

    def lands(self, operation: Operation) -> None:
        """Note a change of the lock's object."""
        if operation.key != KEY or operation.kind not in _OURS or operation.body is None:
            return
        fields = orjson.loads(operation.body)
        free, kept = fields["expired"], fields["nonce"] not in self._claimed
        self.add(
            "land",
            self.actor(fields["owner"]),
            attempt=self.number(fields["nonce"]),
            kind="free" if free else "kept" if kept else "live",
            short=0 if free else LONGEST - fields["leaseMs"],
        )
        self._heads.pop(operation.version, None)
        self._heads[operation.version] = self.place()

    def reads(self, seen: Seen, owner: str, first: int, acquisition: Acquisition | None) -> None:
        """Note an answer, at the time when the store gave it."""
        journal, process = self.run.store.journal, self.run.loop.current_process
        served = next(
            at
            for at in range(len(journal) - 1, first - 1, -1)
            if journal[at].kind == "get"
            and journal[at].key == KEY
            and journal[at].client == process.name
            and journal[at].version == seen.version
        )
        place = journal[served].at, served + 1, -1
        if acquisition is not None:
            self._looks[id(acquisition), seen.version] = _Look(place)
        actor = self.actor(owner)
        if (known := self._owners.get(actor)) is None or known.gone:
            return
        nonce = None if seen.record is None else seen.record.nonce
        based, attempt = known.base == seen.version, self._numbers.get(nonce, 0)
        mine = self._writers.get(attempt)
        known.gone = not based and (mine is None or self.actor(mine) != actor)
        self.add("read", actor, place, attempt=attempt, current=based)

    def observes(self, observation: Observation, seen: Seen) -> None:
        """Note the first answer with a version."""
        version, _ = self._since.get(id(observation), (0, None))
        if version != seen.version:
            self._since[id(observation)] = seen.version, self.place()

    def judges(self, acquisition: Acquisition, seen: Seen, remaining: float | None) -> None:
        """Note that a lock was found to be free."""
        look = self._looks.get((id(acquisition), seen.version))
        live = seen.record is not None and not seen.record.expired
        if look is not None and live:
            look.observed = remaining is None or remaining >= 0
            if look.observed:  # counted until this answer arrived
                look.place = self.place()

    def holds(self, held: HeldLock, landed: Attempt) -> None:
        """Note a lease."""
        self._acquired.add(held.tenure.owner)
        self.add("adopt", held.tenure.owner, attempt=self.number(landed.record.nonce))

    def extends(self, owner: str, attempt: Attempt) -> None:
        """Note a renewal that was found to have landed in time."""
        self.add("extend", owner, attempt=self.number(attempt.record.nonce))

    def asked(self, checker: Checker) -> None:
        """Note who believes now."""
        for holding in checker._holdings:
            if holding.believes and holding.probe.held is not None and holding.probe.held.tenure.key == KEY:
                at, requests, number = self.place()
                self._believed[holding.lease.owner] = at, requests, number - 1

    def turned(self, holding: Holding, *, held: bool) -> None:
        """Note the end of a belief, and when it was last seen."""
        owner = holding.lease.owner
        if held and owner not in self._told:
            # A clock was set past the deadline and back, and no code had looked: belief did not end.
            for line in self.lines:
                if (line.event, line.owner) == ("end", owner):
                    line.event = _VOID
        if not held and (place := self._believed.pop(owner, None)) is not None:
            self.add("believes", owner, place)
            if holding.process.alive:
                self.add("end", owner)

    def looks(self, owner: str, left: float) -> None:
        """Note what the code was told of its belief."""
        if left <= 0:
            self._told.add(owner)

    def ends(self, process: Process) -> None:
        """Note the end of a process."""
        if process.alive and self.run.loop.is_running():
            for owner, known in self._owners.items():
                if known.process is process and known.alias is None:
                    self.add("crash", owner)


_reader: ContextVar[tuple[str, Acquisition | None] | None] = ContextVar("reader", default=None)
_acquisition: ContextVar[Acquisition | None] = ContextVar("acquisition", default=None)


@contextmanager
def _recording(recorder: Recorder) -> Iterator[None]:
    """Let a recorder hear what the code does."""
    with ExitStack() as stack:

        def around(owner: Any, name: str, make: Callable[[Any], Any]) -> None:  # noqa: ANN401  classes
            stack.enter_context(patch.object(owner, name, make(getattr(owner, name))))

        for hooks in (_acquisitions, _leases, _beliefs, _writes, _reads, _world):
            for owner, name, make in hooks(recorder):
                around(owner, name, make)
        yield


Hooks = list[tuple[Any, str, "Callable[[Any], Any]"]]


def _acquisitions(recorder: Recorder) -> Hooks:
    def round_(original: Any) -> Any:  # noqa: ANN401  a function
        async def wrapped(self: Acquisition, seen: Seen | None) -> Any:  # noqa: ANN401  its result
            token = _acquisition.set(self)
            try:
                return await original(self, seen)
            finally:
                _acquisition.reset(token)

        return wrapped

    def read_and_adopt(original: Any) -> Any:  # noqa: ANN401  a function
        async def wrapped(self: Acquisition) -> Any:  # noqa: ANN401  its result
            token = _reader.set((self._stake.owner, self))
            try:
                return await original(self)
            finally:
                _reader.reset(token)

        return wrapped

    def judge(original: Any) -> Any:  # noqa: ANN401  a function
        def wrapped(seen: Seen, observation: Observation, timing: Any) -> Any:  # noqa: ANN401  its result
            verdict = original(seen, observation, timing)
            acquisition = _acquisition.get()
            if verdict.free and acquisition is not None:
                recorder.judges(acquisition, seen, verdict.remaining)
            return verdict

        return wrapped

    def note(original: Any) -> Any:  # noqa: ANN401  a function
        def wrapped(self: Observation, seen: Seen) -> None:
            recorder.observes(self, seen)
            original(self, seen)

        return wrapped

    return [
        (Acquisition, "_round", round_),
        (Acquisition, "_read_and_adopt", read_and_adopt),
        (acquiring, "judge", judge),
        (Observation, "note", note),
    ]


def _leases(recorder: Recorder) -> Hooks:
    def init(original: Any) -> Any:  # noqa: ANN401  a function
        def wrapped(self: HeldLock, *, key: str, landed: Attempt, **more: Any) -> None:  # noqa: ANN401  its own
            original(self, key=key, landed=landed, **more)
            if key == KEY:
                recorder.holds(self, landed)

        return wrapped

    def extend(original: Any) -> Any:  # noqa: ANN401  a function
        def wrapped(self: Renewer, attempt: Attempt, **more: Any) -> None:  # noqa: ANN401  its own
            before = self._belief.sent
            original(self, attempt, **more)
            if self._tenure.key == KEY and self._belief.sent is not before:
                recorder.extends(self._tenure.owner, attempt)

        return wrapped

    def read_back(original: Any) -> Any:  # noqa: ANN401  a function
        async def wrapped(self: Renewer, outcome: Any) -> Any:  # noqa: ANN401  its own
            token = _reader.set((self._tenure.owner, None))
            try:
                return await original(self, outcome)
            finally:
                _reader.reset(token)

        return wrapped

    return [(HeldLock, "__init__", init), (Renewer, "_extend", extend), (Renewer, "_read_back", read_back)]


def _beliefs(recorder: Recorder) -> Hooks:
    def end_if_due(original: Any) -> Any:  # noqa: ANN401  a function
        def wrapped(self: Belief) -> float:
            left: float = original(self)
            if type(self._body) is Body:  # not the copy that a probe asks
                recorder.looks(self.tenure.owner, left)
            return left

        return wrapped

    return [(Belief, "end_if_due", end_if_due)]


def _writes(recorder: Recorder) -> Hooks:
    def claim_write(original: Any) -> Any:  # noqa: ANN401  a function
        async def wrapped(self: Claim, attempt: Attempt, *, timeout: float) -> Any:  # noqa: ANN401  its own
            if self._key == KEY:
                recorder.sends(attempt, _acquisition.get(), self._objects.clock)
            return await original(self, attempt, timeout=timeout)

        return wrapped

    def write(original: Any) -> Any:  # noqa: ANN401  a function
        async def wrapped(self: LockObjects, key: str, attempt: Attempt, **more: Any) -> Any:  # noqa: ANN401  its own
            if key == KEY and attempt.record.nonce not in recorder._claimed:
                recorder.frees(attempt)
            return await original(self, key, attempt, **more)

        return wrapped

    return [(Claim, "write", claim_write), (LockObjects, "write", write)]


def _reads(recorder: Recorder) -> Hooks:
    def free(original: Any) -> Any:  # noqa: ANN401  a function
        async def wrapped(self: Claim, head: Attempt, **more: Any) -> Any:  # noqa: ANN401  its own
            token = _reader.set((head.record.owner, None))
            try:
                return await original(self, head, **more)
            finally:
                _reader.reset(token)

        return wrapped

    def read(original: Any) -> Any:  # noqa: ANN401  a function
        async def wrapped(self: LockObjects, key: str, **more: Any) -> Any:  # noqa: ANN401  its own
            reader, first = _reader.get(), len(recorder.run.store.journal)
            seen = await original(self, key, **more)
            if key == KEY and reader is not None:
                recorder.reads(seen, reader[0], first, reader[1])
            return seen

        return wrapped

    return [(Claim, "free", free), (LockObjects, "read", read)]


def _world(recorder: Recorder) -> Hooks:
    checker, store = recorder.run.checker, recorder.run.store

    def after_step(original: Any) -> Any:  # noqa: ANN401  a function
        def wrapped(process: Process) -> None:
            original(process)
            recorder.asked(checker)

        return wrapped

    def turned(original: Any) -> Any:  # noqa: ANN401  a function
        def wrapped(holding: Holding, *, held: bool) -> None:
            recorder.turned(holding, held=held)
            original(holding, held=held)

        return wrapped

    def on_change(original: Any) -> Any:  # noqa: ANN401  a function
        def wrapped(operation: Operation) -> None:
            recorder.lands(operation)
            original(operation)

        return wrapped

    def end(original: Any) -> Any:  # noqa: ANN401  a function
        def wrapped(self: Process) -> None:
            recorder.ends(self)
            original(self)

        return wrapped

    return [
        (checker, "_turned", turned),
        (store, "on_change", on_change),
        (recorder.run.loop, "on_step", after_step),
        (Process, "end", end),
    ]


def record(scenario: str, seed: int) -> list[Line]:
    """Run one history of the simulator, and return its lines in their order.

    Raises:
        OutsideError: It has something that the specification leaves out.
    """
    plan = SCENARIOS[scenario](Random(f"plan/{scenario}/{seed}"))
    if reason := leaves_out(plan):
        raise OutsideError(reason)
    run = Simulation(scenario, seed, plan)
    recorder = Recorder(run)
    recorder._heads[None] = 0.0, 0, -1
    with _recording(recorder):
        run.run()
    return sorted((each for each in recorder.lines if each.event != _VOID), key=attrgetter("place"))
