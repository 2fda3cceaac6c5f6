"""The keys of Hudi's options are spelled in two modules: of the lock, and of the pipeline."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

import asynclock
from asynclock.hudi._core import hoodie as lock_keys
from asynclock.spark import hoodie

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE: Final = Path(asynclock.__file__).parent
HOMES: Final = {Path(hoodie.__file__), Path(lock_keys.__file__)}
# ``hoodie.properties`` is a file; ``hoodie.`` alone begins every key.
KEY: Final = re.compile(r"(?<![\w/.])hoodie\\?\.(?!properties\b)\w")


def keys_in(source: str) -> Iterator[int]:
    """Yield the line of each text in a module, docstrings aside, that spells the key of an option."""
    for node in ast.walk(ast.parse(source)):
        # A text that is a statement of its own documents something.
        for child in ast.iter_child_nodes(node):
            if isinstance(node, ast.Expr) or not isinstance(child, ast.Constant):
                continue
            text = child.value.decode("latin-1") if isinstance(child.value, bytes) else child.value
            if isinstance(text, str) and KEY.search(text):
                yield child.lineno


def test_every_key_is_spelled_in_one_module() -> None:
    """A key that another module needs is a constant of ``asynclock.spark.hoodie``, or of the lock."""
    elsewhere = [
        f"{path.relative_to(PACKAGE)}:{line}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if path not in HOMES
        for line in keys_in(path.read_text())
    ]

    assert elsewhere == []


def test_a_constant_is_named_as_its_key() -> None:
    """Each constant is named like its key, and no key is there twice."""
    both = vars(hoodie) | vars(lock_keys)
    keys = {name: value for name, value in both.items() if isinstance(value, str) and name.isupper()}
    options = {name: key for name, key in keys.items() if not name.endswith("_PREFIX")}

    assert options == {key.removeprefix("hoodie.").replace(".", "_").upper(): key for key in options.values()}


def test_a_key_that_is_spelled_elsewhere_is_found() -> None:
    """Plain, formatted and bytes texts count; a docstring and the name of the properties file do not."""
    source = '''"""Reads hoodie.table.type."""
A = "hoodie.table.type"
B = f"{A} is hoodie.table.name"
C = rb"^hoodie\\.table\\.version"
D = "/.hoodie/hoodie.properties"
"""See hoodie.table.type."""
'''

    assert list(keys_in(source)) == [2, 4, 3]
