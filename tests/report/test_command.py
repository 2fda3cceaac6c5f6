"""``asynclock pipeline report --run``, which needs no Spark."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.cli.command import asynclock
from tests.report.recorded import record, spec

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def words(tmp_path: Path) -> tuple[str, ...]:
    """The command for a recorded run."""
    run = record(tmp_path / "run")
    return "pipeline", "report", str(spec(tmp_path).path), "--run", str(run)


def test_it_prints_a_summary_and_writes_the_page(words: tuple[str, ...], tmp_path: Path) -> None:
    """Over the page of before, too."""
    page = tmp_path / "report.html"
    page.write_text("of before")

    done = asynclock(*words, "-o", str(page))

    assert (done.returncode, done.stderr) == (0, f"asynclock: {page} written\n")
    assert done.stdout.splitlines()[:3] == [
        "table: /fleet",
        "time: 2027-01-15 08:00:00 to 2027-01-15 08:02:00 UTC, 2 min 00 s",
        "commits: 14",
    ]
    assert page.read_text().startswith("<!DOCTYPE html>")


def test_without_a_file_it_only_prints(words: tuple[str, ...], tmp_path: Path) -> None:
    """For programs as one object: the totals."""
    before = set(tmp_path.rglob("*"))

    done = asynclock(*words, "--json")

    assert json.loads(done.stdout)["commits"] == 14
    assert (done.returncode, done.stderr, set(tmp_path.rglob("*"))) == (0, "", before)


@pytest.mark.parametrize(
    ("made", "said"),
    [(False, "there is no such folder"), (True, "no line of a run is in this folder")],
)
def test_a_folder_without_a_run_is_a_wrong_setting(tmp_path: Path, *, made: bool, said: str) -> None:
    """Exit code 2, in one sentence; no page is written."""
    if made:
        (tmp_path / "run").mkdir()
    page = tmp_path / "report.html"

    done = asynclock(
        "pipeline", "report", str(spec(tmp_path).path), "--run", str(tmp_path / "run"), "-o", str(page)
    )

    assert (done.returncode, done.stdout, page.exists()) == (2, "", False)
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_page_that_cannot_be_written_is_a_wrong_setting(words: tuple[str, ...], tmp_path: Path) -> None:
    """Exit code 2, in one sentence."""
    done = asynclock(*words, "-o", str(tmp_path / "none" / "report.html"))

    assert done.returncode == 2
    assert "cannot be written: No such file or directory" in done.stderr


def test_the_archive_is_of_the_timeline(words: tuple[str, ...]) -> None:
    """Together with a run it is a wrong usage."""
    done = asynclock(*words, "--archived")

    assert done.returncode == 2
    assert "--archived is for the timeline" in done.stderr
