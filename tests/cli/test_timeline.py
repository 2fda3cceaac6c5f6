"""How ``asynclock pipeline timeline`` shows instants to people, without Spark."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from asynclock.spark.cli.timeline_command import TimelineTable
from asynclock.spark.hudi.instants import Instant

COMMIT = Instant(
    requested="20261122204532120",
    completed="20261122204539123",
    action="deltacommit",
    state="COMPLETED",
    stream="departures",
    batch=41,
    token=1795382160352260,
    rows=250_000,
    bytes=12_345_678,
    latency=7.003,
)
PENDING = Instant(requested="20261122204601000", completed=None, action="deltacommit", state="INFLIGHT")


def shown(width: int | None, *instants: Instant, streams: tuple[str, ...] = ("departures",)) -> list[str]:
    """The lines of a table."""
    return list(TimelineTable(streams, width).lines(instants))


def test_a_line_says_who_wrote_what_and_when() -> None:
    """Times as people write them, sizes and durations with their units, and what is pending is marked."""
    committed, pending = shown(None, COMMIT, PENDING)

    words = ["2026-11-22T20:45:39.123", "deltacommit", "departures", "41", "1795382160352260", "250000"]
    assert re.split(" {2,}", committed) == [*words, "12.3 MB", "7.0 s"]
    assert re.split(" {2,}", pending) == ["pending 11-22 20:46:01", "deltacommit", *["-"] * 6]
    assert len(committed) == len(pending) == 110


@pytest.mark.parametrize(
    ("changes", "column", "text"),
    [
        ({"stream": "__deletes"}, "stream", "(delete)"),
        ({"stream": None}, "stream", "(SQL, foreign)"),
        ({"stream": None, "action": "clean"}, "stream", "-"),
        ({"bytes": 999_949}, "written", "999.9 kB"),
        ({"bytes": 999_950}, "written", "1.0 MB"),
        ({"bytes": 999}, "written", "999 B"),
        ({"latency": 754.9}, "took", "12m 34s"),
        ({"latency": 7261.0}, "took", "2h 01m"),
        ({"batch": None}, "batch", "-"),
    ],
)
def test_a_cell_is_plain(changes: dict[str, object], column: str, text: str) -> None:
    """What people say for a delete, a write without a stream, a size and a duration."""
    table = TimelineTable(("departures",), None)
    at = [each.title for each in table.columns].index(column)

    assert table.columns[at].text(replace(COMMIT, **changes)) == text


@pytest.mark.parametrize("width", [40, 80, 110])
def test_it_fits_the_terminal(width: int) -> None:
    """Columns that do not fit are left out, the token first; a long name is cut in its middle."""
    long = replace(COMMIT, stream="departures_of_the_whole_north")

    table = TimelineTable((str(long.stream),), width)
    lines = [table.head(), *table.lines([long, PENDING])]

    assert max(map(len, lines)) <= max(width, 54)
    assert "depart…e_north" in lines[1]
    assert ("1795382160352260" in lines[1]) == (width == 110)
    assert ("7.0 s" in lines[1]) == (width >= 80)


def test_a_pipe_gets_names_whole() -> None:
    """There is no width that they must fit."""
    name = "departures_of_the_whole_north"

    (line,) = shown(None, replace(COMMIT, stream=name), streams=(name,))

    assert name in line
