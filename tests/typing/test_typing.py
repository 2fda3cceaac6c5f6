"""The public surface is typed as documented."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

API = Path(__file__).with_name("api.py")
ROOT = API.parents[2]


def test_the_public_surface_is_typed(tmp_path: Path) -> None:
    """Mypy in strict mode accepts every use in ``api.py`` and refuses the wrong ones."""
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path), str(API)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    complaints = [line for line in done.stdout.splitlines() if line.startswith(str(API.relative_to(ROOT)))]

    assert complaints == [], "\n".join(complaints)
    assert "Found" in done.stdout or "Success" in done.stdout, done.stderr


def test_the_package_says_that_it_is_typed() -> None:
    """``py.typed`` is there for type checkers of users."""
    assert (ROOT / "asynclock" / "py.typed").is_file()
