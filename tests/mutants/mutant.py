"""One planted mistake in the lock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.mutants.planting import Change

if TYPE_CHECKING:
    from tests.laboratory.checker import Invariant


@dataclass(frozen=True, slots=True)
class Mutant:
    """One planted mistake.

    Attributes:
        name: What the mistake is.
        function: Where it is made.
        decision: What the function does.
        mistake: What it does instead.
        invariant: What must be reported violated.
        scenario: Where.
        also: More of the same mistake, where one place alone is made up for by another.
    """

    name: str
    function: str
    decision: str
    mistake: str
    invariant: Invariant
    scenario: str
    also: tuple[Change, ...] = ()

    @property
    def changes(self) -> tuple[Change, ...]:
        """All places of the mistake."""
        return Change(self.function, self.decision, self.mistake), *self.also
