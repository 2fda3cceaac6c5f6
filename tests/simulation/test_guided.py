"""The search for hostile plans that is guided by the branches they reach."""

from __future__ import annotations

from random import Random

from tests.laboratory.guided import PROTOCOL, Recipe, changed, explore
from tests.laboratory.scenarios import SCENARIOS
from tests.laboratory.unreached import WHY


def test_a_recipe_names_one_plan_and_one_history() -> None:
    """What is printed of a violating plan is enough to run its history again, bit for bit."""
    recipe = Recipe("hand-off", 3, (5, 119))

    again = Recipe.of(str(recipe))

    assert str(recipe) == "hand-off/3+5+119"
    assert again == recipe
    assert again.plan() == recipe.plan() != SCENARIOS["hand-off"](Random("plan/hand-off/3"))
    assert again.run().trace() == recipe.run().trace()


def test_a_change_is_drawn_from_its_seed() -> None:
    """Two seeds change a plan in two ways, the same seed in the same way."""
    plan = SCENARIOS["contention"](Random(1))

    assert changed(plan, Random(1)) == changed(plan, Random(1)) != changed(plan, Random(2))


def test_what_reaches_a_branch_for_the_first_time_is_kept() -> None:
    """A few histories reach most branches; those that reached nothing new are not built upon."""
    guide = explore(40, seed=0)

    total, missing = guide.branches()

    assert guide.histories == 40
    assert 0 < len(guide.kept) < 40
    assert len(missing) < total / 5


def test_every_reason_is_for_a_line_of_the_source() -> None:
    """Why a branch is never reached is forgotten with the branch."""
    stale = [
        (name, line)
        for name, line in WHY
        if line not in map(str.strip, (PROTOCOL / name).read_text(encoding="utf-8").splitlines())
    ]

    assert stale == []
