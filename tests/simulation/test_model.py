"""The specification of the lock: what it promises holds, and every rule earns its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.laboratory.model import FAILING, MODULES, PASSING, SMALL, Configuration, check, check_module

QUICK = [each for each in FAILING if each.without is not None and each.tries == 1]
"""``make model`` checks the others as well, and larger worlds."""
PAGE = Path(__file__).parents[2] / "docs" / "concepts" / "specification.md"


@pytest.mark.parametrize("configuration", [SMALL, PASSING[-1]], ids=lambda each: each.name)
def test_the_protocol_keeps_its_properties(configuration: Configuration) -> None:
    """In all runs of two clients with one attempt each, and of two clients that get their answers."""
    assert check(configuration).broken is None


@pytest.mark.parametrize("configuration", QUICK, ids=lambda each: each.name)
def test_a_world_without_a_rule_breaks(configuration: Configuration) -> None:
    """TLC finds the way there."""
    verdict = check(configuration)

    assert verdict.broken == configuration.breaks
    assert verdict.trace


@pytest.mark.parametrize("name", MODULES)
def test_a_small_module_breaks_without_each_of_its_rules_only(name: str) -> None:
    """It reaches what it is about, too."""
    broken, reached, _ = check_module(name)

    assert broken == MODULES[name]
    assert "" in reached


def test_the_page_names_every_rule_that_is_left_out() -> None:
    """With the property that breaks."""
    page = PAGE.read_text()
    rows = [(each.without, each.breaks) for each in FAILING if each.without is not None]
    rows += [(rule, module) for module, rules in MODULES.items() for rule in rules]

    assert all(any(line.startswith(f"| {rule} |") and f"`{broken}`" in line for line in page.splitlines())
               for rule, broken in rows)  # fmt: skip
