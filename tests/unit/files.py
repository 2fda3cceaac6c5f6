"""Folders of ``file://`` and functions that run in a process of their own."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

KEY = "orders.json"
SIDE = f".{KEY}.lock"


def run_alone(function: Callable[[Path], None], folder: Path, *, inside: tuple[str, ...] = ()) -> None:
    """Run a function of a test module in a process of its own; its failure is the test's."""
    module, name = function.__module__, function.__name__
    program = f"import pathlib, {module} as t; t.{name}(pathlib.Path({str(folder)!r}))"
    done = subprocess.run(
        [*inside, sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60
    )

    assert done.returncode == 0, done.stderr
