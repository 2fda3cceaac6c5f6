"""Planted failures: each of them makes a soak fail, and what is allowed does not."""

from __future__ import annotations

import random
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pytest

from asynclock.spark.runs.lines import RunLog
from tests.laboratory.soak.checks import States, Tokens, committed_once, doubled, lost, tokens_fall
from tests.laboratory.soak.leaks import LONG_SECONDS, Sample, leaks, slopes, trend, watched
from tests.laboratory.soak.paces import paces
from tests.laboratory.soak.watch import of_group

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PROGRAM: Final = """
import sys
kept = []
for line in sys.stdin:
    rows = bytes(1_000_000)
    if sys.argv[1] == "leak":
        kept.append(bytearray(rows))
    print("committed", flush=True)
"""
"""Commits with each line of its input, and keeps a megabyte of the commit if requested."""
FIRST = {"N1": (1, "a"), "N2": (1, "b")}
SECOND = {"N1": (3, "c"), "N2": (1, "b"), "N3": (2, "d")}


def states() -> States:
    """A stream of two files."""
    stream = States("orders")
    stream.add(FIRST)
    stream.add(SECOND)
    return stream


def rests(*counts: int, work: int = 20, after: float = 150.0) -> list[Sample]:
    """A process that is at rest every ten seconds from ``after`` on, with these counts of descriptors."""
    begin = Sample(who="writer-7", seconds=0.0, counts={})
    at_rest = [
        Sample(who="writer-7", seconds=after + 10 * n, counts={"descriptors": count}, rest=n, work=work * n)
        for n, count in enumerate(counts)
    ]
    return [begin, *at_rest]


def an_hour(name: str, rise: float, *, noise: float = 0.0) -> list[Sample]:
    """Samples of an hour and a half, one in ten seconds."""
    dice = random.Random(1)
    return [
        Sample(who="table", seconds=at, counts={name: 100 + rise * at / 3600 + dice.uniform(0, noise)})
        for at in range(0, 5400, 10)
    ]


def test_each_whole_number_of_files_may_be_seen_and_seen_again() -> None:
    """Nothing, one file, the same once more, both."""
    stream = states()

    assert [stream.look(seen) for seen in ({}, FIRST, FIRST, SECOND)] == [[], [], [], []]
    assert stream.last(SECOND) == []


def test_a_lost_row_is_found() -> None:
    """In a snapshot, and in the end."""
    without = {key: cells for key, cells in SECOND.items() if key != "N2"}

    assert "no whole number of files" in states().look(without)[-1]
    assert "N2" in states().last(without)[0]


def test_a_row_that_disappears_is_found() -> None:
    """Even where the rest is a state that there was before."""
    stream = states()
    stream.look(FIRST)

    assert any("N1 was at 1 and is at nothing" in one for one in stream.look({}))


def test_a_value_that_goes_back_is_found() -> None:
    """Also where the older snapshot is a whole number of files."""
    stream = states()
    stream.look(SECOND)

    found = stream.look(FIRST)

    assert "orders: N1 was at 3 and is at 1" in found
    assert "orders: 2 files were seen, and then 1" in found


def test_a_part_of_a_batch_is_found() -> None:
    """One row of the second file without the others."""
    assert "N3" in states().look(FIRST | {"N1": SECOND["N1"]})[0]


def test_a_key_with_two_rows_is_found() -> None:
    """And a key with one row is none."""
    assert doubled(["N1", "N2", "N1"]) == ["N1 has 2 rows"]
    assert doubled(["N1", "N2"]) == []


def test_a_doubled_a_missing_and_a_surplus_batch_are_found() -> None:
    """Two files of orders were delivered."""
    assert committed_once([("orders", 0), ("orders", 1)], {"orders": 2}) == []
    assert committed_once([("orders", 0), ("orders", 1), ("orders", 1)], {"orders": 2}) == [
        "batch 1 of orders is committed 2 times"
    ]
    assert committed_once([("orders", 0)], {"orders": 2}) == ["batch 1 of orders is not committed"]
    assert committed_once([("orders", 0), ("orders", 1)], {"orders": 1}) == [
        "batch 1 of orders is in no checkpoint"
    ]


def test_a_token_that_does_not_rise_is_found() -> None:
    """On a lock, where each owner has its own, and on the timeline."""
    tokens = Tokens()

    assert tokens.look("stream/orders", "one", 5) == []
    assert tokens.look("stream/orders", "one", 5) == []
    assert tokens.look("stream/orders", "two", 6) == []
    assert tokens.look("stream/orders", "three", 6) == ["stream/orders: three has token 6 after two with 6"]
    assert tokens_fall([("a", 1), ("b", 1), ("a", 2), ("a", 2)]) == []
    assert tokens_fall([("a", 2), ("a", 1)]) == ["a commits under token 1 after 2"]


def test_a_lost_instant_is_found() -> None:
    """What has completed stays on the timeline, active or archived."""
    assert lost(["1", "2"], ["1", "2", "3"]) == []
    assert lost(["1", "2"], ["1", "3"]) == ["the completed instant 2 is gone"]


def test_a_descriptor_leaked_by_each_commit_is_found() -> None:
    """It is still there at each rest."""
    found = leaks(rests(300, 320, 340, 360))

    assert found == [
        "writer-7: descriptors at rest rise with every rest, [300, 320, 340, 360], over 60 commits"
    ]


def test_a_pool_that_fills_is_no_leak() -> None:
    """It grows and then stays, or takes a few more."""
    assert leaks(rests(300, 330, 330, 330)) == []
    assert leaks(rests(300, 302, 303, 305)) == []
    assert leaks(rests(300, 320)) == []
    assert leaks(rests(60, 150, 250, 270, after=10.0)) == []


def test_growth_over_hours_is_found_by_its_slope() -> None:
    """Where the whole interval of the slope lies above the bound."""
    assert "table: timeline rise by 2" in leaks(an_hour("timeline", 200.0))[0]
    assert "rss" in leaks(an_hour("rss", 300e6, noise=5e6))[0]


def test_noise_and_a_slope_within_its_bound_are_no_leak() -> None:
    """A measure that only jumps, and one that rises a little."""
    assert leaks(an_hour("timeline", 0.0, noise=50.0)) == []
    assert leaks(an_hour("rss", 20e6, noise=5e6)) == []


def test_slopes_of_a_short_life_are_shown_and_not_judged() -> None:
    """A minute says how much a process grows, and not whether it goes on."""
    short = [Sample(who="writer-7", seconds=at, counts={"threads": 10.0 + at}) for at in range(0, 300, 5)]

    [slope] = slopes(short)

    assert (slope.judged, leaks(short)) == (False, [])
    assert slope.an_hour.slope == pytest.approx(3600, rel=0.05)
    assert str(slope).startswith("writer-7: threads rise by 3")


def test_what_was_watched_is_named() -> None:
    """With its life and its measures, also where these are not judged."""
    assert watched([*an_hour("timeline", 0.0), *rests(300, 320), *commits(lambda _: 1.0)]) == [
        "stream orders on file, 58 min: judged: commit_seconds",
        "table, 90 min: judged: timeline",
        "writer-7, 3 min: shown, too short to judge: nothing, it was not looked at often enough",
    ]


def test_the_interval_of_a_slope_shrinks_to_it_without_noise() -> None:
    """And with noise the slope lies within."""
    exact = trend([(x, 2.0 * x + 1) for x in range(10)])
    assert exact.slope == exact.low == exact.high == 2.0

    dice = random.Random(2)
    noisy = trend([(x, 2.0 * x + dice.gauss(0, 1)) for x in range(50)])
    assert noisy.low < 2.0 < noisy.high


def commits(seconds: Callable[[float], float], *, minutes: int = 58) -> list[Sample]:
    """A stream with a commit in three seconds; each takes what its moment says, and some are held up."""
    dice = random.Random(3)
    return [
        Sample(
            who="stream orders on file",
            seconds=at,
            counts={"commit_seconds": seconds(at) * dice.choice((1.0, 1.1, 1.4, 6.0))},
        )
        for at in range(0, minutes * 60, 3)
    ]


def test_a_driver_that_leaks_a_megabyte_a_commit_is_found() -> None:
    """One driver a place lives as long as its act: 58 minutes of a soak of two hours."""
    dice = random.Random(4)
    taken = [
        Sample(
            who="writer-7",
            seconds=at,
            counts={"rss": 5e8 + 1e6 * at / 3 + dice.uniform(0, 5e7)},
            work=at // 3,
        )
        for at in range(0, 58 * 60, 5)
    ]

    [found] = leaks(taken)

    assert found.startswith("writer-7: rss rise by 1.")


@pytest.mark.parametrize("kept", ["leak", "nothing"])
def test_a_real_process_that_leaks_a_megabyte_a_commit_is_found(kept: str) -> None:
    """By its memory as the soak reads it, with a commit for twenty seconds; one that keeps nothing is not."""
    command = [sys.executable, "-c", PROGRAM, kept]
    taken = []
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for number in range(int(LONG_SECONDS) // 20 + 2):
            process.stdin.write("batch\n")
            process.stdin.flush()
            assert process.stdout.readline() == "committed\n"
            counts = of_group(process.pid)
            taken.append(Sample(who="writer-7", seconds=20.0 * number, counts=counts, work=number))
        process.stdin.close()

    found = [one for one in leaks(taken) if "rss" in one]

    assert len(found) == (kept == "leak"), found
    assert watched(taken) == ["writer-7, 30 min: judged: threads, descriptors, rss"]


def test_a_slowdown_is_found() -> None:
    """A commit takes a fifth longer after an hour; the faults that make some of them slow do not hide it."""
    [found] = leaks(commits(lambda at: 1.0 + 0.2 * at / 3600))

    assert found.startswith("stream orders on file: commit_seconds rise by 0.")


def test_a_steady_pace_is_none() -> None:
    """Nor is one that gets faster."""
    assert leaks(commits(lambda _: 1.0)) == []
    assert leaks(commits(lambda at: 2.0 - at / 7200)) == []


def test_the_paces_are_those_that_the_drivers_recorded(tmp_path: Path) -> None:
    """Commits with rows; a batch that was skipped has no pace."""
    log = RunLog(tmp_path, process="writer")
    log.add("batch", at=10.0, stream="orders", seconds=2.0, rows=4, commit_lock_wait_seconds=0.5)
    log.add("batch", at=20.0, stream="orders", seconds=0.1, rows=4, skipped=True)
    log.close()

    assert [(one.who, one.counts) for one in paces(tmp_path)] == [
        (
            f"stream orders on {tmp_path.name}",
            {"commit_seconds": 2.0, "row_seconds": 0.5, "lock_wait_seconds": 0.5},
        )
    ]
