"""Read a TOML file key by key, so that every error names the file, the line and the key."""

from __future__ import annotations

import difflib
import re
import tomllib
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeVar

from asynclock.errors import ConfigError, SpecError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

Keys = tuple[str, ...]
T = TypeVar("T")

_HEADER: Final = re.compile(r"^\s*\[\[?\s*(?P<keys>[^\[\]]+?)\s*\]\]?\s*(#.*)?$")
_ASSIGNMENT: Final = re.compile(r"""^\s*(?P<keys>[A-Za-z0-9_\-."' \t]+?)\s*=""")
_SYNTAX_LINE: Final = re.compile(r"at line (\d+)")
_KIND_NAMES: Final[Mapping[type, str]] = {
    str: "a string",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list: "a list of strings",
    dict: "a table",
}


class SpecFile:
    """The parsed text of a spec and the line of each of its keys.

    ``tomllib`` keeps no positions, so lines are found by scanning the text for the assignment of the key
    under the header of its table. A key that is not found that way has the line of its nearest parent.
    """

    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        self._lines = _assignment_lines(text)
        try:
            self.values: dict[str, object] = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            found = _SYNTAX_LINE.search(str(error))
            line = int(found[1]) if found else text.count("\n") + 1
            raise self._at(line, (), None, f"not valid TOML: {error}") from error

    @classmethod
    def read(cls, path: Path) -> SpecFile:
        """Read and parse ``path``.

        Raises:
            SpecError: The file cannot be read or is not TOML.
        """
        try:
            return cls(path, path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            reason = f"the file cannot be read ({error}); give the path of a spec in TOML"
            raise SpecError(path=str(path), line=0, key="spec", value=str(path), reason=reason) from error

    def root(self, known: Iterable[str]) -> Section:
        """Return the top level of the file; keys that are not in ``known`` are refused."""
        return Section(self, (), self.values, known)

    def line(self, keys: Keys) -> int:
        """Return the line of ``keys`` or of its nearest parent that exists, from 1; 0 if there is none."""
        for end in range(len(keys), 0, -1):
            if keys[:end] in self._lines:
                return self._lines[keys[:end]]
        return 0

    def error(self, keys: Keys, value: object, reason: str) -> SpecError:
        """Return an error about ``keys``, with its line."""
        return self._at(self.line(keys), keys, value, reason)

    @contextmanager
    def locating(self, keys: Keys = ()) -> Iterator[None]:
        """Turn a ``ConfigError`` about a setting under ``keys`` into a ``SpecError`` with file and line."""
        try:
            yield
        except SpecError:
            raise
        except ConfigError as error:
            inner = tuple(error.setting.split(".")) if error.setting else ()
            raise self.error((*keys, *inner), error.value, error.reason) from error

    def _at(self, line: int, keys: Keys, value: object, reason: str) -> SpecError:
        return SpecError(path=str(self.path), line=line, key=".".join(keys), value=value, reason=reason)


class Section:
    """One table of the file, with typed access to its keys."""

    def __init__(
        self, file: SpecFile, keys: Keys, values: Mapping[str, object], known: Iterable[str]
    ) -> None:
        self._file = file
        self.keys = keys
        self.values = values
        names = tuple(known)
        for key, value in values.items():
            if names and key not in names:
                raise self.error(key, value, unknown_name(key, names))

    @contextmanager
    def locating(self, *inner: str) -> Iterator[None]:
        """Turn a ``ConfigError`` about a setting of this table into a ``SpecError`` with file and line."""
        with self._file.locating((*self.keys, *inner)):
            yield

    def error(self, key: str, value: object, reason: str) -> SpecError:
        """Return an error about ``key`` of this table."""
        return self._file.error((*self.keys, key) if key else self.keys, value, reason)

    def required(self, key: str, kind: type[T]) -> T:
        """Return the value of ``key``.

        Raises:
            SpecError: The key is missing, or its value has the wrong type.
        """
        value = self.optional(key, kind)
        if value is None:
            raise self.error(key, None, f"missing; add {key} = {_KIND_NAMES[kind]}")
        return value

    def value(self, key: str, kind: type[T], default: T) -> T:
        """Return the value of ``key``, or ``default`` if the file does not have it.

        Raises:
            SpecError: The value has the wrong type.
        """
        value = self.optional(key, kind)
        return default if value is None else value

    def optional(self, key: str, kind: type[T]) -> T | None:
        """Return the value of ``key``, or None if the file does not have it.

        Raises:
            SpecError: The value has the wrong type.
        """
        value = self.values.get(key)
        if value is None:
            return None
        if kind is float and type(value) is int:
            value = float(value)
        # bool is a subclass of int.
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise self.error(key, value, f"expected {_KIND_NAMES[kind]}, found {value!r}")
        return value

    def names(self, key: str) -> tuple[str, ...] | None:
        """Return the value of ``key`` as a list of strings, or None if the file does not have it."""
        values = self.optional(key, list)
        if values is None:
            return None
        for value in values:
            if not isinstance(value, str):
                raise self.error(key, values, f"expected a list of strings, found {value!r} in it")
        return tuple(values)

    def section(self, key: str, known: Iterable[str] = ()) -> Section:
        """Return the table ``key``, or an empty one; if ``known`` is empty, the table may have any key."""
        values = self.optional(key, dict) or {}
        return Section(self._file, (*self.keys, key), values, known)


def unknown_name(name: str, known: Iterable[str]) -> str:
    """Return a sentence: ``name`` is not one of ``known``, and which one was perhaps meant."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"unknown name {name!r}; {hint}known here: {', '.join(names)}"


def _assignment_lines(text: str) -> dict[Keys, int]:
    lines: dict[Keys, int] = {}
    header: Keys = ()
    closing = ""
    for number, line in enumerate(text.split("\n"), start=1):
        if closing:  # inside a multi-line string, which has no keys
            closing = "" if closing in line else closing
            continue
        if found := _HEADER.match(line):
            header = _split(found["keys"])
            lines.setdefault(header, number)
        elif found := _ASSIGNMENT.match(line):
            keys = (*header, *_split(found["keys"]))
            for end in range(len(header) + 1, len(keys) + 1):
                lines.setdefault(keys[:end], number)
        closing = next((mark for mark in ('"""', "'''") if line.count(mark) % 2), "")
    return lines


def _split(dotted: str) -> Keys:
    return tuple(part.strip().strip("\"'") for part in dotted.split("."))
