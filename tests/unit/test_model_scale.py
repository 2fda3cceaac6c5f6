"""The model of many writers, on cases whose answers are known without it."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.model_scale import Load, commit_lock, growth, most_writers, sentences

PAGE = Path(__file__).parents[2] / "docs" / "concepts" / "scale.md"


def test_one_writer_never_waits_for_the_commit_lock() -> None:
    """It commits once in the time of a batch and its commit."""
    alone = commit_lock(1, apart=9.0, hold=1.0)

    assert (alone.commits_a_second, alone.wait, alone.busy) == (0.1, 0.0, 0.1)


def test_two_writers_wait_as_the_textbook_says() -> None:
    """The second finds the first under the lock for a tenth of the time."""
    both = commit_lock(2, apart=9.0, hold=1.0)

    assert both.wait == pytest.approx(0.1)
    assert both.commits_a_second == pytest.approx(2 / 10.1)


def test_many_writers_commit_no_more_often_than_the_lock_allows() -> None:
    """Each more only waits longer."""
    many = commit_lock(1_000, apart=9.0, hold=0.5)

    assert many.commits_a_second == pytest.approx(2.0)
    assert many.busy == pytest.approx(1.0)
    assert many.wait == pytest.approx(1_000 * 0.5 - 9.5, rel=0.01)


def test_writers_that_keep_the_lock_busy_for_half_of_the_time() -> None:
    """A commit of a second every ten seconds: five of them."""
    assert most_writers(every=10.0, hold=1.0) == 5


def test_a_day_grows_with_its_writers() -> None:
    """Twice the writers, twice the commits and log files; open files depend on the compaction alone."""
    one, two = growth(Load(writers=1)), growth(Load(writers=2))

    assert (two.commits, two.log_files) == (2 * one.commits, 2 * one.log_files)
    assert (two.open_log_files, two.active_instants) == (one.open_log_files, one.active_instants)


def test_the_page_has_what_the_model_says() -> None:
    """Its tables are those that ``python -m benchmarks.model_scale`` prints."""
    assert "\n".join(sentences()) in PAGE.read_text(encoding="utf-8").replace("\n\n<!-- -->\n\n", "\n\n")
