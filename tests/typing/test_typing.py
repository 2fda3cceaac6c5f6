"""The public surface is typed as documented."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

FOLDER: Final = Path(__file__).parent
ROOT: Final = FOLDER.parents[1]
BIN: Final = Path(sys.executable).parent
CHECKERS: Final = {
    "mypy": ("mypy", "--strict", "--no-pretty", "--hide-error-context", "--no-error-summary"),
    # pyright, with the Node that runs it in the package.
    "pyright": ("basedpyright", "--pythonpath", sys.executable),
    "pyrefly": (
        "pyrefly",
        "check",
        "--output-format",
        "min-text",
        "--python-interpreter-path",
        sys.executable,
    ),
    "ty": ("ty", "check", "--output-format", "concise", "--python", sys.prefix),
}


MOST_EXPORTED: Final = 600
"""Symbols of public modules, without the pipeline. Internals are in private modules."""
MARKS: Final = {checker: re.compile("# refused$|# refused, not by ty$") for checker in CHECKERS} | {
    "ty": re.compile("# refused$")
}


def complaints(checker: str, module: str, folder: Path) -> dict[int, str]:
    """Return the lines of a module in which a checker, with its own defaults, finds an error."""
    name, *options = CHECKERS[checker]
    if checker == "mypy":
        options += ["--cache-dir", str(folder)]
    if checker == "pyright":
        settings = folder / "pyrightconfig.json"
        settings.write_text(f'{{"typeCheckingMode": "standard", "include": ["{FOLDER / module}"]}}')
        options += ["--project", str(settings)]
    else:
        options.append(str(FOLDER / module))
    done = subprocess.run([BIN / name, *options], cwd=ROOT, capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    assert done.returncode in {0, 1}, said
    found: dict[int, str] = {}
    for line in said.splitlines():
        if (place := re.search(rf"\b{module}:(\d+)", line)) and re.search(r"\berror\b", line, re.IGNORECASE):
            found[int(place[1])] = line
    assert bool(found) == (done.returncode == 1), said
    return found


@pytest.mark.parametrize("checker", CHECKERS)
def test_the_public_surface_is_typed(checker: str, tmp_path: Path) -> None:
    """Each checker accepts every use in ``api.py``."""
    assert complaints(checker, "api.py", tmp_path) == {}


@pytest.mark.parametrize("checker", CHECKERS)
def test_wrong_uses_are_refused(checker: str, tmp_path: Path) -> None:
    """Each checker finds an error in every line that is marked in ``wrong.py``, and in no other.

    Only ty accepts an unknown option: it does not look into an unpacked TypedDict yet.
    """
    text = (FOLDER / "wrong.py").read_text()
    marked = [number for number, line in enumerate(text.splitlines(), 1) if MARKS[checker].search(line)]

    assert sorted(complaints(checker, "wrong.py", tmp_path)) == marked


def test_every_exported_symbol_has_a_type(tmp_path: Path) -> None:
    """``basedpyright --verifytypes`` knows the type of all that the lock half exports; it is not too much."""
    shutil.copytree(
        ROOT / "asynclock", tmp_path / "asynclock", ignore=shutil.ignore_patterns("spark", "__pycache__")
    )
    done = subprocess.run(
        [
            *(BIN / "basedpyright", "--pythonpath", sys.executable),
            *("--outputjson", "--ignoreexternal", "--verifytypes", "asynclock"),
        ],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    found = json.loads(done.stdout)["typeCompleteness"]
    exported = [symbol["name"] for symbol in found["symbols"] if symbol["isExported"]]

    assert [symbol["name"] for symbol in found["symbols"] if not symbol["isTypeKnown"]] == []
    assert "asynclock.client.LockClient.lock" in exported
    assert len(exported) <= MOST_EXPORTED


def test_the_package_says_that_it_is_typed() -> None:
    """``py.typed`` is there for type checkers of users."""
    assert (ROOT / "asynclock" / "py.typed").is_file()
