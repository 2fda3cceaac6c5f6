"""Rules of the house that no linter checks."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

import asynclock

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE: Final = Path(asynclock.__file__).parent
ROOT: Final = PACKAGE.parent
LONGEST: Final = 600
SAME_NAME: Final = {
    "client.py": "`_core.client` is what `asynclock.client` is the handle of",
    "hoodie.py": "the keys of Hudi's options, of the lock and of the pipeline",
    "errors.py": "the public errors of their package",
}
"""Names of several files, and why they mean the same thing."""

MOST_ATTRIBUTES: Final = 12
LARGER: Final = {
    "FileEvents": 17,
    "SimulatedStore": 14,
    "TapProxy": 16,
    "TopicEvents": 17,
}
"""Attributes of classes that still have more than one reason to change. Split one and take it off the list: a
number here only falls."""


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


def test_a_file_name_means_one_thing() -> None:
    """Two files of one name are confused in every list of files, unless they mean the same thing."""
    found = defaultdict(list)
    for path in PACKAGE.rglob("*.py"):
        if path.name != "__init__.py":
            found[path.name].append(path)

    assert {name for name, paths in found.items() if len(paths) > 1} == set(SAME_NAME)


def attributes(found: ast.ClassDef) -> set[str]:
    """Return the attributes that the methods of a class assign to its objects."""
    names = set()
    for method in found.body:
        if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef) and method.args.args:
            me = method.args.args[0].arg
            names |= {
                node.attr
                for node in ast.walk(method)
                if isinstance(node, ast.Attribute)
                and isinstance(node.ctx, ast.Store)
                and isinstance(node.value, ast.Name)
                and node.value.id == me
            }
    return names


def large_classes(folder: Path) -> Iterator[tuple[str, int]]:
    """Yield each class with too many attributes, and their number."""
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and len(found := attributes(node)) > MOST_ATTRIBUTES:
                yield node.name, len(found)


def test_a_class_has_few_attributes() -> None:
    """A class has one reason to change. Records that only list their fields do not count."""
    assert dict(large_classes(PACKAGE)) == LARGER


def test_a_class_with_too_many_attributes_is_found(tmp_path: Path) -> None:
    """Attributes count once each, wherever a method assigns them: in a tuple, a loop or ``with``."""
    names = ", ".join(f"self.a{number}" for number in range(MOST_ATTRIBUTES))
    method = f"    def __init__(self, values):\n        {names} = values\n        for self.b in values:\n"
    (tmp_path / "example.py").write_text(f"class Large:\n{method}            self.b = None\n")

    assert list(large_classes(tmp_path)) == [("Large", MOST_ATTRIBUTES + 1)]


def test_no_signature_is_squeezed() -> None:
    """The formatter lays out every signature: ``# fmt: skip`` at its end hides that it is too long."""
    squeezed = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in PACKAGE.rglob("*.py")
        for text in [path.read_text()]
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if any("# fmt: skip" in line for line in text.splitlines()[node.lineno - 1 : node.body[0].lineno - 1])
    ]

    assert squeezed == []


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


def test_the_kind_of_a_table_is_asked_where_its_layout_is_chosen() -> None:
    """Outside of the spec a layout knows the differences; a comparison would be one that nobody finds."""
    may_ask = {
        "hudi/layout.py": "chooses the layout",
        "hudi/options/merge.py": "the options of the merge are this layer",
        "hudi/options/table_layer.py": "the name of a new table",
        "arrow.py": "reads without Spark, which layouts need",
        "check/": "shares no code with what it checks",
        "spec/": "says what there is to ask",
    }
    compares = re.compile(r"\.(kind|merge)\b.*'(splice|plain|event_time|commit_time|partial_update)'")
    picks = re.compile(r"\b(table|spec)\.(kind|merge)$")
    asked = {
        str(path.relative_to(PACKAGE / "spark"))
        for path in sorted((PACKAGE / "spark").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if (isinstance(node, ast.Compare) and compares.search(ast.unparse(node)))
        or (isinstance(node, ast.Subscript) and picks.search(ast.unparse(node.slice)))
    }

    assert [file for file in sorted(asked) if not file.startswith(tuple(may_ask))] == []
    assert all(any(file.startswith(place) for file in asked) for place in may_ask)
