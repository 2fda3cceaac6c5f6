"""Histories of real processes, judged by a checker that nobody here wrote."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Literal

import pytest

from tests.laboratory.linearizable.__main__ import contend, follow
from tests.laboratory.linearizable.damages import DAMAGES, damaged
from tests.laboratory.linearizable.histories import History, Operation, histories
from tests.laboratory.linearizable.judge import judge
from tests.laboratory.linearizable.worker import LOCKS
from tests.laboratory.traces.checking import accepted
from tests.laboratory.traces.logged import Recording, read_entries, recordings
from tests.laboratory.traces.logged import damaged as damages_of

SECONDS = 15.0


@pytest.mark.timeout(600)
def test_processes_that_are_killed_and_stopped_see_a_lock_and_lose_no_update() -> None:
    """On a folder and on an S3 store behind a proxy that loses answers; damaged copies are refused.

    What they logged of a lock of each store is a behaviour of the specification.
    """
    report = asyncio.run(contend(SECONDS, seed=1))
    follow(report, report.recordings[::LOCKS])

    assert report.violations == []
    assert report.missed == []
    assert len(report.recordings[::LOCKS]) == 2
    assert report.refused == []
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


def test_two_updates_in_a_row_may_have_no_answer() -> None:
    """The result of the first was seen by the second alone, whose result was seen by a third."""
    lines = [
        {"what": "add", "call": "p1-1", "at": 10, "lock": 0, "token": 1},
        {"what": "sees", "call": "p1-1", "at": 11, "seen": ""},
        {"what": "failed", "call": "p1-1", "at": 20, "sent": True},
        {"what": "add", "call": "p1-2", "at": 30, "lock": 0, "token": 1},
        {"what": "sees", "call": "p1-2", "at": 31, "seen": "p1-1"},
        {"what": "add", "call": "p2-1", "at": 50, "lock": 0, "token": 2},
        {"what": "sees", "call": "p2-1", "at": 51, "seen": "p1-2"},
        {"what": "added", "call": "p2-1", "at": 60, "value": 3, "seen": "p1-2"},
    ]

    def verdict(some: list[dict[str, object]]) -> str:
        (counter,) = (each for each in histories(some, {"p1": 40}, end=90) if each.model == "counter")
        return judge([counter])[0]

    assert verdict(lines) == "ok"
    assert verdict(lines[3:]) == "illegal"


def test_a_write_of_an_older_holder_must_be_refused() -> None:
    """A refusal is right only if a newer holder has written before."""
    refused = Operation(kind="stale", token=1, call=50, return_=51)
    early = Operation(kind="stale", token=1, call=15, return_=16)

    assert judge([History("counter", "counter", (*COUNTER.operations, refused))]) == ["ok"]
    assert judge([History("counter", "counter", (*COUNTER.operations, early))]) == ["illegal"]


VALIDITY = 10.0


def _event(kind: str, owner: str, process: int, at: float, **more: object) -> bytes:
    where = {"asynclock.lock.url": "s3://b/o", "asynclock.owner": owner, "process.pid": process}
    fields = {f"asynclock.{name}": value for name, value in {"event": kind, "time": at, **more}.items()}
    return json.dumps({"severity": "DEBUG", **where, **fields}).encode() + b"\n"


def _released(owner: str, process: int, begin: float, end: float, reason: str = "") -> list[bytes]:
    return [
        _event("acquired", owner, process, begin, age=0.1, reason=reason),
        _event("released", owner, process, end + 0.1, since_end=0.1),
    ]


DIED = [
    *_released("a", 1, 100.0, 101.0),
    _event("acquired", "b", 2, 102.0, age=0.1),
    _event("renewed", "b", 2, 103.0, duration=0.1),
    b'{"severity": "DEBUG", "asynclock.event": "acqui',
    _event("acquired", "c", 1, 114.0, age=0.1, reason="takeover"),
    _event("renewed", "c", 1, 115.0, duration=0.1),
    _event("released", "c", 1, 116.1, since_end=0.1),
    _event("acquired", "d", 3, 118.0, age=0.1),
    *_released("e", 1, 119.0, 120.0),
]
"""A holder dies with the lock, and another after its release, which it could not log any more."""


def _killed_in_its_release(last_heard: float, *, stop: float = 0.0) -> Recording:
    log = [
        _event("acquired", "a", 1, 100.0, age=0.1),
        *_released("b", 2, 102.0, 103.0),
        _event("waiting", "b", 1, last_heard),
    ]
    [recording] = recordings(read_entries(log), VALIDITY, stop=stop)
    return recording


def test_a_process_may_be_killed_while_it_waits_for_the_answer_to_its_release() -> None:
    """It may be stopped meanwhile, and its other tasks log on. One that lives on says how its lease ended."""
    soon = _killed_in_its_release(102.6)
    never = _killed_in_its_release(102.6 + VALIDITY)
    stopped = _killed_in_its_release(102.6 + VALIDITY, stop=1.0)

    assert accepted([each.lines() for each in (soon, never, stopped)]) == [True, False, True]


def test_a_lock_of_a_killed_process_may_be_found_free_after_its_validity() -> None:
    """Another took it over meanwhile, and released it before it could log anything."""
    log = [
        _event("acquired", "a", 1, 100.0, age=0.1),
        _event("renewed", "a", 1, 101.0, duration=0.1),
        *_released("b", 2, 102.0 + VALIDITY, 103.0 + VALIDITY),
    ]
    [recording] = recordings(read_entries(log), VALIDITY)

    assert accepted([recording.lines()]) == [True]


def test_every_kind_of_damage_to_a_recording_is_refused() -> None:
    """Two believers, a lock found free that is held, a takeover too early, belief after the deadline, ..."""
    [recording] = recordings(read_entries(DIED), VALIDITY)
    copies = damages_of(recording)

    assert len(copies) == 5
    assert accepted([each.lines() for each in (recording, *copies.values())]) == [True] + [False] * 5
