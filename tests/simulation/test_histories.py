"""Thousands of simulated histories of the shipped client."""

from __future__ import annotations

import importlib
import itertools
import logging
import os
import subprocess
import sys
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

import pytest

from asynclock._core.protocol.issuer import Issuer
from asynclock.errors import ConfigError
from asynclock.lock import Hold
from tests.laboratory.checker import Invariant, Violation
from tests.laboratory.history import Simulation
from tests.laboratory.scenarios import CYCLE, SCENARIOS
from tests.laboratory.simulate import (
    Progress,
    Summary,
    main,
    quiet,
    replay_command,
    run_parallel,
    run_seeds,
    scenario_of,
    simulate,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tests.laboratory.plan import Plan

MODULE = importlib.import_module("tests.laboratory.simulate")


IN_TESTS = 7_000
"""Histories of a test run; ``make simulate`` runs ``FULL``. In each scenario they are more than any planted
mistake of ``tests/mutants`` needs to be found there."""


@pytest.mark.timeout(3600)
def test_no_history_violates_an_invariant(capsys: pytest.CaptureFixture[str]) -> None:
    """In thousands of histories of every scenario nothing that the lock promises is broken."""
    with capsys.disabled():
        sys.stdout.write("\n")
        status = main(["--seeds", str(IN_TESTS)])

    assert status == 0


@pytest.mark.parametrize(
    ("scenario", "seed", "bodies"),
    [
        # Without hold() and signals: the shares of a plan are part of what made the history.
        ("hand-off", 22, 0.0),
        ("zombie-writes", 365, 0.0),
        ("worst-clocks", 333, 0.0),
        ("hudi-turns", 1688, 0.0),
        ("hudi-clocks", 33_700, 0.25),
        ("capped", 1136, 0.5),
        ("mixed-settings", 5855, 0.25),
    ],
)
def test_a_history_that_once_failed_passes(scenario: str, seed: int, bodies: float) -> None:
    """Histories that showed a mistake of the lock stay in the suite."""
    plan = SCENARIOS[scenario](Random(f"plan/{scenario}/{seed}"))

    assert Simulation(scenario, seed, replace(plan, bodies=bodies, signals=0.0)).run().violations == []


def too_short_behind_hudi() -> tuple[int, Plan]:
    """Return a seed of ``hudi-short`` with leases that get no token behind a Java writer, and its plan."""
    for seed in itertools.count():
        plan = SCENARIOS["hudi-short"](Random(f"plan/hudi-short/{seed}"))
        each = plan.settings[0]
        if each.validity < 1.25 * (each.max_clock_skew + plan.store.resolution):
            return seed, plan
    raise AssertionError


def test_a_lease_too_short_behind_a_java_writer_is_refused_and_the_history_goes_on() -> None:
    """The refusal is a legal outcome: users try again, and the end of the history waits for no lease."""
    seed, plan = too_short_behind_hudi()
    with quiet():
        history = Simulation("hudi-short", seed, plan).run()

    assert "is refused: too short a lease behind a Hudi writer" in history.trace()
    assert history.violations == []


def test_a_refusal_without_a_java_writer_before_is_seen() -> None:
    """A lease is refused as too short only where its client has seen a record without a token."""

    def refuse(issuer: Issuer, *_: object) -> None:
        raise ConfigError(setting="validity", value=issuer._timing.validity, reason="too short")

    seed, plan = too_short_behind_hudi()
    with quiet(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(Issuer, "next_token", refuse)
        history = Simulation("hudi-short", seed, replace(plan, hudi_peers=0)).run()

    assert {each.invariant for each in history.violations} >= {Invariant.NO_ERROR}


def test_a_run_leaves_the_log_as_it_was() -> None:
    """The losses of a run are kept out of the log; those of the program afterwards are not."""
    logger = logging.getLogger("asynclock")
    before = logger.level

    run_seeds([0])

    assert logger.level == before


def test_same_seed_gives_the_same_history() -> None:
    """A seed gives the same history bit for bit, in another process and with other hashes too."""
    program = (
        "import hashlib, logging; logging.disable();"
        "from tests.laboratory.simulate import simulate, scenario_of;"
        "print([hashlib.sha256(simulate(scenario_of(s), s).trace().encode()).hexdigest() for s in range(34)])"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", program],
            env=os.environ | {"PYTHONHASHSEED": hashes},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hashes in ("1", "2")
    ]

    assert runs[0] == runs[1]
    assert runs[0].count(",") == 33


def test_different_seeds_give_different_histories() -> None:
    """The seed decides what happens."""
    traces = {simulate("contention", seed).trace() for seed in range(4)}

    assert len(traces) == 4


def test_replay_prints_who_believed_what_when(capsys: pytest.CaptureFixture[str]) -> None:
    """The command that replays a history shows acquisitions, beliefs, writes and the outcome."""
    status = main(["--scenario", "crash-storm", "--seed", "1"])

    printed = capsys.readouterr().out
    assert status == 0
    assert "believes owner=" in printed
    assert "put_if_match lock.json on" in printed
    assert printed.splitlines()[-1].startswith("simulate: crash-storm seed 1, ")


def test_a_failing_history_names_its_replay_command() -> None:
    """A violation comes with the command that shows it again."""
    summary = run_seeds([5])
    history = simulate(scenario_of(5), 5)
    history.violations.append(Violation(1.0, Invariant.ONE_BELIEVER, "two of them"))

    summary.add(history)

    command = f"python -m tests.laboratory simulate --scenario {scenario_of(5)} --seed 5"
    assert summary.failures == [f"{command}  # at-most-one-believer: two of them"]


def test_a_fault_that_is_never_applied_fails_the_run() -> None:
    """A run in which one kind of fault did not happen proves too little."""
    summary = run_parallel(range(34), jobs=1)
    summary.applied["crash"] = 0

    assert "never applied: crash" in summary.shortcomings()


def test_every_scenario_is_drawn() -> None:
    """Seeds in a row go through all scenarios in turn."""
    assert {scenario_of(seed) for seed in range(len(SCENARIOS))} == set(SCENARIOS)
    assert {scenario_of(seed) for seed in range(len(CYCLE))} == set(SCENARIOS)


def test_an_unknown_scenario_is_refused() -> None:
    """A scenario that does not exist is named in the error."""
    with pytest.raises(ConfigError, match="nonsense"):
        simulate("nonsense", 0)


def test_the_checker_sees_a_body_that_runs_on_after_a_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its cancellation the body of hold() is found to go on believing after the loss."""
    monkeypatch.setattr(Hold, "_cancel", lambda _: None)

    assert any(
        violation.invariant is Invariant.LOSS_ENDS_BODY
        for seed in range(100)
        for violation in simulate("clock-chaos", seed).violations
    )


def test_the_checker_sees_a_lock_that_is_never_released() -> None:
    """With a takeover bound that cannot be met, the harness says so."""
    plan = replace(SCENARIOS["contention"](Random(3)), slack=-1000.0)

    history = Simulation("contention", 3, plan).run()

    assert Invariant.TAKEOVER_BOUND in {violation.invariant for violation in history.violations}


def test_a_violation_is_printed_while_the_run_goes_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A long run prints the command that replays a failure at once, and again at the end."""
    seen: list[str] = []

    def one_after_the_other(
        work: Callable[[object], Summary], jobs: Iterable[object], **_: object
    ) -> Iterator[Summary]:
        for job in jobs:
            yield work(job)
            seen.append(capsys.readouterr().out)

    def impossible(rng: Random) -> Plan:
        return replace(contention(rng), slack=-1000.0)

    contention = SCENARIOS["contention"]
    monkeypatch.setitem(SCENARIOS, "contention", impossible)
    monkeypatch.setattr(MODULE, "spread", one_after_the_other)
    monkeypatch.setattr(MODULE, "CHUNK", 1)

    status = main(["--scenario", "contention", "--seeds", "3"])

    at_the_end = capsys.readouterr().out.splitlines()
    commands = [replay_command("contention", seed) for seed in range(3)]
    assert status == 1
    assert [text.partition("  #")[0] for text in seen] == commands
    assert [line.partition("  #")[0] for line in at_the_end[-4:-1]] == commands
    assert at_the_end[-1].endswith(" store operations, 3 violations (seeds 0..2)")


def test_a_long_run_tells_once_a_minute_how_far_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    """On stderr: histories, operations and violations so far, and the time left at this pace."""
    now = 0.0
    progress = Progress(1_000_000, clock=lambda: now)
    for _ in range(5):
        now += 25.0
        progress.add(Summary(operations=[200] * 2000))
    told = capsys.readouterr()

    assert told.out == ""
    assert told.err.splitlines() == [
        "6000 of 1000000 histories, 1200000 store operations, 0 violations, about 3 h 27 min left"
    ]


def test_the_last_word_of_a_run_is_its_result(capsys: pytest.CaptureFixture[str]) -> None:
    """After the last history nothing more says how far the run is."""
    now = 0.0
    progress = Progress(40, clock=lambda: now)
    now = 3600.0

    progress.add(Summary(operations=[200] * 40))

    assert capsys.readouterr().err == ""
