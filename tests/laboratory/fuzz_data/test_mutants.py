"""The mutants of the reading stand for mends that are in the source."""

from __future__ import annotations

import pytest

from tests.laboratory.fuzz_data.mutants import MUTANTS, ROOT, Mutant


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_mutant_has_its_place_in_the_source(mutant: Mutant) -> None:
    """What a mutant changes is there exactly once."""
    source = (ROOT / mutant.change.path).read_text(encoding="utf-8")

    assert mutant.change.planted(source) != source
