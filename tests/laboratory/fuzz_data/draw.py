"""Choices: values that Hypothesis makes, put together by a seeded generator.

Hypothesis remembers every choice of an example so as to shrink it, which would cost more than all that is
done with the files. It makes a pool of values for each strategy instead.
"""

from __future__ import annotations

import random
import warnings
from typing import TYPE_CHECKING, Any, Final, TypeVar

from hypothesis import HealthCheck, Phase, given, seed, settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hypothesis.strategies import SearchStrategy

T = TypeVar("T")

POOL: Final = 300


class Draw:
    """Choices from one seed.

    Args:
        number: The seed.
    """

    def __init__(self, number: int) -> None:
        self._seed = number
        self._random = random.Random(number)
        self._pools: dict[int, tuple[SearchStrategy[Any], list[Any]]] = {}

    def one(self, choices: Sequence[T]) -> T:
        """One of them."""
        return self._random.choice(choices)

    def some(self, choices: Sequence[T], most: int) -> list[T]:
        """A few of them, each once."""
        return self._random.sample(choices, self._random.randint(0, most))

    def number(self, least: int, most: int) -> int:
        """A whole number, both ends included."""
        return self._random.randint(least, most)

    def flip(self) -> bool:
        """True or false."""
        return self._random.random() < 0.5

    def shuffled(self, values: Sequence[T]) -> list[T]:
        """All of them in any order."""
        return self._random.sample(values, len(values))

    def of(self, strategy: SearchStrategy[T]) -> T:
        """What Hypothesis makes."""
        if id(strategy) not in self._pools:
            pool: list[T] = []

            @seed(self._seed)
            @settings(
                max_examples=POOL,
                database=None,
                phases=[Phase.generate],
                deadline=None,
                suppress_health_check=list(HealthCheck),
            )
            @given(strategy)
            def fill(value: T) -> None:
                pool.append(value)

            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                fill()
            self._pools[id(strategy)] = strategy, pool  # the strategy too, so that its id stays its own
        return self._random.choice(self._pools[id(strategy)][1])
