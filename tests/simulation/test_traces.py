"""Histories of the shipped code are behaviours of the specification; those of code with a mistake are not."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pytest

from asynclock._core.protocol import decisions
from asynclock._core.protocol.belief import Belief
from tests.laboratory.simulate import quiet
from tests.laboratory.traces.checking import accepted
from tests.laboratory.traces.recorder import OutsideError, record
from tests.mutants.__main__ import noted

if TYPE_CHECKING:
    from tests.laboratory.traces.recorder import Line

HISTORIES: Final = (
    *(("crash-storm", 25), ("zombie-writes", 24), ("zombie-writes", 21), ("partition", 24), ("hand-off", 25)),
    *(("clock-chaos", 20), ("wrong-store-times", 25), ("refused-writes", 23), ("slow-answers", 23)),
    *(("paced", 22), ("mixed-settings", 20), ("truncated-dates", 20), ("observation", 22)),
    *(("worst-clocks", 25), ("endings", 24), ("leaders", 21), ("leaders", 577), ("closed-loops", 22)),
    *(("kept", 21), ("capped", 23), ("capped", 2406), ("together", 22), ("refusals", 22)),
)
"""Short ones; ``make traces`` has two thousand."""


def recorded(scenario: str, seed: int) -> list[Line]:
    """Return the lines of a history."""
    with quiet():
        return record(scenario, seed)


def changed(lines: list[Line], event: str, **change: object) -> list[Line]:
    """Return the lines with the last one of an event changed."""
    at = max(number for number, line in enumerate(lines) if line.event == event)
    return [*lines[:at], replace(lines[at], **change), *lines[at + 1 :]]  # type: ignore[arg-type]  its fields


def test_the_shipped_code_does_what_the_specification_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    """TLC accepts its histories, and refuses those of two mistakes and damaged ones: all in one run."""
    genuine = [recorded(*each) for each in HISTORIES]
    lines = genuine[0]
    released = next(line for line in lines if line.event == "land" and line.kind == "free")
    damaged = [
        [line for line in lines if line is not released],
        changed(lines, "adopt", attempt=10_000),
        changed(lines, "send", current=False),
        changed(lines, "look", place=(0.0, 0, 0)),
    ]
    mistaken = []
    left, expiry, seeds = Belief.left, decisions._expiry, noted()

    with monkeypatch.context() as patch:
        patch.setattr(Belief, "left", lambda self: left(self) + 3.0)
        mistaken.append(recorded("worst-clocks", seeds["believe until the record ends"]))
    with monkeypatch.context() as patch:
        patch.setattr(decisions, "_expiry", lambda *about: (at := expiry(*about)) and at - about[2].slack)
        mistaken.append(recorded("worst-clocks", seeds["drop S + R from the takeover"]))
    verdicts = accepted([*genuine, *damaged, *mistaken])

    assert [each for each, good in zip(HISTORIES, verdicts, strict=False) if not good] == []
    assert not any(verdicts[len(genuine) :])


@pytest.mark.parametrize("scenario", ["hudi-peer", "broken", "semaphore"])
def test_what_the_specification_leaves_out_is_not_recorded(scenario: str) -> None:
    """A history with a Hudi writer, an operator or slots has lines that no action stands for."""
    with pytest.raises(OutsideError):
        record(scenario, 0)
