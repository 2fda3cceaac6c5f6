"""The tutorials of the lock, done as their readers do them; the one with Spark is in ``tests/spark``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.docs.story import ROOT, Story, blocks

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("name", ["service", "cron"])
def test_a_tutorial_does_what_it_says(tmp_path: Path, bucket: dict[str, str], name: str) -> None:
    """Its files, programs and commands work in their order, and print what stands below them."""
    page = ROOT / "docs" / "tutorials" / f"{name}.md"
    story = Story(page, tmp_path, bucket)

    story.play()

    assert story.ran >= len(blocks(page)) - 1  # the page shows the file of a job, which has a name
