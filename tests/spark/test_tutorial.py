"""The tutorial with Spark, in the session that all tests share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asynclock._cli.app import run_command
from tests.docs.story import ROOT, Story, blocks

if TYPE_CHECKING:
    from pathlib import Path

    import pytest
    from pyspark.sql import SparkSession


def test_the_tutorial_does_what_it_says(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Its files, programs and commands work in their order, and print what stands below them."""
    page = ROOT / "docs" / "tutorials" / "hudi.md"
    monkeypatch.chdir(tmp_path)
    assert spark.version  # the programs and commands of the page find the Spark that runs

    def command(words: list[str]) -> tuple[int, str]:
        capfd.readouterr()
        code = run_command(words)
        return code, capfd.readouterr().out

    story = Story(page, tmp_path, command=command)
    story.play(program=lambda text: exec(compile(text, str(page), "exec"), {"__name__": "__main__"}))  # noqa: S102

    assert story.ran == len(blocks(page))
