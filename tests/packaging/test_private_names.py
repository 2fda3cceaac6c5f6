"""No module of ours reaches into the private names of another one of ours."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

import asynclock

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE: Final = Path(asynclock.__file__).parent
FOLDERS: Final = ("hudi", "cli", "sync")


def reaches(path: Path) -> Iterator[str]:
    """Yield each use of a private name that belongs to another object or module."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            if not (isinstance(node.value, ast.Name) and node.value.id in {"self", "cls"}):
                yield f"{path.name}:{node.lineno}: {ast.unparse(node)}"
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("asynclock"):
            yield from (
                f"{path.name}:{node.lineno}: {each.name}" for each in node.names if is_private(each.name)
            )


def is_private(name: str) -> bool:
    """Return whether a name begins with one underscore."""
    return name.startswith("_") and not name.startswith("__")


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_keeps_to_the_public_names_of_the_others(folder: str) -> None:
    """Hudi's lock, the command and the blocking twins use what others offer, not what they hide."""
    assert [reach for path in sorted((PACKAGE / folder).rglob("*.py")) for reach in reaches(path)] == []


def test_a_reach_is_found(tmp_path: Path) -> None:
    """The search sees an attribute and an import, and leaves an object's own names alone."""
    path = tmp_path / "example.py"
    path.write_text("from asynclock.lock import _Hold\nlease._tenure.head\nself._own\n")

    assert list(reaches(path)) == ["example.py:1: _Hold", "example.py:2: lease._tenure"]
