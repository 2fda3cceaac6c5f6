"""Rules of the house that no linter checks."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Final

import asynclock

PACKAGE: Final = Path(asynclock.__file__).parent
ROOT: Final = PACKAGE.parent
LONGEST: Final = 600


def modules(folder: Path) -> list[Path]:
    """Return the modules of a package, those of its packages aside."""
    return [path for path in folder.glob("*.py") if path.name != "__init__.py"]


def test_no_module_is_long() -> None:
    """A module that grows beyond this usually has more than one reason to change: split it."""
    long = {
        str(path.relative_to(ROOT)): lines
        for path in PACKAGE.rglob("*.py")
        if (lines := len(path.read_text().splitlines())) > LONGEST
    }

    assert long == {}


def test_every_package_has_an_exhaustive_contract() -> None:
    """A module is in a layer of its package: else ``lint-imports`` fails, which ``make lint`` runs."""
    about = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = about["tool"]["importlinter"]["contracts"]
    exhaustive = {
        container
        for contract in contracts
        if contract["type"] == "layers"
        and contract.get("exhaustive")
        and "exhaustive_ignores" not in contract
        for container in contract["containers"]
    }
    packages = {
        ".".join(folder.relative_to(ROOT).parts)
        for folder in [PACKAGE, *(path.parent for path in PACKAGE.rglob("__init__.py"))]
        if modules(folder)
    }

    assert packages == exhaustive


def test_cycles_are_looked_for_in_the_whole_package() -> None:
    """No package is left out, and imports for types alone count."""
    about = tomllib.loads((ROOT / "pyproject.toml").read_text())
    linter = about["tool"]["importlinter"]
    (contract,) = (each for each in linter["contracts"] if each["type"] == "acyclic_siblings")

    assert contract["ancestors"] == ["asynclock"]
    assert "skip_descendants" not in contract
    assert not linter.get("exclude_type_checking_imports", False)
