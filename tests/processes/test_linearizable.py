"""Histories of real processes, judged by a checker that nobody here wrote."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Literal

import pytest

from tests.laboratory.linearizable.__main__ import contend
from tests.laboratory.linearizable.damages import DAMAGES, damaged
from tests.laboratory.linearizable.histories import History, Operation
from tests.laboratory.linearizable.judge import judge

SECONDS = 15.0


@pytest.mark.timeout(600)
def test_processes_that_are_killed_and_stopped_see_a_lock_and_lose_no_update() -> None:
    """On a folder and on an S3 store behind a proxy that loses answers; damaged copies are refused."""
    report = asyncio.run(contend(SECONDS, seed=1))

    assert report.violations == []
    assert report.missed == []
    assert report.operations
    assert report.signals
    assert report.faults
    assert report.kinds == set(DAMAGES)


def _tenure(
    token: int, begin: int, end: int, *, side: Literal["", "read", "write"] = "", slot: int = 0
) -> tuple[Operation, Operation]:
    acquired = Operation(
        kind="acquire",
        id=f"{side}{slot}-{token}",
        token=token,
        call=begin,
        return_=begin + 1,
        side=side,
        slot=slot,
    )
    return acquired, replace(acquired, kind="end", call=end, return_=end + 1)


def _add(name: str, seen: str, value: int, token: int, call: int) -> Operation:
    return Operation(kind="add", id=name, seen=seen, value=value, token=token, call=call, return_=call + 1)


LOCK = History("lock", "mutex", (*_tenure(1, 10, 20), *_tenure(2, 30, 40)))
COUNTER = History("counter", "counter", (_add("a", "", 1, 1, 10), _add("b", "a", 2, 2, 30)))
SEMAPHORE = History(
    "semaphore", "semaphore", (*_tenure(1, 10, 20), *_tenure(1, 12, 22, slot=1), *_tenure(2, 30, 40)), slots=2
)
RWLOCK = History(
    "rwlock",
    "rwlock",
    (
        *_tenure(1, 10, 20, side="read"),
        *_tenure(1, 12, 22, side="read", slot=1),
        *_tenure(1, 30, 40, side="write"),
        *_tenure(2, 50, 60, side="write"),
        *_tenure(2, 70, 80, side="read"),
    ),
)


def test_every_kind_of_damage_is_refused() -> None:
    """Two holders, a lost update, a reader next to a writer, one holder too many, ...: each by itself."""
    sound = [LOCK, COUNTER, SEMAPHORE, RWLOCK]
    copies = {kind: copy for each in sound for kind, copy in damaged(each).items()}

    assert set(copies) == set(DAMAGES)
    assert judge(sound) == ["ok"] * len(sound)
    assert judge(list(copies.values())) == ["illegal"] * len(DAMAGES)


def test_a_slot_is_a_lock_of_its_own() -> None:
    """Two holders of one slot are refused though another slot is free; and so is a token that falls."""
    twice = replace(SEMAPHORE, operations=(*_tenure(1, 10, 20), *_tenure(2, 12, 22)))
    fallen = replace(SEMAPHORE, operations=(*_tenure(2, 10, 20), *_tenure(1, 30, 40)))

    assert judge([twice, fallen]) == ["illegal", "illegal"]


def test_an_update_without_an_answer_may_be_applied_late() -> None:
    """Its result was seen by a later update: it was applied before that, whenever that was."""
    late = Operation(kind="open", id="b", token=2, call=20, return_=1_000)
    history = History("counter", "counter", (_add("a", "", 1, 1, 10), late, _add("c", "b", 3, 2, 50)))

    assert judge([history]) == ["ok"]


def test_a_write_of_an_older_holder_must_be_refused() -> None:
    """A refusal is right only if a newer holder has written before."""
    refused = Operation(kind="stale", token=1, call=50, return_=51)
    early = Operation(kind="stale", token=1, call=15, return_=16)

    assert judge([History("counter", "counter", (*COUNTER.operations, refused))]) == ["ok"]
    assert judge([History("counter", "counter", (*COUNTER.operations, early))]) == ["illegal"]
