"""The suite notices mistakes: every planted one is found."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.laboratory.checker import Invariant
from tests.laboratory.scenarios import SCENARIOS
from tests.mutants.__main__ import ROOT, Outcome, hunt, planted
from tests.mutants.catalogue import MUTANTS, Mutant


@pytest.mark.timeout(3600)
def test_mutants_are_killed(capsys: pytest.CaptureFixture[str]) -> None:
    """Planted mistakes are reported as the violations they are, and the source without them passes."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.mutants"], stdout=subprocess.PIPE, text=True, check=False
    )
    count = len(MUTANTS)

    with capsys.disabled():
        sys.stdout.write("\n" + done.stdout)
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1] == (f"mutants: {count} mutants, {count} killed, 0 survived")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("invariant", [Invariant.TAKEOVER_BOUND, Invariant.NOTHING_LEFT])
def test_a_crash_is_no_kill(invariant: Invariant) -> None:
    """A patch that only raises TypeError breaks invariants as well, and does not count as found."""
    crash = Mutant(
        "crash",
        "protocol/judgement.py",
        "    expiry = _expiry(record, since, terms)\n",
        "    expiry = _expiry(record, since, terms) + None\n",
        invariant,
        "contention",
    )

    outcome = hunt(crash.scenario, crash.invariant, most=10, mutant=crash)

    assert outcome == Outcome(killed=False, histories=10)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda each: each.name)
def test_a_mutant_still_applies(mutant: Mutant) -> None:
    """The text that a mutant replaces is in the source, exactly once."""
    source = (ROOT / "asynclock" / mutant.path).read_text(encoding="utf-8")

    assert planted(mutant, source) != source


@pytest.mark.parametrize("source", ["nothing of it", "expiry + expiry"], ids=["gone", "twice"])
def test_a_mutant_that_does_not_apply_is_an_error(source: str) -> None:
    """Where the source has moved on the run fails, instead of hunting for nothing."""
    mutant = Mutant("any", "any.py", "expiry", "None", Invariant.ONE_BELIEVER, "contention")

    with pytest.raises(ValueError, match="not once"):
        planted(mutant, source)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda each: each.name)
def test_a_mutant_names_an_invariant_and_where_it_shows(mutant: Mutant) -> None:
    """What must be reported violated, and in which scenario or exploration."""
    assert isinstance(mutant.invariant, Invariant)
    assert mutant.invariant is not Invariant.NO_ERROR
    assert mutant.scenario in {*SCENARIOS, "single-faults", "cancellations", "interleavings"}


def test_there_are_enough_mutants_and_each_is_another() -> None:
    """At least 40 mistakes, all different, each with a name of its own."""
    assert len(MUTANTS) >= 40
    assert len({(each.path, each.old, each.new) for each in MUTANTS}) == len(MUTANTS)
    assert len({each.name for each in MUTANTS}) == len(MUTANTS)
