"""The examples of docs/howto/testing.md: each is a test file, run as it stands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from asynclock.testing._faulty import Fault
from tests.packaging.wheel import install

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs/howto/testing.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^## (.*?)$.*?```python\n(.*?)```", TEXT, re.DOTALL | re.MULTILINE)

INI = """
[pytest]
asyncio_mode = auto
asyncio_default_fixture_loop_scope = function
filterwarnings = error
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the wheel in it, as pip unpacks it."""
    return install(tmp_path_factory.mktemp("wheel"))


@pytest.mark.parametrize(("title", "example"), EXAMPLES, ids=[title for title, _ in EXAMPLES])
def test_an_example_of_the_page_passes(tmp_path: Path, installed: Path, title: str, example: str) -> None:
    """Saved to a file of its own, it passes, with nothing of this project's configuration but auto mode."""
    (tmp_path / "pytest.ini").write_text(INI)
    (tmp_path / "test_example.py").write_text(example, encoding="utf-8")

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_example.py"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    assert done.returncode == 0, f"{title}: {done.stdout}{done.stderr}"
    assert re.search(r"\d+ passed", done.stdout)
    assert "skipped" not in done.stdout


def test_every_example_is_run() -> None:
    """No Python example of the page is left out."""
    assert len(EXAMPLES) == TEXT.count("```python\n") == 6


def test_every_fault_is_named() -> None:
    """The page lists the faults there are."""
    assert set(re.findall(r"`([A-Z_0-9]+)`", TEXT)) - {"SIGSTOP"} == {fault.name for fault in Fault}
