"""Read a TOML file, and find the line of each key for errors."""

from __future__ import annotations

import difflib
import re
import tomllib
from typing import TYPE_CHECKING, Final

from asynclock.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from asynclock.errors import ConfigError

Keys = tuple[str, ...]

_HEADER: Final = re.compile(r"^\s*\[\[?\s*(?P<keys>[^\[\]]+?)\s*\]\]?\s*(#.*)?$")
_ASSIGNMENT: Final = re.compile(r"""^\s*(?P<keys>[A-Za-z0-9_\-."' \t]+?)\s*=""")
_SYNTAX_LINE: Final = re.compile(r"at line (\d+)")


class SpecFile:
    """The parsed text of a spec and the line of each of its keys.

    ``tomllib`` keeps no positions, so lines are found by scanning the text for the assignment of the key
    under the header of its table. A key that is not found this way gets the line of its nearest parent.
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

    def line(self, keys: Keys) -> int:
        """Return the line of ``keys`` or of its nearest parent that exists, from 1; 0 if there is none."""
        for end in range(len(keys), 0, -1):
            if keys[:end] in self._lines:
                return self._lines[keys[:end]]
        return 0

    def error(self, keys: Keys, value: object, reason: str) -> SpecError:
        """Return an error about ``keys``, with its line."""
        return self._at(self.line(keys), keys, value, reason)

    def errors(self, problems: Iterable[ConfigError]) -> SpecError:
        """Return one error about all wrong settings, in the order of their lines."""
        found = [self.error(tuple(each.setting.split(".")), each.value, each.reason) for each in problems]
        first, *others = sorted({str(each): each for each in found}.values(), key=lambda each: each.line)
        if not others:
            return first
        return SpecError(
            path=first.path,
            line=first.line,
            key=first.key,
            value=first.value,
            reason=first.reason,
            others=tuple(str(each.args[0]) for each in others),  # without their codes
        )

    def _at(self, line: int, keys: Keys, value: object, reason: str) -> SpecError:
        return SpecError(path=str(self.path), line=line, key=".".join(keys), value=value, reason=reason)


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
