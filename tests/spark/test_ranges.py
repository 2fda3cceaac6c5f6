"""The set of numbers that the timeline keeps of a query's batches."""

from __future__ import annotations

import random

import pytest

from asynclock.spark.hudi.ranges import Ranges


@pytest.mark.parametrize("seed", range(50))
def test_ranges_have_what_was_added_and_nothing_else(seed: int) -> None:
    """In any order, with repeats and gaps, they answer as a set does."""
    rng = random.Random(seed)
    ranges, numbers = Ranges(), set()

    for _ in range(200):
        number = rng.randrange(-2, 60)
        ranges.add(number)
        numbers.add(number)
        assert [one for one in range(-4, 64) if one in ranges] == sorted(numbers)

    assert len(ranges) == sum(one + 1 not in numbers for one in numbers)


def test_numbers_that_follow_one_another_take_one_range() -> None:
    """Ten thousand batches in their order, or backwards, take no more memory than one."""
    forwards, backwards = Ranges(), Ranges()

    for number in range(10_000):
        forwards.add(number)
        backwards.add(9_999 - number)

    assert len(forwards) == len(backwards) == 1
