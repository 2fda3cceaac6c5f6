"""Behaviours that TLC draws from the specification, run step by step on the shipped code."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from asynclock._core.protocol import decisions
from asynclock._core.protocol.belief import Belief, End
from tests.laboratory.simulate import quiet
from tests.laboratory.steered.__main__ import MOST_LEFT
from tests.laboratory.steered.asked import NOT_ASKED, PROTOCOL
from tests.laboratory.steered.behaviours import behaviours
from tests.laboratory.steered.driver import TICK, DiffersError, Driver
from tests.laboratory.steered.world import World
from tests.laboratory.steered.worlds import worlds

if TYPE_CHECKING:
    from tests.laboratory.steered.behaviours import Step

ROOT: Final = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def drawn() -> list[list[Step]]:
    """Return behaviours; ``make steered`` runs a hundred thousand."""
    return behaviours(150, dateless=[1])


def run(drawn: list[list[Step]]) -> tuple[int, int]:
    """Return how many behaviours the code left before their end, and in how many it differs."""
    left = differs = 0
    with quiet():
        for seed, behaviour in enumerate(drawn):
            try:
                left += bool(Driver(seed, behaviour, dateless=[1]).run())
            except DiffersError:
                differs += 1
    return left, differs


def test_the_code_goes_the_way_of_the_specification(drawn: list[list[Step]]) -> None:
    """Whatever is in flight, lost, late or given up, it believes what the specification says."""
    left, differs = run(drawn)

    assert differs == 0
    assert left < MOST_LEFT * len(drawn)


def test_users_operators_and_hudi() -> None:
    """Who has the lock after each call, crash, pause, failure of the store and write of Hudi."""
    with quiet():
        left = [bool(World(seed, each).run()) for seed, each in enumerate(worlds(40, seed=1))]

    assert sum(left) < MOST_LEFT * len(left)


@pytest.mark.parametrize("branch", NOT_ASKED, ids=lambda branch: f"{branch[0]}: {branch[1]} {branch[2]}")
def test_what_is_not_asked_for_is_there_and_tested(branch: tuple[str, str, str]) -> None:
    """Each branch is one of the code, and the test that covers it is in its file."""
    name, condition, towards = branch
    lines = {line.strip() for line in (PROTOCOL / name).read_text(encoding="utf-8").splitlines()}
    path, _, test = NOT_ASKED[branch].test.partition("::")

    assert {condition, towards} <= lines | {"the end"}
    assert f"def {test}(" in (ROOT / path).read_text(encoding="utf-8")


def _late(left: Any) -> Any:  # noqa: ANN401  functions
    return lambda belief: left(belief) + TICK


def _early(expiry: Any) -> Any:  # noqa: ANN401  functions
    return lambda *about: None if (at := expiry(*about)) is None else at - about[2].slack


def _never(end: Any) -> Any:  # noqa: ANN401  functions
    return lambda belief, by, *why, **fields: (
        belief.end_if_due() > 0 if by is End.RELEASE else end(belief, by, *why, **fields)
    )


@pytest.mark.parametrize(
    ("place", "name", "mistake"),
    [(Belief, "left", _late), (decisions, "_expiry", _early), (Belief, "end", _never)],
    ids=["believes too long", "takes over too early", "believes until its release is answered"],
)
def test_a_mistake_differs(
    drawn: list[list[Step]],
    monkeypatch: pytest.MonkeyPatch,
    place: Any,  # noqa: ANN401  a class or a module
    name: str,
    mistake: Any,  # noqa: ANN401  a function
) -> None:
    """In the state after some step."""
    monkeypatch.setattr(place, name, mistake(getattr(place, name)))

    assert run(drawn)[1] > 0
