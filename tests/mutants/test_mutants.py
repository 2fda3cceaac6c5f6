"""The suite notices mistakes: every planted one is found."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.mutants.catalogue import MUTANTS


@pytest.mark.timeout(3600)
def test_every_mutant_is_killed(capsys: pytest.CaptureFixture[str]) -> None:
    """Each planted mistake is reported as the violation it is, and the source without it passes."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.mutants"], stdout=subprocess.PIPE, text=True, check=False
    )

    with capsys.disabled():
        sys.stdout.write("\n" + done.stdout)
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1] == (
        f"mutants: {len(MUTANTS)} mutants, {len(MUTANTS)} killed, 0 survived"
    )


def test_there_are_enough_mutants_and_each_is_another() -> None:
    """At least 40 mistakes, all different, each with a name of its own."""
    assert len(MUTANTS) >= 40
    assert len({(each.path, each.old, each.new) for each in MUTANTS}) == len(MUTANTS)
    assert len({each.name for each in MUTANTS}) == len(MUTANTS)
