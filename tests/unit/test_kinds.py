"""The table of the kinds of events."""

from __future__ import annotations

from typing import get_args

from asynclock._core.narration import Narrator
from asynclock._kinds import BAD_ENDS, BEGINS, ENDS, ENDS_BELIEF, KINDS, NEWS, OF_LEASES, Kind
from asynclock.spark.runs.totals import ACQUIRED, ENDED
from asynclock.telemetry._signals import _BY_KIND


def test_each_kind_has_a_row() -> None:
    """A new event cannot be left out: what hears of events asks this table."""
    assert tuple(KINDS) == get_args(Kind)


def test_what_is_news_has_a_sentence() -> None:
    """The narrator finds its sentence by the name of the kind."""
    assert {kind for kind in NEWS if not hasattr(Narrator, f"_hear_{kind}")} == set()
    sentences = {name.removeprefix("_hear_") for name in vars(Narrator) if name.startswith("_hear_")}
    assert sentences <= KINDS.keys()


def test_what_is_measured_is_an_event() -> None:
    """No measurement waits for an event that nobody sends."""
    assert _BY_KIND.keys() <= KINDS.keys()


def test_each_end_of_belief_is_an_end_or_comes_before_one() -> None:
    """Only a release under way ends belief before the lease ends; only a confirmed one is not bad."""
    assert {"release_pending"} == ENDS_BELIEF - ENDS
    assert {"released"} == ENDS_BELIEF - BAD_ENDS
    assert BEGINS | ENDS_BELIEF < OF_LEASES


def test_the_pipeline_counts_the_same_ends() -> None:
    """It is a product of its own, and shares no internals for two words."""
    assert (ACQUIRED, ENDED) == (BEGINS, ENDS)
