"""The suite notices mistakes: every planted one is found."""

from __future__ import annotations

import subprocess
import sys

import pytest

from asynclock.testing.checker import Invariant
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
        "    expiry = _expiry(record, seen.last_modified, terms)\n",
        "    expiry = _expiry(record, seen.last_modified, terms) + None\n",
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


def test_there_are_enough_mutants_and_each_is_another() -> None:
    """At least 40 mistakes, all different, each with a name of its own."""
    assert len(MUTANTS) >= 40
    assert len({(each.path, each.old, each.new) for each in MUTANTS}) == len(MUTANTS)
    assert len({each.name for each in MUTANTS}) == len(MUTANTS)
