"""The examples of the README, run as they stand."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
FOLDER = Path("/tmp/asynclock-readme")  # noqa: S108  the README's own words


@pytest.mark.parametrize(
    ("number", "printed"),
    [(0, r"token \d+ for \d+ s"), (1, "100"), (2, "2")],
    ids=["asyncio", "threads", "pyspark"],
)
def test_an_example_of_the_readme_does_what_it_says(number: int, printed: str) -> None:
    """Each Python example runs in a process of its own and prints its result."""
    shutil.rmtree(FOLDER, ignore_errors=True)

    done = subprocess.run(
        [sys.executable, "-c", EXAMPLES[number]],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert re.fullmatch(printed, done.stdout.strip())


def test_every_example_is_run() -> None:
    """No Python example of the README is left out of these tests."""
    assert len(EXAMPLES) == 3


def test_every_file_named_by_the_readme_exists() -> None:
    """The links of the README lead somewhere."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")

    missing = [link for link in re.findall(r"\]\(([^):#]+)\)", text) if not (ROOT / link).exists()]

    assert missing == []
