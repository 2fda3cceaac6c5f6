"""The specification of the lock: what it promises holds, and every rule earns its place."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.laboratory.counterexamples import DRAWN, path_of, picture
from tests.laboratory.model import (
    FAILING,
    MODULES,
    PASSING,
    REDUCED,
    SMALL,
    Configuration,
    check,
    check_module,
    output,
    verdict_of,
)

QUICK = [each for each in FAILING if each.without and each.tries == 1]
"""``make model`` checks the others as well, and larger worlds."""
PAGE = Path(__file__).parents[2] / "docs" / "concepts" / "protocol.md"


@pytest.mark.parametrize("configuration", [SMALL, PASSING[-1]], ids=lambda each: each.name)
def test_the_protocol_keeps_its_properties(configuration: Configuration) -> None:
    """In all runs of two clients with one attempt each, and of two clients that get their answers."""
    assert check(configuration).broken is None


@pytest.mark.parametrize("configuration", QUICK, ids=lambda each: each.name)
def test_a_world_without_a_rule_breaks(configuration: Configuration) -> None:
    """TLC finds the way there, and the page shows it."""
    said = output(configuration)
    verdict = verdict_of(configuration, said)

    assert verdict.broken == configuration.breaks
    assert verdict.trace
    if configuration in DRAWN:
        assert path_of(configuration).read_text() == picture(configuration, said)


def test_what_clients_forget_hides_no_mistake() -> None:
    """The same property breaks after the same number of steps; ``make model`` compares all of them."""
    plain, reduced = (check(each) for each in REDUCED[0])

    assert plain.broken == reduced.broken
    assert len(plain.trace) == len(reduced.trace)
    assert plain.states > reduced.states


@pytest.mark.parametrize("name", MODULES)
def test_a_small_module_breaks_without_each_of_its_rules_only(name: str) -> None:
    """It reaches what it is about, too."""
    broken, reached, _ = check_module(name)

    assert broken == MODULES[name]
    assert "" in reached


def test_the_page_names_every_rule_that_is_left_out() -> None:
    """With the property or module that breaks, and the picture of the way."""
    page = PAGE.read_text()
    pictures = {f"without/{path_of(each).name}" for each in DRAWN}
    rows = [(", ".join(each.without), each.breaks) for each in FAILING if each.without]
    rows += [(rule, module) for module, rules in MODULES.items() for rule in rules]

    assert all(any(line.startswith(f"| {rule} |") and f"`{broken}`" in line for line in page.splitlines())
               for rule, broken in rows)  # fmt: skip
    assert pictures == set(re.findall(r"without/[\w-]+\.svg", page))
    assert len(FAILING) + sum(map(len, MODULES.values())) >= 2 * (len(PASSING) + len(MODULES))
