"""The suite notices mistakes: every planted one is found."""

from __future__ import annotations

import ast
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.laboratory.checker import Invariant
from tests.laboratory.scenarios import SCENARIOS
from tests.mutants.__main__ import ROOT, Outcome, hunt, misplaced
from tests.mutants.catalogue import JUDGE, MUTANTS, Mutant
from tests.mutants.planting import planted

if TYPE_CHECKING:
    from pathlib import Path


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
    """A mistake that only raises TypeError breaks invariants as well, and does not count as found."""
    crash = Mutant("crash", JUDGE, "_expiry(*$record)", "_expiry(*$record) + None", invariant, "contention")

    outcome = hunt(crash.scenario, crash.invariant, most=10, mutant=crash)

    assert outcome == Outcome(killed=False, histories=10)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda each: each.name)
def test_a_mutant_has_its_place_in_the_source(mutant: Mutant) -> None:
    """Its function takes the decision exactly once, and the mistake is another."""
    for path, source in planted(mutant.changes, ROOT).items():
        assert ast.dump(ast.parse(source)) != ast.dump(ast.parse((ROOT / path).read_text(encoding="utf-8")))


def test_a_mistake_uses_variables_that_exist(tmp_path: Path) -> None:
    """A mistake that uses a renamed variable raises NameError: a crash, which does not count as found."""
    for number, mutant in enumerate(MUTANTS):
        for path, source in planted(mutant.changes, ROOT).items():
            (tmp_path / f"{number}_{path.name}").write_text(source, encoding="utf-8")

    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "ruff",
            "check",
            "--isolated",
            "--select=F821",
            "--output-format=concise",
            ".",
        ],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )

    assert done.stdout == "All checks passed!\n"


def test_mutants_without_a_place_are_named() -> None:
    """The run names the mutants that the source has moved on from, instead of hunting for nothing."""
    gone = replace(MUTANTS[0], name="a decision of the past", decision="self.past()")

    [failure] = misplaced([MUTANTS[0], gone])

    assert failure.startswith(
        f"mutant 'a decision of the past' has no place in the source:\n{gone.function} "
    )
    assert "self.past()" in failure


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda each: each.name)
def test_a_mutant_names_an_invariant_and_where_it_shows(mutant: Mutant) -> None:
    """What must be reported violated, and in which scenario or exploration."""
    assert isinstance(mutant.invariant, Invariant)
    assert mutant.invariant is not Invariant.NO_ERROR
    assert mutant.scenario in {*SCENARIOS, "single-faults", "cancellations", "interleavings"}


def test_there_are_enough_mutants_and_each_is_another() -> None:
    """At least 40 mistakes, all different, each with a name of its own."""
    assert len(MUTANTS) >= 40
    assert len({each.changes for each in MUTANTS}) == len(MUTANTS)
    assert len({each.name for each in MUTANTS}) == len(MUTANTS)
