"""Jobs that are run once a period, and what became of each run (rule 30)."""

from __future__ import annotations

import asyncio
import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from asynclock.errors import BackendError, LeaseLostError, RecordCorruptError, StaleTokenError
from asynclock.lease import Lease
from asynclock.testing._clocks import EPOCH
from tests.laboratory.invariants import Invariant
from tests.laboratory.names import KEY, MARK_KEY, NAME

if TYPE_CHECKING:
    from collections.abc import Iterator

    from asynclock.client import LockClient
    from asynclock.testing._store import Operation, SimulatedStore
    from tests.laboratory.users import User

_FAILS: Final = 0.3
"""Share of the runs that raise."""
_ROUNDED: Final = 1e-3
"""Seconds."""


class JobError(Exception):
    """A run has failed."""


@dataclass(slots=True)
class Run:
    """One run: its lease, true time at which it began, and at which its function returned."""

    who: str
    owner: str
    token: int
    began: float
    returned: float | None = None


@dataclass(frozen=True, slots=True)
class Mark:
    """One mark as the store applied it."""

    at: float
    token: int
    period: int


@dataclass(frozen=True, slots=True)
class Answer:
    """What a call returned: the owner of its run, or None if it was skipped; with true times."""

    who: str
    began: float
    ended: float
    owner: str | None
    wait: bool


class Periods:
    """All runs of the job of one history, and what its callers got.

    Args:
        store: Its journal says what was marked, and when the lock was held.

    Attributes:
        every: Length of a period, in seconds.
    """

    def __init__(self, store: SimulatedStore) -> None:
        self.every = math.inf
        self._store = store
        self._runs: dict[str, Run] = {}
        self._answers: list[Answer] = []

    def begins(self, run: Run) -> None:
        """Take in a run that begins."""
        self._runs[run.owner] = run

    def answered(self, answer: Answer) -> None:
        """Take in what a call returned."""
        self._answers.append(answer)

    def violations(self) -> Iterator[tuple[Invariant, str]]:
        """Yield at the end what a run or a call did that it must not."""
        if not self._runs:
            return
        marks = [*self._marks()]
        yield from self._of_marks(marks)
        yield from self._of_runs(marks)
        yield from self._of_answers(marks)

    def _of_marks(self, marks: list[Mark]) -> Iterator[tuple[Invariant, str]]:
        by_token = {run.token: run for run in self._runs.values()}
        newest: Mark | None = None
        for mark in marks:
            if newest is not None and mark.period < newest.period:
                yield Invariant.PERIODS, f"{mark} over {newest}"
            newest = mark
            run = by_token.get(mark.token)
            if run is None:
                continue
            if run.returned is None or run.returned > mark.at:
                yield Invariant.RUN_AGAIN, f"{mark} of {run}, which has not come to its end"
            begins, ends = (each * self.every - EPOCH for each in (mark.period, mark.period + 1))
            earliest, latest = min(self._store.profile.nodes), max(self._store.profile.nodes)
            first = self._landed(run.owner)
            if run.began + _ROUNDED < begins - earliest or first - _ROUNDED > ends - latest:
                yield Invariant.PERIODS, f"{mark} of {run}, when not all clocks of the store showed it"

    def _of_runs(self, marks: list[Mark]) -> Iterator[tuple[Invariant, str]]:
        for run in self._runs.values():
            first, period = self._landed(run.owner), self._period(run.began, max(self._store.profile.nodes))
            if done := [mark for mark in marks if mark.at < first and mark.period >= period]:
                yield Invariant.ONE_RUN, f"{run} runs again what is done by {done[-1]}"

    def _of_answers(self, marks: list[Mark]) -> Iterator[tuple[Invariant, str]]:
        results: dict[int, Answer] = {}
        for answer in self._answers:
            if answer.owner is None:
                period = self._period(answer.began, min(self._store.profile.nodes))
                is_done = any(mark.at <= answer.ended and mark.period >= period for mark in marks)
                if not is_done and (answer.wait or not self._was_held(answer.began, answer.ended)):
                    yield Invariant.RUN_AGAIN, f"{answer} is skipped, and nobody has run period {period}"
                continue
            token = self._runs[answer.owner].token
            mark = next((each for each in marks if each.token == token and each.at <= answer.ended), None)
            if mark is None:
                yield Invariant.RUN_AGAIN, f"{answer} has returned, and its period is not marked"
                continue
            if (other := results.setdefault(mark.period, answer)) is not answer:
                yield Invariant.ONE_RUN, f"{answer} and {other} have both run period {mark.period}"

    def _period(self, at: float, ahead: float) -> int:
        return math.floor((EPOCH + at + ahead) / self.every)

    def _landed(self, owner: str) -> float:
        """Return when the first record of a lease was applied."""
        mine = f'"owner":"{owner}"'.encode()
        return next(each.at for each in self._writes(KEY) if mine in (each.body or b""))

    def _was_held(self, began: float, ended: float) -> bool:
        live = False
        for each in self._writes(KEY):
            if each.at > began and live:
                return True
            if each.at > ended:
                return False
            live = b'"expired":false' in (each.body or b"")
        return live

    def _marks(self) -> Iterator[Mark]:
        for each in self._writes(MARK_KEY):
            line, _, body = (each.body or b"").partition(b"\n")
            yield Mark(each.at, json.loads(line)["fencingToken"], json.loads(body)["period"])

    def _writes(self, key: str) -> Iterator[Operation]:
        return (
            each for each in self._store.journal if each.key == key and each.kind != "get" and each.applied
        )


class Calling:
    """One call of a function that ``once`` has decorated.

    Args:
        user: Who calls it.
        client: Its client.
    """

    def __init__(self, user: User, client: LockClient) -> None:
        self._user = user
        self._client = client
        self._run, self._rng, self._checker = user._run, user._rng, user._run.checker
        self._judge = user._run.checker.periods
        self._judge.every = user._run.plan.every

    async def run(self) -> None:
        """Call it once."""
        user, rng, plan, loop = self._user, self._rng, self._run.plan, self._run.loop
        wait, began = rng.random() < 0.5, loop.time()
        cut = user._patience() if rng.random() < plan.impatience else None
        job = self._client.once(NAME, every=plan.every, wait=wait)(self._work)
        try:
            async with asyncio.timeout(cut):
                owner = await job()
        except (
            JobError, TimeoutError, LeaseLostError, StaleTokenError, BackendError, RecordCorruptError
        ) as error:  # fmt: skip
            self._checker.note(user.name, f"once() raises {type(error).__name__}")
            if isinstance(error, RecordCorruptError):
                self._run.unreadable(user.name, error)
        else:
            self._judge.answered(Answer(user.name, began, loop.time(), owner, wait))
        finally:
            user.waits_since = None

    async def _work(self) -> str:
        user, rng, loop = self._user, self._rng, self._run.loop
        engine = self._client._core.engine(NAME)
        assert engine.turns.held is not None
        # A second handle, which is not released when it is dropped.
        lease = Lease(engine.turns.held, engine, of=cast("Any", self))
        holding = self._checker.handed_out(user.name, user._process, lease, token=lease.fencing_token)
        run = Run(user.name, lease.owner, lease.fencing_token, loop.time())
        self._judge.begins(run)
        user.holding = True
        try:
            await asyncio.sleep(rng.uniform(*self._run.plan.holds) * user._unit)
            if rng.random() < _FAILS:
                raise JobError
            run.returned = loop.time()
            return lease.owner
        finally:
            user.holding = False
            self._checker.dropped(holding)
