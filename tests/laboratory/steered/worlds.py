"""Behaviours of ``World.tla`` that TLC draws at random."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tests.laboratory.steered.behaviours import states

if TYPE_CHECKING:
    from collections.abc import Sequence

_DEPTH: Final = 30
_CONFIG: Final = "SPECIFICATION Spec\nINVARIANT OneBeliever\nCHECK_DEADLOCK FALSE\n"
_DID: Final = re.compile(r'/\\ did = <<"([a-z ]+)", (\d+)')
_KIND: Final = re.compile(r'/\\ object = \[kind \|-> "([a-z]+)"')
_PHASE: Final = re.compile(r'phase \|-> "([a-z]+)"')
_OWN: Final = re.compile(r"own \|-> (TRUE|FALSE)")
_WATCHED: Final = re.compile(r"/\\ watched = <<(-?\d+), (-?\d+)>>")
_FIXED: Final = re.compile(r'/\\ (store|trouble|wrong) = "?([a-zA-Z]+)"?')
_SHOWN: Final = {"dropped": "free", "offer": "kept"}


@dataclass(frozen=True, slots=True)
class Step:
    """One step, and the state after it.

    Attributes:
        action: What was done.
        client: By whom; the first is 0.
        kind: Of the newest record: none, free, live, kept, hudi or corrupt.
        phases: Of each client.
        own: Whether the newest record is that of each client.
        watched: Whether each client has seen the newest version, so that an observation counts.
    """

    action: str
    client: int
    kind: str
    phases: tuple[str, ...]
    own: tuple[bool, ...]
    watched: tuple[bool, ...]

    @property
    def may_believe(self) -> tuple[bool, ...]:
        """Whether each client may believe that it holds the lock."""
        return tuple(phase == "held" for phase in self.phases)

    @property
    def believes(self) -> tuple[bool, ...]:
        """Whether each client must believe it: not if its next renewal finds out."""
        return tuple(may and own for may, own in zip(self.may_believe, self.own, strict=True))


@dataclass(frozen=True, slots=True)
class Behaviour:
    """What TLC has drawn.

    Attributes:
        dated: The store's answers have a Date.
        modified: They say when the object was written.
        wrong: The wall clock of the second client is wrong.
        trouble: How requests fail while the store is down.
        steps: What is done.
    """

    dated: bool
    modified: bool
    wrong: bool
    trouble: str
    steps: tuple[Step, ...]


def worlds(count: int, *, seed: int = 0) -> list[Behaviour]:
    """Return behaviours that TLC draws at random; the same seed gives the same.

    Raises:
        RuntimeError: TLC could not draw them.
    """
    return [_behaviour(drawn) for drawn in states("World", _CONFIG, count, depth=_DEPTH, seed=seed)]


def _behaviour(drawn: Sequence[str]) -> Behaviour:
    fixed = dict(_FIXED.findall(drawn[0]))
    steps = tuple(_step(state) for state in drawn[1:])
    store = fixed["store"]
    return Behaviour(
        store in {"dated", "unmodified"},
        store in {"dated", "dateless"},
        fixed["wrong"] == "TRUE",
        fixed["trouble"],
        steps,
    )


def _step(state: str) -> Step:
    did, kind, seen = _DID.search(state), _KIND.search(state), _WATCHED.search(state)
    assert did is not None
    assert kind is not None
    assert seen is not None
    own = tuple(own == "TRUE" for own in _OWN.findall(state))
    watched = tuple(int(age) >= 0 for age in seen.groups())
    kind_shown = _SHOWN.get(kind[1], kind[1])
    return Step(did[1], int(did[2]) - 1, kind_shown, tuple(_PHASE.findall(state)), own, watched)
