"""The model of many writers, on cases whose answers are known without it."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.model_scale import (
    HUDIS_PAUSE,
    PAUSE,
    Load,
    commit_lock,
    growth,
    most_commits,
    sentences,
    shortest_interval,
)

PAGE = Path(__file__).parents[2] / "docs" / "concepts" / "scale.md"


def test_one_writer_never_waits_for_the_commit_lock() -> None:
    """It commits once in the time of a batch and its commit."""
    alone = commit_lock(1, apart=9.0, hold=1.0)

    assert alone.wait == 0.0
    assert (alone.commits_a_second, alone.busy) == pytest.approx((0.1, 0.1), rel=0.01)


def test_many_writers_commit_no_more_often_than_the_lock_allows() -> None:
    """Each more only waits longer."""
    some, many = (commit_lock(writers, apart=9.0, hold=0.5) for writers in (50, 200))

    assert some.commits_a_second == pytest.approx(2.0, rel=0.1)
    assert many.commits_a_second == pytest.approx(2.0, rel=0.05)
    assert many.wait > 3 * some.wait


def test_a_longer_pause_between_two_looks_costs_commits_only_where_writers_meet() -> None:
    """The lock is free until somebody looks."""
    ours, hudis = (
        [commit_lock(writers, apart=6.0, hold=1.3, pause=pause).commits_a_second for writers in (1, 8)]
        for pause in (PAUSE, HUDIS_PAUSE)
    )

    assert ours[0] == hudis[0]
    assert ours[1] > 1.2 * hudis[1]


def test_a_store_that_limits_the_writes_of_an_object_limits_the_commits() -> None:
    """A commit writes the lock object four times."""
    assert most_commits(0.0, None) == pytest.approx(1 / 0.3)
    assert most_commits(0.0, 1.0) == 0.25


def test_writers_that_keep_the_lock_busy_for_half_of_the_time() -> None:
    """Ten of them with a commit a second between them: one every twenty seconds."""
    assert shortest_interval(10, 1.0) == 20.0


def test_a_day_grows_with_its_writers() -> None:
    """Twice the writers, twice the commits and log files; open files depend on the compaction alone."""
    one, two = growth(Load(writers=1)), growth(Load(writers=2))

    assert (two.commits, two.log_files) == (2 * one.commits, 2 * one.log_files)
    assert (two.open_log_files, two.active_instants) == (one.open_log_files, one.active_instants)


def test_the_page_has_what_the_model_says() -> None:
    """Its tables are those that ``python -m benchmarks.model_scale`` prints."""
    page = PAGE.read_text(encoding="utf-8")

    tables = "\n".join(sentences()).split("\n\n")
    assert len(tables) == 5
    assert [table for table in tables if table not in page] == []
