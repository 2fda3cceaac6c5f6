"""Plants a mistake in the place of a decision that a function takes.

Decision and mistake are Python: an expression, statements or ``except`` clauses. They are compared
and replaced as syntax trees, so the layout, the comments and the lines of the source do not matter.
``$name`` stands for any one expression or statement, and for the same one wherever it is repeated.
``*$name`` at the end of a block or of arguments stands for the rest of them, ``**$name`` for the rest
of the keyword arguments. In a mistake all three stand for what they stood for in its decision.

A mistake in Java is a text that replaces another one, which its file has exactly once.
"""

from __future__ import annotations

import ast
import copy
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_DOLLAR: Final = "__dollar_"
"""Stands for ``$``, so that a pattern is Python."""
_DEFINITIONS: Final = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


JAVA: Final = Path("asynclock", "spark", "java", "src", "main", "java", "io", "asynclock")
"""The Java sources, relative to the folder that holds the package."""


class NoSuchDecisionError(ValueError):
    """The source has no such function, or the function does not take the decision exactly once."""


@dataclass(frozen=True, slots=True)
class Change:
    """One decision, and the mistake that replaces it.

    Attributes:
        function: ``module:function`` or ``module:Class.method``; only ``module`` for a module's constant.
        decision: What the function does; found in it exactly once.
        mistake: What it does instead; ``pass`` for nothing.
    """

    function: str
    decision: str
    mistake: str

    @property
    def path(self) -> Path:
        """The module's file, relative to the folder that holds its package."""
        return Path(*self.function.partition(":")[0].split(".")).with_suffix(".py")

    def planted(self, source: str) -> str:
        """Return the module's ``source`` with the mistake in it, without comments and in another layout.

        Raises:
            NoSuchDecisionError: The decision is not there exactly once.
        """
        tree = ast.parse(source)
        scope = self._scope(tree)
        decision, mistake = _parsed(self.decision), _parsed(self.mistake)
        if (old := _expression(decision)) is not None and (new := _expression(mistake)) is not None:
            decision, mistake = [old], [new]  # to be found in statements too
        places = list(_places(scope, decision))
        if len(places) != 1:
            raise NoSuchDecisionError(self._not_once(scope, places))
        places[0].put(mistake)
        return ast.unparse(ast.fix_missing_locations(tree))

    def _scope(self, tree: ast.Module) -> ast.AST:
        scope: ast.AST = tree
        for name in filter(None, self.function.partition(":")[2].split(".")):
            inside = [node for node in ast.iter_child_nodes(scope) if isinstance(node, _DEFINITIONS)]
            named = [node for node in inside if node.name == name]
            if len(named) != 1:
                there = ", ".join(node.name for node in inside) or "nothing"
                raise NoSuchDecisionError(
                    f"{self.function}: {name} is defined {len(named)} times, not once. "
                    f"Defined in that place: {there}"
                )
            scope = named[0]
        return scope

    def _not_once(self, scope: ast.AST, places: list[_Place]) -> str:
        in_order = sorted(places, key=lambda place: place.line)
        found = "\n".join(f"line {place.line}: {place.text}" for place in in_order) or ast.unparse(scope)
        return (
            f"{self.function} takes this decision {len(places)} times, not once:\n{self.decision}\n"
            f"What is there:\n{found}"
        )


@dataclass(frozen=True, slots=True)
class Patch:
    """A mistake in Java.

    Attributes:
        name: The file below ``JAVA``.
        old: Text that is replaced; it occurs exactly once.
        new: What stands there instead.
    """

    name: str
    old: str
    new: str

    @property
    def path(self) -> Path:
        """The file, relative to the folder that holds the package."""
        return JAVA / self.name

    def planted(self, source: str) -> str:
        """Return the file's ``source`` with the mistake in it.

        Raises:
            NoSuchDecisionError: The text to replace does not occur exactly once.
        """
        if (count := source.count(self.old)) != 1:
            raise NoSuchDecisionError(f"{self.name} has this text {count} times, not once:\n{self.old}")
        return source.replace(self.old, self.new)


def planted(changes: Iterable[Change | Patch], root: Path) -> dict[Path, str]:
    """Return the source of each changed file of the package in ``root``, by its path in ``root``.

    Raises:
        NoSuchDecisionError: A decision, or a text of Java, is not there exactly once.
    """
    sources: dict[Path, str] = {}
    for change in changes:
        path = change.path
        if not (root / path).is_file():
            where = change.function if isinstance(change, Change) else change.name
            raise NoSuchDecisionError(f"{where}: there is no {path}")
        sources[path] = change.planted(sources.get(path) or (root / path).read_text(encoding="utf-8"))
    return sources


@dataclass(frozen=True, slots=True)
class _Place:
    """Nodes that fit a pattern, in a field of their owner; and what its names stand for there."""

    owner: ast.AST
    field: str
    part: slice
    names: dict[str, object]

    @property
    def line(self) -> int:
        return int(self._nodes[0].lineno)

    @property
    def text(self) -> str:
        return "\n".join(map(ast.unparse, self._nodes))

    @property
    def _nodes(self) -> list[Any]:
        return _listed(getattr(self.owner, self.field))[self.part]

    def put(self, mistake: list[ast.AST]) -> None:
        filled = [node for each in mistake for node in _listed(_Filling(self.names).visit(each))]
        value = getattr(self.owner, self.field)
        if isinstance(value, list):
            value[self.part] = filled
        else:
            setattr(self.owner, self.field, filled[0])


def _parsed(pattern: str) -> list[ast.AST]:
    """Return the statements of a pattern, or its ``except`` clauses."""
    source = re.sub(r"\$(?=[a-z])", _DOLLAR, pattern)
    if not source.startswith("except"):
        return [*ast.parse(source).body]
    [clauses] = ast.parse(f"try:\n    pass\n{source}").body
    assert isinstance(clauses, ast.Try)
    return [*clauses.handlers]


def _expression(pattern: list[ast.AST]) -> ast.expr | None:
    return pattern[0].value if len(pattern) == 1 and isinstance(pattern[0], ast.Expr) else None


def _places(scope: ast.AST, pattern: list[ast.AST]) -> Iterator[_Place]:
    to_the_end = _rest(pattern[-1]) is not None
    for owner in ast.walk(scope):
        for field, value in ast.iter_fields(owner):
            nodes = _listed(value)
            for start in range(len(nodes)):
                part = slice(start, None if to_the_end else start + len(pattern))
                names: dict[str, object] = {}
                if _fits(pattern, nodes[part], names):
                    yield _Place(owner, field, part, names)


def _listed(value: Any) -> list[Any]:  # noqa: ANN401  a field of a tree holds anything
    return value if isinstance(value, list) else [value]


def _fits(pattern: object, found: object, names: dict[str, object]) -> bool:
    """Whether a tree fits a pattern; note in ``names`` what the pattern's names stand for."""
    if (name := _one(pattern)) is not None:
        return found is not None and _fits(names.setdefault(name, found), found, {})
    if type(pattern) is not type(found):
        return False
    if isinstance(pattern, list):
        assert isinstance(found, list)
        if pattern and (name := _rest(pattern[-1])) is not None:
            pattern = pattern[:-1]
            names[name], found = found[len(pattern) :], found[: len(pattern)]
        return len(pattern) == len(found) and all(map(_fits, pattern, found, [names] * len(found)))
    if isinstance(pattern, ast.AST):
        return all(
            _fits(value, getattr(found, field), names)
            for field, value in ast.iter_fields(pattern)
            if field != "ctx"  # the same variable is read in one place and assigned in another
        )
    return pattern == found


def _one(pattern: object) -> str | None:
    """Return the name in ``$name``, else None."""
    if isinstance(pattern, ast.Expr):
        pattern = pattern.value
    if isinstance(pattern, ast.Name) and pattern.id.startswith(_DOLLAR):
        return pattern.id.removeprefix(_DOLLAR)
    return None


def _rest(pattern: object) -> str | None:
    """Return the name in ``*$name`` or ``**$name``, else None."""
    if isinstance(pattern, ast.Expr):
        pattern = pattern.value
    if isinstance(pattern, ast.Starred) or (isinstance(pattern, ast.keyword) and pattern.arg is None):
        return _one(pattern.value)
    return None


class _Filling(ast.NodeTransformer):
    """Puts in place of each name what it stands for."""

    def __init__(self, names: dict[str, object]) -> None:
        self._names = names

    def visit(self, node: ast.AST) -> object:
        name = _one(node) or _rest(node)
        if name is None:
            return self.generic_visit(node)
        if name not in self._names:
            raise ValueError(f"the mistake uses ${name}, which the decision does not name")
        filling = copy.deepcopy(self._names[name])
        if isinstance(node, ast.stmt) and isinstance(filling, ast.expr):
            return ast.Expr(filling)
        return filling
