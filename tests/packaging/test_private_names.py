"""No module of ours reaches into the private names of another object, but for a list of hooks."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

import asynclock

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

PACKAGE: Final = Path(asynclock.__file__).parent
PLUGIN: Final = PACKAGE.parent / "pytest_asynclock.py"
HOOKS: Final = {
    # Python's own.
    "lease": {"sys._getframe"},
    "_core": {"sys._getframe"},
    "testing": {
        "asyncio._get_running_loop",
        "asyncio._set_running_loop",
        "task._log_destroy_pending",
        "task._log_traceback",
    },
    # PySpark has no public way to its JVM, to an exception of that, to the context that runs, nor to make
    # another session the active one; py4j none to what its own classes are made with.
    "spark": {
        "_jvm",
        "_gateway_client",
        "_jsc",
        "_jdf",
        "_jc",
        "_jsparkSession",
        "SparkContext._active_spark_context",
        "SparkContext._ensure_initialized",
        "SparkSession._activeSession",
        "error._origin",
    },
}
"""By package, or by the module that is in none: what it uses of others that they do not document."""

OWN: Final = {"self", "cls", "super()"}
ATTRIBUTE: Final = {"getattr", "setattr", "hasattr"}
HANDLES: Final = {"_core", "_engine", "_held"}
"""What a handle wraps: for the package but the pipeline, so that its public names are all for users."""
DOCUMENTED: Final = {"_fields", "_replace"}
"""Of named tuples; errors list their fields by the same name. Ruff knows these too."""


def reaches(path: Path, handles: Collection[str] = HANDLES) -> Iterator[tuple[int, str]]:
    """Yield the line and text of each use of a private name of another object or module but ``handles``."""
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Attribute(value=owner, attr=name):
                pass
            case ast.Call(func=ast.Name(by), args=[owner, ast.Constant(name), *_]) if by in ATTRIBUTE:
                pass
            case ast.ImportFrom(module=str(module), names=names) if module.startswith("asynclock"):
                yield from ((node.lineno, each.name) for each in names if is_private(each.name, handles))
                continue
            case _:
                continue
        if is_private(name, handles) and ast.unparse(owner) not in OWN:
            yield node.lineno, f"{ast.unparse(owner)}.{name}"


def is_private(name: str, handles: Collection[str]) -> bool:
    """Return whether a name begins with one underscore, and is neither documented nor a handle's core."""
    return name.startswith("_") and not name.startswith("__") and name not in {*DOCUMENTED, *handles}


def hook(package: str, reach: str) -> str | None:
    """Return the hook of the list that a reach uses, or None."""
    fitting = (each for each in HOOKS.get(package, ()) if f".{reach}".endswith(f".{each}"))
    return next(fitting, None)


def test_every_module_keeps_to_the_public_names_of_others() -> None:
    """Only the hooks of the list are used, and all of those: ``# noqa: SLF001`` is no way around it."""
    used = defaultdict(set)
    others = []
    for path in [*sorted(PACKAGE.rglob("*.py")), PLUGIN]:
        package = path.relative_to(PACKAGE.parent).with_suffix("").parts[1:2]
        for line, reach in reaches(path, () if package == ("spark",) else HANDLES):
            found = hook("".join(package), reach)
            if found is None:
                others.append(f"{path.relative_to(PACKAGE.parent)}:{line}: {reach}")
            else:
                used["".join(package)].add(found)

    assert others == []
    assert used == HOOKS


def test_a_reach_is_found(tmp_path: Path) -> None:
    """The search sees an attribute, an import and a name in quotes, and leaves an object's own alone."""
    path = tmp_path / "example.py"
    path.write_text(
        "from asynclock.lock import _Hold\n"
        "lease._tenure.head\n"
        "getattr(lease, '_tenure')\n"
        "self._own\n"
        "getattr(self, 'name')\n"
    )

    assert sorted(reaches(path)) == [
        (1, "_Hold"),
        (2, "lease._tenure"),
        (3, "lease._tenure"),
    ]
