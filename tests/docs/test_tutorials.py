"""The tutorials of the lock, done as their readers do them; the one with Spark is in ``tests/spark``."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.docs.story import ROOT, Shell, Story, blocks

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("name", ["service", "cron"])
def test_a_tutorial_does_what_it_says(tmp_path: Path, bucket: dict[str, str], name: str) -> None:
    """Its files, programs and commands work in their order, and print what stands below them."""
    page = ROOT / "docs" / "tutorials" / f"{name}.md"
    # As in a reader's shell, where Python keeps what it prints into a file until the end.
    story = Story(page, tmp_path, bucket | {"PYTHONUNBUFFERED": ""})

    story.play()

    assert story.ran >= len(blocks(page)) - 1  # the page shows the file of a job, which has a name


def test_a_page_that_waits_in_vain_fails_with_what_it_printed(tmp_path: Path) -> None:
    """It does not hang, as its reader would not either."""
    shell = Shell(tmp_path, os.environ, deadline=0.2)

    with pytest.raises(AssertionError, match=r"until false(.|\n)*so far:\nstarted"):
        shell.run("echo started; until false; do sleep 0.01; done")
    shell.close()


def test_a_page_whose_command_fails_says_which(tmp_path: Path) -> None:
    """With its line and its exit code."""
    page = tmp_path / "page.md"
    page.write_text("Once\n\n```console\n$ true\n$ exit 3 | false\n```\n")

    with pytest.raises(AssertionError, match=r"page.md, line 3: (.|\n)*exit code 1"):
        Story(page, tmp_path).play()
