"""Builds the wheel from a copy of its sources, and installs it into a folder."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
FILES: Final = ("pyproject.toml", "README.md", "LICENSE", "pytest_asynclock.py")


def copy_sources(folder: Path) -> Path:
    """Copy what a wheel is built from, the jar included, into ``folder``; return where."""
    source = folder / "source"
    source.mkdir()
    for name in FILES:
        shutil.copy(ROOT / name, source)
    shutil.copytree(
        ROOT / "asynclock", source / "asynclock", ignore=shutil.ignore_patterns("__pycache__", "target")
    )
    return source


def build(source: Path) -> subprocess.CompletedProcess[str]:
    """Build the wheel of ``source`` into its folder ``dist``."""
    return subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", "dist"],
        cwd=source,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def built(source: Path) -> Path:
    """Return the wheel that was built."""
    (wheel,) = (source / "dist").glob("*.whl")
    return wheel


def install(folder: Path) -> Path:
    """Build the wheel and unpack it as pip does; return the folder to put on ``PYTHONPATH``."""
    source, target = copy_sources(folder), folder / "installed"
    done = build(source)
    assert done.returncode == 0, done.stdout + done.stderr
    with zipfile.ZipFile(built(source)) as wheel:
        wheel.extractall(target)
    return target
