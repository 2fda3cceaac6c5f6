"""The suite notices mistakes: every planted one is found."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.laboratory.checker import Invariant
from tests.laboratory.scenarios import SCENARIOS
from tests.mutants import __main__ as noting
from tests.mutants.__main__ import MOST, Outcome, hunt, misplaced, noted, seeds_of, write_down
from tests.mutants.catalogue import JUDGE, MUTANTS
from tests.mutants.copies import ROOT
from tests.mutants.mutant import Mutant
from tests.mutants.pipeline import PIPELINE_MUTANTS, UNION, PipelineMutant
from tests.mutants.planting import Change, planted
from tests.mutants.suites import Trial, check_unmutated_suites, hunt_by_test, tried

if TYPE_CHECKING:
    from pathlib import Path


ALL = (*MUTANTS, *PIPELINE_MUTANTS)
UNION_TEST = "tests/unit/test_columns.py::test_union_has_every_column_with_its_wider_type"


@pytest.mark.timeout(3600)
def test_mutants_are_killed(capsys: pytest.CaptureFixture[str]) -> None:
    """Mistakes in the lock are reported as the violations they are; the source without them passes."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.mutants", "--only", "lock"],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
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


@pytest.mark.parametrize(
    "name", ["a type of the table narrows", "at a tie the earlier arrival wins"], ids=["Python", "Java"]
)
def test_a_mistake_in_the_pipeline_fails_the_test_that_it_names(name: str) -> None:
    """The test runs on a copy with the mistake in it, in Python or in a class of the jar."""
    [mutant] = [each for each in PIPELINE_MUTANTS if each.name == name]

    killed, how, _ = hunt_by_test(mutant)

    assert (killed, how[:15]) == (True, "AssertionError:")


def test_a_mistake_that_crashes_a_test_is_not_found() -> None:
    """What counts is a failed expectation, or the error that the mutant names."""
    crash = Change(UNION, "dict(first)", "dict(nothing)")
    harmless = Change(UNION, "dict(first)", "{**first}")
    error = "NameError: name 'nothing' is not defined"

    crashed, passed = (tried([change], [UNION_TEST]) for change in (crash, harmless))

    assert crashed.verdict() == (False, f"it crashes, which does not count: {error}")
    assert crashed.verdict("^NameError: name 'nothing'") == (True, error)
    assert passed.verdict() == (False, "1 passed")


def test_what_ends_a_run_of_tests_is_told() -> None:
    """A hang, or tests that did not begin, is no verdict of a test."""
    assert Trial(0, (), "it hangs, which does not count", 1.0).verdict() == (
        False,
        "it hangs, which does not count",
    )
    absent = replace(PIPELINE_MUTANTS[0], test="tests/unit/test_columns.py::test_that_is_not_there")
    assert check_unmutated_suites([absent], 1) == [f"the unmutated source: 0 passed of ['{absent.test}']"]


@pytest.mark.parametrize("mutant", ALL, ids=lambda each: each.name)
def test_a_mutant_has_its_place_in_the_source(mutant: Mutant | PipelineMutant) -> None:
    """Its function takes the decision exactly once, and the mistake is another."""
    for path, source in planted(mutant.changes, ROOT).items():
        before = (ROOT / path).read_text(encoding="utf-8")
        if path.suffix == ".java":
            assert source != before
        else:
            assert ast.dump(ast.parse(source)) != ast.dump(ast.parse(before))


def test_a_mistake_uses_variables_that_exist(tmp_path: Path) -> None:
    """A mistake that uses a renamed variable raises NameError: a crash, which does not count as found."""
    for number, mutant in enumerate(ALL):
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


def test_the_seeds_that_found_mutants_are_of_mutants_that_are_there() -> None:
    """Of those that a scenario finds: an exploration has no seeds."""
    of_scenarios = {each.name for each in MUTANTS if each.scenario in SCENARIOS}

    assert noted().keys() <= of_scenarios
    assert all(seed > 0 for seed in noted().values())


def test_a_note_of_some_mutants_keeps_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was hunted and is found by the first seed loses its note; one that is gone, too."""
    first, second, third = (each.name for each in MUTANTS[:3])
    monkeypatch.setattr(noting, "FOUND", tmp_path / "found.json")
    noting.FOUND.write_text(json.dumps({"gone": 4, third: 3, first: 1}), encoding="utf-8")

    write_down({second: 2}, hunted=[first, second])

    assert list(noted().items()) == [(second, 2), (third, 3)]


def test_a_hunt_begins_with_the_seed_that_found_the_mutant_last() -> None:
    """And goes on as one without such a seed, so that a seed of the past finds no less."""
    mutant = MUTANTS[0]

    assert seeds_of(mutant, {mutant.name: 9}, first=3) == [range(9, 10), range(3, 3 + MOST)]
    assert seeds_of(mutant, {}, first=3) == [range(3, 3 + MOST)]


def test_a_hunt_plays_the_seeds_that_it_is_given() -> None:
    """One history each, and no further."""
    outcome = hunt("contention", "any", seeds=[range(5, 6), range(2)])

    assert outcome == Outcome(killed=False, histories=3)


@pytest.mark.parametrize("mutant", PIPELINE_MUTANTS, ids=lambda each: each.name)
def test_a_mutant_of_the_pipeline_names_a_test_that_exists(mutant: PipelineMutant) -> None:
    """A file and a test of it, perhaps one case."""
    file, _, test = mutant.test.partition("::")

    found = re.findall(r"^(?:async )?def (test_\w+)", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE)

    assert test.partition("[")[0] in found


def test_there_are_enough_mutants_and_each_is_another() -> None:
    """At least 40 mistakes in the lock and 30 in the pipeline, all different, each with a name of its own."""
    assert len(MUTANTS) >= 40
    assert len(PIPELINE_MUTANTS) >= 30
    assert len({each.changes for each in ALL}) == len(ALL)
    assert len({each.name for each in ALL}) == len(ALL)
