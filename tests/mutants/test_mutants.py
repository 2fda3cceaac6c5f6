"""The suite notices mistakes: every planted one is found."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.mutants.__main__ import ROOT, planted
from tests.mutants.catalogue import MUTANTS, THIN

if TYPE_CHECKING:
    from tests.mutants.catalogue import Mutant


@pytest.mark.timeout(3600)
def test_mutants_are_killed(capsys: pytest.CaptureFixture[str]) -> None:
    """Planted mistakes are reported as the violations they are, and the source without them passes.

    ``make mutants`` hunts the thin ones as well.
    """
    done = subprocess.run(
        [sys.executable, "-m", "tests.mutants", "--quick"], stdout=subprocess.PIPE, text=True, check=False
    )
    count = len(MUTANTS) - len(THIN)

    with capsys.disabled():
        sys.stdout.write("\n" + done.stdout)
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1] == (f"mutants: {count} mutants, {count} killed, 0 survived")


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda each: each.name)
def test_a_mutant_still_applies(mutant: Mutant) -> None:
    """The text that a mutant replaces is in the source, exactly once."""
    source = (ROOT / "asynclock" / mutant.path).read_text(encoding="utf-8")

    assert planted(mutant, source) != source


def test_thin_mutants_are_mutants() -> None:
    """Whatever is left out of a test run is in the catalogue."""
    assert {each.name for each in MUTANTS} >= THIN


def test_there_are_enough_mutants_and_each_is_another() -> None:
    """At least 40 mistakes, all different, each with a name of its own."""
    assert len(MUTANTS) >= 40
    assert len({(each.path, each.old, each.new) for each in MUTANTS}) == len(MUTANTS)
    assert len({each.name for each in MUTANTS}) == len(MUTANTS)
