"""The second opinion: histories by seed and by hand, and proof that its judge can say no."""

from __future__ import annotations

import gc
import itertools
import logging
import math
import warnings
from typing import TYPE_CHECKING

import pytest

from asynclock import Lease, LeaseLostError
from asynclock._core.engine import LockEngine
from asynclock._core.portal import Host
from asynclock._core.readwrite import Writer
from asynclock._once import Periods
from asynclock.client import LockClient
from tests.laboratory.attack.by_hand import BY_HAND, broken_by_force
from tests.laboratory.attack.history import History
from tests.laboratory.attack.plan import draw
from tests.laboratory.attack.scene import Scene

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HISTORIES = 2000
CHUNK = 250
ENOUGH = 60
"""Histories within which a planted violation is found."""
SHARING = 10
"""Likewise, of those with a semaphore or a reader-writer lock."""


@pytest.fixture(autouse=True)
def small_heap() -> Iterator[None]:
    """Keep the many collections of a history from going through all that the test run has loaded."""
    gc.collect()
    gc.freeze()
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of leases and coroutines of processes that are gone
        gc.collect()
    gc.unfreeze()


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Leave out what is logged of every lost lease."""
    loggers = [logging.getLogger(name) for name in ("asynclock", "asyncio")]
    levels = [each.level for each in loggers]
    for each in loggers:
        each.setLevel(logging.CRITICAL)
    yield
    for each, level in zip(loggers, levels, strict=True):
        each.setLevel(level)


def found(alter: Callable[[History], object] = lambda _: None) -> set[str]:
    """Return the rules that the first histories violate."""
    rules: set[str] = set()
    for seed in range(ENOUGH):
        outcome = History(draw(seed), alter=alter).run()
        rules |= {violation.split(":")[0] for violation in outcome.violations}
    return rules


@pytest.mark.parametrize("first", range(0, HISTORIES, CHUNK))
def test_no_history_violates_anything(first: int) -> None:
    """Random histories hold every promise of docs/concepts/protocol.md."""
    for seed in range(first, first + CHUNK):
        outcome = History(draw(seed)).run()

        assert not outcome.violations, "\n".join(
            (*outcome.trace[-100:], f"python -m tests.laboratory attack --seed {seed}")
        )


@pytest.mark.parametrize("name", BY_HAND)
def test_history_made_by_hand(name: str) -> None:
    """What once broke the lock breaks it no more."""
    outcome = BY_HAND[name]()

    assert not outcome.violations, "\n".join(outcome.trace[-100:])


def test_a_history_can_be_replayed() -> None:
    """A seed gives the same history again."""
    for seed in range(10):
        assert History(draw(seed)).run().trace == History(draw(seed)).run().trace


def test_a_history_leaves_the_host_of_this_process_in_place() -> None:
    """The loop thread that serves the clients of this process is the same before and after a history."""
    host = Host.get()

    History(draw(0)).run()

    assert Host.get() is host


def test_a_scene_leaves_the_host_of_this_process_in_place() -> None:
    """Likewise where a script ends in an error, and the history is never carried to its end."""
    host, scene = Host.get(), Scene()

    async def fails() -> None:
        raise ArithmeticError

    with pytest.raises(ArithmeticError):
        scene.play(1, (scene.process(), fails()))

    assert Host.get() is host


def found_by_kinds(rule: str) -> bool:
    """Whether the first histories with several locks, leaders and jobs violate a rule."""
    return any(
        violation.startswith(f"{rule}:")
        for plan in map(draw, range(5 * ENOUGH))
        if plan.kinds
        for violation in History(plan).run().violations
    )


def test_a_lock_that_is_left_out_of_a_common_loss_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are still held after the loss of one."""
    monkeypatch.setattr("asynclock._several.tie", lambda *_: None)

    assert found_by_kinds("torn")


def test_a_job_that_is_run_twice_in_a_period_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mark of the run before is not looked at."""
    look = Periods._done

    async def nothing(self: Periods) -> float:
        await look(self)
        return -math.inf

    monkeypatch.setattr(Periods, "_done", nothing)

    assert found_by_kinds("twice")


def test_a_job_that_is_skipped_though_nobody_has_run_it_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that failed counts as done."""
    due = Periods.due

    async def done_after_the_first(self: Periods) -> int | None:
        period = await due(self)
        return None if vars(self).setdefault("asked", period) is not period else period

    monkeypatch.setattr(Periods, "due", done_after_the_first)

    assert found_by_kinds("skipped")


def test_a_lease_that_outlives_its_end_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is renewed past the time at which it is to end."""
    monkeypatch.setattr(LockEngine, "checked_at_most", lambda *_: None)

    assert found_by_kinds("capped")


def test_a_store_that_ignores_conditions_is_found() -> None:
    """Two believers and lost updates are seen where the store ignores conditions."""

    def break_it(history: History) -> None:
        history.bucket.broken = True

    assert {"believer", "update"} <= found(break_it)


def found_sharing(kind: str, alter: Callable[[History], object] = lambda _: None) -> set[str]:
    """Return the rules that histories with a semaphore or a reader-writer lock violate."""
    plans = (plan for plan in map(draw, itertools.count()) if plan.kind == kind)
    outcomes = (History(plan, alter=alter).run() for plan in itertools.islice(plans, SHARING))
    return {violation.split(":")[0] for outcome in outcomes for violation in outcome.violations}


def test_a_writer_with_a_reader_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that does not look at the readers is seen next to one."""

    async def alone(*_: object, **__: object) -> bool:
        return True

    monkeypatch.setattr(Writer, "_alone", alone)

    assert "beside" in found_sharing("rwlock")


def test_one_holder_too_many_is_found() -> None:
    """A client that adds a slot of its own to a semaphore is seen."""

    def add(history: History) -> None:
        history.judge.most -= 1

    assert "slots" in found_sharing("semaphore", add)


def test_a_belief_that_does_not_end_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lease that believes forever is seen next to its successor."""
    monkeypatch.setattr(Lease, "held", property(lambda _: True))

    assert "believer" in found()


def test_a_token_that_falls_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A token that is not higher than every earlier one is seen."""
    tokens = itertools.count(10**15, -1)
    monkeypatch.setattr(Lease, "fencing_token", property(lambda _: next(tokens)))

    assert "token" in found()


def test_a_swallowed_loss_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A release that returns well although another holds the lock is seen."""
    release = Lease.release

    async def swallow(self: Lease) -> None:
        try:
            await release(self)
        except LeaseLostError:
            return

    monkeypatch.setattr(Lease, "release", swallow)

    assert any(each.startswith("swallowed") for each in broken_by_force("release").violations)


def test_a_client_that_does_not_close_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request after the end of a client, and a lease that outlives it, are seen."""

    async def nothing(_: LockClient) -> None:
        return

    monkeypatch.setattr(LockClient, "aclose", nothing)

    assert {"trespass", "closed"} <= found()


def test_a_lock_that_is_never_freed_is_found() -> None:
    """A dead holder's lock that nobody can take over is seen."""

    def stop_the_clock(history: History) -> None:
        began = history.bucket.node_time()
        history.bucket.node_time = lambda: began  # type: ignore[method-assign]

    assert "held forever" in found(stop_the_clock)


def test_a_record_that_nobody_can_read_is_found() -> None:
    """A record out of bounds is seen when it lands."""
    scene = Scene()
    scene.hudi(expired=False, valid_for=9 * 86_400.0)

    assert scene.run().violations[0].startswith("corrupt")


def test_a_waiter_without_a_turn_is_found() -> None:
    """A turn that comes too late is seen."""
    plan = next(plan for plan in map(draw, itertools.count()) if plan.turns)
    plan.patience = 0.01

    assert any(each.startswith("starved") for each in History(plan).run().violations)
