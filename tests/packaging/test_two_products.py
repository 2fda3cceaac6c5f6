"""The lock and the pipeline are two products: what the pipeline uses of the lock is public, or listed."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

import asynclock
from asynclock import telemetry

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE: Final = Path(asynclock.__file__).parent
ROOT: Final = PACKAGE.parent
PIPELINE: Final = PACKAGE / "spark"
SHARED: Final = {"asynclock._shared.command", "asynclock._shared.internals", "asynclock._shared.words"}
MOST_SHARED: Final = 47
"""How many internals the two products share: this number only falls."""
PAGES: Final = "".join(path.read_text() for path in sorted((ROOT / "docs/reference").glob("*.md")))
PUBLIC: Final = {
    *re.findall(r"auto\w+:: (asynclock[\w.]*)", PAGES),
    *(f"{telemetry.__name__}.{name}" for name in telemetry.__all__),
    "asynclock.sync",
}


def imports(folder: Path) -> Iterator[tuple[str, str, str]]:
    """Yield where a module imports a name of the lock, from which module, and the name."""
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith("asynclock."):
                yield from (
                    (f"{path.name}:{node.lineno}", str(node.module), each.name) for each in node.names
                )


def is_public(module: str, name: str) -> bool:
    """Return whether the reference has a name of the lock, under its module or the root."""
    return not PUBLIC.isdisjoint({f"{module}.{name}", f"asynclock.{name}"})


def test_the_pipeline_imports_public_names_and_the_shared_ones_alone() -> None:
    """Another name of the lock would be one that it may change at any time."""
    others = [
        f"{place}: {module}.{name}"
        for place, module, name in imports(PIPELINE)
        if not f"{module}.{name}.".startswith("asynclock.spark.")
        and module not in SHARED
        and not is_public(module, name)
    ]

    assert others == []


def test_each_shared_name_is_used_by_the_pipeline() -> None:
    """A name that the pipeline no longer needs is taken off the list."""
    used = {(module, name) for _, module, name in imports(PIPELINE) if module in SHARED}
    listed = {(module, name) for module in SHARED for name in importlib.import_module(module).__all__}

    assert used == listed
    assert len(listed) <= MOST_SHARED


def test_the_contract_names_every_internal_of_the_lock() -> None:
    """A new private module or package is forbidden to the pipeline at once."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (contract,) = (
        each
        for each in contracts
        if each["type"] == "forbidden" and each["source_modules"] == ["asynclock.spark"]
    )
    forbidden = set(contract["forbidden_modules"])
    internals = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in [*PACKAGE.glob("_[!_]*"), *PACKAGE.glob("[!_]*/_[!_]*")]
        if PIPELINE not in path.parents and (path.suffix == ".py" or (path / "__init__.py").exists())
    }

    missing = {each for each in internals - forbidden if each.rpartition(".")[0] not in forbidden}
    assert missing == {"asynclock._shared"}


def test_the_lock_imports_nothing_of_the_pipeline() -> None:
    """Not even for types or in a function: without the pipeline everything else works."""
    folders = [path for path in PACKAGE.iterdir() if path.is_dir() and path != PIPELINE]
    found = [
        place
        for folder in folders
        for place, module, name in imports(folder)
        if f"{module}.{name}.".startswith("asynclock.spark.")
    ]

    assert found == []


@pytest.mark.parametrize(
    ("words", "finds"), [(["policy", "--help"], False), (["--help"], True), (["pipeline", "--help"], True)]
)
def test_a_command_of_the_lock_looks_for_no_other(words: list[str], finds: bool) -> None:  # noqa: FBT001  a case
    """The help and the pipeline load the commands of other packages, and none of what those need."""
    program = f"""
import sys
from asynclock._cli.app import run_command
assert run_command({words!r}) == 0
loaded = [each for each in sys.modules if each.startswith("asynclock.spark")]
assert bool(loaded) == {finds}, loaded
assert not {{"pyspark", "pydantic", "psutil", "rich"}} & set(sys.modules)
assert "asynclock._shared.internals" not in sys.modules or {words == ["pipeline", "--help"]}
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")


def test_the_names_of_the_pipeline_are_there_before_they_are_loaded() -> None:
    """An error can be named without Spark and pydantic; what needs them loads them at its first use."""
    program = """
import sys
import asynclock.spark
assert {*asynclock.spark.__all__} <= {*dir(asynclock.spark)}
assert issubclass(asynclock.spark.StreamFailedError, Exception)
assert not {"pyspark", "pydantic"} & {*sys.modules}
assert callable(asynclock.spark.load_spec)
assert "pydantic" in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")
